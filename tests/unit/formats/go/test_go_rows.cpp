// The rows of a Go program's functions, made up here: prologues as Go's compilers write them, and what the runtime's
// own functions do.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <ucontext.h>

#include <string>
#include <vector>

#include "base/registers.h"
#include "formats/go/rows.h"
#include "support/fake_go.h"

namespace windlass::runtimes::go {
namespace {

namespace fake = test::fake_go;

std::string text_of(const RegisterRule& rule) {
  switch (rule.kind()) {
    case RegisterRule::kUndefined: return "nowhere";
    case RegisterRule::kAtCfa: return fmt::format("[cfa{:+}]", rule.offset());
    case RegisterRule::kInRegister: return fmt::format("r{}", rule.reg());
    case RegisterRule::kAtRegister: return fmt::format("[r{}{:+}]", rule.reg(), rule.offset());
    default: return "?";
  }
}

std::string text_of_cfa(const FrameRow& row) {
  if (row.cfa.is(CfaRule::kRegister)) return fmt::format("r{}{:+}", row.cfa.reg(), row.cfa.offset());
  if (row.cfa.is(CfaRule::kLoaded))
    return fmt::format("[r{}{:+}]{:+}", row.cfa.reg(), row.cfa.offset(), row.cfa.addend());
  const ByteView expression = row.expression(row.cfa);
  if (expression.empty()) return "nothing";
  if (const auto movable = dwarf::movable_stack(expression))
    return fmt::format("kept {:#x} {} {:#x} +{}", movable->owner, movable->top, movable->depth, movable->addend);
  const auto thread = dwarf::switched_stack(expression, row.expression(row.return_address));
  if (!thread) return "?";
  return fmt::format("thread {} {:#x} {:#x} {:#x} +{}{}", thread->thread, thread->offsets[0], thread->offsets[1],
                     thread->offsets[2], thread->addend, thread->saves_pc ? " and pc" : "");
}

// "0-1 r7+8 pc=[cfa-8]": addresses count from the function's begin.
std::string text_of(const FrameRow& row, std::uint64_t begin) {
  std::string text = fmt::format("{}-{} {}", row.begin - begin, row.end - begin, text_of_cfa(row));
  if (!row.return_address.is_expression()) text += " pc=" + text_of(row.return_address);
  const bool left = dwarf::leaves_switched_stack(row);
  for (const RegisterEntry& entry : row.registers)
    if (!left || !entry.rule.is_expression()) text += fmt::format(" r{}={}", entry.reg, text_of(entry.rule));
  return text + (row.signal_frame ? " interrupted" : "") + (left ? " left" : "");
}

using Rows = std::vector<std::string>;

Rows rows_of(fake::Program& program, std::uint64_t begin) {
  const GoRows rows(program.table(), program.image());
  const auto function = rows.map().function_at(begin);
  EXPECT_TRUE(function);
  Rows found;
  const auto done =
      rows.for_each_row(*function, [&](const FrameRow& row) { found.push_back(text_of(row, function->begin)); });
  if (!done) found.push_back(done.error().what);
  // The row at each address is the one that says so.
  for (std::uint64_t at = rows.begin_of(*function); at < function->end; ++at) {
    FrameRow row;
    const auto there = rows.row_at(at, row);
    if (!there) continue;
    EXPECT_TRUE(row.begin <= at && at < row.end) << at;
    EXPECT_NE(std::ranges::find(found, text_of(row, function->begin)), found.end()) << at;
  }
  return found;
}

// ---- what Go's compilers write
// --------------------------------------------------------------------------------------

Rows rows_of_code(const fake::Code& code, const std::vector<fake::Program::Stretch>& stack,
                  Architecture architecture = Architecture::kX86_64) {
  fake::Program program(architecture);
  const std::uint64_t begin = program.add("main.f", code, stack);
  program.add("main.next", fake::Code(16, 0x90), {{16, 0}});
  return rows_of(program, begin);
}

// push rbp; mov rbp, rsp; sub rsp, 16; nop; add rsp, 16; pop rbp; ret
TEST(GoRows, APushedFramePointerIsUnderTheReturnAddress) {
  EXPECT_EQ(rows_of_code({0x55, 0x48, 0x89, 0xe5, 0x48, 0x83, 0xec, 0x10, 0x90, 0x48, 0x83, 0xc4, 0x10, 0x5d, 0xc3},
                         {{1, 0}, {7, 8}, {5, 24}, {1, 8}, {1, 0}}),
            (Rows{"0-1 r7+8 pc=[cfa-8]", "1-8 r7+16 pc=[cfa-8] r6=[cfa-16]", "8-13 r7+32 pc=[cfa-8] r6=[cfa-16]",
                  "13-14 r7+16 pc=[cfa-8] r6=[cfa-16]", "14-15 r7+8 pc=[cfa-8]"}));
}

// sub rsp, 24; mov [rsp + 16], rbp; lea rbp, [rsp + 16]; nop; mov rbp, [rsp + 16]; add rsp, 24; ret
const fake::Code kStores = {0x48, 0x83, 0xec, 0x18, 0x48, 0x89, 0x6c, 0x24, 0x10, 0x48, 0x8d, 0x6c, 0x24,
                            0x10, 0x90, 0x48, 0x8b, 0x6c, 0x24, 0x10, 0x48, 0x83, 0xc4, 0x18, 0xc3};

TEST(GoRows, AStoredFramePointerIsThereBehindTheStore) {
  const std::vector<fake::Program::Stretch> stack = {{4, 0}, {20, 24}, {1, 0}};
  EXPECT_EQ(rows_of_code(kStores, stack), (Rows{"0-4 r7+8 pc=[cfa-8]", "4-9 r7+32 pc=[cfa-8]",
                                                "9-24 r7+32 pc=[cfa-8] r6=[cfa-16]", "24-25 r7+8 pc=[cfa-8]"}));
  fake::Code elsewhere = kStores;
  elsewhere[8] = 0x08;  // a variable
  EXPECT_EQ(rows_of_code(elsewhere, stack),
            (Rows{"0-4 r7+8 pc=[cfa-8]", "4-24 r7+32 pc=[cfa-8]", "24-25 r7+8 pc=[cfa-8]"}));
  fake::Code another = kStores;
  another[6] = 0x5c;  // mov [rsp + 16], rbx
  EXPECT_EQ(rows_of_code(another, stack)[1], "4-24 r7+32 pc=[cfa-8]");
}

// sub rsp, 256; mov [rsp + 248], rbp; nop; add rsp, 256; ret
TEST(GoRows, ALargeFramesFramePointerIsThereBehindTheStore) {
  fake::Code code = {0x48, 0x81, 0xec, 0x00, 0x01, 0x00, 0x00, 0x48, 0x89, 0xac, 0x24, 0xf8,
                     0x00, 0x00, 0x00, 0x90, 0x48, 0x81, 0xc4, 0x00, 0x01, 0x00, 0x00, 0xc3};
  const std::vector<fake::Program::Stretch> stack = {{7, 0}, {16, 256}, {1, 0}};
  EXPECT_EQ(rows_of_code(code, stack), (Rows{"0-7 r7+8 pc=[cfa-8]", "7-15 r7+264 pc=[cfa-8]",
                                             "15-23 r7+264 pc=[cfa-8] r6=[cfa-16]", "23-24 r7+8 pc=[cfa-8]"}));
  code[11] = 0xf0;
  EXPECT_EQ(rows_of_code(code, stack)[1], "7-23 r7+264 pc=[cfa-8]") << "a variable";
}

// sub rsp, 8; mov [rsp], rbp; lea rbp, [rsp]; nop; mov rbp, [rsp]; add rsp, 8; ret
TEST(GoRows, AFrameOfTheFramePointerAloneHasItBehindTheStore) {
  EXPECT_EQ(rows_of_code({0x48, 0x83, 0xec, 0x08, 0x48, 0x89, 0x2c, 0x24, 0x48, 0x8d, 0x2c,
                          0x24, 0x90, 0x48, 0x8b, 0x2c, 0x24, 0x48, 0x83, 0xc4, 0x08, 0xc3},
                         {{4, 0}, {17, 8}, {1, 0}}),
            (Rows{"0-4 r7+8 pc=[cfa-8]", "4-8 r7+16 pc=[cfa-8]", "8-21 r7+16 pc=[cfa-8] r6=[cfa-16]",
                  "21-22 r7+8 pc=[cfa-8]"}));
}

// sub rsp, 8; mov [rsp], rbp; nop; add rsp, 8; ret: with two bytes behind it the code ends.
TEST(GoRows, TheLastFunctionsFramePointerIsFoundToo) {
  fake::Program program;
  const std::uint64_t begin =
      program.add("main.f", {0x48, 0x83, 0xec, 0x08, 0x48, 0x89, 0x2c, 0x24, 0x90, 0x48, 0x83, 0xc4, 0x08, 0xc3},
                  {{4, 0}, {9, 8}, {1, 0}});
  EXPECT_EQ(rows_of(program, begin), (Rows{"0-4 r7+8 pc=[cfa-8]", "4-8 r7+16 pc=[cfa-8]",
                                           "8-13 r7+16 pc=[cfa-8] r6=[cfa-16]", "13-14 r7+8 pc=[cfa-8]"}));
}

TEST(GoRows, WhoSavesNoFramePointerLeavesItAlone) {
  // push rbx; pop rbx; ret
  EXPECT_EQ(rows_of_code({0x53, 0x5b, 0xc3}, {{1, 0}, {1, 8}, {1, 0}}),
            (Rows{"0-1 r7+8 pc=[cfa-8]", "1-2 r7+16 pc=[cfa-8]", "2-3 r7+8 pc=[cfa-8]"}));
  // nop; ret
  EXPECT_EQ(rows_of_code({0x90, 0xc3}, {{2, 0}}), (Rows{"0-2 r7+8 pc=[cfa-8]"}));
}

fake::Code words(std::initializer_list<std::uint32_t> instructions) {
  fake::Code code;
  for (const std::uint32_t word : instructions)
    for (unsigned i = 0; i < 4; ++i) code.push_back(static_cast<std::uint8_t>(word >> 8 * i));
  return code;
}

TEST(GoRows, OnAArch64TheReturnAddressIsAtTheEndOfTheFrame) {
  // str x30, [sp, #-32]!; stur x29, [sp, #-8]; sub x29, sp, #8; nop; ldp x29, x30, [sp, #-8]; add sp, sp, #32; ret
  EXPECT_EQ(rows_of_code(words({0xf81e0ffe, 0xf81f83fd, 0xd10023fd, 0xd503201f, 0xa97ffbfd, 0x910083ff, 0xd65f03c0}),
                         {{4, 0}, {20, 32}, {4, 0}}, Architecture::kAArch64),
            (Rows{"0-4 r31+0 pc=r30", "4-8 r31+32 pc=[cfa-32]", "8-24 r31+32 pc=[cfa-32] r29=[r31-8]",
                  "24-28 r31+0 pc=r30"}));
  // sub x20, sp, #512; stp x29, x30, [x20, #-8]; mov sp, x20; sub x29, sp, #8; add sp, sp, #512; ret
  EXPECT_EQ(rows_of_code(words({0xd10803f4, 0xa93ffa9d, 0x9100029f, 0xd10023fd, 0x910803ff, 0xd65f03c0}),
                         {{12, 0}, {8, 512}, {4, 0}}, Architecture::kAArch64),
            (Rows{"0-12 r31+0 pc=r30", "12-20 r31+512 pc=[cfa-512] r29=[r31-8]", "20-24 r31+0 pc=r30"}));
  // str x30, [sp, #-16]!; nop; ldr x30, [sp], #16; ret
  EXPECT_EQ(rows_of_code(words({0xf81f0ffe, 0xd503201f, 0xf84107fe, 0xd65f03c0}), {{4, 0}, {8, 16}, {4, 0}},
                         Architecture::kAArch64),
            (Rows{"0-4 r31+0 pc=r30", "4-12 r31+16 pc=[cfa-16]", "12-16 r31+0 pc=r30"}));
}

TEST(GoRows, LessThanNothingOnTheStackIsAnError) {
  fake::Program program;
  const std::uint64_t begin = program.add("main.f", {0x90, 0x90, 0xc3}, {{1, 0}, {1, -24}, {1, 0}});
  EXPECT_EQ(rows_of(program, begin),
            (Rows{"0-1 r7+8 pc=[cfa-8]", "2-3 r7+8 pc=[cfa-8]", "Go's table gives a negative stack depth"}));
  const GoRows rows(program.table(), program.image());
  FrameRow row;
  EXPECT_EQ(rows.row_at(begin + 1, row).error().code, ErrorCode::kMalformed);
  EXPECT_EQ(rows.row_at(begin + 5, row).error().code, ErrorCode::kMalformed);
  EXPECT_TRUE(rows.row_at(begin, row)) << "what is right in front of it";
}

TEST(GoRows, PaddingHasNone) {
  fake::Program program;
  const std::uint64_t begin = program.add("main.f", {0x90, 0xc3}, {{2, 0}});
  const GoRows rows(program.table(), program.image());
  FrameRow row;
  EXPECT_TRUE(rows.row_at(begin + 1, row));
  EXPECT_EQ(rows.row_at(begin + 2, row).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(rows.row_at(begin - 1, row).error().code, ErrorCode::kNotFound);
}

// ---- what Go's runtime has by itself
// --------------------------------------------------------------------------------

TEST(GoRows, FunctionsAreSpecialByNameAndByFlag) {
  const auto role = [](std::string_view name, std::uint8_t flags = 0) {
    fake::Program program;
    const std::uint64_t begin = program.add(name, {0x90}, {{1, 0}}, flags);
    const GoRows rows(program.table(), program.image());
    return rows.role_of(rows.map().function_at(begin).value());
  };
  EXPECT_EQ(role("main.main"), Role::kPlain);
  EXPECT_EQ(role("main.main", kMarkedOutermost), Role::kOutermost);
  EXPECT_EQ(role("main.main", kMarkedSetsStack), Role::kForeignStack);
  EXPECT_EQ(role("main.main", 0xfc), Role::kPlain) << "other flags";
  EXPECT_EQ(role("runtime.goexit"), Role::kOutermost);
  EXPECT_EQ(role("runtime.goexit.abi0"), Role::kOutermost);
  EXPECT_EQ(role("runtime.mcall.abiinternal"), Role::kSystemJump);
  EXPECT_EQ(role("runtime.goexit1"), Role::kPlain);
  EXPECT_EQ(role("_rt0_amd64_linux"), Role::kOutermost);
  EXPECT_EQ(role("_rt0_amd64_linux_lib"), Role::kPlain) << "C calls it, and it returns";
  EXPECT_EQ(role("runtime.sigtramp", kMarkedOutermost), Role::kPlain) << "what the signal interrupted comes next";
  EXPECT_EQ(role("runtime.sigreturn__sigaction.abi0"), Role::kSignalReturn);
  EXPECT_EQ(role("runtime.asyncPreempt", kMarkedSetsStack), Role::kInjected);
  EXPECT_EQ(role("gogo", kMarkedSetsStack), Role::kResume);
}

TEST(GoRows, AnOutermostFunctionHasNoCaller) {
  for (const auto& [architecture, expected] :
       {std::pair(Architecture::kX86_64, "0-16 r7+0 pc=nowhere"), {Architecture::kAArch64, "0-16 r31+0 pc=nowhere"}}) {
    fake::Program program(architecture);
    EXPECT_EQ(rows_of(program, program.add("runtime.goexit", fake::Code(12, 0x90), {{12, 0}})), (Rows{expected}));
  }
}

#ifdef __x86_64__  // the system's ucontext_t is of the machine that the test is built for
// As the kernel leaves it: at the handler's return rsp points to the ucontext_t.
TEST(GoRows, AHandlersReturnLeadsToWhatWasInterrupted) {
  fake::Program program;
  program.add("main.f", {0xc3}, {{1, 0}});
  // mov eax, 15; syscall; int3
  const std::uint64_t begin =
      program.add("runtime.sigreturn__sigaction", {0xb8, 0x0f, 0, 0, 0, 0x0f, 0x05, 0xcc}, {{8, 0}});
  const GoRows rows(program.table(), program.image());
  EXPECT_EQ(rows.begin_of(*rows.map().function_at(begin)), begin - 1);
  FrameRow row;
  ASSERT_TRUE(rows.row_at(begin - 1, row)) << "as a return address is looked up";
  EXPECT_EQ(row.end, begin + 16);
  EXPECT_TRUE(row.signal_frame);
  const auto at = [](int reg) {
    return static_cast<std::int32_t>(offsetof(ucontext_t, uc_mcontext) + static_cast<std::size_t>(reg) * 8);
  };
  EXPECT_EQ(row.cfa, CfaRule::loaded(7, at(REG_RSP), 0));
  EXPECT_EQ(row.return_address, RegisterRule::at_register(7, at(REG_RIP)));
  const std::pair<RegisterNumber, int> registers[] = {{0, REG_RAX},  {1, REG_RDX},  {2, REG_RCX},  {3, REG_RBX},
                                                      {4, REG_RSI},  {5, REG_RDI},  {6, REG_RBP},  {8, REG_R8},
                                                      {9, REG_R9},   {10, REG_R10}, {11, REG_R11}, {12, REG_R12},
                                                      {13, REG_R13}, {14, REG_R14}, {15, REG_R15}};
  EXPECT_EQ(row.registers.size(), std::size(registers));
  for (const auto& [number, reg] : registers) {
    ASSERT_NE(row.registers.find(number), nullptr) << number;
    EXPECT_EQ(*row.registers.find(number), RegisterRule::at_register(7, at(reg))) << number;
  }
}
#endif

TEST(GoRows, AHandlersReturnOnAArch64IsNotDescribed) {
  fake::Program program(Architecture::kAArch64);
  EXPECT_EQ(rows_of(program, program.add("runtime.sigreturn", fake::Code(8, 0), {{8, 0}})), Rows());
}

TEST(GoRows, WhatIsReturnedToAtItsFirstInstructionBeginsInFrontOfIt) {
  fake::Program program;
  program.add("main.f", {0xc3}, {{1, 0}});
  const std::uint64_t begin = program.add("runtime.systemstack_switch.abi0", {0x0f, 0x0b, 0xc3}, {{3, 0}});
  EXPECT_EQ(rows_of(program, begin), (Rows{fmt::format("{}-3 r7+8 pc=[cfa-8]", ~std::uint64_t{0})}));
  const GoRows rows(program.table(), program.image());
  FrameRow row;
  ASSERT_TRUE(rows.row_at(begin - 1, row));
  EXPECT_EQ(row.cfa, CfaRule::at(7, 8));
}

TEST(GoRows, AnInjectedCallsCallerWasInterrupted) {
  fake::Program program;
  EXPECT_EQ(rows_of(program, program.add("runtime.sigpanic", {0x55, 0x5d, 0xc3}, {{1, 0}, {1, 8}, {1, 0}})),
            (Rows{"0-1 r7+8 pc=[cfa-8] interrupted", "1-2 r7+16 pc=[cfa-8] r6=[cfa-16] interrupted",
                  "2-3 r7+8 pc=[cfa-8] interrupted"}));
}

TEST(GoRows, CallersOfWhoGivesTheThreadAnotherGoroutineAreNotOfIt) {
  fake::Program program;
  EXPECT_EQ(rows_of(program, program.add("runtime.execute", {0xc3}, {{1, 0}})), (Rows{"0-1 r7+8 pc=[cfa-8] left"}));
  fake::Program other(Architecture::kAArch64);
  EXPECT_EQ(rows_of(other, other.add("runtime.execute", words({0xd65f03c0}), {{4, 0}})), (Rows{"0-4 r31+0 pc=r30"}));
}

// On Windows the thread's data are where gs leads to.
TEST(GoRows, TheThreadIsTheOneOfTheSystem) {
  fake::Program program;
  const std::uint64_t begin = program.add("runtime.execute", {0xc3}, {{1, 0}});
  constexpr std::uint64_t kImageBase = 0x1'4000'0000;
  for (const std::uint64_t base : {std::uint64_t{0}, kImageBase}) {
    Table table = program.table();
    table.base = base;
    const GoRows rows(table, program.image());
    FrameRow row;
    ASSERT_TRUE(rows.row_at(begin, row)) << base;
    EXPECT_EQ(row.registers.find(x86_64::kFsBase) != nullptr, base == 0);
    EXPECT_EQ(row.registers.find(x86_64::kGsBase) != nullptr, base != 0);
  }
}

// ---- other stacks ---------------------------------------------------------------------------------------------------

// push rbp, and what switches.
fake::Code pushed(const fake::Code& code) {
  fake::Code all = {0x55};
  all.insert(all.end(), code.begin(), code.end());
  return all;
}

// By Go's runtime (asm_amd64.s): the goroutine's stack pointer is in g.sched.sp, its pc in g.sched.pc.
TEST(GoRows, OnTheSystemStackTheThreadLeadsBack) {
  fake::Program program;
  const std::uint64_t systemstack = program.add("runtime.systemstack.abi0", pushed(fake::kSwitch), {{1, 0}, {49, 8}});
  const std::uint64_t bare = program.add("runtime.asmcgocall", fake::kSwitch, {{49, 0}});
  const std::uint64_t deep = program.add("runtime.asmcgocall", fake::kSwitch, {{49, 48}});
  const std::uint64_t deeper = program.add("runtime.asmcgocall", fake::kSwitch, {{49, 56}});
  const std::uint64_t mcall = program.add("runtime.mcall", fake::kSwitch, {{49, 0}});
  EXPECT_EQ(rows_of(program, systemstack),
            (Rows{"0-1 r7+8 pc=[cfa-8]", "1-21 r7+16 pc=[cfa-8] r6=[cfa-16]",
                  "21-47 thread -8 0x30 0xb8 0x38 +16 r6=[cfa-16]", "47-50 r7+16 pc=[cfa-8] r6=[cfa-16]"}));
  EXPECT_EQ(rows_of(program, bare),
            (Rows{"0-20 r7+8 pc=[cfa-8]", "20-46 thread -8 0x30 0xb8 0x38 +8", "46-49 r7+8 pc=[cfa-8]"}));
  EXPECT_EQ(rows_of(program, deep)[1], "20-46 thread -8 0x30 0xb8 0x38 +56");
  EXPECT_EQ(rows_of(program, deeper)[1], "20-46 nothing pc=[cfa-8]") << "no rule has room for it";
  EXPECT_EQ(rows_of(program, mcall)[1], "20-46 thread -8 0x30 0xb8 0x38 +0 and pc r6=nowhere");
}

TEST(GoRows, WhereTheThreadsWayIsNotKnownTheOtherStackHasNoRule) {
  fake::Program program;
  const std::uint64_t mcall = program.add("runtime.mcall", fake::kSwitch, {{49, 0}});
  EXPECT_EQ(rows_of(program, mcall)[1], "20-46 nothing pc=[cfa-8] r6=nowhere");
}

// Code that keeps its caller's stack as asmcgocall does, in a program without asmcgocall and without a way back.
TEST(GoRows, WhereTheKeptStackIsNotKnownThereIsNoRule) {
  fake::Program program;
  const std::uint64_t keeps = program.add("runtime.systemstack", fake::kKeeps, {{34, 0}});
  EXPECT_EQ(rows_of(program, keeps), (Rows{"0-4 r7+8 pc=[cfa-8]", "4-14 nothing pc=[cfa-8]", "14-33 nothing pc=[cfa-8]",
                                           "33-34 r7+8 pc=[cfa-8]"}));
}

// A table of more code than the file has: what it says of the stack is all that is known.
TEST(GoRows, CodeThatIsNotThereChangesNoStack) {
  fake::Program program, shorter;
  const std::uint64_t begin = program.add("runtime.systemstack", pushed(fake::kSwitch), {{1, 0}, {49, 8}});
  shorter.add("main.f", {0xc3}, {{1, 0}});
  ASSERT_EQ(rows_of(program, begin).size(), 4U);
  const GoRows rows(program.table(), shorter.image());
  Rows found;
  EXPECT_TRUE(rows.for_each_row(*rows.map().function_at(begin),
                                [&](const FrameRow& row) { found.push_back(text_of(row, begin)); }));
  EXPECT_EQ(found, (Rows{"0-1 r7+8 pc=[cfa-8]", "1-50 r7+16 pc=[cfa-8]"}));
}

TEST(GoRows, BehindAResumedGoroutineThereIsNobody) {
  fake::Program program;
  EXPECT_EQ(rows_of(program, program.add("gogo", fake::kSwitch, {{49, 0}})),
            (Rows{"0-20 r7+8 pc=[cfa-8]", "20-46 r7+0 pc=nowhere", "46-49 r7+8 pc=[cfa-8]"}));
}

TEST(GoRows, CodeThatKeepsItsCallersStackLeadsBackByThat) {
  fake::Program program;
  program.add("runtime.systemstack", fake::kSwitch, {{49, 0}});
  const std::uint64_t keeps = program.add("runtime.asmcgocall.abi0", fake::kKeeps, {{34, 0}});
  EXPECT_EQ(rows_of(program, keeps), (Rows{"0-4 r7+8 pc=[cfa-8]", "4-14 thread -8 0x30 0xb8 0x38 +8",
                                           "14-33 kept 0x30 8 0x28 +8 pc=[cfa-8]", "33-34 r7+8 pc=[cfa-8]"}));
}

TEST(GoRows, ForeignStacksAreLeftByACopy) {
  fake::Program program;
  // mov r12, rsp; and rsp, -16; call rax; mov rsp, r12; ret
  const std::uint64_t copies = program.add(
      "runtime.nanotime1", {0x49, 0x89, 0xe4, 0x48, 0x83, 0xe4, 0xf0, 0xff, 0xd0, 0x4c, 0x89, 0xe4, 0xc3}, {{13, 24}});
  // mov rdx, rsp; and rsp, -16; mov [rsp + 40], rdx; call rax; mov rsi, [rsp + 40]; mov rsp, rsi; ret
  const std::uint64_t stores =
      program.add("main.foreign", {0x48, 0x89, 0xe2, 0x48, 0x83, 0xe4, 0xf0, 0x48, 0x89, 0x54, 0x24, 0x28,
                                   0xff, 0xd0, 0x48, 0x8b, 0x74, 0x24, 0x28, 0x48, 0x89, 0xf4, 0xc3},
                  {{23, 0}}, kMarkedSetsStack);
  EXPECT_EQ(rows_of(program, copies),
            (Rows{"0-7 r7+32 pc=[cfa-8]", "7-12 r12+32 pc=[cfa-8]", "12-13 r7+32 pc=[cfa-8]"}));
  EXPECT_EQ(rows_of(program, stores),
            (Rows{"0-7 r7+8 pc=[cfa-8]", "12-22 [r7+40]+8 pc=[cfa-8]", "22-23 r7+8 pc=[cfa-8]"}));
}

TEST(GoRows, LongFunctionsAreNotSearchedForOtherStacks) {
  for (const auto& [size, expected] : {std::pair(std::size_t{4096 - 1}, 3), {std::size_t{4096}, 1}}) {
    fake::Program program;
    fake::Code code = fake::kSwitch;
    code.resize(size, 0x90);
    const std::uint64_t begin = program.add("gogo", code, {{static_cast<std::uint32_t>(size), 0}});
    const GoRows rows(program.table(), program.image());
    int count = 0;
    EXPECT_TRUE(rows.for_each_row(*rows.map().function_at(begin), [&](const FrameRow&) { ++count; }));
    EXPECT_EQ(count, expected);
  }
}

TEST(GoRows, OnAArch64OtherStacksHaveNoRows) {
  fake::Program program(Architecture::kAArch64);
  EXPECT_EQ(rows_of(program, program.add("runtime.mcall", words({0x9100029f, 0xd65f03c0}), {{8, 0}})), Rows());
}

}  // namespace
}  // namespace windlass::runtimes::go
