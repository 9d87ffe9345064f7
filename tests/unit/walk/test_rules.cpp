// One step by each kind of rule: the caller's registers, and where they were saved.
#include <gtest/gtest.h>

#include "formats/dwarf/expression_ops.h"
#include "support/walk_target.h"

namespace windlass {
namespace {

using namespace dwarf;
using test::Bytes;
using test::CieSpec;
using test::WalkTarget;

constexpr std::uint64_t kSp = 0x7fff'0000'1000;
constexpr RegisterNumber kRax = 0, kRbx = 3, kRbp = 6, kR12 = 12, kR13 = 13;

// A function with the given CFI, interrupted; its return address is in function 0x100.
class Rules : public ::testing::Test {
 protected:
  void make(const Bytes& instructions, std::uint64_t cfa = kSp + 8, const CieSpec* spec = nullptr) {
    target_.function(0, 0x40, instructions, spec != nullptr ? *spec : target_.cie_spec());
    target_.function(0x100, 0x40, {});
    target_.start();
    target_.memory().set(cfa - 8, WalkTarget::pc(0x110));
    registers_ = target_.at(CodeAddress::instruction(WalkTarget::pc(4)), kSp);
    for (RegisterNumber reg = 0; reg < 16; ++reg)
      if (reg != 7) registers_.set(reg, 0x1000u + reg);
  }
  // The walker after one step.
  const Frame& step() {
    walker_ = std::make_unique<StackWalker>(target_.space(), registers_, WalkOptions{100, false});
    EXPECT_TRUE(walker_->step()) << end_name(walker_->end_reason()) << ": " << walker_->error().text();
    return walker_->frame();
  }
  std::uint64_t saved(RegisterNumber reg) { return walker_->frame().saved.at(walker_->frame().registers, reg); }

  WalkTarget target_;
  Registers registers_;
  std::unique_ptr<StackWalker> walker_;
};

TEST_F(Rules, ReturnAddressAndCfa) {
  make({});
  const Frame& frame = step();
  EXPECT_EQ(frame.pc(), CodeAddress::return_address(WalkTarget::pc(0x110)));
  EXPECT_EQ(frame.sp(), kSp + 8);
  EXPECT_EQ(frame.origin, FrameOrigin::kCfi);
  EXPECT_FALSE(frame.signal_frame);
  EXPECT_EQ(saved(16), kSp);
  EXPECT_EQ(frame.registers.get(kRbx), 0x1000u + kRbx);  // no rule: preserved
  EXPECT_EQ(saved(kRbx), 0u);                            // and still in the register
  EXPECT_FALSE(frame.registers.has(kRax));               // no rule: not preserved
}

TEST_F(Rules, AtCfa) {
  make(Bytes{DW_CFA_def_cfa_offset, 24, DW_CFA_offset | kRbx, 2, DW_CFA_offset_extended_sf, kR12, 3}, kSp + 24);
  target_.memory().set(kSp + 8, 77);
  const Frame& frame = step();
  EXPECT_EQ(frame.registers.get(kRbx), 77u);
  EXPECT_EQ(saved(kRbx), kSp + 8);
  EXPECT_EQ(saved(kR12), 0u);
  EXPECT_FALSE(frame.registers.has(kR12));  // its slot cannot be read: not known, and the step is right without it
}

// A realigned frame that is left by a jump: GCC says to the end that the caller's registers are where rbp points.
TEST(PoppedFrame, WhatHasBeenPoppedIsTheCallersAgain) {
  constexpr RegisterNumber kR10 = 10;
  const std::vector<std::uint8_t> code{0x41, 0x5a, 0x5d,         // 0: pop r10; pop rbp
                                       0x49, 0x8d, 0x62, 0xf8,   // 3: lea rsp, [r10 - 8]
                                       0xff, 0xe0, 0x90, 0x90};  // 7: jmp rax
  WalkTarget target;
  target.function(0, 9,
                  {DW_CFA_def_cfa, kR10, 0, DW_CFA_expression, kRbp, 2, DW_OP_breg0 + kRbp, 0, DW_CFA_expression, kRbx,
                   2, DW_OP_breg0 + kRbp, 0x78});
  target.function(0x100, 0x40, {});
  target.start(code);
  target.memory().set(kSp + 0x38, WalkTarget::pc(0x110));
  target.memory().set(kSp + 0x100, 77);
  target.memory().set(kSp + 0xf8, 78);
  const auto caller_at = [&target](std::uint64_t offset) {
    Registers registers = target.at(CodeAddress::instruction(WalkTarget::pc(offset)), kSp);
    registers.set(kR10, kSp + 0x40);
    registers.set(kRbp, kSp + 0x100);
    registers.set(kRbx, 5);
    StackWalker walker(target.space(), registers, WalkOptions{100, false});
    EXPECT_TRUE(walker.step()) << walker.error().text();
    EXPECT_EQ(walker.frame().pc(), CodeAddress::return_address(WalkTarget::pc(0x110)));
    return walker.frame().registers;
  };
  EXPECT_EQ(caller_at(2).get(kRbp), 77u);
  EXPECT_EQ(caller_at(2).get(kRbx), 78u);
  EXPECT_EQ(caller_at(3).get(kRbp), kSp + 0x100);
  EXPECT_EQ(caller_at(3).get(kRbx), 5u);
}

TEST_F(Rules, SlotsBelowSpAreDead) {
  make(Bytes{DW_CFA_offset | kRbx, 4});  // CFA - 32 is below sp: it has been popped
  target_.memory().set(kSp - 24, 77);
  EXPECT_EQ(step().registers.get(kRbx), 0x1000u + kRbx);
  EXPECT_EQ(saved(kRbx), 0u);
}

TEST_F(Rules, ValueOfCfa) {
  make(Bytes{DW_CFA_val_offset, kRbx, 2, DW_CFA_val_offset_sf, kR12, 0x7f});
  const Frame& frame = step();
  EXPECT_EQ(frame.registers.get(kRbx), kSp + 8 - 16);
  EXPECT_EQ(frame.registers.get(kR12), kSp + 8 + 8);
  EXPECT_EQ(saved(kRbx), 0u);
}

TEST_F(Rules, InAnotherRegister) {
  make(Bytes{DW_CFA_register, kRbx, kRax, DW_CFA_register, kRax, kRbx});
  const Frame& frame = step();
  EXPECT_EQ(frame.registers.get(kRbx), 0x1000u + kRax);  // both from the callee's registers
  EXPECT_EQ(frame.registers.get(kRax), 0x1000u + kRbx);
}

TEST_F(Rules, UndefinedAndSame) {
  make(Bytes{DW_CFA_undefined, kRbx, DW_CFA_same_value, kRax});
  const Frame& frame = step();
  EXPECT_FALSE(frame.registers.has(kRbx));
  EXPECT_EQ(frame.registers.get(kRax), 0x1000u + kRax);
}

TEST_F(Rules, Expressions) {
  // rbx is at [rbp + 8 bytes]; r12 is rbp + 1; both start with the CFA pushed.
  make(Bytes{DW_CFA_expression, kRbx, 2, DW_OP_breg0 + kRbp, 8, DW_CFA_val_expression, kR12, 2, DW_OP_breg0 + kRbp, 1,
             DW_CFA_val_expression, kR13, 2, DW_OP_lit0 + 8, DW_OP_minus});
  registers_.set(kRbp, kSp + 0x100);
  target_.memory().set(kSp + 0x108, 99);
  const Frame& frame = step();
  EXPECT_EQ(frame.registers.get(kRbx), 99u);
  EXPECT_EQ(saved(kRbx), kSp + 0x108);
  EXPECT_EQ(frame.registers.get(kR12), kSp + 0x101);
  EXPECT_EQ(saved(kR12), 0u);
  EXPECT_EQ(frame.registers.get(kR13), kSp);
}

TEST_F(Rules, CfaExpression) {  // GCC's realigned frames: CFA = [rbp - 8]
  make(Bytes{DW_CFA_def_cfa_expression, 3, DW_OP_breg0 + kRbp, 0x78, DW_OP_deref}, kSp + 0x200);
  registers_.set(kRbp, kSp + 0x40);
  target_.memory().set(kSp + 0x38, kSp + 0x200);
  EXPECT_EQ(step().sp(), kSp + 0x200);
}

TEST_F(Rules, ArgumentsSizeMeansNothing) {
  make(Bytes{DW_CFA_GNU_args_size, 48});
  EXPECT_EQ(step().sp(), kSp + 8);
}

TEST_F(Rules, SignalFramesKeepThePcAsItIs) {
  CieSpec spec = target_.cie_spec();
  spec.augmentation = "zRS";
  make({}, kSp + 8, &spec);
  const Frame& frame = step();
  EXPECT_TRUE(frame.signal_frame);
  EXPECT_EQ(frame.pc(), CodeAddress::instruction(WalkTarget::pc(0x110)));
}

// As glibc's __restore_rt: everything lies in the frame the kernel made, addressed from sp.
TEST_F(Rules, RegistersOfASignalFrameAreAllKnown) {
  constexpr std::uint8_t kBregSp = DW_OP_breg0 + 7;
  CieSpec spec = target_.cie_spec();
  spec.augmentation = "zRS";
  make(Bytes{DW_CFA_def_cfa_expression, 3, kBregSp, 24, DW_OP_deref, DW_CFA_expression, kRax, 2, kBregSp, 16,
             DW_CFA_expression, 16, 2, kBregSp, 32},
       kSp + 0x400, &spec);
  target_.memory().set(kSp + 16, 5);
  target_.memory().set(kSp + 24, kSp + 0x3f0);
  target_.memory().set(kSp + 32, WalkTarget::pc(0x118));
  const Frame& frame = step();
  EXPECT_EQ(frame.registers.get(kRax), 5u);
  EXPECT_EQ(frame.sp(), kSp + 0x3f0);
  EXPECT_EQ(frame.pc(), CodeAddress::instruction(WalkTarget::pc(0x118)));
  EXPECT_EQ(saved(16), kSp + 32);
}

TEST_F(Rules, UndefinedReturnAddressEndsTheStack) {
  make(Bytes{DW_CFA_undefined, 16});
  StackWalker walker(target_.space(), registers_, WalkOptions{100, false});
  EXPECT_FALSE(walker.step());
  EXPECT_EQ(walker.end_reason(), WalkEnd::kComplete);
}

TEST_F(Rules, ZeroReturnAddressEndsTheStack) {
  make({});
  target_.memory().set(kSp, 0);
  StackWalker walker(target_.space(), registers_, WalkOptions{100, false});
  EXPECT_FALSE(walker.step());
  EXPECT_EQ(walker.end_reason(), WalkEnd::kComplete);
}

TEST_F(Rules, SavedLocationsComeFromInnerFrames) {
  target_.function(0x200, 0x40, Bytes{DW_CFA_def_cfa_offset, 16, DW_CFA_offset | kRbx, 2});
  make({});
  target_.memory().set(kSp, WalkTarget::pc(0x210));
  target_.memory().set(kSp + 8, 55);
  target_.memory().set(kSp + 16, WalkTarget::pc(0x110));
  (void)step();
  EXPECT_EQ(saved(kRbx), 0u);
  ASSERT_TRUE(walker_->step());
  EXPECT_EQ(walker_->frame().registers.get(kRbx), 55u);
  EXPECT_EQ(saved(kRbx), kSp + 8);
  EXPECT_EQ(saved(16), kSp + 16);
}

// longjmp's rows: the CFA is the buffer. Until sp is replaced the caller is where it was.
TEST_F(Rules, AContextThatIsBeingInstalled) {
  constexpr std::uint8_t kRdi = 5, kR8 = 8, kRdx = 1;
  make(Bytes{DW_CFA_advance_loc | 2, DW_CFA_def_cfa, kRdi, 0, DW_CFA_register, 7, kR8, DW_CFA_register, 16, kRdx,
             DW_CFA_offset_extended_sf, kRbx, 0, DW_CFA_offset_extended_sf, kR12, 0x7e});
  const std::uint64_t buffer = kSp + 0x4000;
  registers_.set(kRdi, buffer);
  registers_.set(kR8, kSp + 0x800);
  registers_.set(kRdx, WalkTarget::pc(0x120));
  target_.memory().set(buffer, registers_.get(kRbx));  // as it is now: lost
  target_.memory().set(buffer + 16, 42);
  const Frame& frame = step();
  EXPECT_EQ(frame.pc().value(), WalkTarget::pc(0x110));
  EXPECT_EQ(frame.sp(), kSp + 8);
  EXPECT_FALSE(frame.registers.has(kRbx));
  EXPECT_EQ(frame.registers.get(kR12), 0x1000u + kR12);

  registers_.set_sp(kSp + 0x800);  // it is installed
  const Frame& after = step();
  EXPECT_EQ(after.pc().value(), WalkTarget::pc(0x120));
  EXPECT_EQ(after.sp(), kSp + 0x800);
  EXPECT_EQ(after.registers.get(kR12), 42u);
}

TEST(RulesAArch64, SignedReturnAddressInTheLinkRegister) {
  WalkTarget target(Architecture::kAArch64);
  target.function(0, 0x40, Bytes{DW_CFA_GNU_window_save});  // = DW_CFA_AARCH64_negate_ra_state
  target.function(0x100, 0x40, {});
  target.start();
  Registers registers = target.at(CodeAddress::instruction(WalkTarget::pc(4)), kSp);
  registers.set(30, WalkTarget::pc(0x110) | 0x002b'0000'0000'0000);
  registers.set(72, 11);  // d8
  const auto first = [&] {
    StackWalker walker(target.space(), registers, WalkOptions{100, false});
    return walker.step() ? walker.frame() : Frame{};
  };
  EXPECT_EQ(first().pc(), CodeAddress::return_address(WalkTarget::pc(0x110)));
  EXPECT_EQ(first().sp(), kSp);
  EXPECT_EQ(first().registers.get(72), 11u);
  target.space().set_pointer_mask(0xff00'0000'0000'0000);  // too small: the address stays what it is, in no module
  EXPECT_EQ(first().pc().value(), 0u);
}

}  // namespace
}  // namespace windlass
