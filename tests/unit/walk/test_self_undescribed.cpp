// Generated code that was never registered: the kernel says that it is code, and it is followed. And walks whose
// registers lead into the array that they fill.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "support/jit_stub.h"
#include "walk/own/executable.h"
#include "windlass/backtrace.h"

namespace windlass {
namespace {

using test::JitStub;
using Pcs = std::vector<std::uint64_t>;

struct Stacks {
  Pcs by_backtrace, by_walker;
  WalkEnd end = WalkEnd::kRunning;
};

// The array is on the stack that is walked.
[[gnu::noinline]] void walk_here(void* to) {
  auto& stacks = *static_cast<Stacks*>(to);
  std::uint64_t pcs[256];
  const std::size_t depth = backtrace(pcs, std::size(pcs));
  stacks.by_backtrace.assign(pcs + 1, pcs + depth);
  stacks.by_walker.clear();
  StackWalker walker(own_process(), capture_registers());
  while (walker.step()) stacks.by_walker.push_back(walker.frame().pc().value());
  stacks.end = walker.end_reason();
}

// From the caller of what called walk_here() on.
Pcs outer(const Pcs& pcs) { return {pcs.begin() + 2, pcs.end()}; }

struct Inner {
  const JitStub* stub;
  Stacks* stacks;
};
void call_inner(void* context) {
  const auto& inner = *static_cast<const Inner*>(context);
  inner.stub->call(walk_here, 0, inner.stacks);
}

TEST(Undescribed, CodeIsFollowed) {
  std::byte* room = JitStub::make_room(2 * JitStub::kRoom);
  if (room == nullptr) GTEST_SKIP() << "no executable memory here";
  for (const unsigned words : {0u, 5u, 40u}) {
    const JitStub stub(room, JitStub::words(words));
    const JitStub inner(room + JitStub::kRoom, JitStub::words(words + 7));
    Stacks plain, one, two;
    walk_here(&plain);
    stub.call(walk_here, 0, &one);
    Inner context{&inner, &two};
    stub.call(call_inner, 0, &context);
    for (const Pcs* pcs : {&one.by_backtrace, &one.by_walker}) {
      ASSERT_GT(pcs->size(), 3u);
      EXPECT_EQ((*pcs)[0], stub.return_address());
      EXPECT_EQ(std::ranges::count(*pcs, stub.return_address()), 1);
      // JitStub::call, or this function where that is inline, and then the same.
      EXPECT_TRUE(
          std::ranges::equal(Pcs(pcs->end() - 3, pcs->end()), Pcs(plain.by_walker.end() - 3, plain.by_walker.end())));
    }
    EXPECT_EQ(one.by_backtrace, one.by_walker);
    EXPECT_EQ(one.end, WalkEnd::kComplete);
    EXPECT_EQ(two.by_backtrace, two.by_walker);
    EXPECT_EQ(two.end, WalkEnd::kComplete);
    ASSERT_GT(two.by_walker.size(), 3u);
    EXPECT_EQ(two.by_walker[0], inner.return_address());
    EXPECT_EQ(std::ranges::count(two.by_walker, stub.return_address()), 1);
    EXPECT_EQ(outer(two.by_walker).back(), outer(plain.by_walker).back());
  }
}

// A return address in memory that is not executable is none.
TEST(Undescribed, DataIsNoCode) {
  const std::vector<std::uint64_t> data(64);  // in no module
  Registers registers = capture_registers();
  std::uint64_t stack[64];
  std::fill(std::begin(stack), std::end(stack), reinterpret_cast<std::uint64_t>(&data[8]));
  registers.set_sp(reinterpret_cast<std::uint64_t>(stack));
  registers.set(Registers::fp_number(kOwnArchitecture), 0);
  std::vector<std::uint64_t> pcs(64);
  WalkEnd end = WalkEnd::kRunning;
  const std::size_t depth = backtrace_from(registers, pcs.data(), pcs.size(), &end);
  EXPECT_EQ(std::count(pcs.begin(), pcs.begin() + static_cast<std::ptrdiff_t>(depth), stack[0]), 0);
  EXPECT_NE(end, WalkEnd::kComplete);
}

// sp lies in the array, which holds nothing but the pc. The walk would find its own output.
TEST(Undescribed, NoWalkReadsWhatItWrites) {
  const Registers here = capture_registers();
  std::uint64_t pcs[1024];
  for (int i = 0; i < 2; ++i) {  // the second time by the rule that the first has kept
    std::fill(std::begin(pcs), std::end(pcs), here.pc().value());
    Registers registers = here;
    registers.set_sp(reinterpret_cast<std::uint64_t>(pcs));
    registers.set(Registers::fp_number(kOwnArchitecture), reinterpret_cast<std::uint64_t>(pcs + 64));
    WalkEnd end = WalkEnd::kRunning;
    EXPECT_EQ(backtrace_from(registers, pcs, std::size(pcs), &end), 1u);
    EXPECT_NE(end, WalkEnd::kComplete);
    WalkOptions options;
    options.written_begin = reinterpret_cast<std::uint64_t>(pcs);
    options.written_end = reinterpret_cast<std::uint64_t>(std::end(pcs));
    StackWalker walker(own_process(), registers, options);
    EXPECT_FALSE(walker.step());
  }
}

// The two ways to ask say the same of every kind of memory.
TEST(Undescribed, TheKernelSays) {
  std::byte* room = JitStub::make_room(4096);
  if (room == nullptr) GTEST_SKIP() << "no executable memory here";
  void* const hidden = ::mmap(nullptr, 4096, PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(hidden, MAP_FAILED);
  static int data;
  int local = 0;
  const auto at = [](auto* place) { return reinterpret_cast<std::uint64_t>(place); };
  const struct {
    std::uint64_t address;
    walk::Executable expected;
  } cases[] = {{at(room), walk::Executable::kYes},
               {at(room) + 4095, walk::Executable::kYes},
               {at(hidden), walk::Executable::kHidden},
               {at(&data), walk::Executable::kNo},
               {at(&local), walk::Executable::kNo},
               {8, walk::Executable::kNo},
               {std::uint64_t{1} << 47, walk::Executable::kNo},
               {at(&call_inner), walk::Executable::kYes}};
  if (kOwnArchitecture == Architecture::kAArch64) {
    const int maps = ::open("/proc/self/maps", O_RDONLY);
    walk::CodeExtent extent;
    const bool told = walk::scan_executable(maps, at(room), extent) == walk::Executable::kYes;
    ::close(maps);
    if (!told) GTEST_SKIP() << "qemu-user joins mappings that the host has alike";
  }
  for (const auto& [address, expected] : cases) {
    walk::CodeExtent found, scanned, queried;
    EXPECT_EQ(walk::find_own_executable(address, found), expected) << std::hex << address;
    const int maps = ::open("/proc/self/maps", O_RDONLY);
    ASSERT_GE(maps, 0);
    const walk::Executable by_query = walk::query_executable(maps, address, queried);
    EXPECT_EQ(walk::scan_executable(maps, address, scanned), expected) << std::hex << address;
    ::close(maps);
    EXPECT_TRUE(by_query == expected || by_query == walk::Executable::kUnknown) << std::hex << address;
    if (expected != walk::Executable::kYes) continue;
    EXPECT_TRUE(found.holds(address, 1) && scanned.holds(address, 1));
    EXPECT_EQ(found.begin, scanned.begin);
    EXPECT_EQ(found.end, scanned.end);
  }
}

}  // namespace
}  // namespace windlass
