#include "cli/http_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <iterator>
#include <list>
#include <span>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/ascii_case.h"

namespace windlass::cli {
namespace {

using Clock = std::chrono::steady_clock;
using Service = HttpServer::Service;

constexpr std::size_t kLongestRequest = 16384, kMostClients = 64;
constexpr auto kToAsk = std::chrono::seconds(10), kToTake = std::chrono::seconds(60);

Failure socket_refused(const char* what) {
  return fail(ErrorCode::kSystem, what, 0, static_cast<std::uint64_t>(errno));
}

// `text`: up to the empty line behind the headers.
HttpReply reply_to(int connection, std::string_view text, const Service& service) {
  HttpRequest request{.connection = connection, .method = {}, .path = {}, .query = {}, .text = text};
  request.method = text.substr(0, text.find(' '));
  if (request.method != "GET" && request.method != "HEAD")
    return short_reply("405 Method Not Allowed", "GET and HEAD only\n", "Allow: GET, HEAD\r\n");
  std::string_view target = text.substr(request.method.size() + 1);
  target = target.substr(0, target.find_first_of(" \r\n"));
  request.path = target.substr(0, target.find('?'));
  request.query = target.substr(std::min(target.size(), request.path.size() + 1));
  HttpReply reply = service.reply(request);
  if (request.method == "GET") return reply;
  if (reply.work) return short_reply("405 Method Not Allowed", "GET only\n", "Allow: GET\r\n");
  reply.body = nullptr;
  return reply;
}

class PlainChannel final : public HttpChannel {
 public:
  explicit PlainChannel(int connection) : connection_(connection) {}

  Moved receive(std::span<char> to) override {
    return moved(recv(connection_, to.data(), to.size(), MSG_DONTWAIT), POLLIN);
  }
  Moved send(std::string_view bytes) override {
    return moved(::send(connection_, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL), POLLOUT);
  }

 private:
  static Moved moved(ssize_t bytes, short wants) {
    if (bytes < 0) return {.bytes = 0, .wants = errno == EAGAIN || errno == EINTR ? wants : short{0}};
    return {.bytes = static_cast<std::size_t>(bytes), .wants = 0};
  }

  int connection_;
};

// One connection: reads a request, then writes the answer.
class Client {
 public:
  Client(os::Descriptor socket, std::unique_ptr<HttpChannel> channel)
      : socket_(std::move(socket)), channel_(std::move(channel)), until_(Clock::now() + kToAsk) {}

  [[nodiscard]] pollfd wanted() const { return {socket_.get(), reply_.work ? short{POLLRDHUP} : wants_, 0}; }
  [[nodiscard]] int worked_at() const { return child_ ? child_->descriptor() : -1; }
  [[nodiscard]] Clock::time_point until() const { return until_; }
  [[nodiscard]] bool is_trusted() const { return reply_.trusted; }
  [[nodiscard]] bool is_worked_for() const { return child_.has_value(); }
  [[nodiscard]] bool waits_for_work() const { return reply_.work && !child_; }

  // Goes on as far as possible without waiting. False: the connection is over.
  [[nodiscard]] bool go_on(const Service& service) {
    if (reply_.work) return false;  // it has gone
    return answered_ ? send_some() : receive_some(service);
  }
  void begin_work(const Service& service) {
    until_ = Clock::time_point::max();
    auto started = ChildAnswer::start(reply_.work, service.limits);
    if (started)
      child_.emplace(std::move(*started));
    else
      take(service, {.text = started.error().what});
  }
  void go_on_working(const Service& service) {
    if (!child_ || child_->go_on()) return;
    take(service, child_->answer());
    child_.reset();
  }

 private:
  void take(const Service& service, const WorkedOut& answer) {
    reply_ = {.head = service.worked_out(answer, reply_.type), .body = {}, .work = {}, .trusted = reply_.trusted};
    until_ = Clock::now() + kToTake;
  }

  // Waits for what a channel wants. False: it is over.
  bool waits_for(const HttpChannel::Moved& moved) {
    if (moved.wants != 0) wants_ = moved.wants;
    return moved.wants != 0;
  }

  // All that is there: a channel may hold bytes that poll() does not see.
  bool receive_some(const Service& service) {
    char buffer[4096];
    while (request_.find("\r\n\r\n") == std::string::npos) {
      if (request_.size() >= kLongestRequest) return false;
      const auto moved = channel_->receive(buffer);
      if (moved.bytes == 0) return waits_for(moved);
      request_.append(buffer, moved.bytes);
    }
    reply_ = reply_to(socket_.get(), request_, service);
    answered_ = true;
    wants_ = POLLOUT;
    until_ = Clock::now() + kToTake;
    return true;
  }

  bool send_some() {
    const std::string_view body = reply_.body ? std::string_view(*reply_.body) : std::string_view();
    const bool in_head = sent_ < reply_.head.size();
    const std::string_view left =
        in_head ? std::string_view(reply_.head).substr(sent_) : body.substr(sent_ - reply_.head.size());
    const auto moved = channel_->send(left);
    if (moved.bytes == 0) return waits_for(moved);
    wants_ = POLLOUT;
    sent_ += moved.bytes;
    return sent_ < reply_.head.size() + body.size();
  }

  os::Descriptor socket_;
  std::unique_ptr<HttpChannel> channel_;
  short wants_ = POLLIN;  // of poll(), to go on
  Clock::time_point until_;
  std::string request_;
  bool answered_ = false;
  HttpReply reply_;
  std::optional<ChildAnswer> child_;
  std::size_t sent_ = 0;  // of head and body
};

class Clients {
 public:
  explicit Clients(const Service& service) : service_(service) {}

  [[nodiscard]] bool empty() const { return clients_.empty(); }
  [[nodiscard]] bool full() const { return clients_.size() == kMostClients; }
  void add(os::Descriptor connection) {
    auto channel =
        service_.channel ? service_.channel(connection.get()) : std::make_unique<PlainChannel>(connection.get());
    if (channel != nullptr) clients_.emplace_back(std::move(connection), std::move(channel));
  }
  // The oldest one that is not trusted; else the oldest one.
  void drop_one() {
    const auto idle = std::ranges::find_if_not(clients_, &Client::is_trusted);
    clients_.erase(idle != clients_.end() ? idle : clients_.begin());
  }
  // Two of each client.
  void want(std::vector<pollfd>& wanted) const {
    for (const Client& client : clients_) {
      wanted.push_back(client.wanted());
      wanted.push_back({client.worked_at(), POLLIN, 0});
    }
  }
  // `polled`: what want() wanted.
  void go_on(std::span<const pollfd> polled) {
    const auto now = Clock::now();
    auto client = clients_.begin();
    for (std::size_t i = 0; client != clients_.end(); i += 2) {
      const bool goes_on = polled[i].revents == 0 || client->go_on(service_);
      client = goes_on && now <= client->until() ? std::next(client) : clients_.erase(client);
    }
    for (Client& one : clients_) one.go_on_working(service_);
    auto working = static_cast<std::size_t>(std::ranges::count_if(clients_, &Client::is_worked_for));
    for (Client& one : clients_) {
      if (working == service_.most_at_once) return;
      if (!one.waits_for_work()) continue;
      one.begin_work(service_);
      working += one.is_worked_for() ? 1 : 0;
    }
  }

 private:
  const Service& service_;
  std::list<Client> clients_;
};

}  // namespace

std::string_view HttpRequest::header(std::string_view name) const {
  for (std::size_t end = text.find("\r\n"); end != text.npos;) {
    const std::size_t begin = end + 2;
    end = text.find("\r\n", begin);
    const std::string_view line = text.substr(begin, end - begin);
    if (line.size() <= name.size() || line[name.size()] != ':') continue;
    if (!equal_without_case(line.substr(0, name.size()), name)) continue;
    const std::size_t value = line.find_first_not_of(" \t", name.size() + 1);
    return value == line.npos ? std::string_view() : line.substr(value);
  }
  return {};
}

std::optional<ListenPlace> ListenPlace::parse(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  if (colon == text.npos) return std::nullopt;
  std::string_view address = text.substr(0, colon);
  const bool is_six = address.starts_with('[') && address.ends_with(']');
  if (is_six) address = address.substr(1, address.size() - 2);
  ListenPlace place{.address = std::string(address)};
  const char* const end = text.data() + text.size();
  const auto read = std::from_chars(text.data() + colon + 1, end, place.port);
  in6_addr ignored{};
  if (read.ec != std::errc() || read.ptr != end ||
      inet_pton(is_six ? AF_INET6 : AF_INET, place.address.c_str(), &ignored) != 1)
    return std::nullopt;
  return place;
}

std::string http_head(std::string_view status, std::string_view type, std::size_t size, std::string_view more) {
  return fmt::format(
      "HTTP/1.1 {}\r\nContent-Type: {}; charset=utf-8\r\nContent-Length: {}\r\n{}Cache-Control: no-store\r\n"
      "X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\nCross-Origin-Resource-Policy: same-origin\r\n"
      "Connection: close\r\n\r\n",
      status, type, size, more);
}

HttpReply short_reply(std::string_view status, std::string_view text, std::string_view more) {
  return {.head = http_head(status, "text/plain", text.size(), more) + std::string(text)};
}

std::optional<std::string> form_decoded(std::string_view text) {
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

bool is_same_origin(const HttpRequest& request) {
  const std::string_view site = request.header("sec-fetch-site");
  return site.empty() || site == "same-origin";
}

Expected<HttpServer> HttpServer::listen(const std::string& address, std::uint16_t port) {
  sockaddr_storage place{};
  auto& four = reinterpret_cast<sockaddr_in&>(place);
  auto& six = reinterpret_cast<sockaddr_in6&>(place);
  socklen_t size = sizeof four;
  if (inet_pton(AF_INET, address.c_str(), &four.sin_addr) == 1) {
    place.ss_family = AF_INET;
  } else if (inet_pton(AF_INET6, address.c_str(), &six.sin6_addr) == 1) {
    place.ss_family = AF_INET6;
    size = sizeof six;
  } else {
    return fail(ErrorCode::kMalformed, "no address and port", 0);
  }
  in_port_t& at_port = place.ss_family == AF_INET ? four.sin_port : six.sin6_port;
  at_port = htons(port);
  os::Descriptor socket(::socket(place.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return socket_refused("cannot make a socket");
  const int yes = 1;  // a port that this program had a moment ago
  (void)setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  auto* const at = reinterpret_cast<sockaddr*>(&place);
  if (bind(socket.get(), at, size) != 0) return socket_refused("cannot listen");
  if (::listen(socket.get(), SOMAXCONN) != 0) return socket_refused("cannot listen");
  if (getsockname(socket.get(), at, &size) != 0) return socket_refused("cannot listen");
  return HttpServer(std::move(socket), ntohs(at_port));
}

Expected<HttpServer> HttpServer::listen(const std::string& path) {
  sockaddr_un place{.sun_family = AF_UNIX, .sun_path = {}};
  path.copy(place.sun_path, sizeof place.sun_path - 1);
  const auto* const at = reinterpret_cast<const sockaddr*>(&place);
  os::Descriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return socket_refused("cannot make a socket");
  struct stat old {};
  if (lstat(path.c_str(), &old) == 0 && S_ISSOCK(old.st_mode)) {
    const os::Descriptor probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (connect(probe.get(), at, sizeof place) != 0 && errno == ECONNREFUSED) unlink(path.c_str());
  }
  (void)fchmod(socket.get(), S_IRUSR | S_IWUSR);  // that of the file, once there is one
  if (bind(socket.get(), at, sizeof place) != 0) return socket_refused("cannot listen");
  if (chmod(path.c_str(), S_IRUSR | S_IWUSR | S_IRGRP | S_IWGRP) != 0) return socket_refused("cannot listen");
  if (::listen(socket.get(), SOMAXCONN) != 0) return socket_refused("cannot listen");
  return HttpServer(std::move(socket), 0);
}

Expected<void> HttpServer::run(const Service& service, int stop, const News* news) const {
  Clients clients(service);
  std::vector<pollfd> wanted;
  for (;;) {
    wanted = {{stop, POLLIN, 0}, {socket_.get(), POLLIN, 0}, {news != nullptr ? news->descriptor : -1, POLLIN, 0}};
    clients.want(wanted);
    constexpr int kLookAgain = 1000;  // ms, for clients whose time is over
    if (poll(wanted.data(), wanted.size(), clients.empty() ? -1 : kLookAgain) < 0 && errno != EINTR)
      return socket_refused("cannot wait for browsers");
    if (wanted[0].revents != 0) return {};
    if (wanted[2].revents != 0) news->take();
    clients.go_on(std::span(wanted).subspan(3));
    if (wanted[1].revents == 0) continue;
    os::Descriptor connection(accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    const bool no_more = !connection && errno != EAGAIN && errno != EINTR && errno != ECONNABORTED;
    if (no_more && clients.empty()) return socket_refused("cannot accept a browser");
    if (no_more || clients.full()) clients.drop_one();
    if (connection && service.may_connect(connection.get())) clients.add(std::move(connection));
  }
}

}  // namespace windlass::cli
