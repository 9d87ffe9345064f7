// Headless Chromium by its debugging pipe: a message of JSON ends with a NUL (--remote-debugging-pipe).
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include <fmt/format.h>

#include "support/run_command.h"

namespace windlass::test {

class Browser {
 public:
  using json = nlohmann::json;

  // Its path; empty: this machine has none.
  static std::string program() {
    std::string path = run("command -v chromium || command -v chromium-browser || command -v google-chrome").output;
    while (!path.empty() && path.back() == '\n') path.pop_back();
    return path;
  }

  // `folder`: of the browser's files.
  Browser(const std::string& program, const std::string& folder) {
    std::array<int, 2> to{}, back{};
    if (::pipe(to.data()) != 0 || ::pipe(back.data()) != 0) return;
    child_ = ::fork();
    if (child_ == 0) {
      ::setpgid(0, 0);
      const int lower = ::fcntl(to[0], F_DUPFD, 10), upper = ::fcntl(back[1], F_DUPFD, 10);
      ::dup2(lower, 3);  // the browser reads descriptor 3 and writes descriptor 4
      ::dup2(upper, 4);
      const int nothing = ::open("/dev/null", O_RDWR);
      ::dup2(nothing, 2);
      const std::string profile = "--user-data-dir=" + folder;
      ::execl(program.c_str(), program.c_str(), "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic",
              "--no-first-run", "--disable-sync", "--disable-background-networking", "--disable-component-update",
              profile.c_str(), "--remote-debugging-pipe", nullptr);
      ::_exit(127);
    }
    ::close(to[0]);
    ::close(back[1]);
    to_ = to[1];
    back_ = back[0];
    ::fcntl(to_, F_SETFD, FD_CLOEXEC);
    ::fcntl(back_, F_SETFD, FD_CLOEXEC);
    const json target = call("Target.createTarget", {{"url", "about:blank"}});
    if (!target.contains("targetId")) return;
    session_ =
        call("Target.attachToTarget", {{"targetId", target["targetId"]}, {"flatten", true}}).value("sessionId", "");
    call("Emulation.setFocusEmulationEnabled", {{"enabled", true}});
    call("Network.enable");
  }
  ~Browser() {
    ::close(to_);
    ::close(back_);
    if (child_ > 0) {
      ::kill(-child_, SIGKILL);
      ::waitpid(child_, nullptr, 0);
    }
  }
  Browser(const Browser&) = delete;
  Browser& operator=(const Browser&) = delete;

  [[nodiscard]] bool works() const { return !session_.empty(); }

  // The result; {} after an error.
  json call(const std::string& method, json parameters = json::object()) {
    json message{{"id", ++number_}, {"method", method}, {"params", std::move(parameters)}};
    if (!session_.empty()) message["sessionId"] = session_;
    const std::string text = message.dump() + '\0';
    for (std::size_t put = 0; put < text.size();) {
      const ssize_t n = ::write(to_, text.data() + put, text.size() - put);
      if (n <= 0) return json::object();
      put += static_cast<std::size_t>(n);
    }
    for (;;) {
      const json answer = next();
      if (answer.is_null()) return json::object();
      if (answer.value("method", "") == "Network.requestWillBeSent")
        requests_.push_back(answer["params"]["request"]["url"]);
      if (answer.value("id", 0) == number_) return answer.value("result", json::object());
    }
  }
  // Of an expression; a promise is waited for.
  json value(const std::string& expression) {
    const json result =
        call("Runtime.evaluate", {{"expression", expression}, {"returnByValue", true}, {"awaitPromise", true}});
    if (result.contains("exceptionDetails")) ADD_FAILURE() << expression << ": " << result["exceptionDetails"].dump();
    return result.contains("result") ? result["result"].value("value", json()) : json();
  }
  std::string text(const std::string& expression) {
    const json found = value(expression);
    return found.is_string() ? found.get<std::string>() : found.dump();
  }
  bool wait(const std::string& condition, std::chrono::seconds patience = std::chrono::seconds(300)) {
    const auto end = std::chrono::steady_clock::now() + patience;
    constexpr std::chrono::milliseconds kLongest(20);
    for (auto pause = std::chrono::milliseconds(1); std::chrono::steady_clock::now() < end;
         pause = std::min(2 * pause, kLongest)) {
      if (value(condition) == true) return true;
      std::this_thread::sleep_for(pause);
    }
    ADD_FAILURE() << "never true: " << condition;
    return false;
  }
  void size(int width, int height) {
    call("Emulation.setDeviceMetricsOverride",
         {{"width", width}, {"height", height}, {"deviceScaleFactor", 1}, {"mobile", false}});
  }
  void open(const std::string& url) {
    call("Page.navigate", {{"url", "about:blank"}});
    call("Page.navigate", {{"url", url}});
    wait(fmt::format("document.readyState == 'complete' && location.protocol != 'about:'"));
  }
  void press(const std::string& key, const std::string& letter = "") {
    const int code = key == "Enter"        ? 13
                     : key == "ArrowUp"    ? 38
                     : key == "ArrowDown"  ? 40
                     : key == "ArrowRight" ? 39
                                           : 0;
    json event{{"type", "keyDown"}, {"key", key}, {"windowsVirtualKeyCode", code}};
    if (!letter.empty()) event["text"] = letter;
    call("Input.dispatchKeyEvent", event);
    event["type"] = "keyUp";
    call("Input.dispatchKeyEvent", event);
  }
  // What pages asked for over all their time.
  [[nodiscard]] const std::vector<std::string>& requests() const { return requests_; }

 private:
  json next() {
    for (;;) {
      if (const auto end = rest_.find('\0'); end != std::string::npos) {
        const std::string message = rest_.substr(0, end);
        rest_.erase(0, end + 1);
        return json::parse(message);
      }
      std::array<char, 65536> buffer{};
      const ssize_t got = ::read(back_, buffer.data(), buffer.size());
      if (got <= 0) return {};
      rest_.append(buffer.data(), static_cast<std::size_t>(got));
    }
  }

  pid_t child_ = -1;
  int to_ = -1, back_ = -1, number_ = 0;
  std::string rest_, session_;
  std::vector<std::string> requests_;
};

}  // namespace windlass::test
