// Code without a row: the frame-pointer rule on hand-assembled functions, held at every instruction.
#include <gtest/gtest.h>

#include <iterator>
#include <random>
#include <span>

#include "fake_target.h"
#include "flow/stack_effect.h"

namespace windlass {
namespace {

using testing::FakeTarget;
using Bytes = std::vector<std::uint8_t>;
constexpr std::uint64_t kStack = FakeTarget::kStack;
constexpr std::uint64_t kCode = FakeTarget::kCode;
constexpr std::uint64_t kCaller = kCode + 0x800;   // behind a call
constexpr std::uint64_t kCaller2 = kCode + 0x900;  // behind another
constexpr std::uint64_t kCallerFp = kStack + 0x200;

// One instruction: its bytes, and where the frame is before it runs.
struct At {
  Bytes bytes;
  enum { kSp, kPushed, kFramed, kBody, kUndecided } frame;
};

class Code : public ::testing::Test {
 protected:
  // Generated code (anonymous memory) that holds `function` at kCode + 0x100 and two call sites.
  void place(const Bytes& function, wl_mapping_kind kind = WL_MAPPING_GENERATED) {
    Bytes page(0x1000, 0x90);
    std::copy(function.begin(), function.end(), page.begin() + 0x100);
    for (const std::uint64_t site : {kCaller, kCaller2}) page[site - kCode - 5] = 0xe8;
    target.write_code(kCode, page);
    target.modules[1].state = WL_MODULE_NO_TABLE;
    target.set_mappings({{kCode, kCode + 0x1000, 0, 1, kind}});
  }

  // Holds the function before every instruction, with the stack as it would be there.
  void hold_at_every(const std::vector<At>& function, wl_mapping_kind kind = WL_MAPPING_GENERATED) {
    Bytes all;
    for (const At& at : function) all.insert(all.end(), at.bytes.begin(), at.bytes.end());
    place(all, kind);
    // [kCallerFp]: the caller's own frame, so that a blind step would find a plausible grandcaller.
    std::uint64_t pc = kCode + 0x100;
    for (std::size_t i = 0; i < function.size(); pc += function[i++].bytes.size()) {
      std::vector<std::uint64_t> stack(0x60, 0);
      stack[0x200 / 8] = kStack + 0x280;
      stack[0x208 / 8] = kCaller2;
      stack[0x280 / 8] = 0;
      const std::uint64_t ra_at = kStack + 0x100;
      stack[0x100 / 8] = kCaller;
      stack[0xf8 / 8] = kCallerFp;
      std::uint64_t sp = ra_at, fp = kCallerFp;
      if (function[i].frame == At::kPushed) sp = ra_at - 8;
      if (function[i].frame == At::kFramed) sp = fp = ra_at - 8;
      if (function[i].frame == At::kBody) sp = ra_at - 0x48, fp = ra_at - 8;
      target.write(kStack, stack);
      auto cursor = FakeTarget::cursor(pc, sp, fp);
      const int status = target.step(cursor);
      if (function[i].frame == At::kUndecided) {
        EXPECT_EQ(status, WL_END_BAD_FRAME_POINTER) << "instruction " << i;
        continue;
      }
      ASSERT_EQ(status, WL_CONTINUE) << "instruction " << i;
      EXPECT_EQ(cursor.regs[WL_X64_RIP], kCaller) << "instruction " << i << ": a caller was skipped";
      EXPECT_EQ(cursor.regs[WL_X64_RSP], ra_at + 8) << "instruction " << i;
      EXPECT_EQ(cursor.regs[WL_X64_RBP], kCallerFp) << "instruction " << i;
    }
  }
  FakeTarget target;
};

TEST_F(Code, FunctionWithLeave) {
  for (const wl_mapping_kind kind : {WL_MAPPING_GENERATED, WL_MAPPING_FILE}) {
    hold_at_every({{{0xf3, 0x0f, 0x1e, 0xfa}, At::kSp},
                   {{0x55}, At::kSp},
                   {{0x48, 0x89, 0xe5}, At::kPushed},
                   {{0x48, 0x83, 0xec, 0x40}, At::kFramed},  // rsp == rbp
                   {{0x89, 0xf8}, At::kBody},
                   {{0x89, 0xf8}, At::kBody},
                   {{0xc9}, At::kBody},
                   {{0xc3}, At::kSp}},
                  kind);
  }
}

// HotSpot, JDK 17: stack bang, and the safepoint poll between pop rbp and ret.
TEST_F(Code, HotSpotMethod) {
  hold_at_every({{{0x89, 0x84, 0x24, 0x00, 0xc0, 0xfe, 0xff}, At::kSp},
                 {{0x55}, At::kSp},
                 {{0x48, 0x8b, 0xec}, At::kPushed},
                 {{0x48, 0x83, 0xec, 0x40}, At::kFramed},
                 {{0x44, 0x8b, 0x56, 0x08}, At::kBody},
                 {{0x48, 0x83, 0xc4, 0x40}, At::kBody},
                 {{0x5d}, At::kPushed},
                 {{0x49, 0x3b, 0xa7, 0x40, 0x03, 0x00, 0x00}, At::kSp},
                 {{0x0f, 0x87, 0xdc, 0x00, 0x00, 0x00}, At::kSp},
                 {{0xc3}, At::kSp}});
}

// V8: the deoptimisation check in front, arguments dropped at the end through r10.
TEST_F(Code, V8Function) {
  hold_at_every({{{0x48, 0x8b, 0x59, 0xf8}, At::kSp},
                 {{0xf6, 0x43, 0x35, 0x01}, At::kSp},
                 {{0x0f, 0x85, 0xf2, 0x31, 0xe4, 0x1f}, At::kSp},
                 {{0x55}, At::kSp},
                 {{0x48, 0x89, 0xe5}, At::kPushed},
                 {{0x56}, At::kFramed},
                 {{0x49, 0x3b, 0x65, 0xa0}, At::kBody},
                 {{0x48, 0x8b, 0xe5}, At::kBody},
                 {{0x5d}, At::kPushed},
                 {{0x41, 0x5a}, At::kSp},
                 {{0x4a, 0x8d, 0x24, 0xc4}, At::kUndecided},  // the return address is in r10
                 {{0x41, 0x52}, At::kUndecided},
                 {{0xc3}, At::kSp}});
}

// A function without a frame says nothing; its return address on top of the stack says that it has none.
TEST_F(Code, FramelessFunctionIsNotSkippedOver) {
  const std::vector<At> leaf = {{{0x8b, 0x07}, At::kUndecided}, {{0x01, 0xf0}, At::kUndecided}, {{0xc3}, At::kSp}};
  hold_at_every(leaf, WL_MAPPING_GENERATED);
  hold_at_every(leaf, WL_MAPPING_FILE);
}

// Assembly in a file may have pushed registers first.
TEST_F(Code, FramelessFunctionWithPushesInAFile) {
  place({0x90, 0x90, 0x90, 0x90}, WL_MAPPING_FILE);
  std::vector<std::uint64_t> stack(0x60, 0);
  stack[0x200 / 8] = kStack + 0x280;
  stack[0x208 / 8] = kCaller2;
  stack[0x100 / 8] = kCaller;
  target.write(kStack, stack);
  for (unsigned pushes = 0; pushes < 8; ++pushes) {
    auto cursor = FakeTarget::cursor(kCode + 0x101, kStack + 0x100 - pushes * 8, kCallerFp);
    EXPECT_EQ(target.step(cursor), WL_END_BAD_FRAME_POINTER) << pushes;
  }
}

TEST_F(Code, AddStackPointerThenReturn) {
  place({0x48, 0x83, 0xc4, 0x08, 0xc3}, WL_MAPPING_FILE);  // the end of _init, as a caller
  std::vector<std::uint64_t> stack(0x60, 0);
  stack[0x100 / 8] = kCaller;
  stack[0x200 / 8] = kStack + 0x280;
  stack[0x208 / 8] = kCaller2;
  target.write(kStack, stack);
  auto cursor = FakeTarget::cursor(kCode + 0x100, kStack + 0xf8, kCallerFp);
  cursor.exact = 0;
  ASSERT_EQ(target.step(cursor), WL_CONTINUE);
  EXPECT_EQ(cursor.regs[WL_X64_RIP], kCaller);
  EXPECT_EQ(cursor.regs[WL_X64_RBP], kCallerFp);
}

TEST_F(Code, Guards) {
  place({0x89, 0xf8, 0x89, 0xf8});
  std::vector<std::uint64_t> stack(0x60, 0);
  stack[0x108 / 8] = 0x1234;  // no code there
  stack[0x118 / 8] = 0;
  target.write(kStack, stack);
  auto step_with = [&](std::uint64_t fp) {
    auto cursor = FakeTarget::cursor(kCode + 0x102, kStack + 0x40, fp);
    return target.step(cursor);
  };
  EXPECT_EQ(step_with(kStack + 0x100), WL_END_BAD_FRAME_POINTER);    // [rbp + 8] is no return address
  EXPECT_EQ(step_with(kStack + 0x38), WL_END_BAD_FRAME_POINTER);     // below the stack pointer
  EXPECT_EQ(step_with(kStack + 0x101), WL_END_BAD_FRAME_POINTER);    // not aligned
  EXPECT_EQ(step_with(kStack + 0x10000), WL_END_BAD_FRAME_POINTER);  // not readable
  EXPECT_EQ(step_with(kStack + 0x110), WL_END_GUESSED);              // a return address of 0
  EXPECT_EQ(step_with(0), WL_END_GUESSED);
}

// GCC's nested functions make a program's stack executable, on which addresses of its own lie.
TEST_F(Code, AnExecutableStackHoldsNoReturnAddress) {
  place({0x89, 0xf8, 0x89, 0xf8});
  auto mappings = std::vector<wl_mapping>{{kCode, kCode + 0x1000, 0, 1, WL_MAPPING_GENERATED},
                                          {kStack, kStack + 0x1000, 0, 1, WL_MAPPING_GENERATED}};
  target.set_mappings(mappings);
  std::vector<std::uint64_t> stack(0x60, 0);
  stack[0x100 / 8] = kStack + 0x200;
  stack[0x108 / 8] = kStack + 0x180;
  target.write(kStack, stack);
  auto cursor = FakeTarget::cursor(kCode + 0x102, kStack + 0x40, kStack + 0x100);
  EXPECT_EQ(target.step(cursor), WL_END_BAD_FRAME_POINTER);
  stack[0x108 / 8] = kCaller;
  target.write(kStack, stack);
  EXPECT_EQ(target.step(cursor), WL_CONTINUE);
}

// In a file a return address must stand behind a call.
TEST_F(Code, ReturnAddressBehindACall) {
  place({0x89, 0xf8, 0x89, 0xf8}, WL_MAPPING_FILE);
  std::vector<std::uint64_t> stack(0x60, 0);
  stack[0x100 / 8] = kCallerFp;
  stack[0x108 / 8] = kCaller + 1;
  target.write(kStack, stack);
  auto cursor = FakeTarget::cursor(kCode + 0x102, kStack + 0x40, kStack + 0x100);
  EXPECT_EQ(target.step(cursor), WL_END_BAD_FRAME_POINTER);
  for (const Bytes& call : {Bytes{0xff, 0xd0}, Bytes{0x41, 0xff, 0xd2}, Bytes{0xff, 0x50, 0x18},
                            Bytes{0x41, 0xff, 0x95, 0x10, 0x27, 0x00, 0x00}, Bytes{0xff, 0x14, 0xc5, 1, 2, 3, 4}}) {
    Bytes code(8, 0x90);
    std::copy(call.begin(), call.end(), code.end() - static_cast<long>(call.size()));
    EXPECT_EQ(wl_ends_with_call(code.data()), 1) << call.size();
    code.back() = 0x90;
    if (call.size() == 2) {
      EXPECT_EQ(wl_ends_with_call(code.data()), 0);
    }
  }
}

// The decoder of the library, which has tables of its own, says what a call is. All forms of an indirect call, and
// bytes that begin like one.
TEST(CodeBytes, ACallEndsWhereTheDecoderHasOneEnd) {
  std::mt19937 chance(11);
  unsigned calls = 0;
  for (unsigned modrm = 0; modrm < 256; ++modrm) {
    for (unsigned round = 0; round < 400; ++round) {
      std::uint8_t code[8];
      for (std::uint8_t& byte : code) byte = static_cast<std::uint8_t>(chance() % 3 == 0 ? 0xd0 : chance());
      const std::size_t at = round % 8;
      code[at] = 0xff;
      if (at < 7) code[at + 1] = static_cast<std::uint8_t>(modrm);
      bool is_call = false;
      for (std::size_t begin = 0; begin < 7; ++begin) {
        if (code[begin] != 0xff || (code[begin + 1] & 0x38) != 0x10) continue;
        std::uint8_t padded[16] = {};  // so that an instruction that is longer is one, too
        std::copy(code + begin, code + 8, padded);
        const auto effect = flow::stack_effect(ByteView(std::span(padded)), 0x1000);
        is_call |= effect && effect->kind == flow::StackEffect::Kind::kCall && effect->length == 8 - begin;
      }
      calls += is_call;
      ASSERT_EQ(wl_ends_with_indirect_call(code) != 0, is_call) << "modrm " << modrm << " at " << at;
      ASSERT_EQ(wl_ends_with_call(code) != 0, is_call || code[3] == 0xe8) << "modrm " << modrm << " at " << at;
    }
  }
  EXPECT_GT(calls, 1000U);
}

// Bytes of those that ways out are made of: where the return address is said to be on top, the decoder must find
// nothing that moves the stack pointer in front of a return.
TEST(CodeBytes, AReturnIsOneForTheDecoder) {
  static constexpr std::uint8_t kBytes[] = {0xc3, 0xc2, 0xf3, 0x0f, 0x87, 0x49, 0x3b, 0xa7, 0xc5, 0xf8, 0x77, 0x5d, 0};
  using Kind = flow::StackEffect::Kind;
  const auto returns = [](std::span<const std::uint8_t> code) {
    flow::StraightCode instructions(ByteView(code), 0x1000, code.size());
    for (unsigned i = 0; i < 3; ++i) {
      const auto effect = instructions.next();
      if (!effect) return false;
      if (effect->kind == Kind::kReturn) return true;
      if (effect->kind != Kind::kNone && effect->kind != Kind::kBranch) return false;
    }
    return false;
  };
  std::mt19937 chance(12);
  unsigned found = 0;
  for (unsigned round = 0; round < 1'000'000; ++round) {
    std::uint8_t code[24];
    for (std::uint8_t& byte : code) byte = kBytes[chance() % std::size(kBytes)];
    if (!wl_code_returns(code)) continue;
    ++found;
    ASSERT_TRUE(returns(code)) << "round " << round << ", first byte " << unsigned{code[0]};
  }
  EXPECT_GT(found, 1000U);
  for (Bytes code :
       {Bytes{0xc3}, Bytes{0xc2, 8, 0}, Bytes{0xf3, 0xc3}, Bytes{0x0f, 0x87, 1, 2, 3, 4, 0xc3},
        Bytes{0x49, 0x3b, 0xa7, 1, 2, 3, 4, 0x0f, 0x87, 5, 6, 7, 8, 0xc3}, Bytes{0xc5, 0xf8, 0x77, 0xc3}}) {
    const std::size_t size = code.size();
    code.resize(16, 0x90);
    EXPECT_TRUE(wl_code_returns(code.data())) << size;
    ASSERT_TRUE(returns(code)) << size;
    if (size > 1 && code[0] != 0xc2) {
      code[size - 1] = 0x90;
      EXPECT_FALSE(wl_code_returns(code.data())) << size << " without its return";
    }
  }
}

// What the kernel side says of a frame: a stack with a guess in it is not whole.
TEST_F(Code, Certainty) {
  const auto certainty_of = [&](const Bytes& function, const Bytes& call, bool exact,
                                wl_mapping_kind kind = WL_MAPPING_GENERATED) {
    place(function, kind);
    Bytes& page = target.memory[kCode];
    std::copy(call.begin(), call.end(), page.begin() + 0x800 - static_cast<long>(call.size()));
    std::vector<std::uint64_t> stack(0x60, 0);
    stack[0x100 / 8] = kCallerFp;
    stack[0x108 / 8] = kCaller;
    target.write(kStack, stack);
    auto cursor = FakeTarget::cursor(kCode + 0x100, kStack + 0x80, kStack + 0x100);
    cursor.exact = exact;
    target.scratch->unwind.certainty = WL_DESCRIBED;
    EXPECT_EQ(target.step(cursor), WL_CONTINUE);
    EXPECT_EQ(cursor.regs[WL_X64_RIP], kCaller);
    return target.scratch->unwind.certainty;
  };
  const Bytes leaves{0xc9, 0xc3}, uses{0x90, 0x48, 0x89, 0x45, 0xf0}, silent{0x90, 0x90, 0x90, 0x90};
  const Bytes sets{0x55, 0x90, 0x48, 0x89, 0xe5, 0x48, 0x89, 0x45, 0xf0}, behind{0x90, 0xc3, 0x48, 0x89, 0x45, 0xf0};
  const Bytes indirect{0x41, 0xff, 0xd1}, here{0xe8, 0x00, 0xf9, 0xff, 0xff}, beyond{0xe8, 0x00, 0x01, 0x00, 0x00};
  EXPECT_EQ(certainty_of(leaves, indirect, true), WL_PROVED);
  for (const bool exact : {false, true}) {
    EXPECT_EQ(certainty_of(uses, indirect, exact), WL_CHECKED);
    EXPECT_EQ(certainty_of(uses, here, exact), WL_CHECKED);
    EXPECT_EQ(certainty_of(uses, beyond, exact), WL_GUESSED) << "a call of what stands behind the pc";
    EXPECT_EQ(certainty_of(silent, indirect, exact), WL_GUESSED);
    EXPECT_EQ(certainty_of(sets, indirect, exact), WL_GUESSED) << "the frame is not there yet";
    EXPECT_EQ(certainty_of(behind, indirect, exact), WL_GUESSED) << "another function's";
  }
  // Far behind the call, as in V8's way from C++ into JavaScript, wherever it stands in the pieces that are read.
  for (std::size_t before = 20; before < 120; ++before) {
    SCOPED_TRACE(before);
    Bytes far(before, 0x90);
    far.insert(far.end(), {0x5d, 0xc3});
    EXPECT_EQ(certainty_of(far, indirect, false), before < 105 ? WL_CHECKED : WL_GUESSED);
    const unsigned in_file = certainty_of(far, indirect, false, WL_MAPPING_FILE);
    EXPECT_EQ(in_file, before == 20 ? WL_CHECKED : WL_GUESSED) << "rbp may be saved only";
    far[before - 3] = 0xc3;
    EXPECT_EQ(certainty_of(far, indirect, false), WL_GUESSED) << "another function's";
  }
}

TEST_F(Code, AStackWithAGuessIsNotWhole) {
  place({0x90, 0x90, 0x90, 0x90});
  std::vector<std::uint64_t> stack(0x60, 0);
  stack[0x100 / 8] = kCallerFp;
  stack[0x108 / 8] = kCaller;
  target.write(kStack, stack);
  wl_unwind& unwind = target.scratch->unwind;
  for (const auto& [certainty, end] : {std::pair{WL_CHECKED, WL_END_COMPLETE}, {WL_GUESSED, WL_END_GUESSED}}) {
    // The caller's rule says that it is the outermost frame: the memo knows it.
    auto ref = target.arena->allocate(sizeof(wl_rule));
    wl_rule outermost{};
    outermost.cfa_kind = WL_CFA_REG;
    outermost.cfa_reg = WL_SP;
    outermost.ra_kind = WL_REG_UNDEFINED;
    std::memcpy(target.arena->at(*ref), &outermost, sizeof outermost);
    auto& entry = target.memo->entries[wl_memo_slot(unwind.space, kCaller - 1)];
    entry.tag = wl_memo_tag(unwind.space, kCaller - 1);
    entry.value = wl_memo_value(unwind.space, kCaller - 1, &outermost, *ref, WL_NO_XREG, 0);
    unwind.certainty = certainty;
    auto cursor = FakeTarget::cursor(kCaller, kStack + 0x110, kCallerFp);
    cursor.exact = 0;
    EXPECT_EQ(target.walk(cursor).size(), 1u);
    EXPECT_EQ(unwind.end, static_cast<unsigned>(end));
  }
}

// The dynamic linker's first instructions, which nothing describes, call what initialises libraries.
TEST_F(Code, NobodyHasCalledWhatRunsWhereTheKernelLeftTheStackPointer) {
  place({0x90, 0x90, 0x90, 0x90});
  target.write(kStack, std::vector<std::uint64_t>(0x60, 0));
  const auto end_at = [&](std::uint64_t sp) {
    auto cursor = FakeTarget::cursor(kCode + 0x102, sp, 0);
    cursor.exact = 0;
    (void)target.walk(cursor);
    return target.scratch->unwind.end;
  };
  target.scratch->stack_top = kStack + 0x100;
  EXPECT_EQ(end_at(kStack + 0x100), WL_END_COMPLETE);
  EXPECT_EQ(end_at(kStack + 0xf0), WL_END_GUESSED);
}

TEST_F(Code, RestorerWithoutCfi) {
  place({0x48, 0xc7, 0xc0, 0x0f, 0x00, 0x00, 0x00, 0x0f, 0x05}, WL_MAPPING_FILE);
  std::vector<std::uint64_t> frame(5 + 17, 7);
  frame[5 + 15] = kStack + 0x800;
  frame[5 + 16] = kCode + 0x44;
  target.write(kStack, frame);
  auto cursor = FakeTarget::cursor(kCode + 0x100, kStack, 0x99);
  cursor.exact = 0;
  ASSERT_EQ(target.step(cursor), WL_CONTINUE);
  EXPECT_EQ(cursor.regs[WL_X64_RIP], kCode + 0x44);
  EXPECT_EQ(cursor.exact, 1);
}

TEST_F(Code, PendingModuleIsNotGuessedAt) {
  place({0xc3}, WL_MAPPING_FILE);
  target.modules[1].state = WL_MODULE_PENDING;
  auto cursor = FakeTarget::cursor(kCode + 0x100, kStack, 0);
  EXPECT_EQ(target.step(cursor), WL_END_PENDING);
  cursor.regs[WL_X64_RIP] = 0x10;
  EXPECT_EQ(target.step(cursor), WL_END_NO_MAPPING);
}

}  // namespace
}  // namespace windlass
