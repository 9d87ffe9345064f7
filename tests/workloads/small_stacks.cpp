// Allocates blocks on stacks that are nearly used up, and prints what a profile must have of each function, as
// allocations.cpp does. Usage: small_stacks ROUNDS
#include <pthread.h>
#include <ucontext.h>
#include <unistd.h>

#include <alloca.h>
#include <climits>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

constexpr std::size_t kLeft = 2048;  // bytes of the stack, where blocks are allocated

unsigned long rounds = 100;

template <typename T>
T* seen(T* block) {
  asm volatile("" : "+r"(block) : : "memory");
  return block;
}

void expect(const char* function, unsigned long size, unsigned long allocated, unsigned long in_use = 0) {
  std::printf("%s %lu %lu %lu\n", function, size, allocated, in_use);
}

// Uses up the stack that begins at `low`.
[[gnu::noinline]] void with_little_left(const void* low, void (*function)()) {
  const auto here = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
  const std::uintptr_t left = here - reinterpret_cast<std::uintptr_t>(low);
  if (left > kLeft) {
    auto* const used = static_cast<char*>(alloca(left - kLeft));
    std::memset(seen(used), 0x5a, 64);
  }
  function();
  asm volatile("" ::: "memory");
}

}  // namespace

#define KNOWN extern "C" __attribute__((noinline))

KNOWN void known_smallest_thread() {
  for (unsigned long i = 0; i < rounds; ++i) {
    std::free(seen(std::malloc(111)));
    seen(std::malloc(222));
  }
}
KNOWN void known_signal_stack() {
  std::free(seen(std::malloc(333)));
  asm volatile("" ::: "memory");
}
KNOWN void known_coroutine() {
  for (unsigned long i = 0; i < rounds; ++i) {
    std::free(seen(std::malloc(444)));
    if (void* block = nullptr; posix_memalign(&block, 64, 555) == 0) std::free(seen(block));
  }
}

namespace {

void* small_thread(void*) {
  pthread_attr_t attributes;
  void* low = nullptr;
  std::size_t size = 0;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) std::abort();
  pthread_attr_getstack(&attributes, &low, &size);
  pthread_attr_destroy(&attributes);
  with_little_left(low, known_smallest_thread);
  return nullptr;
}

char* signal_stack = nullptr;
void on_signal(int) { with_little_left(signal_stack, known_signal_stack); }

// Behind a word that a stack which grows too far overwrites.
struct Coroutine {
  std::uint64_t below = 0x1234567890abcdef;
  alignas(16) char stack[8192] = {};
};
Coroutine coroutine;
void run_coroutine() { with_little_left(coroutine.stack, known_coroutine); }

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1) rounds = std::strtoul(argv[1], nullptr, 10);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, static_cast<std::size_t>(sysconf(_SC_THREAD_STACK_MIN)));
  pthread_t thread;
  if (pthread_create(&thread, &attributes, small_thread, nullptr) != 0) return 1;
  pthread_join(thread, nullptr);
  expect("known_smallest_thread", 111, rounds);
  expect("known_smallest_thread", 222, rounds, rounds);

  // What the kernel puts there, and what the handler needs without anybody watching.
  const auto size = static_cast<std::size_t>(sysconf(_SC_MINSIGSTKSZ)) + kLeft;
  signal_stack = static_cast<char*>(std::calloc(1, size));
  const stack_t given{.ss_sp = signal_stack, .ss_flags = 0, .ss_size = size};
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_ONSTACK;
  if (sigaltstack(&given, nullptr) != 0 || sigaction(SIGUSR1, &action, nullptr) != 0) return 1;
  for (unsigned long i = 0; i < rounds; ++i) std::raise(SIGUSR1);
  expect("known_signal_stack", 333, rounds);

  ucontext_t context{}, back{};
  getcontext(&context);
  context.uc_stack.ss_sp = coroutine.stack;
  context.uc_stack.ss_size = sizeof coroutine.stack;
  context.uc_link = &back;
  makecontext(&context, run_coroutine, 0);
  if (swapcontext(&back, &context) != 0 || coroutine.below != 0x1234567890abcdef) return 1;
  expect("known_coroutine", 444, rounds);
  expect("known_coroutine", 555, rounds);
  return 0;
}
