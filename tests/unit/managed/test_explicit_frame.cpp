// Explicit frames: pushed and popped, read, and refused where they are broken.
#include <gtest/gtest.h>

#include "made_up_stack.h"

namespace windlass::managed {
namespace {

TEST(ExplicitFrame, ListsGrowAndShrink) {
  FrameList list;
  EXPECT_EQ(list.top, kEndOfFrames);
  CallSiteFrame outer;
  const Pushed pushed_outer(list, outer);
  EXPECT_EQ(list.top, reinterpret_cast<std::uint64_t>(&outer));
  {
    MarkerFrame inner(FrameKind::kDebuggerMarker);
    const Pushed pushed_inner(list, inner);
    EXPECT_EQ(inner.header.next, reinterpret_cast<std::uint64_t>(&outer));
    EXPECT_EQ(list.top, reinterpret_cast<std::uint64_t>(&inner));
  }
  EXPECT_EQ(list.top, reinterpret_cast<std::uint64_t>(&outer));
}

TEST(ExplicitFrame, HelpersProtectReferences) {
  std::uint64_t a = 1, b = 2, c = 3;
  HelperFrame<0> none;
  HelperFrame<3> three(&a, &b, &c);
  EXPECT_EQ(none.header.reference_count, 0u);
  EXPECT_EQ(three.header.reference_count, 3u);
  EXPECT_EQ(three.header.references, reinterpret_cast<std::uint64_t>(three.references));
  EXPECT_EQ(three.references[2], reinterpret_cast<std::uint64_t>(&c));
  FrameList list;
  const Pushed pushed(list, three);
  const auto view = read_frame(own_process().memory(), list.top, &list.cookie);
  ASSERT_TRUE(view) << view.error().text();
  EXPECT_EQ(view->kind, FrameKind::kHelper);
  EXPECT_EQ(view->reference_count, 3u);
  EXPECT_EQ(view->context_at, reinterpret_cast<std::uint64_t>(&three.context));
}

TEST(ExplicitFrame, CaptureHasThePreservedRegisters) {
  HelperFrame<0> frame;
  capture(frame);
  const Registers registers = frame.context.registers(kOwnArchitecture);
  const Registers beside = capture_registers();
  EXPECT_EQ(registers.known_slots(), beside.known_slots());
  EXPECT_EQ(registers.sp(), beside.sp());
  EXPECT_TRUE(registers.pc().is_return_address());
  EXPECT_LT(beside.pc().value() - registers.pc().value(), 4096u);
}

TEST(ExplicitFrame, BrokenOnesAreNamed) {
  MadeUpStack stack;
  const Memory& memory = stack.space->memory();
  const std::uint64_t cookie = MadeUpStack::kCookie;
  const auto what = [&](std::uint64_t address) {
    const auto read = read_frame(memory, address, &cookie);
    return read ? std::string("fine") : std::string(read.error().what);
  };
  const std::uint64_t at = stack.push(CallSiteFrame());
  EXPECT_EQ(what(at), "fine");
  EXPECT_EQ(what(at + 4), "explicit frame is not aligned");
  EXPECT_EQ(what(0x1000), "explicit frame is not readable");
  CallSiteFrame frame;
  const auto broken = [&](auto change) {
    frame = CallSiteFrame();
    frame.header.cookie = cookie ^ at;
    change(frame.header);
    stack.mem->put(at, frame);
    return what(at);
  };
  EXPECT_EQ(broken([](ExplicitFrame& f) { f.cookie ^= 1; }), "explicit frame's cookie is wrong");
  EXPECT_EQ(broken([](ExplicitFrame& f) { f.kind = 0xff; }), "explicit frame is of no kind that there is");
  EXPECT_EQ(broken([](ExplicitFrame& f) { f.kind = 0x100; }), "fine");
  EXPECT_EQ(broken([](ExplicitFrame& f) { f.form = 5; }), "explicit frame is of no kind that there is");
  EXPECT_EQ(broken([&](ExplicitFrame& f) { f.next = at; }), "explicit frame's next one lies below it");
  const std::uint64_t last = kStackTop - sizeof(ExplicitFrame);
  frame.header.cookie = cookie ^ last;
  frame.header.form = static_cast<std::uint8_t>(FrameForm::kCallSite);
  frame.header.kind = 0;
  frame.header.next = kEndOfFrames;
  stack.mem->put(last, frame.header);
  EXPECT_EQ(what(last), "explicit frame's call site is not readable");
}

TEST(ExplicitFrame, EveryKindHasAName) {
  for (unsigned kind = 0; kind <= static_cast<unsigned>(FrameKind::kFunctionEvaluation); ++kind)
    EXPECT_NE(kind_name(static_cast<FrameKind>(kind)), "user") << kind;
  EXPECT_EQ(kind_name(static_cast<FrameKind>(0x123)), "user");
}

}  // namespace
}  // namespace windlass::managed
