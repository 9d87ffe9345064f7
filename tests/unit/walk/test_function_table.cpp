// Code ranges with a function table of Windows: a heap that is described before there is any code in it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "base/registers.h"
#include "support/jit_stub.h"
#include "walk/code_ranges.h"
#include "windlass/backtrace.h"
#include "windlass/jit/code_heap.h"

namespace windlass {
namespace {

using walk::CodeRanges;

constexpr std::uint64_t kHeap = 0x10000, kHeapEnd = 0x90000;

CodeRange described(const HeapFront& front, std::uint64_t begin, std::uint64_t end) {
  return {.begin = front.code,
          .end = end,
          .name = "[heap]",
          .function_table = {.bytes = front.bytes, .address = begin, .table = front.table, .entries = front.entries}};
}

Error refusal(const CodeRange& range, Architecture architecture = Architecture::kX86_64) {
  CodeRanges ranges;
  const auto added = ranges.add(range, architecture);
  return added ? Error{.what = "nothing was refused"} : added.error();
}

TEST(FunctionTable, WhatIsRefused) {
  const auto front = write_heap_front({.begin = kHeap, .end = kHeapEnd});
  ASSERT_TRUE(front);
  const CodeRange good = described(*front, kHeap, kHeapEnd);
  CodeRanges ranges;
  ASSERT_TRUE(ranges.add(good, Architecture::kX86_64));
  EXPECT_EQ(refusal(good, Architecture::kAArch64).code, ErrorCode::kUnsupported);
  CodeRange bad = good;
  bad.eh_frame.resize(8);
  EXPECT_EQ(refusal(bad).code, ErrorCode::kMalformed);
  bad = good;
  bad.begin += 0x1000;  // the function begins before
  EXPECT_EQ(refusal(bad).code, ErrorCode::kOutOfRange);
  bad = good;
  bad.end -= 0x1000;
  EXPECT_EQ(refusal(bad).code, ErrorCode::kOutOfRange);
  bad = good;
  bad.function_table.entries = 100000;
  EXPECT_EQ(refusal(bad).code, ErrorCode::kTruncated);
  bad = good;
  bad.function_table.bytes.resize(14);  // the entry without its record
  EXPECT_EQ(refusal(bad).code, ErrorCode::kMalformed);
  bad = good;
  bad.function_table.base = kHeap + 0x1000;
  EXPECT_EQ(refusal(bad).code, ErrorCode::kMalformed);
  bad = good;
  const std::vector<std::byte> entry(bad.function_table.bytes.begin(), bad.function_table.bytes.begin() + 12);
  bad.function_table.bytes.insert(bad.function_table.bytes.begin(), entry.begin(), entry.end());
  ++bad.function_table.entries;  // twice the same
  EXPECT_EQ(refusal(bad).code, ErrorCode::kMalformed);
}

#if defined(__x86_64__)

// push rbp; mov rbp, rsp; sub rsp, 32; mov rax, target; call rax; nop; leave; ret. Passes the first argument on.
constexpr std::uint32_t kReturn = 20, kLeave = 21, kRet = 22, kFunctionSize = 32;
std::uint64_t put_function(std::byte* at, std::uint64_t target) {
  std::uint8_t code[] = {0x55, 0x48, 0x89, 0xe5, 0x48, 0x83, 0xec, 0x20, 0x48, 0xb8, 0,   0,
                         0,    0,    0,    0,    0,    0,    0xff, 0xd0, 0x90, 0xc9, 0xc3};
  std::memcpy(&code[10], &target, sizeof target);
  std::memcpy(at, code, sizeof code);
  return reinterpret_cast<std::uint64_t>(at);
}

class OwnHeap : public testing::Test {
 protected:
  static constexpr std::size_t kSize = test::JitChain::kRoom;  // of the heap
  void SetUp() override {
    room_ = test::JitStub::make_room(kSize);
    ASSERT_NE(room_, nullptr);
    begin_ = reinterpret_cast<std::uint64_t>(room_);
    const auto front = write_heap_front({.begin = begin_, .end = begin_ + kSize});
    ASSERT_TRUE(front);
    code_ = room_ + (front->code - begin_);
    const auto id = add_own_code(described(*front, begin_, begin_ + kSize));
    ASSERT_TRUE(id) << id.error().text();
    id_ = *id;
  }
  void TearDown() override {
    if (id_ != CodeRangeId::kNone) {
      EXPECT_TRUE(retire_own_code(id_));
    }
    if (room_ != nullptr) ::munmap(room_, kSize);
  }

  std::byte* room_ = nullptr;
  std::byte* code_ = nullptr;
  std::uint64_t begin_ = 0;
  CodeRangeId id_ = CodeRangeId::kNone;
};

struct Seen {
  std::vector<std::uint64_t> by_walker, by_backtrace;
  bool all_described = true;
};
void look(Seen* to) {
  StackWalker walker(own_process(), capture_registers());
  while (walker.step()) {
    to->by_walker.push_back(walker.frame().pc().value());
    to->all_described &= walker.frame().certainty == FrameCertainty::kDescribed;
  }
  to->by_backtrace.resize(200);
  to->by_backtrace.resize(backtrace(to->by_backtrace.data(), to->by_backtrace.size()));
}

// The code is written, and written again, when the heap has long been described.
TEST_F(OwnHeap, IsWalkedThrough) {
  constexpr std::size_t kDepth = 15;
  for (const std::size_t apart : {kFunctionSize, 3 * kFunctionSize}) {
    auto target = reinterpret_cast<std::uint64_t>(look);
    std::vector<std::uint64_t> expected;
    for (std::size_t i = 0; i < kDepth; ++i) {
      target = put_function(code_ + i * apart, target);
      expected.push_back(target + kReturn);
    }
    Seen seen;
    reinterpret_cast<void (*)(Seen*)>(target)(&seen);
    EXPECT_FALSE(std::ranges::search(seen.by_walker, expected).empty());
    EXPECT_FALSE(std::ranges::search(seen.by_backtrace, expected).empty());
    EXPECT_GT(seen.by_walker.size(), kDepth + 3);
    EXPECT_GT(seen.by_backtrace.size(), kDepth + 3);
    EXPECT_TRUE(seen.all_described);
  }
}

// Interrupted behind the prologue, and in the epilogue, which the code tells.
TEST_F(OwnHeap, IsRightAtTheInstructionsThatItPromises) {
  put_function(code_, 0);
  const auto begin = reinterpret_cast<std::uint64_t>(code_);
  const auto caller = reinterpret_cast<std::uint64_t>(look) + 1;
  for (const std::uint32_t offset : {4u, 8u, 18u, kLeave, kRet}) {
    std::uint64_t stack[16];
    for (std::uint64_t& word : stack) word = begin;  // a wrong caller
    const std::uint64_t frame = reinterpret_cast<std::uint64_t>(&stack[8]);
    const bool left = offset == kRet;
    stack[8] = 0x5555;
    stack[9] = caller;
    Registers registers(Architecture::kX86_64);
    registers.set(x86_64::kRbp, left ? 0x5555 : frame);
    registers.set_sp(left ? frame + 8 : frame - (offset == 4 ? 0 : 32));
    registers.set_pc(CodeAddress::instruction(begin + offset));
    StackWalker walker(own_process(), registers);
    ASSERT_TRUE(walker.step()) << offset << ": " << walker.error().text();
    EXPECT_EQ(walker.frame().pc().value(), caller) << offset;
    EXPECT_EQ(walker.frame().registers.sp(), frame + 16) << offset;
    EXPECT_EQ(walker.frame().registers.get(x86_64::kRbp), 0x5555U) << offset;
  }
}

#endif

}  // namespace
}  // namespace windlass
