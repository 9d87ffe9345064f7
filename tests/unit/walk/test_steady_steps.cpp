// Which steps from code without rows other stacks repeat (walk/steady_step.h): hand-made code.
#include "walk/steady_step.h"

#include <optional>
#include <vector>

#include "certainty.h"
#include "walk/code_memo.h"
#include "walk/inside.h"

namespace windlass {
namespace {

using test::Certainty, test::Code;
using test::kBegin, test::kCaller, test::kFunction, test::kMarked, test::kStack;
using walk::SteadyStep;

class SteadySteps : public Certainty, protected walk::CodeMemo::Listener {
 protected:
  static constexpr std::uint64_t kFrame = kStack + 0x40;
  // mov rax, [rbp - 8]; jmp rax: no return, but a frame by rbp
  const Code uses_frame_{0x48, 0x8b, 0x45, 0xf8, 0xff, 0xe0};

  SteadySteps() {
    // All of the file can be read: what cannot may be read later.
    for (std::uint64_t at = kBegin; at < test::kEnd; ++at) memory_->bytes.try_emplace(at, 0xcc);
    put(kFunction - 32, {0xc3});                                            // another function's end
    put(kFunction - 16, {0x55, 0x48, 0x89, 0xe5, 0x48, 0x83, 0xec, 0x40,    // push rbp; mov rbp, rsp; sub rsp, 64
                         0x90, 0x90, 0x90, 0x90, 0x90, 0x41, 0xff, 0xd1});  // call r9
    memo_.set_listener(*this);
    keep({.memo = &memo_, .code = 1});
    indirect_call();
    put(kCaller, {0x89, 0xf8, 0xeb, 0xfe});  // mov eax, edi; jmp: for ever. No start of a thread
    word(kFrame, kMarked);
    word(kFrame + 8, kCaller);
    for (std::uint64_t at = kStack; at < kFrame; at += 8) word(at, 1);
  }
  void keep(const walk::KeptCode& kept) {
    const_cast<walk::Module*>(walk::module_at(space_, kFunction))->keep_code(kept);
  }
  void take(const SteadyStep& step) override {
    exact_ |= step.pc == CodeAddress::instruction(kFunction);
    if (step.pc != CodeAddress::return_address(kFunction)) return;
    told_ = true;
    caller_ = step.caller;
    from_sp_ = step.from_sp;
    from_fp_ = step.from_fp;
    word_ = step.word;
    word_at_ = step.word_at;
    code_changes_ = step.code_changes;
    caller_changes_ = step.caller_changes;
    function_begin_ = step.function != nullptr ? step.function->range.begin + step.function_bias : 0;
  }
  // Is the step from where a call in the function has returned to told of?
  bool tells(std::uint64_t fp = kFrame) {
    told_ = false;
    memo_.clear();
    Registers registers(Architecture::kX86_64);
    registers.set_pc(CodeAddress::return_address(kFunction));
    registers.set_sp(kStack);
    registers.set(x86_64::kRbp, fp);
    StackWalker walker(space_, registers);
    EXPECT_TRUE(walker.step()) << walker.error().text();
    EXPECT_EQ(walker.frame().pc(), CodeAddress::return_address(kCaller));
    if (told_) {
      EXPECT_EQ(caller_, kCaller);
    }
    return told_;
  }

  walk::CodeMemo memo_;
  bool told_ = false, exact_ = false, code_changes_ = false, caller_changes_ = false;
  std::uint64_t caller_ = 0, function_begin_ = 0;
  std::int32_t from_sp_ = 0, from_fp_ = 0, word_at_ = 0;
  SteadyStep::Word word_ = SteadyStep::Word::kAny;
};

// lea rsp, [rbp - 0x20]: as JavaScriptCore's code does behind a call. A return address might stand there.
TEST_F(SteadySteps, AWordThatTheFramePointerLeadsToIsCompared) {
  Code code{0x48, 0x8d, 0x65, 0xe0};
  code.insert(code.end(), uses_frame_.begin(), uses_frame_.end());
  put(kFunction, code);
  ASSERT_TRUE(tells());
  EXPECT_EQ(from_sp_, 0x50);
  EXPECT_EQ(from_fp_, 16);
  EXPECT_EQ(word_, SteadyStep::Word::kNoReturnAddress);
  EXPECT_EQ(word_at_, 0x20);
  word(kStack + 0x20, 0);
  ASSERT_TRUE(tells());
  EXPECT_EQ(word_, SteadyStep::Word::kZero);
}

// mov [rbp - 8], rax; call exit's like; hlt
TEST_F(SteadySteps, AFunctionThatNeverReturnsIsLeftByItsFramePointer) {
  put(kFunction - 16, Code(13, 0x90));  // there is no prologue, so no way in says the frame
  // Its begin is sought before the file.
  constexpr std::uint64_t kBefore = kBegin - 0x20000;
  EXPECT_TRUE(space_.add_module({kBefore, kBegin, 0, "/no/such/other", {}}));
  for (std::uint64_t at = kBefore; at < kBegin; ++at) memory_->bytes[at] = 0xcc;
  put(kFunction, {0x48, 0x89, 0x45, 0xf8, 0xe8, 0, 1, 0, 0, 0xf4});
  ASSERT_TRUE(tells());
  EXPECT_EQ(from_fp_, 16);
  EXPECT_EQ(word_, SteadyStep::Word::kAny) << "whatever the stack holds";
}

TEST_F(SteadySteps, CodeThatMayChangeIsToldOfWithThat) {
  put(kFunction, uses_frame_);
  ASSERT_TRUE(tells());
  EXPECT_FALSE(code_changes_ || caller_changes_);
  keep({.memo = &memo_, .code = 1, .changes = true});
  ASSERT_TRUE(tells());
  EXPECT_TRUE(code_changes_ && caller_changes_);
}

TEST_F(SteadySteps, TheFunctionThatProvesTheStepIsToldOf) {
  const Code prologue{0x55, 0x48, 0x89, 0xe5, 0x48, 0x83, 0xec, 0x40},
      call{0x90, 0x90, 0x90, 0x90, 0x90, 0x41, 0xff, 0xd1};
  const auto is_told = [&](const Code& before_call, const Code& behind) {
    put(kFunction - 16, prologue);
    put(kFunction - 8, before_call);
    put(kFunction, behind);
    function_begin_ = 0;
    EXPECT_TRUE(tells());
    return function_begin_ == kFunction - 16;
  };
  const Code returns{0xc9, 0xc3};  // leave; ret
  EXPECT_TRUE(is_told(call, returns));
  EXPECT_FALSE(is_told(call, uses_frame_)) << "nothing is proved";
  const Code system_call{0x90, 0x90, 0x90, 0x0f, 0x05, 0x41, 0xff, 0xd1};
  EXPECT_FALSE(is_told(system_call, returns)) << "a new thread may stand in it";
  keep({.memo = &memo_, .code = 1, .changes = true});
  EXPECT_FALSE(is_told(call, returns)) << "other code may be there later";
}

// A thread that was just made stands behind the call that made it, too, with 0 in rax.
TEST_F(SteadySteps, BehindASystemCallTheCodeSaysWhetherAThreadMayBeginThere) {
  const auto is_told = [&](const Code& behind) {
    Code code{0x0f, 0x05};
    code.insert(code.end(), behind.begin(), behind.end());
    put(kFunction - 2, code);
    word(kStack, kCaller);
    exact_ = false;
    memo_.clear();
    Registers registers(Architecture::kX86_64);
    registers.set_pc(CodeAddress::instruction(kFunction));
    registers.set_sp(kStack);
    registers.set(x86_64::kRbp, kFrame);
    StackWalker walker(space_, registers);
    EXPECT_TRUE(walker.step()) << walker.error().text();
    return exact_;
  };
  EXPECT_TRUE(is_told({0x48, 0x89, 0xc7, 0xc3})) << "mov rdi, rax; ret";
  EXPECT_FALSE(is_told({0x48, 0x85, 0xc0, 0x74, 0x08, 0xc3})) << "test rax, rax; jz; ret";
  EXPECT_TRUE(is_told({0x48, 0x85, 0xc0, 0x75, 0x00, 0xc3})) << "test rax, rax; jnz; ret";
}

}  // namespace
}  // namespace windlass
