// The row that says how a path leaves its function, from the registers as the path leaves them; and when two are one.
#include "flow/rows.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <map>

#include "walk/apply.h"

namespace windlass::flow {
namespace {

constexpr Architecture kX64 = Architecture::kX86_64;
constexpr std::uint64_t kStack = 0x7fff'0000, kPc = 0x400000;
using x86_64::kRax, x86_64::kRbp, x86_64::kRbx, x86_64::kRsp;
constexpr RegisterNumber kRcx = 2;

struct Words {
  std::map<std::uint64_t, std::uint64_t> words;
  bool read(std::uint64_t address, void* to, std::size_t size) const {
    const auto found = words.find(address);
    if (found == words.end() || size != sizeof found->second) return false;
    std::memcpy(to, &found->second, size);
    return true;
  }
};

class CodeRows : public testing::Test {
 protected:
  // As `ret` leaves all registers at the function's first instruction.
  CodeRows() {
    for (unsigned slot = 0; slot < registers.size(); ++slot) registers[slot] = Value::initial(slot);
    registers[kRsp] = Value::initial(kRsp, 8);
    frame.set_pc(CodeAddress::instruction(kPc));
    frame.set_sp(kStack);
    frame.set(kRbp, kStack + 0x100);
  }
  [[nodiscard]] ExitView exit() const {
    return {registers.data(), static_cast<unsigned>(registers.size()), Value::initial(kRsp).loaded()};
  }
  bool make() { return make_row(kX64, exit(), kPc, row); }
  // The caller's, by the row that was made.
  Registers caller() {
    Registers to(kX64);
    EXPECT_TRUE(walk::apply(row, memory, {.slots_below_sp_are_dead = false}, frame, to, nullptr).ok());
    return to;
  }

  std::array<Value, 17> registers;
  Words memory{{{kStack, 0x500000}}};
  Registers frame{kX64};
  FrameRow row;
};

TEST_F(CodeRows, ASavedRegisterIsWhereItWasSaved) {
  registers[kRbx] = Value::initial(kRbp, -16).loaded();
  memory.words[kStack + 0xf0] = 0x1234;
  ASSERT_TRUE(make());
  EXPECT_EQ(caller().get(kRbx), 0x1234u);
  EXPECT_EQ(caller().sp(), kStack + 8);
  EXPECT_EQ(row.registers.find(kRbp), nullptr) << "it is what it was";
}

// rbx = [[rbp - 100] + 200], where each part of what is said counts; -100 takes two bytes for its sign.
TEST_F(CodeRows, WhatTakesTwoLoadsIsAnExpression) {
  registers[kRbx] = Value::initial(kRbp, -100).loaded().plus(200).loaded();
  memory.words[kStack + 0x100 - 100] = kStack + 0x200;
  memory.words[kStack + 0x200 + 200] = 0x1234;
  ASSERT_TRUE(make());
  EXPECT_EQ(caller().get(kRbx), 0x1234u);
  // The stack itself: sp = [[rbp - 8] + 16] + 24, and no more fits.
  registers[kRsp] = Value::initial(kRbp, -8).loaded().plus(16).loaded().plus(24);
  registers[kRbx] = Value::initial(kRbx);
  memory.words[kStack + 0x100 - 8] = kStack + 0x300;
  memory.words[kStack + 0x300 + 16] = kStack + 0x400;
  ASSERT_TRUE(make());
  EXPECT_EQ(caller().sp(), kStack + 0x400 + 24);
  registers[kRsp] = Value::initial(kRbp, -100).loaded().plus(16).loaded().plus(24);
  EXPECT_FALSE(make());
}

// They share one pool, whose places are by a hash: many of them meet there.
TEST_F(CodeRows, ExpressionsAreNotEachOthers) {
  for (int i = 0; i < 600; ++i) {
    registers[kRbx] = Value::initial(kRbp, 8 * i).loaded().plus(8).loaded();
    memory.words[kStack + 0x100 + 8 * static_cast<unsigned>(i)] = kStack + 0x10000 + 16 * static_cast<unsigned>(i);
    memory.words[kStack + 0x10008 + 16 * static_cast<unsigned>(i)] = 0x1000u + static_cast<unsigned>(i);
    ASSERT_TRUE(make());
    if (row.registers.find(kRbx) == nullptr || row.registers.find(kRbx)->is(RegisterRule::kUndefined)) continue;
    ASSERT_EQ(caller().get(kRbx), 0x1000u + static_cast<unsigned>(i)) << i;
  }
}

TEST_F(CodeRows, WhatNoRowCanSay) {
  registers[kRsp] = Value::initial(kRsp, std::int64_t{1} << 33);
  EXPECT_FALSE(make());
  registers[kRsp] = Value::constant(kStack);
  EXPECT_FALSE(make());
}

TEST_F(CodeRows, RegistersThatCallsNeedNotPreserveAreAskedForOnly) {
  registers[kRax] = Value::initial(kRcx);
  ASSERT_TRUE(make());
  EXPECT_EQ(row.registers.find(kRax), nullptr);
  ExitView all = exit();
  all.all_registers = true;
  ASSERT_TRUE(make_row(kX64, all, kPc, row));
  ASSERT_NE(row.registers.find(kRax), nullptr);
  EXPECT_EQ(*row.registers.find(kRax), RegisterRule::in_register(kRcx));
}

TEST_F(CodeRows, TheConventionIsKept) {
  EXPECT_TRUE(keeps_convention(kX64, exit()));
  registers[kRsp] = Value::initial(kRsp, 0);
  EXPECT_FALSE(keeps_convention(kX64, exit())) << "the return address is still there";
  registers[kRsp] = Value::initial(kRsp, 32);
  registers[kRbx] = Value::initial(kRsp, 16).loaded();
  EXPECT_TRUE(keeps_convention(kX64, exit()));
  registers[kRbx] = Value::initial(kRsp, 32).loaded();
  EXPECT_FALSE(keeps_convention(kX64, exit())) << "from above the frame";
  registers[kRbx] = Value::initial(kRsp, -136).loaded();
  EXPECT_FALSE(keeps_convention(kX64, exit())) << "from below the red zone";
  registers[kRbx] = Value();
  EXPECT_FALSE(keeps_convention(kX64, exit())) << "lost";
  registers[kRbx] = Value::initial(kRbx, 8);
  EXPECT_FALSE(keeps_convention(kX64, exit())) << "changed";
}

TEST_F(CodeRows, AreTheSameInAllThatTheySay) {
  ASSERT_TRUE(make());
  FrameRow other = row;
  EXPECT_TRUE(same_frame(row, other));
  EXPECT_TRUE(same_row(kX64, row, other));
  other.return_address = RegisterRule::at_cfa(-16);
  EXPECT_FALSE(same_frame(row, other));
  other = row;
  other.cfa = CfaRule::at(kRsp, 16);
  EXPECT_FALSE(same_frame(row, other));
  other = row;
  ASSERT_TRUE(other.registers.set(kRbx, RegisterRule::at_cfa(-16)));
  EXPECT_TRUE(same_frame(row, other));
  EXPECT_FALSE(same_row(kX64, row, other));
}

}  // namespace
}  // namespace windlass::flow
