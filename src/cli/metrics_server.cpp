#include "cli/metrics_server.h"

#include <sys/eventfd.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "cli/errors.h"

namespace windlass::cli {

std::expected<MetricsPlace, std::string> MetricsPlace::parse(std::string_view text) {
  constexpr std::string_view kUnix = "unix:";
  MetricsPlace place;
  if (text.starts_with(kUnix)) {
    place.path = text.substr(kUnix.size());
    if (place.path.starts_with('/') && place.path.size() < sizeof(sockaddr_un::sun_path)) return place;
    return std::unexpected(fmt::format("{} is no path of a socket. Way out: unix:/run/NAME, of up to 107 bytes", text));
  }
  constexpr std::string_view kLocal = "localhost:";
  const std::string digits =
      text.starts_with(kLocal) ? fmt::format("127.0.0.1:{}", text.substr(kLocal.size())) : std::string(text);
  if (const auto listen = ListenPlace::parse(digits)) {
    place.listen = *listen;
    return place;
  }
  return std::unexpected(
      fmt::format("{} is no address and port. Way out: 127.0.0.1:PORT, [::1]:PORT, 0.0.0.0:PORT or unix:PATH", text));
}

Expected<MetricsServer> MetricsServer::listen(const MetricsPlace& place) {
  auto server = !place.path.empty() ? HttpServer::listen(place.path)
                                    : HttpServer::listen(place.listen.address, place.listen.port);
  if (!server) return Failure(server.error());
  os::Descriptor stop(eventfd(0, EFD_CLOEXEC));
  if (!stop) return fail(ErrorCode::kSystem, "cannot make an event", 0, static_cast<std::uint64_t>(errno));
  return MetricsServer(std::move(*server), std::move(stop), place);
}

std::string MetricsServer::address() const {
  if (!place_.path.empty()) return place_.path;
  return fmt::format("http://{}:{}/metrics", place_.listen.host(), server_.port());
}

void MetricsServer::start(Text text) {
  const auto reply = [text = std::move(text)](const HttpRequest& request) {
    if (request.path != "/metrics") return short_reply("404 Not Found", "/metrics\n");
    auto body = std::make_shared<const std::string>(text());
    return HttpReply{.head = http_head("200 OK", "text/plain; version=0.0.4", body->size()), .body = std::move(body)};
  };
  thread_ = std::thread([this, reply] {
    const HttpServer::Service service{.may_connect = [](int) { return true; }, .reply = reply};
    if (const auto served = server_.run(service, stop_.get()); !served) say_error("agent", served.error());
  });
}

MetricsServer::~MetricsServer() {
  if (!thread_.joinable()) return;
  constexpr std::uint64_t kStop = 1;
  (void)!write(stop_.get(), &kStop, sizeof kStop);
  thread_.join();
  if (!place_.path.empty()) unlink(place_.path.c_str());
}

}  // namespace windlass::cli
