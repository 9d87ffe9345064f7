// The code by which OCaml 5's runtime changes stacks, as its amd64.S assembles: which instructions run on another stack
// than their caller's, and by what rule they are left.
#include <gtest/gtest.h>

#include <string_view>
#include <vector>

#include "base/registers.h"
#include "lookup/sources/ocaml_stacks.h"
#include "lookup/table/project.h"
#include "support/pe_file.h"

namespace windlass {
namespace {

using sources::OcamlStacks;
using test::Bytes;
using test::PeFile;

constexpr std::uint32_t kText = 0x1000;

// caml_c_call: mov r10, [r14 + 0x28]; mov [r10], rsp; mov r11, [r14 + 0x40]; mov [r11 + 0x28], rsp; mov rsp, r11;
// call rax; mov rsp, [rsp + 0x28]; ret
const std::vector<std::uint8_t> kCall = {0x4d, 0x8b, 0x56, 0x28, 0x49, 0x89, 0x22, 0x4d, 0x8b, 0x5e, 0x40, 0x49, 0x89,
                                         0x63, 0x28, 0x4c, 0x89, 0xdc, 0xff, 0xd0, 0x48, 0x8b, 0x64, 0x24, 0x28, 0xc3};
// caml_c_call_stack_args: mov [r11 + 0x28], rsp; mov rsp, r11; mov rbx, rsp; push [r12]; call rax; mov rsp, [r14 +
// 0x40]; mov rsp, [rsp + 0x28]; ret
const std::vector<std::uint8_t> kArguments = {0x49, 0x89, 0x63, 0x28, 0x4c, 0x89, 0xdc, 0x48, 0x89,
                                              0xe3, 0x41, 0xff, 0x34, 0x24, 0xff, 0xd0, 0x49, 0x8b,
                                              0x66, 0x40, 0x48, 0x8b, 0x64, 0x24, 0x28, 0xc3};
// caml_start_program: mov [r10], rsp; sub r10, 16; mov rsp, r10; call r12; mov rsp, [r14 + 0x40]; add rsp, 0xd8; and
// pops of r15, r14, r13, r12, rdi, rsi, rbp, rbx; ret
const std::vector<std::uint8_t> kStart = {0x49, 0x89, 0x22, 0x49, 0x83, 0xea, 0x10, 0x4c, 0x89, 0xd4, 0x41, 0xff, 0xd4,
                                          0x49, 0x8b, 0x66, 0x40, 0x48, 0x81, 0xc4, 0xd8, 0,    0,    0,    0x41, 0x5f,
                                          0x41, 0x5e, 0x41, 0x5d, 0x41, 0x5c, 0x5f, 0x5e, 0x5d, 0x5b, 0xc3};
// caml_runstack: mov rsp, r11; call [rbx]; lea r11, [rsp + 0x20]; mov r10, [r11 + 0x18]; mov r13, [r10];
// mov rsp, [r14 + 0x40]; call rax; mov rsp, r13; jmp [rbx]
const std::vector<std::uint8_t> kFiber = {0x4c, 0x89, 0xdc, 0xff, 0x13, 0x4c, 0x8d, 0x5c, 0x24, 0x20,
                                          0x4d, 0x8b, 0x53, 0x18, 0x4d, 0x8b, 0x2a, 0x49, 0x8b, 0x66,
                                          0x40, 0xff, 0xd0, 0x4c, 0x89, 0xec, 0xff, 0x23};

std::vector<std::uint8_t> file_with(const std::vector<std::uint8_t>& code, std::string_view end) {
  Bytes symbols, strings;
  const auto symbol = [&](std::string_view name, std::uint32_t value) {
    symbols.u32(0).u32(4 + strings.size()).u32(value).u16(1).u16(0x20).u8(2).u8(0);
    for (const char letter : name) strings.u8(static_cast<std::uint8_t>(letter));
    strings.u8(0);
  };
  symbol("caml_system__code_begin", 0);
  symbol(end, static_cast<std::uint32_t>(code.size()));
  PeFile file;
  file.headers_size = 0x1000;
  file.image_size = 0x3000;
  file.sections = {{".text", kText, code, true}};
  file.symbols = symbols;
  file.strings = strings;
  return file.build(PeFile::kPacked);
}

struct Read {
  explicit Read(const std::vector<std::uint8_t>& code, std::string_view end = "caml_system__code_end")
      : bytes(file_with(code, end)),
        stacks(OcamlStacks::read(*image::PeImage::parse(ByteView(std::span<const std::uint8_t>(bytes))))) {}
  std::vector<std::uint8_t> bytes;
  OcamlStacks stacks;
};

TEST(OcamlStacks, ACallOfCHasKeptItsCallersStack) {
  const Read read(kCall);
  ASSERT_EQ(read.stacks.rows().size(), 1U);
  const FrameRow& row = read.stacks.rows()[0];
  EXPECT_EQ(row.begin, kText + 18);
  EXPECT_EQ(row.end, kText + 25) << "up to the load of rsp";
  EXPECT_EQ(row.cfa, CfaRule::loaded(x86_64::kRsp, 0x28, 8));
  EXPECT_EQ(row.return_address, RegisterRule::at_cfa(-8));
  EXPECT_EQ(read.stacks.row_at(kText + 19), &row) << "the last byte of the call";
  EXPECT_EQ(read.stacks.row_at(kText + 17), nullptr);
  EXPECT_EQ(read.stacks.row_at(kText + 25), nullptr);
}

TEST(OcamlStacks, ArgumentsOnTheStackAreAboveAPreservedRegister) {
  const auto& read = Read(kArguments);
  ASSERT_EQ(read.stacks.rows().size(), 3U);
  EXPECT_EQ(read.stacks.row_at(kText + 15)->cfa, CfaRule::loaded(x86_64::kRbx, 0x28, 8));
  EXPECT_EQ(read.stacks.row_at(kText + 20)->cfa, CfaRule::loaded(x86_64::kRsp, 0x28, 8));
}

TEST(OcamlStacks, ACallOfOcamlHasKeptTheFrameOfC) {
  const Read read(kStart);
  ASSERT_EQ(read.stacks.rows().size(), 1U);
  const FrameRow& row = read.stacks.rows()[0];
  EXPECT_EQ(row.begin, kText + 10);
  EXPECT_EQ(row.end, kText + 13) << "behind the call rsp may be that of a handler of exceptions";
  EXPECT_EQ(row.cfa, CfaRule::loaded(x86_64::kRsp, 0x10, 0x120));
  EXPECT_EQ(*row.registers.find(x86_64::kRbp), RegisterRule::at_cfa(-24));
  EXPECT_EQ(*row.registers.find(x86_64::kR15), RegisterRule::at_cfa(-72));
  // Such a frame is larger than a rule's bytes can say, so the rule counts words.
  const table::TraceRule rule = table::project(row, Architecture::kX86_64, WL_NO_XREG);
  EXPECT_EQ(rule.cfa_kind, WL_CFA_MEM);
  EXPECT_EQ(rule.flags, WL_RULE_WORDS);
  EXPECT_EQ(rule.cfa_arg, 0x120 / 8);
  EXPECT_EQ(rule.cfa_offset, 0x10);
}

TEST(OcamlStacks, AFiberLeadsToItsParentByTheHandler) {
  const Read read(kFiber);
  ASSERT_EQ(read.stacks.rows().size(), 2U);
  const FrameRow& row = read.stacks.rows()[0];
  EXPECT_EQ(row.begin, kText + 3);
  EXPECT_EQ(row.end, kText + 5);
  ASSERT_TRUE(row.cfa.is(CfaRule::kExpression));
  const ByteView expression = row.expression(row.cfa);
  const std::vector<std::uint8_t> expected = {0x77, 0x38, 0x06, 0x06, 0x23, 0x08};  // [[rsp + 0x38]] + 8
  EXPECT_EQ(std::vector<std::uint8_t>(expression.u8(), expression.u8() + expression.size()), expected);
  EXPECT_EQ(read.stacks.rows()[1].cfa, CfaRule::at(13, 8)) << "while the fiber's stack is freed";
}

TEST(OcamlStacks, OtherCodeHasNone) {
  EXPECT_TRUE(Read(kCall, "other").stacks.rows().empty()) << "no symbol says where the code ends";
  std::vector<std::uint8_t> other = kStart;
  other[32] = 0x90;  // a register that is not restored
  EXPECT_TRUE(Read(other).stacks.rows().empty());
  other = kStart;
  other[2] = 0x20;  // mov [r8], rsp
  EXPECT_TRUE(Read(other).stacks.rows().empty());
  EXPECT_TRUE(Read({0x06, 0x06}).stacks.rows().empty()) << "no code";
}

}  // namespace
}  // namespace windlass
