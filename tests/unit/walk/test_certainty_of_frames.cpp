// How certain the callers of code are that has a frame, or makes or leaves one in a way of its own.
#include "certainty.h"

namespace windlass {
namespace {

using test::Certainty, test::Code;
using test::kCaller, test::kFunction, test::kMarked, test::kStack;

// As V8's builtins for callbacks do: the return address is moved below what is pushed, and a return takes all of it
// off, with the arguments, whose number is in the frame. The way in and the way out say the same of the frame, but not
// of sp.
TEST_F(Certainty, AFrameRecordBelowWhatItsReturnTakesOff) {
  put(kFunction, {0x59,                                            // pop rcx
                  0x53, 0x56, 0x51,                                // push rbx; push rsi; push rcx
                  0x55, 0x48, 0x89, 0xe5, 0x48, 0x83, 0xec, 0x10,  // push rbp; mov rbp, rsp; sub rsp, 16
                  0xff, 0xd2,                                      // call rdx
                  0x48, 0x8b, 0x45, 0xf0, 0x4c, 0x8b, 0x7d, 0xf8,  // mov rax, [rbp-16]; mov r15, [rbp-8]
                  0xc9, 0x59, 0x4a, 0x8d, 0x64, 0xfc, 0x10, 0x51,  // leave; pop rcx; lea rsp, [rsp+r15*8+16]; push rcx
                  0xc3});                                          // ret
  constexpr std::uint64_t kFrame = kStack + 16;
  direct_call(kFunction);
  word(kFrame, kMarked);
  word(kFrame + 8, kCaller);
  EXPECT_EQ(walk(14, kStack, kFrame), FrameCertainty::kChecked);
  Registers registers(Architecture::kX86_64);
  registers.set_pc(CodeAddress::instruction(kFunction + 14));
  registers.set_sp(kStack);
  registers.set(x86_64::kRbp, kFrame);
  StackWalker walker(space_, registers);
  ASSERT_TRUE(walker.step());
  EXPECT_FALSE(walker.frame().registers.has_sp());
  EXPECT_EQ(walker.frame().registers.get(x86_64::kRbp), kMarked);
}

// What was called has taken its arguments off the stack: the way in does not know sp, but the frame record.
TEST_F(Certainty, AFrameRecordBehindACallThatTakesItsArguments) {
  put(kFunction, {0x55, 0x48, 0x89, 0xe5, 0x48, 0x83, 0xec, 0x10,    // push rbp; mov rbp, rsp; sub rsp, 16
                  0x50, 0x53, 0xff, 0xd2,                            // push rax; push rbx; call rdx
                  0x48, 0x8b, 0x45, 0xf0, 0xff, 0xd1, 0xc9, 0xc3});  // mov rax, [rbp-16]; call rcx; leave; ret
  constexpr std::uint64_t kFrame = kStack + 16;
  direct_call(kFunction);
  word(kFrame, kMarked);
  word(kFrame + 8, kCaller);
  EXPECT_EQ(walk(12, kStack, kFrame), FrameCertainty::kChecked);
}

// The way out counts from sp behind a call. That leads to another return address than the frame that the code uses.
TEST_F(Certainty, AWayOutPastTheFrameThatTheCodeUsesIsAGuess) {
  put(kFunction, {0x48, 0x8b, 0x45, 0xf8, 0xff, 0xd2,  // mov rax, [rbp-8]; call rdx
                  0x48, 0x8b, 0x6d, 0x00,              // mov rbp, [rbp]
                  0x48, 0x83, 0xc4, 0x18, 0xc3});      // add rsp, 24; ret
  constexpr std::uint64_t kFrame = kStack + 64;
  indirect_call();
  word(kStack + 24, kCaller);
  word(kFrame, kMarked);
  EXPECT_EQ(walk(0, kStack, kFrame), FrameCertainty::kChecked);  // nothing lies in the frame
  put(kCaller + 0x100 - 2, {0xff, 0xd1});
  word(kFrame + 8, kCaller + 0x100);
  EXPECT_EQ(walk(0, kStack, kFrame), FrameCertainty::kGuessed);
}

// A function that does not return is interrupted where it sets up its frame.
TEST_F(Certainty, TheFirstTwoInstructionsOfAFunctionWithAFrame) {
  const Code code = {0x55, 0x48, 0x89, 0xe5, 0xeb, 0xfe};  // push rbp; mov rbp, rsp; an endless loop
  put(kFunction, code);
  indirect_call();
  word(kStack, kCaller);
  EXPECT_EQ(walk(0, kStack, kMarked), FrameCertainty::kChecked);
  word(kStack - 8, kMarked);
  EXPECT_EQ(walk(1, kStack - 8, kMarked), FrameCertainty::kChecked);
}

// As JavaScriptCore's thunks do: the return address is moved into the caller's frame, and put back for the return. The
// way out is a jump then, but the call goes to an address that the instruction before it says.
TEST_F(Certainty, ACallThroughARegisterThatWasJustSet) {
  put(kFunction, {0x58, 0x48, 0x89, 0x04, 0x24,                // pop rax; mov [rsp], rax
                  0xff, 0xd2,                                  // call rdx
                  0x4c, 0x8b, 0x14, 0x24, 0x41, 0x52, 0xc3});  // mov r10, [rsp]; push r10; ret
  word(kStack, kCaller);
  const auto certainty = [&](Code load, const Code& call, std::size_t bytes, std::uint64_t target) {
    for (std::size_t i = 0; i < bytes; ++i) load.push_back(static_cast<std::uint8_t>(target >> 8 * i));
    load.insert(load.end(), call.begin(), call.end());
    put(kCaller - 16, Code(16, 0x90));
    put(kCaller - load.size(), load);
    return walk(7, kStack, kMarked);
  };
  const Code call_r11 = {0x41, 0xff, 0xd3}, call_rax = {0xff, 0xd0};
  EXPECT_EQ(certainty({}, call_r11, 0, 0), FrameCertainty::kGuessed);
  EXPECT_EQ(certainty({0x49, 0xbb}, call_r11, 8, kFunction), FrameCertainty::kChecked);
  EXPECT_EQ(certainty({0x49, 0xbb}, call_r11, 8, kFunction + 0x80), FrameCertainty::kGuessed);
  EXPECT_EQ(certainty({0x41, 0xbb}, call_r11, 4, kFunction), FrameCertainty::kChecked);
  EXPECT_EQ(certainty({0x48, 0xb8}, call_rax, 8, kFunction), FrameCertainty::kChecked);
  EXPECT_EQ(certainty({0xb8}, call_rax, 4, kFunction), FrameCertainty::kChecked);
  EXPECT_EQ(certainty({0x48, 0xb9}, call_rax, 8, kFunction), FrameCertainty::kGuessed);  // rcx is set
}

}  // namespace
}  // namespace windlass
