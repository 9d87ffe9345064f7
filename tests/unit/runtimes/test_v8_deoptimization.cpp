// Builtins_DeoptimizationEntry_*, written by hand: what is read in its code.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "runtimes/v8/deoptimization.h"
#include "runtimes/v8/described.h"

namespace windlass::runtimes::v8 {
namespace {

const std::vector<std::uint8_t> kCode = {
    0x4c, 0x89, 0x14, 0x24,                 // 0: mov [rsp], r10
    0xff, 0xd0,                             // 4: call rax
    0x48, 0x8b, 0x24, 0x24,                 // 6: mov rsp, [rsp]
    0x48, 0x8b, 0x58, 0x50,                 // 10: mov rbx, [rax + 0x50]
    0x8f, 0x83, 0x88, 0,    0,    0,        // 14: pop [rbx + 0x88]
    0x48, 0x83, 0xc4, 0x08,                 // 20: add rsp, 8
    0x48, 0x8b, 0x0b,                       // 24: mov rcx, [rbx]
    0x48, 0x01, 0xe1,                       // 27: add rcx, rsp
    0x48, 0x8d, 0x93, 0xc8, 0x01, 0, 0,     // 30: lea rdx, [rbx + 0x1c8]
    0xe9, 0x06, 0,    0,    0,              // 37: jmp 48
    0x8f, 0x02,                             // 42: pop [rdx]
    0x48, 0x83, 0xc2, 0x08,                 // 44: add rdx, 8
    0x48, 0x39, 0xe1,                       // 48: cmp rcx, rsp
    0x75, 0xf5,                             // 51: jne 42
    0x50,                                   // 53: push rax
    0x49, 0x89, 0xe2,                       // 54: mov r10, rsp
    0x48, 0x83, 0xec, 0x08,                 // 57: sub rsp, 8
    0x48, 0x83, 0xe4, 0xf0,                 // 61: and rsp, -16
    0x4c, 0x89, 0x14, 0x24,                 // 65: mov [rsp], r10
    0x48, 0x8b, 0xf8,                       // 69: mov rdi, rax
    0xff, 0xd0,                             // 72: call rax
    0x49, 0xc7, 0x45, 0x68, 0,    0, 0, 0,  // 74: mov [r13 + 0x68], 0
    0x48, 0x8b, 0x24, 0x24,                 // 82: mov rsp, [rsp]
    0x58,                                   // 86: pop rax
    0x48, 0x8b, 0x60, 0x68,                 // 87: mov rsp, [rax + 0x68]
    0xc3,                                   // 91: ret
};

std::optional<Deoptimization> read(const std::vector<std::uint8_t>& code) {
  return Deoptimization::read({reinterpret_cast<const std::byte*>(code.data()), code.size()}, 0x10000);
}

TEST(V8Deoptimization, SaysWhereItPutsTheFrame) {
  const auto found = read(kCode);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->left, 24U);
  EXPECT_EQ(found->measured, 30U);
  EXPECT_EQ(found->kept, 69U);
  EXPECT_EQ(found->returned, 86U);
  EXPECT_EQ(found->dropped, 87U);
  EXPECT_EQ(found->end, 91U);
  EXPECT_EQ(found->held().input, 0x50);
  EXPECT_EQ(found->held().content, 0x1c8);
  EXPECT_EQ(found->held().there, 1);
}

// Cut anywhere, or with any other instruction in the place of one that counts.
TEST(V8Deoptimization, OtherCodeSaysNothing) {
  for (std::size_t size = 0; size < 91; ++size)
    EXPECT_FALSE(read({kCode.begin(), kCode.begin() + static_cast<std::ptrdiff_t>(size)})) << size;
  for (const std::size_t at : {0U, 10U, 20U, 24U, 27U, 30U, 42U, 53U, 65U, 82U, 87U}) {
    std::vector<std::uint8_t> code = kCode;
    code[at] = 0x90;
    EXPECT_FALSE(read(code)) << at;
  }
  std::vector<std::uint8_t> code = kCode;
  code.insert(code.end(), kCode.begin(), kCode.end());
  EXPECT_FALSE(read(code)) << "which of the two?";
}

TEST(V8Deoptimization, RowsLeadToTheCallersFrame) {
  const auto found = read(kCode);
  ASSERT_TRUE(found);
  const std::vector<std::uint8_t> bytes = found->expressions();
  Description description;
  description.rows = {entry_row(0, kCode.size())};
  description.unproved = {{8, 44, Unproved::kFrameLost, {}}, {found->end, found->end + 4, Unproved::kNotReached, {}}};
  if (found->aligned != 0)
    description.unproved.insert(description.unproved.begin(), {0, found->aligned, Unproved::kNotReached, {}});
  found->describe({reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()}, description);
  for (const Unproved& it : description.unproved) EXPECT_EQ(it.reason, Unproved::kNotReached) << it.begin;
  EXPECT_EQ(description.unproved.size(), found->aligned != 0 ? 2U : 1U) << "what lies in front and behind stays";
  EXPECT_TRUE(std::ranges::is_sorted(description.rows, {}, &FrameRow::begin));
  const auto row_at = [&](std::uint64_t at) {
    const auto row =
        std::ranges::find_if(description.rows, [&](const FrameRow& it) { return at >= it.begin && at < it.end; });
    EXPECT_NE(row, description.rows.end()) << at;
    return row != description.rows.end() ? *row : FrameRow();
  };
  EXPECT_EQ(row_at(4).cfa, CfaRule::loaded(7, 0, 16));
  EXPECT_EQ(row_at(10).cfa, CfaRule::at(7, 16)) << "one register is still there";
  EXPECT_EQ(row_at(14).cfa, CfaRule::at(7, 16));
  EXPECT_EQ(row_at(20).cfa, CfaRule::at(7, 8)) << "as it was entered";
  EXPECT_EQ(row_at(23).cfa, CfaRule::at(7, 8));
  EXPECT_EQ(row_at(24).cfa, CfaRule::at(6, 16));
  EXPECT_EQ(row_at(42).cfa, CfaRule::at(2, 0));
  EXPECT_EQ(row_at(65).return_address, RegisterRule::at_register(6, 8));
  EXPECT_EQ(row_at(74).cfa, CfaRule::loaded(7, 0, 8));
  EXPECT_EQ(row_at(86).cfa, CfaRule::at(7, 8));
  EXPECT_EQ(row_at(87).cfa, CfaRule::at(7, 0));
  EXPECT_EQ(row_at(91).cfa, CfaRule::at(7, 8)) << "what was found by following the code";
  const FrameRow row = row_at(74);
  EXPECT_TRUE(row.return_address.is(RegisterRule::kAtExpression));
  // dup, 8, minus, deref, plus_uconst 0x50, deref, dup, deref, plus, swap, minus, breg6 (rbp) + 0x1c8 + 8, plus
  const std::vector<std::uint8_t> expected = {0x12, 0x38, 0x1c, 0x06, 0x23, 0x50, 0x06, 0x12,
                                              0x06, 0x22, 0x16, 0x1c, 0x76, 0xd0, 0x03, 0x22};
  const ByteView expression = row.expression(row.return_address);
  EXPECT_TRUE(std::ranges::equal(expected, std::span(expression.u8(), expression.size())));
}

}  // namespace
}  // namespace windlass::runtimes::v8
