// AArch64: return-address signing, code without unwind information, the way back from a signal handler.
#include <gtest/gtest.h>

#include <cstring>
#include <initializer_list>

#include "base/aarch64_signal_frame.h"
#include "support/walk_target.h"

namespace windlass {
namespace {

using namespace dwarf;
using test::Bytes;
using test::CieSpec;
using test::WalkTarget;

constexpr std::uint64_t kEntrySp = 0x7fff'0000'8000;
constexpr std::uint64_t kCode = 0x002b'0000'0000'0000;  // an authentication code, within the default mask
constexpr std::uint64_t kCallerOffset = 0x800;          // behind a bl
constexpr RegisterNumber kX19 = 19, kX20 = 20, kX29 = 29, kX30 = 30, kD8 = 72, kD9 = 73;
constexpr std::uint64_t kGarbage = 0xdead'0000'0000'0001;

// Code without unwind information, interrupted. Before each check the registers are what a caller left them as.
class CodeOnly : public testing::Test {
 protected:
  void code(std::initializer_list<std::uint32_t> words) {
    std::vector<std::uint8_t> bytes(kCallerOffset + 16);
    const std::uint32_t caller[] = {0x94000010, 0xd503201f, 0xd65f03c0};  // bl; nop; ret
    std::memcpy(bytes.data() + kCallerOffset - 4, caller, sizeof caller);
    std::size_t at = 0;
    for (const std::uint32_t word : words) {
      std::memcpy(bytes.data() + at, &word, sizeof word);
      at += sizeof word;
    }
    target_.function(0x4000, 4, {});
    target_.start(bytes);
  }
  // At `offset` with sp that much below the entry's.
  Registers& at(std::uint64_t offset, std::uint64_t below) {
    registers_ = target_.at(CodeAddress::instruction(WalkTarget::pc(offset)), kEntrySp - below);
    for (RegisterNumber reg = 0; reg <= 28; ++reg) registers_.set(reg, 0x1000u + reg);
    for (RegisterNumber reg = kD8; reg < kD8 + 8; ++reg) registers_.set(reg, 0x1000u + reg);
    registers_.set(kX29, kEntrySp + 0x100);
    registers_.set(kX30, kReturn);
    return registers_;
  }
  void save(std::uint64_t below, std::uint64_t value) { target_.memory().set(kEntrySp - below, value); }
  void expect_caller() {
    StackWalker walker(target_.space(), registers_, WalkOptions{100, true});
    ASSERT_TRUE(walker.step()) << end_name(walker.end_reason()) << ": " << walker.error().text();
    const Registers& caller = walker.frame().registers;
    EXPECT_EQ(walker.frame().origin, FrameOrigin::kSynthesis);
    EXPECT_EQ(caller.pc(), CodeAddress::return_address(kReturn));
    EXPECT_EQ(caller.sp(), kEntrySp);
    EXPECT_EQ(caller.get(kX29), kEntrySp + 0x100);
    for (RegisterNumber reg = kX19; reg <= 28; ++reg) EXPECT_EQ(caller.get(reg), 0x1000u + reg) << reg;
    for (RegisterNumber reg = kD8; reg < kD8 + 8; ++reg) EXPECT_EQ(caller.get(reg), 0x1000u + reg) << reg;
  }

  static constexpr std::uint64_t kReturn = WalkTarget::kBias + WalkTarget::kCode + kCallerOffset;
  WalkTarget target_{Architecture::kAArch64};
  Registers registers_;
};

TEST_F(CodeOnly, SignedFrameAtEveryInstruction) {
  code({0xd503233f,    // 00 paciasp
        0xa9bd7bfd,    // 04 stp x29,x30,[sp,#-48]!
        0x910003fd,    // 08 mov x29,sp
        0xa90153f3,    // 0c stp x19,x20,[sp,#16]
        0x6d0227e8,    // 10 stp d8,d9,[sp,#32]
        0x94000010,    // 14 bl
        0x6d4227e8,    // 18 ldp d8,d9,[sp,#32]
        0xa94153f3,    // 1c ldp x19,x20,[sp,#16]
        0xa8c37bfd,    // 20 ldp x29,x30,[sp],#48
        0xd50323bf,    // 24 autiasp
        0xd65f03c0});  // 28 ret
  save(48, kEntrySp + 0x100);
  save(40, kReturn | kCode);
  save(32, 0x1000 + kX19);
  save(24, 0x1000 + kX20);
  save(16, 0x1000 + kD8);
  save(8, 0x1000 + kD9);
  for (std::uint64_t offset = 0; offset <= 0x28; offset += 4) {
    SCOPED_TRACE(offset);
    const bool in_frame = offset >= 0x08 && offset <= 0x20;
    Registers& registers = at(offset, in_frame ? 48 : 0);
    if (offset > 0 && offset < 0x28) registers.set(kX30, kReturn | kCode);
    if (offset >= 0x0c && offset <= 0x20) registers.set(kX29, kEntrySp - 48);
    if (offset >= 0x18 && offset <= 0x20) registers.set(kX30, WalkTarget::pc(0x18));
    if (offset >= 0x18 && offset <= 0x1c) registers.set(kX19, kGarbage), registers.set(kX20, kGarbage);
    if (offset == 0x18) registers.set(kD8, kGarbage), registers.set(kD9, kGarbage);
    expect_caller();
  }
}

TEST_F(CodeOnly, BKeyAndAuthenticatingReturn) {
  code({0xd503237f,    // 00 pacibsp
        0xf81f0ffe,    // 04 str x30,[sp,#-16]!
        0xd63f0020,    // 08 blr x1
        0xf84107fe,    // 0c ldr x30,[sp],#16
        0xd65f0fff});  // 10 retab
  save(16, kReturn | kCode);
  for (std::uint64_t offset = 0; offset <= 0x10; offset += 4) {
    SCOPED_TRACE(offset);
    at(offset, offset == 8 || offset == 0xc ? 16 : 0);
    if (offset != 0) registers_.set(kX30, offset == 0xc ? WalkTarget::pc(0xc) : kReturn | kCode);
    expect_caller();
  }
}

TEST_F(CodeOnly, AnUnsignedLinkRegisterIsNotStripped) {
  code({0xd65f03c0});
  at(0, 0).set(kX30, kReturn | kCode);
  StackWalker walker(target_.space(), registers_, WalkOptions{100, true});
  EXPECT_FALSE(walker.step());
}

TEST_F(CodeOnly, FrameSizeInARegister) {
  code({0xd282400c,    // 00 mov x12,#0x1200
        0xcb2c63ff,    // 04 sub sp,sp,x12
        0xf90003fe,    // 08 str x30,[sp]
        0xd63f0000,    // 0c blr x0
        0xf94003fe,    // 10 ldr x30,[sp]
        0xd282400c,    // 14 mov x12,#0x1200
        0x8b2c63ff,    // 18 add sp,sp,x12
        0xd65f03c0});  // 1c ret
  save(0x1200, kReturn);
  for (std::uint64_t offset = 0; offset <= 0x1c; offset += 4) {
    SCOPED_TRACE(offset);
    at(offset, offset >= 0x08 && offset <= 0x18 ? 0x1200 : 0);
    if (offset == 0x10) registers_.set(kX30, WalkTarget::pc(0x10));
    expect_caller();
  }
}

TEST_F(CodeOnly, LinkageTable) {
  code({0xa9bf7bf0,    // 00 stp x16,x30,[sp,#-16]!   the first entry
        0x90000010,    // 04 adrp x16,.
        0xf9400611,    // 08 ldr x17,[x16,#8]
        0x91002210,    // 0c add x16,x16,#8
        0xd61f0220,    // 10 br x17
        0x90000010,    // 14 adrp x16,.               another
        0xf9400a11,    // 18 ldr x17,[x16,#16]
        0x91004210,    // 1c add x16,x16,#16
        0xd61f0220});  // 20 br x17
  save(8, kReturn);
  for (std::uint64_t offset = 0; offset <= 0x20; offset += 4) {
    SCOPED_TRACE(offset);
    at(offset, offset >= 0x04 && offset <= 0x10 ? 16 : 0);
    expect_caller();
  }
}

// ---- the way back from a signal handler ---------------------------------------------------------------------------

class Trampoline : public testing::TestWithParam<bool> {};

// With the kernel's own unwind information, which leads to [x29] and [x29 + 8], and without any.
TEST_P(Trampoline, KnownByItsInstructions) {
  WalkTarget target(Architecture::kAArch64);
  constexpr std::uint64_t kOffset = 0x40;
  std::vector<std::uint8_t> bytes(0x80);
  std::memcpy(bytes.data() + kOffset, &aarch64::kMovRtSigreturn, 4);
  std::memcpy(bytes.data() + kOffset + 4, &aarch64::kSvc, 4);
  CieSpec spec = target.cie_spec();
  spec.augmentation = "zRS";
  if (GetParam())
    target.function(kOffset - 4, 12, Bytes{DW_CFA_def_cfa, 29, 0, DW_CFA_offset | 29, 0, DW_CFA_offset | 30, 1}, spec);
  target.function(0x200, 0x40, {});
  target.start(bytes);

  const std::uint64_t interrupted = WalkTarget::pc(0x210);
  for (std::uint64_t i = 0; i <= 30; ++i)
    target.memory().set(kEntrySp + static_cast<std::uint64_t>(aarch64::kSignalRegisters) + 8 * i, 0x2000 + i);
  target.memory().set(kEntrySp + static_cast<std::uint64_t>(aarch64::kSignalSp), kEntrySp + 0x5000);
  target.memory().set(kEntrySp + static_cast<std::uint64_t>(aarch64::kSignalPc), interrupted);
  const std::uint64_t records = kEntrySp + static_cast<std::uint64_t>(aarch64::kSignalRecords);
  const std::uint64_t vectors = kEntrySp + static_cast<std::uint64_t>(aarch64::kSignalVectors);
  for (std::uint64_t i = 8; i <= 15; ++i) target.memory().set(vectors + 16 * i, 0x3000 + i);

  for (const bool has_vectors : {true, false}) {
    target.memory().set(records, has_vectors ? std::uint64_t{aarch64::kVectorRecord} | std::uint64_t{0x210} << 32 : 0);
    for (const CodeAddress pc :
         {CodeAddress::return_address(WalkTarget::pc(kOffset)), CodeAddress::instruction(WalkTarget::pc(kOffset)),
          CodeAddress::instruction(WalkTarget::pc(kOffset + 4))}) {
      Registers registers = target.at(pc, kEntrySp);
      registers.set(kX29, kEntrySp + 0x40);  // the frame record the unwind information would follow
      target.memory().set(kEntrySp + 0x40, 1);
      target.memory().set(kEntrySp + 0x48, WalkTarget::pc(0x220));
      StackWalker walker(target.space(), registers, WalkOptions{100, true});
      ASSERT_TRUE(walker.step());
      const Frame& frame = walker.frame();
      EXPECT_TRUE(frame.signal_frame);
      EXPECT_EQ(frame.pc(), CodeAddress::instruction(interrupted));
      EXPECT_EQ(frame.sp(), kEntrySp + 0x5000);
      for (RegisterNumber i = 0; i <= 30; ++i) EXPECT_EQ(frame.registers.get(i), 0x2000u + i);
      for (RegisterNumber i = 0; i < 8; ++i) {
        EXPECT_EQ(frame.registers.has(static_cast<RegisterNumber>(kD8 + i)), has_vectors);
        EXPECT_EQ(frame.registers.get(static_cast<RegisterNumber>(kD8 + i)), has_vectors ? 0x3008u + i : 0u);
      }
    }
  }
}
INSTANTIATE_TEST_SUITE_P(UnwindInformation, Trampoline, testing::Bool());

// ---- what a return address is cleared of --------------------------------------------------------------------------

struct MaskCase {
  const char* what;
  std::uint64_t mask;  // NT_ARM_PAC_MASK's insn_mask
  std::uint64_t bias;  // an address that needs all the bits there are
};

class Masks : public testing::TestWithParam<MaskCase> {
 protected:
  // The caller's pc for a return address in x30 that has all the mask's bits set, by a row with `instructions`.
  std::uint64_t caller_of(const Bytes& instructions, const char* augmentation = "zR") {
    const std::uint64_t bias = GetParam().bias;
    test::CfiBuilder cfi;
    CieSpec spec;
    spec.return_register = 30;
    spec.instructions = {0x0c, 31, 0};
    spec.augmentation = augmentation;
    cfi.fde(cfi.cie(spec), 0x1000, 0x40, instructions);
    cfi.fde(cfi.cie(spec), 0x1100, 0x40, {});
    cfi.raw().add(Bytes{0, 0, 0, 0});
    AddressSpace space(Architecture::kAArch64, std::make_unique<test::WordMemory>());
    space.set_pointer_mask(GetParam().mask);
    EXPECT_TRUE(
        space.add_module({bias, bias + 0x2000, bias, "synthetic", {}},
                         test::elf_with_eh_frame(Architecture::kAArch64, {}, 0x1000, cfi.raw().data(), 0x2000)));
    Registers registers(Architecture::kAArch64);
    registers.set_pc(CodeAddress::instruction(bias + 0x1004));
    registers.set_sp(0x7000'0000);
    registers.set(kX30, (bias + 0x1110) | GetParam().mask);
    StackWalker walker(space, registers, WalkOptions{100, false});
    return walker.step() ? walker.frame().pc().value() - bias : 0;
  }
};

TEST_P(Masks, StrippedExactlyWhereSigned) {
  EXPECT_EQ(caller_of({DW_CFA_GNU_window_save}), 0x1110u);  // = DW_CFA_AARCH64_negate_ra_state
  EXPECT_EQ(caller_of({DW_CFA_AARCH64_negate_ra_state_with_pc}), 0x1110u);
  EXPECT_EQ(caller_of({DW_CFA_GNU_window_save}, "zRB"), 0x1110u);              // key B
  EXPECT_EQ(caller_of({}), 0u);                                                // not signed: no address
  EXPECT_EQ(caller_of({DW_CFA_GNU_window_save, DW_CFA_GNU_window_save}), 0u);  // and authenticated again
  EXPECT_EQ(caller_of({DW_CFA_remember_state, DW_CFA_GNU_window_save, DW_CFA_restore_state}), 0u);
}

INSTANTIATE_TEST_SUITE_P(AddressSizes, Masks,
                         testing::Values(MaskCase{"39 bits", 0x007f'ff80'0000'0000, 0x0000'007f'1234'5000},
                                         MaskCase{"39 bits, top byte ignored by data only", 0xff7f'ff80'0000'0000,
                                                  0x0000'007f'1234'5000},
                                         MaskCase{"48 bits", 0x007f'0000'0000'0000, 0x0000'ffff'1234'5000},
                                         MaskCase{"52 bits", 0x0070'0000'0000'0000, 0x000f'ffff'1234'5000}));

}  // namespace
}  // namespace windlass
