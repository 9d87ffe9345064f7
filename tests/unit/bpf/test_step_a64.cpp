// What the shared unwinder does differently for AArch64: addresses of 52 bits, authentication codes, frame records.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <vector>

#include "support/a64_unwinder.h"

namespace windlass {
namespace {

constexpr std::uint64_t kHighCode = 0x000f'ffff'1234'5678;  // needs 52 bits
constexpr std::uint32_t kNoX = WL_NO_XREG;

wl_rule record_rule(int cfa_offset, int record_offset) {
  wl_rule rule{};
  rule.cfa_kind = WL_CFA_REG;
  rule.cfa_reg = WL_SP;
  rule.cfa_offset = cfa_offset;
  rule.fp_kind = WL_REG_CFA;
  rule.fp_offset = static_cast<__s16>(record_offset);
  rule.ra_kind = WL_REG_CFA;
  rule.ra_offset = static_cast<__s16>(record_offset + 8);
  return rule;
}

TEST(StepA64, MemoKeyHoldsAllOfA52BitAddress) {
  const wl_rule rule = record_rule(32, -32);
  wl_memo_entry entry{wl_memo_tag(0x30001, kHighCode), wl_memo_value(0x30001, kHighCode, &rule, 1, kNoX, 0)};
  EXPECT_TRUE(wl_memo_hit(&entry, 0x30001, kHighCode));
  for (unsigned bit = 0; bit < 52; ++bit)
    EXPECT_FALSE(wl_memo_hit(&entry, 0x30001, kHighCode ^ 1ULL << bit)) << "address bit " << bit;
  for (unsigned bit = 0; bit < 32; ++bit)
    EXPECT_FALSE(wl_memo_hit(&entry, 0x30001 ^ 1U << bit, kHighCode)) << "space bit " << bit;
}

TEST(StepA64, MemoKeepsOffsetsOrDoesNotCallTheRulePlain) {
  std::mt19937_64 random(11);
  std::size_t plain = 0;
  for (int i = 0; i < 100'000; ++i) {
    const int cfa = static_cast<int>(random() % (1U << 22)) * 8 - (1 << 20);
    const int record = -16 - static_cast<int>(random() % 4000) * 8;
    const wl_rule rule = record_rule(cfa, record);
    const std::uint64_t value = wl_memo_value(7, kHighCode, &rule, 0x1234567, kNoX, 0);
    if ((value & WL_MEMO_PLAIN) == 0) {
      ASSERT_EQ(wl_memo_ref(value), 0x1234567U);
      continue;
    }
    ++plain;
    ASSERT_EQ(wl_memo_cfa_offset(value), cfa);
    ASSERT_EQ(wl_memo_fp_offset(value), record);
  }
  EXPECT_GT(plain, 1000U);
}

class Stack {
 public:
  std::map<std::uint64_t, std::uint64_t> words;
  std::unique_ptr<wl_unwind> unwind = std::make_unique<wl_unwind>();

  explicit Stack(std::uint64_t mask) {
    unwind->env.address_mask = mask;
    unwind->env.context = this;
    unwind->env.read = [](void* context, void* to, __u32 size, __u64 address) {
      const auto& from = static_cast<Stack*>(context)->words;
      for (__u32 done = 0; done < size; done += 8) {
        const auto word = from.find(address + done);
        if (word == from.end()) return 1;
        std::memcpy(static_cast<char*>(to) + done, &word->second, std::min<__u32>(8, size - done));
      }
      return 0;
    };
  }
};

// Code without a row, instruction by instruction (encodings by GNU's assembler).
class CodeA64 : public testing::Test {
 protected:
  static constexpr std::uint64_t kSp = 0x7000, kFp = 0x7040, kLr = 0x1234;
  CodeA64() {
    for (std::uint64_t at = kSp - 64; at < kSp + 128; at += 8) stack.words[at] = at + 0x5000;
  }
  static std::uint64_t word(std::uint64_t offset) { return kSp + offset + 0x5000; }
  // Of the last one.
  int execute(const std::vector<std::uint32_t>& code) {
    run = {};
    run.sp = kSp, run.fp = kFp, run.lr = kLr;
    run.fp_known = run.lr_known = 1;
    int status = WL_CODE_ON;
    for (const std::uint32_t instruction : code) {
      run.word = instruction;
      status = wl_code_execute(&stack.unwind->env, &run);
    }
    return status;
  }
  void expect(const std::vector<std::uint32_t>& code, std::uint64_t sp, std::uint64_t fp, std::uint64_t lr) {
    SCOPED_TRACE(testing::PrintToString(code));
    EXPECT_EQ(execute(code), WL_CODE_ON);
    EXPECT_EQ(run.sp, sp);
    EXPECT_EQ(run.fp_known ? run.fp : 0, fp);
    EXPECT_EQ(run.lr_known ? run.lr : 0, lr);
  }

  Stack stack{(1ULL << 48) - 1};
  wl_code_run run{};
};

TEST_F(CodeA64, LoadsAreFromTheirPlaces) {
  expect({0xa8c17bfd}, kSp + 16, word(0), word(8));  // ldp x29, x30, [sp], #16
  expect({0xa9417bfd}, kSp, word(16), word(24));     // ldp x29, x30, [sp, #16]
  expect({0xa8c24ffe}, kSp + 32, kFp, word(0));      // ldp x30, x19, [sp], #32
  expect({0xa8c17bf3}, kSp + 16, kFp, word(8));      // ldp x19, x30, [sp], #16
  expect({0xf84107fe}, kSp + 16, kFp, word(0));      // ldr x30, [sp], #16
  expect({0xf94007fe}, kSp, kFp, word(8));           // ldr x30, [sp, #8]
  expect({0xf94003fd}, kSp, word(0), kLr);           // ldr x29, [sp]
  expect({0xacc127e8}, kSp + 32, kFp, kLr);          // ldp q8, q9, [sp], #32
  EXPECT_EQ(execute({0xf94403fe}), WL_CODE_GIVE_UP) << "ldr x30, [sp, #2048]: cannot be read";
}

// What has been stored is loaded again, whatever the memory holds by now.
TEST_F(CodeA64, StoresAreRemembered) {
  constexpr std::uint32_t kCall = 0x94000000, kMoveFp = 0x910003fd;  // bl; mov x29, sp
  expect({0xa9bf7bfd}, kSp - 16, kFp, kLr);                          // stp x29, x30, [sp, #-16]!
  expect({0xa9bf7bfd, kMoveFp}, kSp - 16, kSp - 16, kLr);
  expect({0xa9bf7bfd, kMoveFp, kCall}, kSp - 16, kSp - 16, 0);
  expect({0xa9bf7bfd, kMoveFp, kCall, 0xa8c17bfd}, kSp, kFp, kLr);
  expect({0xf81f0ffe, kCall, 0xf84107fe}, kSp, kFp, kLr);  // str x30, [sp, #-16]!; bl; ldr x30, [sp], #16
  expect({0xa9bf7bf3, kCall, 0xa8c17bf3}, kSp, kFp, kLr);  // stp x19, x30, [sp, #-16]!; bl; ldp x19, x30, [sp], #16
  expect({0x6dbf27e8}, kSp - 16, kFp, kLr);                // stp d8, d9, [sp, #-16]!
}

TEST_F(CodeA64, SumsAndMoves) {
  expect({0x910083ff}, kSp + 32, kFp, kLr);    // add sp, sp, #32
  expect({0xd10083ff}, kSp - 32, kFp, kLr);    // sub sp, sp, #32
  expect({0x914007ff}, kSp + 4096, kFp, kLr);  // add sp, sp, #1, lsl #12
  expect({0x910043fd}, kSp, kSp + 16, kLr);    // add x29, sp, #16
  expect({0x910003bf}, kFp, kFp, kLr);         // mov sp, x29
  expect({0xaa0103fd}, kSp, 0, kLr);           // mov x29, x1
  expect({0xaa0103fe}, kSp, kFp, 0);           // mov x30, x1
  EXPECT_EQ(execute({0xaa0103fd, 0x910003bf}), WL_CODE_GIVE_UP) << "sp is what is not known";
}

TEST_F(CodeA64, Ends) {
  for (const std::uint32_t code : {0xd65f03c0U, 0xd65f0bffU, 0xd65f0fffU})  // ret, retaa, retab
    EXPECT_EQ(execute({code}), WL_CODE_RETURNS) << std::hex << code;
  // br x16; brk #0; udf #0; sub sp, sp, x1; and sp, x9, #-16; ldp w29, w30, [sp], #8
  for (const std::uint32_t code : {0xd61f0200U, 0xd4200000U, 0U, 0xcb2163ffU, 0x927ced3fU, 0x28c17bfdU})
    EXPECT_EQ(execute({code}), WL_CODE_GIVE_UP) << std::hex << code;
}

// The same return address, signed, under 48 and under 52 bits of address: what is above the kernel's bits goes, no
// more.
TEST(StepA64, AuthenticationCodesGoByTheMask) {
  constexpr std::uint64_t kStack = 0x0000'ffff'0000'1000, kCode = 0x000a'5555'0000'4000;
  for (const unsigned bits : {48U, 52U}) {
    const std::uint64_t mask = (1ULL << bits) - 1;
    Stack stack(mask);
    const std::uint64_t signature = 0x007e'0000'0000'0000 & ~mask;
    stack.words = {{kStack + 16, 0x7777}, {kStack + 24, kCode | signature}};
    const std::uint64_t x[31] = {};
    stack.unwind->cursor = test::A64Unwinder::cursor(x, kStack, kCode);
    const wl_rule rule = record_rule(32, -16);
    ASSERT_EQ(wl_apply(stack.unwind.get(), &rule, kNoX, kCode), WL_CONTINUE);
    EXPECT_EQ(stack.unwind->cursor.regs[WL_PC], kCode & mask) << bits;
    EXPECT_EQ(stack.unwind->cursor.regs[WL_SP], kStack + 32);
    EXPECT_EQ(stack.unwind->cursor.regs[WL_FP], 0x7777U);

    // By the memo's short way, too.
    stack.unwind->cursor = test::A64Unwinder::cursor(x, kStack, kCode);
    wl_fast fast{kCode, kStack, 0, WL_VALID_ALL, 1};
    ASSERT_EQ(wl_apply_plain(stack.unwind.get(), &fast, wl_memo_value(1, kCode, &rule, 1, kNoX, 0)), WL_CONTINUE);
    EXPECT_EQ(fast.pc, kCode & mask) << bits;
    EXPECT_EQ(fast.sp, kStack + 32);
  }
}

// A thread in the middle of the delivery of a signal: pc and sp are the handler's already, x30 is not.
class Delivery : public testing::Test {
 protected:
  static constexpr std::uint64_t kFrame = 0xffff'0000'1000, kHandler = 0x5555'0000, kInterrupted = 0x5555'1234;
  Stack stack{~0ULL};
  std::uint64_t x[31] = {};
  wl_cursor& cursor = stack.unwind->cursor;

  void SetUp() override {
    for (unsigned i = 0; i < 31; ++i) x[i] = 0x1000 + i;
    for (unsigned i = 0; i < 31; ++i) stack.words[kFrame + WL_SIGFRAME_REGISTERS + i * 8] = x[i];
    stack.words[kFrame + WL_SIGFRAME_REGISTERS + 31 * 8] = kFrame + 0x4000;
    stack.words[kFrame + WL_SIGFRAME_REGISTERS + 32 * 8] = kInterrupted;
    x[0] = 10;  // the signal's number
    x[29] = kFrame + 0x1000;
    cursor = test::A64Unwinder::cursor(x, kFrame, kHandler);
  }
};

TEST_F(Delivery, IsWhereItWasInterrupted) {
  wl_settle(stack.unwind.get());
  EXPECT_EQ(cursor.regs[WL_PC], kInterrupted);
  EXPECT_EQ(cursor.regs[WL_SP], kFrame + 0x4000);
  EXPECT_EQ(cursor.regs[0], 0x1000U);
  EXPECT_EQ(cursor.regs[29], 0x1000U + 29);
}

TEST_F(Delivery, IsOverOnceTheHandlerReturnsToTheTrampoline) {
  cursor.regs[WL_A64_X30] = 0xffff'7777'0000;
  wl_settle(stack.unwind.get());
  EXPECT_EQ(cursor.regs[WL_PC], kHandler);
}

TEST_F(Delivery, IsNotSeenInStaleStack) {
  for (const unsigned reg : {19U, 28U}) {
    cursor.regs[reg] ^= 1;
    wl_settle(stack.unwind.get());
    EXPECT_EQ(cursor.regs[WL_PC], kHandler) << "x" << reg;
    cursor.regs[reg] ^= 1;
  }
  stack.words.erase(kFrame + WL_SIGFRAME_REGISTERS + 31 * 8);
  wl_settle(stack.unwind.get());
  EXPECT_EQ(cursor.regs[WL_PC], kHandler);
}

// A signal frame that restores its own sp, as a damaged stack may hold it.
TEST_F(Delivery, CyclicSignalFramesEnd) {
  stack.words[kFrame + WL_SIGFRAME_REGISTERS + 31 * 8] = kFrame;
  int status = WL_CONTINUE;
  unsigned steps = 0;
  for (; steps < 1000 && status == WL_CONTINUE; ++steps) status = wl_step_signal(stack.unwind.get(), kFrame);
  EXPECT_EQ(status, WL_END_NO_PROGRESS);
  EXPECT_EQ(steps, WL_MAX_BACKWARD_STEPS + 1);
}

// rt_sigreturn's call is the trampoline's last instruction: the pc behind it is other code's.
TEST_F(Delivery, SigreturnStandsAtItsCall) {
  cursor.regs[8] = 139;
  cursor.regs[WL_A64_X30] = 0;
  cursor.regs[WL_PC] = 0x7000'0008;
  stack.words[0x7000'0004] = WL_A64_SVC;
  stack.words[0x7000'0000] = std::uint64_t{WL_A64_SVC} << 32 | WL_A64_MOV_RT_SIGRETURN;
  wl_settle(stack.unwind.get());
  EXPECT_EQ(cursor.regs[WL_PC], 0x7000'0004U);
  cursor.regs[8] = 138;
  cursor.regs[WL_PC] = 0x7000'0008;
  wl_settle(stack.unwind.get());
  EXPECT_EQ(cursor.regs[WL_PC], 0x7000'0008U);
}

}  // namespace
}  // namespace windlass
