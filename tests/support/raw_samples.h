// Raw samples of a program that a test starts.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "profiler/samples/perf_sampler.h"

namespace windlass::test {

using Event = std::vector<std::uint64_t>;  // a wl_raw_event

class Child {
 public:
  explicit Child(const std::string& command) : pid_(::fork()) {
    if (pid_ != 0) return;
    ::setpgid(0, 0);
    const int null = ::open("/dev/null", O_RDWR);
    for (int fd : {0, 1, 2}) ::dup2(null, fd);
    ::execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
    ::_exit(127);
  }
  ~Child() {
    ::kill(-pid_, SIGKILL);
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  [[nodiscard]] std::uint32_t pid() const { return static_cast<std::uint32_t>(pid_); }
  // True once it, and not the shell, is on its way.
  void stop() const {
    ::kill(pid_, SIGSTOP);
    int status = 0;
    ::waitpid(pid_, &status, WUNTRACED);
  }

 private:
  pid_t pid_;
};

inline constexpr std::size_t kFewest = 4;

// Raw samples of the process itself; what it starts is left out. For as long as it is said, or, on a machine that
// hardly lets it run, until there are a few.
inline std::vector<Event> sample(std::uint32_t tgid, std::chrono::milliseconds time) {
  std::vector<Event> events;
  auto sampler = profiler::PerfSampler::open({.frequency = 1999}, {tgid}, [](profiler::ProcessEvent&&) {});
  EXPECT_TRUE(sampler) << sampler.error().text;
  if (!sampler || !(*sampler)->start()) return events;
  const auto begin = std::chrono::steady_clock::now();
  const auto runs = [&] {
    const auto passed = std::chrono::steady_clock::now() - begin;
    return passed < time || (events.size() < kFewest && passed < 500 * time);
  };
  while (runs())
    (void)(*sampler)->poll(std::chrono::milliseconds(20), [&](const wl_event_head& head, std::size_t size) {
      if (head.type != WL_EVENT_RAW || head.tgid != tgid) return;
      Event& event = events.emplace_back((size + 7) / 8);
      std::memcpy(event.data(), &head, size);
    });
  (*sampler)->stop();
  return events;
}

}  // namespace windlass::test
