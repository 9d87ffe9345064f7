// Stacks of threads that wait, read from a child that does.
#include "profiler/samples/resting_threads.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <vector>

#include "support/process_reading.h"

namespace windlass::profiler {
namespace {

constexpr std::uint64_t kHash = 77;
constexpr std::uint64_t kKernelFrames[] = {0xffffffff81000010, 0xffffffff81000020};

class RestingThreadsTest : public testing::Test {
 protected:
  void SetUp() override {
    for (std::uint64_t& word : words_) word = 0x1234567800000000 + static_cast<std::uint64_t>(&word - words_);
    child_ = fork();
    ASSERT_GE(child_, 0);
    if (child_ == 0)
      for (;;) pause();
  }
  void TearDown() override {
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
  }

  // As the kernel side has it: without stack and code, with room behind the kernel's frames.
  [[nodiscard]] std::vector<std::uint64_t> event() const {
    std::vector<std::uint64_t> bytes((sizeof(wl_raw_event) + WL_MAX_KERNEL_FRAMES * 8) / 8);
    auto& event = reinterpret_cast<wl_raw_event&>(bytes[0]);
    event.head.type = WL_EVENT_RAW;
    event.head.tgid = static_cast<__u32>(child_);
    event.hash = kHash;
    event.kernel_frames = 2;
    event.stack_address = reinterpret_cast<std::uint64_t>(words_);
    std::memcpy(&event + 1, kKernelFrames, sizeof kKernelFrames);
    return bytes;
  }
  // What is handed out while the threads of these hashes still wait.
  static std::vector<std::uint64_t> handed_out(RestingThreads& threads, const std::vector<std::uint64_t>& waiting) {
    std::vector<std::uint64_t> out;
    threads.hand_out(
        [&](const auto& handler) {
          for (const std::uint64_t hash : waiting) handler({.key = {hash, 1, 1}});
        },
        [&](const wl_event_head& head, std::size_t size) {
          EXPECT_TRUE(out.empty());
          out.resize((size + 7) / 8);
          std::memcpy(out.data(), &head, size);
        });
    return out;
  }

  std::uint64_t words_[64] = {};  // on this stack, and the child's copy of it
  pid_t child_ = -1;
};

TEST_F(RestingThreadsTest, TheStackIsReadWhileTheThreadWaits) {
  if (const std::string why = test::no_process_reading(); !why.empty()) GTEST_SKIP() << why;
  RestingThreads threads;
  const auto bytes = event();
  ASSERT_TRUE(threads.take(reinterpret_cast<const wl_event_head&>(bytes[0]), bytes.size() * 8));
  const auto out = handed_out(threads, {5, kHash});
  ASSERT_FALSE(out.empty());
  const auto& event = reinterpret_cast<const wl_raw_event&>(out[0]);
  ASSERT_GE(event.stack_size, sizeof words_);
  EXPECT_EQ(event.second_size, 0u);
  const auto* behind = reinterpret_cast<const std::byte*>(&event + 1);
  EXPECT_EQ(std::memcmp(behind, kKernelFrames, sizeof kKernelFrames), 0);
  EXPECT_EQ(std::memcmp(behind + sizeof kKernelFrames, words_, sizeof words_), 0);
  EXPECT_EQ(event.stack_pages & 1, 1u);
  EXPECT_TRUE(handed_out(threads, {kHash}).empty()) << "once";
}

TEST_F(RestingThreadsTest, OneThatHasRunMeanwhileHasNone) {
  RestingThreads threads;
  const auto bytes = event();
  ASSERT_TRUE(threads.take(reinterpret_cast<const wl_event_head&>(bytes[0]), bytes.size() * 8));
  const auto out = handed_out(threads, {kHash + 1});
  ASSERT_FALSE(out.empty());
  const auto& event = reinterpret_cast<const wl_raw_event&>(out[0]);
  EXPECT_EQ(event.stack_size, 0u);
  EXPECT_EQ(event.stack_pages, 0u);
  EXPECT_EQ(std::memcmp(&event + 1, kKernelFrames, sizeof kKernelFrames), 0);
}

TEST_F(RestingThreadsTest, AStackThatIsNotThereIsEmpty) {
  RestingThreads threads;
  auto bytes = event();
  reinterpret_cast<wl_raw_event&>(bytes[0]).stack_address = 16;
  ASSERT_TRUE(threads.take(reinterpret_cast<const wl_event_head&>(bytes[0]), bytes.size() * 8));
  const auto out = handed_out(threads, {kHash});
  ASSERT_FALSE(out.empty());
  EXPECT_EQ(reinterpret_cast<const wl_raw_event&>(out[0]).stack_size, 0u);
}

TEST_F(RestingThreadsTest, OtherEventsAreNotTaken) {
  RestingThreads threads;
  const auto taken = [&](auto&& change) {
    auto bytes = event();
    std::size_t size = bytes.size() * 8;
    change(reinterpret_cast<wl_raw_event&>(bytes[0]), size);
    return threads.take(reinterpret_cast<const wl_event_head&>(bytes[0]), size);
  };
  EXPECT_FALSE(taken([](wl_raw_event& event, std::size_t&) { event.head.type = WL_EVENT_STACK; }));
  EXPECT_FALSE(taken([](wl_raw_event& event, std::size_t&) { event.hash = 0; }));
  EXPECT_FALSE(taken([](wl_raw_event& event, std::size_t&) { event.stack_size = 8; }));
  EXPECT_FALSE(taken([](wl_raw_event& event, std::size_t&) { event.code_size = 8; }));
  EXPECT_FALSE(taken([](wl_raw_event&, std::size_t& size) { size = sizeof(wl_raw_event) - 1; }));
  EXPECT_FALSE(taken([](wl_raw_event&, std::size_t& size) { size = sizeof(wl_raw_event) + 8; })) << "frames beyond it";
}

}  // namespace
}  // namespace windlass::profiler
