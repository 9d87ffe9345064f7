// Code without unwind information that has replaced the stack, as SBCL's call into Lisp in the main thread: made-up
// code and stacks.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "support/walk_target.h"

namespace windlass {
namespace {

using test::WalkTarget;

// In the order of the code: a described function, the code that has called it on another stack, and that one's caller.
constexpr std::uint64_t kCallee = 0, kSwitch = 0x100, kMain = 0x200;
constexpr std::uint64_t kBehindCall = kSwitch + 12, kReturn = kMain + 0x10;
constexpr std::uint64_t kNewStack = 0x7fff'0000'0f00, kGiB = 1 << 30;
constexpr RegisterNumber kRbp = 6;

class OtherStack : public testing::Test {
 protected:
  using Code = std::vector<std::uint8_t>;
  OtherStack() {
    put(kCallee, {0x90, 0xc3});
    put(kSwitch, {0x55, 0x48, 0x89, 0xe5, 0x48, 0x89, 0xfc,  // push rbp; mov rbp, rsp; mov rsp, rdi
                  0xe8, 0xf4, 0xfe, 0xff, 0xff,              // call kCallee
                  0x48, 0x89, 0xec, 0x5d, 0xc3});            // mov rsp, rbp; pop rbp; ret
    put(kReturn - 5, {0xe8, 0xeb, 0xfe, 0xff, 0xff});        // call kSwitch
  }
  void put(std::uint64_t offset, const Code& bytes) {
    code_.resize(std::max<std::size_t>(code_.size(), offset + bytes.size() + 64), 0x90);
    std::ranges::copy(bytes, code_.begin() + static_cast<long>(offset));
  }
  // The caller of the code that has replaced the stack, whose frame record is at `record`; empty: none was found.
  std::optional<std::uint64_t> caller(std::uint64_t record) {
    WalkTarget target;
    target.function(kCallee, 2, {});
    target.start(code_);
    target.memory().set(kNewStack, WalkTarget::pc(kBehindCall));
    target.memory().set(record, 0);
    target.memory().set(record + 8, WalkTarget::pc(kReturn));
    Registers registers = target.at(CodeAddress::instruction(WalkTarget::pc(kCallee)), kNewStack);
    registers.set(kRbp, record);
    StackWalker walker(target.space(), registers, {});
    EXPECT_TRUE(walker.step());
    EXPECT_EQ(walker.frame().pc(), CodeAddress::return_address(WalkTarget::pc(kBehindCall)));
    if (!walker.step() || walker.certainty() > FrameCertainty::kChecked) return std::nullopt;
    EXPECT_EQ(walker.frame().sp(), record + 16);
    return walker.frame().pc().value() - WalkTarget::pc(0);
  }

  Code code_;
};

TEST_F(OtherStack, IsWhereTheFramePointerLeads) {
  EXPECT_EQ(caller(kNewStack + 0x100), kReturn) << "the same one";
  EXPECT_EQ(caller(kNewStack + kGiB + 0x100), kReturn);
  EXPECT_EQ(caller(kNewStack + 64 * kGiB), kReturn);
}

TEST_F(OtherStack, IsNotBelow) { EXPECT_NE(caller(kNewStack - 64 * kGiB), kReturn); }

TEST_F(OtherStack, HasTheReturnAddressOfACall) {
  put(kReturn - 5, {0x90, 0x90, 0x90, 0x90, 0x90});
  EXPECT_NE(caller(kNewStack + 64 * kGiB), kReturn);
}

// The frame pointer may have been used for something else, so it is not followed so far.
TEST_F(OtherStack, IsNotWhereTheCodeDoesNotReturnByTheFramePointer) {
  put(kBehindCall, {0x48, 0x8b, 0x45, 0x00, 0xff, 0xd0});  // mov rax, [rbp]; call rax
  EXPECT_NE(caller(kNewStack + 64 * kGiB), kReturn);
}

}  // namespace
}  // namespace windlass
