// Serves one page to browsers of this machine, and what it asks for, on 127.0.0.1. The page may change while it is
// served.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "cli/http_server.h"
#include "windlass/error.h"

namespace windlass::cli {

// Other users of the machine can connect to the port, and so can pages of other sites that are open in the browser. So
// the page's path has 128 random bits. Every other path is answered with 404. Unless the server is root's, connections
// of other users than its own and root are closed.
class PageServer {
 public:
  // What ".../annotate?function=NAME&value=NAME" asks for.
  struct Question {
    std::string function, value;
  };
  // Runs in a process of its own (ChildAnswer), one at a time. Empty: such questions are answered with 404.
  using Annotate = std::function<WorkedOut(const Question&)>;
  struct Page {
    std::shared_ptr<const std::string> html;
    std::uint64_t version = 0;  // the page's ETag: a browser that has this version is answered with 304
  };
  struct Newer {
    int news = -1;                 // readable: there is a newer page
    std::function<Page()> take;    // makes `news` unreadable
    std::function<void()> wanted;  // a browser has asked for the page
  };

  // Port 0: one that is free. Errors: kSystem, with the text and errno of the call that failed.
  [[nodiscard]] static Expected<PageServer> listen(std::uint16_t port);

  [[nodiscard]] std::uint16_t port() const { return server_.port(); }
  // "http://127.0.0.1:41234/5f0c..."
  [[nodiscard]] std::string address() const;
  // As HttpServer::run(). `newer`: null if the page stays. A question is answered if it comes from the page. Who knows
  // the path is trusted.
  [[nodiscard]] Expected<void> serve(Page page, const Annotate& annotate, int stop, const Newer* newer = nullptr) const;

 private:
  PageServer(HttpServer server, std::string path) : server_(std::move(server)), path_(std::move(path)) {}

  HttpServer server_;
  std::string path_;
};

}  // namespace windlass::cli
