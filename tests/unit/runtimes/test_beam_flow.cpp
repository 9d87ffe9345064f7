// The frames of BeamAsm's code, by pieces written down by hand.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <initializer_list>
#include <map>
#include <vector>

#include "runtimes/beam/code_flow.h"
#include "runtimes/beam/layout.h"

namespace windlass::runtimes::beam {
namespace {

using Stack = FrameState::Stack;
using Code = std::vector<std::uint8_t>;

constexpr std::uint64_t kAt = 0x7000'0000;

// The function's name and the call in front of it, then code.
class Function {
 public:
  Function() : bytes_(Layout::kInfoSize, 0x90) {
    const Code call = {0xe8, 0, 0, 0, 0};
    std::copy(call.begin(), call.end(), bytes_.begin());
  }
  // Appends; the offset of it.
  std::uint32_t add(const Code& code) {
    const auto at = static_cast<std::uint32_t>(bytes_.size());
    bytes_.insert(bytes_.end(), code.begin(), code.end());
    return at;
  }
  void flow_now() { stretches_ = flow(std::as_bytes(std::span(bytes_)), kAt, returns); }
  [[nodiscard]] FrameState at(std::uint32_t offset) const {
    FrameState state;
    for (const FrameStretch& stretch : stretches_)
      if (stretch.begin <= offset) state = stretch.state;
    return state;
  }
  std::vector<std::uint32_t> returns;

 private:
  Code bytes_;
  std::vector<FrameStretch> stretches_;
};

const Code kAllocate16 = {0x48, 0x83, 0xec, 16}, kDeallocate16 = {0x48, 0x83, 0xc4, 16};  // sub, add rsp, 16
const Code kReturn = {0xc3}, kCall = {0xe8, 0, 0x10, 0, 0}, kNop = {0x90};
const Code kKeepInRbp = {0x48, 0x89, 0xe5}, kLeaveByRbp = {0x48, 0x89, 0xec};
const Code kStore = {0x49, 0x89, 0x65, 0x58}, kLoad = {0x49, 0x8b, 0x65, 0x58};  // [r13 + 0x58]
const Code kEnter = {0x48, 0x8d, 0x63, 0x80};                                    // lea rsp, [rbx - 0x80]
const Code kNextProcess = {0x49, 0x89, 0xc5};                                    // mov r13, rax

void expect_erlang(const FrameState& state, std::int32_t depth) {
  EXPECT_EQ(state.stack, Stack::kErlang);
  EXPECT_EQ(state.depth, depth);
}

TEST(BeamFlow, CountsWhatAFunctionAllocates) {
  Function function;
  const auto entry = function.add(kAllocate16);
  const auto body = function.add(kCall);
  const auto behind = function.add(kDeallocate16);
  const auto end = function.add(kReturn);
  function.flow_now();
  expect_erlang(function.at(0), 0);
  expect_erlang(function.at(entry), 0);
  expect_erlang(function.at(body), 16);
  expect_erlang(function.at(behind), 16);
  expect_erlang(function.at(end), 0);
  EXPECT_EQ(function.returns, (std::vector<std::uint32_t>{5, behind}));
}

TEST(BeamFlow, CountsWhatIsPushedAndPopped) {
  Function function;
  function.add({0x50});  // push rax
  const auto pushed = function.add(kNop);
  function.add({0x58});  // pop rax
  const auto popped = function.add({0x0f, 0x0b});
  function.flow_now();
  expect_erlang(function.at(pushed), 8);
  expect_erlang(function.at(popped), 0);
}

TEST(BeamFlow, FramesAreOfWholeWordsAndStacksAreLeftWhenTheyAreKept) {
  Function odd;
  odd.add({0x48, 0x83, 0xec, 4});  // sub rsp, 4
  const auto behind_odd = odd.add({0x0f, 0x0b});
  odd.flow_now();
  EXPECT_EQ(odd.at(behind_odd).stack, Stack::kUnknown);
  Function lost;
  lost.add(kEnter);
  const auto behind = lost.add({0x0f, 0x0b});
  lost.flow_now();
  EXPECT_EQ(lost.at(behind).stack, Stack::kUnknown);
}

// je X; sub rsp, 16; call; L: nop; ret; X: jmp L. The call need not return, and what jumps there has no frame.
TEST(BeamFlow, WhatStandsBehindACallIsTheJumps) {
  Function function;
  function.add({0x74, 11});
  function.add(kAllocate16);
  function.add(kCall);
  const auto label = function.add(kNop);
  function.add(kReturn);
  function.add({0xeb, 0xfc});
  function.flow_now();
  expect_erlang(function.at(label), 0);
}

// Each of its instructions would be followed as far as all others.
TEST(BeamFlow, CodeThatLeadsNowhereIsNotFollowedForEver) {
  Function function;
  const auto end = function.add(kReturn);
  const auto nowhere = function.add(Code(1 << 20, 0x90));
  function.flow_now();
  expect_erlang(function.at(end), 0);
  EXPECT_EQ(function.at(nowhere).stack, Stack::kUnknown);
}

TEST(BeamFlow, KnowsWhereTheErlangStackIsWhileCRuns) {
  Function function;
  (void)function.add(kAllocate16);
  (void)function.add(kKeepInRbp);
  (void)function.add(kEnter);
  const auto by_rbp = function.add(kCall);
  const auto leave = function.add(kLeaveByRbp);
  const auto between = function.add(kStore);
  (void)function.add(kEnter);
  const auto by_process = function.add(kCall);
  (void)function.add(kLoad);
  const auto back = function.add(kDeallocate16);
  (void)function.add(kReturn);
  function.flow_now();
  for (const auto at : {by_rbp, leave}) {
    EXPECT_EQ(function.at(at).stack, Stack::kInRbp);
    EXPECT_EQ(function.at(at).depth, 16);
  }
  expect_erlang(function.at(between), 16);
  EXPECT_EQ(function.at(by_process).stack, Stack::kInProcess);
  expect_erlang(function.at(back), 16);
}

// Where the processor has AVX, the heap pointer and the stack pointer are stored at once.
TEST(BeamFlow, TheStackPointerIsKeptByWayOfAVector) {
  for (const Code& to_vector : {Code{0x66, 0x48, 0x0f, 0x6e, 0xcc}, Code{0xc4, 0xe3, 0xf1, 0x22, 0xc4, 1}}) {
    Function function;
    function.add(kAllocate16);
    function.add(to_vector);  // movq xmm1, rsp; vpinsrq xmm0, xmm1, rsp, 1
    function.add(kEnter);
    const auto call = function.add(kCall);
    function.add({0x0f, 0x0b});
    function.flow_now();
    EXPECT_EQ(function.at(call).stack, Stack::kInProcess);
    EXPECT_EQ(function.at(call).depth, 16);
  }
}

// An error is raised by a call that does not return; what stands behind it is reached another way.
TEST(BeamFlow, GoesByBranchesBehindCallsThatDoNotReturn) {
  Function function;
  const auto skipped = static_cast<std::uint8_t>(kAllocate16.size() + kCall.size());
  (void)function.add({0x74, skipped});  // je
  (void)function.add(kAllocate16);
  (void)function.add(kCall);
  const auto clause = function.add(kNop);
  (void)function.add(kReturn);
  function.flow_now();
  expect_erlang(function.at(clause), 0);
}

// A handler of exceptions: no way in the function leads there.
TEST(BeamFlow, FindsTheFrameOfAHandlerByItsReturn) {
  Function function;
  (void)function.add(kReturn);
  const auto handler = function.add(kNop);
  (void)function.add(kDeallocate16);
  const auto end = function.add(kReturn);
  function.flow_now();
  expect_erlang(function.at(handler), 16);
  expect_erlang(function.at(end), 0);
}

// Where a process waits: shared code is given the label, and the code there leaves for shared code in mid-frame.
TEST(BeamFlow, KnowsTheFrameOfALabelThatIsGivenAway) {
  Function function;
  (void)function.add(kAllocate16);
  const auto take = function.add({0x48, 0x8d, 0x35, 5 + 4 + 1, 0, 0, 0});  // lea rsi, [rip + 10]: `wait`
  (void)function.add(kCall);
  (void)function.add(kDeallocate16);
  (void)function.add(kReturn);
  const auto wait = function.add(kNop);
  (void)function.add({0xe9, 0, 0, 0, 0x10});  // jmp elsewhere
  const auto other = function.add(kNop);      // no way leads here, and what is elsewhere is not known
  (void)function.add({0xe9, 0, 0, 0, 0x10});
  function.flow_now();
  ASSERT_EQ(wait, take + 7 + 10);
  expect_erlang(function.at(wait), 16);
  EXPECT_EQ(function.at(other).stack, Stack::kUnknown);
}

TEST(BeamFlow, IsUnknownWhereTheStackPointerIsLost) {
  Function function;
  (void)function.add({0x48, 0x89, 0xc4});  // mov rsp, rax
  const auto behind = function.add(kNop);
  (void)function.add({0xeb, 0xfe});  // jmp to itself
  function.flow_now();
  EXPECT_EQ(function.at(behind).stack, Stack::kUnknown);
}

FrameState follow_code(const std::vector<Code>& pieces, bool shared = false) {
  Code code;
  for (const Code& piece : pieces) code.insert(code.end(), piece.begin(), piece.end());
  code.resize(code.size() + 16, 0xcc);
  return follow(
      kAt,
      [&](std::uint64_t from, void* to, std::size_t size) {
        if (from < kAt || from - kAt + size > code.size()) return false;
        std::memcpy(to, code.data() + (from - kAt), size);
        return true;
      },
      [&](std::uint64_t target) { return shared && target != 0 ? Leads::kOn : Leads::kToFunction; },
      [](std::uint64_t) { return FrameState(); });
}

TEST(BeamFlow, FollowsSharedCode) {
  const Code jump_rax = {0xff, 0xe0}, pop_rsi = {0x5e};
  expect_erlang(follow_code({kNop, kReturn}), 0);
  expect_erlang(follow_code({kDeallocate16, kReturn}), 16);
  EXPECT_EQ(follow_code({kLeaveByRbp, kReturn}).stack, Stack::kInRbp);
  EXPECT_EQ(follow_code({kLoad, pop_rsi, kReturn}).stack, Stack::kInProcess);
  EXPECT_EQ(follow_code({kLoad, pop_rsi, kReturn}).depth, 8);
  EXPECT_EQ(follow_code({kCall, kNextProcess, kLoad, jump_rax}).stack, Stack::kScheduler);
  EXPECT_EQ(follow_code({jump_rax}).stack, Stack::kTagged) << "to a handler, perhaps: no return address is on top";
  EXPECT_EQ(follow_code({kStore, kEnter, kCall, kNextProcess}).stack, Stack::kUnknown);
}

TEST(BeamFlow, DoesNotRunOn) {
  EXPECT_EQ(follow_code({{0xeb, 0xfe}}, true).stack, Stack::kUnknown);
  EXPECT_EQ(follow_code({Code(600, 0x90)}).stack, Stack::kUnknown);
  EXPECT_EQ(follow_code({{0x0f, 0xff}}).stack, Stack::kUnknown);
  EXPECT_EQ(follow_code({{0x50}, kReturn}).stack, Stack::kUnknown) << "below its return address";
}

}  // namespace
}  // namespace windlass::runtimes::beam
