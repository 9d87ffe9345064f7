// A client of HTTP/1.1 and HTTP/2, with TLS: one request, one answer.
//
// libcurl does the work. It is opened when the first request is sent. Where there is no libcurl, and in
// windlass-static, which opens no library, the program curl is run. Redirects are not followed. Proxies are those of
// the environment (https_proxy, no_proxy), as libcurl reads them.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "windlass/error.h"

namespace windlass::transport {

// Files of PEM. Empty: the certificates of the system, or no certificate of the client's own.
struct HttpTls {
  std::string ca{}, certificate{}, key{};
};

struct HttpRequest {
  std::string method = "POST";
  std::string url{};                                             // http:// or https://; may have user:password@
  std::vector<std::pair<std::string, std::string>> headers{};    // Content-Type belongs here
  std::string_view body{};                                       // sent with a POST or PUT, even if empty
  std::chrono::milliseconds timeout = std::chrono::seconds(30);  // from the start to the last byte of the answer
  HttpTls tls{};
  bool http2_prior_knowledge = false;  // HTTP/2 from the first byte, as gRPC needs; else the server may choose it
  std::size_t most_bytes = std::size_t{4} << 20;  // of the answer's body
};

using HttpFields = std::vector<std::pair<std::string, std::string>>;

struct HttpAnswer {
  int status = 0;
  HttpFields headers{}, trailers{};  // names as they came; HTTP/2 has lower case alone
  std::string body{};

  // The first one of that name, of the headers, then of the trailers. Case does not matter. Empty: there is none.
  [[nodiscard]] std::string_view field(std::string_view name) const;
};

// Keeps its connections for the next request, but for those of `http2_prior_knowledge`. Not thread-safe, and not
// signal-safe. The caller ignores SIGPIPE.
class HttpClient {
 public:
  HttpClient();
  ~HttpClient();
  HttpClient(HttpClient&&) noexcept;
  HttpClient& operator=(HttpClient&&) noexcept;

  // An answer of any status is no error. Errors:
  //   kMalformed: the URL, the method or a header cannot be sent. kLimit: the answer is larger than `most_bytes`.
  //   kNotFound: there is neither libcurl nor the program curl.
  //   kUnreadable: no answer came. `what` says why and names the way out; `detail` is libcurl's number of the error
  //   (CURLcode).
  [[nodiscard]] Expected<HttpAnswer> send(const HttpRequest& request);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Without user, password and query: what messages may show.
[[nodiscard]] std::string url_shown(std::string_view url);
// "db.example:443" of a URL of http or https.
[[nodiscard]] std::string host_and_port(std::string_view url);
// An error says what is wrong with it.
[[nodiscard]] Expected<void> check_url(std::string_view url);

// The first line of a file, which has a token or a password, without spaces around it. The file is read at each call,
// so that a new token counts at once. Errors: kSystem: it cannot be read. kMalformed: it is empty, longer than 64 KiB,
// or has bytes that no header can have.
[[nodiscard]] Expected<std::string> read_secret(const std::string& path);

}  // namespace windlass::transport
