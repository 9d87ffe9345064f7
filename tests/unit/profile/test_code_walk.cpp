#include "profile/code_walk.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <vector>

namespace windlass::profile {
namespace {

constexpr std::uint64_t kCode = 0x400000, kStack = 0x7fff0000, kCallerCode = 0x500000;
constexpr std::uint64_t kReturn = kCallerCode + 5;  // behind a call at kCallerCode

// A thread stopped in hand-made code, its stack in memory.
class CodeWalk : public testing::Test {
 protected:
  CodeWalk() {
    put(kCallerCode - 8, std::vector<std::uint8_t>(8, 0x90));
    put(kCallerCode, {0xe8, 0, 0, 0, 0, 0x90});
  }
  void put(std::uint64_t address, const std::vector<std::uint8_t>& bytes) {
    for (std::size_t i = 0; i < bytes.size(); ++i) memory[address + i] = bytes[i];
  }
  void word(std::uint64_t address, std::uint64_t value) {
    for (int i = 0; i < 8; ++i) memory[address + i] = static_cast<std::uint8_t>(value >> 8 * i);
  }
  int walk() {
    return walk_code(
        frame,
        [this](std::uint64_t address, void* to, std::size_t size) {
          for (std::size_t i = 0; i < size; ++i) {
            const auto found = memory.find(address + i);
            if (found == memory.end()) return false;
            static_cast<std::uint8_t*>(to)[i] = found->second;
          }
          return true;
        },
        [](std::uint64_t address) {
          const bool code = (address >= kCode && address < kCode + 0x10000) ||
                            (address >= kCallerCode && address < kCallerCode + 0x1000);
          return code ? CodeKind::kFile : CodeKind::kNoCode;
        });
  }
  void start(std::uint64_t pc, std::uint64_t sp, std::uint64_t fp) {
    frame = FrameRegisters();
    frame.set(FrameRegisters::kPc, pc);
    frame.set(FrameRegisters::kRsp, sp);
    frame.set(FrameRegisters::kRbp, fp);
  }
  void expect_caller(std::uint64_t sp, std::uint64_t fp) {
    ASSERT_EQ(walk(), -1);
    EXPECT_EQ(frame.value[FrameRegisters::kPc], kReturn);
    EXPECT_EQ(frame.value[FrameRegisters::kRsp], sp);
    EXPECT_EQ(frame.value[FrameRegisters::kRbp], fp);
    EXPECT_FALSE(frame.exact);
  }
  std::map<std::uint64_t, std::uint8_t> memory;
  FrameRegisters frame;
};

// push rbp; mov rbp,rsp; sub rsp,16; nop; leave; ret
const std::vector<std::uint8_t> kFramed{0x55, 0x48, 0x89, 0xe5, 0x48, 0x83, 0xec, 0x10, 0x90, 0xc9, 0xc3};

TEST_F(CodeWalk, EveryInstructionOfAFramedFunction) {
  put(kCode, kFramed);
  word(kStack, kReturn);
  word(kStack - 8, 0xabc0);  // the caller's rbp, once pushed
  struct Stop {
    std::uint64_t offset, sp, fp;
  };
  const Stop stops[] = {{0, kStack, 0xabc0},          {1, kStack - 8, 0xabc0},      {4, kStack - 8, kStack - 8},
                        {8, kStack - 24, kStack - 8}, {9, kStack - 24, kStack - 8}, {10, kStack, 0xabc0}};
  for (const Stop& stop : stops) {
    SCOPED_TRACE(stop.offset);
    start(kCode + stop.offset, stop.sp, stop.fp);
    expect_caller(kStack + 8, 0xabc0);
  }
}

TEST_F(CodeWalk, FramelessCodeThatUsesRbpAsData) {
  // push rbx; sub rsp,8; mov rbp,rdi; call; add rsp,8; pop rbx; ret
  put(kCode, {0x53, 0x48, 0x83, 0xec, 0x08, 0x48, 0x89, 0xfd, 0xe8, 1, 0, 0, 0, 0x48, 0x83, 0xc4, 0x08, 0x5b, 0xc3});
  word(kStack, kReturn);
  word(kStack - 8, 0x33);
  start(kCode + 13, kStack - 16, 0xdead);
  frame.exact = false;
  expect_caller(kStack + 8, 0xdead);
  EXPECT_EQ(frame.value[3], 0x33u);
}

TEST_F(CodeWalk, BothWaysOfABranchAndReturnsThatPopArguments) {
  // test eax,eax; jne +2; jmp self; ret 16
  put(kCode, {0x85, 0xc0, 0x75, 0x02, 0xeb, 0xfe, 0xc2, 0x10, 0x00});
  word(kStack, kReturn);
  start(kCode, kStack, 1);
  expect_caller(kStack + 8 + 16, 1);
}

TEST_F(CodeWalk, TailCallIsFollowed) {
  put(kCode, {0xe9, 0xfb, 0, 0, 0});  // jmp kCode + 0x100
  put(kCode + 0x100, kFramed);
  word(kStack, kReturn);
  start(kCode, kStack, 0x77);
  expect_caller(kStack + 8, 0x77);
}

TEST_F(CodeWalk, DispatchOfAnInterpreter) {
  put(kCode, {0x48, 0x8b, 0x45, 0xf8, 0xff, 0xe1});  // mov rax,[rbp-8]; jmp rcx
  word(kStack, kReturn);
  word(kStack + 64, 0xbad);
  start(kCode, kStack, kStack + 64);
  expect_caller(kStack + 8, kStack + 64);
}

TEST_F(CodeWalk, AFrameThatIsNeverLeftByReturning) {
  put(kCode, {0x48, 0x8b, 0x45, 0xf8, 0xeb, 0xfa});  // mov rax,[rbp-8]; jmp back
  word(kStack + 64, 0xabc0);
  word(kStack + 72, kReturn);
  start(kCode, kStack, kStack + 64);
  expect_caller(kStack + 80, 0xabc0);
  // The same frame, but from before `mov rbp,rsp`: rbp is still the caller's.
  put(kCode, {0x48, 0x89, 0xe5, 0x48, 0x8b, 0x45, 0xf8, 0xeb, 0xfa});
  start(kCode, kStack, kStack + 64);
  EXPECT_EQ(walk(), WL_END_BAD_FRAME_POINTER);
  word(kStack, kStack + 64);  // pushed
  word(kStack + 8, kReturn);
  start(kCode, kStack, kStack + 64);
  expect_caller(kStack + 16, kStack + 64);
}

TEST_F(CodeWalk, APrologueThatNeverReturns) {
  // pop rax; push 0; push rax; push rbp; mov rbp,rsp; jmp self: HotSpot's entry of an interpreted method
  put(kCode, {0x58, 0x6a, 0x00, 0x50, 0x55, 0x48, 0x89, 0xe5, 0xeb, 0xfe});
  word(kStack, kReturn);
  start(kCode, kStack, 0xabc0);
  expect_caller(kStack + 8 - 8, 0xabc0);
}

TEST_F(CodeWalk, OutermostFrame) {
  put(kCode, {0xf4});  // hlt, behind _start's call
  start(kCode, kStack, 0);
  frame.exact = false;
  EXPECT_EQ(walk(), WL_END_COMPLETE);
  put(kCode, {0xc3});
  word(kStack, 0);
  start(kCode, kStack, 0);
  EXPECT_EQ(walk(), WL_END_COMPLETE);
}

TEST_F(CodeWalk, AReturnToWhereNoCallIsDoesNotCount) {
  put(kCode, {0xc3});
  word(kStack, kCallerCode + 3);
  start(kCode, kStack, 0);
  EXPECT_EQ(walk(), WL_END_BAD_FRAME_POINTER);
}

TEST_F(CodeWalk, EndlessAndBranchyCodeIsBounded) {
  for (std::uint64_t i = 0; i < 0x8000; i += 2) put(kCode + i, {0x75, 0x10});  // jne everywhere
  start(kCode, kStack, 0);
  EXPECT_EQ(walk(), WL_END_BAD_FRAME_POINTER);
}

TEST_F(CodeWalk, AFailedWalkChangesNothing) {
  put(kCode, {0x5b, 0x0f, 0x0b});  // pop rbx; ud2
  word(kStack, 5);
  start(kCode, kStack, 9);
  EXPECT_EQ(walk(), WL_END_BAD_FRAME_POINTER);
  EXPECT_EQ(frame.value[FrameRegisters::kRsp], kStack);
  EXPECT_FALSE(frame.has(3));
}

}  // namespace
}  // namespace windlass::profile
