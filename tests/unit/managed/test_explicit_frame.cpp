// Explicit frames: pushed and popped, read, and refused where they are broken.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "made_up_stack.h"
#include "os/process_memory.h"

// push_by_code(list, frame), pop_by_code(list, frame): the instructions that explicit_frame.h gives to generated code.
#if defined(__x86_64__)
asm(R"(
  .text
  .globl push_by_code, pop_by_code
push_by_code:
  movq (%rdi), %rax
  movq %rax, (%rsi)
  movq %rsi, (%rdi)
  ret
pop_by_code:
  movq (%rsi), %rax
  movq %rax, (%rdi)
  ret
)");
#else
asm(R"(
  .text
  .p2align 2
  .globl push_by_code, pop_by_code
push_by_code:
  ldr x9, [x0]
  str x9, [x1]
  str x1, [x0]
  ret
pop_by_code:
  ldr x9, [x1]
  str x9, [x0]
  ret
)");
#endif
extern "C" void push_by_code(windlass::managed::FrameList* list, void* frame);
extern "C" void pop_by_code(windlass::managed::FrameList* list, void* frame);

namespace windlass::managed {
namespace {

// Outer frames have to lie above inner ones: an array's do.
TEST(ExplicitFrame, GeneratedCodePushesAndPops) {
  FrameList list;
  CallSiteFrame frames[2];
  for (CallSiteFrame& frame : frames) frame.header.cookie = list.cookie ^ reinterpret_cast<std::uint64_t>(&frame);
  push_by_code(&list, &frames[1]);
  push_by_code(&list, &frames[0]);
  const auto inner = read_frame(own_process().memory(), list.top, &list.cookie);
  ASSERT_TRUE(inner) << inner.error().text();
  EXPECT_EQ(inner->address, reinterpret_cast<std::uint64_t>(&frames[0]));
  const auto outer = read_frame(own_process().memory(), inner->next, &list.cookie);
  ASSERT_TRUE(outer) << outer.error().text();
  EXPECT_EQ(outer->next, kEndOfFrames);
  pop_by_code(&list, &frames[0]);
  EXPECT_EQ(list.top, reinterpret_cast<std::uint64_t>(&frames[1]));
  pop_by_code(&list, &frames[1]);
  EXPECT_EQ(list.top, kEndOfFrames);
}

// Another process reads the list as it is, while it stands on this one's stack.
TEST(ExplicitFrame, AnotherProcessReadsTheList) {
  FrameList list;
  std::uint64_t object = 4711;
  CallSiteFrame frames[2];
  frames[0].site = {0x1234, 0x5678, 0};
  list.push(frames[1].header);
  list.push(frames[0].header);
  HelperFrame<1> helper(&object);
  const pid_t child = fork();
  if (child == 0) {
    const os::MemoryFile parent(getppid());
    std::uint64_t head[2] = {}, reference = 0, value = 0;
    if (!parent.read(reinterpret_cast<std::uint64_t>(&list), head, sizeof head)) _exit(1);
    const auto inner = read_frame(parent, head[0], &head[1]);
    if (!inner || inner->site.pc != 0x1234) _exit(2);
    const auto outer = read_frame(parent, inner->next, &head[1]);
    if (!outer || outer->next != kEndOfFrames) _exit(3);
    const auto its = reinterpret_cast<std::uint64_t>(&helper.references);
    if (!parent.read(its, &reference, 8) || !parent.read(reference, &value, 8) || value != 4711) _exit(4);
    head[1] ^= 1;
    _exit(read_frame(parent, head[0], &head[1]) ? 5 : 0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

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
