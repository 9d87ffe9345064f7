// How certain each frame is, and what that makes of a walk's end: hand-made code that no unwind information describes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "certainty.h"
#include "walk/code_memo.h"
#include "walk/inside.h"
#include "walk/module.h"
#include "walk/steady_step.h"

namespace windlass {
namespace {

using test::Certainty, test::Code;
using test::kBegin, test::kCaller, test::kDescribed, test::kEnd, test::kFunction, test::kMarked, test::kStack;

TEST_F(Certainty, CodeThatReturnsIsProof) {
  put(kFunction, {0x90, 0xc3});  // nop; ret
  indirect_call();
  word(kStack, kCaller);
  EXPECT_EQ(walk(0, kStack, kMarked), FrameCertainty::kProved);
  EXPECT_EQ(end_, WalkEnd::kComplete) << "a halt behind the call, and the frame pointer is 0";
}

TEST_F(Certainty, AHaltAloneIsNoStart) {
  put(kFunction, {0x90, 0xc3});
  indirect_call();
  word(kStack, kCaller);
  EXPECT_EQ(walk(0, kStack, 0x1234), FrameCertainty::kProved);
  EXPECT_EQ(end_, WalkEnd::kGuessed);
}

TEST_F(Certainty, CodeThatSeldomReturnsIsNoStart) {
  // mov edi, eax; call exit's like; and nothing behind it: it need not be anybody's first function
  put(kCaller, {0x89, 0xc7, 0xe8, 0, 0, 0, 0, 0xcc});
  put(kFunction, {0x90, 0xc3});
  indirect_call();
  word(kStack, kCaller);
  EXPECT_EQ(walk(0, kStack, kMarked), FrameCertainty::kProved);
  EXPECT_NE(end_, WalkEnd::kComplete);
}

TEST_F(Certainty, WhatNoCallReturnsToIsAStartIfItNeverReturns) {
  // Boost.Context's make_fcontext: push rbp; jmp rbx; here: xor rdi, rdi; call _exit; hlt
  put(kCaller - 3, {0x55, 0xff, 0xe3, 0x48, 0x31, 0xff, 0xe8, 0x00, 0x01, 0, 0, 0xf4});
  FrameRow leaf;
  leaf.begin = kDescribed, leaf.end = kDescribed + 16;
  leaf.cfa = CfaRule::at(x86_64::kRsp, 8);
  leaf.return_address = RegisterRule::at_cfa(-8);
  ASSERT_TRUE(space_.add({.begin = leaf.begin, .end = leaf.end, .rows = {leaf}}));
  word(kStack, kCaller);
  EXPECT_EQ(walk(kDescribed - kFunction, kStack, 0x1234), FrameCertainty::kDescribed);
  EXPECT_EQ(end_, WalkEnd::kComplete);
  indirect_call();  // the same behind a call may be in any function that does not return
  EXPECT_EQ(walk(kDescribed - kFunction, kStack, 0x1234), FrameCertainty::kDescribed);
  EXPECT_EQ(end_, WalkEnd::kGuessed);
}

// musl's start(): call [rbx]; mov rdi, rax; call pthread_exit, which does not return. Four words are on its stack.
class ThreadStart : public Certainty {
 protected:
  ThreadStart() {
    put(kFunction, {0xff, 0x13, 0x48, 0x89, 0xc7, 0xe8, 0x06, 0, 0, 0, 0xcc});
    put(kFunction + 16, {0xeb, 0xfe});  // jmp: for ever
    FrameRow leaf;
    leaf.begin = kDescribed, leaf.end = kDescribed + 16;
    leaf.cfa = CfaRule::at(x86_64::kRsp, 8);
    leaf.return_address = RegisterRule::at_cfa(-8);
    EXPECT_TRUE(space_.add({.begin = leaf.begin, .end = leaf.end, .rows = {leaf}}));
    indirect_call();
    word(kStack, kFunction + 2);
    word(kStack + 0x08, 1);
    word(kStack + 0x10, kStack);  // rbx
    word(kStack + 0x18, kMarked);
    word(kStack + 0x20, kCaller);
    for (std::uint64_t at = 0x28; at < 0x100; at += 8) word(kStack + at, 2);
  }
  // Is the frame behind start() the one that starts threads, and the end?
  bool is_whole(std::uint64_t fp) {
    Registers registers(Architecture::kX86_64);
    registers.set_pc(CodeAddress::instruction(kDescribed));
    registers.set_sp(kStack);
    registers.set(x86_64::kRbp, fp);
    StackWalker walker(space_, registers);
    EXPECT_TRUE(walker.step());
    EXPECT_EQ(walker.frame().pc(), CodeAddress::return_address(kFunction + 2));
    if (!walker.step() || walker.frame().pc() != CodeAddress::return_address(kCaller)) return false;
    EXPECT_EQ(walker.frame().sp(), kStack + 0x28);
    EXPECT_EQ(walker.frame().certainty, FrameCertainty::kChecked);
    EXPECT_FALSE(walker.step());
    return walker.end_reason() == WalkEnd::kComplete;
  }
};

TEST_F(ThreadStart, IsFoundBehindCodeThatNeverReturns) {
  EXPECT_TRUE(is_whole(0x1234));
  word(kStack + 0x18, 3);  // rbp was not pushed: it is what the caller had
  EXPECT_TRUE(is_whole(kMarked));
  EXPECT_FALSE(is_whole(0x1234)) << "nobody has cleared the frame pointer";
}

class ToldSteps final : public walk::CodeMemo::Listener {
 public:
  void take(const walk::SteadyStep& step) override {
    if (step.pc == CodeAddress::return_address(kFunction + 2) && step.certainty == FrameCertainty::kChecked)
      told.emplace_back(step.caller, step.from_sp);
  }
  std::vector<std::pair<std::uint64_t, std::int32_t>> told;
};

TEST_F(ThreadStart, IsAStepOfOtherStacksWhereTheWayInSaysTheSame) {
  walk::CodeMemo memo;
  ToldSteps steps;
  memo.set_listener(steps);
  const walk::Module* module = walk::module_at(space_, kFunction);
  const_cast<walk::Module*>(module)->keep_code({.memo = &memo, .code = 1});
  EXPECT_TRUE(is_whole(0x1234));
  EXPECT_TRUE(steps.told.empty()) << "the stack alone shows it";
  Code prologue(16, 0x90);  // push rbp; push rbx; sub rsp, 8
  std::ranges::copy(Code{0x55, 0x53, 0x48, 0x83, 0xec, 0x08}, prologue.begin());
  put(kFunction - 16, prologue);
  memo.clear();
  EXPECT_TRUE(is_whole(0x1234));
  EXPECT_EQ(steps.told, (std::vector{std::pair{kCaller, 0x20}}));
  steps.told.clear();
  put(kFunction - 11, {0x10});  // the same with another frame
  memo.clear();
  EXPECT_TRUE(is_whole(0x1234));
  EXPECT_TRUE(steps.told.empty());
}

TEST_F(ThreadStart, AFrameInBetweenIsNotPassedOver) {
  put(kBegin + 0x2800, {0xff, 0x13});
  word(kStack + 0x08, kBegin + 0x2802);
  EXPECT_FALSE(is_whole(0x1234));
}

TEST_F(ThreadStart, OnlyAHaltBehindAnIndirectCallIsOne) {
  direct_call(kBegin + 0x2800);
  EXPECT_FALSE(is_whole(0x1234));
  indirect_call();
  EXPECT_TRUE(is_whole(0x1234));
  put(kCaller, {0x89, 0xc7, 0xeb, 0xfe});  // mov edi, eax; jmp: for ever
  EXPECT_FALSE(is_whole(0x1234));
}

// mov rax, [rbp - 8]; jmp rax: no return, but a frame by rbp
const Code kUsesFrame{0x48, 0x8b, 0x45, 0xf8, 0xff, 0xe0};

TEST_F(Certainty, AFramePointerInUseAndAnIndirectCall) {
  put(kFunction, kUsesFrame);
  indirect_call();
  word(kStack + 0x20, kMarked);
  word(kStack + 0x28, kCaller);
  EXPECT_EQ(walk(0, kStack, kStack + 0x20), FrameCertainty::kChecked);
  EXPECT_EQ(end_, WalkEnd::kComplete);
}

TEST_F(Certainty, ACallOfAnotherFunctionLeavesTheChainAlone) {
  put(kFunction, kUsesFrame);
  direct_call(kBegin + 0x2800);  // int3
  word(kStack + 0x20, kMarked);
  word(kStack + 0x28, kCaller);
  EXPECT_EQ(walk(0, kStack, kStack + 0x20), FrameCertainty::kChained);
  EXPECT_EQ(end_, WalkEnd::kChained) << "whatever the outermost frame is";
}

// A function too long to be followed from its start to the pc at hand; this one goes on for 6,200 instructions.
TEST_F(Certainty, ACallOfALongFunctionBeforeTheFrameIsChecked) {
  const std::uint64_t start = kBegin + 0x3000, at = start + 12'400;
  for (std::uint64_t one = start; one < at; one += 2) put(one, {0xff, 0xc0});  // inc eax
  put(at, kUsesFrame);
  direct_call(start);
  word(kStack + 0x20, kMarked);
  word(kStack + 0x28, kCaller);
  EXPECT_EQ(walk(at - kFunction, kStack, kStack + 0x20), FrameCertainty::kChecked);
  put(start + 100, {0xc3});  // and now it ends
  EXPECT_EQ(walk(at - kFunction, kStack, kStack + 0x20), FrameCertainty::kChained);
  put(start + 100, {0xff, 0xc0});
  put(at + 0x1000, {0xcc});
  direct_call(at + 0x1000);  // one that begins behind it
  EXPECT_EQ(walk(at - kFunction, kStack, kStack + 0x20), FrameCertainty::kChained);
}

class NeverReturns : public Certainty {
 protected:
  static constexpr std::uint64_t kBehind = kCaller + 0x10, kFrame = kStack + 0x40, kOuter = kCaller + 0x400;

  // mov [rbp - 8], rax; call exit's like; hlt
  const Code addresses_frame_{0x48, 0x89, 0x45, 0xf8, 0xe8, 0, 1, 0, 0, 0xf4};

  NeverReturns() {
    put(kOuter - 3, {0x41, 0xff, 0xd1, 0xf4});  // call r9; hlt
    word(kFrame, kMarked);
    word(kFrame + 8, kOuter);
  }
  // The certainty of its caller; nothing: the walk ends there, as a guess. The frame at hand is where a call returned
  // to.
  std::optional<FrameCertainty> caller() {
    Registers registers(Architecture::kX86_64);
    registers.set_pc(CodeAddress::return_address(kBehind));
    registers.set_sp(kStack);
    registers.set(x86_64::kRbp, kFrame);
    StackWalker walker(space_, registers);
    if (!walker.step()) {
      EXPECT_EQ(walker.end_reason(), WalkEnd::kGuessed);
      return std::nullopt;
    }
    EXPECT_EQ(walker.frame().pc(), CodeAddress::return_address(kOuter));
    EXPECT_EQ(walker.frame().sp(), kFrame + 16);
    return walker.frame().certainty;
  }
};

TEST_F(NeverReturns, ButHasACallerByTheFrameThatItAddresses) {
  put(kBehind - 5, {0xe8, 0, 0, 0, 0});
  put(kBehind, addresses_frame_);
  EXPECT_EQ(caller(), FrameCertainty::kChecked);
  put(kBehind, {0x48, 0x89, 0x43, 0xf8});  // by rbx: rbp may be another function's
  EXPECT_EQ(caller(), std::nullopt);
}

// A call that never returns at the end of a function, padding, and the next function: pop rbx; ret. By the ways out a 0
// would be the return address.
class EndsWithACall : public NeverReturns {
 protected:
  static constexpr std::uint64_t kAlone = kBegin + 0x1800;
  static constexpr std::uint64_t kRecord = kStack + 0x10;

  EndsWithACall() { put(kOuter, {0x89, 0xf8, 0xeb, 0xfe}); }  // mov eax, edi; jmp: for ever. No start of a thread
  void put_function(const Code& prologue) {
    put(kAlone, prologue);
    put(kAlone + prologue.size(), {0xe8, 0, 3, 0, 0, 0x0f, 0x1f, 0x40, 0x00, 0x5b, 0xc3});
    behind_ = kAlone + prologue.size() + 5;
    word(kStack, 1);
    word(kStack + 8, 0);
    word(kRecord, kMarked);
    word(kRecord + 8, kOuter);
  }
  // How certain its caller is; nothing: the walk ends in the function itself.
  std::optional<FrameCertainty> caller_of_function(std::uint64_t fp) {
    Registers registers(Architecture::kX86_64);
    registers.set_pc(CodeAddress::return_address(behind_));
    registers.set_sp(kStack);
    registers.set(x86_64::kRbp, fp);
    StackWalker walker(space_, registers);
    if (!walker.step() || walker.frame().sp() != kRecord + 16) return std::nullopt;
    EXPECT_EQ(walker.frame().pc(), CodeAddress::return_address(kOuter));
    return walker.frame().certainty;
  }
  std::uint64_t behind_ = 0;
  const Code with_frame_pointer_{0x55, 0x48, 0x89, 0xe5, 0x53, 0x48, 0x83, 0xec, 0x08};  // push rbx; sub rsp, 8
};

TEST_F(EndsWithACall, AFrameRecordWhereTheWayInHasItIsChecked) {
  put_function(with_frame_pointer_);
  EXPECT_EQ(caller_of_function(kRecord), FrameCertainty::kChecked);
  word(kRecord + 0x10, kMarked);
  word(kRecord + 0x18, kOuter);
  EXPECT_EQ(caller_of_function(kRecord + 0x10), std::nullopt) << "rbp and rsp say two places";
}

TEST_F(EndsWithACall, ACallThatLeadsHereByAJumpIsChecked) {
  constexpr std::uint64_t kStub = kBegin + 0x2c00;
  // push rbp; mov rbp, rdi; push rbx; sub rsp, 8
  put_function({0x55, 0x48, 0x89, 0xfd, 0x53, 0x48, 0x83, 0xec, 0x08});
  put(kStub, {0x48, 0x8d, 0x05, 0xf9, 0xeb, 0xff, 0xff, 0xff, 0xe0});  // lea rax, [kAlone]; jmp rax
  EXPECT_EQ(caller_of_function(0x1234), std::nullopt) << "an indirect call may lead anywhere";
  put(kOuter - 5, {0xe8, 0x00, 0x08, 0, 0});
  EXPECT_EQ(caller_of_function(0x1234), FrameCertainty::kChecked);
  put(kStub, {0xe9, 0x2b, 0, 0, 0});  // jmp elsewhere
  EXPECT_EQ(caller_of_function(0x1234), std::nullopt);
}

TEST_F(Certainty, ACallThatLeadsHereIsChecked) {
  // push rbp; mov rbp, rsp; sub rsp, 32; mov rax, [rbp - 8]; jmp rax
  put(kFunction, {0x55, 0x48, 0x89, 0xe5, 0x48, 0x83, 0xec, 0x20, 0x48, 0x8b, 0x45, 0xf8, 0xff, 0xe0});
  direct_call(kFunction);
  word(kStack, kMarked);
  word(kStack + 8, kCaller);
  EXPECT_EQ(walk(8, kStack - 0x20, kStack), FrameCertainty::kChecked);
  EXPECT_EQ(end_, WalkEnd::kComplete);
  // The same by a jump, as linkage stubs have it.
  put(kBegin + 0x2800, {0xe9, 0xfb, 0xe7, 0xff, 0xff});
  direct_call(kBegin + 0x2800);
  EXPECT_EQ(walk(8, kStack - 0x20, kStack), FrameCertainty::kChecked);
}

// mov rax, [rbp + 16]; jmp rax: a pointer to an object, too. Nothing says that the frame is rbp's.
class Chained : public Certainty {
 protected:
  static constexpr std::uint64_t kRecord = kStack + 0x20, kNext = kStack + 0x60;

  Chained() {
    put(kFunction, {0x48, 0x8b, 0x45, 0x10, 0xff, 0xe0});
    indirect_call();
    word(kRecord, kMarked);
    word(kRecord + 8, kCaller);
  }
};

TEST_F(Chained, ARecordBehindACallWhereTheMarkIs) {
  EXPECT_EQ(walk(0, kStack, kRecord), FrameCertainty::kChained);
  EXPECT_EQ(end_, WalkEnd::kChained) << "not complete: nothing proves the frame";
}

TEST_F(Chained, TheNextRecordLiesAbove) {
  word(kRecord, kNext);
  EXPECT_EQ(walk(0, kStack, kRecord), FrameCertainty::kChained);
  EXPECT_EQ(end_, WalkEnd::kGuessed) << "a halt, but the frame pointer does not mark it";
  for (const std::uint64_t broken : {kRecord, kRecord - 0x10, kNext + 4, kNext + (std::uint64_t{1} << 40)}) {
    word(kRecord, broken);
    EXPECT_EQ(walk(0, kStack, kRecord), FrameCertainty::kGuessed) << broken;
    EXPECT_EQ(end_, WalkEnd::kGuessed) << broken;
  }
}

// mov eax, edi; jmp: for ever
TEST_F(Chained, AMarkAtTheEndOfTheChainIsAnEnd) {
  put(kCaller, {0x89, 0xf8, 0xeb, 0xfe});
  EXPECT_EQ(walk(0, kStack, kRecord), FrameCertainty::kChained);
  EXPECT_EQ(end_, WalkEnd::kChained);
  // A frame pointer of 0 that no record has led to is any number.
  put(kFunction, {0x90, 0xc3});
  word(kStack, kCaller);
  EXPECT_EQ(walk(0, kStack, kMarked), FrameCertainty::kProved);
  EXPECT_EQ(end_, WalkEnd::kGuessed);
}

// Haskell's code: every function ends in a jump to another one. Its stack is elsewhere, and the contents of the
// machine's stack mean nothing to it.
TEST_F(Certainty, AddressesOfZeroAreNoProof) {
  Registers registers(Architecture::kX86_64);
  registers.set_pc(CodeAddress::instruction(kFunction));
  registers.set_sp(kStack);
  registers.set(x86_64::kRbp, 0x1234);
  put(kFunction, {0x48, 0x83, 0xc3, 0x08, 0xff, 0x65, 0x00});  // add rbx, 8; jmp [rbp]
  word(kStack, 0);
  StackWalker walker(space_, registers);
  while (walker.step()) continue;
  EXPECT_NE(walker.end_reason(), WalkEnd::kComplete);
}

// GCC's nested functions make a program's stack executable. An address of it is none that a call returns to.
TEST_F(Certainty, AnAddressOfAnExecutableStackIsNoCaller) {
  ASSERT_TRUE(space_.add({.begin = kStack, .end = kStack + 0x1000}));
  put(kFunction, {0x90, 0xff, 0xe0});  // nop; jmp rax: a computed goto, where nothing is followed any further
  indirect_call();
  for (std::uint64_t at = 0; at < 0x100; at += 8) word(kStack + at, kStack + 0x80);
  word(kStack + 0x48, kCaller);
  Registers registers(Architecture::kX86_64);
  registers.set_pc(CodeAddress::instruction(kFunction));
  registers.set_sp(kStack);
  registers.set(x86_64::kRbp, kStack + 0x40);
  StackWalker walker(space_, registers);
  while (walker.step()) EXPECT_EQ(walker.frame().pc(), CodeAddress::return_address(kCaller));
}

// The kernel has a thread in rt_sigreturn behind the system call, in the next function.
TEST_F(Certainty, ASystemCallThatReturnsFromAHandler) {
  constexpr std::uint64_t kNoSys = 38, kContext = 40;  // ucontext: the sigcontext's offset (asm/ucontext.h)
  const Code forms[] = {{0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05}, {0xb8, 0x0f, 0, 0, 0, 0x0f, 0x05}};
  for (std::uint64_t at = 0; at < 18; ++at) word(kStack + kContext + 8 * at, 0x7000 + at);
  word(kStack + kContext + 8 * 15, kStack + 0x1000);  // rsp
  word(kStack + kContext + 8 * 16, kCaller);          // rip
  for (const Code& form : forms) {
    put(kFunction, form);
    put(kFunction + form.size(), {0x41, 0x54, 0x90, 0x41, 0x5c, 0xc3});  // push r12; nop; pop r12; ret
    Registers registers(Architecture::kX86_64);
    registers.set_pc(CodeAddress::instruction(kFunction + form.size()));
    registers.set_sp(kStack);
    registers.set(x86_64::kRax, -kNoSys);
    StackWalker walker(space_, registers);
    EXPECT_EQ(walker.frame().pc(), CodeAddress::instruction(kFunction + form.size() - 2));
    ASSERT_TRUE(walker.step()) << walker.error().text();
    EXPECT_TRUE(walker.frame().signal_frame);
    EXPECT_EQ(walker.frame().pc(), CodeAddress::instruction(kCaller));
    EXPECT_EQ(walker.frame().sp(), kStack + 0x1000);

    registers.set(x86_64::kRax, 0);  // whoever calls the next function
    walker.restart(registers);
    EXPECT_EQ(walker.frame().pc(), registers.pc());
  }
}

// A process begins where the kernel has put its arguments; what only begins like them proves nothing.
TEST_F(Certainty, TheArgumentsOfAProcess) {
  constexpr std::uint64_t kStrings = kStack + 0x200;
  const auto end_with = [&](const std::vector<std::uint64_t>& words) {
    for (std::size_t i = 0; i < words.size(); ++i) word(kStack + 8 * i, words[i]);
    Registers registers(Architecture::kX86_64);
    registers.set_pc(CodeAddress::instruction(kFunction));
    registers.set_sp(kStack);
    StackWalker walker(space_, registers);
    while (walker.step()) {}
    return walker.end_reason();
  };
  EXPECT_EQ(end_with({2, kStrings, kStrings + 8, 0, kStrings + 16, 0}), WalkEnd::kComplete);
  EXPECT_EQ(end_with({1, kStrings, 0, 0}), WalkEnd::kComplete) << "no environment";
  // A signal's number, its siginfo_t and its ucontext, as i386's handlers have them.
  EXPECT_NE(end_with({10, kStack + 24, kStack + 152, 10, 0, 0, 4711, 0, 0, 0, 0, 0, 0}), WalkEnd::kComplete);
  EXPECT_NE(end_with({2, kStrings + 8, kStrings, 0, kStrings + 16, 0}), WalkEnd::kComplete) << "in no order";
  EXPECT_NE(end_with({1, kStrings, 0, kStrings - 8, 0}), WalkEnd::kComplete) << "an environment in front";
  EXPECT_NE(end_with({1, kStack + 8, 0, 0}), WalkEnd::kComplete) << "a pointer to itself";
}

// Each word that makes up the arguments, wrong by itself. Of both word sizes.
TEST(ArgumentsOfAProcess, EachPartMustFit) {
  for (const Architecture architecture : {Architecture::kX86_64, Architecture::kI386}) {
    const unsigned size = Registers::word_size(architecture);
    const std::uint64_t stack = architecture == Architecture::kI386 ? 0xff00'1000 : kStack;
    auto owned = std::make_unique<test::CodeMemory>();
    test::CodeMemory& memory = *owned;
    AddressSpace space(architecture, std::move(owned));
    ASSERT_TRUE(space.add_module({kBegin, kEnd, 0, "/no/such/file", {}}));
    for (std::uint64_t at = kBegin; at < kBegin + 0x2000; ++at) memory.bytes[at] = 0xcc;
    const auto is_start = [&](const std::vector<std::uint64_t>& words, std::uint64_t sp) {
      std::erase_if(memory.bytes, [&](const auto& byte) { return byte.first >= stack; });
      for (std::size_t i = 0; i < words.size(); ++i)
        for (unsigned byte = 0; byte < size; ++byte)
          memory.bytes[sp + size * i + byte] = static_cast<std::uint8_t>(words[i] >> 8 * byte);
      Registers registers(architecture);
      registers.set_pc(CodeAddress::instruction(kFunction));
      registers.set_sp(sp);
      StackWalker walker(space, registers);
      while (walker.step()) {}
      return walker.end_reason() == WalkEnd::kComplete;
    };
    // Few arguments: all are looked at.
    for (const std::uint64_t count : {1, 2, 5, 16}) {
      const std::uint64_t strings = stack + size * (count + 6);
      for (const bool has_environment : {false, true}) {
        std::vector<std::uint64_t> words{count};
        for (std::uint64_t i = 0; i < count; ++i) words.push_back(strings + 4 * i);
        words.push_back(0);
        words.push_back(has_environment ? strings + 4 * count : 0);
        ASSERT_TRUE(is_start(words, stack)) << count;
        EXPECT_FALSE(is_start(words, stack + 8)) << "where the kernel puts none";
        for (std::uint64_t i = 1; i <= count; ++i) {
          auto wrong = words;
          for (const std::uint64_t value :
               {std::uint64_t{0}, wrong[i - 1], stack + size * (count + 2), stack + (std::uint64_t{64} << 20) + 1}) {
            wrong[i] = value;
            EXPECT_FALSE(is_start(wrong, stack)) << "argument " << i << " of " << count << ": " << value;
          }
        }
        auto wrong = words;
        wrong[count + 1] = strings;
        EXPECT_FALSE(is_start(wrong, stack)) << "no null behind " << count;
        for (const std::uint64_t value : {std::uint64_t{1}, words[count], stack + (std::uint64_t{64} << 20) + 1}) {
          wrong = words;
          wrong[count + 2] = value;
          EXPECT_FALSE(is_start(wrong, stack)) << "an environment at " << value;
        }
        for (std::size_t kept = 0; kept < words.size(); ++kept) {
          wrong = words;
          wrong.resize(kept);
          EXPECT_FALSE(is_start(wrong, stack)) << kept << " words can be read";
        }
        for (const std::uint64_t other : {std::uint64_t{0}, count + 1, count - 1, std::uint64_t{1} << 31}) {
          wrong = words;
          wrong[0] = other;
          EXPECT_FALSE(is_start(wrong, stack)) << other << " for " << count;
        }
      }
    }
  }
}

// glibc's clone3(): syscall; test rax, rax; jl; jz to the new thread's code, which has no caller.
TEST_F(Certainty, AThreadThatHasJustBegun) {
  put(kFunction - 2, {0x0f, 0x05, 0x48, 0x85, 0xc0, 0x7c, 0x18, 0x0f, 0x84, 0xf5, 0xef, 0x0f, 0x00, 0xc3});
  FrameRow outermost;
  outermost.begin = kDescribed, outermost.end = kDescribed + 16;
  outermost.cfa = CfaRule::at(x86_64::kRsp, 8);
  ASSERT_TRUE(space_.add({.begin = outermost.begin, .end = outermost.end, .rows = {outermost}}));
  indirect_call();
  const auto end_with = [&](std::uint64_t rax) {
    Registers registers(Architecture::kX86_64);
    registers.set_pc(CodeAddress::instruction(kFunction));
    registers.set_sp(kStack);
    registers.set(x86_64::kRax, rax);
    registers.set(x86_64::kRbp, 0x1234);
    StackWalker walker(space_, registers);
    std::size_t frames = 1;
    for (; walker.step(); ++frames) {}
    return std::pair(walker.end_reason(), frames);
  };
  EXPECT_EQ(end_with(0), std::pair(WalkEnd::kComplete, std::size_t{1})) << "a stack that was never touched";
  word(kStack, kCaller);
  EXPECT_EQ(end_with(0), std::pair(WalkEnd::kComplete, std::size_t{1})) << "what lies there is of nobody";
  EXPECT_EQ(end_with(4711).second, 2U) << "who has made the thread returns";
  put(kFunction + 6, {0x85});  // jnz
  EXPECT_EQ(end_with(0).second, 2U);
}

// What a new thread may do first: any of these tests and jumps, and no other.
TEST_F(Certainty, TheFirstInstructionsOfAThread) {
  FrameRow outermost;
  outermost.begin = kDescribed, outermost.end = kDescribed + 16;
  outermost.cfa = CfaRule::at(x86_64::kRsp, 8);
  FrameRow ordinary = outermost;
  ordinary.begin += 16, ordinary.end += 16;
  ordinary.return_address = RegisterRule::at_cfa(-8);
  ASSERT_TRUE(space_.add({.begin = outermost.begin, .end = ordinary.end, .rows = {outermost, ordinary}}));
  const auto is_start = [&](const Code& test, const Code& jumps, std::uint64_t target, bool returned = false) {
    Code code = test;
    code.insert(code.end(), jumps.begin(), jumps.end());
    code.insert(code.end(), {0x0f, 0x84});
    const auto distance = static_cast<std::uint32_t>(target - (kFunction + code.size() + 4));
    for (unsigned byte = 0; byte < 4; ++byte) code.push_back(static_cast<std::uint8_t>(distance >> 8 * byte));
    code.resize(32, 0xcc);
    put(kFunction, code);
    Registers registers(Architecture::kX86_64);
    registers.set_pc(returned ? CodeAddress::return_address(kFunction) : CodeAddress::instruction(kFunction));
    registers.set_sp(kStack);
    registers.set(x86_64::kRax, 0);
    StackWalker walker(space_, registers);
    while (walker.step()) {}
    return walker.end_reason() == WalkEnd::kComplete;
  };
  const Code test64{0x48, 0x85, 0xc0}, test32{0x85, 0xc0};
  const Code near_less{0x0f, 0x8c, 0x40, 0, 0, 0}, near_negative{0x0f, 0x88, 0x40, 0, 0, 0};
  put(kFunction - 2, {0x0f, 0x05});
  for (const Code& test : {test64, test32})
    for (const Code& jump : {Code{}, Code{0x7c, 0x18}, Code{0x78, 0x18}, near_less, near_negative})
      EXPECT_TRUE(is_start(test, jump, kDescribed)) << test.size() << " " << jump.size();
  EXPECT_FALSE(is_start(test64, {}, kDescribed + 16)) << "code with a caller";
  EXPECT_FALSE(is_start(test64, {}, kFunction + 0x100)) << "code that nothing describes";
  EXPECT_FALSE(is_start(test64, {}, kDescribed, true)) << "a frame that has called";
  EXPECT_FALSE(is_start(test64, {0x7f, 0x18}, kDescribed)) << "jg, taken by whom it does not concern";
  EXPECT_FALSE(is_start(test64, {0x90}, kDescribed)) << "another instruction";
  EXPECT_FALSE(is_start({0x48, 0x85, 0xc9}, {}, kDescribed)) << "test rcx, rcx";
  EXPECT_FALSE(is_start({0x48, 0x39, 0xc0}, {}, kDescribed)) << "cmp rax, rax";
  put(kFunction - 2, {0x0f, 0x0b});
  EXPECT_FALSE(is_start(test64, {}, kDescribed)) << "behind no system call";
  put(kFunction - 2, {0x90, 0x05});
  EXPECT_FALSE(is_start(test64, {}, kDescribed));
}

// _dl_start_user: call _dl_init; mov rsp, r13; jmp r12, to the program's entry point. What stands before that may end
// like a call.
TEST_F(Certainty, TheJumpToTheEntryPointIsNoReturn) {
  constexpr std::uint64_t kStrings = kStack + 0x200;
  const std::uint64_t arguments[] = {1, kStrings, 0, kStrings + 8, 0};
  for (std::size_t i = 0; i < std::size(arguments); ++i) word(kStack + 8 * i, arguments[i]);
  put(kFunction - 5, {0xe8, 0, 1, 0, 0, 0x41, 0xff, 0xe4});
  direct_call(kBegin + 0x2800);
  Registers registers(Architecture::kX86_64);
  registers.set_pc(CodeAddress::return_address(kFunction));
  registers.set_sp(kStack);
  registers.set(x86_64::kRbp, 0x1234);
  registers.set(12, kCaller);
  StackWalker walker(space_, registers);
  EXPECT_FALSE(walker.step());
  EXPECT_EQ(walker.end_reason(), WalkEnd::kComplete);
  word(kStack, 2);
  walker.restart(registers);
  EXPECT_TRUE(walker.step()) << "other code";
}

}  // namespace
}  // namespace windlass
