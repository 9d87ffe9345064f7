#include "cli/page_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <iterator>
#include <list>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace windlass::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kLongestRequest = 16384, kMostClients = 64;
constexpr auto kToAsk = std::chrono::seconds(10), kToTake = std::chrono::seconds(60);

std::string head(std::string_view status, std::string_view type, std::size_t size) {
  return fmt::format(
      "HTTP/1.1 {}\r\nContent-Type: {}; charset=utf-8\r\nContent-Length: {}\r\nCache-Control: no-store\r\n"
      "X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\nCross-Origin-Resource-Policy: same-origin\r\n"
      "Connection: close\r\n\r\n",
      status, type, size);
}

std::string short_answer(std::string_view status, std::string_view text) {
  return head(status, "text/plain", text.size()) + std::string(text);
}

struct Answer {
  std::string head;
  std::string_view body;
};

// `request`: up to the empty line behind its headers.
Answer answer_to(std::string_view request, std::string_view path, std::string_view page) {
  const std::string_view method = request.substr(0, request.find(' '));
  if (method != "GET" && method != "HEAD") return {short_answer("405 Method Not Allowed", "GET and HEAD only\n"), {}};
  const std::string_view rest = request.substr(method.size() + 1);
  if (rest.substr(0, rest.find_first_of(" ?\r\n")) != path)
    return {short_answer("404 Not Found", "windlass printed the whole address of the page\n"), {}};
  return {head("200 OK", "text/html", page.size()), method == "GET" ? page : std::string_view()};
}

// One connection: reads a request, then writes the answer.
class Client {
 public:
  explicit Client(os::Descriptor socket) : socket_(std::move(socket)), until_(Clock::now() + kToAsk) {}

  [[nodiscard]] pollfd wanted() const { return {socket_.get(), static_cast<short>(answered_ ? POLLOUT : POLLIN), 0}; }
  [[nodiscard]] Clock::time_point until() const { return until_; }
  // Goes on as far as possible without waiting. False: the connection is over.
  [[nodiscard]] bool go_on(std::string_view path, std::string_view page) {
    return answered_ ? send_some() : receive_some(path, page);
  }

 private:
  bool receive_some(std::string_view path, std::string_view page) {
    char buffer[4096];
    const ssize_t got = recv(socket_.get(), buffer, sizeof buffer, MSG_DONTWAIT);
    if (got < 0) return errno == EAGAIN || errno == EINTR;
    request_.append(buffer, static_cast<std::size_t>(got));
    const bool whole = request_.find("\r\n\r\n") != std::string::npos;
    if (!whole) return got > 0 && request_.size() < kLongestRequest;
    answer_ = answer_to(request_, path, page);
    answered_ = true;
    until_ = Clock::now() + kToTake;
    return true;
  }

  bool send_some() {
    const bool in_head = sent_ < answer_.head.size();
    const std::string_view left =
        in_head ? std::string_view(answer_.head).substr(sent_) : answer_.body.substr(sent_ - answer_.head.size());
    const ssize_t put = send(socket_.get(), left.data(), left.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (put < 0) return errno == EAGAIN || errno == EINTR;
    sent_ += static_cast<std::size_t>(put);
    return sent_ < answer_.head.size() + answer_.body.size();
  }

  os::Descriptor socket_;
  Clock::time_point until_;
  std::string request_;
  bool answered_ = false;
  Answer answer_;
  std::size_t sent_ = 0;  // of head and body
};

Failure refused(const char* what) { return fail(ErrorCode::kSystem, what, 0, static_cast<std::uint64_t>(errno)); }

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

Expected<void> PageServer::serve(const std::string& page, int stop) const {
  std::list<Client> clients;
  std::vector<pollfd> wanted;
  for (;;) {
    wanted = {{stop, POLLIN, 0}, {socket_.get(), POLLIN, 0}};
    for (const Client& client : clients) wanted.push_back(client.wanted());
    constexpr int kLookAgain = 1000;  // ms, for clients whose time is over
    if (poll(wanted.data(), wanted.size(), clients.empty() ? -1 : kLookAgain) < 0 && errno != EINTR)
      return refused("cannot wait for browsers");
    if (wanted[0].revents != 0) return {};
    const auto now = Clock::now();
    auto client = clients.begin();
    for (std::size_t i = 2; i < wanted.size(); ++i) {
      const bool goes_on = wanted[i].revents == 0 || client->go_on(path_, page);
      client = goes_on && now <= client->until() ? std::next(client) : clients.erase(client);
    }
    if (wanted[1].revents == 0) continue;
    os::Descriptor connection(accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    const bool no_more = !connection && errno != EAGAIN && errno != EINTR && errno != ECONNABORTED;
    if (no_more && clients.empty()) return refused("cannot accept a browser");
    if (no_more || clients.size() == kMostClients) clients.pop_front();
    if (connection) clients.emplace_back(std::move(connection));
  }
}

}  // namespace windlass::cli
