// Code that a function has jumped to with that function's frame still there, as Haskell's: made-up code and stacks.
#include <gtest/gtest.h>

#include <algorithm>

#include "flow/synthesis.h"
#include "formats/dwarf/constants.h"
#include "support/walk_target.h"
#include "walk/unwinders.h"

namespace windlass {
namespace {

using namespace dwarf;
using test::Bytes;
using test::WalkTarget;

// In the order of the code: what the frame is left from, its caller, another function, and the code that runs.
constexpr std::uint64_t kStgRun = 0, kCaller = 0x100, kOther = 0x180, kHaskell = 0x200;
constexpr std::uint64_t kReturn = kCaller + 0x10;
constexpr std::uint64_t kSp = 0x7fff'0000'0f00;  // near the end of a page
constexpr std::uint64_t kRoom = 0x2000;          // from sp to the return address
constexpr RegisterNumber kRbx = 3, kRbp = 6;

class LeftFrame : public testing::Test {
 protected:
  using Code = std::vector<std::uint8_t>;
  LeftFrame() {
    put(kStgRun, {0x53, 0xff, 0xe6});  // push rbx; jmp rsi
    put(kOther, {0x53, 0xff, 0xe6});
    call(kStgRun);
    put(kHaskell, {0xff, 0x65, 0x00});  // jmp [rbp]
  }
  void put(std::uint64_t offset, const Code& bytes) {
    code_.resize(std::max<std::size_t>(code_.size(), offset + bytes.size() + 64), 0x90);
    std::ranges::copy(bytes, code_.begin() + static_cast<long>(offset));
  }
  // What stands in front of the return address.
  void call(std::uint64_t target) {
    const auto distance = static_cast<std::uint32_t>(target - kReturn);
    put(kReturn - 5, {0xe8, static_cast<std::uint8_t>(distance), static_cast<std::uint8_t>(distance >> 8),
                      static_cast<std::uint8_t>(distance >> 16), static_cast<std::uint8_t>(distance >> 24)});
  }
  // The walk's first step from the Haskell code with the return address `place` above sp. `room`: what the row says.
  // Nothing is in the memory between but in the pages of sp and of the place.
  bool steps(std::uint64_t place, std::uint64_t room = kRoom, std::uint32_t max_followed = flow::Budget::kUnlimited) {
    WalkTarget target;
    const auto above_cfa = static_cast<std::int64_t>(room / 8);
    target.function(kStgRun, 3,
                    Bytes{DW_CFA_def_cfa, 7, 0, DW_CFA_offset_extended_sf, 16}
                        .sleb(-above_cfa)
                        .add(Bytes{DW_CFA_offset_extended_sf, kRbx}.sleb(1 - above_cfa)));
    target.function(kOther, 3, Bytes{DW_CFA_def_cfa_offset, 16});
    target.function(kCaller, 0x40, {});
    target.start(code_);
    const auto fill = [&](std::uint64_t begin, std::uint64_t end) {
      for (std::uint64_t at = begin; at < end; at += 8) target.memory().set(at, 0);
    };
    fill(kSp, (kSp | 4095) + 1);
    fill((kSp + place) & ~std::uint64_t{4095}, ((kSp + place) | 4095) + 1);
    target.memory().set(kSp + place, WalkTarget::pc(kReturn));
    target.memory().set(kSp + place - 8, 77);
    Registers registers = target.at(CodeAddress::instruction(WalkTarget::pc(kHaskell)), kSp);
    registers.set(kRbp, 0x1000);
    WalkOptions options;
    options.max_followed = max_followed;
    StackWalker walker(target.space(), registers, options);
    if (!walker.step() || walker.frame().pc() != CodeAddress::return_address(WalkTarget::pc(kReturn)) ||
        walker.frame().certainty != FrameCertainty::kChecked)
      return false;
    EXPECT_EQ(walker.frame().sp(), kSp + place + 8);
    EXPECT_EQ(walker.frame().origin, FrameOrigin::kSynthesis);
    EXPECT_EQ(walker.frame().registers.get(kRbx), 77u) << "where the row says that it was saved";
    return true;
  }

  Code code_;
};

TEST_F(LeftFrame, IsWhereTheLastRowSays) {
  EXPECT_TRUE(steps(kRoom));
  EXPECT_FALSE(steps(kRoom - 8)) << "nearer than the row says";
  EXPECT_FALSE(steps(kRoom, kRoom - 8));
  EXPECT_FALSE(steps(kRoom, kRoom, 100'000)) << "such a search takes as long as it takes";
}

TEST_F(LeftFrame, IsSoughtSoFar) {
  EXPECT_TRUE(steps(8, 8));
  EXPECT_TRUE(steps((32 << 10) - 8, (32 << 10) - 8));
  EXPECT_FALSE(steps(32 << 10, 32 << 10));
}

TEST_F(LeftFrame, ADirectCallOfTheFunctionStandsInFront) {
  call(kOther);
  EXPECT_FALSE(steps(kRoom)) << "another function, whose frame is another one";
  call(kStgRun + 1);
  EXPECT_FALSE(steps(kRoom)) << "not where the function begins";
  put(kReturn - 5, {0x90, 0x90, 0x41, 0xff, 0xd1});  // call r9
  EXPECT_FALSE(steps(kRoom));
}

// What the code takes off the stack up to its next jump is between rsp and the frame.
TEST_F(LeftFrame, WhatWasPushedForACallIsPassed) {
  put(kHaskell, {0x48, 0x83, 0xc4, 0x10, 0xff, 0x65, 0x00});  // add rsp, 16; jmp [rbp]
  EXPECT_TRUE(steps(kRoom + 16));
  EXPECT_FALSE(steps(kRoom));
  put(kHaskell, {0x58, 0x59, 0x50, 0xff, 0x65, 0x00});  // pop rax; pop rcx; push rax; jmp [rbp]
  EXPECT_TRUE(steps(kRoom + 8));
  put(kHaskell, {0x74, 0x00, 0x89, 0xc3, 0x58, 0xeb, 0x10});  // je; mov ebx, eax; pop rax; jmp
  EXPECT_TRUE(steps(kRoom + 8));
}

TEST_F(LeftFrame, OtherCodeHasAFrameOfItsOwn) {
  put(kHaskell, {0xc3});  // ret
  EXPECT_FALSE(steps(kRoom));
  put(kHaskell, {0x50, 0xff, 0x65, 0x00});  // push rax; jmp [rbp]: it has pushed what nobody takes off
  EXPECT_FALSE(steps(kRoom));
  put(kHaskell, {0x48, 0x89, 0xdc, 0xff, 0x65, 0x00});  // mov rsp, rbx; jmp [rbp]
  EXPECT_FALSE(steps(kRoom));
}

// A module of another language is looked through less and less often.
TEST(LeftFrames, AModuleIsLookedThroughLessAndLessOften) {
  walk::LeftFrames frames;
  const auto looks = [&](int times) {
    int count = 0;
    for (int i = 0; i < times; ++i) count += frames.of(5).may_look() ? 1 : 0;
    return count;
  };
  EXPECT_EQ(looks(8), 8);
  EXPECT_EQ(looks(56), 14);
  EXPECT_EQ(looks(640), 10);
  EXPECT_TRUE(frames.of(6).may_look()) << "of another module nothing is known";
  frames.of(6).room = 3;
  EXPECT_EQ(frames.of(6).room, 3u);
  EXPECT_EQ(frames.of(6 + 8).room, 0u) << "in the same place";
  EXPECT_EQ(frames.of(6).room, 0u);
}

}  // namespace
}  // namespace windlass
