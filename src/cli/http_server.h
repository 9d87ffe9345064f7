// A server for browsers: HTTP/1.1 (RFC 9112), GET and HEAD, a connection a request. One thread waits for all clients.
// What takes long is worked out in processes, so that it blocks nobody.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "cli/child_answer.h"
#include "os/descriptor.h"
#include "windlass/error.h"

namespace windlass::cli {

struct HttpRequest {
  int connection;                        // its socket
  std::string_view method, path, query;  // as they came; the query without its ?
  std::string_view text;                 // all of it, up to the empty line behind the headers

  // Of a header; empty: it is not there. `name` in lower case.
  [[nodiscard]] std::string_view header(std::string_view name) const;
};

struct HttpReply {
  std::string head{};                         // with a body that is short
  std::shared_ptr<const std::string> body{};  // behind `head`
  std::function<WorkedOut()> work{};          // in place of both: runs in a process of its own
  std::string_view type{};                    // of what `work` gives; a literal
  bool trusted = false;                       // the client has shown that it may ask: it is dropped last
};

// The bytes of a connection, which outlives this. Waits for nothing.
class HttpChannel {
 public:
  struct Moved {
    std::size_t bytes = 0;  // more than 0: so many were moved
    short wants = 0;        // else: of poll(), what has to come first; 0: the connection is over
  };

  HttpChannel() = default;
  HttpChannel(const HttpChannel&) = delete;
  HttpChannel& operator=(const HttpChannel&) = delete;
  virtual ~HttpChannel() = default;

  [[nodiscard]] virtual Moved receive(std::span<char> to) = 0;
  [[nodiscard]] virtual Moved send(std::string_view bytes) = 0;
};

class HttpServer {
 public:
  struct Service {
    std::function<bool(int connection)> may_connect;                                   // else the connection is closed
    std::function<HttpReply(const HttpRequest&)> reply;                                // to GET and HEAD alone
    std::function<std::string(const WorkedOut&, std::string_view type)> worked_out{};  // head and body
    std::size_t most_at_once = 1;                                                      // processes; further work waits
    ChildLimits limits{};
    // Of a connection, null: it is closed. Empty: bytes go as they are.
    std::function<std::unique_ptr<HttpChannel>(int connection)> channel{};
  };
  // Something else that is waited for.
  struct News {
    int descriptor = -1;
    std::function<void()> take{};  // makes it unreadable
  };

  // Of an address in digits, of IPv4 or IPv6. Port 0: one that is free. Errors: kMalformed: no such address. kSystem,
  // with the text and errno of the call that failed.
  [[nodiscard]] static Expected<HttpServer> listen(const std::string& address, std::uint16_t port);
  // Of a Unix socket, whose file this makes: its own user and group may connect. A file that nobody listens at any more
  // is replaced. The path is shorter than sockaddr_un::sun_path.
  [[nodiscard]] static Expected<HttpServer> listen(const std::string& path);

  [[nodiscard]] std::uint16_t port() const { return port_; }  // 0: a Unix socket
  // Answers until `stop` is readable. A client that does not send its request within 10 s, or takes more than 60 s for
  // the answer, is let go; beyond 64 clients the oldest one is, first of those that are not trusted. A client that
  // leaves ends the process that works for it. Not thread-safe.
  [[nodiscard]] Expected<void> run(const Service& service, int stop, const News* news = nullptr) const;

 private:
  HttpServer(os::Descriptor socket, std::uint16_t port) : socket_(std::move(socket)), port_(port) {}

  os::Descriptor socket_;
  std::uint16_t port_;
};

// "127.0.0.1:7433", "[::1]:7433": an address in digits, and a port.
struct ListenPlace {
  std::string address;
  std::uint16_t port = 0;

  [[nodiscard]] bool is_ipv6() const { return address.find(':') != std::string::npos; }
  // For an address of HTTP.
  [[nodiscard]] std::string host() const { return is_ipv6() ? "[" + address + "]" : address; }
  // Nothing: `text` is no such place.
  [[nodiscard]] static std::optional<ListenPlace> parse(std::string_view text);
};

// The head of an answer that has `size` bytes. `more`: further headers, each with its end.
[[nodiscard]] std::string http_head(std::string_view status, std::string_view type, std::size_t size,
                                    std::string_view more = "");
// An answer in plain text.
[[nodiscard]] HttpReply short_reply(std::string_view status, std::string_view text, std::string_view more = "");
// A name or value of a query, as forms send it. Nothing: malformed.
[[nodiscard]] std::optional<std::string> form_decoded(std::string_view text);
// False: the request comes from a page of another site. Browsers say so of each request (Fetch Metadata).
[[nodiscard]] bool is_same_origin(const HttpRequest& request);

// Calls `take` with the name and the value of each part of a query, as they came.
template <typename Take>
void each_parameter(std::string_view query, Take take) {
  while (!query.empty()) {
    const std::string_view pair = query.substr(0, query.find('&'));
    query.remove_prefix(pair.size() == query.size() ? pair.size() : pair.size() + 1);
    const std::size_t mark = pair.find('=');
    take(pair.substr(0, mark), mark == std::string_view::npos ? std::string_view() : pair.substr(mark + 1));
  }
}

}  // namespace windlass::cli
