// The model of a function's frame: rows at every point, and what it refuses.
#include "windlass/prologue.h"

#include <gtest/gtest.h>

#include <initializer_list>

#include "rows/frame_state.h"

namespace windlass {
namespace {

using namespace prologue;

constexpr RegisterNumber kRbx = 3, kRbp = 6, kFp = 29, kLr = 30;

// A row as text: "[0,1) cfa=r7+8 ra=c-8 r3=c-16".
std::string text(const FrameRow& row) {
  const auto sum = [](const auto& of) { return "r" + std::to_string(of.reg()) + "+" + std::to_string(of.offset()); };
  std::string out = "[" + std::to_string(row.begin) + "," + std::to_string(row.end) + ") ";
  out += row.cfa.is(CfaRule::kLoaded) ? "[" + sum(row.cfa) + "]" : sum(row.cfa);
  const auto rule = [&](const RegisterRule& where) {
    if (where.is(RegisterRule::kAtCfa)) return "c" + std::to_string(where.offset());
    if (where.is(RegisterRule::kAtRegister)) return "[" + sum(where) + "]";
    if (where.is(RegisterRule::kInRegister)) return "r" + std::to_string(where.reg());
    return std::string("?");
  };
  out += " ra=" + rule(row.return_address);
  for (const RegisterEntry entry : row.registers) out += " r" + std::to_string(entry.reg) + "=" + rule(entry.rule);
  if (row.signal_frame) out += " signal";
  if (row.return_signed) out += " signed";
  return out;
}

std::vector<std::string> rows(const Prologue& prologue) {
  const auto made = rows_of(prologue);
  if (!made) return {made.error().text()};
  std::vector<std::string> out;
  for (const FrameRow& row : *made) out.push_back(text(row));
  return out;
}
using Rows = std::vector<std::string>;

TEST(Prologue, PushAllocateAndBack) {
  Prologue f{.architecture = Architecture::kX86_64, .code_size = 20};
  f.ops = {{1, push(kRbx)}, {5, Allocate{32}}};
  f.epilogues = {mirrored(f, 10)};
  EXPECT_EQ(f.epilogues[0].end, 16U);
  EXPECT_EQ(rows(f), (Rows{"[0,1) r7+8 ra=c-8", "[1,5) r7+16 ra=c-8 r3=c-16", "[5,14) r7+48 ra=c-8 r3=c-16",
                           "[14,15) r7+16 ra=c-8 r3=c-16", "[15,16) r7+8 ra=c-8", "[16,20) r7+48 ra=c-8 r3=c-16"}));
}

// Both functions of docs/how-to/describe-your-jit.md, and the first one's table in
// docs/explanation/unwind-information.md.
TEST(Prologue, AsDocumented) {
  Prologue f{.architecture = Architecture::kX86_64, .code_size = 40};
  f.ops = {{1, push(3)}, {5, Allocate{32}}};
  f.epilogues = {mirrored(f, 34)};
  EXPECT_EQ(rows(f), (Rows{"[0,1) r7+8 ra=c-8", "[1,5) r7+16 ra=c-8 r3=c-16", "[5,38) r7+48 ra=c-8 r3=c-16",
                           "[38,39) r7+16 ra=c-8 r3=c-16", "[39,40) r7+8 ra=c-8"}));
  Prologue g{.architecture = Architecture::kX86_64, .code_size = 42};
  g.ops = {{1, push(6)}, {4, SetFramePointer{6}}, {8, Allocate{32}}};
  g.epilogues = {{40, 42, {{41, Allocate{32}}, {41, SetFramePointer{6}}, {41, push(6)}}}};
  EXPECT_EQ(rows(g), (Rows{"[0,1) r7+8 ra=c-8", "[1,4) r7+16 ra=c-8 r6=c-16", "[4,8) r6+16 ra=c-8 r6=c-16",
                           "[8,41) r6+16 ra=c-8 r6=c-16", "[41,42) r7+8 ra=c-8"}));
}

// push rbp; mov rbp, rsp; push rbx; sub rsp, 32, and back: rsp is where it was when it comes to the frame pointer.
TEST(Prologue, MirroredTakesAnEarlyFramePointerForDone) {
  Prologue f{.architecture = Architecture::kX86_64, .code_size = 20};
  f.ops = {{1, push(kRbp)}, {4, SetFramePointer{kRbp}}, {5, push(kRbx)}, {9, Allocate{32}}};
  f.epilogues = {mirrored(f, 10)};
  EXPECT_EQ(f.epilogues[0].end, 17U);
  EXPECT_EQ(rows(f), (Rows{"[0,1) r7+8 ra=c-8", "[1,4) r7+16 ra=c-8 r6=c-16", "[4,5) r6+16 ra=c-8 r6=c-16",
                           "[5,9) r6+16 ra=c-8 r3=c-24 r6=c-16", "[9,14) r6+16 ra=c-8 r3=c-24 r6=c-16",
                           "[14,15) r6+16 ra=c-8 r3=c-24 r6=c-16", "[15,16) r6+16 ra=c-8 r6=c-16",
                           "[16,17) r7+8 ra=c-8", "[17,20) r6+16 ra=c-8 r3=c-24 r6=c-16"}));
  f.ops.push_back({12, SetFramePointer{kRbp, 16}});  // set last, it says where rsp was
  f.ops.erase(f.ops.begin() + 1);
  EXPECT_EQ(mirrored(f, 10).end, 10 + 4 + 4 + 1 + 1 + 1U);
}

TEST(Prologue, FramePointerOutlivesAllocation) {
  Prologue f{.architecture = Architecture::kX86_64, .code_size = 30};
  f.ops = {{1, push(kRbp)}, {5, Allocate{64}}, {10, SetFramePointer{kRbp, 32}}, {14, Save{17 + 6, 48}}};
  const auto last = rows(f).back();
  EXPECT_EQ(last, "[14,30) r6+48 ra=c-8 r6=c-16 r23=c-32");
}

TEST(Prologue, Arm64PairAndSigning) {
  Prologue f{.architecture = Architecture::kAArch64, .code_size = 40};
  f.ops = {{4, SignReturnAddress{}}, {8, Save{kFp, 0, 32, kLr}}, {12, Save{19, 16}}, {16, SetFramePointer{kFp}}};
  f.epilogues = {mirrored(f, 20)};
  EXPECT_EQ(f.epilogues[0].end, 40U);
  EXPECT_EQ(rows(f),
            (Rows{"[0,4) r31+0 ra=r30", "[4,8) r31+0 ra=r30 signed", "[8,12) r31+32 ra=c-24 r29=c-32 signed",
                  "[12,16) r31+32 ra=c-24 r19=c-16 r29=c-32 signed", "[16,24) r29+32 ra=c-24 r19=c-16 r29=c-32 signed",
                  "[24,28) r29+32 ra=c-24 r19=c-16 r29=c-32 signed", "[28,32) r29+32 ra=c-24 r29=c-32 signed",
                  "[32,36) r31+0 ra=r30 signed", "[36,40) r31+0 ra=r30"}));
}

TEST(Prologue, PartSavesMoreAndIsLeft) {
  Prologue f{.architecture = Architecture::kX86_64, .code_size = 40};
  f.ops = {{4, Allocate{40}}};
  f.parts = {{10, 20, {{15, Save{kRbx, 32}}}, {{16, 20, {{20, Save{kRbx, 32}}}}}}};
  EXPECT_EQ(rows(f),
            (Rows{"[0,4) r7+8 ra=c-8", "[4,15) r7+48 ra=c-8", "[15,20) r7+48 ra=c-8 r3=c-16", "[20,40) r7+48 ra=c-8"}));
}

TEST(FrameState, FramesAreTheSameByDepthSavesAndSigning) {
  const auto after = [](std::initializer_list<Op> ops) {
    FrameState state(Architecture::kAArch64);
    for (const Op& op : ops) {
      EXPECT_TRUE(state.apply(op));
    }
    return state;
  };
  const FrameState none = after({}), deep = after({{4, Allocate{16}}}), deeper = after({{4, Allocate{32}}});
  const FrameState saved = after({{4, Allocate{16}}, {8, Save{19, 0}}}), signs = after({{4, SignReturnAddress{}}});
  EXPECT_TRUE(deep.same_frame(after({{8, Allocate{16}}})));
  EXPECT_FALSE(deep.same_frame(none));
  EXPECT_FALSE(deep.same_frame(deeper));
  EXPECT_FALSE(deep.same_frame(saved));
  EXPECT_FALSE(none.same_frame(signs));
}

TEST(Prologue, MachineFrame) {
  Prologue f{.architecture = Architecture::kX86_64, .code_size = 8};
  f.ops = {{0, MachineFrame{true}}, {1, push(kRbx)}};
  EXPECT_EQ(rows(f), (Rows{"[0,1) [r7+32] ra=[r7+8] signal", "[1,8) [r7+40] ra=[r7+16] r3=[r7+0] signal"}));
  f.ops.push_back({4, SetFramePointer{kRbp}});
  EXPECT_EQ(rows(f).back(), "[4,8) [r6+40] ra=[r6+16] r3=[r6+0] signal");
}

// Writers can write it, but no row has room for the offset.
TEST(Prologue, FramesOf2GiBHaveNoRow) {
  Prologue f{.architecture = Architecture::kX86_64, .code_size = 8};
  f.ops = {{7, Allocate{0x7fff'ffe8}}};
  EXPECT_EQ(rows(f).back(), "[7,8) r7+2147483632 ra=c-8");
  f.ops = {{7, Allocate{0x8000'0000}}};
  EXPECT_TRUE(check(f));
  const auto made = rows_of(f);
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, ErrorCode::kLimit);
  EXPECT_EQ(made.error().where, 7u);
}

TEST(Prologue, RefusesWhatCannotBe) {
  Prologue f{.architecture = Architecture::kX86_64, .code_size = 20};
  const auto why = [&] {
    const auto ok = check(f);
    return ok ? std::string() : std::string(ok.error().what);
  };
  f.ops = {{5, Allocate{32}}, {1, push(kRbx)}};
  EXPECT_EQ(why(), "op is out of order, or outside of the code");
  f.ops = {{1, Save{kRbx, 64}}};
  EXPECT_EQ(why(), "register is saved outside of the frame");
  f.ops = {{1, push(kRbx)}, {2, push(kRbx)}};
  EXPECT_EQ(why(), "register is saved twice");
  f.ops = {{5, Allocate{32}}, {9, Save{kRbx, 32}}};
  EXPECT_EQ(why(), "register is saved over the return address");
  f.ops = {{5, Allocate{32}}, {9, Save{17 + 6, 24}}};
  EXPECT_EQ(why(), "register is saved over the return address");
  f.ops = {{5, Allocate{32}}, {9, Save{kRbx, 40}}};  // the home area
  EXPECT_EQ(why(), "");
  f.ops = {{0, MachineFrame{true}}, {5, Allocate{32}}, {9, Save{kRbx, 72}}};
  EXPECT_EQ(why(), "register is saved over the return address");
  f.ops = {{5, Allocate{32}}, {9, Save{kRbx, 8}}, {13, Save{kRbp, 8}}};
  EXPECT_EQ(why(), "register is saved where another one is");
  f.ops = {{1, push(kRbx)}, {5, Allocate{32}}, {9, Save{17 + 6, 24}}};
  EXPECT_EQ(why(), "register is saved where another one is");
  f.ops = {{5, Allocate{32}}, {8, SetFramePointer{kRbp}}, {12, Save{kRbp, 16}}};
  EXPECT_EQ(why(), "frame pointer is saved after it was set");
  f.ops = {{1, push(kRbx)}, {5, Allocate{32}}};
  f.epilogues = {{10, 15, {{14, Allocate{32}}}}};
  EXPECT_EQ(why(), "epilogue does not take back all that was done");
  f.epilogues = {{10, 15, {{14, Allocate{24}}, {14, push(kRbx)}}}};
  EXPECT_EQ(
      why(),
      "epilogue restores a register from where it was not saved: a Save counts from sp as it is when the instruction "
      "runs");
  f.epilogues = {{10, 15, {{12, Allocate{64}}}}};
  EXPECT_EQ(why(), "epilogue frees more than there is");
  f.epilogues = {mirrored(f, 16)};
  EXPECT_EQ(why(), "epilogue is empty, out of order, or outside of the code");
  f.epilogues = {};
  EXPECT_EQ(why(), "");
  f.ops = {{1, push(kRbx)}, {5, Allocate{0}}};
  EXPECT_EQ(why(), "allocation of nothing, or of more than any stack");
}

}  // namespace
}  // namespace windlass
