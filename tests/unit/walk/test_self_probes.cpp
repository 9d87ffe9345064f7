// How many system calls walks make to find out what is readable. The program has its own process_vm_readv, which
// counts.
#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <functional>
#include <stdexcept>

#include "walk/own/memory.h"
#include "windlass/backtrace.h"

namespace {
std::atomic<int> probes;
std::atomic<bool> forbidden;  // as a sandbox does
}  // namespace

extern "C" ssize_t process_vm_readv(pid_t pid, const iovec* to, unsigned long to_count, const iovec* from,
                                    unsigned long from_count, unsigned long flags) noexcept {
  ++probes;
  if (forbidden) {
    errno = EPERM;
    return -1;
  }
  return syscall(SYS_process_vm_readv, pid, to, to_count, from, from_count, flags);
}

namespace windlass {
namespace {

constexpr int kMost = 4;  // in one walk

std::uint64_t pcs[16384];

// Of one walk.
template <typename Walk>
int probes_of(Walk&& walk) {
  const int before = probes;
  walk();
  return probes - before;
}

[[gnu::noinline]] void descend(int depth, const std::function<void()>& leaf) {
  if (depth == 0)
    leaf();
  else
    descend(depth - 1, leaf);
  asm volatile("");  // no tail call
}

void in_thread(std::size_t stack_size, const std::function<void()>& body) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, stack_size), 0);
  pthread_t thread;
  const auto run = [](void* function) -> void* {
    (*static_cast<const std::function<void()>*>(function))();
    return nullptr;
  };
  ASSERT_EQ(pthread_create(&thread, &attributes, run, const_cast<std::function<void()>*>(&body)), 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
}

void step_all() {
  StackWalker walker(own_process(), capture_registers());
  while (walker.step()) {}
  EXPECT_EQ(walker.end_reason(), WalkEnd::kComplete);
}

class Probes : public ::testing::Test {
 protected:
  void SetUp() override {
    char from = 0, to = 0;
    const iovec local{&to, 1}, remote{&from, 1};
    if (process_vm_readv(getpid(), &local, 1, &remote, 1, 0) != 1) GTEST_SKIP() << "no process_vm_readv here";
  }
};

// The first test, so that no walk has been deep: what a walk records is written to pages that are there.
TEST(Prepared, AThreadsFirstDeepWalkHasNoPageFaults) {
  const auto faults = [] {
    rusage usage{};
    getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_minflt;
  };
  std::fill(std::begin(pcs), std::end(pcs), 1);
  prepare();
  (void)backtrace(pcs, std::size(pcs));
  long taken = 0;
  std::size_t found = 0;
  descend(300, [&] {
    (void)backtrace(pcs, 8);
    const long before = faults();
    found = backtrace(pcs, std::size(pcs));
    taken = faults() - before;
  });
  EXPECT_GT(found, 300u);
  EXPECT_LE(taken, 1) << "300 frames are written down in three pages";
}

TEST(Probe, FindsAnotherWayWhereItIsForbidden) {
  const std::uint64_t word = 0;
  void* const closed = mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(closed, MAP_FAILED);
  forbidden = true;
  EXPECT_TRUE(walk::probe(reinterpret_cast<std::uint64_t>(&word)));
  EXPECT_FALSE(walk::probe(reinterpret_cast<std::uint64_t>(closed)));
  forbidden = false;
  munmap(closed, 4096);
}

// Megabytes of stack that no walk has seen, and then some more of it each time.
TEST_F(Probes, DeepStackOfAThread) {
  (void)backtrace(pcs, std::size(pcs));
  step_all();
  for (const auto& walk : {std::function<void()>([] { ASSERT_GT(backtrace(pcs, std::size(pcs)), 10000u); }),
                           std::function<void()>(step_all)}) {
    in_thread(std::size_t{8} << 20, [&] {
      std::size_t walks = 0;
      for (const int depth : {10000, 10020, 10200, 11000, 14000}) {
        int made = 0;
        descend(depth, [&] { made = probes_of(walk); });
        EXPECT_LE(made, kMost) << depth;
        descend(depth, [&] { made = probes_of(walk); });
        EXPECT_EQ(made, 0) << depth;
        ++walks;
      }
      EXPECT_EQ(walks, 5u);
    });
  }
}

// A handler on a stack of its own walks the one it interrupted.
std::atomic<int> handled;
void on_signal(int, siginfo_t*, void* ucontext) {
  const Registers registers = registers_of(ucontext);
  handled = probes_of([&] {
    StackWalker walker(own_process(), registers);
    while (walker.step()) {}
    EXPECT_EQ(walker.end_reason(), WalkEnd::kComplete);
  });
}

TEST_F(Probes, FromASignalStack) {
  in_thread(std::size_t{1} << 20, [] {
    static char memory[256 << 10];
    stack_t stack{};
    stack.ss_sp = memory;
    stack.ss_size = sizeof memory;
    ASSERT_EQ(sigaltstack(&stack, nullptr), 0);
    struct sigaction action {};
    action.sa_sigaction = on_signal;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(SIGUSR1, &action, nullptr);
    for (const int depth : {1, 100, 101, 2000}) {
      descend(depth, [] { raise(SIGUSR1); });
      EXPECT_LE(handled, kMost) << depth;
      descend(depth, [] { raise(SIGUSR1); });
      EXPECT_EQ(handled, 0) << depth;
    }
    stack.ss_flags = SS_DISABLE;
    sigaltstack(&stack, nullptr);
  });
}

#if defined(__x86_64__)
// Every so-manieth instruction of an exception, by single-stepping: libgcc restores a context by code that its unwind
// information does not describe, so that the code is followed.
std::size_t steps, walks;
int most;

void on_step(int, siginfo_t*, void* ucontext) {
  if (++steps % 13 != 0) return;
  ++walks;
  const Registers registers = registers_of(ucontext);
  most = std::max(most, probes_of([&] { (void)backtrace_from(registers, pcs, std::size(pcs)); }));
}

[[gnu::noinline]] int thrower(int depth) {
  if (depth == 0) throw std::runtime_error("thrown");
  return thrower(depth - 1) + 1;
}

[[gnu::noinline]] void throw_once() {
  try {
    (void)thrower(3);
  } catch (const std::exception&) {}
}

TEST_F(Probes, WithinAnException) {
  throw_once();  // binds what is bound lazily
  struct sigaction action {};
  action.sa_sigaction = on_step;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGTRAP, &action, nullptr);
  asm volatile("pushfq; orq $0x100, (%%rsp); popfq" ::: "memory", "cc");
  throw_once();
  asm volatile("pushfq; andq $~0x100, (%%rsp); popfq" ::: "memory", "cc");
  EXPECT_GT(walks, 1000u);
  EXPECT_LE(most, kMost);
}
#endif

}  // namespace
}  // namespace windlass
