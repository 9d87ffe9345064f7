// Shared by tests of the kernel side: a program whose stacks are known, and the samples of it.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "profiler/kernel/kernel_side.h"
#include "support/privilege.h"

namespace windlass::profiler {

using namespace std::chrono_literals;

class KernelSideTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = test::no_privilege_to_sample(); !reason.empty()) GTEST_SKIP() << reason;
  }
};

struct Range {
  std::uint64_t begin = 0, end = 0;
  [[nodiscard]] bool contains(std::uint64_t pc) const { return begin <= pc && pc < end; }
};

// A running recursion.cpp.
class Recursion {
 public:
  Recursion(unsigned depth, unsigned rounds) {
    int fds[2];
    if (pipe(fds) != 0) return;
    pid = fork();
    if (pid == 0) {
      dup2(fds[1], 1);
      close(fds[0]);
      const std::string d = std::to_string(depth), r = std::to_string(rounds);
      execl(WINDLASS_RECURSION, "recursion", d.c_str(), r.c_str(), static_cast<char*>(nullptr));
      _exit(127);
    }
    close(fds[1]);
    FILE* in = fdopen(fds[0], "r");
    ready = std::fscanf(in, "%lx %lx %lx %lx %lx %lx", &spin.begin, &spin.end, &recurse.begin, &recurse.end,
                        &main.begin, &main.end) == 6;
    std::fclose(in);
  }
  ~Recursion() {
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  }
  pid_t pid = 0;
  bool ready = false;
  Range spin, recurse, main;
};

constexpr std::uint64_t kManySamples = 400;  // so that one in a hundred may fail

struct Stack {
  std::vector<std::uint64_t> user;  // innermost first, with WL_FRAME_EXACT
  std::size_t kernel = 0;
  unsigned end = 0;
};

// Samples for `duration`, and on until there are `enough` (an emulated machine is slow; five minutes at most): every
// stack event, and how many samples each stands for.
inline std::vector<std::pair<Stack, std::uint64_t>> sample(KernelSide& side, std::chrono::milliseconds duration,
                                                           std::uint64_t enough = 0) {
  std::map<std::uint64_t, std::pair<Stack, std::uint64_t>> stacks;
  auto handle = [&](const wl_event_head& head, std::size_t) {
    if (head.type != WL_EVENT_STACK) return;
    const auto& event = reinterpret_cast<const wl_stack_event&>(head);
    const auto* frames = reinterpret_cast<const std::uint64_t*>(&event + 1);
    Stack stack;
    stack.kernel = event.kernel_frames;
    stack.end = event.end;
    stack.user.assign(frames + event.kernel_frames, frames + event.kernel_frames + event.user_frames);
    auto& entry = stacks[event.hash];
    entry.first = std::move(stack);
    entry.second += std::uint64_t{1} + head.extra;
  };
  EXPECT_TRUE(side.start().has_value());
  const auto begin = std::chrono::steady_clock::now();
  const auto few = [&] {
    const KernelSideStats stats = side.stats();
    return stats.samples - stats.other_processes < enough && std::chrono::steady_clock::now() < begin + 300s;
  };
  while (std::chrono::steady_clock::now() < begin + duration || few()) side.poll(20ms, handle);
  side.stop();
  side.poll(0ms, handle);
  side.for_each_count([&](const wl_stack_key& key, const wl_count& count) { stacks[key.hash].second += count.count; });
  std::vector<std::pair<Stack, std::uint64_t>> result;
  for (auto& [hash, entry] : stacks) result.push_back(std::move(entry));
  return result;
}

// Takes events until there are enough, however busy the machine is; five minutes at most.
inline void poll_until(KernelSide& side, const std::function<void(const wl_event_head&, std::size_t)>& handle,
                       const std::function<bool()>& enough) {
  const auto end = std::chrono::steady_clock::now() + 300s;
  while (!enough() && std::chrono::steady_clock::now() < end) side.poll(20ms, handle);
}

inline std::unique_ptr<KernelSide> open_side(const Recursion& target, KernelSideOptions options = {}) {
  options.frequency = 999;
  options.all_processes = false;
  options.targets = {static_cast<std::uint32_t>(target.pid)};
  auto opened = KernelSide::open(options);
  if (opened) return std::move(*opened);
  ADD_FAILURE() << opened.error().text;
  return nullptr;
}

}  // namespace windlass::profiler
