// Serves one text to other programs, at an address or a Unix socket.
#pragma once

#include <cstdint>
#include <expected>
#include <functional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "cli/http_server.h"
#include "os/descriptor.h"
#include "windlass/error.h"

namespace windlass::cli {

// "127.0.0.1:9309", "[::]:9309", "unix:/run/windlass/metrics". Port 0: one that is free.
struct MetricsPlace {
  ListenPlace listen{};
  std::string path{};  // of a Unix socket; empty: none
  [[nodiscard]] static std::expected<MetricsPlace, std::string> parse(std::string_view text);
};

// Answers "GET /metrics" on a thread of its own until it is destroyed. Whoever reaches the address may ask: there are
// no names in the counters. A Unix socket has the rights of its file.
class MetricsServer {
 public:
  using Text = std::function<std::string()>;  // called on that thread
  // Errors: those of HttpServer::listen().
  [[nodiscard]] static Expected<MetricsServer> listen(const MetricsPlace& place);
  MetricsServer(MetricsServer&&) = default;
  MetricsServer& operator=(MetricsServer&&) = delete;
  ~MetricsServer();

  // "http://127.0.0.1:9309/metrics", or the path of the socket.
  [[nodiscard]] std::string address() const;
  // What `text` uses must live as long as the server.
  void start(Text text);

 private:
  MetricsServer(HttpServer server, os::Descriptor stop, MetricsPlace place)
      : server_(std::move(server)), stop_(std::move(stop)), place_(std::move(place)) {}

  HttpServer server_;
  os::Descriptor stop_;
  MetricsPlace place_;
  std::thread thread_;
};

}  // namespace windlass::cli
