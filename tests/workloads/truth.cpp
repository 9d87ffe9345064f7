// A program whose every possible stack is known: see truth_levels.h. The kinds of calls are in truth_calls.h.
//
// usage: truth SECONDS
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "truth_calls.h"

#ifndef TRUTH_LIBRARY
#define TRUTH_LIBRARY "no library"
#endif

namespace {

char alternate_stack[1 << 18];

}  // namespace

// The signal path: main -> in_signal_path -> raise -> handler -> level<0, *>.
[[gnu::noinline]] void handler(int) {
  sink = sink + descend<0>(next_random() | 1);
  asm volatile("");
}

[[gnu::noinline]] void in_signal_path() {
  raise(SIGUSR1);
  asm volatile("");
}

// The exception path: main -> in_exception_path -> level<0, *> ...; the throw itself unwinds.
[[gnu::noinline]] void thrower(int n) {
  if (n == 0) throw n;
  thrower(n - 1);
  asm volatile("");
}

[[gnu::noinline]] void in_exception_path() {
  try {
    thrower(12);
  } catch (int n) {
    sink = sink + static_cast<std::uint64_t>(n) + descend<0>(next_random() | 1);
  }
}

int main(int argc, char** argv) {
  const double seconds = argc > 1 ? std::atof(argv[1]) : 1.0;
  stack_t stack{};
  stack.ss_sp = alternate_stack;
  stack.ss_size = sizeof(alternate_stack);
  sigaltstack(&stack, nullptr);
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_ONSTACK | SA_NODEFER;
  sigaction(SIGUSR1, &action, nullptr);
  action.sa_handler = plain_handler;
  action.sa_flags = SA_NODEFER;
  sigaction(SIGUSR2, &action, nullptr);

  unsigned rounds = 0;
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (std::chrono::steady_clock::now() < end) {
    for (int i = 0; i < 200; ++i) in_plain_path();
    for (int i = 0; i < 20; ++i) in_signal_path();
    for (int i = 0; i < 10; ++i) in_callback_path();
    for (int i = 0; i < 2; ++i) in_exception_path();
    for (int i = 0; i < 2; ++i) in_cleanup_path();
    for (int i = 0; i < 20; ++i) {
      in_pointer_path();
      in_virtual_path();
      in_function_path();
      in_tail_path();
      in_recursive_path();
      in_variadic_path();
      in_described_path();
      in_bare_path();
      in_plain_signal_path();
      in_copy_path();
      in_clock_path();
    }
    // Seldom: while the agent learns of what came in its place, stacks are its to unwind, and it gets the handler's
    // only.
    if (++rounds % 200 == 0) in_library_path(TRUTH_LIBRARY);
    in_thread_path();
    in_context_path();
  }
  std::printf("%llu\n", static_cast<unsigned long long>(sink));
  return 0;
}
