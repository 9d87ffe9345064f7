// How far a walk may go with a stack that does not move, and what of a frame's slots counts.
#include <gtest/gtest.h>

#include <cstring>

#include "walk/apply.h"
#include "walk/progress.h"

namespace windlass::walk {
namespace {

TEST(Progress, AStackMovesUpOrTheWalkEnds) {
  Progress progress;
  EXPECT_TRUE(progress.allows(100, 108, true));
  EXPECT_FALSE(progress.allows(100, 100, true)) << "the same frame";
  EXPECT_TRUE(progress.allows(100, 100, false));
  EXPECT_TRUE(progress.allows(100, 100, false));
  EXPECT_FALSE(progress.allows(100, 100, false)) << "three leaves in a row";
  EXPECT_TRUE(progress.allows(100, 108, false));
  EXPECT_TRUE(progress.allows(108, 108, false)) << "counted anew";
  Progress switches;
  for (int i = 0; i < 16; ++i) EXPECT_TRUE(switches.allows(100, 90, false));
  EXPECT_FALSE(switches.allows(100, 90, false));
}

// x86-64 has 57 bits of addresses with five-level paging, of which user space has the lower half; words of 8 bytes, and
// of 4 on i386.
TEST(Progress, WhatCanBeAStackPointer) {
  constexpr std::uint64_t kUserEnd = std::uint64_t{1} << 56;
  for (const Architecture architecture : {Architecture::kX86_64, Architecture::kAArch64, Architecture::kI386}) {
    const std::uint64_t word = architecture == Architecture::kI386 ? 4 : 8;
    EXPECT_TRUE(is_stack_address(architecture, kUserEnd - word));
    EXPECT_FALSE(is_stack_address(architecture, kUserEnd));
    EXPECT_FALSE(is_stack_address(architecture, ~std::uint64_t{0} - 7)) << "the kernel's";
    for (std::uint64_t at = 0x7fff0000; at < 0x7fff0000 + 16; ++at)
      EXPECT_EQ(is_stack_address(architecture, at), at % word == 0) << at;
    EXPECT_EQ(frame_record_size(architecture), 2 * word);
  }
}

TEST(Progress, WhereNothingIsMapped) {
  EXPECT_TRUE(is_null_page(0));
  EXPECT_TRUE(is_null_page(0xffff));
  EXPECT_FALSE(is_null_page(0x10000));
}

TEST(Progress, ACallersSpThatIsNotKnownLiesBehindTheFrameRecord) {
  for (const Architecture architecture : {Architecture::kX86_64, Architecture::kAArch64, Architecture::kI386}) {
    const std::uint64_t word = architecture == Architecture::kI386 ? 4 : 8;
    Registers callee(architecture), caller(architecture);
    callee.set(Registers::fp_number(architecture), 0x7000);
    EXPECT_EQ(lowest_sp(callee, caller), 0x7000 + 2 * word);
    caller.set_sp(0x7123);
    EXPECT_EQ(lowest_sp(callee, caller), 0x7123u);
  }
}

// Steps that go back count for the whole walk; steps on the spot count in a row.
TEST(Progress, EachLimitCountsByItself) {
  Progress mixed;
  for (int i = 0; i < 16; ++i) {
    ASSERT_TRUE(mixed.allows(100, 90, false)) << i;
    ASSERT_TRUE(mixed.allows(90, 90, false));
    ASSERT_TRUE(mixed.allows(90, 90, false));
    ASSERT_TRUE(mixed.allows(90, 200, false));
  }
  EXPECT_FALSE(mixed.allows(100, 90, false)) << "the seventeenth";
  Progress in_place;
  EXPECT_TRUE(in_place.allows(100, 100, false));
  EXPECT_TRUE(in_place.allows(100, 100, false));
  in_place.moved_up();
  EXPECT_TRUE(in_place.allows(100, 100, false));
  EXPECT_TRUE(in_place.allows(100, 100, false));
  EXPECT_FALSE(in_place.allows(100, 100, false));
}

struct Words {
  std::uint64_t base;
  std::uint64_t word[8];
  bool read(std::uint64_t address, void* to, std::size_t size) const {
    if (address < base || address + size > base + sizeof word) return false;
    std::memcpy(to, reinterpret_cast<const char*>(word) + (address - base), size);
    return true;
  }
};

// A slot that an epilogue has popped lies below sp, and the register has its value again: at an instruction. At a
// return address nothing has been popped; the row knows.
TEST(Apply, SlotsBelowSpAreDeadAtAnInstructionOnly) {
  constexpr std::uint64_t kBase = 0x7000'0000;
  constexpr RegisterNumber kRbx = 3;
  const Words memory{kBase, {0, 0, 77, 0, 0x1000, 0, 0, 0}};
  FrameRow row;
  row.cfa = CfaRule::at(7, 16);
  row.return_address = RegisterRule::at_cfa(-8);
  ASSERT_TRUE(row.registers.set(kRbx, RegisterRule::at_cfa(-24)));
  const auto rbx = [&](CodeAddress pc) {
    Registers frame(Architecture::kX86_64), caller;
    frame.set_pc(pc);
    frame.set_sp(kBase + 24);
    frame.set(kRbx, 5);
    EXPECT_TRUE(apply(row, memory, ApplyContext{}, frame, caller, nullptr).ok());
    EXPECT_EQ(caller.pc().value(), 0x1000u);
    return caller.get(kRbx);
  };
  EXPECT_EQ(rbx(CodeAddress::instruction(0x500)), 5u);
  EXPECT_EQ(rbx(CodeAddress::return_address(0x500)), 77u);
}

}  // namespace
}  // namespace windlass::walk
