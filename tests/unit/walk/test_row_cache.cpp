// Rows kept for call sites: the same caller as without, and never those of another module.
#include "walk/row_cache.h"

#include <gtest/gtest.h>

#include "formats/dwarf/constants.h"
#include "support/walk_target.h"
#include "walk/apply.h"
#include "walk/inside.h"
#include "walk/module.h"

namespace windlass {
namespace {

using namespace dwarf;
using test::Bytes;
using test::WalkTarget;
using walk::KeptRow;
using walk::RowCache;

constexpr std::uint64_t kSp = 0x7fff'0000'1000;

constexpr CodeAddress behind(std::uint64_t pc) { return CodeAddress::return_address(pc); }

class KeptRows : public ::testing::TestWithParam<Architecture> {
 protected:
  static FrameRow row(Architecture architecture) {
    FrameRow row;
    row.cfa = CfaRule::at(Registers::sp_number(architecture), 48);
    row.return_address = RegisterRule::at_cfa(-8);
    const RegisterNumber first = architecture == Architecture::kX86_64 ? 12 : 19;
    for (RegisterNumber i = 0; i < 3; ++i)
      EXPECT_TRUE(row.registers.set(static_cast<RegisterNumber>(first + i), RegisterRule::at_cfa(-16 - 8 * i)));
    return row;
  }
};

TEST_P(KeptRows, GiveTheCallerThatTheRowGives) {
  WalkTarget target(GetParam());
  target.function(0, 0x40, {});
  target.start();
  for (unsigned i = 0; i < 6; ++i) target.memory().set(kSp + 8 * i, 100 + i);
  target.memory().set(kSp + 40, WalkTarget::pc(0x20));
  Frame frame;
  frame.registers = target.at(CodeAddress::return_address(WalkTarget::pc(0x10)), kSp);
  for (RegisterNumber reg = 0; reg < 30; ++reg)
    if (reg != Registers::sp_number(GetParam()) && reg != Registers::pc_number(GetParam()))
      frame.registers.set(reg, 0x1000u + reg);

  const walk::Module* module = walk::module_at(target.space(), WalkTarget::pc(0));
  auto cache = std::make_unique<RowCache>();
  cache->keep(module->id(), behind(WalkTarget::pc(0x10)), row(GetParam()), FrameOrigin::kCfi, GetParam());
  const KeptRow* kept = cache->find(module->id(), behind(WalkTarget::pc(0x10)));
  ASSERT_NE(kept, nullptr);
  EXPECT_EQ(cache->find(module->id() + 1, behind(WalkTarget::pc(0x10))), nullptr);
  EXPECT_EQ(cache->find(module->id(), behind(WalkTarget::pc(0x11))), nullptr);
  EXPECT_EQ(cache->find(module->id(), CodeAddress::instruction(WalkTarget::pc(0x10))), nullptr);

  Registers expected;
  SavedLocations saved;
  ASSERT_TRUE(walk::apply(row(GetParam()), target.space().memory(), {}, frame.registers, expected, &saved).ok());
  ASSERT_TRUE(walk::apply_in_place(*kept, target.space(), {}, frame, module));
  EXPECT_EQ(target.memory().asked_in_place, std::pair(kSp + 16, std::size_t{32})) << "all that is read";
  for (RegisterNumber reg = 0; reg < 80; ++reg) {
    EXPECT_EQ(frame.registers.has(reg), expected.has(reg)) << reg;
    EXPECT_EQ(frame.registers.get(reg), expected.get(reg)) << reg;
    EXPECT_EQ(frame.saved.at(frame.registers, reg), saved.at(expected, reg)) << reg;
  }
  EXPECT_EQ(frame.pc(), CodeAddress::return_address(WalkTarget::pc(0x20)));
  EXPECT_EQ(frame.sp(), kSp + 48);
}

TEST_P(KeptRows, ChangeNothingWhereTheStackIsOutOfTheOrdinary) {
  WalkTarget target(GetParam());
  target.function(0, 0x40, {});
  target.start();
  for (unsigned i = 0; i < 5; ++i) target.memory().set(kSp + 8 * i, 100 + i);
  Frame frame;
  frame.registers = target.at(CodeAddress::return_address(WalkTarget::pc(0x10)), kSp);
  const walk::Module* module = walk::module_at(target.space(), WalkTarget::pc(0));
  auto cache = std::make_unique<RowCache>();
  cache->keep(module->id(), behind(WalkTarget::pc(0x10)), row(GetParam()), FrameOrigin::kCfi, GetParam());
  const KeptRow* kept = cache->find(module->id(), behind(WalkTarget::pc(0x10)));
  ASSERT_NE(kept, nullptr);
  EXPECT_FALSE(walk::apply_in_place(*kept, target.space(), {}, frame, module));  // the return address is unreadable
  target.memory().set(kSp + 40, 0x1234);
  EXPECT_FALSE(walk::apply_in_place(*kept, target.space(), {}, frame, module));  // it leads nowhere
  target.memory().set(kSp + 40, 0);
  EXPECT_FALSE(walk::apply_in_place(*kept, target.space(), {}, frame, module));  // it says that this is the end
  EXPECT_EQ(frame.sp(), kSp);
  EXPECT_EQ(frame.pc().value(), WalkTarget::pc(0x10));
}

TEST_P(KeptRows, OtherFormsAreNotKept) {
  auto cache = std::make_unique<RowCache>();
  const auto kept = [&](const FrameRow& row) {
    cache->keep(7, behind(0x1000), row, FrameOrigin::kCfi, GetParam());
    return cache->find(7, behind(0x1000)) != nullptr;
  };
  FrameRow signal = row(GetParam());
  signal.signal_frame = true;
  EXPECT_FALSE(kept(signal));
  FrameRow expression = row(GetParam());
  expression.cfa = CfaRule::expression({});
  EXPECT_FALSE(kept(expression));
  FrameRow loaded = row(GetParam());
  loaded.cfa = CfaRule::loaded(Registers::sp_number(GetParam()), 48, 0);
  EXPECT_FALSE(kept(loaded));
  FrameRow by_register = row(GetParam());
  by_register.return_address = RegisterRule::at_register(Registers::sp_number(GetParam()), 40);
  EXPECT_FALSE(kept(by_register));
  FrameRow far = row(GetParam());
  far.return_address = RegisterRule::at_cfa(-40000);
  EXPECT_FALSE(kept(far));
  EXPECT_TRUE(kept(row(GetParam())));
  EXPECT_FALSE(cache->find(7, behind(0x1000))->ends_stack());
  FrameRow outermost = row(GetParam());
  outermost.return_address = RegisterRule::undefined();
  EXPECT_TRUE(kept(outermost));
  EXPECT_TRUE(cache->find(7, behind(0x1000))->ends_stack());
}

// An instruction behind a pop still has the row that says where the register was: below sp, it is dead.
TEST_P(KeptRows, WhatIsBelowSpIsNotRestored) {
  WalkTarget target(GetParam());
  target.function(0, 0x40, {});
  target.start();
  for (unsigned i = 0; i < 6; ++i) target.memory().set(kSp + 8 * i, WalkTarget::pc(0x20));
  const walk::Module* module = walk::module_at(target.space(), WalkTarget::pc(0));
  FrameRow by_frame_pointer = row(GetParam());
  const RegisterNumber fp = Registers::fp_number(GetParam());
  by_frame_pointer.cfa = CfaRule::at(fp, 0);
  auto cache = std::make_unique<RowCache>();
  const CodeAddress pc = CodeAddress::instruction(WalkTarget::pc(0x10));
  cache->keep(module->id(), pc, by_frame_pointer, FrameOrigin::kCfi, GetParam());
  const KeptRow* kept = cache->find(module->id(), pc);
  ASSERT_NE(kept, nullptr);
  for (const std::uint64_t popped : {0u, 1u, 3u}) {
    Frame frame;
    frame.registers = target.at(pc, kSp + 16 + 8 * popped);
    frame.registers.set(fp, kSp + 48);
    EXPECT_EQ(walk::apply_in_place(*kept, target.space(), {}, frame, module), popped == 0) << popped;
  }
}

INSTANTIATE_TEST_SUITE_P(Both, KeptRows, ::testing::Values(Architecture::kX86_64, Architecture::kAArch64));

// One walker's scratch space serves the next walker, so rows of a module that is gone are still there.
TEST(KeptRowsOfModules, AnotherModuleAtTheSamePlaceHasItsOwn) {
  for (const std::uint8_t words : {2, 4, 2, 3}) {
    WalkTarget target;
    target.function(0, 0x40, Bytes{DW_CFA_def_cfa_offset, static_cast<std::uint8_t>(8 * words)});
    target.start();
    for (unsigned i = 0; i < 8; ++i) target.memory().set(kSp + 8 * i, 0x1111);
    target.memory().set(kSp + 8u * (words - 1u), WalkTarget::pc(0x20));
    for (int again = 0; again < 2; ++again) {
      StackWalker walker(target.space(), target.at(CodeAddress::return_address(WalkTarget::pc(0x10)), kSp),
                         {100, false});
      ASSERT_TRUE(walker.step());
      EXPECT_EQ(walker.frame().sp(), kSp + 8u * words);
      EXPECT_EQ(walker.frame().pc().value(), WalkTarget::pc(0x20));
    }
  }
}

}  // namespace
}  // namespace windlass
