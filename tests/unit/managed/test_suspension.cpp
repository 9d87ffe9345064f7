// Threads that run managed code written by hand, stopped again and again at unpredictable places.
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <csignal>
#include <functional>
#include <optional>
#include <string_view>
#include <thread>

#include "support/code_by_hand.h"
#include "windlass/managed/suspension.h"

// struct Work* in rbx (x19): calls work->step(work) until that returns something else than 0. step_method counts
// work->steps up, by a loop without a call, and returns work->stop.
#if defined(__x86_64__)
asm(R"(
  .text
  .globl loop_method, loop_method_end, step_method, step_method_end, spin_method, spin_method_end
loop_method:
  .cfi_startproc
  pushq %rbx
  .cfi_def_cfa_offset 16
  .cfi_offset %rbx, -16
  movq %rdi, %rbx
1: movq %rbx, %rdi
  call *(%rbx)
  testq %rax, %rax
  jz 1b
  movq %rbx, %rax
  popq %rbx
  .cfi_def_cfa_offset 8
  ret
  .cfi_endproc
loop_method_end:
step_method:
  .cfi_startproc
  subq $24, %rsp
  .cfi_def_cfa_offset 32
  movl $100, %ecx
2: incq 16(%rdi)
  decl %ecx
  jnz 2b
  movq 8(%rdi), %rax
  addq $24, %rsp
  .cfi_def_cfa_offset 8
  ret
  .cfi_endproc
step_method_end:
spin_method:
  .cfi_startproc
  pushq %rbx
  .cfi_def_cfa_offset 16
  .cfi_offset %rbx, -16
  movq %rdi, %rbx
3: incq 16(%rbx)
  cmpq $0, 8(%rbx)
  je 3b
  movq %rbx, %rax
  popq %rbx
  .cfi_def_cfa_offset 8
  ret
  .cfi_endproc
spin_method_end:
)");
#else
asm(R"(
  .text
  .p2align 2
  .globl loop_method, loop_method_end, step_method, step_method_end, spin_method, spin_method_end
loop_method:
  .cfi_startproc
  stp x29, x30, [sp, #-32]!
  .cfi_def_cfa_offset 32
  .cfi_offset x29, -32
  .cfi_offset x30, -24
  str x19, [sp, #16]
  .cfi_offset x19, -16
  mov x19, x0
1: mov x0, x19
  ldr x9, [x19]
  blr x9
  cbz x0, 1b
  mov x0, x19
  ldr x19, [sp, #16]
  .cfi_restore x19
  ldp x29, x30, [sp], #32
  .cfi_restore x29
  .cfi_restore x30
  .cfi_def_cfa_offset 0
  ret
  .cfi_endproc
loop_method_end:
step_method:
  .cfi_startproc
  stp x29, x30, [sp, #-16]!
  .cfi_def_cfa_offset 16
  .cfi_offset x29, -16
  .cfi_offset x30, -8
  mov w10, #100
2: ldr x9, [x0, #16]
  add x9, x9, #1
  str x9, [x0, #16]
  subs w10, w10, #1
  b.ne 2b
  ldr x0, [x0, #8]
  ldp x29, x30, [sp], #16
  .cfi_restore x29
  .cfi_restore x30
  .cfi_def_cfa_offset 0
  ret
  .cfi_endproc
step_method_end:
spin_method:
  .cfi_startproc
  stp x29, x30, [sp, #-32]!
  .cfi_def_cfa_offset 32
  .cfi_offset x29, -32
  .cfi_offset x30, -24
  str x19, [sp, #16]
  .cfi_offset x19, -16
  mov x19, x0
3: ldr x9, [x19, #16]
  add x9, x9, #1
  str x9, [x19, #16]
  ldr x9, [x19, #8]
  cbz x9, 3b
  mov x0, x19
  ldr x19, [sp, #16]
  .cfi_restore x19
  ldp x29, x30, [sp], #32
  .cfi_restore x29
  .cfi_restore x30
  .cfi_def_cfa_offset 0
  ret
  .cfi_endproc
spin_method_end:
)");
#endif
extern "C" const char windlass_hijacked_return;
extern "C" const char loop_method[], loop_method_end[], step_method[], step_method_end[], spin_method[],
    spin_method_end[];

namespace windlass::managed {
namespace {

// Bytes in front of spin_method's loop, and behind it.
constexpr std::uint64_t kBehindEntry = kOwnArchitecture == Architecture::kX86_64 ? 4 : 12;
constexpr std::uint64_t kExit = kOwnArchitecture == Architecture::kX86_64 ? 5 : 16;
constexpr RegisterNumber kKept = kOwnArchitecture == Architecture::kX86_64 ? 3 : 19;

// What a collector moves: the other copy is poisoned while one is in use.
struct Work {
  const void* step;
  volatile std::uint64_t stop;
  volatile std::uint64_t steps;
};

// spin_method's frame is known everywhere, step_method's nowhere: it has to be hijacked.
struct Points : SafePoints {
  bool is_safe_point(const Method& method, std::uint64_t pc) const override {
    return !none && method.id == 3 && pc - method.begin >= kBehindEntry && method.end - pc > kExit;
  }
  bool can_hijack(const Method& method) const override { return method.id == 2 || hijacks_all; }
  void is_late(const MutatorThread&, const Error& why) const override {
    late = why;
    if (when_late) when_late();
  }
  bool none = false, hijacks_all = false;
  mutable std::optional<Error> late;
  std::function<void()> when_late;
};

struct Mutator {
  MutatorThread thread;
  std::array<Work, 2> copies{};
  std::atomic<Work*> now = nullptr;
  std::atomic<std::uint64_t> rounds = 0;
};

struct Suspended : testing::Test {
  Suspended() : suspender(own_process(), runtime, points, SIGRTMIN + 3) {
    runtime.add(1, loop_method, loop_method_end);
    runtime.add(2, step_method, step_method_end);
    runtime.add(3, spin_method, spin_method_end);
  }

  // Runs `code` on the thread's work until that is stopped.
  void run(Mutator& mutator, const char* code) {
    suspender.leave_native(mutator.thread);
    mutator.copies = {Work{step_method, 0, 0}, Work{}};
    mutator.now = mutator.copies.data();
    Work* work = reinterpret_cast<Work* (*)(Work*)>(reinterpret_cast<std::uint64_t>(code))(mutator.now);
    EXPECT_EQ(work, mutator.now.load()) << "it went on with what was moved";
    suspender.enter_native(mutator.thread);
    ++mutator.rounds;
  }
  void thread_body(Mutator& mutator, const char* code, const std::atomic<bool>& end) {
    suspender.attach(mutator.thread);
    while (!end) run(mutator, code);
    suspender.detach(mutator.thread);
  }

  // Walks a stopped thread, and moves what its methods keep in their register. How many methods there were.
  unsigned collect(Mutator& mutator) {
    Work* from = mutator.now;
    if (from == nullptr) return 0;
    Work* to = from == mutator.copies.data() ? &mutator.copies[1] : mutator.copies.data();
    unsigned methods = 0, moved = 0;
    ManagedWalker walker(mutator.thread.walk, Registers(kOwnArchitecture), kThreadIsSuspended);
    while (walker.next()) {
      const CrawlFrame& frame = walker.frame();
      if (!frame.frameless()) {
        EXPECT_EQ(frame.state, CrawlState::kFrameFunction);
        EXPECT_TRUE(frame.frame.kind == FrameKind::kHijacked || frame.frame.kind == FrameKind::kRedirected);
        (frame.frame.kind == FrameKind::kHijacked ? hijacked : redirected)++;
        continue;
      }
      ++methods;
      auto* slot = reinterpret_cast<std::uint64_t*>(frame.saved.at(frame.registers, kKept));
      EXPECT_NE(slot, nullptr);
      if (slot == nullptr) continue;
      EXPECT_EQ(*slot, reinterpret_cast<std::uint64_t>(from));
      if (moved++ == 0) {
        *to = {from->step, from->stop, from->steps};
        *from = {nullptr, 0, 0};
        mutator.now = to;
      }
      *slot = reinterpret_cast<std::uint64_t>(to);
    }
    EXPECT_FALSE(walker.error()) << walker.error()->text();
    return methods;
  }

  HandRuntime runtime;
  Points points;
  Suspender suspender;
  unsigned hijacked = 0, redirected = 0;
};

// The thread sanitizer hands signals over where it is asked for something, which code by hand never does.
#if defined(__SANITIZE_THREAD__)
#define WINDLASS_NEEDS_SIGNALS() GTEST_SKIP() << "the thread sanitizer holds signals back"
#else
#define WINDLASS_NEEDS_SIGNALS() (void)0
#endif

void stop_again_and_again(Suspended& test, const char* code, unsigned& in_methods) {
  // AArch64's is run by an emulator.
  constexpr unsigned kThreads = 4, kStops = kOwnArchitecture == Architecture::kX86_64 ? 500 : 60;
  std::array<Mutator, kThreads> mutators;
  std::atomic<bool> end = false;
  std::vector<std::thread> threads;
  for (Mutator& mutator : mutators) threads.emplace_back([&, code] { test.thread_body(mutator, code, end); });
  std::uint64_t steps = 0;
  for (unsigned i = 0; i < kStops; ++i) {
    const Stopped stopped(test.suspender);
    std::uint64_t before = 0, after = 0;
    for (const Mutator& mutator : mutators) before += mutator.copies[0].steps + mutator.copies[1].steps;
    for (Mutator& mutator : mutators) {
      const unsigned methods = test.collect(mutator);
      EXPECT_LE(methods, 1u);
      in_methods += methods;
      if (i % 50 == 49 && mutator.now != nullptr) mutator.now.load()->stop = 1;
    }
    if (i % 100 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    for (const Mutator& mutator : mutators) after += mutator.copies[0].steps + mutator.copies[1].steps;
    EXPECT_EQ(before, after) << "somebody ran";
    steps += after;
  }
  end = true;
  for (;; std::this_thread::sleep_for(std::chrono::milliseconds(1))) {
    const Stopped stopped(test.suspender);
    if (stopped.threads().empty()) break;
    for (Mutator& mutator : mutators)
      if (mutator.now != nullptr) mutator.now.load()->stop = 1;
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(steps, 0u);
  for (const Mutator& mutator : mutators) EXPECT_GT(mutator.rounds, 0u);
}

TEST_F(Suspended, ThreadsAreStoppedWhereTheirFramesAreKnown) {
  WINDLASS_NEEDS_SIGNALS();
  unsigned in_methods = 0;
  stop_again_and_again(*this, spin_method, in_methods);
  EXPECT_GT(redirected, 20u);
  EXPECT_EQ(hijacked, 0u);
  EXPECT_EQ(in_methods, redirected);
}

TEST_F(Suspended, OthersWhereTheirMethodReturns) {
  WINDLASS_NEEDS_SIGNALS();
  unsigned in_methods = 0;
  stop_again_and_again(*this, loop_method, in_methods);
  EXPECT_GT(hijacked, 20u);
  EXPECT_EQ(redirected, 0u);
  EXPECT_EQ(in_methods, hijacked);
}

// A loop without a safe point that a signal can find: who stops is told which thread that is, and why.
TEST_F(Suspended, ALoopThatDoesNotStopIsNamed) {
  WINDLASS_NEEDS_SIGNALS();
  points.none = true;
  Mutator mutator;
  std::atomic<bool> end = false;
  std::thread thread([&] { thread_body(mutator, spin_method, end); });
  while (mutator.now == nullptr || mutator.now.load()->steps == 0) std::this_thread::yield();
  const auto in_spin = [](std::uint64_t pc) {
    return pc >= reinterpret_cast<std::uint64_t>(spin_method) && pc < reinterpret_cast<std::uint64_t>(spin_method_end);
  };
  for (const bool hijacks : {false, true}) {
    points.hijacks_all = hijacks;
    const Stopped stopped(suspender, std::chrono::milliseconds(100));
    ASSERT_TRUE(stopped.error());
    EXPECT_EQ(stopped.error()->code, ErrorCode::kLimit);
    EXPECT_TRUE(in_spin(stopped.error()->where));
    EXPECT_EQ(stopped.error()->detail, static_cast<std::uint64_t>(mutator.thread.id));
    const std::string_view what = stopped.error()->what;
    EXPECT_NE(what.find(hijacks ? "does not return" : "may not be hijacked"), what.npos) << what;
    EXPECT_NE(what.find("look at pending()"), what.npos) << what;
  }
  // Its return address was replaced meanwhile. Nobody waits when it returns by that, and later stops find it.
  mutator.now.load()->stop = 1;
  for (const std::uint64_t before = mutator.rounds; mutator.rounds < before + 2;) {
    if (Work* work = mutator.now; work != nullptr) work->stop = 1;
    std::this_thread::yield();
  }
  // Who waits for as long as it takes hears of it.
  EXPECT_FALSE(points.late);
  points.when_late = [&] {
    end = true;
    mutator.copies[0].stop = 1;
  };
  while (!points.late) {
    const Stopped stopped(suspender);
    EXPECT_FALSE(stopped.error());
    EXPECT_EQ(stopped.find(mutator.thread.id), stopped.threads().empty() ? nullptr : &mutator.thread);
    EXPECT_EQ(stopped.find(1), nullptr);
  }
  EXPECT_TRUE(in_spin(points.late->where));
  thread.join();
}

TEST_F(Suspended, ThreadsComeAndGoMeanwhile) {
  std::atomic<bool> end = false;
  std::vector<std::thread> makers;
  std::atomic<unsigned> lives = 0, inside = 0;
  for (int i = 0; i < 2; ++i)
    makers.emplace_back([&] {
      while (!end)
        std::thread([&] {
          MutatorThread thread;
          suspender.attach(thread);
          suspender.leave_native(thread);
          ++inside;
          --inside;
          suspender.enter_native(thread);
          suspender.detach(thread);
          ++lives;
        }).join();
    });
  for (int i = 0; i < 300 || lives < 100; ++i) {
    const Stopped stopped(suspender);
    EXPECT_EQ(inside, 0u);  // a thread's mode may be the managed one, until it sees that it has to wait
  }
  end = true;
  for (std::thread& maker : makers) maker.join();
  EXPECT_GT(lives, 0u);
}

TEST_F(Suspended, AThreadInNativeCodeIsWalkedFromItsFrame) {
  Mutator mutator;
  std::atomic<bool> in_native = false, go_on = false;
  std::thread thread([&] {
    suspender.attach(mutator.thread);
    CallSiteFrame frame;  // as generated code in loop_method would have it
    frame.site = {reinterpret_cast<std::uint64_t>(loop_method) + 8, reinterpret_cast<std::uint64_t>(&frame) + 128, 0};
    const Pushed pushed(mutator.thread.frames, frame);
    in_native = true;
    while (!go_on) std::this_thread::yield();
    suspender.leave_native(mutator.thread);
    suspender.enter_native(mutator.thread);
    suspender.detach(mutator.thread);
  });
  while (!in_native) std::this_thread::yield();
  {
    const Stopped stopped(suspender);
    ManagedWalker walker(mutator.thread.walk, Registers(kOwnArchitecture), 0);
    ASSERT_TRUE(walker.next());
    EXPECT_EQ(walker.frame().frame.kind, FrameKind::kInlinedCall);
    ASSERT_TRUE(walker.next());
    EXPECT_EQ(walker.frame().method->id, 1u);
    go_on = true;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_EQ(mutator.thread.mode.load(), ThreadMode::kNative) << "it waits";
  }
  thread.join();
}

#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
// A thread that is stopped where its method returns, single-stepped by its own trap flag. At every instruction, also
// those of the runtime in between, a walk with native frames must show the method to which the thread returns.
struct Stepped {
  Mutator* mutator = nullptr;
  std::uint64_t loop_sp = 0;  // in loop_method, behind its push; 0: it has not been entered
  unsigned at_return = 0, with_frame = 0, elsewhere = 0, wrong = 0;
  char why[160] = {};
} stepped;

void set_trap_flag(bool on) {
  constexpr std::uint64_t kTrap = 0x100;
  if (on)
    asm volatile("pushfq; orq %0, (%%rsp); popfq" : : "r"(kTrap) : "cc", "memory");
  else
    asm volatile("pushfq; andq %0, (%%rsp); popfq" : : "r"(~kTrap) : "cc", "memory");
}

void on_step(int, siginfo_t*, void* ucontext) {
  const Registers registers = registers_of(ucontext);
  const std::uint64_t pc = registers.pc().value(), loop = reinterpret_cast<std::uint64_t>(loop_method);
  if (pc == loop + 1) stepped.loop_sp = registers.sp();
  if (stepped.loop_sp != 0 && registers.sp() > stepped.loop_sp) stepped.loop_sp = 0;
  if (stepped.loop_sp == 0) return;
  const MutatorThread& thread = stepped.mutator->thread;
  std::uint64_t last = 0, frame_at = 0, kept_at = 0;
  ManagedWalker walker(thread.walk, registers, kAllowAsyncWalk | kNativeFrames);
  while (walker.next()) {
    const CrawlFrame& frame = walker.frame();
    if (frame.state == CrawlState::kFrameFunction && frame.frame.kind == FrameKind::kHijacked)
      frame_at = frame.frame.address;
    if (!frame.frameless()) continue;
    last = frame.method->id;
    kept_at = frame.saved.at(frame.registers, kKept);
  }
  // Where it waits, the frame's registers are those that it goes on with.
  const bool places = frame_at == 0 || kept_at - frame_at < sizeof(ContextFrame);
  const auto stub = pc - reinterpret_cast<std::uint64_t>(&windlass_hijacked_return);
  (stub < 256 ? stepped.at_return : frame_at != 0 ? stepped.with_frame : stepped.elsewhere)++;
  if (last == 1 && places && !walker.error()) return;
  if (stepped.wrong++ == 0)
    std::snprintf(stepped.why, sizeof stepped.why, "pc %lx (%lx behind the hijacked return), last method %lu, %s, %s",
                  pc, stub, last, places ? "places" : "other places", walker.error() ? walker.error()->what : "");
}

TEST_F(Suspended, AHijackedReturnIsWalkedAtEveryInstruction) {
  struct sigaction action {
  }, before{};
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  action.sa_sigaction = on_step;
  sigfillset(&action.sa_mask);  // the thread is asked to stop when it is back in its code
  ASSERT_EQ(sigaction(SIGTRAP, &action, &before), 0);
  Mutator mutator;
  stepped = {};
  stepped.mutator = &mutator;
  std::atomic<bool> end = false;
  std::thread thread([&] {
    suspender.attach(mutator.thread);
    suspender.leave_native(mutator.thread);
    mutator.copies = {Work{step_method, 0, 0}, Work{}};
    mutator.now = mutator.copies.data();
    set_trap_flag(true);
    (void)reinterpret_cast<Work* (*)(Work*)>(reinterpret_cast<std::uint64_t>(loop_method))(mutator.now);
    set_trap_flag(false);
    suspender.enter_native(mutator.thread);
    suspender.detach(mutator.thread);
    end = true;
  });
  while (mutator.now == nullptr) std::this_thread::yield();
  for (unsigned i = 0; i < 5; ++i) {
    {
      const Stopped stopped(suspender);
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(3));  // or it would go on waiting
  }
  mutator.now.load()->stop = 1;
  thread.join();
  sigaction(SIGTRAP, &before, nullptr);
  EXPECT_EQ(stepped.wrong, 0u) << "of " << stepped.at_return + stepped.with_frame + stepped.elsewhere << ": "
                               << stepped.why;
  EXPECT_GT(stepped.at_return, 50u);
  EXPECT_GT(stepped.with_frame, 20u);
}
#endif

}  // namespace
}  // namespace windlass::managed
