// Stacks that lie: every walk ends, with a reason, after a bounded number of frames and reads.
#include <gtest/gtest.h>

#include "formats/dwarf/expression_ops.h"
#include "support/walk_target.h"

namespace windlass {
namespace {

using namespace dwarf;
using test::Bytes;
using test::WalkTarget;

constexpr std::uint64_t kSp = 0x7fff'0000'1000;
constexpr RegisterNumber kRbp = 6;
constexpr std::uint8_t kRbpFrame[] = {DW_CFA_def_cfa, kRbp, 16, DW_CFA_offset | kRbp, 2};

struct End {
  WalkEnd reason;
  std::size_t frames;
  std::uint64_t reads;
  Error error;
};

End walk(WalkTarget& target, const Registers& registers, WalkOptions options = {}) {
  StackWalker walker(target.space(), registers, options);
  std::size_t frames = 1;
  while (walker.step()) ++frames;
  EXPECT_NE(walker.end_reason(), WalkEnd::kRunning);
  if (walker.end_reason() != WalkEnd::kComplete) {
    EXPECT_STRNE(walker.error().what, "");
  }
  return {walker.end_reason(), frames, target.memory().reads, walker.error()};
}

// Functions whose frames are found by rbp, at 0 and 0x100; one by sp at 0x200. With and without the code being asked.
class Hostile : public ::testing::TestWithParam<bool> {
 protected:
  Hostile() {
    Bytes rows;
    for (const std::uint8_t byte : kRbpFrame) rows.u8(byte);
    target_.function(0, 0x40, rows);
    target_.function(0x100, 0x40, rows);
    target_.function(0x200, 0x40, {});
    options_.synthesize = GetParam();
  }
  // In the function at `offset`, called from somewhere.
  Registers in(std::uint64_t offset, std::uint64_t rbp) {
    Registers registers = target_.at(CodeAddress::return_address(WalkTarget::pc(offset + 8)), kSp);
    registers.set(kRbp, rbp);
    return registers;
  }
  void frame_at(std::uint64_t rbp, std::uint64_t next_rbp, std::uint64_t pc) {
    target_.memory().set(rbp, next_rbp);
    target_.memory().set(rbp + 8, pc);
  }

  WalkTarget target_;
  WalkOptions options_;
};

TEST_P(Hostile, AFrameThatIsItsOwnCaller) {
  target_.start();
  frame_at(kSp, kSp, WalkTarget::pc(8));
  const End end = walk(target_, in(0, kSp), options_);
  EXPECT_EQ(end.reason, WalkEnd::kNoProgress);
  EXPECT_LE(end.frames, 4u);
}

TEST_P(Hostile, TwoFramesThatCallEachOther) {
  target_.start();
  frame_at(kSp, kSp + 0x100, WalkTarget::pc(0x108));
  frame_at(kSp + 0x100, kSp, WalkTarget::pc(8));
  const End end = walk(target_, in(0, kSp), options_);
  EXPECT_EQ(end.reason, WalkEnd::kNoProgress);
  EXPECT_LE(end.frames, 40u);
}

TEST_P(Hostile, AChainThatRunsDownwards) {
  target_.start();
  for (std::uint64_t i = 0; i < 1000; ++i)
    frame_at(kSp - i * 0x20, kSp - (i + 1) * 0x20, WalkTarget::pc(i % 2 * 0x100 + 8));
  const End end = walk(target_, in(0x100, kSp), options_);
  EXPECT_EQ(end.reason, WalkEnd::kNoProgress);
  EXPECT_LE(end.frames, 20u);
}

TEST_P(Hostile, AnUnreadableStackSaysWhere) {
  target_.start();
  const End end = walk(target_, in(0, kSp + 0x500), options_);
  EXPECT_EQ(end.reason, WalkEnd::kUnreadable);
  EXPECT_EQ(end.error.where, kSp + 0x508);
  EXPECT_EQ(end.frames, 1u);
}

TEST_P(Hostile, ReturnAddressesOutsideAllCodeAreNoFrames) {
  target_.start();
  for (const std::uint64_t nowhere : {0x1234ul, 0x6000'0000'0000ul, 0x8000'0000'0000'0000ul, 0xffff'ffff'8100'0000ul,
                                      0x0080'0000'0000'0000ul, ~0ul, WalkTarget::kBias - 1}) {
    frame_at(kSp, kSp + 0x100, nowhere);
    const End end = walk(target_, in(0, kSp), options_);
    EXPECT_EQ(end.reason, WalkEnd::kNoModule) << std::hex << nowhere;
    EXPECT_EQ(end.error.where, nowhere);
    EXPECT_EQ(end.frames, 1u);
  }
}

TEST_P(Hostile, StackPointersThatAreNoneAreNoFrames) {
  target_.start();
  for (const std::uint64_t bad : {kSp + 0x101, kSp + 0x104, std::uint64_t{0xffff'8000'0000'1000}, ~std::uint64_t{31}}) {
    const std::uint64_t slot = bad + 8;
    for (const std::uint64_t word : {slot & ~7ul, (slot & ~7ul) + 8}) target_.memory().set(word, 0);
    // An unaligned slot takes its bytes from two words.
    const unsigned shift = 8 * (slot % 8);
    const std::uint64_t pc = WalkTarget::pc(0x108);
    target_.memory().set(slot & ~7ul, pc << shift);
    if (shift != 0) target_.memory().set((slot & ~7ul) + 8, pc >> (64 - shift));
    const End end = walk(target_, in(0, bad), options_);
    EXPECT_EQ(end.reason, WalkEnd::kBadRow) << std::hex << bad;
    EXPECT_EQ(end.frames, 1u);
  }
}

TEST_P(Hostile, APcInNowhere) {
  target_.start();
  for (const std::uint64_t pc : {0ul, 8ul, ~0ul, 0xffff'ffff'ffff'0000ul}) {
    const Registers registers = target_.at(CodeAddress::instruction(pc), kSp);
    EXPECT_EQ(walk(target_, registers, options_).reason, WalkEnd::kNoModule);
  }
}

TEST_P(Hostile, AJumpThroughABadPointerIsALeaf) {
  target_.start({0, 0, 0, 0xe8, 0, 0, 0, 0});  // `call`: its return address is at 8
  target_.memory().set(kSp, WalkTarget::pc(8));
  const Registers registers = target_.at(CodeAddress::instruction(0), kSp);
  StackWalker walker(target_.space(), registers, options_);
  ASSERT_TRUE(walker.step());
  EXPECT_EQ(walker.frame().origin, FrameOrigin::kLeaf);
  EXPECT_EQ(walker.frame().pc().value(), WalkTarget::pc(8));
}

TEST_P(Hostile, NoRegistersAtAll) {
  target_.start();
  const Registers nothing(Architecture::kX86_64);
  EXPECT_EQ(walk(target_, nothing, options_).reason, WalkEnd::kNoModule);
  Registers no_rbp = in(0, kSp);
  no_rbp.forget(kRbp);
  EXPECT_EQ(walk(target_, no_rbp, options_).reason, WalkEnd::kLost);
}

TEST_P(Hostile, ExpressionsThatNeverEnd) {
  target_.function(0x300, 0x40, Bytes{DW_CFA_def_cfa_expression, 3, DW_OP_skip, 0xfd, 0xff});
  target_.function(0x400, 0x40,
                   Bytes{DW_CFA_def_cfa_expression, 5, DW_OP_lit0 + 1, DW_OP_lit0 + 1, DW_OP_bra, 0xfb, 0xff});
  target_.function(0x500, 0x40, Bytes{DW_CFA_def_cfa_expression, 1, DW_OP_call_frame_cfa});
  target_.function(0x600, 0x40, Bytes{DW_CFA_def_cfa_expression, 0});
  target_.start();
  for (const std::uint64_t offset : {0x300, 0x400, 0x500, 0x600})
    EXPECT_EQ(walk(target_, in(offset, kSp), options_).reason, WalkEnd::kBadRow) << std::hex << offset;
}

TEST_P(Hostile, DamagedRowsAreNamed) {
  target_.function(0x300, 0x40, Bytes{DW_CFA_restore_state});
  target_.function(0x400, 0x40, Bytes{0x3f});                                          // no such opcode
  target_.function(0x500, 0x40, Bytes{DW_CFA_def_cfa, 0x80, 0x80, 0x80, 0x80, 0x80});  // cut off
  target_.start();
  for (const std::uint64_t offset : {0x300, 0x400, 0x500}) {
    const End end = walk(target_, in(offset, kSp), {100, false});
    EXPECT_EQ(end.reason, WalkEnd::kBadRow) << std::hex << offset;
    EXPECT_EQ(end.frames, 1u);
  }
}

INSTANTIATE_TEST_SUITE_P(Code, Hostile, ::testing::Bool(),
                         [](const auto& test) { return test.param ? "asked" : "ignored"; });

// The same frame, for ever: a stack of return addresses without end.
class EndlessMemory : public Memory {
 public:
  bool read(std::uint64_t, void* to, std::size_t size) const override {
    if (size != 8) return false;
    const std::uint64_t pc = WalkTarget::pc(8);
    std::memcpy(to, &pc, size);
    return true;
  }
};

TEST(HostileStack, AMillionFramesAreWalkedAndNoMore) {
  test::CfiBuilder cfi;
  cfi.fde(cfi.cie(), WalkTarget::kCode, 0x40, Bytes{});
  cfi.raw().u32(0);
  AddressSpace space(Architecture::kX86_64, std::make_unique<EndlessMemory>());
  ASSERT_TRUE(space.add_module(
      {WalkTarget::kBias, WalkTarget::kBias + 0x2000, WalkTarget::kBias, "endless", {}},
      test::elf_with_eh_frame(Architecture::kX86_64, {}, WalkTarget::kCode, cfi.raw().data(), 0x1800)));
  Registers registers(Architecture::kX86_64);
  registers.set_sp(kSp);
  registers.set_pc(CodeAddress::return_address(WalkTarget::pc(8)));
  StackWalker walker(space, registers, {1'000'000, true});
  std::size_t frames = 1;
  while (walker.step()) ++frames;
  EXPECT_EQ(frames, 1'000'000u);
  EXPECT_EQ(walker.end_reason(), WalkEnd::kLimit);
}

// Without unwind information: chains of frame pointers.
TEST(HostileStack, FramePointersThatCircle) {
  for (const Architecture architecture : {Architecture::kX86_64, Architecture::kAArch64}) {
    WalkTarget target(architecture);
    target.start();
    const RegisterNumber fp = Registers::fp_number(architecture);
    Registers registers = target.at(CodeAddress::return_address(WalkTarget::pc(8)), kSp);
    registers.set(fp, kSp);
    target.memory().set(kSp, kSp);
    target.memory().set(kSp + 8, WalkTarget::pc(0x20));
    EXPECT_LE(walk(target, registers, {1000, false}).frames, 4u);
    registers.set(fp, kSp + 3);
    EXPECT_EQ(walk(target, registers, {1000, false}).frames, 1u);
    registers.set(fp, kSp - 64);
    EXPECT_EQ(walk(target, registers, {1000, false}).frames, 1u);
  }
}

}  // namespace
}  // namespace windlass
