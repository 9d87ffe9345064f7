// What each flag of a walk changes.
#include <gtest/gtest.h>

#include "made_up_stack.h"

namespace windlass::managed {
namespace {

// Native code, method 1, method 2, which called out: "2" stands behind an inlined call.
struct OfTwo : MadeUpStack {
  OfTwo() {
    push(MarkerFrame());
    call_native();
    outer = call(runtime.add(1, 4), 0x11);
    inner = call(runtime.add(2, 16), 0x22);
    inlined = push(call_site(), sp + 8);
    call_native();
  }
  std::uint64_t outer, inner, inlined;
};

// Method 2, which method 1 called, threw; a dispatcher runs a funclet of 1.
struct OfDispatch : MadeUpStack {
  OfDispatch(Funclet funclet, bool second_pass) {
    const Method& catcher = runtime.add(1, 8);
    const Method& thrower = runtime.add(2, 4);
    push(MarkerFrame());
    call_native();
    establisher = call(catcher, 0x11);
    const Registers in_catcher = registers();
    call(thrower, 0x22);
    ExceptionRecord record{.object = 0x0b1ec7, .establisher = establisher, .pass = second_pass ? 2u : 1u};
    record.funclet = static_cast<std::uint32_t>(funclet);
    record.set_context(second_pass ? in_catcher : registers());
    call_native();
    push_record(record);
    call_native();
    call(runtime.add(3, 6, funclet, &catcher), 0x33);
    call(runtime.add(4, 4));
  }
  std::uint64_t establisher;
};

TEST(Flags, FunctionsOnlyLeavesOutFramesThatAreNone) {
  OfTwo stack;
  EXPECT_EQ(stack.shown(stack.registers(), 0), "inlined call 2 1 callback");
  EXPECT_EQ(stack.shown(stack.registers(), kFunctionsOnly), "2 1");
  CallSiteFrame frame = stack.call_site();
  frame.site = {};
  frame.header.attributes = kStandsForFunction;
  frame.header.user = 77;
  stack.push(frame);
  EXPECT_EQ(stack.shown(stack.registers(), kFunctionsOnly), "inlined call 2 1");
}

TEST(Flags, SkipFuncletsShowsTheirMethodInstead) {
  OfDispatch second(Funclet::kCatch, true);
  EXPECT_EQ(second.shown(second.registers(), kFunctionsOnly), "4 3 1");
  EXPECT_EQ(second.shown(second.registers(), kFunctionsOnly | kSkipFunclets), "4 1");
  OfDispatch first(Funclet::kFilter, false);
  EXPECT_EQ(first.shown(first.registers(), kFunctionsOnly), "4 3 2 1");
  EXPECT_EQ(first.shown(first.registers(), kFunctionsOnly | kSkipFunclets), "4 1");
}

TEST(Flags, PopFramesTakesPassedFramesOffTheList) {
  OfTwo stack;
  FrameList list;
  list.top = stack.thread.frames;
  list.cookie = MadeUpStack::kCookie;
  stack.thread.own_list = &list;
  EXPECT_EQ(stack.shown(stack.registers(), 0), "inlined call 2 1 callback");
  EXPECT_EQ(list.top, stack.inlined);
  ManagedWalker walker(stack.thread, stack.registers(), kPopFrames);
  ASSERT_TRUE(walker.next() && walker.next());
  EXPECT_EQ(walker.frame().method->id, 2u);
  EXPECT_NE(list.top, stack.inlined);
  while (walker.next()) {}
  EXPECT_EQ(list.top, kEndOfFrames);
}

TEST(Flags, QuickUnwindKnowsThreeRegistersLightUnwindNoPlaces) {
  OfTwo stack;
  const auto caller = [&](WalkFlags flags) {
    ManagedWalker walker(stack.thread, stack.registers(), flags | kFunctionsOnly);
    EXPECT_TRUE(walker.next() && walker.next());
    return walker.frame();
  };
  const CrawlFrame all = caller(0);
  EXPECT_EQ(all.registers.get(kRbx), 0x11u);
  EXPECT_EQ(all.saved.at(all.registers, kRbx), stack.inner - 16);
  EXPECT_TRUE(all.saved_known);
  const CrawlFrame light = caller(kLightUnwind);
  EXPECT_EQ(light.registers.get(kRbx), 0x11u);
  EXPECT_EQ(light.saved.at(light.registers, kRbx), 0u);
  EXPECT_FALSE(light.saved_known);
  const CrawlFrame quick = caller(kQuickUnwind);
  EXPECT_FALSE(quick.registers.has(kRbx));
  EXPECT_TRUE(quick.registers.has(kRbp));
  EXPECT_EQ(quick.registers.sp(), all.registers.sp());
  EXPECT_EQ(quick.pc(), all.pc());
}

TEST(Flags, HandleSkippedFramesShowsThemBeforeTheirMethod) {
  MadeUpStack stack;
  stack.push(MarkerFrame());
  stack.call_native();
  stack.call(stack.runtime.add(1, 4));
  const Method& method = stack.runtime.add(2, 12);
  stack.call(method);
  CallSiteFrame idle;  // no call is under way
  stack.push(idle, stack.sp + 8);
  EXPECT_EQ(stack.shown(stack.registers(), 0), "2 1 callback");
  EXPECT_EQ(stack.shown(stack.registers(), kHandleSkippedFrames), "skipped inlined call 2 1 callback");
  EXPECT_EQ(stack.shown(stack.registers(), kHandleSkippedFrames | kFunctionsOnly), "2 1");
}

TEST(Flags, NotifyOnUnmanagedToManagedShowsWhoCalled) {
  OfTwo stack;
  EXPECT_EQ(stack.shown(stack.registers(), kNotifyOnUnmanagedToManaged), "inlined call 2 1 native marker callback");
}

TEST(Flags, AMissingFrameIsAnErrorUnlessDisabled) {
  MadeUpStack stack;
  stack.push(MarkerFrame());
  stack.call_native();
  stack.call(stack.runtime.add(1, 4));
  stack.push(stack.call_site());
  stack.call_native();
  stack.call(stack.runtime.add(2, 4));  // native code did not say so
  EXPECT_EQ(stack.shown(stack.registers(), kFunctionsOnly),
            "2 error: native code called managed code without an explicit frame");
  EXPECT_EQ(stack.shown(stack.registers(), kFunctionsOnly | kDisableMissingFrameDetection), "2 1");
}

TEST(Flags, AThreadAtAnInstructionIsWalkedWithLeaveOnly) {
  MadeUpStack stack;
  stack.call(stack.runtime.add(1, 4));
  const Registers there = stack.registers(true);
  EXPECT_EQ(stack.shown(there, 0),
            "error: thread stands at an instruction, and is neither suspended nor may be walked asynchronously");
  EXPECT_EQ(stack.shown(there, kAllowAsyncWalk), "1!");
  EXPECT_EQ(stack.shown(there, kThreadIsSuspended), "1!");
}

TEST(Flags, InvalidObjectsAreAllowed) {
  struct NoObjects : MadeUpRuntime {
    bool is_object(std::uint64_t reference) const override { return reference == 0x0b1ec7; }
  };
  MadeUpStack stack;
  NoObjects runtime;
  Method& method = runtime.add(1, 4);
  method.this_object = {.base = FramePlace::kInRegister, .reg = kRbx};
  stack.runtime.add(1, 4);
  stack.thread.runtime = &runtime;
  stack.call(*stack.runtime.find(kCode), 0xbad);
  EXPECT_EQ(stack.shown(stack.registers(), 0), "error: a frame's object is none");
  EXPECT_EQ(stack.shown(stack.registers(), kAllowInvalidObjects), "1");
  stack.rbx = 0x0b1ec7;
  EXPECT_EQ(stack.shown(stack.registers(), 0), "1");
  stack.rbx = 0;  // a null `this` is nobody's fault
  EXPECT_EQ(stack.shown(stack.registers(), 0), "1");
}

TEST(Flags, NotifyOnNoFrameTransitionsShowsExceptions) {
  OfDispatch stack(Funclet::kCatch, true);
  EXPECT_EQ(stack.shown(stack.registers(), kNotifyOnNoFrameTransitions), "4 3 no-frame transition 1 callback");
  EXPECT_EQ(stack.shown(stack.registers(), 0), "4 3 1 callback");
}

TEST(Flags, NotifyOnInitialNativeContextShowsWhereTheWalkBegins) {
  OfTwo stack;
  EXPECT_EQ(stack.shown(stack.registers(), kNotifyOnInitialNativeContext),
            "initial native context inlined call 2 1 callback");
  EXPECT_EQ(stack.shown(Registers(Architecture::kX86_64), kNotifyOnInitialNativeContext), "inlined call 2 1 callback");
}

TEST(Flags, AFuncletReportsForItsParentButAFilterDoesNot) {
  OfDispatch caught(Funclet::kCatch, true), finally(Funclet::kFinally, true), filtered(Funclet::kFilter, false);
  EXPECT_EQ(caught.shown(caught.registers(), kFunctionsOnly | kGcFuncletReferences), "4 3 1(silent)");
  EXPECT_EQ(finally.shown(finally.registers(), kFunctionsOnly | kGcFuncletReferences), "4 3 1(silent)");
  EXPECT_EQ(filtered.shown(filtered.registers(), kFunctionsOnly | kGcFuncletReferences), "4 3 2 1");
  EXPECT_EQ(caught.shown(caught.registers(), kFunctionsOnly), "4 3 1");
}

TEST(Flags, CookiesAreCheckedUnlessSkipped) {
  OfTwo stack;
  stack.thread.cookie ^= 1;
  EXPECT_EQ(stack.shown(stack.registers(), kFunctionsOnly), "error: explicit frame's cookie is wrong");
  EXPECT_EQ(stack.shown(stack.registers(), kFunctionsOnly | kSkipCookieCheck), "2 1");
  MadeUpStack guarded;
  Method& method = guarded.runtime.add(1, 4);
  method.guard = {.base = FramePlace::kAtCfa, .offset = -24};
  const std::uint64_t cfa = guarded.call(method);
  EXPECT_EQ(guarded.shown(guarded.registers(), 0), "error: frame's guard was overwritten");
  EXPECT_EQ(guarded.shown(guarded.registers(), kSkipCookieCheck), "1");
  guarded.mem->put(cfa - 24, guarded.runtime.guard_value());
  EXPECT_EQ(guarded.shown(guarded.registers(), 0), "1");
}

}  // namespace
}  // namespace windlass::managed
