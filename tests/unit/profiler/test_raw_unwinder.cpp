// Ground truth is this very process. libgcc's backtrace() gives a call chain. The agent's unwinder gets a copy of the
// stack and the registers of the same moment.
#include "profiler/samples/raw_unwinder.h"

#include <execinfo.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "profiler/processes/module_registry.h"
#include "support/use_up.h"
#include "windlass/backtrace.h"
#include "windlass_wine_layout.h"

namespace windlass::profiler {
namespace {

struct Capture {
  std::vector<void*> truth;  // innermost first
  Registers registers{kOwnArchitecture};
  std::vector<std::byte> stack;
};
Capture capture;

// By DWARF number; then the pc.
void take_registers(const ucontext_t& context) {
#if defined(__aarch64__)
  for (unsigned i = 0; i < 31; ++i) capture.registers.set(i, context.uc_mcontext.regs[i]);
  capture.registers.set_sp(context.uc_mcontext.sp);
  capture.registers.set_pc(CodeAddress::instruction(context.uc_mcontext.pc));
#else
  static constexpr int kGregs[17] = {REG_RAX, REG_RDX, REG_RCX, REG_RBX, REG_RSI, REG_RDI, REG_RBP, REG_RSP, REG_R8,
                                     REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15, REG_RIP};
  const auto value = [&](unsigned i) { return static_cast<std::uint64_t>(context.uc_mcontext.gregs[kGregs[i]]); };
  for (unsigned i = 0; i < 16; ++i) capture.registers.set(i, value(i));
  capture.registers.set_pc(CodeAddress::instruction(value(16)));
#endif
}

std::uint64_t stack_top() {
  pthread_attr_t attributes;
  void* low = nullptr;
  std::size_t size = 0;
  pthread_getattr_np(pthread_self(), &attributes);
  pthread_attr_getstack(&attributes, &low, &size);
  pthread_attr_destroy(&attributes);
  return reinterpret_cast<std::uint64_t>(low) + size;
}

[[gnu::no_sanitize("address")]] void take_stack() {
  const std::uint64_t sp = capture.registers.sp();
  const std::uint64_t size = std::min<std::uint64_t>(stack_top() - sp, WL_MAX_RAW_STACK);
  capture.stack.resize(size);
  // memcpy is intercepted by the address sanitizer, which knows of redzones in there.
  const auto* from = reinterpret_cast<const volatile std::uint64_t*>(sp);
  for (std::size_t i = 0; i < size / 8; ++i) {
    const std::uint64_t word = from[i];
    std::memcpy(capture.stack.data() + i * 8, &word, 8);
  }
}

[[gnu::noinline, gnu::no_sanitize("address")]] void capture_here() {
  capture = Capture();
  ucontext_t context;
  getcontext(&context);
  take_registers(context);
  take_stack();
  void* addresses[200];
  capture.truth.assign(addresses, addresses + ::backtrace(addresses, 200));
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  capture.truth.erase(capture.truth.begin());  // its interceptor of backtrace()
#endif
}

using Unwound = UnwoundStack;

// This process as the agent knows it.
struct Self {
  const std::uint32_t tgid = static_cast<std::uint32_t>(getpid());
  ModuleRegistry registry{nullptr};
  ProcessTable table{[this](std::uint32_t process, std::uint32_t parent, const os::ProcMap& map) {
    return registry.resolve(process, parent, map);
  }};
  RawUnwinder unwinder{registry};

  Self() { EXPECT_TRUE(table.scan(tgid, 1)); }
  [[nodiscard]] const MapSet& maps() const { return *table.find(tgid)->maps; }
};

Unwound unwind() {
  Self self;
  RawSample sample;
  sample.tgid = self.tgid;
  sample.registers = capture.registers;
  sample.stack = {capture.registers.sp(), capture.stack};
  return self.unwinder.unwind(sample, &self.maps());
}

// The callers of the captured function, from frame 1 up.
void expect_truth(const Unwound& unwound) {
  EXPECT_EQ(unwound.end, WL_END_COMPLETE) << profile::end_text(unwound.end);
  ASSERT_GE(capture.truth.size(), 3u);
  ASSERT_EQ(unwound.frames.size(), capture.truth.size());
  for (std::size_t i = 1; i < unwound.frames.size(); ++i) {
    EXPECT_EQ(unwound.frames[i] & ~WL_FRAME_EXACT, reinterpret_cast<std::uint64_t>(capture.truth[i])) << "frame " << i;
  }
}

[[gnu::noinline]] void chain(int depth, void (*leaf)()) {
  volatile char room[40];
  room[0] = static_cast<char>(depth);
  if (depth == 0)
    leaf();
  else
    chain(depth - 1, leaf);
  room[1] = room[0];
}

[[gnu::noinline]] void realigned(int depth, void (*leaf)()) {
  alignas(64) volatile char room[64];  // CFA through rbp, or through memory
  room[0] = 1;
  chain(depth, leaf);
  room[1] = room[0];
}

[[gnu::noinline]] void variable_size(int size, void (*leaf)()) {
  auto* room = static_cast<volatile char*>(__builtin_alloca(static_cast<std::size_t>(size)));
  room[0] = 1;
  realigned(3, leaf);
  room[1] = room[0];
}

TEST(RawUnwinder, CallChain) {
  chain(20, capture_here);
  expect_truth(unwind());
}

TEST(RawUnwinder, RealignedAndVariableFrames) {
  variable_size(777, capture_here);
  expect_truth(unwind());
}

TEST(RawUnwinder, ThreadEndsAtItsStart) {
  std::thread([] { chain(5, capture_here); }).join();
  expect_truth(unwind());
}

void on_signal(int, siginfo_t*, void*) { chain(2, capture_here); }

TEST(RawUnwinder, ThroughASignalFrame) {
  if (kOwnArchitecture == Architecture::kAArch64 && getauxval(AT_SYSINFO_EHDR) == 0)
    GTEST_SKIP() << "no vdso here (qemu-user): the trampoline is in no mapping";
  struct sigaction action {};
  action.sa_sigaction = on_signal;
  action.sa_flags = SA_SIGINFO;
  struct sigaction before {};
  sigaction(SIGUSR1, &action, &before);
  chain(4, [] { raise(SIGUSR1); });
  sigaction(SIGUSR1, &before, nullptr);
  const Unwound unwound = unwind();
  EXPECT_EQ(unwound.end, WL_END_COMPLETE);
  ASSERT_EQ(unwound.frames.size(), capture.truth.size());
  std::size_t exact = 0;
  for (std::size_t i = 1; i < unwound.frames.size(); ++i) {
    exact += (unwound.frames[i] & WL_FRAME_EXACT) != 0 ? 1 : 0;
    EXPECT_EQ(unwound.frames[i] & ~WL_FRAME_EXACT, reinterpret_cast<std::uint64_t>(capture.truth[i])) << i;
  }
  EXPECT_EQ(exact, 1u);  // the interrupted instruction
}

void throw_things(std::vector<int>& out) {
  std::sort(out.begin(), out.end(), [](int a, int b) {
    static bool once = false;
    if (!once) {
      once = true;
      capture_here();
    }
    return a < b;
  });
}

TEST(RawUnwinder, ThroughOtherLibrariesAndTemplates) {
  std::vector<int> numbers(100);
  for (int i = 0; i < 100; ++i) numbers[i] = i * 37 % 101;
  throw_things(numbers);
  expect_truth(unwind());
  int values[] = {3, 1, 2};
  static bool once;
  once = false;
  qsort(values, 3, sizeof(int), [](const void* a, const void* b) {
    if (!once) capture_here();
    once = true;
    return *static_cast<const int*>(a) - *static_cast<const int*>(b);
  });
  expect_truth(unwind());
}

TEST(RawUnwinder, ACutStackSaysSo) {
  chain(20, capture_here);
  capture.stack.resize(256);
  const Unwound unwound = unwind();
  EXPECT_EQ(unwound.end, WL_END_UNREADABLE_STACK);
  EXPECT_GE(unwound.frames.size(), 1u);
}

TEST(RawUnwinder, GarbageRegistersNeverHang) {
  chain(3, capture_here);
  const Capture good = capture;
  ModuleRegistry registry(nullptr);
  ProcessTable table([&](std::uint32_t tgid, std::uint32_t parent, const os::ProcMap& map) {
    return registry.resolve(tgid, parent, map);
  });
  const auto self = static_cast<std::uint32_t>(getpid());
  ASSERT_TRUE(table.scan(self, 1));
  RawUnwinder unwinder(registry);
  std::uint64_t random = 88172645463325252ull;
  const auto next = [&] {
    random ^= random << 13;
    random ^= random >> 7;
    return random ^= random << 17;
  };
  for (int round = 0; round < 300; ++round) {
    RawSample sample;
    sample.tgid = self;
    sample.registers = good.registers;
    std::vector<std::byte> stack = good.stack;
    for (int i = 0; i < 64; ++i) {
      const std::uint64_t word = next() % 2 ? next() : good.registers.get(next() % 33);
      if (stack.size() >= 8) std::memcpy(stack.data() + next() % (stack.size() / 8) * 8, &word, 8);
    }
    if (next() % 2) {
      const std::uint64_t reg = next() % 33;
      sample.registers.set(reg, next());
    }
    sample.stack = {sample.registers.sp(), stack};
    const UnwoundStack unwound = unwinder.unwind(sample, table.find(self)->maps.get());
    EXPECT_LT(unwound.end, WL_END_COUNT);
    EXPECT_LE(unwound.frames.size(), RawUnwinder::kMaxFrames);
  }
}

TEST(RawEvent, PartsMustFitTheEvent) {
  std::vector<std::uint64_t> bytes((sizeof(wl_raw_event) + 16 + 8 + 32) / 8 + 1);
  auto& event = reinterpret_cast<wl_raw_event&>(bytes[0]);
  event.head.type = WL_EVENT_RAW;
  event.kernel_frames = 2;
  event.code_size = 5;
  event.stack_size = 24;
  event.second_size = 8;
  event.second_address = 0x9000;
  event.stack_pages = 0x11;
  event.second_pages = 1;
  event.stack_address = 0x1000;
  event.gs_base = 0x7000;
  event.teb_frame = 0x1234;
  event.thread_pointer = 0x8000;
  event.words[WL_WAY_FIRST] = {0x7ff8, 0x8020};
  event.words[WL_WAY_SP] = {0x8058, 0x5678};
  event.words[WL_HELD_FP] = {0xc000, 3};
  event.words[WL_HELD_RETURN] = {0xc008, 4};
  const std::size_t size = sizeof event + 16 + 8 + 32;
  const auto parsed = parse_raw_event(event.head, size);
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->kernel.size(), 2u);
  EXPECT_EQ(parsed->sample.code.bytes.size(), 5u);
  EXPECT_EQ(parsed->sample.stack.bytes.size(), 24u);
  EXPECT_EQ(parsed->sample.second.bytes.size(), 8u);
  EXPECT_EQ(parsed->sample.second.bytes.data(), parsed->sample.stack.bytes.data() + 24);
  EXPECT_EQ(parsed->sample.second.address, 0x9000u);
  EXPECT_EQ(parsed->sample.stack.address, 0x1000u);
  EXPECT_EQ(parsed->sample.stack.pages, 0x11u);
  EXPECT_EQ(parsed->sample.second.pages, 1u);
  EXPECT_EQ(parsed->sample.registers.get(59), 0x7000u) << "gs.base";
  std::uint64_t frame = 0;
  EXPECT_EQ(parsed->sample.registers.get(58), 0x8000u) << "fs.base";
  SnapshotMemory memory;
  memory.show(parsed->sample);
  std::uint64_t word = 0;
  EXPECT_TRUE(memory.read(0x7ff8, &word, sizeof word));
  EXPECT_EQ(word, 0x8020U);
  EXPECT_TRUE(memory.read(0x8058, &word, sizeof word));
  EXPECT_EQ(word, 0x5678U);
  EXPECT_TRUE(memory.read(0xc008, &word, sizeof word));
  EXPECT_EQ(word, 4U);
  EXPECT_FALSE(memory.read(0, &word, sizeof word)) << "a word that was not loaded";
  EXPECT_TRUE(parsed->sample.teb.read(0x7000 + WL_WINE_TEB_FRAME, &frame, sizeof frame));
  EXPECT_EQ(frame, 0x1234u);
  EXPECT_FALSE(parsed->sample.teb.read(0x7000 + WL_WINE_TEB_FRAME + 1, &frame, sizeof frame));
  EXPECT_EQ(parsed->sample.probed_pc, 0u);
  event.words[WL_PROBED_RETURN + 1] = {0xd000, 5};
  event.probed_pc = 0xe000;
  event.machine = WL_MACHINE_AARCH64;
  const auto by_sp = parse_raw_event(event.head, size);
  ASSERT_TRUE(by_sp);
  EXPECT_EQ(by_sp->sample.probed_pc, 0xe000u);
  EXPECT_EQ(by_sp->sample.probed_returns[1].sp, 0xd000u);
  EXPECT_EQ(by_sp->sample.probed_returns[1].address, 5u);
  memory.show(by_sp->sample);
  EXPECT_FALSE(memory.read(0xd000, &word, sizeof word)) << "the address is the caller's sp";
  event.machine = WL_MACHINE_X86_64;
  EXPECT_FALSE(parse_raw_event(event.head, size - 1));
  EXPECT_FALSE(parse_raw_event(event.head, 40));
  event.stack_size = 0xffffffff;
  EXPECT_FALSE(parse_raw_event(event.head, size));
}

#if defined(__x86_64__)
// Code that is jumped into with a frame already there, as LuaJIT's interpreter is described; and a function.
extern "C" const char windlass_test_jumped_into[], windlass_test_called[];
asm(R"(
.pushsection .text
windlass_test_jumped_into:
  .cfi_startproc
  .cfi_def_cfa_offset 80
  nop
  call windlass_test_called
  nop
  jmp *%rbx
  .cfi_endproc
windlass_test_called:
  .cfi_startproc
  sub $24, %rsp
  .cfi_adjust_cfa_offset 24
  nop
  call windlass_test_jumped_into
  jmp *%rbx
  .cfi_endproc
.popsection
)");

// The stack holds a 0 where the row has the return address.
Unwound walk_to_zero(const char* code, std::size_t instruction, std::size_t cfa) {
  capture = Capture();
  capture.stack.resize(256);
  capture.registers.set_pc(CodeAddress::instruction(reinterpret_cast<std::uint64_t>(code) + instruction));
  capture.registers.set_sp(stack_top() - 256);
  const std::uint64_t other = 1;
  for (std::size_t at = 0; at < cfa - 8; at += 8) std::memcpy(capture.stack.data() + at, &other, 8);
  return unwind();
}

TEST(RawUnwinder, AZeroEndsTheStackOfAFunctionOnly) {
  EXPECT_EQ(walk_to_zero(windlass_test_jumped_into, 0, 80).end, WL_END_GUESSED);
  EXPECT_EQ(walk_to_zero(windlass_test_called, 4, 32).end, WL_END_COMPLETE);
}

// A function that nobody describes, called by the one before.
extern "C" const char windlass_test_without_rows[];
asm(R"(
.pushsection .text
windlass_test_without_rows:
  push %rbx
  sub $16, %rsp
  nop
  nop
  add $16, %rsp
  pop %rbx
  ret
.popsection
)");

class WithoutRows : public testing::Test {
 protected:
  // At its first instruction behind the prologue, or the second.
  Unwound unwind(std::size_t instruction) {
    return unwind_at(reinterpret_cast<std::uint64_t>(windlass_test_without_rows) + 5 + instruction, 24);
  }
  // The return address stands so far above sp.
  Unwound unwind_at(std::uint64_t pc, std::size_t return_address) {
    capture = Capture();
    capture.stack.resize(256);
    capture.registers.set_pc(CodeAddress::instruction(pc));
    capture.registers.set_sp(stack_top() - 256);
    const std::uint64_t caller = reinterpret_cast<std::uint64_t>(windlass_test_called) + 10;
    std::memcpy(capture.stack.data() + return_address, &caller, sizeof caller);
    RawSample sample;
    sample.tgid = self_.tgid;
    sample.registers = capture.registers;
    sample.stack = {capture.registers.sp(), capture.stack};
    return self_.unwinder.unwind(sample, &self_.maps());
  }
  Self self_;
};

TEST_F(WithoutRows, TheCodeAtAnAddressIsFollowedOnce) {
  const Unwound first = unwind(0);
  EXPECT_EQ(first.end, WL_END_COMPLETE);
  ASSERT_EQ(first.frames.size(), 2u);
  EXPECT_EQ(first.frames[1], reinterpret_cast<std::uint64_t>(windlass_test_called) + 10);
  const std::uint64_t followed = self_.unwinder.memo().followed();
  EXPECT_GT(followed, 0u);
  for (unsigned i = 0; i < 3; ++i) {
    const Unwound again = unwind(0);
    EXPECT_EQ(again.end, first.end);
    EXPECT_EQ(again.frames, first.frames);
  }
  EXPECT_EQ(self_.unwinder.memo().followed(), followed);
}

TEST_F(WithoutRows, CodeMadeAtRunTimeIsFollowedAgainWhereItHasChanged) {
  constexpr std::size_t kPage = 4096;
  void* const page = mmap(nullptr, kPage, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(page, MAP_FAILED);
  ASSERT_TRUE(self_.table.scan(self_.tgid, 2));
  const auto pc = reinterpret_cast<std::uint64_t>(page) + 16;
  const auto unwind_with = [&](std::uint8_t frame) {
    const std::uint8_t code[] = {0x90, 0x48, 0x83, 0xc4, frame, 0xc3};  // nop; add rsp, frame; ret
    std::memcpy(reinterpret_cast<void*>(pc), code, sizeof code);
    const Unwound unwound = unwind_at(pc, frame);
    return unwound.frames.size() == 2 ? unwound.frames[1] : 0;
  };
  const std::uint64_t caller = reinterpret_cast<std::uint64_t>(windlass_test_called) + 10;
  EXPECT_EQ(unwind_with(16), caller);
  const std::uint64_t followed = self_.unwinder.memo().followed();
  EXPECT_EQ(unwind_with(16), caller);
  EXPECT_EQ(self_.unwinder.memo().followed(), followed);
  EXPECT_EQ(unwind_with(48), caller);
  EXPECT_GT(self_.unwinder.memo().followed(), followed);
  munmap(page, kPage);
}

#ifdef __x86_64__
// sub rsp, 24; nop dword [rax]; call rax; xor ebx, ebx; add rsp, 24; ret: as GraalVM's native images make code at run
// time, which keeps no registers. The function begins the mapping.
TEST_F(WithoutRows, AFunctionMadeAtRunTimeIsProvedAsAWhole) {
  constexpr std::size_t kPage = 4096;
  auto* const page = static_cast<std::uint8_t*>(
      mmap(nullptr, 3 * kPage, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(static_cast<void*>(page), MAP_FAILED);
  // Nothing else is mapped around.
  munmap(page, kPage);
  munmap(page + 2 * kPage, kPage);
  std::uint8_t* const code = page + kPage;
  const std::uint8_t bytes[] = {0x48, 0x83, 0xec, 0x18, 0x0f, 0x1f, 0x40, 0x00, 0xff,
                                0xd0, 0x31, 0xdb, 0x48, 0x83, 0xc4, 0x18, 0xc3};
  std::memcpy(code, bytes, sizeof bytes);
  ASSERT_TRUE(self_.table.scan(self_.tgid, 2));
  const auto begin = reinterpret_cast<std::uint64_t>(code);
  const Unwound first = unwind_at(begin + 8, 24);
  ASSERT_EQ(first.frames.size(), 2u);
  EXPECT_EQ(first.certainty, WL_PROVED);
  ASSERT_EQ(first.checked.size(), 1u);
  const CheckedStep& step = first.checked.front();
  EXPECT_NE(step.step.guard, 0u);
  EXPECT_NE(step.step.callers[0], WL_ANY_CALLER) << "its guard covers little of what proves it";
  ASSERT_NE(step.function, nullptr);
  EXPECT_EQ(step.function->range.begin + step.function_bias, begin);
  ASSERT_GE(step.function->code.size(), sizeof bytes);
  EXPECT_EQ(std::memcmp(step.function->code.data(), bytes, sizeof bytes), 0);
  code[3] = code[15] = 0x28;
  EXPECT_EQ(unwind_at(begin + 8, 40).frames, first.frames);
  const Unwound changed = unwind_at(begin + 8, 40);
  ASSERT_EQ(changed.checked.size(), 1u);
  ASSERT_NE(changed.checked.front().function, nullptr);
  EXPECT_EQ(changed.checked.front().function->code[3], std::byte{0x28});
  munmap(code, kPage);
}
#endif

TEST_F(WithoutRows, WithoutTimeAStackEndsWhereCodeWouldHaveToBeFollowed) {
  constexpr std::int64_t kKept = 50'000'000;
  WorkBudget budget(1, kKept);
  self_.unwinder.set_budget(budget);
  const Unwound first = unwind(0);
  EXPECT_EQ(first.end, WL_END_COMPLETE);
  test::use_up_following(budget, kKept);
  EXPECT_EQ(unwind(0).frames, first.frames) << "what is known costs little";
  const Unwound other = unwind(1);
  EXPECT_EQ(other.end, WL_END_NO_TIME);
  EXPECT_EQ(other.frames.size(), 1u);
  test::use_up_walking(budget, kKept);
  EXPECT_EQ(unwind(0).end, WL_END_NO_TIME);
  budget.earn(1000);  // a second's worth
  EXPECT_EQ(unwind(1).end, WL_END_COMPLETE);
  EXPECT_EQ(unwind(1).frames.size(), 2u);
}

TEST(RawUnwinder, WhatTheKernelSideCallsWholeHasToBeProven) {
  Self self;
  const auto jumped_into = reinterpret_cast<std::uint64_t>(windlass_test_jumped_into);
  const auto called = reinterpret_cast<std::uint64_t>(windlass_test_called);
  EXPECT_FALSE(self.unwinder.proves_end(jumped_into | WL_FRAME_EXACT, self.maps()));
  EXPECT_TRUE(self.unwinder.proves_end(called | WL_FRAME_EXACT, self.maps()));
  EXPECT_FALSE(self.unwinder.proves_end(called, self.maps())) << "a return address behind the code before";
}
#endif

// A process that ended before its new code was read has no bad unwind information.
TEST(SampleEnd, TellsCodeThatCannotBeReadFromABadRow) {
  EXPECT_EQ(sample_end(WalkEnd::kBadRow, {ErrorCode::kUnreadable}), WL_END_NO_CODE);
  EXPECT_EQ(sample_end(WalkEnd::kBadRow, {ErrorCode::kSystem}), WL_END_NO_CODE);
  EXPECT_EQ(sample_end(WalkEnd::kBadRow, {ErrorCode::kMalformed}), WL_END_UNSUPPORTED_EXPRESSION);
  EXPECT_EQ(sample_end(WalkEnd::kUnreadable, {ErrorCode::kUnreadable}), WL_END_UNREADABLE_STACK);
}

}  // namespace
}  // namespace windlass::profiler
