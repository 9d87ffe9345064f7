// The shared unwinder (bpf/windlass_step.h) as user code: every kind of rule, the ends of a stack, the memo.
#include <gtest/gtest.h>

#include <random>

#include "fake_target.h"

namespace windlass {
namespace {

using testing::FakeTarget;
using testing::rule_of;
constexpr std::uint64_t kStack = FakeTarget::kStack;
constexpr std::uint64_t kCode = FakeTarget::kCode;
constexpr std::uint32_t kNoX = WL_NO_XREG;

int apply(FakeTarget& target, wl_cursor& cursor, const wl_rule& rule, std::uint32_t x_reg = kNoX) {
  return target.apply(cursor, rule, x_reg);
}

TEST(Step, CfaFromStackPointer) {
  FakeTarget target;
  target.write(kStack, {1, 2, 0xbbbb, 0xaaaa});
  auto cursor = FakeTarget::cursor(kCode, kStack, 0x77);
  ASSERT_EQ(apply(target, cursor, rule_of(WL_CFA_REG, 7, 32, WL_REG_CFA, -16)), WL_CONTINUE);
  EXPECT_EQ(cursor.regs[WL_X64_RIP], 0xaaaaU);
  EXPECT_EQ(cursor.regs[WL_X64_RSP], kStack + 32);
  EXPECT_EQ(cursor.regs[WL_X64_RBP], 0xbbbbU);
  EXPECT_EQ(cursor.exact, 0);
  EXPECT_EQ(cursor.valid, WL_VALID_BASE | 1U << WL_X64_RBP);
}

TEST(Step, CfaFromAnyRegisterInFrameZeroOnly) {
  FakeTarget target;
  target.write(kStack, {0, 0, 0, 0xaaaa, 0xbbbb});
  auto cursor = FakeTarget::cursor(kCode, kStack, 0);
  cursor.regs[10] = kStack + 16;
  const wl_rule drap = rule_of(WL_CFA_REG, 10, 16);
  auto later = cursor;
  ASSERT_EQ(apply(target, cursor, drap), WL_CONTINUE);
  EXPECT_EQ(cursor.regs[WL_X64_RIP], 0xaaaaU);
  later.valid = WL_VALID_BASE;
  const wl_cursor before = later;
  EXPECT_EQ(apply(target, later, drap), WL_END_REGISTER_LOST);
  EXPECT_EQ(std::memcmp(&before, &later, sizeof later), 0) << "a failed step must change nothing";
}

// GCC's realigned frames: CFA = [rbp - 8].
TEST(Step, CfaThroughMemory) {
  FakeTarget target;
  const std::uint64_t fp = kStack + 32;
  target.write(kStack, {0, 0, 0, kStack + 64, 0x1234, 0, 0, 0xaaaa});
  auto cursor = FakeTarget::cursor(kCode, kStack, fp);
  auto rule = rule_of(WL_CFA_MEM, 6, -8, WL_REG_BASE, 0);
  ASSERT_EQ(apply(target, cursor, rule), WL_CONTINUE);
  EXPECT_EQ(cursor.regs[WL_X64_RSP], kStack + 64);
  EXPECT_EQ(cursor.regs[WL_X64_RIP], 0xaaaaU);
  EXPECT_EQ(cursor.regs[WL_X64_RBP], 0x1234U);
  rule.cfa_arg = 8;  // what was kept is the CFA less a word
  target.write(kStack + 24, {kStack + 56, 0x1234, 0, 0, 0xaaaa});
  auto below = FakeTarget::cursor(kCode, kStack, fp);
  ASSERT_EQ(apply(target, below, rule), WL_CONTINUE);
  EXPECT_EQ(below.regs[WL_X64_RSP], kStack + 64);
}

TEST(Step, PltStubByTheLowBitsOfThePc) {
  FakeTarget target;
  target.write(kStack, {0xaaaa, 0xbbbb});
  auto rule = rule_of(WL_CFA_PLT, 7, 8);
  rule.cfa_arg = 11;
  auto before_push = FakeTarget::cursor(kCode + 10, kStack, 0);
  ASSERT_EQ(apply(target, before_push, rule), WL_CONTINUE);
  EXPECT_EQ(before_push.regs[WL_X64_RIP], 0xaaaaU);
  auto after_push = FakeTarget::cursor(kCode + 11, kStack, 0);
  ASSERT_EQ(apply(target, after_push, rule), WL_CONTINUE);
  EXPECT_EQ(after_push.regs[WL_X64_RIP], 0xbbbbU);
}

TEST(Step, ReturnAddressElsewhere) {
  FakeTarget target;
  target.write(kStack, {1, 2, 3, 4});
  auto rule = rule_of(WL_CFA_REG, 7, 8);
  rule.ra_kind = WL_REG_IN_REG;
  rule.ra_offset = 11;
  auto cursor = FakeTarget::cursor(kCode, kStack, 0);
  cursor.regs[11] = 0xcccc;
  ASSERT_EQ(apply(target, cursor, rule), WL_CONTINUE);
  EXPECT_EQ(cursor.regs[WL_X64_RIP], 0xccccU);
  EXPECT_EQ(cursor.exact, 1) << "code goes on there as if jumped to: a landing pad, vfork's caller";
  EXPECT_EQ(apply(target, cursor, rule), WL_END_REGISTER_LOST);
  rule.ra_kind = WL_REG_BASE;
  rule.ra_offset = 16;
  auto base = FakeTarget::cursor(kCode, kStack, 0);
  ASSERT_EQ(apply(target, base, rule), WL_CONTINUE);
  EXPECT_EQ(base.regs[WL_X64_RIP], 3U);
  rule.ra_kind = WL_REG_FP;
  rule.ra_offset = 24;
  auto by_fp = FakeTarget::cursor(kCode, kStack, kStack);
  auto without_fp = by_fp;
  ASSERT_EQ(apply(target, by_fp, rule), WL_CONTINUE);
  EXPECT_EQ(by_fp.regs[WL_X64_RIP], 4U);
  without_fp.valid = WL_VALID_BASE;
  EXPECT_EQ(apply(target, without_fp, rule), WL_END_REGISTER_LOST);
}

// A caller's register that is given by where the frame stands.
TEST(Step, RegisterIsAnOffsetFromTheCfa) {
  FakeTarget target;
  target.write(kStack, {1, 2, 0xaaaa});
  auto cursor = FakeTarget::cursor(kCode, kStack, 0);
  ASSERT_EQ(apply(target, cursor, rule_of(WL_CFA_REG, 7, 24, WL_REG_CFA_VALUE, -16)), WL_CONTINUE);
  EXPECT_EQ(cursor.regs[WL_X64_RBP], kStack + 8);
}

// ld.so's resolver: the CFA is rbx, kept through every frame of a module that tracks it, lost in one that does not.
TEST(Step, ExtraRegisterIsCarried) {
  FakeTarget target;
  target.write(kStack, {0xaaaa, 0xbbbb, 0x4242, 0xcccc});
  auto cursor = FakeTarget::cursor(kCode, kStack, 0);
  cursor.regs[3] = kStack + 100;
  ASSERT_EQ(apply(target, cursor, rule_of(WL_CFA_REG, 7, 8), 3), WL_CONTINUE);
  EXPECT_TRUE(WL_VALID(&cursor, 3));
  EXPECT_EQ(cursor.regs[3], kStack + 100);
  auto saves = rule_of(WL_CFA_REG, 7, 24);
  saves.x_kind = WL_REG_CFA;
  saves.x_offset = -16;
  ASSERT_EQ(apply(target, cursor, saves, 3), WL_CONTINUE);
  EXPECT_EQ(cursor.regs[3], 0x4242U);
  auto other = FakeTarget::cursor(kCode, kStack, 0);
  ASSERT_EQ(apply(target, other, rule_of(WL_CFA_REG, 7, 8), kNoX), WL_CONTINUE);
  EXPECT_FALSE(WL_VALID(&other, 3));
}

TEST(Step, Ends) {
  FakeTarget target;
  target.write(kStack, {0, 0});
  auto cursor = FakeTarget::cursor(kCode, kStack, 0);
  EXPECT_EQ(apply(target, cursor, rule_of(WL_CFA_REG, 7, 8)), WL_END_GUESSED);  // return address 0
  cursor.exact = 0;
  EXPECT_EQ(apply(target, cursor, rule_of(WL_CFA_REG, 7, 8)), WL_END_COMPLETE);
  auto leaf = rule_of(WL_CFA_REG, 7, 8);
  leaf.proof = WL_PROOF_NO_END;
  EXPECT_EQ(apply(target, cursor, leaf), WL_END_GUESSED);
  cursor.exact = 1;
  auto undefined = rule_of(WL_CFA_REG, 7, 8);
  undefined.ra_kind = WL_REG_UNDEFINED;
  EXPECT_EQ(apply(target, cursor, undefined), WL_END_COMPLETE);
  EXPECT_EQ(apply(target, cursor, wl_rule{}), WL_END_NO_ROW);
  EXPECT_EQ(apply(target, cursor, rule_of(WL_CFA_UNSUPPORTED, 7, 8)), WL_END_UNSUPPORTED_EXPRESSION);
  EXPECT_EQ(apply(target, cursor, rule_of(WL_CFA_REG, 7, 4096)), WL_END_UNREADABLE_STACK);
  EXPECT_EQ(apply(target, cursor, rule_of(WL_CFA_REG, 7, 0)), WL_END_NO_PROGRESS);
  EXPECT_EQ(apply(target, cursor, rule_of(WL_CFA_REG, 7, -64)), WL_END_NO_PROGRESS);
  EXPECT_EQ(apply(target, cursor, rule_of(WL_CFA_REG, 40, 8)), WL_END_REGISTER_LOST);
}

TEST(Step, ARuleThatTheCodeProvesMakesTheStackProved) {
  FakeTarget target;
  target.write(kStack, {kCode + 1, kCode + 2, kCode + 3});
  auto cursor = FakeTarget::cursor(kCode, kStack, 0);
  std::uint32_t& certainty = target.scratch->unwind.certainty;
  certainty = WL_DESCRIBED;
  auto rule = rule_of(WL_CFA_REG, 7, 8);
  ASSERT_EQ(apply(target, cursor, rule), WL_CONTINUE);
  EXPECT_EQ(certainty, WL_DESCRIBED);
  rule.proof = WL_PROOF_CODE;
  ASSERT_EQ(apply(target, cursor, rule), WL_CONTINUE);
  EXPECT_EQ(certainty, WL_PROVED);
  certainty = WL_CHECKED;
  ASSERT_EQ(apply(target, cursor, rule), WL_CONTINUE);
  EXPECT_EQ(certainty, WL_CHECKED) << "the least certain frame counts";
}

// The memo's plain rules have the proof of most rows. A rule with another one is looked up again.
TEST(Step, ARuleWithAProofOfItsOwnIsKeptByItsPlace) {
  auto rule = rule_of(WL_CFA_REG, 7, 8);
  EXPECT_TRUE(wl_memo_value(1, kCode, &rule, 8, kNoX, 0) & WL_MEMO_PLAIN);
  for (const auto proof : {WL_PROOF_NO_END, WL_PROOF_CODE}) {
    rule.proof = proof;
    const std::uint64_t value = wl_memo_value(1, kCode, &rule, 8, kNoX, 0);
    EXPECT_FALSE(value & WL_MEMO_PLAIN);
    EXPECT_EQ(wl_memo_ref(value), 8u);
  }
}

// Two frames that name each other: stacks may be switched a few times, not for ever.
TEST(Step, CyclicStackEnds) {
  FakeTarget target;
  target.write(kStack, {kStack + 32, kCode + 1, 0, 0, kStack, kCode + 1});
  auto cursor = FakeTarget::cursor(kCode, kStack - 8, kStack);
  const wl_rule rule = rule_of(WL_CFA_REG, 6, 16, WL_REG_CFA, -16);
  int status = WL_CONTINUE;
  unsigned steps = 0;
  for (; steps < 1000 && status == WL_CONTINUE; ++steps) status = apply(target, cursor, rule);
  EXPECT_EQ(status, WL_END_NO_PROGRESS);
  // The first leads up; from then on every second leads down, the last of them one too many.
  EXPECT_EQ(steps, 1 + 2 * (WL_MAX_BACKWARD_STEPS + 1));
}

// What glibc says of the code that a handler returns to.
wl_rule signal_rule() {
  auto rule = rule_of(WL_CFA_MEM, 7, 160, WL_REG_BASE, 120);
  rule.ra_kind = WL_REG_BASE;
  rule.ra_offset = 168;
  rule.flags = WL_RULE_SIGNAL;
  return rule;
}

// A signal frame that restores its own sp, as a damaged stack may hold it.
TEST(Step, CyclicSignalFramesEnd) {
  FakeTarget target;
  std::vector<std::uint64_t> frame(5 + 17, 0x9000);
  frame[5 + 15] = kStack;
  frame[5 + 16] = kCode;
  target.write(kStack, frame);
  auto rule = signal_rule();
  auto cursor = FakeTarget::cursor(kCode, kStack, 0);
  int status = WL_CONTINUE;
  unsigned steps = 0;
  for (; steps < 1000 && status == WL_CONTINUE; ++steps) status = apply(target, cursor, rule);
  EXPECT_EQ(status, WL_END_NO_PROGRESS);
  EXPECT_EQ(steps, WL_MAX_BACKWARD_STEPS + 1);
}

// A frame whose caller's stack is far away, above or below: SBCL's way from C to Lisp.
TEST(Step, TheStackThatARowLeadsToIsNoted) {
  for (const std::uint64_t distance :
       {std::uint64_t{WL_MAX_RAW_PIECE} - 8, std::uint64_t{WL_MAX_RAW_PIECE}, -std::uint64_t{0x100}}) {
    FakeTarget target;
    const std::uint64_t cfa = kStack + distance;
    target.write(kStack, {cfa - 16});
    target.write(cfa - 16, {0, kCode});
    auto rule = rule_of(WL_CFA_MEM, WL_FP, 0, WL_REG_CFA, -8);
    rule.cfa_arg = 16;
    auto cursor = FakeTarget::cursor(kCode, kStack, kStack);
    ASSERT_EQ(apply(target, cursor, rule), WL_CONTINUE) << distance;
    EXPECT_EQ(target.scratch->unwind.next_stack, distance == WL_MAX_RAW_PIECE - 8 ? 0 : cfa);
  }
}

// How far the stack that a handler interrupted lies away says whether a raw sample copies it, too.
TEST(Step, TheInterruptedStackIsNoted) {
  for (const std::uint64_t distance : {std::uint64_t{WL_MAX_RAW_PIECE} - 8, std::uint64_t{WL_MAX_RAW_PIECE}}) {
    FakeTarget target;
    std::vector<std::uint64_t> frame(5 + 17, 0x9000);
    frame[5 + 15] = kStack + distance;
    frame[5 + 16] = kCode;
    target.write(kStack, frame);
    auto rule = signal_rule();
    auto cursor = FakeTarget::cursor(kCode, kStack, 0);
    ASSERT_EQ(apply(target, cursor, rule), WL_CONTINUE);
    EXPECT_EQ(target.scratch->unwind.next_stack, distance == WL_MAX_RAW_PIECE ? kStack + distance : 0);
  }
}

TEST(Step, SignalFrameRestoresEverything) {
  FakeTarget target;
  // ucontext: 40 bytes, then r8..r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip (asm/sigcontext.h)
  std::vector<std::uint64_t> frame(5 + 17);
  for (unsigned i = 0; i < 17; ++i) frame[5 + i] = 0x9000 + i;
  frame[5 + 15] = kStack + 0x1000;
  frame[5 + 16] = kCode + 0x123;
  target.write(kStack, frame);
  auto rule = signal_rule();
  auto cursor = FakeTarget::cursor(kCode, kStack, 0);
  cursor.exact = 0;
  cursor.valid = WL_VALID_BASE;
  ASSERT_EQ(apply(target, cursor, rule), WL_CONTINUE);
  EXPECT_EQ(cursor.regs[WL_X64_RIP], kCode + 0x123);
  EXPECT_EQ(cursor.regs[WL_X64_RSP], kStack + 0x1000);
  EXPECT_EQ(cursor.regs[8], 0x9000U);
  EXPECT_EQ(cursor.regs[15], 0x9007U);
  EXPECT_EQ(cursor.regs[5], 0x9008U);
  EXPECT_EQ(cursor.regs[4], 0x9009U);
  EXPECT_EQ(cursor.regs[WL_X64_RBP], 0x900aU);
  EXPECT_EQ(cursor.regs[WL_X64_RBX], 0x900bU);
  EXPECT_EQ(cursor.regs[1], 0x900cU);
  EXPECT_EQ(cursor.regs[0], 0x900dU);
  EXPECT_EQ(cursor.regs[2], 0x900eU);
  EXPECT_EQ(cursor.exact, 1);
  EXPECT_EQ(cursor.valid, (1U << 17) - 1);
}

// rt_sigreturn's call is the trampoline's last instruction: the pc behind it is other code's.
TEST(Step, SigreturnStandsAtItsCall) {
  const std::vector<std::uint8_t> forms[] = {{0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05},
                                             {0x90, 0x90, 0xb8, 0x0f, 0, 0, 0, 0x0f, 0x05},
                                             {0x48, 0xc7, 0xc0, 0x0e, 0, 0, 0, 0x0f, 0x05},   // another system call
                                             {0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x0b}};  // none
  for (const auto& form : forms) {
    FakeTarget target;
    wl_unwind& unwind = target.scratch->unwind;
    target.write_code(kCode, form);
    const bool returns = &form - forms < 2;
    for (const std::uint64_t rax : {std::uint64_t{0} - 38, std::uint64_t{15}}) {
      unwind.cursor = FakeTarget::cursor(kCode + 9, kStack, 0);
      unwind.cursor.regs[0] = rax;
      wl_settle(&unwind);
      EXPECT_EQ(unwind.cursor.regs[WL_PC], kCode + (returns && rax != 15 ? 7 : 9)) << &form - forms << " " << rax;
    }
  }
}

// By signal frames that hold rip, rsp and maybe rbp, not a whole context.
void expect_interrupted(FakeTarget& target, const wl_rule& rule, std::uint64_t rsp, std::uint64_t rbp) {
  auto cursor = FakeTarget::cursor(kCode, kStack, 0x99);
  ASSERT_EQ(apply(target, cursor, rule), WL_CONTINUE);
  EXPECT_EQ(cursor.regs[WL_X64_RIP], kCode + 0x123);
  EXPECT_EQ(cursor.regs[WL_X64_RSP], rsp);
  EXPECT_EQ(cursor.regs[WL_X64_RBP], rbp);
  EXPECT_EQ(cursor.exact, 1);
}

// A Windows machine frame: rip, cs, eflags, rsp, ss on top of 32 bytes.
TEST(Step, MachineFrame) {
  FakeTarget target;
  target.write(kStack, {0, 0, 0, 0x77, kCode + 0x123, 0x33, 0x202, kStack + 0x1000, 0x2b});
  auto rule = rule_of(WL_CFA_MEM, 7, 56, WL_REG_BASE, 24);
  rule.ra_kind = WL_REG_BASE;
  rule.ra_offset = 32;
  rule.flags = WL_RULE_SIGNAL;
  expect_interrupted(target, rule, kStack + 0x1000, 0x77);
}

// caml_call_gc of OCaml 5: a signal frame on C's stack, whose second word leads to the stack that called it.
TEST(Step, SignalFrameWithoutAContext) {
  FakeTarget target;
  const std::uint64_t fiber = kStack + 0x1000;
  target.write(kStack, {0x77, fiber});
  target.write(fiber, {kCode + 0x123});
  auto rule = rule_of(WL_CFA_MEM, 7, 8, WL_REG_SAME, 0);
  rule.cfa_arg = 8;
  rule.flags = WL_RULE_SIGNAL;
  expect_interrupted(target, rule, fiber + 8, 0x99);
}

// Wine's system call dispatcher has popped its return address to where rcx points; sp does not move.
TEST(Step, ReturnAddressPoppedToMemory) {
  FakeTarget target;
  target.write(kStack + 0x100, {0, 0xaaaa, 0xbbbb});
  auto rule = rule_of(WL_CFA_REG, 7, 0, WL_REG_ARG, 16);
  rule.cfa_arg = 2;
  rule.ra_kind = WL_REG_ARG;
  rule.ra_offset = 8;
  auto cursor = FakeTarget::cursor(kCode, kStack, 0);
  cursor.regs[2] = kStack + 0x100;
  auto later = cursor;
  ASSERT_EQ(apply(target, cursor, rule), WL_CONTINUE);
  EXPECT_EQ(cursor.regs[WL_X64_RIP], 0xaaaaU);
  EXPECT_EQ(cursor.regs[WL_X64_RSP], kStack);
  EXPECT_EQ(cursor.regs[WL_X64_RBP], 0xbbbbU);
  later.valid = WL_VALID_BASE;
  EXPECT_EQ(apply(target, later, rule), WL_END_REGISTER_LOST);
}

// ---- the memo ------------------------------------------------------------------------------------------------------

// A remembered rule has exactly the effect of the rule. Otherwise it is not remembered as plain.
TEST(Memo, PlainFormEqualsTheRule) {
  std::mt19937_64 random(5);
  FakeTarget target;
  std::vector<std::uint64_t> words(4096);
  for (auto& word : words) word = random() % 5 == 0 ? 0 : random();
  target.write(kStack, words);
  std::size_t plain = 0;
  for (int i = 0; i < 200'000; ++i) {
    wl_rule rule =
        rule_of(random() % 8 == 0 ? random() % 5 : unsigned{WL_CFA_REG}, random() % 4 == 0 ? 6 : 7,
                static_cast<int>(random() % 2100) * (random() % 16 == 0 ? 1 : 8) - 16,
                random() % 3 ? unsigned{WL_REG_CFA} : unsigned{WL_REG_SAME}, -static_cast<int>(random() % 40) * 8);
    if (random() % 8 == 0) rule.ra_offset = -16;
    if (random() % 16 == 0) rule.ra_kind = random() % 6 & 15;
    if (random() % 16 == 0) rule.flags = 1;
    if (random() % 8 == 0) rule.x_kind = WL_REG_CFA;
    const std::uint32_t x_reg = random() % 3 == 0 ? 3 : kNoX;
    const std::uint32_t space = static_cast<std::uint32_t>(random());
    const std::uint32_t keeps_x = i % 2;
    const std::uint64_t value = wl_memo_value(space, kCode, &rule, 0x12345678, x_reg, keeps_x);
    EXPECT_EQ(value >> WL_MEMO_KEY_SHIFT, space >> 16);
    if ((value & WL_MEMO_KIND) == WL_MEMO_END) {
      ASSERT_EQ(rule.ra_kind, WL_REG_UNDEFINED);
      continue;
    }
    if ((value & WL_MEMO_PLAIN) == 0) {
      ASSERT_EQ(wl_memo_ref(value), 0x12345678U);
      ASSERT_EQ(wl_memo_xreg(value), x_reg == 3 ? 3U : WL_MEMO_NO_XREG);
      continue;
    }
    ++plain;
    auto cursor = FakeTarget::cursor(kCode, kStack + random() % 2048 * 8, kStack + random() % 2048 * 8);
    if (random() % 4 == 0) cursor.valid = WL_VALID_BASE | (random() % 2 ? 1U << 6 : 0) | (random() % 2 ? 1U << 3 : 0);
    cursor.backward = static_cast<__u8>(random() % (WL_MAX_BACKWARD_STEPS + 1));
    cursor.exact = random() % 2;
    auto by_memo = cursor;
    wl_fast fast{cursor.regs[16], cursor.regs[7], cursor.regs[6], cursor.valid, cursor.exact};
    const bool loses_x = (value & WL_MEMO_LOSES_X) != 0;
    ASSERT_EQ(loses_x, x_reg == 3 && rule.x_kind == WL_REG_CFA && keeps_x == 0);
    const int expected = apply(target, cursor, rule, loses_x ? kNoX : x_reg);
    const int found = target.apply_plain(by_memo, fast, value);
    ASSERT_EQ(found, expected) << i;
    if (expected != WL_CONTINUE) continue;
    ASSERT_EQ(fast.pc, cursor.regs[16]);
    ASSERT_EQ(fast.sp, cursor.regs[7]);
    ASSERT_EQ(fast.valid, cursor.valid) << i;
    if (WL_VALID(&cursor, 6)) {
      ASSERT_EQ(fast.fp, cursor.regs[6]);
    }
    ASSERT_EQ(by_memo.backward, cursor.backward);
    ASSERT_EQ(fast.exact, cursor.exact);
    ASSERT_EQ(cursor.exact, 0) << "a run of plain steps takes every pc for a return address";
  }
  EXPECT_GT(plain, 10'000U);
}

TEST(Memo, KeyIsExact) {
  wl_memo_entry entry{};
  wl_rule rule = rule_of(WL_CFA_REG, 7, 8);
  EXPECT_FALSE(wl_memo_hit(&entry, 1, kCode));  // an empty entry is nobody's: spaces begin at 1
  entry.tag = wl_memo_tag(0x30001, kCode);
  entry.value = wl_memo_value(0x30001, kCode, &rule, 1, kNoX, 0);
  EXPECT_TRUE(wl_memo_hit(&entry, 0x30001, kCode));
  EXPECT_FALSE(wl_memo_hit(&entry, 0x40001, kCode));  // the same low half
  EXPECT_FALSE(wl_memo_hit(&entry, 0x30002, kCode));
  EXPECT_FALSE(wl_memo_hit(&entry, 0x30001, kCode + 1));
  EXPECT_FALSE(wl_memo_hit(&entry, 0x30001, kCode ^ 1ULL << 47));
}

static_assert(sizeof(wl_memo_entry) == 16);
static_assert(sizeof(wl_rule) == 16);
static_assert(sizeof(wl_mapping) == 32);
static_assert(sizeof(wl_maps_head) == 8);
static_assert(sizeof(wl_module) == 24);
static_assert(sizeof(wl_label_source) == 24);
static_assert(sizeof(wl_process) == 56);
static_assert(sizeof(wl_interpreter) == 64);
static_assert(sizeof(wl_interpreted_frame) == 16);
static_assert(sizeof(wl_stack_key) == 16);
static_assert(sizeof(wl_event_head) == 48);
static_assert(sizeof(wl_label_event) == 56);
static_assert(sizeof(wl_go_label) == 192);

// ---- a callback of Wine 8's Unix side (windlass_wine_layout.h) ------------------------------------------------------

class WineCallback : public ::testing::Test {
 protected:
  static constexpr std::uint64_t kTeb = 0x7ffe0000, kUnix = 0x7ffd80002000, kLength = 20, kRsp = kStack + 0x1000;
  static constexpr std::uint64_t kArguments = (kRsp - kLength) & ~15ULL, kOuter = kUnix + 0x4000;
  static constexpr std::uint64_t kFrame = (kUnix - WL_WINE_FRAME_ROOM) & ~63ULL;

  WineCallback() {
    target.write(kArguments - 40, {WL_WINE_MARK, 7, kArguments, kLength, 0});
    target.write(kTeb + WL_WINE_TEB_FRAME, {kFrame});
    target.write(kFrame + WL_WINE_FRAME_BELOW, {kOuter});
    target.write(kFrame + WL_WINE_FRAME_SAVED, {kUnix});
    target.write(kOuter + WL_WINE_FRAME_RSP, {kRsp});
    target.write(kOuter + WL_WINE_FRAME_BELOW, {0});
    target.write(kUnix - WL_WINE_SAVED_BELOW, {15, 14, 13, 12, 5, 4, 3, 6, kCode + 0x40});
    target.set_mappings({{kCode, kCode + 0x100, 0, 0, WL_MAPPING_GENERATED}});
    target.scratch->unwind.gs_base = kTeb;
  }
  // From the mark, which is among the frames.
  int step() {
    at = FakeTarget::cursor(WL_WINE_MARK, kArguments - 32, 0);
    at.valid = WL_VALID_BASE;
    at.exact = 0;
    target.scratch->unwind.frames = 3;
    return target.step(at);
  }
  int step_with(std::uint64_t address, std::uint64_t value) {
    const auto was = target.memory.at(address);
    target.write(address, {value});
    const int status = step();
    target.memory.at(address) = was;
    EXPECT_EQ(target.scratch->unwind.frames, 3u);
    return status;
  }

  FakeTarget target;
  wl_cursor at{};
};

TEST_F(WineCallback, LeadsToTheUnixSide) {
  ASSERT_EQ(step(), WL_CONTINUE);
  EXPECT_EQ(at.regs[WL_X64_RIP], kCode + 0x40);
  EXPECT_EQ(at.regs[WL_X64_RSP], kUnix + 16);
  EXPECT_EQ(at.exact, 0);
  for (const unsigned reg : {3U, 4U, 5U, 6U, 12U, 13U, 14U, 15U}) {
    EXPECT_EQ(at.regs[reg], reg);
    EXPECT_TRUE(WL_VALID(&at, reg));
  }
  EXPECT_FALSE(WL_VALID(&at, 0));
  EXPECT_EQ(target.scratch->unwind.frames, 2u) << "the mark is no frame";
}

TEST_F(WineCallback, IsNotGuessed) {
  EXPECT_EQ(step_with(kTeb + WL_WINE_TEB_FRAME, kOuter), WL_END_NO_MAPPING);  // the callback is returning
  EXPECT_EQ(step_with(kTeb + WL_WINE_TEB_FRAME, 0), WL_END_NO_MAPPING);
  EXPECT_EQ(step_with(kFrame + WL_WINE_FRAME_BELOW, kFrame), WL_END_NO_MAPPING);
  EXPECT_EQ(step_with(kFrame + WL_WINE_FRAME_BELOW, 0), WL_END_NO_MAPPING);
  EXPECT_EQ(step_with(kFrame + WL_WINE_FRAME_SAVED, kUnix + 64), WL_END_NO_MAPPING);
  EXPECT_EQ(step_with(kOuter + WL_WINE_FRAME_RSP, kRsp + 16), WL_END_NO_MAPPING);
  target.write(kArguments - 40, {WL_WINE_MARK, 7, kArguments + 16, kLength, 0});
  EXPECT_EQ(step(), WL_END_NO_MAPPING);
  target.write(kArguments - 40, {WL_WINE_MARK, 7, kArguments, kLength + 16, 0});
  EXPECT_EQ(step(), WL_END_NO_MAPPING);
  target.write(kArguments - 40, {WL_WINE_MARK, 7, kArguments, kLength, 0});
  ASSERT_EQ(step(), WL_CONTINUE);
  target.scratch->unwind.gs_base = 0;
  EXPECT_EQ(step(), WL_END_NO_MAPPING);
}

// ---- a thread on Wine's Unix side, whose process is not known yet --------------------------------------------------

TEST_F(WineCallback, TheUnixSidesFrameLeadsToTheProgramsStack) {
  constexpr std::uint64_t kOtherwise = 5;
  wl_unwind& u = target.scratch->unwind;
  const auto from = [&](std::uint64_t sp, std::uint64_t otherwise) {
    u.left_at = ~0ULL;
    u.cursor = FakeTarget::cursor(kCode, sp, 0);
    return wl_windows_sp(&u, otherwise);
  };
  target.write(kFrame + WL_WINE_FRAME_RSP, {kRsp});
  EXPECT_EQ(from(kFrame - 0x400, 0), kRsp - WL_RED_ZONE);
  EXPECT_EQ(u.left_at, kFrame + WL_WINE_FRAME_ROOM) << "the Unix side's copy ends there";
  EXPECT_EQ(from(kFrame - 0x400, kFrame - 0x100), kRsp - WL_RED_ZONE) << "the walk has stopped on the Unix side";
  EXPECT_EQ(from(kFrame - 0x400, kRsp - 0x40), kRsp - 0x40) << "the walk has come to the program's stack";
  EXPECT_EQ(from(kFrame + 8, kOtherwise), kOtherwise) << "no system call is under way";
  EXPECT_EQ(from(kFrame - WL_WINE_UNIX_STACK - 8, kOtherwise), kOtherwise);
  EXPECT_EQ(u.left_at, ~0ULL);
  target.write(kFrame + WL_WINE_FRAME_RSP, {0});
  EXPECT_EQ(from(kFrame - 0x400, 0), 0U);
  u.gs_base = 0;
  EXPECT_EQ(from(kFrame - 0x400, kOtherwise), kOtherwise);
}

}  // namespace
}  // namespace windlass
