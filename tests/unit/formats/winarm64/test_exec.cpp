#include <map>

#include <gtest/gtest.h>

#include "formats/winarm64/exec.h"
#include "unit/formats/winarm64/image.h"

namespace windlass::winarm64 {
namespace {

struct Stack {
  std::map<std::uint64_t, std::uint64_t> words;
  bool read(std::uint64_t address, void* to, std::size_t size) const {
    for (std::size_t i = 0; i < size; i += 8) {
      const auto at = words.find(address + i);
      if (at == words.end()) return false;
      std::memcpy(static_cast<char*>(to) + i, &at->second, std::min<std::size_t>(8, size - i));
    }
    return true;
  }
};

constexpr std::uint64_t kBase = 0x1'4000'0000, kSp = 0x10000;

class WinArm64Exec : public testing::Test {
 protected:
  WinArm64Exec() {
    for (RegisterNumber reg = 0; reg < 31; ++reg) frame.set(reg, 0x100U + reg);
    for (RegisterNumber reg = 72; reg < 80; ++reg) frame.set(reg, 0x100U + reg);
    frame.set_sp(kSp);
    context.image_base = kBase;
    for (std::uint64_t at = kSp; at < kSp + 0x400; at += 8) stack.words[at] = 0x5000'0000 + at;
  }
  static std::uint64_t word(std::uint64_t offset) { return 0x5000'0000 + kSp + offset; }

  Expected<Unwound> at(const TestImage& made, std::uint32_t rva) {
    frame.set_pc(CodeAddress::instruction(kBase + rva));
    return virtual_unwind(made.functions(), context, stack, frame, caller, &saved);
  }
  // The caller of a function with these codes, 4096 bytes long, in its body.
  Expected<Unwound> in_body(const std::vector<std::uint8_t>& codes) {
    const TestImage made(xdata(0x400, codes), {{kCode, kXdata}});
    return at(made, kCode + 0x200);
  }

  Registers frame{Architecture::kAArch64};
  Registers caller{Architecture::kAArch64};
  ExecContext context;
  Stack stack;
  SavedLocations saved;
};

TEST_F(WinArm64Exec, PrologueBodyEpilogue) {
  // stp x19,x20,[sp,#-32]!; stp x29,lr,[sp,#-16]!; mov x29,sp
  const TestImage made(xdata(0x100, {0xe1, 0x81, 0x24, 0xe4}, {{0x80, 1}}, -1, true), {{kCode, kXdata}});
  struct State {
    std::uint32_t offset;
    std::uint64_t sp, lr_at;
    Place place;
  };
  frame.set(29, kSp);
  for (const State state :
       {State{0, 0, 0, Place::kPrologue}, State{4, 32, 0, Place::kPrologue}, State{8, 48, 8, Place::kPrologue},
        State{12, 48, 8, Place::kBody}, State{0x7c, 48, 8, Place::kBody}, State{0x80, 48, 8, Place::kEpilogue},
        State{0x84, 32, 0, Place::kEpilogue}, State{0x88, 0, 0, Place::kEpilogue}, State{0x8c, 48, 8, Place::kBody}}) {
    const auto unwound = at(made, kCode + state.offset);
    ASSERT_TRUE(unwound) << state.offset << " " << unwound.error().text();
    EXPECT_EQ(unwound->place, state.place) << state.offset;
    EXPECT_EQ(caller.sp(), kSp + state.sp) << state.offset;
    EXPECT_EQ(unwound->establisher_frame, caller.sp());
    EXPECT_EQ(caller.pc().value(), state.lr_at != 0 ? word(state.lr_at) : frame.get(30)) << state.offset;
    EXPECT_TRUE(caller.pc().is_return_address());
    EXPECT_FALSE(caller.has(30));  // whatever the callee left there
    EXPECT_FALSE(caller.has(0));
    EXPECT_EQ(unwound->handler, state.place == Place::kBody ? 0x1234U : 0U) << state.offset;
  }
  EXPECT_EQ(saved.at(caller, 19), kSp + 16);
  EXPECT_EQ(saved.at(caller, 32), kSp + 8);
}

// A call may be the last instruction: the return address is then another function's.
// The only epilogue ends the function. Its codes are the prologue's without set_fp.
TEST_F(WinArm64Exec, TheOnlyEpilogueAtTheEnd) {
  const TestImage made(xdata(0x100, {0xe1, 0x81, 0x24, 0xe4}, {}, 1), {{kCode, kXdata}});
  struct State {
    std::uint32_t offset;
    std::uint64_t sp;
    Place place;
  };
  frame.set(29, kSp);
  for (const State state : {State{0xf0, 48, Place::kBody}, State{0xf4, 48, Place::kEpilogue},
                            State{0xf8, 32, Place::kEpilogue}, State{0xfc, 0, Place::kEpilogue}}) {
    const auto unwound = at(made, kCode + state.offset);
    ASSERT_TRUE(unwound) << state.offset << " " << unwound.error().text();
    EXPECT_EQ(unwound->place, state.place) << state.offset;
    EXPECT_EQ(caller.sp(), kSp + state.sp) << state.offset;
  }
}

TEST_F(WinArm64Exec, ReturnAddressesAreLookedUpAtTheirCall) {
  const TestImage made(xdata(0x40, {0x81, 0xe4}), {{kCode, kXdata}, {kCode + 0x40, 1U | 16U << 2}});
  frame.set_pc(CodeAddress::return_address(kBase + kCode + 0x40));
  const auto unwound = virtual_unwind(made.functions(), context, stack, frame, caller);
  ASSERT_TRUE(unwound);
  EXPECT_EQ(unwound->function.begin, kCode);
  EXPECT_EQ(caller.sp(), kSp + 16);
  frame.set_pc(CodeAddress::return_address(kBase + kCode + 4));  // behind the prologue's only instruction: in it
  EXPECT_EQ(virtual_unwind(made.functions(), context, stack, frame, caller)->place, Place::kPrologue);
}

TEST_F(WinArm64Exec, Leaf) {
  const TestImage made(xdata(0x40, {0x81, 0xe4}), {{kCode, kXdata}});
  const auto unwound = at(made, kCode + 0x40);
  ASSERT_TRUE(unwound);
  EXPECT_EQ(unwound->place, Place::kLeaf);
  EXPECT_EQ(caller.pc().value(), frame.get(30));
  EXPECT_EQ(caller.sp(), kSp);
  frame.set(30, kBase + kCode + 0x40);
  EXPECT_FALSE(at(made, kCode + 0x40));  // to itself
  frame.forget(30);
  EXPECT_EQ(at(made, kCode + 0x40).error().code, ErrorCode::kNotFound);
}

TEST_F(WinArm64Exec, SignedReturnAddress) {
  stack.words[kSp + 8] = 0x1a7f'7654'3210'1234 & ~(1ULL << 55);
  ASSERT_TRUE(in_body({0x81, 0xfc, 0xe4}));
  EXPECT_EQ(caller.pc().value(), 0x7654'3210'1234U);
  stack.words[kSp + 8] = 0x5bff'7654'3210'1234 | 1ULL << 55;  // a kernel's
  ASSERT_TRUE(in_body({0x81, 0xfc, 0xe4}));
  EXPECT_EQ(caller.pc().value(), 0xffff'7654'3210'1234U);
}

TEST_F(WinArm64Exec, SaveNextStaysInItsFile) {
  ASSERT_TRUE(in_body({0xe6, 0xe6, 0xd8, 0x00, 0xe4}));  // d8-d13
  for (unsigned i = 0; i < 6; ++i) EXPECT_EQ(caller.get(static_cast<RegisterNumber>(72 + i)), word(i * 8));
  EXPECT_EQ(caller.get(78), frame.get(78));
  ASSERT_TRUE(in_body({0xe6, 0xca, 0x02, 0xe4}));  // x27-x30: upwards, lr among them
  EXPECT_EQ(caller.get(29), word(32));
  EXPECT_EQ(caller.pc().value(), word(40));
}

TEST_F(WinArm64Exec, ChangesNothingOnFailure) {
  struct Case {
    std::vector<std::uint8_t> codes;
    ErrorCode code;
  };
  for (const Case& bad : {Case{{0xe6, 0xca, 0x82, 0xe4}, ErrorCode::kMalformed},  // x29-x32
                          Case{{0xe6, 0x01, 0xe4}, ErrorCode::kMalformed},        // save_next, alloc
                          Case{{0xe6, 0xd6, 0x00, 0xe4}, ErrorCode::kMalformed},  // save_next, save_lrpair
                          Case{{0x81, 0xe6, 0xe4}, ErrorCode::kMalformed},        // save_next, end
                          Case{{0xed, 0xe4}, ErrorCode::kUnsupported},            // undefined
                          Case{{0xdf, 0x01, 0xe4}, ErrorCode::kUnsupported},      // the vector length is not known
                          Case{{0x81, 0x81, 0x81, 0xe0}, ErrorCode::kTruncated},  // cut
                          Case{{0xe0, 0, 0xff, 0, 0x81, 0xe4}, ErrorCode::kUnreadable}}) {
    caller = Registers(Architecture::kX86_64);
    saved = {};
    const auto unwound = in_body(bad.codes);
    ASSERT_FALSE(unwound);
    EXPECT_EQ(unwound.error().code, bad.code) << unwound.error().text();
    if (bad.code != ErrorCode::kUnreadable) {
      EXPECT_GE(unwound.error().where, kXdata + 4);
      EXPECT_LT(unwound.error().where, kXdata + 12);
    }
    EXPECT_EQ(caller.architecture(), Architecture::kX86_64);
    EXPECT_EQ(saved.at(frame, 29), 0U);
  }
}

// As .NET: the bytes run out, that is the end; check_record complains.
TEST_F(WinArm64Exec, CodesWithoutEnd) {
  ASSERT_TRUE(in_body({0x81, 0x01, 0x01, 0x01}));
  EXPECT_EQ(caller.sp(), kSp + 64);
}

TEST_F(WinArm64Exec, ReservedCodesAreSteppedOver) {
  ASSERT_TRUE(in_body(
      {0xf8, 0xe4, 0xf9, 0xe4, 0xe4, 0xfa, 0xe4, 0xe4, 0xe4, 0xfb, 0xe4, 0xe4, 0xe4, 0xe4, 0xfd, 0xff, 0x81, 0xe4}));
  EXPECT_EQ(caller.sp(), kSp + 16);
}

// add x29, sp, #32 behind sub sp, sp, #64: sp is below the frame pointer.
TEST_F(WinArm64Exec, FramePointerAboveTheBottom) {
  frame.set(29, kSp + 32);
  ASSERT_TRUE(in_body({0xe2, 0x04, 0x04, 0x81, 0xe4}));
  EXPECT_EQ(caller.sp(), kSp + 64 + 16);
  EXPECT_EQ(caller.pc().value(), word(64 + 8));
}

TEST_F(WinArm64Exec, ScalableVectors) {
  context.vector_length = 32;
  // z8 at [sp + 1 vl], 2 vl allocated, then p registers.
  ASSERT_TRUE(in_body({0xe7, 0x00, 0xc1, 0xe7, 0x14, 0xc0, 0xdf, 0x02, 0x81, 0xe4}));
  EXPECT_EQ(caller.get(72), word(32));
  EXPECT_EQ(caller.sp(), kSp + 64 + 16);
  EXPECT_EQ(caller.pc().value(), word(64 + 8));
}

// Only what lies behind vectors is lost where their length is not known.
TEST_F(WinArm64Exec, ScalableVectorsOfUnknownLength) {
  // z8 at [sp], z9 at [sp + 1 vl], p4, then 16 bytes and x29, lr
  ASSERT_TRUE(in_body({0xe7, 0x00, 0xc0, 0xe7, 0x01, 0xc1, 0xe7, 0x14, 0xc2, 0x01, 0x81, 0xe4}));
  EXPECT_EQ(caller.get(72), word(0));
  EXPECT_FALSE(caller.has(73));
  EXPECT_EQ(caller.get(74), frame.get(74));
  EXPECT_EQ(caller.sp(), kSp + 16 + 16);
  EXPECT_EQ(caller.pc().value(), word(16 + 8));
  // An allocation of vectors, x19 above it; then a frame pointer leads on: mov x29, sp behind stp x29, lr.
  frame.set(29, kSp + 0x100);
  ASSERT_TRUE(in_body({0xdf, 0x02, 0xd0, 0x01, 0x02, 0xe1, 0x81, 0xe4}));
  EXPECT_FALSE(caller.has(19));
  EXPECT_EQ(caller.get(20), frame.get(20));
  EXPECT_EQ(caller.sp(), kSp + 0x110);
  EXPECT_EQ(caller.pc().value(), word(0x108));
  // Nothing leads on.
  const auto failed = in_body({0xdf, 0x02, 0x01, 0x81, 0xe4});
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, ErrorCode::kUnsupported);
  EXPECT_FALSE(in_body({0xdf, 0x02, 0xe9, 0xe4}));  // a machine frame at an sp that is not known
}

TEST_F(WinArm64Exec, MachineFrame) {
  ASSERT_TRUE(in_body({0xe9, 0xe4}));
  EXPECT_EQ(caller.sp(), word(0));
  EXPECT_EQ(caller.pc().value(), word(8));
  EXPECT_FALSE(caller.pc().is_return_address());
  EXPECT_EQ(caller.get(30), frame.get(30));  // interrupted: lr counts
}

TEST_F(WinArm64Exec, TrapFrame) {
  stack.words[kSp + 0x10] = 0;  // no vector state
  ASSERT_TRUE(in_body({0xe8, 0xe4}));
  EXPECT_EQ(caller.get(0), word(0xa0));
  EXPECT_EQ(caller.get(18), word(0xa0 + 18 * 8));
  EXPECT_EQ(caller.get(19), frame.get(19));
  EXPECT_EQ(caller.get(29), word(0x140));
  EXPECT_EQ(caller.get(30), word(0x138));
  EXPECT_EQ(caller.sp(), word(0x98));
  EXPECT_EQ(caller.pc().value(), word(0x148));
  EXPECT_EQ(caller.get(72), frame.get(72));
  stack.words[kSp + 0x10] = kSp + 0x200;
  ASSERT_TRUE(in_body({0xe8, 0xe4}));
  EXPECT_EQ(caller.get(72), word(0x200 + 0x10 + 8 * 16));
  stack.words[kSp + 0x208] = 0x1234'ffff'ffff;  // Fpcr of ones: it was not saved
  ASSERT_TRUE(in_body({0xe8, 0xe4}));
  EXPECT_EQ(caller.get(72), frame.get(72));
}

TEST_F(WinArm64Exec, Contexts) {
  stack.words[kSp] = 0x400007;
  ASSERT_TRUE(in_body({0xea, 0xe4}));
  EXPECT_EQ(caller.get(0), word(8));
  EXPECT_EQ(caller.get(30), word(0xf8));
  EXPECT_EQ(caller.sp(), word(0x100));
  EXPECT_EQ(caller.pc(), CodeAddress::instruction(word(0x108)));
  EXPECT_EQ(caller.get(79), word(0x110 + 15 * 16));
  stack.words[kSp] = 0x20400007;  // CONTEXT_UNWOUND_TO_CALL
  ASSERT_TRUE(in_body({0xea, 0xe4}));
  EXPECT_EQ(caller.pc(), CodeAddress::return_address(word(0x108)));
  stack.words[kSp + 0x30] = 0x10000b;
  ASSERT_TRUE(in_body({0xeb, 0xe4}));
  EXPECT_EQ(caller.get(27), word(0x90));
  EXPECT_EQ(caller.sp(), word(0x98));
  EXPECT_EQ(caller.pc(), CodeAddress::instruction(word(0xf8)));
  EXPECT_EQ(caller.get(30), word(0x120));
  EXPECT_FALSE(caller.has(28));  // ARM64EC code does not use it, and its context has no place for it
}

TEST_F(WinArm64Exec, ClearUnwoundToCall) {
  ASSERT_TRUE(in_body({0x81, 0xec, 0xe4}));
  EXPECT_EQ(caller.pc(), CodeAddress::instruction(word(8)));
}

// A parent's entry: as at the parent's start, where nothing has been done.
TEST_F(WinArm64Exec, Parent) {
  const TestImage made(xdata(0x40, {0x81, 0xe4}), {{kCode, kXdata}, {kCode + 0x100, kTable | 3}});
  const auto unwound = at(made, kCode + 0x180);
  ASSERT_TRUE(unwound);
  EXPECT_EQ(caller.sp(), kSp);
  EXPECT_EQ(caller.pc().value(), frame.get(30));
}

TEST_F(WinArm64Exec, OutsideOfTheImage) {
  const TestImage made(xdata(0x40, {0x81, 0xe4}), {{kCode, kXdata}, {kCode + 0x100, 0x7ffffff0}});
  frame.set_pc(CodeAddress::instruction(kBase - 4));
  EXPECT_EQ(virtual_unwind(made.functions(), context, stack, frame, caller).error().code, ErrorCode::kOutOfRange);
  const auto unwound = at(made, kCode + 0x100);
  ASSERT_FALSE(unwound);
  EXPECT_EQ(unwound.error().where, 0x7ffffff0U);
}

}  // namespace
}  // namespace windlass::winarm64
