// The own process through the C interface: compared with glibc's backtrace, in signal handlers, from many threads.
#include <dlfcn.h>
#include <execinfo.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "windlass/c/windlass.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kCountsAllocations = false;  // the sanitizers have a malloc of their own
#else
constexpr bool kCountsAllocations = true;
namespace {
thread_local bool counting = false;
std::atomic<int> allocations = 0;
}  // namespace
extern "C" void* __libc_malloc(std::size_t size);
extern "C" void* malloc(std::size_t size) {
  if (counting) ++allocations;
  return __libc_malloc(size);
}
#endif

namespace {

struct Stack {
  std::vector<windlass_frame> frames;
  std::uint32_t end = 0;
};

int keep(windlass_cursor*, const windlass_frame* frame, void* user) {
  static_cast<Stack*>(user)->frames.push_back(*frame);
  return 0;
}

class Own {
 public:
  Own() { EXPECT_EQ(windlass_open_self(&space_, nullptr), WINDLASS_OK); }
  ~Own() { windlass_close(space_); }
  Own(const Own&) = delete;
  Own& operator=(const Own&) = delete;
  operator windlass_space*() const { return space_; }  // NOLINT(google-explicit-constructor)

 private:
  windlass_space* space_ = nullptr;
};

[[gnu::noinline]] Stack walk(windlass_space* space) {
  windlass_registers registers;
  registers.size = sizeof registers;
  windlass_capture_registers(&registers);
  Stack stack;
  windlass_walk(space, &registers, nullptr, keep, &stack, &stack.end, nullptr);
  return stack;
}

TEST(CApiSelf, AWholeStackHasNoError) {
  const Own own;
  windlass_registers registers;
  registers.size = sizeof registers;
  windlass_capture_registers(&registers);
  windlass_error error;
  std::memset(&error, 'x', sizeof error);
  error.size = sizeof error;
  Stack stack;
  EXPECT_EQ(windlass_walk(own, &registers, nullptr, keep, &stack, &stack.end, &error), WINDLASS_OK);
  EXPECT_EQ(stack.end, std::uint32_t{WINDLASS_END_COMPLETE});
  EXPECT_EQ(error.status, WINDLASS_OK);
  EXPECT_STREQ(error.text, "");
}

TEST(CApiSelf, TheFramesOfBacktrace) {
  const Own own;
  void* pcs[256];
  const Stack stack = walk(own);
  const int count = backtrace(pcs, 256);
  EXPECT_EQ(stack.end, std::uint32_t{WINDLASS_END_COMPLETE});
  // [0] of ours is in walk(), [1] in this function; glibc's first is in this function, at another call. A sanitizer's
  // interceptor may be one more.
  ASSERT_GT(stack.frames.size(), 4u);
  const void* const caller = reinterpret_cast<const void*>(stack.frames[2].pc);
  const auto first = static_cast<std::size_t>(std::find(pcs, pcs + count, caller) - pcs);
  ASSERT_EQ(static_cast<std::size_t>(count) - first, stack.frames.size() - 2);
  for (std::size_t i = 2; i < stack.frames.size(); ++i) {
    EXPECT_EQ(stack.frames[i].pc, reinterpret_cast<std::uint64_t>(pcs[first + i - 2])) << i;
    EXPECT_EQ(stack.frames[i].flags, WINDLASS_RETURN_ADDRESS);
    EXPECT_EQ(stack.frames[i].lookup + 1, stack.frames[i].pc);
    EXPECT_GT(stack.frames[i].sp, stack.frames[i - 1].sp);
    EXPECT_LE(stack.frames[i].module_begin, stack.frames[i].lookup);
    EXPECT_GT(stack.frames[i].module_end, stack.frames[i].lookup);
  }
}

int check_locations(windlass_cursor* cursor, const windlass_frame*, void* user) {
  std::uint16_t numbers[32];
  const std::uint32_t count = windlass_preserved(windlass_native_architecture(), numbers, 32);
  for (std::uint32_t i = 0; i < count; ++i) {
    std::uint64_t value = 0;
    std::uint64_t place = 0;
    if (windlass_cursor_get(cursor, numbers[i], &value) != WINDLASS_OK ||
        windlass_saved_at(cursor, numbers[i], &place) != WINDLASS_OK || place == 0)
      continue;
    std::uint64_t there = 0;
    std::memcpy(&there, reinterpret_cast<const void*>(place), sizeof there);
    EXPECT_EQ(there, value) << "register " << numbers[i];
    ++*static_cast<int*>(user);
  }
  return 0;
}

TEST(CApiSelf, SaveLocationsHoldTheRegisters) {
  const Own own;
  windlass_registers registers;
  registers.size = sizeof registers;
  windlass_capture_registers(&registers);
  int places = 0;
  windlass_walk(own, &registers, nullptr, check_locations, &places, nullptr, nullptr);
  EXPECT_GT(places, 10);
}

struct InHandler {
  windlass_space* space = nullptr;
  std::uint64_t pcs[128] = {};
  std::uint32_t flags[128] = {};
  std::size_t count = 0;
  std::uint32_t end = 0;
} in_handler;

int keep_pc(windlass_cursor*, const windlass_frame* frame, void*) {
  in_handler.flags[in_handler.count] = frame->flags;
  in_handler.pcs[in_handler.count++] = frame->pc;
  return in_handler.count == 128;
}

void on_signal(int, siginfo_t*, void* ucontext) {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  counting = true;
#endif
  windlass_registers registers;
  registers.size = sizeof registers;
  windlass_from_ucontext(ucontext, &registers);
  in_handler.count = 0;
  windlass_walk(in_handler.space, &registers, nullptr, keep_pc, nullptr, &in_handler.end, nullptr);
  // And from the handler itself, through the signal frame.
  windlass_capture_registers(&registers);
  in_handler.count = 0;
  windlass_walk(in_handler.space, &registers, nullptr, keep_pc, nullptr, &in_handler.end, nullptr);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  counting = false;
#endif
}

TEST(CApiSelf, InASignalHandlerWithoutAllocation) {
  const Own own;
  in_handler.space = own;
  struct sigaction action {};
  struct sigaction before {};
  action.sa_sigaction = on_signal;
  action.sa_flags = SA_SIGINFO;
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  counting = true;  // it does count
  void* volatile piece = std::malloc(1);
  counting = false;
  std::free(piece);
  EXPECT_EQ(allocations.exchange(0), 1);
#endif
  sigaction(SIGUSR2, &action, &before);
  raise(SIGUSR2);
  sigaction(SIGUSR2, &before, nullptr);
  EXPECT_EQ(in_handler.end, std::uint32_t{WINDLASS_END_COMPLETE});
  EXPECT_GT(in_handler.count, 6u);
  // Exactly one frame was interrupted; its pc is no return address.
  std::size_t interrupted = 0;
  for (std::size_t i = 0; i < in_handler.count; ++i)
    if ((in_handler.flags[i] & WINDLASS_SIGNAL_FRAME) != 0) {
      ++interrupted;
      EXPECT_EQ(in_handler.flags[i] & WINDLASS_RETURN_ADDRESS, 0u);
    }
  EXPECT_EQ(interrupted, 1u);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_EQ(allocations, 0);
#endif
  if (!kCountsAllocations) GTEST_SKIP() << "allocations are not counted under a sanitizer";
}

TEST(CApiSelf, ManyThreadsOneSpace) {
  const Own own;
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      const std::size_t depth = walk(own).frames.size();
      for (int i = 0; i < 200; ++i) {
        const Stack stack = walk(own);
        if (stack.end != WINDLASS_END_COMPLETE || stack.frames.size() != depth) ++wrong;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST(CApiSelf, ModulesAreNamed) {
  const Own own;
  windlass_module module;
  module.size = sizeof module;
  Dl_info info;
  const auto address = reinterpret_cast<std::uint64_t>(&backtrace);
  ASSERT_NE(dladdr(reinterpret_cast<void*>(&backtrace), &info), 0);
  ASSERT_EQ(windlass_find_module(own, address, &module), WINDLASS_OK);
  EXPECT_LE(module.begin, address);
  EXPECT_GT(module.end, address);
  EXPECT_EQ(module.bias, reinterpret_cast<std::uint64_t>(info.dli_fbase));
  EXPECT_STREQ(module.path, info.dli_fname);
}

}  // namespace
