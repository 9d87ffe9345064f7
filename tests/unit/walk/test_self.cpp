// Walks of the own process, compared with glibc's backtrace() and against what the tests know of their stacks.
#include <execinfo.h>
#include <gtest/gtest.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "windlass/backtrace.h"

namespace windlass {
namespace {

using Pcs = std::vector<std::uint64_t>;

template <typename Function>
Pcs collect(Function&& walk) {
  Pcs pcs(2048);
  pcs.resize(walk(pcs.data(), pcs.size()));
  return pcs;
}

[[gnu::noinline]] Pcs by_windlass() {
  return collect([](std::uint64_t* pcs, std::size_t max) { return backtrace(pcs, max, 2); });
}

[[gnu::noinline]] Pcs by_walker() {
  Pcs pcs;
  StackWalker walker(own_process(), capture_registers());
  while (walker.step()) pcs.push_back(walker.frame().pc().value());
  EXPECT_EQ(walker.end_reason(), WalkEnd::kComplete) << walker.error().text();
  return pcs;
}
// From its caller on: sanitizers put frames of theirs above.
[[gnu::noinline]] Pcs by_glibc() {
  Pcs pcs = collect([](std::uint64_t* to, std::size_t max) {
    return static_cast<std::size_t>(::backtrace(reinterpret_cast<void**>(to), static_cast<int>(max)));
  });
  const auto caller = reinterpret_cast<std::uint64_t>(__builtin_return_address(0));
  pcs.erase(pcs.begin(), std::find(pcs.begin(), pcs.end(), caller));
  return pcs;
}

// The frames above the caller of this, the same by everybody. Each walks several times: the second walk is another
// than the first.
[[gnu::noinline]] void expect_all_agree() {
  Pcs glibc = by_glibc();
  const auto is_here = [here = reinterpret_cast<std::uint64_t>(__builtin_return_address(0))](std::uint64_t pc) {
    return pc == here;
  };
  const auto from_here = [&](const Pcs& pcs) { return Pcs(std::find_if(pcs.begin(), pcs.end(), is_here), pcs.end()); };
  const Pcs expected = from_here(glibc);
  ASSERT_GT(expected.size(), 1u);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(from_here(by_windlass()), expected);
    EXPECT_EQ(from_here(by_walker()), expected);
  }
}

TEST(Self, Here) { expect_all_agree(); }

[[gnu::noinline]] std::size_t two_of_the_caller(std::uint64_t* pcs) { return backtrace(pcs, 2); }

TEST(Self, LimitAndSkip) {
  std::uint64_t all[64];
  std::uint64_t some[64];
  std::size_t depth = 0;
  for (unsigned skip = 0; skip < 4; ++skip) {
    const std::size_t whole = backtrace(all, 64);
    depth = backtrace(some, 64, skip);
    EXPECT_EQ(depth, whole - skip);
    // The first is another return address of this function.
    const unsigned same = skip == 0 ? 1 : 0;
    EXPECT_EQ(Pcs(some + same, some + depth), Pcs(all + skip + same, all + whole)) << skip;
  }
  EXPECT_EQ(two_of_the_caller(some), 2u);
  EXPECT_EQ(backtrace(some, 0), 0u);
  EXPECT_EQ(backtrace(some, 64, 1000), 0u);
}

// ---- deep and varied stacks ---------------------------------------------------------------------------------------

[[gnu::noinline]] void descend(int depth, std::mt19937& random) {
  volatile char pad[64] = {};
  pad[0] = static_cast<char>(depth);
  if (depth == 0)
    expect_all_agree();
  else if (random() % 3 == 0)
    descend(depth - 1, random);
  else
    [&] { descend(depth - 1, random); }();
  pad[1] = pad[0];
}

TEST(Self, DeepStacks) {
  std::mt19937 random(1);
  for (const int depth : {0, 1, 10, 100, 700, 3, 100, 699, 350}) descend(depth, random);
}

// Stacks that branch: each walk has frames of the last one and others.
[[gnu::noinline]] void branch(int depth) {
  volatile char pad[32] = {};
  pad[0] = static_cast<char>(depth);
  if (depth == 0) return expect_all_agree();
  branch(depth - 1);
  if (depth % 2 == 0) branch(depth - 1);
  pad[1] = pad[0];
}
TEST(Self, BranchingStacks) { branch(12); }

#if defined(__x86_64__)  // where the CFA is found by the frame pointer; AArch64's compilers find it by sp
// Walks from here, with `frame` in place of the caller's frame pointer in the second turn: the caller's own caller is
// then what that says. True if each walk has told what the stack was, `address` above the caller in the second.
[[gnu::noinline]] bool tells_changed_frame_pointers(std::uint64_t frame, std::uint64_t address) {
  auto* const saved = static_cast<volatile std::uint64_t*>(__builtin_frame_address(0));
  const std::uint64_t own = *saved;
  const auto caller = reinterpret_cast<std::uint64_t>(__builtin_return_address(0));
  bool right = true;
  for (int turn = 0; turn < 4; ++turn) {
    std::uint64_t pcs[64];
    *saved = turn % 2 != 0 ? frame : own;
    const std::size_t depth = backtrace(pcs, std::size(pcs));
    *saved = own;
    const auto* const at = std::find(pcs, pcs + depth, caller);
    right &= at + 1 < pcs + depth && (at[1] == address) == (turn % 2 != 0);
  }
  return right;
}
[[gnu::noinline]] bool with_a_frame(std::uint64_t frame, std::uint64_t address) {
  const bool right = tells_changed_frame_pointers(frame, address);
  asm volatile("" ::: "memory");  // no tail call
  return right;
}

// The return addresses are where they were, but one of the registers kept beside them is not.
TEST(Self, AFramePointerThatChangesBetweenTwoWalks) {
  // As a function's frame: the caller's frame pointer, and a return address that no walk has had here.
  const auto own = reinterpret_cast<std::uint64_t>(__builtin_frame_address(0));
  const auto address = reinterpret_cast<std::uint64_t>(&two_of_the_caller) + 5;
  volatile std::uint64_t frame[2] = {own, address};
  EXPECT_TRUE(with_a_frame(reinterpret_cast<std::uint64_t>(frame), address));
  EXPECT_EQ(frame[0], own);
}
#endif

int compare_and_walk(const void* a, const void* b) {
  expect_all_agree();
  return *static_cast<const int*>(a) - *static_cast<const int*>(b);
}
TEST(Self, InCallbacks) {
  int values[] = {5, 3, 9, 1, 7, 2};
  std::qsort(values, 6, sizeof(int), compare_and_walk);
  EXPECT_TRUE(std::is_sorted(std::begin(values), std::end(values)));
}

[[gnu::noinline]] void realigned(int n) {
  alignas(64) char block[64] = {};
  char* more = static_cast<char*>(__builtin_alloca(static_cast<std::size_t>(n)));
  asm volatile("" ::"r"(block), "r"(more) : "memory");
  expect_all_agree();
  asm volatile("" ::"r"(block), "r"(more) : "memory");
}
TEST(Self, RealignedFrames) {
  for (int n = 16; n < 5000; n += 700) realigned(n);
}

// ---- threads ------------------------------------------------------------------------------------------------------

TEST(Self, Threads) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      std::mt19937 random(static_cast<unsigned>(t));
      for (const int depth : {1, 50, 200, 7, 90}) descend(depth, random);
    });
  }
  for (auto& thread : threads) thread.join();
}

// ---- signals ------------------------------------------------------------------------------------------------------

std::atomic<int> handled;
std::uint64_t above_handler[512];  // what the last walk found; no container in a handler
std::size_t above_handler_depth;

// From the registers: the interrupted function and its callers.
void on_signal(int, siginfo_t*, void* ucontext) {
  static std::uint64_t from_context[512];
  static std::uint64_t from_here[512];
  for (int i = 0; i < 3; ++i) {
    WalkEnd end{};
    const std::size_t depth = backtrace_from(registers_of(ucontext), from_context, 512, &end);
    EXPECT_EQ(end, WalkEnd::kComplete);
    const std::size_t whole = backtrace(from_here, 512);
    // Through the trampoline: the same frames behind the two of the handler.
    ASSERT_GT(whole, depth);
    EXPECT_TRUE(std::equal(from_context, from_context + depth, from_here + whole - depth));
    std::copy(from_context, from_context + depth, above_handler);
    above_handler_depth = depth;
  }
  ++handled;
}

void install(int signal, int flags, void (*handler)(int, siginfo_t*, void*)) {
  struct sigaction action {};
  action.sa_sigaction = handler;
  action.sa_flags = SA_SIGINFO | flags;
  ASSERT_EQ(sigaction(signal, &action, nullptr), 0);
}

[[gnu::noinline]] void expect_signals_walk() {
  handled = 0;
  for (int i = 0; i < 5; ++i) raise(SIGUSR1);
  EXPECT_EQ(handled, 5);
  const Pcs glibc = by_glibc();
  ASSERT_GT(above_handler_depth, glibc.size());
  // Above this function, which is at another call.
  EXPECT_TRUE(std::equal(glibc.begin() + 1, glibc.end(), above_handler + above_handler_depth - (glibc.size() - 1)));
}

TEST(Self, SignalHandler) {
  install(SIGUSR1, 0, on_signal);
  expect_signals_walk();
  std::thread(expect_signals_walk).join();
}

TEST(Self, SignalHandlerOnItsOwnStack) {
  const auto on_alternate = [] {
    std::vector<char> memory(128 << 10);
    stack_t stack{memory.data(), 0, memory.size()};
    ASSERT_EQ(sigaltstack(&stack, nullptr), 0);
    install(SIGUSR1, SA_ONSTACK, on_signal);
    expect_signals_walk();
    stack.ss_flags = SS_DISABLE;
    sigaltstack(&stack, nullptr);
  };
  on_alternate();
  std::thread(on_alternate).join();
}

// The most frequent case of crash reporters: a handler below a call of a null pointer, or of a null object's method.
sigjmp_buf behind_crash;
void (*volatile null_pointer)();
std::uint64_t crash_pcs[2][512];
std::size_t crash_depths[2];
WalkEnd crash_ends[2];

void on_crash(int, siginfo_t*, void*) {
  crash_depths[0] = backtrace_from(capture_registers(), crash_pcs[0], 512, &crash_ends[0]);
  StackWalker walker(own_process(), capture_registers());
  crash_depths[1] = 0;
  do crash_pcs[1][crash_depths[1]++] = walker.frame().pc().value();
  while (crash_depths[1] < 512 && walker.step());
  crash_ends[1] = walker.end_reason();
  siglongjmp(behind_crash, 1);
}

[[gnu::noinline]] void call_null_pointer() {
  null_pointer();
  asm volatile("");
}

TEST(Self, ACallOfANullPointerHasItsCallers) {
  install(SIGSEGV, 0, on_crash);
  for (const std::uint64_t offset : {0, 0x18}) {
    null_pointer = reinterpret_cast<void (*)()>(offset);
    const Pcs callers = by_glibc();
    if (sigsetjmp(behind_crash, 1) == 0) call_null_pointer();
    for (int way = 0; way < 2; ++way) {
      const Pcs pcs(crash_pcs[way], crash_pcs[way] + crash_depths[way]);
      const auto null = std::ranges::find(pcs, offset);
      ASSERT_EQ(pcs.end() - null, static_cast<std::ptrdiff_t>(callers.size()) + 2) << way;  // call_null_pointer, too
      EXPECT_TRUE(std::equal(callers.begin() + 1, callers.end(), null + 3)) << way;
      EXPECT_EQ(crash_ends[way], WalkEnd::kComplete) << way;
    }
  }
  signal(SIGSEGV, SIG_DFL);
}

#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
// Every instruction of some calls, by single-stepping: the PLT's resolver, libc, the vdso. The thread sanitizer's own
// code would be stepped, too. It waits for ever for a lock that it held when the step's handler began.
std::atomic<std::size_t> steps;
std::size_t wrong_steps;
Pcs outer;
std::uint64_t first_wrong[512];
std::size_t first_wrong_depth;

void on_step(int, siginfo_t*, void* ucontext) {
  static std::uint64_t pcs[512];
  const std::size_t depth = backtrace_from(registers_of(ucontext), pcs, 512);
  ++steps;
  if (depth > outer.size() && std::equal(outer.begin(), outer.end(), pcs + depth - outer.size())) return;
  if (wrong_steps++ != 0) return;
  std::copy(pcs, pcs + depth, first_wrong);
  first_wrong_depth = depth;
}

int by_value(const void* a, const void* b) { return *static_cast<const int*>(a) - *static_cast<const int*>(b); }

[[gnu::noinline]] void stepped() {
  timespec now{};
  int values[] = {4, 1, 3};
  asm volatile("pushfq; orq $0x100, (%%rsp); popfq" ::: "memory", "cc");
  clock_gettime(CLOCK_MONOTONIC, &now);
  std::qsort(values, 3, sizeof(int), by_value);
  (void)std::getenv("NO_SUCH_VARIABLE");
  (void)std::atol("17");
  asm volatile("pushfq; andq $~0x100, (%%rsp); popfq" ::: "memory", "cc");
}

TEST(Self, EveryInstruction) {
  install(SIGTRAP, 0, on_step);
  for (int i = 0; i < 2; ++i) {  // the second time by what the first has cached
    steps = wrong_steps = 0;
    outer = by_glibc();
    outer.erase(outer.begin());  // this function, which goes on
    stepped();
    EXPECT_GT(steps, 200u);
    std::string text;
    for (std::size_t k = 0; k < first_wrong_depth; ++k) text += std::to_string(first_wrong[k]) + " ";
    EXPECT_EQ(wrong_steps, 0u) << "first: " << text;
  }
}
#endif

// ---- other stacks -------------------------------------------------------------------------------------------------

ucontext_t main_context;
ucontext_t coroutine_context;

void coroutine() {
  expect_all_agree();
  swapcontext(&coroutine_context, &main_context);
}

// On a new stack each time, with nothing behind it.
[[gnu::noinline]] void run_coroutine() {
  constexpr std::size_t kSize = 128 << 10;
  static char* memory;
  memory = static_cast<char*>(mmap(nullptr, kSize + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  mprotect(memory + kSize, 4096, PROT_NONE);
  getcontext(&coroutine_context);
  coroutine_context.uc_stack.ss_sp = memory;
  coroutine_context.uc_stack.ss_size = kSize;
  coroutine_context.uc_link = &main_context;
  makecontext(&coroutine_context, coroutine, 0);
  swapcontext(&main_context, &coroutine_context);
  munmap(memory, kSize + 4096);
}

TEST(Self, Coroutines) {
  for (int i = 0; i < 3; ++i) run_coroutine();
}

// A walk with pointers into a stack that has been walked and is no longer mapped.
TEST(Self, AStackThatIsGone) {
  run_coroutine();
  const auto gone = coroutine_context.uc_stack;  // what is mapped there again by chance does no harm
  const auto begin = reinterpret_cast<std::uint64_t>(gone.ss_sp);
  for (std::uint64_t at = begin; at < begin + gone.ss_size; at += 1024) {
    Registers stale = capture_registers();
    if (at % 2048 == 0) stale.set_sp(at);
    stale.set(Registers::fp_number(kOwnArchitecture), at);
    for (const bool interrupted : {false, true}) {
      if (interrupted) stale.set_pc(CodeAddress::instruction(at));
      std::uint64_t pcs[16];
      WalkEnd end{};
      EXPECT_GE(backtrace_from(stale, pcs, std::size(pcs), &end), 1u);
      StackWalker walker(own_process(), stale);
      std::size_t frames = 0;
      for ([[maybe_unused]] const Frame& frame : walker) ++frames;
      EXPECT_LT(frames, 1000u);
    }
  }
}

// ---- stacks that are damaged --------------------------------------------------------------------------------------

TEST(Self, DamagedRegistersAndStacks) {
  std::mt19937_64 random(7);
  const Registers good = capture_registers();
  static std::uint64_t pcs[512];
  char* page = static_cast<char*>(mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  mprotect(page + 4096, 4096, PROT_NONE);
  const auto edge = reinterpret_cast<std::uint64_t>(page + 4096);
  const std::uint64_t odd[] = {0,
                               1,
                               7,
                               0x1000,
                               edge - 8,
                               edge - 1,
                               edge,
                               ~std::uint64_t{0},
                               std::uint64_t{1} << 63,
                               std::uint64_t{1} << 47,
                               good.sp() + (std::uint64_t{1} << 30)};
  // A whole page of stack whose words are code, stack addresses of itself, and noise.
  for (int round = 0; round < 3000; ++round) {
    for (int i = 0; i < 512; ++i) {
      const std::uint64_t word = random() % 4 == 0   ? good.pc().value()
                                 : random() % 3 == 0 ? edge - 4096 + random() % 4096 / 8 * 8
                                                     : random();
      std::memcpy(page + i * 8, &word, sizeof word);
    }
    Registers bad = good;
    const auto any = [&] { return random() % 2 == 0 ? odd[random() % std::size(odd)] : edge - 4096 + random() % 4096; };
    if (round % 4 != 0) bad.set_sp(any());
    bad.set(Registers::fp_number(kOwnArchitecture), any());
    if (round % 5 == 0) bad.set_pc(CodeAddress::instruction(any()));
    WalkEnd end{};
    const std::size_t depth = backtrace_from(bad, pcs, 512, &end);
    EXPECT_GE(depth, 1u);
    EXPECT_LE(depth, 512u);
  }
  munmap(page, 8192);
}

// ---- functions ----------------------------------------------------------------------------------------------------

struct Guard {
  ~Guard() { expect_all_agree(); }
};
[[gnu::noinline]] void with_cleanup() {
  const Guard guard;
  expect_all_agree();
}

TEST(Self, Functions) {
  with_cleanup();
  const auto start = reinterpret_cast<std::uint64_t>(&with_cleanup);
  const auto function = own_function(start + 1);
  ASSERT_TRUE(function) << function.error().text();
  EXPECT_EQ(function->begin, start);
  EXPECT_GT(function->end, start);
  EXPECT_NE(function->fde, 0u);
  EXPECT_FALSE(function->signal_frame);
  EXPECT_FALSE(own_function(0));
  EXPECT_FALSE(own_function(16));
}

TEST(Self, Prepared) {
  prepare();
  expect_all_agree();
  std::mt19937 random(3);
  descend(60, random);
}

TEST(Self, SpaceHasNames) {
  const AddressSpace space = AddressSpace::self();
  bool found = false;
  for (const ModuleInfo* module : space.modules()) found |= module->path.find("libc.so") != std::string::npos;
  EXPECT_TRUE(found);
  StackWalker walker(space, capture_registers());
  ASSERT_NE(walker.frame().module, nullptr);
  EXPECT_NE(walker.frame().module->path.find("test_self"), std::string::npos);
}

}  // namespace
}  // namespace windlass
