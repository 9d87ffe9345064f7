// Serves one text to programs of this machine: HTTP/1.1 (RFC 9112) on loopback or a Unix socket, a connection a
// request.
#pragma once

#include <cstdint>
#include <expected>
#include <functional>
#include <string>
#include <string_view>
#include <thread>

#include "os/descriptor.h"
#include "windlass/error.h"

namespace windlass::cli {

// "127.0.0.1:9309", "[::1]:9309", "unix:/run/windlass/metrics". Other addresses are refused: there is no TLS here.
struct MetricsPlace {
  bool is_ipv6 = false;
  std::uint16_t port = 0;  // 0: one that is free
  std::string path;        // of a Unix socket; empty: none
  [[nodiscard]] static std::expected<MetricsPlace, std::string> parse(std::string_view text);
};

// Answers "GET /metrics" on a thread of its own until it is destroyed. Every user of the machine may ask on loopback; a
// Unix socket has the rights of its file. A client that takes more than two seconds is let go.
class MetricsServer {
 public:
  using Text = std::function<std::string()>;  // called on that thread
  // Errors: kSystem, with the errno of the call that failed.
  [[nodiscard]] static Expected<MetricsServer> listen(const MetricsPlace& place);
  MetricsServer(MetricsServer&&) = default;
  MetricsServer& operator=(MetricsServer&&) = delete;
  ~MetricsServer();

  // "http://127.0.0.1:9309/metrics", or the path of the socket.
  [[nodiscard]] const std::string& address() const { return address_; }
  // `text` must live as long as the server.
  void start(Text text);

 private:
  MetricsServer(os::Descriptor socket, os::Descriptor stop, std::string address)
      : socket_(std::move(socket)), stop_(std::move(stop)), address_(std::move(address)) {}

  os::Descriptor socket_, stop_;
  std::string address_, path_;
  std::thread thread_;
};

}  // namespace windlass::cli
