// Stands between a store and a server of ClickHouse, and does what networks, proxies and servers do.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace windlass::testing {

class ClickhouseRelay {
 public:
  enum class Mode : int {
    kPass,
    kLoseAnswer,  // the server gets all of the insert into samples; its answer is not passed on
    kCutBody,     // the server gets half of the body; then on_cut() is called, and the connection ends
    kAnswer,      // nothing is passed on: `canned` is the answer
    kSilent,      // nothing is passed on, and nothing is answered
  };

  explicit ClickhouseRelay(int server_port) : server_port_(server_port) {
    listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in place = loopback(0);
    socklen_t size = sizeof place;
    (void)::bind(listener_, reinterpret_cast<sockaddr*>(&place), sizeof place);
    (void)::listen(listener_, 16);
    (void)::getsockname(listener_, reinterpret_cast<sockaddr*>(&place), &size);
    port_ = ntohs(place.sin_port);
    accepting_ = std::thread([this] { accept_all(); });
  }
  ~ClickhouseRelay() {
    ended_ = true;
    ::shutdown(listener_, SHUT_RDWR);
    accepting_.join();
    for (std::thread& thread : threads_) thread.join();
    ::close(listener_);
  }

  [[nodiscard]] int port() const { return port_; }
  void set(Mode mode) { mode_ = mode; }

  std::string canned;            // set before kAnswer
  std::function<void()> on_cut;  // set before kCutBody

 private:
  static sockaddr_in loopback(int port) {
    return {.sin_family = AF_INET,
            .sin_port = htons(static_cast<std::uint16_t>(port)),
            .sin_addr = {htonl(INADDR_LOOPBACK)},
            .sin_zero = {}};
  }
  static void send_all(int to, std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(to, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return;
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    }
  }
  // False: the end. Waits a moment at most; then `bytes` is empty.
  bool receive(int from, std::string& bytes) const {
    bytes.clear();
    pollfd wanted{from, POLLIN, 0};
    if (::poll(&wanted, 1, 50) == 0) return !ended_;
    std::array<char, 65536> some{};
    const ssize_t got = ::recv(from, some.data(), some.size(), 0);
    if (got > 0) bytes.assign(some.data(), static_cast<std::size_t>(got));
    return got > 0;
  }
  // One request, with its body. Empty: the end.
  std::string request(int client) const {
    std::string all, some;
    std::size_t wanted = std::string::npos;
    while (all.size() < wanted) {
      if (!receive(client, some)) return {};
      all += some;
      const std::size_t head = all.find("\r\n\r\n"), length = all.find("Content-Length: ");
      if (wanted == std::string::npos && head != std::string::npos)
        wanted = head + 4 + (length < head ? std::stoul(all.substr(length + 16)) : 0);
      if (all.find("100-continue") < head && all.size() == head + 4) send_all(client, "HTTP/1.1 100 Continue\r\n\r\n");
    }
    return all;
  }
  // The whole answer: its end is an empty chunk, as the server's answers are in chunks.
  std::string answer(int server) const {
    std::string all, some;
    while (receive(server, some)) {
      all += some;
      if (all.ends_with("\r\n0\r\n\r\n")) break;
      const std::size_t head = all.find("\r\n\r\n"), length = all.find("Content-Length: ");
      if (head != std::string::npos && length < head && all.size() >= head + 4 + std::stoul(all.substr(length + 16)))
        break;
    }
    return all;
  }

  void serve(int client) {
    const int server = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const sockaddr_in place = loopback(server_port_);
    (void)::connect(server, reinterpret_cast<const sockaddr*>(&place), sizeof place);
    for (std::string text; !(text = request(client)).empty();) {
      const Mode mode = mode_;
      const bool is_samples = text.substr(0, text.find("\r\n")).find("samples") != std::string::npos;
      if (mode == Mode::kSilent) {
        for (std::string some; receive(client, some);) {}
        break;
      }
      if (mode == Mode::kAnswer) {
        send_all(client, canned);
        break;
      }
      if (mode == Mode::kCutBody && is_samples) {
        const std::size_t body = text.find("\r\n\r\n") + 4;
        send_all(server, text.substr(0, body + (text.size() - body) / 2));
        if (on_cut) on_cut();
        break;
      }
      send_all(server, text);
      const std::string said = answer(server);
      if (said.empty() || (mode == Mode::kLoseAnswer && is_samples)) break;
      send_all(client, said);
    }
    ::close(server);
    ::close(client);
  }
  void accept_all() {
    for (;;) {
      const int client = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (client < 0 || ended_) return;
      threads_.emplace_back([this, client] { serve(client); });
    }
  }

  int server_port_, listener_ = -1, port_ = 0;
  std::atomic<Mode> mode_ = Mode::kPass;
  std::atomic<bool> ended_ = false;
  std::thread accepting_;
  std::vector<std::thread> threads_;
};

}  // namespace windlass::testing
