#include "os/child_program.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include "os/descriptor.h"

namespace windlass::os {
namespace {

using namespace std::chrono_literals;

std::uint64_t signals(const std::string& status, const std::string& field) {
  const auto at = status.find(field + ":\t");
  return at != std::string::npos ? std::stoull(status.substr(at + field.size() + 2), nullptr, 16) : ~std::uint64_t{0};
}

TEST(ChildPrograms, HaveNoBlockedSignalsAndNoIgnoredSigpipe) {
  sigset_t blocked, before;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGTERM);
  ASSERT_EQ(pthread_sigmask(SIG_BLOCK, &blocked, &before), 0);
  const auto handler = ::signal(SIGPIPE, SIG_IGN);
  const auto end = run_program({.arguments = {"cat", "/proc/self/status"}, .patience = 60s, .most_bytes = 1 << 16});
  ::signal(SIGPIPE, handler);
  ASSERT_EQ(pthread_sigmask(SIG_SETMASK, &before, nullptr), 0);
  ASSERT_TRUE(end) << end.error().text();
  EXPECT_EQ(end->status, 0);
  EXPECT_EQ(signals(end->output, "SigBlk"), 0U);
  EXPECT_EQ(signals(end->output, "SigIgn") >> (SIGPIPE - 1) & 1, 0U);
}

TEST(ChildPrograms, HaveTheDescriptorsThatAreGiven) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const Descriptor from(ends[0]), to(ends[1]);
  ASSERT_EQ(::write(to.get(), "given\n", 6), 6);
  // A pipeline would have a descriptor of its own for a moment.
  constexpr const char* kCount =
      "read line <&3; echo \"$line\"; n=0; for i in 0 1 2 3 4 5 6 7 8 9; do [ -e /proc/$$/fd/$i ] && n=$((n+1)); done; "
      "echo $n";
  const auto read =
      run_program({.arguments = {"sh", "-c", kCount}, .inherited = {from.get()}, .patience = 60s, .most_bytes = 100});
  ASSERT_TRUE(read) << read.error().text();
  EXPECT_EQ(read->output, "given\n4\n");
}

TEST(ChildPrograms, EndInOneOfFourWays) {
  const auto run = [](const char* line, std::chrono::milliseconds patience, std::size_t most) {
    return run_program({.arguments = {"sh", "-c", line}, .patience = patience, .most_bytes = most});
  };
  EXPECT_EQ(run("exit 3", 60s, 1)->status, 3);
  EXPECT_EQ(run("kill -9 $$", 60s, 1)->status, 128 + SIGKILL);
  const auto much = run("echo 12345", 60s, 5);
  ASSERT_FALSE(much);
  EXPECT_EQ(much.error().code, ErrorCode::kLimit);
  EXPECT_EQ(run("echo 12345", 60s, 6)->output, "12345\n");
  const auto late = run("exec sleep 1000", 50ms, 1);
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, ErrorCode::kSystem);
  EXPECT_EQ(late.error().detail, static_cast<std::uint64_t>(ETIMEDOUT));
  const auto none = run_program({.arguments = {"no-such-program-of-windlass"}, .patience = 60s, .most_bytes = 1});
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, ErrorCode::kNotFound);
}

}  // namespace
}  // namespace windlass::os
