// describe() on small functions, and its refusals.
#include "windlass/jit/describe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <initializer_list>
#include <variant>
#include <vector>

namespace windlass {
namespace {

constexpr std::uint64_t kAt = 0x400000;

std::vector<std::byte> code(std::initializer_list<int> bytes) {
  std::vector<std::byte> out;
  for (const int byte : bytes) out.push_back(static_cast<std::byte>(byte));
  return out;
}

Expected<Description> of(std::initializer_list<int> bytes, const DescribeOptions& options = {}) {
  return describe(code(bytes), kAt, Architecture::kX86_64, options);
}

TEST(Describe, FramePointerAndLeave) {
  // push rbp; mov rbp, rsp; push rbx; sub rsp, 24; call; mov rbx, [rbp - 8]; leave; ret
  const auto found =
      of({0x55, 0x48, 0x89, 0xe5, 0x53, 0x48, 0x83, 0xec, 0x18, 0xe8, 0, 0, 1, 0, 0x48, 0x8b, 0x5d, 0xf8, 0xc9, 0xc3});
  ASSERT_TRUE(found);
  EXPECT_TRUE(found->whole());
  ASSERT_TRUE(found->prologue) << found->no_prologue;
  const Prologue& f = *found->prologue;
  ASSERT_EQ(f.ops.size(), 4u);
  EXPECT_EQ(f.ops[0].end, 1u);
  EXPECT_EQ(std::get<prologue::Save>(f.ops[0].action).reg, 6);
  EXPECT_EQ(f.ops[1].end, 4u);
  EXPECT_EQ(std::get<prologue::SetFramePointer>(f.ops[1].action).reg, 6);
  EXPECT_EQ(f.ops[2].end, 5u);
  EXPECT_EQ(std::get<prologue::Save>(f.ops[2].action).reg, 3);
  EXPECT_EQ(f.ops[3].end, 9u);
  EXPECT_EQ(std::get<prologue::Allocate>(f.ops[3].action).size, 24u);
  ASSERT_EQ(f.epilogues.size(), 1u);
  EXPECT_EQ(f.epilogues[0].begin, 18u);
  EXPECT_EQ(f.epilogues[0].end, 20u);
  EXPECT_TRUE(f.parts.empty());
  EXPECT_TRUE(check(f));
}

TEST(Describe, MoreOnTheStackOnOneWayOnlyIsAPart) {
  // push rbx; test edi, edi; je 1f; push rdi; call; pop rdi; 1: pop rbx; ret
  const auto found = of({0x53, 0x85, 0xff, 0x74, 0x07, 0x57, 0xe8, 0, 0, 1, 0, 0x5f, 0x5b, 0xc3});
  ASSERT_TRUE(found && found->prologue);
  ASSERT_EQ(found->prologue->ops.size(), 1u);
  ASSERT_EQ(found->prologue->parts.size(), 1u);
  EXPECT_EQ(found->prologue->parts[0].begin, 5u);
  EXPECT_EQ(found->prologue->parts[0].end, 12u);
  ASSERT_EQ(found->prologue->epilogues.size(), 1u);
  EXPECT_EQ(found->prologue->epilogues[0].begin, 12u);
}

TEST(Describe, ACallThatNeverReturnsIsToldByTheOtherWay) {
  // test edi, edi; je 1f; push rax; call; 1: ret
  const auto found = of({0x85, 0xff, 0x74, 0x06, 0x50, 0xe8, 0, 0, 1, 0, 0xc3});
  ASSERT_TRUE(found);
  EXPECT_TRUE(found->whole());
  EXPECT_EQ(found->rows.back().cfa, CfaRule::at(7, 8));
}

// What is called lies in the line of 64 bytes that the caller ends in: it is read at a line's granularity.
TEST(Describe, CodeBeforeItsNeighbourThatItCalls) {
  for (const unsigned end : {0x43U, 0x7fU}) {
    auto bytes = code({0x53, 0xe8, 0, 0, 0, 0});  // push rbx; call
    const auto distance = static_cast<unsigned char>(end + 1 - bytes.size());
    bytes[2] = std::byte{distance};
    bytes.resize(end - 5, std::byte{0x90});
    for (const int byte : {0x8d, 0x04, 0x40, 0x5b, 0xc3})
      bytes.push_back(static_cast<std::byte>(byte));  // lea; pop rbx; ret
    const auto found = describe(bytes, kAt, Architecture::kX86_64);
    ASSERT_TRUE(found);
    EXPECT_TRUE(found->whole()) << end;
    EXPECT_EQ(found->rows.back().end, end);
  }
}

TEST(Describe, AnEntryBehindCodeThatIsNoneMakesNoPrologue) {
  const std::uint32_t entries[] = {1};
  DescribeOptions options;
  options.entries = entries;
  const auto found = of({0x06, 0x90, 0xc3}, options);  // no instruction of x86-64; 1: nop; ret
  ASSERT_TRUE(found);
  ASSERT_EQ(found->rows.size(), 1u);
  EXPECT_EQ(found->rows[0].begin, 1u);
  EXPECT_FALSE(found->prologue);
  EXPECT_STREQ(found->no_prologue, "the first instruction is not that of a function");
}

// AArch64 saves registers of one kind in pairs, never one of each.
TEST(Describe, NeighboursOfTwoKindsAreNoPair) {
  // sub sp, sp, #16; str x19, [sp, #8]; str d8, [sp]; nop; ldr d8, [sp]; ldr x19, [sp, #8]; add sp, sp, #16; ret
  const std::uint32_t words[] = {0xd10043ff, 0xf90007f3, 0xfd0003e8, 0xd503201f,
                                 0xfd4003e8, 0xf94007f3, 0x910043ff, 0xd65f03c0};
  const auto found = describe(std::as_bytes(std::span(words)), kAt, Architecture::kAArch64, {});
  ASSERT_TRUE(found && found->prologue) << (found ? found->no_prologue : "");
  std::vector<prologue::Op> ops = found->prologue->ops;
  ASSERT_EQ(found->prologue->epilogues.size(), 1u);
  for (const prologue::Op& op : found->prologue->epilogues[0].undone) ops.push_back(op);
  unsigned saves = 0;
  for (const prologue::Op& op : ops) {
    const auto* save = std::get_if<prologue::Save>(&op.action);
    if (save == nullptr) continue;
    ++saves;
    EXPECT_EQ(save->second, prologue::kNoRegister) << save->reg;
  }
  EXPECT_EQ(saves, 4u);
}

TEST(Describe, WaysWithDifferentFrames) {
  // test edi, edi; je 1f; push rax; 1: ret
  const auto found = of({0x85, 0xff, 0x74, 0x01, 0x50, 0xc3});
  ASSERT_TRUE(found);
  ASSERT_EQ(found->unproved.size(), 1u);
  EXPECT_EQ(found->unproved[0].reason, Unproved::kDifferentFrames);
  EXPECT_EQ(found->unproved[0].begin, 5u);
  EXPECT_EQ(found->unproved[0].depths[0] + found->unproved[0].depths[1], 24);
}

TEST(Describe, ALandingPadIsReachedWhereItIsToldOf) {
  // sub rsp, 8; call; add rsp, 8; ret; mov rdi, rax; call (never returns)
  const auto bytes =
      code({0x48, 0x83, 0xec, 8, 0xe8, 0, 0, 1, 0, 0x48, 0x83, 0xc4, 8, 0xc3, 0x48, 0x89, 0xc7, 0xe8, 0, 0, 1, 0});
  const auto without = describe(bytes, kAt, Architecture::kX86_64);
  ASSERT_TRUE(without);
  ASSERT_EQ(without->unproved.size(), 1u);
  EXPECT_EQ(without->unproved[0].reason, Unproved::kNotReached);
  EXPECT_EQ(without->unproved[0].begin, 14u);
  const LandingPad pads[] = {{4, 9, 14}};
  DescribeOptions options;
  options.landing_pads = pads;
  const auto with = describe(bytes, kAt, Architecture::kX86_64, options);
  ASSERT_TRUE(with);
  EXPECT_TRUE(with->whole());
  EXPECT_EQ(with->rows.back().cfa, CfaRule::at(7, 16));
}

TEST(Describe, WhatDoesNotReturnIsNotPassed) {
  DescribeOptions options;
  options.returns = [](std::uint64_t target) { return target != kAt + 0x1000a; };
  // push rbx; call; pop rbx; ret
  const auto found = of({0x53, 0x90, 0x90, 0x90, 0x90, 0xe8, 0, 0, 1, 0, 0x5b, 0xc3}, options);
  ASSERT_TRUE(found);
  ASSERT_EQ(found->unproved.size(), 1u);
  EXPECT_EQ(found->unproved[0].begin, 10u);
}

TEST(Describe, AReturnAddressThatIsOverwrittenIsNotWhereItWas) {
  // pop rcx; push rax; push rcx; ret: another argument below the return address
  const auto found = of({0x59, 0x50, 0x51, 0xc3});
  ASSERT_TRUE(found);
  ASSERT_FALSE(found->rows.empty());
  EXPECT_EQ(found->rows.back().return_address, RegisterRule::at_cfa(-16));
  EXPECT_FALSE(found->prologue);
  EXPECT_NE(found->no_prologue, nullptr);
}

TEST(Describe, WindowsCallsKeepRsiAndRdi) {
  // push rdi; sub rsp, 32; call; add rsp, 32; pop rdi; ret
  const std::initializer_list<int> bytes = {0x57, 0x48, 0x83, 0xec, 0x20, 0xe8, 0,    0,
                                            1,    0,    0x48, 0x83, 0xc4, 0x20, 0x5f, 0xc3};
  DescribeOptions options;
  options.windows_calls = true;
  const auto found = of(bytes, options);
  ASSERT_TRUE(found && found->prologue);
  EXPECT_EQ(std::get<prologue::Save>(found->prologue->ops[0].action).reg, 5);
  const auto other = of(bytes);
  ASSERT_TRUE(other && other->prologue);
  EXPECT_TRUE(std::holds_alternative<prologue::Allocate>(other->prologue->ops[0].action));
}

TEST(Describe, CodeThatKeepsTheFramePointerOnly) {
  // push rbp; mov rbp, rsp; test edi, edi; jne 1f; xor ebx, ebx; call; xor eax, eax; 1: leave; ret
  const std::initializer_list<int> bytes = {0x55, 0x48, 0x89, 0xe5, 0x85, 0xff, 0x75, 0x09, 0x31, 0xdb,
                                            0xe8, 0,    0,    1,    0,    0x31, 0xc0, 0xc9, 0xc3};
  const auto by_convention = of(bytes);
  ASSERT_TRUE(by_convention);
  ASSERT_EQ(by_convention->unproved.size(), 1u);  // a function that keeps rbx does not come back from that call
  EXPECT_EQ(by_convention->unproved[0].begin, 15u);
  const auto found = of(bytes, {.keeps_frame_pointer_only = true});
  ASSERT_TRUE(found);
  EXPECT_TRUE(found->whole());
  for (const FrameRow& row : found->rows) EXPECT_EQ(row.registers.find(3), nullptr);
  EXPECT_NE(found->rows[1].registers.find(6), nullptr);
  EXPECT_TRUE(found->prologue);
}

TEST(Describe, CodeThatDropsItsArguments) {
  // push rbp; mov rbp, rsp; mov rsp, rbp; pop rbp; pop r10; lea rsp, [rsp + rcx * 8]; push r10; ret
  const std::initializer_list<int> bytes = {0x55, 0x48, 0x89, 0xe5, 0x48, 0x8b, 0xe5, 0x5d, 0x41,
                                            0x5a, 0x48, 0x8d, 0x24, 0xcc, 0x41, 0x52, 0xc3};
  const auto by_convention = of(bytes, {.keeps_frame_pointer_only = true});
  ASSERT_TRUE(by_convention);
  ASSERT_EQ(by_convention->unproved.size(), 1u);
  EXPECT_EQ(by_convention->unproved[0].begin, 14u);
  const auto found = of(bytes, {.keeps_frame_pointer_only = true, .drops_arguments = true});
  ASSERT_TRUE(found);
  EXPECT_TRUE(found->whole());
  ASSERT_GE(found->rows.size(), 2u);
  const FrameRow &in_register = *(found->rows.end() - 2), &pushed = found->rows.back();
  EXPECT_LE(in_register.begin, 14u);
  EXPECT_EQ(in_register.cfa, CfaRule::at(7, 0));
  EXPECT_EQ(in_register.return_address, RegisterRule::in_register(10));
  EXPECT_EQ(pushed.begin, 16u);
  EXPECT_EQ(pushed.cfa, CfaRule::at(7, 8));
  EXPECT_EQ(pushed.return_address, RegisterRule::at_cfa(-8));
}

// The loop pushes any number of words with the return address in r10, and jumps to another function.
TEST(Describe, ArgumentsArePushedWithTheReturnAddressInARegister) {
  // pop r10; jmp 2f; 1: push [rbx]; 2: dec ecx; jge 1b; push r10; jmp rdi
  const std::initializer_list<int> bytes = {0x41, 0x5a, 0xeb, 0x02, 0xff, 0x33, 0xff,
                                            0xc9, 0x7d, 0xfa, 0x41, 0x52, 0xff, 0xe7};
  const auto found = of(bytes, {.keeps_frame_pointer_only = true, .drops_arguments = true});
  ASSERT_TRUE(found);
  EXPECT_TRUE(found->whole());
  EXPECT_EQ(found->rows.back().begin, 12u);
  EXPECT_EQ(found->rows.back().return_address, RegisterRule::at_cfa(-8));
  EXPECT_EQ((found->rows.end() - 2)->return_address, RegisterRule::in_register(10));
}

// As V8's WasmLiftoffFrameSetup: one way calls what takes arguments off the stack, behind which nothing of sp is known.
TEST(Describe, WaysThatJoinHaveTheReturnAddressInOnePlace) {
  // pop rdi; push rbp; mov rbp, rsp; je 2f; 1: push rdi; ret; 2: push rdi; call; pop rdi; jmp 1b
  const std::initializer_list<int> bytes = {0x5f, 0x55, 0x48, 0x89, 0xe5, 0x74, 0x02, 0x57, 0xc3,
                                            0x57, 0xe8, 0,    0,    1,    0,    0x5f, 0xeb, 0xf5};
  const auto found = of(bytes, {.keeps_frame_pointer_only = true, .drops_arguments = true});
  ASSERT_TRUE(found);
  for (const std::uint64_t at : {5U, 7U}) {
    const auto row = std::ranges::find_if(found->rows, [&](const FrameRow& r) { return r.begin <= at && at < r.end; });
    ASSERT_NE(row, found->rows.end()) << at;
    EXPECT_EQ(row->cfa, CfaRule::at(6, 8)) << at;
    EXPECT_EQ(row->return_address, RegisterRule::in_register(5)) << at;
  }
}

TEST(Describe, FurtherEntriesHaveTheFrameOfACall) {
  // sub rsp, 8; call; add rsp, 8; ret; 14: mov rbx, 0; jmp
  const std::initializer_list<int> bytes = {0x48, 0x83, 0xec, 8, 0xe8, 0, 0, 1, 0, 0x48, 0x83, 0xc4, 8, 0xc3, 0x48,
                                            0xbb, 0,    0,    0, 0,    0, 0, 0, 0, 0xe9, 0,    0,    1, 0};
  const auto without = of(bytes);
  ASSERT_TRUE(without);
  ASSERT_EQ(without->unproved.size(), 1u);
  EXPECT_EQ(without->unproved[0].begin, 14u);
  const std::uint32_t entries[] = {14, 1000};  // what is outside of the code is none
  DescribeOptions options;
  options.entries = entries;
  const auto with = of(bytes, options);
  ASSERT_TRUE(with);
  EXPECT_TRUE(with->whole());
  EXPECT_EQ(with->rows.back().cfa, CfaRule::at(7, 8));
}

TEST(Describe, BehindWhatIsNotWrittenYet) {
  // sub rsp, 8; 4: jmp 19; zeros; 14: add rsp, 8; ret; 19: call; jmp 4
  const auto found = of({0x48, 0x83, 0xec, 8,    0xe9, 10, 0, 0, 0, 0,    0,    0,    0,    0,   0x48,
                         0x83, 0xc4, 8,    0xc3, 0xe8, 0,  0, 1, 0, 0xe9, 0xe7, 0xff, 0xff, 0xff});
  ASSERT_TRUE(found);
  EXPECT_TRUE(found->whole());
  ASSERT_TRUE(found->prologue) << found->no_prologue;
  ASSERT_EQ(found->prologue->epilogues.size(), 1u);
  EXPECT_EQ(found->prologue->epilogues[0].begin, 14u);
}

TEST(Describe, Aarch64FrameRecord) {
  // stp x29, x30, [sp, #-32]!; mov x29, sp; str x19, [sp, #16]; bl; ldr x19, [sp, #16]; ldp x29, x30, [sp], #32; ret
  const std::uint32_t words[] = {0xa9be7bfd, 0x910003fd, 0xf9000bf3, 0x94004000, 0xf9400bf3, 0xa8c27bfd, 0xd65f03c0};
  const auto found = describe(std::as_bytes(std::span(words)), kAt, Architecture::kAArch64);
  ASSERT_TRUE(found);
  EXPECT_TRUE(found->whole());
  ASSERT_TRUE(found->prologue) << found->no_prologue;
  ASSERT_EQ(found->prologue->ops.size(), 3u);
  const auto& pair = std::get<prologue::Save>(found->prologue->ops[0].action);
  EXPECT_EQ(pair.reg, 29);
  EXPECT_EQ(pair.second, 30);
  EXPECT_EQ(pair.allocate, 32u);
  ASSERT_EQ(found->prologue->epilogues.size(), 1u);
}

TEST(Describe, Errors) {
  EXPECT_EQ(describe({}, kAt, Architecture::kX86_64).error().code, ErrorCode::kOutOfRange);
  EXPECT_EQ(describe(code({0xc3}), kAt, Architecture::kI386).error().code, ErrorCode::kUnsupported);
  const auto garbage = of({0x06, 0x06});
  ASSERT_TRUE(garbage);
  ASSERT_FALSE(garbage->whole());
  EXPECT_EQ(garbage->unproved[0].reason, Unproved::kNotFollowed);
  EXPECT_FALSE(garbage->prologue);
}

}  // namespace
}  // namespace windlass
