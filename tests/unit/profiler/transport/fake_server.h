// A server that gives prepared answers, one a connection or several on one, and keeps the requests.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "os/descriptor.h"

namespace windlass::transport {

class FakeServer {
 public:
  // "\0" as an answer: the connection stays open without an answer. "": the connection is closed.
  explicit FakeServer(std::vector<std::string> answers)
      : answers_(std::move(answers)), listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{.sin_family = AF_INET, .sin_port = 0, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_zero = {}};
    socklen_t size = sizeof address;
    if (::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
        ::listen(listener_.get(), 8) != 0 ||
        ::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0)
      std::abort();
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { serve(); });
  }
  ~FakeServer() {
    ::shutdown(listener_.get(), SHUT_RDWR);
    thread_.join();
  }
  FakeServer(const FakeServer&) = delete;
  FakeServer& operator=(const FakeServer&) = delete;

  [[nodiscard]] std::string url(const std::string& path = "/") const {
    return fmt::format("http://127.0.0.1:{}{}", port_, path);
  }
  [[nodiscard]] std::vector<std::string> requests() {
    const std::scoped_lock lock(mutex_);
    return requests_;
  }
  [[nodiscard]] int connections() const { return connections_; }

 private:
  // Head and body of one request; empty: the client has gone.
  static std::string read_request(int client) {
    std::string text;
    std::size_t wanted = std::string::npos;
    char some[4096];
    while (text.size() < wanted) {
      const ssize_t got = ::read(client, some, sizeof some);
      if (got <= 0) return {};
      text.append(some, static_cast<std::size_t>(got));
      if (wanted != std::string::npos) continue;
      const std::size_t head = text.find("\r\n\r\n");
      if (head == std::string::npos) continue;
      const std::size_t length = text.find("Content-Length: ");
      wanted = head + 4 + (length < head ? std::stoul(text.substr(length + 16)) : 0);
    }
    return text;
  }

  void serve() {
    std::size_t next = 0;
    std::vector<os::Descriptor> silent;
    while (next < answers_.size()) {
      const os::Descriptor client(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!client) return;
      ++connections_;
      while (next < answers_.size()) {
        std::string request = read_request(client.get());
        if (request.empty()) break;
        {
          const std::scoped_lock lock(mutex_);
          requests_.push_back(std::move(request));
        }
        const std::string& answer = answers_[next++];
        if (answer == std::string("\0", 1)) {
          silent.emplace_back(::dup(client.get()));
          break;
        }
        if (answer.empty() || ::send(client.get(), answer.data(), answer.size(), MSG_NOSIGNAL) < 0) break;
        if (answer.find("Content-Length") == std::string::npos) break;
      }
    }
    // Those that get no answer wait for the client.
    for (const os::Descriptor& one : silent) {
      char byte;
      while (::read(one.get(), &byte, 1) > 0) {}
    }
  }

  std::vector<std::string> answers_;
  os::Descriptor listener_;
  int port_ = 0;
  std::thread thread_;
  std::mutex mutex_;
  std::vector<std::string> requests_;
  std::atomic<int> connections_ = 0;
};

inline std::string answer_of(int status, const std::string& headers, const std::string& body) {
  return fmt::format("HTTP/1.1 {} Text\r\n{}Content-Length: {}\r\n\r\n{}", status, headers, body.size(), body);
}

}  // namespace windlass::transport
