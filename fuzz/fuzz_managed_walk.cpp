// Input: 16 bytes of a thread's state (walk flags, where its list and its exceptions begin, whether it is hijacked and
// where, whether it stands in managed code, and what of its registers is known), and then its stack, a word at a time
// written over one that is whole: each as 2 bytes of offset and 8 bytes of value. A walk of whatever there is ends
// after no more frames than the stack has room for, and says why.
#include <array>
#include <cstring>

#include "check.h"
#include "unit/managed/made_up_stack.h"
#include "windlass/managed/gc_roots.h"

namespace {

using namespace windlass;
using namespace windlass::managed;

// Native code, 1, 2 by Windows' unwind information, native code, 3, a dispatch whose funclet of 3 runs, 4, native code.
struct Whole : MadeUpStack {
  Whole() {
    push(MarkerFrame());
    call_native();
    call(runtime.add(1, 4), 0x11);
    Method& windows = runtime.add(2, 6);
    call(windows, 0x22);
    const std::uint64_t base = windows.begin - 0x100, info_at = kStackTop - kStackSize + 0x40;
    windows.windows = {base, {0x100, 0x100 + kCodeSize, static_cast<std::uint32_t>(info_at - base)}};
    const std::array<std::uint8_t, 8> info = {1, 5, 2, 0, 5, 0x32, 1, 0x30};  // push rbx; sub rsp, 32
    mem->put(info_at, info);
    const CallSiteFrame out = call_site();
    push(out);
    call_native();
    push(MarkerFrame());
    call_native();
    const Method& catcher = runtime.add(3, 8);
    runtime.add(5, 4);  // is somewhere
    const std::uint64_t cfa = call(catcher, 0x33);
    ExceptionRecord record{
        .object = 1, .establisher = cfa, .pass = 2, .funclet = static_cast<std::uint32_t>(Funclet::kCatch)};
    record.set_context(registers());
    call_native();
    push_record(record);
    call_native();
    call(runtime.add(6, 6, Funclet::kCatch, &catcher), 0x44);
    Method& inner = runtime.add(4, 4);
    inner.this_object = {.base = FramePlace::kInRegister, .reg = kRbx};
    inner.guard = {.base = FramePlace::kAtSp, .offset = 0};
    call(inner, 0x55);
    mem->put(sp, runtime.guard_value());
    ContextFrame helper(FrameKind::kHelper, FrameForm::kSaved);
    helper.header.reference_count = 1;
    helper.header.references = sp;
    helper.context.set(registers());
    push(helper);
    call_native();
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::size_t kState = 16, kWord = 10;
  if (size < kState) return 0;
  Whole stack;
  const auto take = [&](std::size_t at) {
    std::uint16_t value = 0;
    std::memcpy(&value, data + at, sizeof value);
    return value;
  };
  const std::uint64_t bottom = kStackTop - kStackSize;
  const WalkFlags flags = take(0);
  if (take(2) != 0) stack.thread.frames = bottom + take(2);
  if (take(4) != 0) stack.thread.exceptions = bottom + take(4);
  if (take(6) != 0) stack.thread.hijack = {.slot = bottom + take(6), .original = kCode + take(8)};
  Registers registers = stack.registers((data[10] & 1) != 0);
  if ((data[10] & 2) != 0) registers.set_pc(CodeAddress::return_address(kCode + take(12) % (7 * kCodeSize)));
  if ((data[10] & 4) != 0) registers.set_sp(bottom + take(14));
  if ((data[10] & 8) != 0) registers.forget_all();
  for (data += kState, size -= kState; size >= kWord; data += kWord, size -= kWord) {
    std::uint64_t value = 0;
    std::memcpy(&value, data + 2, sizeof value);
    stack.mem->put(bottom + take(0) % (kStackSize - 8), value);
  }

  // A frame of the list or of a method for each word of the stack, and what is shown between.
  constexpr unsigned kMost = 4 * kStackSize / 8;
  unsigned frames = 0;
  ManagedWalker walker(stack.thread, registers, flags);
  while (walker.next()) {
    const CrawlFrame& frame = walker.frame();
    FUZZ_CHECK(++frames < kMost);
    FUZZ_CHECK(frame.state != CrawlState::kUninitialized && frame.state != CrawlState::kDone);
    if (frame.frameless())
      FUZZ_CHECK(frame.method->begin <= frame.pc().lookup() && frame.pc().lookup() < frame.method->end);
    if (frame.frameless()) FUZZ_CHECK(frame.cfa >= frame.registers.sp());
    (void)frame.function();
    std::size_t roots = 0;
    if (frame.saved_known) (void)each_root(frame, *stack.mem, [&](const Root&) { ++roots; });
  }
  FUZZ_CHECK(!walker.next());
  if (walker.error()) FUZZ_CHECK(walker.error()->what[0] != 0);
  (void)find_caller(stack.thread, registers, CrawlMark::kMyCallersCaller);
  return 0;
}
