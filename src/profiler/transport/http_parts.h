// What both ways to send a request share.
#pragma once

#include <optional>

#include "profiler/transport/http_client.h"

namespace windlass::transport {

inline constexpr std::chrono::milliseconds kConnectPatience = std::chrono::seconds(10);

// Lines of headers as libcurl gives them: blocks that begin with a status line and end with an empty one, and trailers
// behind the last block. Earlier blocks (100 Continue, a proxy's) are dropped.
class HttpHead {
 public:
  void line(std::string_view text);
  // What the server says of the body's size so far. Zero: nothing.
  [[nodiscard]] std::size_t said_length() const;
  // Moves the fields away. Zero as the status: none has come.
  void take(HttpAnswer& to);

 private:
  int status_ = 0;
  bool ended_ = false;
  HttpFields headers_, trailers_;
};

// The error of a CURLcode.
[[nodiscard]] Failure curl_failure(int code);

// By the library. Nothing: it is not here.
class Libcurl {
 public:
  virtual ~Libcurl() = default;
  [[nodiscard]] virtual Expected<HttpAnswer> send(const HttpRequest& request) = 0;
};
[[nodiscard]] std::unique_ptr<Libcurl> open_libcurl();

// By the program.
[[nodiscard]] Expected<HttpAnswer> send_by_program(const HttpRequest& request);

}  // namespace windlass::transport
