// The stack that a walk takes, measured by the paint left on an alternate stack of 64 KiB. Measured at every n-th
// instruction of an exception, whose code is followed.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "windlass/backtrace.h"

namespace windlass {
namespace {

constexpr std::size_t kStack = 64 << 10;
// The signal frame of a processor with AMX: 8 KiB of tile data, 2.7 KiB of AVX-512, and the rest.
constexpr std::size_t kLargestFrame = 12 << 10;
constexpr unsigned char kPaint = 0xa5;
alignas(64) unsigned char memory[kStack];

enum class Entry { kBacktrace, kWalker, kBoth };
Entry entry;
std::size_t steps, walks, most;

// What backtrace_from() says of a frame that only the walker of all registers knows well, and how much code it follows.
struct Differences {
  std::size_t walks = 0, differ = 0, ended_otherwise = 0;
  std::uint64_t first = 0;
};
Differences differences;

// Nothing is checked here, where the test's own code would be stepped through.
[[gnu::noinline]] void compare(const Registers& registers) {
  static std::uint64_t fast[256], whole[256];
  WalkEnd end{};
  const std::size_t found = backtrace_from(registers, fast, std::size(fast), &end);
  StackWalker walker(own_process(), registers);
  std::size_t depth = 0;
  do whole[depth++] = walker.frame().pc().value();
  while (depth < std::size(whole) && walker.step());
  ++differences.walks;
  differences.ended_otherwise += end != walker.end_reason();
  if (found == depth && std::equal(fast, fast + found, whole)) return;
  if (differences.differ++ == 0) differences.first = registers.pc().value();
}

// Below the frame of the handler, which is where the walk begins.
[[gnu::noinline]] void walk(const void* ucontext) {
  static std::uint64_t pcs[1024];
  const Registers registers = registers_of(ucontext);
  if (entry == Entry::kBacktrace) {
    (void)backtrace_from(registers, pcs, std::size(pcs));
  } else {
    StackWalker walker(own_process(), registers);
    while (walker.step()) {}
  }
}

void on_step(int, siginfo_t*, void* ucontext) {
  if (entry == Entry::kBoth) return compare(registers_of(ucontext));
  if (++steps % 17 != 0) return;
  ++walks;
  auto* const here = static_cast<unsigned char*>(__builtin_frame_address(0));
  walk(ucontext);
  const auto* const lowest = std::find_if(memory, here, [](unsigned char byte) { return byte != kPaint; });
  most = std::max(most, static_cast<std::size_t>(here - lowest));
}

[[gnu::noinline]] int thrower(int depth) {
  if (depth == 0) throw std::runtime_error("thrown");
  return thrower(depth - 1) + 1;
}
[[gnu::noinline]] void throw_once() {
  try {
    (void)thrower(3);
  } catch (const std::exception&) {}
}

void single_step(void (*body)()) {
  asm volatile("pushfq; orq $0x100, (%%rsp); popfq" ::: "memory", "cc");
  body();
  asm volatile("pushfq; andq $~0x100, (%%rsp); popfq" ::: "memory", "cc");
}

// libgcc writes over its own return address when it goes to a landing pad. So no rule of a pc can find its caller. Done
// twice, as rules that were found are kept.
TEST(AThrow, HasTheSameStackForBothWalksAtEveryInstruction) {
  throw_once();
  struct sigaction action {};
  action.sa_sigaction = on_step;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGTRAP, &action, nullptr);
  entry = Entry::kBoth;
  differences = {};
  for (int round = 0; round < 2; ++round) single_step(throw_once);
  EXPECT_GT(differences.walks, 10000u);
  EXPECT_EQ(differences.differ, 0u) << "first at " << std::hex << differences.first;
  EXPECT_EQ(differences.ended_otherwise, 0u);
}

TEST(StackNeed, SixtyFourKibAreEnoughWithAmx) {
  throw_once();
  stack_t stack{};
  stack.ss_sp = memory;
  stack.ss_size = kStack;
  ASSERT_EQ(sigaltstack(&stack, nullptr), 0);
  struct sigaction action {};
  action.sa_sigaction = on_step;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigaction(SIGTRAP, &action, nullptr);
  for (entry = Entry::kBacktrace;; entry = Entry::kWalker) {
    std::memset(memory, kPaint, kStack);
    steps = walks = most = 0;
    single_step(throw_once);
    EXPECT_GT(walks, 1000u);
    std::printf("%s: %zu bytes of stack\n", entry == Entry::kBacktrace ? "backtrace_from" : "StackWalker", most);
    EXPECT_LE(most + kLargestFrame, kStack);
    EXPECT_GT(most, 1000u);  // the paint was looked at
    if (entry == Entry::kWalker) break;
  }
  stack.ss_flags = SS_DISABLE;
  sigaltstack(&stack, nullptr);
}

}  // namespace
}  // namespace windlass
