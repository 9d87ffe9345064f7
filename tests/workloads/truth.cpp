// A program whose every possible stack is known. level<D, V> is only ever called by level<D-1, *>, through one direct
// call per variant; so a sampled stack is right exactly if, from main up, its levels are 0, 1, 2, ... without a gap or
// a repeat, and every return address follows a call of the very function that stands above it. The variants stand for
// the frame shapes that unwinders get wrong; most of the run time is spent in prologues and epilogues.
//
// usage: truth SECONDS
#include <alloca.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

constexpr int kDepth = 40;
std::uint64_t random_state = 88172645463325252ull;
volatile std::uint64_t sink;
char alternate_stack[1 << 18];

inline std::uint64_t next_random() {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  random_state ^= random_state << 17;
  return random_state;
}

inline void touch(void* memory) { asm volatile("" : : "r"(memory) : "memory"); }

}  // namespace

enum Shape { kPlain, kPushes, kAlloca, kAligned, kBig, kShapes };

template <int D, int V>
[[gnu::noinline]] std::uint64_t level(std::uint64_t seed);

// One direct call per variant, so that the call site names its callee. The asm keeps it from becoming a tail call.
template <int D>
[[gnu::always_inline]] inline std::uint64_t descend(std::uint64_t seed) {
  std::uint64_t result = 0;
  if constexpr (D < kDepth) {
    if ((seed & 0x3f) == 0) return seed;  // some stacks are short
    switch (next_random() % kShapes) {
      case kPlain: result = level<D, kPlain>(seed >> 1); break;
      case kPushes: result = level<D, kPushes>(seed >> 1); break;
      case kAlloca: result = level<D, kAlloca>(seed >> 1); break;
      case kAligned: result = level<D, kAligned>(seed >> 1); break;
      default: result = level<D, kBig>(seed >> 1); break;
    }
    asm volatile("" : "+r"(result));
  }
  return result;
}

template <int D, int V>
std::uint64_t level(std::uint64_t seed) {
  if constexpr (V == kPushes) {
    // Enough live values to use every callee-saved register.
    std::uint64_t a = seed * 3, b = seed ^ 5, c = seed + 7, d = seed * 11, e = seed ^ 13, f = seed + 17;
    asm volatile("" : "+r"(a), "+r"(b), "+r"(c), "+r"(d), "+r"(e), "+r"(f));
    const std::uint64_t inner = descend<D + 1>(next_random());
    return inner + a + b + c + d + e + f;
  } else if constexpr (V == kAlloca) {
    const std::size_t size = 16 + (seed & 0xff);
    void* memory = alloca(size);
    touch(memory);
    const std::uint64_t inner = descend<D + 1>(next_random());
    touch(memory);
    return inner + size;
  } else if constexpr (V == kAligned) {
    alignas(64) char memory[64];
    touch(memory);
    const std::uint64_t inner = descend<D + 1>(next_random());
    touch(memory);
    return inner + 1;
  } else if constexpr (V == kBig) {
    char memory[5000];
    touch(memory);
    const std::uint64_t inner = descend<D + 1>(next_random());
    touch(memory);
    return inner + 2;
  } else {
    return descend<D + 1>(next_random()) + 3;
  }
}

// The signal path: main -> in_signal_path -> raise -> handler -> level<0, *>.
[[gnu::noinline]] void handler(int) {
  sink = sink + descend<0>(next_random() | 1);
  asm volatile("");
}

[[gnu::noinline]] void in_signal_path() {
  raise(SIGUSR1);
  asm volatile("");
}

// The callback path: main -> in_callback_path -> qsort (libc) -> compare -> level<0, *>.
[[gnu::noinline]] int compare(const void* left, const void* right) {
  sink = sink + descend<0>(next_random() | 1);
  return *static_cast<const int*>(left) - *static_cast<const int*>(right);
}

[[gnu::noinline]] void in_callback_path() {
  int values[8] = {5, 3, 8, 1, 9, 2, 7, 4};
  qsort(values, 8, sizeof(int), compare);
  touch(values);
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

[[gnu::noinline]] void in_plain_path() {
  sink = sink + descend<0>(next_random() | 1);
  asm volatile("");
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

  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (std::chrono::steady_clock::now() < end) {
    for (int i = 0; i < 200; ++i) in_plain_path();
    for (int i = 0; i < 20; ++i) in_signal_path();
    for (int i = 0; i < 10; ++i) in_callback_path();
    for (int i = 0; i < 2; ++i) in_exception_path();
  }
  std::printf("%llu\n", static_cast<unsigned long long>(sink));
  return 0;
}
