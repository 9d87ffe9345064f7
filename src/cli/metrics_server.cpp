#include "cli/metrics_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <utility>

#include <fmt/format.h>

namespace windlass::cli {
namespace {

constexpr auto kLongestExchange = std::chrono::seconds(2);
constexpr std::size_t kLongestHeaders = 16384;

Failure not_listening(const char* what) { return fail(ErrorCode::kSystem, what, 0, static_cast<std::uint64_t>(errno)); }

std::string response(std::string_view status, std::string_view type, std::string_view body) {
  return fmt::format(
      "HTTP/1.1 {}\r\nContent-Type: {}; charset=utf-8\r\nContent-Length: {}\r\nCache-Control: no-store\r\n"
      "X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n{}",
      status, type, body.size(), body);
}

std::string respond(std::string_view request, const MetricsServer::Text& text) {
  const std::string_view method = request.substr(0, request.find(' '));
  if (method != "GET") return response("405 Method Not Allowed", "text/plain", "GET only\n");
  std::string_view target = request.substr(method.size() + 1);
  target = target.substr(0, target.find_first_of("? \r\n"));
  if (target != "/metrics") return response("404 Not Found", "text/plain", "/metrics\n");
  return response("200 OK", "text/plain; version=0.0.4", text());
}

// One exchange with a client, which may be slow or hostile.
class Exchange {
 public:
  Exchange(int client, int stop) : client_(client), stop_(stop), until_(Clock::now() + kLongestExchange) {}

  void run(const MetricsServer::Text& text) {
    std::string request;
    while (request.find("\r\n\r\n") == std::string::npos) {
      char buffer[4096];
      if (request.size() > kLongestHeaders || !wait(POLLIN)) return;
      const ssize_t got = recv(client_, buffer, sizeof buffer, MSG_DONTWAIT);
      if (got <= 0) return;
      request.append(buffer, static_cast<std::size_t>(got));
    }
    const std::string answer = respond(request, text);
    for (std::string_view left = answer; !left.empty();) {
      if (!wait(POLLOUT)) return;
      const ssize_t put = send(client_, left.data(), left.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
      if (put <= 0) return;
      left.remove_prefix(static_cast<std::size_t>(put));
    }
  }

 private:
  using Clock = std::chrono::steady_clock;
  // False: its time is over, or the server is to stop.
  [[nodiscard]] bool wait(short events) const {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until_ - Clock::now()).count();
    pollfd wanted[] = {{client_, events, 0}, {stop_, POLLIN, 0}};
    return left > 0 && poll(wanted, 2, static_cast<int>(left)) > 0 && wanted[1].revents == 0;
  }

  int client_, stop_;
  Clock::time_point until_;
};

void serve_metrics(int socket, int stop, const MetricsServer::Text& text) {
  for (;;) {
    pollfd wanted[] = {{stop, POLLIN, 0}, {socket, POLLIN, 0}};
    if (poll(wanted, 2, -1) < 0 && errno != EINTR) return;
    if (wanted[0].revents != 0) return;
    if (wanted[1].revents == 0) continue;
    const os::Descriptor client(accept4(socket, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (client)
      Exchange(client.get(), stop).run(text);
    else if (errno == EMFILE || errno == ENFILE)
      (void)poll(wanted, 1, 100);  // the connection waits, so do not spin
  }
}

// A socket file that nobody listens at any more is replaced. Only its own user and group may connect.
Expected<std::string> bind_unix(int socket, const std::string& path) {
  sockaddr_un place{.sun_family = AF_UNIX, .sun_path = {}};
  path.copy(place.sun_path, sizeof place.sun_path - 1);
  const auto* at = reinterpret_cast<const sockaddr*>(&place);
  struct stat old {};
  if (lstat(path.c_str(), &old) == 0 && S_ISSOCK(old.st_mode)) {
    const os::Descriptor probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (connect(probe.get(), at, sizeof place) != 0 && errno == ECONNREFUSED) unlink(path.c_str());
  }
  (void)fchmod(socket, S_IRUSR | S_IWUSR);  // that of the file, once there is one
  if (bind(socket, at, sizeof place) != 0 || chmod(path.c_str(), S_IRUSR | S_IWUSR | S_IRGRP | S_IWGRP) != 0)
    return not_listening("cannot listen");
  return path;
}

Expected<std::string> bind_loopback(int socket, const MetricsPlace& place) {
  const int yes = 1;  // a port that this program had a moment ago
  (void)setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  sockaddr_storage at{};
  socklen_t size = sizeof(sockaddr_in);
  if (place.is_ipv6) {
    auto& ipv6 = reinterpret_cast<sockaddr_in6&>(at);
    ipv6.sin6_family = AF_INET6;
    ipv6.sin6_addr = in6addr_loopback;
    ipv6.sin6_port = htons(place.port);
    size = sizeof(sockaddr_in6);
  } else {
    auto& ipv4 = reinterpret_cast<sockaddr_in&>(at);
    ipv4.sin_family = AF_INET;
    ipv4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ipv4.sin_port = htons(place.port);
  }
  auto* const address = reinterpret_cast<sockaddr*>(&at);
  if (bind(socket, address, size) != 0 || getsockname(socket, address, &size) != 0)
    return not_listening("cannot listen");
  const std::uint16_t port = ntohs(place.is_ipv6 ? reinterpret_cast<sockaddr_in6&>(at).sin6_port
                                                 : reinterpret_cast<sockaddr_in&>(at).sin_port);
  return fmt::format("http://{}:{}/metrics", place.is_ipv6 ? "[::1]" : "127.0.0.1", port);
}

}  // namespace

std::expected<MetricsPlace, std::string> MetricsPlace::parse(std::string_view text) {
  constexpr std::string_view kUnix = "unix:";
  MetricsPlace place;
  if (text.starts_with(kUnix)) {
    place.path = text.substr(kUnix.size());
    if (place.path.starts_with('/') && place.path.size() < sizeof(sockaddr_un::sun_path)) return place;
    return std::unexpected(fmt::format("{} is no path of a socket. Way out: unix:/run/NAME, of up to 107 bytes", text));
  }
  for (const auto& [host, is_ipv6] : {std::pair("127.0.0.1:", false), {"localhost:", false}, {"[::1]:", true}}) {
    if (!text.starts_with(host)) continue;
    const std::string_view digits = text.substr(std::strlen(host));
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), place.port);
    place.is_ipv6 = is_ipv6;
    if (error == std::errc() && end == digits.data() + digits.size()) return place;
  }
  return std::unexpected(
      fmt::format("{} is no address of this machine's own. Way out: 127.0.0.1:PORT, [::1]:PORT or unix:PATH", text));
}

Expected<MetricsServer> MetricsServer::listen(const MetricsPlace& place) {
  const int family = !place.path.empty() ? AF_UNIX : place.is_ipv6 ? AF_INET6 : AF_INET;
  os::Descriptor socket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return not_listening("cannot make a socket");
  auto address = place.path.empty() ? bind_loopback(socket.get(), place) : bind_unix(socket.get(), place.path);
  if (!address) return Failure(address.error());
  if (::listen(socket.get(), SOMAXCONN) != 0) return not_listening("cannot listen");
  os::Descriptor stop(eventfd(0, EFD_CLOEXEC));
  if (!stop) return not_listening("cannot make an event");
  MetricsServer server(std::move(socket), std::move(stop), std::move(*address));
  server.path_ = place.path;
  return server;
}

void MetricsServer::start(Text text) {
  thread_ = std::thread(
      [socket = socket_.get(), stop = stop_.get(), text = std::move(text)] { serve_metrics(socket, stop, text); });
}

MetricsServer::~MetricsServer() {
  if (!thread_.joinable()) return;
  constexpr std::uint64_t kStop = 1;
  (void)!write(stop_.get(), &kStop, sizeof kStop);
  thread_.join();
  if (!path_.empty()) unlink(path_.c_str());
}

}  // namespace windlass::cli
