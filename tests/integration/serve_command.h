// `windlass serve` over a store of 1,000 services that the test makes.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "profiler/store/open_store.h"
#include "support/child_program.h"
#include "support/loopback.h"
#include "support/synthetic_profile.h"

namespace windlass::test {

inline constexpr std::uint64_t kServedStart = 1'790'000'000'000;  // ms of Unix time
inline constexpr std::uint64_t kServedInterval = 10'000, kServedIntervals = 12;
inline constexpr std::uint64_t kServedEnd = kServedStart + kServedInterval * kServedIntervals;
inline constexpr unsigned kServices = 1000;
inline const std::string kHostile =
    "<img src=x onerror=\"document.title='owned'\"></button><script>document.title='owned'</script>";

// Each interval has each service. Behind the half, other functions run.
inline profile::Profile served_profile(bool second_half) {
  profile::Profile profile = testing::synthetic_profile(
      {.samples = 2 * kServices, .functions = 60, .stacks = 100, .processes = 3, .depth = 12}, second_half ? 2 : 1);
  profile.functions[0].name = kHostile;
  const auto key = static_cast<std::uint32_t>(profile.strings.size());
  profile.strings.emplace_back("service");
  for (unsigned i = 0; i < kServices; ++i) {
    profile.label_sets.push_back({{key, static_cast<std::uint32_t>(profile.strings.size())}});
    profile.strings.push_back(i == 0 ? kHostile : i == 1 ? "turned \u202e round" : fmt::format("service-{:04}", i));
  }
  for (std::size_t i = 0; i < profile.samples.size(); ++i)
    profile.samples[i].labels = 1 + static_cast<std::uint32_t>(i % kServices);
  return profile;
}

inline void make_served_store(const std::string& path, const std::string& host = "here") {
  const auto store = store::open_store(path, {.write = true, .keep = {}});
  ASSERT_TRUE(store.has_value()) << store.error().text();
  const profile::Profile halves[] = {served_profile(false), served_profile(true)};
  for (std::uint64_t i = 0; i < kServedIntervals; ++i) {
    const std::uint64_t begin = (kServedStart + i * kServedInterval) * 1'000'000;
    const store::Batch batch{.id = {.host = host, .agent_start_ns = 1, .sequence = i},
                             .begin_ns = begin,
                             .end_ns = begin + kServedInterval * 1'000'000,
                             .profile = halves[i * 2 / kServedIntervals]};
    ASSERT_TRUE((*store)->append(batch).value_or(false));
  }
}

class ServeCommand : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    char name[] = "/tmp/windlass-serve-test-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    directory_ = name;
    store_ = directory_ + "/store.db";
    make_served_store(store_);
  }
  static void TearDownTestSuite() { std::filesystem::remove_all(directory_); }
  void TearDown() override { program_.reset(); }

  [[nodiscard]] static std::string said() {
    std::ifstream file(directory_ + "/said");
    return {std::istreambuf_iterator<char>(file), {}};
  }
  // Waits until the address is printed, and sets port_.
  void start(std::vector<std::string> words) {
    ::unlink((directory_ + "/said").c_str());
    program_ = std::make_unique<ChildProgram>(std::move(words), directory_ + "/said", STDERR_FILENO);
    for (int i = 0; i < 6000 && program_->runs(); ++i) {
      const std::string text = said();
      const std::size_t at = text.find("://"), end = text.find("/\n", at);
      if (at != std::string::npos && end != std::string::npos) {
        port_ = static_cast<std::uint16_t>(std::stoul(text.substr(text.rfind(':', end) + 1)));
        return;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    FAIL() << "no address is printed: " << said();
  }
  void serve(const std::vector<std::string>& options = {}) {
    std::vector<std::string> words{WINDLASS_COMMAND, "serve", store_, "--listen", "127.0.0.1:0"};
    words.insert(words.end(), options.begin(), options.end());
    start(std::move(words));
  }
  // The command's exit status after Ctrl-C.
  [[nodiscard]] int interrupted() const {
    ::kill(program_->pid(), SIGINT);
    siginfo_t info{};
    ::waitid(P_PID, static_cast<id_t>(program_->pid()), &info, WEXITED | WNOWAIT);
    return info.si_code == CLD_EXITED ? info.si_status : -info.si_status;
  }
  // `more`: further headers.
  [[nodiscard]] std::string get(const std::string& path, const std::string& more = "Host: localhost\r\n") const {
    return ask(port_, "GET " + path + " HTTP/1.1\r\n" + more + "\r\n");
  }
  [[nodiscard]] std::string status_of(const std::string& path, const std::string& more = "Host: localhost\r\n") const {
    return get(path, more).substr(0, 12);
  }
  [[nodiscard]] static std::string body_of(const std::string& answer) {
    const std::size_t at = answer.find("\r\n\r\n");
    return at == std::string::npos ? "" : answer.substr(at + 4);
  }
  [[nodiscard]] nlohmann::json json_of(const std::string& path) const {
    const std::string answer = get(path);
    EXPECT_TRUE(answer.starts_with("HTTP/1.1 200 OK\r\nContent-Type: application/json;")) << answer.substr(0, 300);
    return nlohmann::json::parse(body_of(answer), nullptr, false);
  }

  inline static std::string directory_, store_;
  std::unique_ptr<ChildProgram> program_;
  std::uint16_t port_ = 0;
};

// "from=...&to=...": all of the store.
inline std::string served_range() { return fmt::format("from={}&to={}", kServedStart, kServedEnd); }

}  // namespace windlass::test
