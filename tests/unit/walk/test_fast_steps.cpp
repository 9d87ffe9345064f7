// Single steps of the fast walk, on a stack and by rules that a test makes up. Tests which of its ways answers, and
// which cases it leaves to the walker of all registers. That walker would often get the stack right behind a wrong
// answer.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <vector>

#include "walk/own/fast_walk.h"
#include "walk/own/modules.h"
#include "windlass/backtrace.h"
#include "windlass/jit/code_range.h"

namespace windlass::walk {
namespace {

using Outcome = FastWalk::Outcome;
constexpr std::uint8_t kSpRegister = kOwnArchitecture == Architecture::kX86_64 ? 7 : 31;
constexpr std::uint8_t kFpRegister = kOwnArchitecture == Architecture::kX86_64 ? 6 : 29;

// Pcs that are nowhere: the walker of all registers cannot help.
constexpr std::uint64_t key(unsigned number) { return 0x1111'0000 + number * 16; }

class FastSteps : public testing::Test {
 protected:
  static constexpr unsigned kSp = 8;  // the first frame's stack begins at this word
  FastSteps() { std::ranges::fill(words, 0x7777); }

  static std::uint64_t at(unsigned word) { return reinterpret_cast<std::uint64_t>(&words[word]); }
  // A rule that only the palette has room for: with the return address on top of the stack, and the CFA behind it.
  static table::TraceRule full() {
    table::TraceRule rule{};
    rule.cfa_kind = WL_CFA_REG;
    rule.cfa_reg = kSpRegister;
    rule.cfa_offset = 8;
    rule.ra_kind = WL_REG_CFA;
    rule.ra_offset = -8;
    rule.fp_kind = WL_REG_SAME;
    return rule;
  }
  // In words: the CFA from sp or the frame pointer; the caller's frame pointer (0: the same) below it. `exact`: of an
  // instruction.
  static PackedStep simple(bool from_fp, std::int32_t cfa, std::int16_t fp_below = 0, bool exact = false) {
    table::TraceRule rule = full();
    rule.cfa_reg = from_fp ? kFpRegister : kSpRegister;
    rule.cfa_offset = 8 * cfa;
    rule.fp_kind = fp_below != 0 ? WL_REG_CFA : WL_REG_SAME;
    rule.fp_offset = static_cast<std::int16_t>(-8 * fp_below);
    PackedStep step;
    EXPECT_TRUE(PackedStep::pack(rule, exact, OwnModule::kNeverUnloaded, step));
    return step;
  }
  static void keep(std::uint64_t pc, const table::TraceRule& rule) {
    std::uint64_t index = 0;
    ASSERT_TRUE(RuleCache::intern(rule, index));
    RuleCache::insert(pc, PackedStep::other(PackedStep::kPalette, OwnModule::kNeverUnloaded, index));
  }
  // The caller of a frame whose sp is that of kSp; Outcome::kMore: the walk goes on there.
  Outcome step(std::uint64_t pc, std::uint64_t fp = 0x5555) {
    FastWalk walk({pc, at(kSp), fp}, false);
    if (walk.step()) {
      caller = walk.state();
      return Outcome::kMore;
    }
    return walk.outcome();
  }

  alignas(4096) static std::uint64_t words[512];
  FastWalkState caller;
};
std::uint64_t FastSteps::words[512];

TEST_F(FastSteps, BySimpleRules) {
  RuleCache::insert(key(1), simple(false, 3, 2));
  words[kSp + 2] = key(2);
  words[kSp + 1] = 0x1234;
  ASSERT_EQ(step(key(1)), Outcome::kMore);
  EXPECT_EQ(caller, (FastWalkState{key(2), at(kSp + 3), 0x1234}));
  RuleCache::insert(key(3), simple(true, 2));
  ASSERT_EQ(step(key(3), at(kSp + 1)), Outcome::kMore);
  EXPECT_EQ(caller, (FastWalkState{key(2), at(kSp + 3), at(kSp + 1)}));
}

// A frame pointer below sp, or just above it, with the return address where something else may be by now.
TEST_F(FastSteps, ReturnAddressesBelowTheStackAreNone) {
  std::fill_n(words, kSp + 1, key(2));
  RuleCache::insert(key(4), simple(true, 1));
  EXPECT_EQ(step(key(4), at(kSp - 1)), Outcome::kNeedsAllRegisters);
  EXPECT_EQ(step(key(4), at(kSp - 4)), Outcome::kNeedsAllRegisters);
}

// Behind `pop rbp` of an epilogue, which an instruction alone may be: the register has it already.
TEST_F(FastSteps, AFramePointerThatWasPoppedIsTheRegisters) {
  words[kSp] = key(2);
  words[kSp - 1] = 0x1234;
  RuleCache::insert(key(5) | kInstructionBit, simple(false, 1, 2, true));
  ASSERT_EQ(step(key(5) | kInstructionBit, 0x4321), Outcome::kMore);
  EXPECT_EQ(caller, (FastWalkState{key(2), at(kSp + 1), 0x4321}));
}

TEST_F(FastSteps, ByRulesInFull) {
  words[kSp] = key(2);
  table::TraceRule rule = full();
  rule.fp_kind = WL_REG_CFA;
  rule.fp_offset = 8;
  words[kSp + 2] = 0x1234;
  keep(key(6), rule);
  ASSERT_EQ(step(key(6)), Outcome::kMore);
  EXPECT_EQ(caller, (FastWalkState{key(2), at(kSp + 1), 0x1234}));

  rule = full();
  rule.ra_kind = WL_REG_UNDEFINED;
  keep(key(7), rule);
  EXPECT_EQ(step(key(7)), Outcome::kComplete);

  rule = full();
  rule.fp_kind = WL_REG_UNDEFINED;
  keep(key(8), rule);
  EXPECT_EQ(step(key(8)), Outcome::kNeedsAllRegisters) << "the next frame may count from it";

  rule = full();
  rule.fp_kind = WL_REG_CFA;
  rule.fp_offset = -24;
  keep(key(9), rule);
  EXPECT_EQ(step(key(9)), Outcome::kNeedsAllRegisters) << "what was popped may be something else by now";
  // Also where the walk has come by.
  RuleCache::insert(key(13), simple(false, 4));
  words[kSp + 3] = key(9);
  words[kSp + 4] = key(2);
  FastWalk walk({key(13), at(kSp), 0x5555}, false);
  EXPECT_TRUE(walk.step());
  EXPECT_FALSE(walk.step());
  EXPECT_EQ(walk.outcome(), Outcome::kNeedsAllRegisters);
}

// A signal frame leads to an instruction, and may lead down, to another stack; not for ever.
TEST_F(FastSteps, SignalFrames) {
  table::TraceRule rule = full();
  rule.flags = WL_RULE_SIGNAL;
  keep(key(10), rule);
  words[kSp] = key(2);
  ASSERT_EQ(step(key(10)), Outcome::kMore);
  EXPECT_EQ(caller.key, key(2) | kInstructionBit);

  // Its CFA is what the stack says: down to where the walk was.
  rule.cfa_kind = WL_CFA_MEM;
  rule.ra_kind = WL_REG_BASE;
  rule.cfa_offset = 8;
  rule.ra_offset = 0;
  keep(key(11), rule);
  words[kSp] = key(11);
  words[kSp + 1] = key(12);
  words[kSp + 2] = at(kSp);
  RuleCache::insert(key(12) | kInstructionBit, simple(false, 1));
  FastWalk walk({key(12) | kInstructionBit, at(kSp), 0}, false);
  unsigned steps = 0;
  while (steps < 1000 && walk.step()) ++steps;
  EXPECT_GT(steps, 4U);
  EXPECT_LT(steps, 100U);
  EXPECT_EQ(walk.outcome(), Outcome::kNeedsAllRegisters);
}

// The array that a walk fills lies on the stack that it walks: what it has written there is no return address.
TEST_F(FastSteps, NoStepReadsWhatTheWalkWrites) {
  constexpr unsigned kFrames = 6, kFrame = 4, kFirstWritten = 3 * kFrame;
  for (unsigned i = 0; i <= kFrames; ++i) {
    RuleCache::insert(key(20 + i), simple(false, kFrame));
    words[kSp + (i + 1) * kFrame - 1] = key(20 + i + 1);
  }
  std::uint64_t* const pcs = &words[kSp + kFirstWritten];  // over the fourth frame's return address, too
  FastWalk walk({key(20), at(kSp), 0}, false);
  EXPECT_EQ(walk.run(pcs, 8), 4U);
  EXPECT_EQ(walk.outcome(), Outcome::kNeedsAllRegisters);
  for (unsigned i = 0; i < 4; ++i) EXPECT_EQ(pcs[i], key(20 + i));
}

#if defined(__x86_64__)
// Three functions: one with a row for each instruction, one whose rows ignore the effect of its epilogue, and one that
// calls the second.
asm(R"(
.pushsection .text
.globl wl_rows_begin, wl_rows_pushed, wl_rows_popped, wl_silent, wl_silent_freed, wl_called
.type wl_rows_begin, @function
wl_rows_begin:
  .cfi_startproc
  push %rbx
wl_rows_pushed:
  .cfi_adjust_cfa_offset 8
  pop %rbx
wl_rows_popped:
  .cfi_adjust_cfa_offset -8
  ret
  .cfi_endproc
.size wl_rows_begin, .-wl_rows_begin
.type wl_silent, @function
wl_silent:
  .cfi_startproc
  push %rbp
  .cfi_adjust_cfa_offset 8
  .cfi_offset %rbp, -16
  push %rbx
  .cfi_adjust_cfa_offset 8
  .cfi_offset %rbx, -24
  sub $8, %rsp
  .cfi_adjust_cfa_offset 8
  add $8, %rsp
wl_silent_freed:
  pop %rbx
  pop %rbp
  ret
  .cfi_endproc
.size wl_silent, .-wl_silent
.type wl_calls, @function
wl_calls:
  .cfi_startproc
  call wl_silent
wl_called:
  ret
  .cfi_endproc
.size wl_calls, .-wl_calls
.popsection
)");
extern "C" {
extern const char wl_rows_begin[], wl_rows_pushed[], wl_rows_popped[], wl_silent_freed[], wl_called[];
}

std::uint64_t address(const char* label) { return reinterpret_cast<std::uint64_t>(label); }

// A return address has the row of the call before it; an instruction that which begins at it.
TEST_F(FastSteps, RowsHoldFromTheirBeginToTheirEnd) {
  const OwnModule* module = OwnModules::find(address(wl_rows_begin));
  ASSERT_NE(module, nullptr);
  const auto cfa = [&](std::uint64_t pc) {
    table::TraceRule rule{};
    EXPECT_TRUE(CfiRules().find(*module, pc, rule));
    return rule.cfa_offset;
  };
  EXPECT_EQ(cfa(address(wl_rows_begin) | kInstructionBit), 8);
  EXPECT_EQ(cfa(address(wl_rows_pushed) | kInstructionBit), 16);
  EXPECT_EQ(cfa(address(wl_rows_popped) | kInstructionBit), 8);
  EXPECT_EQ(cfa(address(wl_rows_pushed)), 8);
  EXPECT_EQ(cfa(address(wl_rows_popped)), 16);
}

// What is kept of one module's functions and CIEs does not change what is found of another's.
TEST_F(FastSteps, RulesDoNotDependOnThoseBefore) {
  const OwnModule* const modules[] = {OwnModules::find(address(wl_rows_begin)),
                                      OwnModules::find(reinterpret_cast<std::uint64_t>(&std::fopen))};
  ASSERT_NE(modules[0], nullptr);
  ASSERT_NE(modules[1], nullptr);
  ASSERT_NE(modules[0], modules[1]);
  CfiRules kept;
  std::size_t found = 0;
  for (std::uint64_t i = 0; i < 40'000; ++i) {
    const OwnModule& module = *modules[i / 3 % 2];
    const std::uint64_t size = module.object().end - module.object().begin;
    const std::uint64_t pc = module.object().begin + i * 0x9e3779b1 % size;
    table::TraceRule rule{}, alone{};
    const bool has = kept.find(module, pc, rule);
    ASSERT_EQ(has, CfiRules().find(module, pc, alone)) << std::hex << pc;
    if (!has) continue;
    EXPECT_EQ(std::memcmp(&rule, &alone, sizeof rule), 0) << std::hex << pc;
    found++;
  }
  EXPECT_GT(found, 5'000u);
}

// The code says otherwise than its row, and is right; also the second time, when something is kept of it.
TEST_F(FastSteps, CodeContradictsTheRowOfAnInstruction) {
  words[kSp + 1] = 0x1234;
  words[kSp + 2] = address(wl_called);
  for (const bool again : {false, true}) {
    ASSERT_EQ(step(address(wl_silent_freed) | kInstructionBit), Outcome::kMore) << again;
    EXPECT_EQ(caller, (FastWalkState{address(wl_called), at(kSp + 3), 0x1234})) << again;
  }
}

class FastStepsInCode : public FastSteps {
 protected:
  void SetUp() override {
    code = static_cast<std::uint8_t*>(
        mmap(nullptr, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (code == MAP_FAILED) GTEST_SKIP() << "no executable memory here";
    std::memset(code, 0x90, 4096);
  }
  void TearDown() override {
    if (code != MAP_FAILED) munmap(code, 4096);
  }
  [[nodiscard]] std::uint64_t pc(unsigned offset) const { return reinterpret_cast<std::uint64_t>(code) + offset; }

  std::uint8_t* code = nullptr;
};

// Its rows are asked, and nothing is kept: the next code at the same place may be another.
TEST_F(FastStepsInCode, ByTheRowsOfACodeRange) {
  FrameRow row;
  row.begin = pc(0);
  row.end = pc(64);
  row.cfa = CfaRule::at(7, 24);
  row.return_address = RegisterRule::at_cfa(-8);
  const auto range = add_own_code({.begin = pc(0), .end = pc(4096), .rows = {row}});
  ASSERT_TRUE(range) << range.error().text();
  words[kSp + 2] = address(wl_rows_pushed);
  EXPECT_EQ(step(pc(0x20)), Outcome::kMore);
  EXPECT_EQ(caller.sp, at(kSp + 3));
  PackedStep kept;
  EXPECT_FALSE(RuleCache::View().find(pc(0x20), kept));
  ASSERT_TRUE(retire_own_code(*range));
}

// mov rax, [rbp - 8]; jmp rax: a frame by rbp, but the call before the return address leads elsewhere.
TEST_F(FastStepsInCode, AGuessIsRemembered) {
  const std::uint8_t uses_frame[] = {0x48, 0x8b, 0x45, 0xf8, 0xff, 0xe0};
  std::memcpy(code + 0x20, uses_frame, sizeof uses_frame);
  const auto range = add_own_code({.begin = pc(0), .end = pc(4096)});
  ASSERT_TRUE(range) << range.error().text();
  table::TraceRule rule = full();
  rule.ra_kind = WL_REG_UNDEFINED;
  keep(address(wl_called), rule);
  words[kSp + 2] = at(kSp + 6);
  words[kSp + 3] = address(wl_called);
  FastWalk walk({pc(0x20), at(kSp), at(kSp + 2)}, false);
  ASSERT_TRUE(walk.step());
  EXPECT_EQ(walk.state().key, address(wl_called));
  EXPECT_FALSE(walk.step());
  EXPECT_EQ(walk.outcome(), Outcome::kGuessed);
  EXPECT_EQ(step(pc(0x20), 0), Outcome::kGuessed) << "a frame pointer of 0 may be data";
  ASSERT_TRUE(retire_own_code(*range));
}
#endif

}  // namespace
}  // namespace windlass::walk
