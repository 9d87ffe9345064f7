#include "cli/page_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <iterator>
#include <list>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "os/peer_user.h"

namespace windlass::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kLongestRequest = 16384, kMostClients = 64;
constexpr auto kToAsk = std::chrono::seconds(10), kToTake = std::chrono::seconds(60);

// `more`: further headers.
std::string head(std::string_view status, std::string_view type, std::size_t size, std::string_view more = "") {
  return fmt::format(
      "HTTP/1.1 {}\r\nContent-Type: {}; charset=utf-8\r\nContent-Length: {}\r\n{}Cache-Control: no-store\r\n"
      "X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\nCross-Origin-Resource-Policy: same-origin\r\n"
      "Connection: close\r\n\r\n",
      status, type, size, more);
}

std::string short_answer(std::string_view status, std::string_view text) {
  return head(status, "text/plain", text.size()) + std::string(text);
}

struct Answer {
  std::string head;
  std::shared_ptr<const std::string> body{};       // of the page
  std::optional<PageServer::Question> question{};  // to be answered first
};

// Of a header; empty: it is not there. `name` in lower case.
std::string_view header(std::string_view request, std::string_view name) {
  for (std::size_t end = request.find("\r\n"); end != request.npos;) {
    const std::size_t begin = end + 2;
    end = request.find("\r\n", begin);
    const std::string_view line = request.substr(begin, end - begin);
    if (line.size() <= name.size() || line[name.size()] != ':') continue;
    if (!std::ranges::equal(line.substr(0, name.size()), name, {}, [](char c) { return std::tolower(c); })) continue;
    const std::size_t value = line.find_first_not_of(" \t", name.size() + 1);
    return value == line.npos ? std::string_view() : line.substr(value);
  }
  return {};
}

// As forms send it. Nothing: malformed.
std::optional<std::string> decoded(std::string_view text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    unsigned byte = 0;
    if (text[i] != '%') {
      plain += text[i] == '+' ? ' ' : text[i];
      continue;
    }
    const char *const digits = text.data() + i + 1, *const end = digits + 2;
    if (text.size() - i < 3 || std::from_chars(digits, end, byte, 16).ptr != end) return std::nullopt;
    plain += static_cast<char>(byte);
    i += 2;
  }
  return plain;
}

std::optional<PageServer::Question> question_of(std::string_view query) {
  PageServer::Question question;
  while (!query.empty()) {
    const std::string_view pair = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(query.size(), pair.size() + 1));
    const std::size_t mark = pair.find('=');
    const auto value = decoded(mark == pair.npos ? std::string_view() : pair.substr(mark + 1));
    if (!value) return std::nullopt;
    if (pair.substr(0, mark) == "function") question.function = *value;
    if (pair.substr(0, mark) == "value") question.value = *value;
  }
  return question.function.empty() ? std::nullopt : std::optional(std::move(question));
}

// What is served now.
struct Served {
  std::string_view path;
  PageServer::Page page;
  const PageServer::Annotate& annotate;
  const PageServer::Newer* newer;
};

Answer page_answer(const Served& served, std::string_view known, bool with_body) {
  if (served.newer != nullptr) served.newer->wanted();
  const std::string tag = fmt::format("\"{}\"", served.page.version);
  const std::string header = fmt::format("ETag: {}\r\n", tag);
  if (known == tag) return {head("304 Not Modified", "text/html", served.page.html->size(), header)};
  return {head("200 OK", "text/html", served.page.html->size(), header), with_body ? served.page.html : nullptr};
}

// `request`: up to the empty line behind its headers.
Answer answer_to(std::string_view request, const Served& served) {
  const std::string_view method = request.substr(0, request.find(' '));
  if (method != "GET" && method != "HEAD") return {short_answer("405 Method Not Allowed", "GET and HEAD only\n")};
  std::string_view target = request.substr(method.size() + 1);
  target = target.substr(0, target.find_first_of(" \r\n"));
  const std::string_view place = target.substr(0, target.find('?'));
  if (place == served.path) return page_answer(served, header(request, "if-none-match"), method == "GET");
  constexpr std::string_view kAnnotate = "/annotate";
  if (!served.annotate || !place.starts_with(served.path) || place.substr(served.path.size()) != kAnnotate)
    return {short_answer("404 Not Found", "windlass printed the whole address of the page\n")};
  if (method != "GET") return {short_answer("405 Method Not Allowed", "GET only\n")};
  // Browsers say so of each request (Fetch Metadata).
  if (const auto site = header(request, "sec-fetch-site"); !site.empty() && site != "same-origin")
    return {short_answer("403 Forbidden", "only the page itself may ask\n")};
  auto question = question_of(target.substr(std::min(target.size(), place.size() + 1)));
  if (!question) return {short_answer("400 Bad Request", "annotate?function=NAME&value=NAME\n")};
  return {.head = {}, .question = std::move(question)};
}

// One connection: reads a request, then writes the answer.
class Client {
 public:
  explicit Client(os::Descriptor socket) : socket_(std::move(socket)), until_(Clock::now() + kToAsk) {}

  [[nodiscard]] pollfd wanted() const {
    return {socket_.get(), static_cast<short>(!answered_ ? POLLIN : answer_.question ? POLLRDHUP : POLLOUT), 0};
  }
  [[nodiscard]] Clock::time_point until() const { return until_; }
  [[nodiscard]] bool knows_path() const { return answer_.question || answer_.body != nullptr; }
  // What it waits for; null: nothing.
  [[nodiscard]] const PageServer::Question* question() const { return answer_.question ? &*answer_.question : nullptr; }
  // Goes on as far as possible without waiting. False: the connection is over.
  [[nodiscard]] bool go_on(const Served& served) {
    if (answer_.question) return false;  // it has gone
    return answered_ ? send_some() : receive_some(served);
  }
  void answer(const WorkedOut& answer) {
    answer_ = {answer.good ? head("200 OK", "application/x-ndjson", answer.text.size()) + answer.text
                           : short_answer("500 Internal Server Error", answer.text)};
    until_ = Clock::now() + kToTake;
  }

 private:
  bool receive_some(const Served& served) {
    char buffer[4096];
    const ssize_t got = recv(socket_.get(), buffer, sizeof buffer, MSG_DONTWAIT);
    if (got < 0) return errno == EAGAIN || errno == EINTR;
    request_.append(buffer, static_cast<std::size_t>(got));
    const bool whole = request_.find("\r\n\r\n") != std::string::npos;
    if (!whole) return got > 0 && request_.size() < kLongestRequest;
    answer_ = answer_to(request_, served);
    answered_ = true;
    until_ = Clock::now() + kToTake;
    return true;
  }

  bool send_some() {
    const std::string_view body = answer_.body ? std::string_view(*answer_.body) : std::string_view();
    const bool in_head = sent_ < answer_.head.size();
    const std::string_view left =
        in_head ? std::string_view(answer_.head).substr(sent_) : body.substr(sent_ - answer_.head.size());
    const ssize_t put = send(socket_.get(), left.data(), left.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (put < 0) return errno == EAGAIN || errno == EINTR;
    sent_ += static_cast<std::size_t>(put);
    return sent_ < answer_.head.size() + body.size();
  }

  os::Descriptor socket_;
  Clock::time_point until_;
  std::string request_;
  bool answered_ = false;
  Answer answer_;
  std::size_t sent_ = 0;  // of head and body
};

// The clients, and the answer that is worked out for one of them.
class Clients {
 public:
  explicit Clients(const Served& served) : served_(served) {}

  [[nodiscard]] bool empty() const { return clients_.empty(); }
  [[nodiscard]] bool full() const { return clients_.size() == kMostClients; }
  void add(os::Descriptor connection) { clients_.emplace_back(std::move(connection)); }
  // The oldest one that has not asked for something of the page; else the oldest one.
  void drop_one() {
    const auto idle = std::ranges::find_if_not(clients_, &Client::knows_path);
    drop(idle != clients_.end() ? idle : clients_.begin());
  }
  void want(std::vector<pollfd>& wanted) const {
    for (const Client& client : clients_) wanted.push_back(client.wanted());
    if (child_) wanted.push_back({child_->descriptor(), POLLIN, 0});
  }
  // `polled`: what want() wanted.
  void go_on(std::span<const pollfd> polled) {
    const auto now = Clock::now();
    auto client = clients_.begin();
    for (std::size_t i = 0; client != clients_.end(); ++i) {
      const bool goes_on = polled[i].revents == 0 || client->go_on(served_);
      client = goes_on && now <= client->until() ? std::next(client) : drop(client);
    }
    if (child_ && !child_->go_on()) {
      asking_->answer(child_->answer());
      child_.reset();
    }
    if (!child_) ask_next();
  }

 private:
  using Place = std::list<Client>::iterator;
  Place drop(Place client) {
    if (child_ && client == asking_) child_.reset();
    return clients_.erase(client);
  }
  void ask_next() {
    asking_ = std::ranges::find_if(clients_, [](const Client& client) { return client.question() != nullptr; });
    if (asking_ == clients_.end()) return;
    auto started = ChildAnswer::start([&] { return served_.annotate(*asking_->question()); });
    if (started)
      child_.emplace(std::move(*started));
    else
      asking_->answer({.text = started.error().what});
  }

  const Served& served_;
  std::list<Client> clients_;
  std::optional<ChildAnswer> child_;
  Place asking_ = clients_.end();  // whose question the child answers
};

Failure refused(const char* what) { return fail(ErrorCode::kSystem, what, 0, static_cast<std::uint64_t>(errno)); }

// The browser's address, with the path, is in its arguments, which other users can read. Root starts no browser, and
// its page may be another user's to see.
bool may_connect(int connection) {
  const uid_t own = geteuid();
  if (own == 0) return true;
  const auto user = os::peer_user(connection);
  return !user || *user == 0 || *user == own;
}

std::string random_path() {
  std::array<unsigned char, 16> bits{};
  if (getrandom(bits.data(), bits.size(), 0) != static_cast<ssize_t>(bits.size())) return {};
  std::string path = "/";
  for (const unsigned char byte : bits) path += fmt::format("{:02x}", byte);
  return path;
}

}  // namespace

Expected<PageServer> PageServer::listen(std::uint16_t port) {
  os::Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return refused("cannot make a socket");
  const int yes = 1;  // a port that this program had a moment ago
  (void)setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  sockaddr_in place{};
  place.sin_family = AF_INET;
  place.sin_port = htons(port);
  place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof place;
  auto* const at = reinterpret_cast<sockaddr*>(&place);
  if (bind(socket.get(), at, size) != 0) return refused("cannot listen");
  if (::listen(socket.get(), SOMAXCONN) != 0) return refused("cannot listen");
  if (getsockname(socket.get(), at, &size) != 0) return refused("cannot listen");
  std::string path = random_path();
  if (path.empty()) return refused("no random numbers");
  return PageServer(std::move(socket), ntohs(place.sin_port), std::move(path));
}

std::string PageServer::address() const { return fmt::format("http://127.0.0.1:{}{}", port_, path_); }

Expected<void> PageServer::serve(Page page, const Annotate& annotate, int stop, const Newer* newer) const {
  Served served{.path = path_, .page = std::move(page), .annotate = annotate, .newer = newer};
  Clients clients(served);
  std::vector<pollfd> wanted;
  for (;;) {
    wanted = {{stop, POLLIN, 0}, {socket_.get(), POLLIN, 0}, {newer != nullptr ? newer->news : -1, POLLIN, 0}};
    clients.want(wanted);
    constexpr int kLookAgain = 1000;  // ms, for clients whose time is over
    if (poll(wanted.data(), wanted.size(), clients.empty() ? -1 : kLookAgain) < 0 && errno != EINTR)
      return refused("cannot wait for browsers");
    if (wanted[0].revents != 0) return {};
    if (wanted[2].revents != 0) served.page = newer->take();
    clients.go_on(std::span(wanted).subspan(3));
    if (wanted[1].revents == 0) continue;
    os::Descriptor connection(accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    const bool no_more = !connection && errno != EAGAIN && errno != EINTR && errno != ECONNABORTED;
    if (no_more && clients.empty()) return refused("cannot accept a browser");
    if (no_more || clients.full()) clients.drop_one();
    if (connection && may_connect(connection.get())) clients.add(std::move(connection));
  }
}

}  // namespace windlass::cli
