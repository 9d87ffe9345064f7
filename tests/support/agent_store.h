// `windlass agent` run by a test, with a store of its own.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "profiler/store/open_store.h"
#include "support/privilege.h"
#include "support/run_command.h"

namespace windlass::test {

inline constexpr const char* kBusy = "timeout 7 sh -c 'while :; do :; done'";
// A machine with much else to do takes long to start an agent and to write.
inline constexpr int kPatientTries = 3000;
inline constexpr std::chrono::milliseconds kBetweenTries{100};

class AgentStore : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = no_privilege_to_sample(); !reason.empty()) GTEST_SKIP() << reason;
    folder_ = ::testing::TempDir() + fmt::format("windlass-agent-store-{}", getpid());
    std::filesystem::create_directories(folder_);
    path_ = folder_ + "/profiles.db";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  CommandResult agent(const std::string& options, const std::string& before = "") {
    return run(fmt::format("{} {} agent --store {} {} 2>&1", before, WINDLASS_COMMAND, path_, options));
  }
  // "windlass: 12 of 13 samples are in FILE, of 4 intervals"
  static std::vector<unsigned long> numbers_of(const std::string& output) {
    const std::size_t at = output.rfind(" samples are in ");
    const std::size_t line = output.rfind("windlass: ", at);
    std::vector<unsigned long> numbers(3);
    if (at == std::string::npos ||
        std::sscanf(output.c_str() + line, "windlass: %lu of %lu samples are in %*[^,], of %lu", &numbers[0],
                    &numbers[1], &numbers[2]) != 3)
      ADD_FAILURE() << output;
    return numbers;
  }
  // Without an end: signal() tells it.
  class Running {
   public:
    // `command` for /bin/sh, which says on `output`.
    Running(const std::string& command, std::string output) : output_(std::move(output)), child_(fork()) {
      if (child_ != 0) return;
      const std::string text = fmt::format("exec >{} 2>&1; exec {}", output_, command);
      execl("/bin/sh", "sh", "-c", text.c_str(), nullptr);
      _exit(127);
    }
    ~Running() {
      if (child_ <= 0) return;
      kill(child_, SIGKILL);
      waitpid(child_, nullptr, 0);
    }
    Running(const Running&) = delete;
    Running& operator=(const Running&) = delete;

    [[nodiscard]] std::string text() const {
      std::ifstream in(output_);
      return {std::istreambuf_iterator<char>(in), {}};
    }
    // False: five minutes have gone.
    [[nodiscard]] bool said(const std::string& what, std::size_t times = 1) const {
      for (int tries = 0; tries < kPatientTries; ++tries) {
        std::size_t found = 0;
        const std::string all = text();
        for (std::size_t at = all.find(what); at != std::string::npos; at = all.find(what, at + 1)) ++found;
        if (found >= times) return true;
        std::this_thread::sleep_for(kBetweenTries);
      }
      return false;
    }
    void signal(int number) const { kill(child_, number); }
    // What it said, once it has ended.
    CommandResult wait() {
      int status = 0;
      waitpid(child_, &status, 0);
      child_ = 0;
      return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), text()};
    }

   private:
    std::string output_;
    pid_t child_;
  };
  std::unique_ptr<Running> start(const std::string& options, const std::string& before = "") {
    return std::make_unique<Running>(fmt::format("{} {} agent --store {} {}", before, WINDLASS_COMMAND, path_, options),
                                     fmt::format("{}/output-{}", folder_, ++started_));
  }
  // Waits until so many intervals are there.
  void await_intervals(std::uint64_t count) {
    for (int tries = 0; tries < kPatientTries; ++tries, std::this_thread::sleep_for(kBetweenTries)) {
      const auto store = store::open_store(path_);
      if (!store) continue;
      const auto stacks = (*store)->stacks({}, 0, ~std::uint64_t{0});
      if (stacks && stacks->intervals >= count) return;
    }
    ADD_FAILURE() << "after five minutes there are fewer than " << count << " intervals";
  }

  store::Stacks all() {
    const auto store = store::open_store(path_);
    EXPECT_TRUE(store.has_value()) << store.error().text();
    auto stacks = (*store)->stacks({}, 0, ~std::uint64_t{0});
    EXPECT_TRUE(stacks.has_value());
    return std::move(*stacks);
  }
  static std::uint64_t count_of(const store::Stacks& stacks) {
    std::uint64_t sum = 0;
    for (const auto& stack : stacks.stacks) sum += stack.sums.count;
    return sum;
  }

  // Of one agent alone: a sample is in the store, or counts as lost. So may other samples, which were never taken.
  void expect_complete(const CommandResult& done, std::uint64_t of_each_sample = 1) {
    EXPECT_EQ(done.status, 0) << done.output;
    const auto numbers = numbers_of(done.output);
    const store::Stacks stacks = all();
    EXPECT_EQ(count_of(stacks), of_each_sample * numbers[0]) << done.output;
    EXPECT_LE(numbers[0], numbers[1]) << done.output;
    EXPECT_GE(numbers[0] + stacks.lost, numbers[1]) << done.output;
  }

  std::string folder_, path_;
  int started_ = 0;
};

}  // namespace windlass::test
