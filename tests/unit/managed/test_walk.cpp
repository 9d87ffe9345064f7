// Where a walk goes, frame by frame.
#include <gtest/gtest.h>

#include "made_up_stack.h"
#include "support/code_by_hand.h"
#include "windlass/prologue.h"

namespace windlass::managed {
namespace {

TEST(ManagedWalk, GoesThroughManagedFramesWithTheirRegisters) {
  MadeUpStack stack;
  const std::uint64_t cfa1 = stack.call(stack.runtime.add(1, 4), 0x11);
  const std::uint64_t cfa2 = stack.call(stack.runtime.add(2, 6), 0x22);
  ManagedWalker walker(stack.thread, stack.registers(), 0);
  ASSERT_TRUE(walker.next());
  EXPECT_EQ(walker.frame().cfa, cfa2);
  EXPECT_TRUE(walker.frame().first);
  EXPECT_EQ(walker.frame().function(), 2u);
  ASSERT_TRUE(walker.next());
  EXPECT_EQ(walker.frame().cfa, cfa1);
  EXPECT_FALSE(walker.frame().first);
  EXPECT_EQ(walker.frame().registers.get(kRbx), 0x11u);
  EXPECT_EQ(walker.frame().registers.get(kRbp), 0x66u);
  EXPECT_FALSE(walker.next());
  EXPECT_FALSE(walker.error());
  EXPECT_EQ(walker.frame().state, CrawlState::kDone);
}

TEST(ManagedWalk, IsARange) {
  MadeUpStack stack;
  for (std::uint64_t id = 1; id <= 5; ++id) stack.call(stack.runtime.add(id, 4));
  std::uint64_t expected = 5;
  ManagedWalker walker(stack.thread, stack.registers(), kFunctionsOnly);
  for (const CrawlFrame& frame : walker) EXPECT_EQ(frame.method->id, expected--);
  EXPECT_EQ(expected, 0u);
}

TEST(ManagedWalk, StopsWhereTheCallbackSays) {
  MadeUpStack stack;
  for (std::uint64_t id = 1; id <= 3; ++id) stack.call(stack.runtime.add(id, 4));
  unsigned seen = 0;
  const auto take = [&](WalkAction action) {
    return [&seen, action](const CrawlFrame&) { return ++seen == 2 ? action : WalkAction::kContinue; };
  };
  EXPECT_EQ(walk(stack.thread, stack.registers(), 0, take(WalkAction::kStop)), WalkOutcome::kStopped);
  EXPECT_EQ(seen, 2u);
  seen = 0;
  EXPECT_EQ(walk(stack.thread, stack.registers(), 0, take(WalkAction::kAbort)), WalkOutcome::kAborted);
  seen = 5;
  EXPECT_EQ(walk(stack.thread, stack.registers(), 0, take(WalkAction::kAbort)), WalkOutcome::kDone);
}

// A walk that is stopped has taken off what it has passed; one that is aborted was in vain.
TEST(ManagedWalk, AnAbortedWalkLeavesTheListAsItWas) {
  FrameList list;
  MarkerFrame frames[3];  // where the list wants them: ascending
  for (int i = 2; i >= 0; --i) list.push(frames[i].header);
  HandRuntime runtime;
  const ManagedThread thread{.space = &own_process(), .runtime = &runtime, .own_list = &list};
  const std::uint64_t top = list.top;
  const auto at_second = [&](WalkAction action) {
    unsigned seen = 0;
    return walk(thread, Registers(kOwnArchitecture), kPopFrames,
                [&](const CrawlFrame&) { return ++seen == 2 ? action : WalkAction::kContinue; });
  };
  EXPECT_EQ(at_second(WalkAction::kAbort), WalkOutcome::kAborted);
  EXPECT_EQ(list.top, top);
  EXPECT_EQ(at_second(WalkAction::kStop), WalkOutcome::kStopped);
  EXPECT_EQ(list.top, reinterpret_cast<std::uint64_t>(&frames[1]));
}

// Each kind whose frame has registers of its own leads to the managed code that it was made for.
TEST(ManagedWalk, ContextFramesLeadToInterruptedCode) {
  for (const FrameKind kind : {FrameKind::kFaulting, FrameKind::kHijacked, FrameKind::kRedirected,
                               FrameKind::kFunctionEvaluation, FrameKind::kTailCall}) {
    MadeUpStack stack;
    stack.call(stack.runtime.add(1, 4), 0x11);
    const bool faults = kind == FrameKind::kFaulting;
    ContextFrame frame(kind, FrameForm::kContext, faults ? managed::kFaulted : std::uint8_t{0});
    frame.context.set(stack.registers(true));
    const std::uint64_t at = stack.push(frame);
    stack.call_native();
    const std::string name(kind_name(kind));
    EXPECT_EQ(stack.shown(stack.registers(), 0), name + (faults ? " 1!*" : " 1!"));
    ManagedWalker walker(stack.thread, stack.registers(), kFunctionsOnly);
    ASSERT_TRUE(walker.next());
    EXPECT_EQ(walker.frame().registers.get(kRbx), 0x11u);
    EXPECT_EQ(walker.frame().saved.at(walker.frame().registers, kRbx),
              at + offsetof(ContextFrame, context) + offsetof(SavedContext, value) + kRbx * 8);
  }
}

TEST(ManagedWalk, MarkersAreStandingBetweenNativeAndManagedCode) {
  for (const FrameKind kind : {FrameKind::kCallback, FrameKind::kDebuggerMarker, FrameKind::kExceptionFilter}) {
    MadeUpStack stack;
    stack.push(MarkerFrame());
    stack.call_native();
    stack.call(stack.runtime.add(1, 4));
    stack.push(stack.call_site());
    stack.call_native();
    stack.push(MarkerFrame(kind));
    stack.call_native();
    stack.call(stack.runtime.add(2, 4));
    EXPECT_EQ(stack.shown(stack.registers(), kFunctionsOnly), "2 1");
    EXPECT_EQ(stack.shown(stack.registers(), 0), "2 " + std::string(kind_name(kind)) + " inlined call 1 callback");
  }
}

TEST(ManagedWalk, UserKindsSayWhatTheyAre) {
  MadeUpStack stack;
  stack.call(stack.runtime.add(1, 4));
  ContextFrame frame(static_cast<FrameKind>(0x107), FrameForm::kSaved, kStandsForFunction);
  frame.header.user = 4711;
  frame.context.set(stack.registers());
  stack.push(frame);
  stack.call_native();
  ManagedWalker walker(stack.thread, stack.registers(), kFunctionsOnly);
  ASSERT_TRUE(walker.next());
  EXPECT_EQ(walker.frame().function(), 4711u);
  EXPECT_EQ(walker.frame().frame.kind, static_cast<FrameKind>(0x107));
  ASSERT_TRUE(walker.next());
  EXPECT_EQ(walker.frame().function(), 1u);
}

TEST(ManagedWalk, SeesThroughAHijackedReturn) {
  MadeUpStack stack;
  stack.call(stack.runtime.add(1, 4));
  const std::uint64_t original = stack.pc;
  const std::uint64_t cfa = stack.call(stack.runtime.add(2, 4));
  stack.mem->put(cfa - 8, kNativeCode + 0x500);
  EXPECT_EQ(stack.shown(stack.registers(), 0), "2");
  stack.thread.hijack = {.slot = cfa - 8, .original = original};
  EXPECT_EQ(stack.shown(stack.registers(), 0), "2 1");
}

struct WithNativeCode : MadeUpStack {
  static constexpr unsigned kWords = 16;
  WithNativeCode() {
    FrameRow row;
    row.begin = kNativeCode;
    row.end = kNativeCode + 0x1000;
    row.cfa = CfaRule::at(7, 8 * kWords);
    row.return_address = RegisterRule::at_cfa(-8);
    EXPECT_TRUE(space->add(CodeRange{.begin = row.begin, .end = row.end, .rows = {row}}));
    EXPECT_TRUE(space->add(CodeRange{.begin = kCode, .end = kCode + 16 * kCodeSize}));  // what may be returned to
  }
};

// Native code between managed code, by its rows. What it leaves in a register is still where the method before it has
// saved that.
TEST(ManagedWalk, NativeFramesKeepWhereRegistersWereSaved) {
  WithNativeCode stack;
  stack.call(stack.runtime.add(1, 4), 0x11);
  const CallSiteFrame out = stack.call_site();
  stack.call_native(WithNativeCode::kWords);
  stack.push(out, stack.sp + 48);
  stack.push(MarkerFrame(), stack.sp);
  const std::uint64_t inner = stack.call(stack.runtime.add(2, 4), 0x22);
  EXPECT_EQ(stack.shown(stack.registers(), kNativeFrames),
            "2 native frame callback inlined call 1 native frame error: stack is not readable");
  ManagedWalker walker(stack.thread, stack.registers(), kNativeFrames);
  for (const CrawlFrame& frame : walker) {
    if (!frame.frameless() || frame.method->id != 1) continue;
    EXPECT_EQ(frame.registers.get(kRbx), 0x11u);
    EXPECT_EQ(frame.saved.at(frame.registers, kRbx), inner - 16);
  }
}

// The runtime's code to which a hijacked method has returned. Its only caller is the caller of the hijacked method.
TEST(ManagedWalk, NativeFramesLeadBehindAHijackedReturn) {
  WithNativeCode stack;
  stack.call(stack.runtime.add(1, 4));
  const std::uint64_t original = stack.pc;
  stack.call_native(WithNativeCode::kWords);
  const std::uint64_t slot = stack.sp + 8 * WithNativeCode::kWords - 8;
  stack.mem->put(slot, kNativeCode + 0x500);
  stack.call_native(WithNativeCode::kWords);
  EXPECT_EQ(stack.shown(stack.registers(), kNativeFrames).find('1'), std::string::npos);
  stack.thread.hijack = {.slot = slot, .original = original};
  EXPECT_EQ(stack.shown(stack.registers(), kNativeFrames).substr(0, 27), "native frame native frame 1");
  stack.thread.hijack.original = kNativeCode + 0x20;  // native code had called the method
  EXPECT_EQ(stack.shown(stack.registers(), kNativeFrames).substr(0, 38), "native frame native frame native frame");
}

// Another method by Windows' unwind information: push rbx; sub rsp, 32.
TEST(ManagedWalk, WindowsUnwindInformationIsExecuted) {
  MadeUpStack stack;
  stack.call(stack.runtime.add(1, 4), 0x11);
  Method& method = stack.runtime.add(2, 6);
  const std::uint64_t cfa = stack.call(method, 0x22);
  const Prologue prologue{.code_size = kCodeSize, .ops = {{1, prologue::push(kRbx)}, {5, prologue::Allocate{32}}}};
  const std::uint64_t base = method.begin - 0x100, info = kStackTop - kStackSize;
  const auto written = winx64::write(prologue, {.function = 0x100, .info = static_cast<std::uint32_t>(info - base)});
  ASSERT_TRUE(written) << written.error().text();
  method.windows = {.base = base, .function = written->entries.at(0)};
  EXPECT_NE(stack.shown(stack.registers(), 0).find("error"), std::string::npos) << "the information is not there yet";
  for (std::size_t i = 0; i < written->bytes.size(); ++i) stack.mem->put(info + i, written->bytes[i]);
  ManagedWalker walker(stack.thread, stack.registers(), 0);
  ASSERT_TRUE(walker.next());
  EXPECT_EQ(walker.frame().cfa, cfa);
  ASSERT_TRUE(walker.next()) << walker.error()->text();
  EXPECT_EQ(walker.frame().method->id, 1u);
  EXPECT_EQ(walker.frame().registers.get(kRbx), 0x11u);
  EXPECT_EQ(walker.frame().saved.at(walker.frame().registers, kRbx), cfa - 16);
  EXPECT_FALSE(walker.next());
  EXPECT_FALSE(walker.error());
}

class KeepingRuntime : public MadeUpRuntime {
 public:
  std::uint64_t generation() const override { return current; }
  std::uint64_t current = new_generation();
};

// What unwind information comes to at a pc is a row, kept as others are: until the runtime says that it has changed.
TEST(ManagedWalk, WindowsUnwindInformationIsReadOnceAGeneration) {
  MadeUpStack stack;
  KeepingRuntime runtime;
  stack.thread.runtime = &runtime;
  (void)stack.call(stack.runtime.add(1, 4));
  stack.call(stack.runtime.add(2, 6), 0x22);
  (void)runtime.add(1, 4);
  Method& method = runtime.add(2, 6);
  const Prologue prologue{.code_size = kCodeSize, .ops = {{1, prologue::push(kRbx)}, {5, prologue::Allocate{32}}}};
  const std::uint64_t base = method.begin - 0x100, info = kStackTop - kStackSize;
  const auto written = winx64::write(prologue, {.function = 0x100, .info = static_cast<std::uint32_t>(info - base)});
  ASSERT_TRUE(written) << written.error().text();
  method.windows = {.base = base, .function = written->entries.at(0)};
  const auto put = [&](std::byte mask) {
    for (std::size_t i = 0; i < written->bytes.size(); ++i) stack.mem->put(info + i, written->bytes[i] & mask);
  };
  put(std::byte{0xff});
  EXPECT_EQ(stack.shown(stack.registers(), 0), "2 1");
  put(std::byte{0});
  EXPECT_EQ(stack.shown(stack.registers(), 0), "2 1") << "it is not read again";
  runtime.current = new_generation();
  EXPECT_NE(stack.shown(stack.registers(), 0).find("error"), std::string::npos);
}

TEST(ManagedWalk, BrokenListsAndStacksAreErrors) {
  MadeUpStack stack;
  stack.call(stack.runtime.add(1, 4));
  stack.push(stack.call_site());
  stack.thread.frames += 4;
  EXPECT_EQ(stack.shown(stack.registers(), 0), "1 error: explicit frame is not aligned");
  stack.thread.frames = 0x1000;
  EXPECT_EQ(stack.shown(stack.registers(), 0), "1 error: explicit frame is not readable");
  // A frame that leads back to below where the walk has been.
  MadeUpStack loop;
  loop.call(loop.runtime.add(1, 4));
  const CallSiteFrame again = loop.call_site();
  loop.push(MarkerFrame());
  loop.call_native();
  CallSiteFrame first = again;
  first.site.sp -= 64;
  loop.mem->put(first.site.sp + 24, kCode + 0x10);
  loop.push(first);
  EXPECT_NE(loop.shown(loop.registers(), 0).find("error"), std::string::npos);
  // What an explicit frame, or an exception's record, leads to lies above it.
  MadeUpStack below;
  below.call(below.runtime.add(1, 4));
  CallSiteFrame site = below.call_site();
  const std::uint64_t at = below.push(site);
  site.site.sp = at - 32;  // the method's frame would end where this begins
  site.header = {.next = kEndOfFrames, .cookie = MadeUpStack::kCookie ^ at, .kind = 0, .form = 1};
  below.mem->put(at, site);
  below.call_native();
  EXPECT_EQ(below.shown(below.registers(), 0), "inlined call error: explicit frame leads to below itself");
  below.thread.frames = kEndOfFrames;
  ExceptionRecord record;
  Registers low = below.registers();
  low.set_pc(CodeAddress::return_address(kCode + 0x10));
  low.set_sp(kStackTop - kStackSize + 64);
  below.mem->put(low.sp() + 24, kNativeCode + 0x80);
  record.set_context(low);
  below.push_record(record);
  below.call_native();
  EXPECT_EQ(below.shown(below.registers(), 0), "error: exception record leads to below itself");
}

TEST(ManagedWalk, CrawlMarksLookPastHelpers) {
  MadeUpStack stack;
  stack.call(stack.runtime.add(1, 4));
  stack.call(stack.runtime.add(2, 4));
  Method& helper = stack.runtime.add(3, 4);
  helper.transparent = true;
  stack.call(helper);
  stack.call(stack.runtime.add(4, 4));
  const auto who = [&](CrawlMark mark) {
    const auto found = find_caller(stack.thread, stack.registers(), mark);
    return found ? found->method->id : 0;
  };
  EXPECT_EQ(who(CrawlMark::kMyself), 4u);
  EXPECT_EQ(who(CrawlMark::kMyCaller), 2u);
  EXPECT_EQ(who(CrawlMark::kMyCallersCaller), 1u);
  MadeUpStack shallow;
  shallow.call(shallow.runtime.add(1, 4));
  EXPECT_EQ(find_caller(shallow.thread, shallow.registers(), CrawlMark::kMyCaller).error().code, ErrorCode::kNotFound);
}

TEST(ManagedWalk, PlacesOfAFrameAreRead) {
  MadeUpStack stack;
  Method& method = stack.runtime.add(1, 8);
  method.generic_context = {.base = FramePlace::kAtSp, .offset = 8};
  method.this_object = {.base = FramePlace::kInRegister, .reg = kRbx};
  stack.call(method, 0x7155);
  stack.mem->put(stack.sp + 8, std::uint64_t{0x6e6e});
  ManagedWalker walker(stack.thread, stack.registers(), 0);
  ASSERT_TRUE(walker.next());
  const CrawlFrame& frame = walker.frame();
  EXPECT_EQ(frame.value(stack.space->memory(), method.generic_context).value(), 0x6e6eu);
  EXPECT_EQ(frame.value(stack.space->memory(), method.this_object).value(), 0x7155u);
  EXPECT_EQ(frame.value(stack.space->memory(), {}).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(frame.value(stack.space->memory(), {.base = FramePlace::kInRegister, .reg = kR12}).error().code,
            ErrorCode::kNotFound);
}

TEST(ManagedWalk, IsLoggedAsTheClrDoes) {
  MadeUpStack stack;
  stack.push(MarkerFrame());
  stack.call_native();
  stack.call(stack.runtime.add(1, 4));
  stack.thread.id = 0x1f3a;
  std::vector<std::string> lines;
  set_walk_log(
      [](std::string_view line, void* user) { static_cast<std::vector<std::string>*>(user)->emplace_back(line); },
      &lines);
  EXPECT_EQ(stack.shown(stack.registers(), kFunctionsOnly), "1");
  set_walk_log(nullptr, nullptr);
  char pc_sp[64];
  std::snprintf(pc_sp, sizeof pc_sp, "PC=%016lx SP=%016lx", stack.pc, stack.sp);
  const std::string head = "TID 1f3a: STACKWALK: [000] ", next = "TID 1f3a: STACKWALK: [001] ";
  ASSERT_EQ(lines.size(), 6u);
  EXPECT_EQ(lines[0], head + "about to unwind for method=method1 " + pc_sp);
  EXPECT_EQ(lines[1], head + "CONSIDER: FRAMELESS: " + pc_sp + " method=method1");
  EXPECT_EQ(lines[2], head + "CALLBACK: FRAMELESS: " + pc_sp + " method=method1");
  EXPECT_TRUE(lines[3].starts_with(next + "finished unwind for method=method1 PC=")) << lines[3];
  EXPECT_TRUE(lines[4].starts_with(next + "CONSIDER: EXPLICIT :")) << lines[4];
  EXPECT_TRUE(lines[5].starts_with(next + "FILTER  : EXPLICIT :")) << lines[5];
  EXPECT_EQ(stack.shown(stack.registers(), kFunctionsOnly), "1");
  EXPECT_EQ(lines.size(), 6u);
}

}  // namespace
}  // namespace windlass::managed
