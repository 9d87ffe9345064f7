// A program that does nothing but throw, and whose every possible stack is known: level<D, V> is only ever called by
// level<D-1, *>, as in truth_levels.h, and level<kDepth, *> throws. On the way out are destructors that throw and catch
// themselves, handlers that throw on (the same exception, or another one) and handlers that stay. Some threads are
// cancelled instead, which unwinds them alike (_Unwind_ForcedUnwind).
//
// usage: truth_throws SECONDS
#include <pthread.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace {

constexpr int kDepth = 12;
thread_local std::uint64_t random_state = 88172645463325252ull;
thread_local bool cancelled = false;
thread_local volatile std::uint64_t sink;

inline std::uint64_t next_random() {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  random_state ^= random_state << 17;
  return random_state;
}

inline void touch(void* memory) { asm volatile("" : : "r"(memory) : "memory"); }

}  // namespace

struct Other {
  int value;
};

[[gnu::noinline]] int caught_inside(int n) {
  try {
    throw Other{n};
  } catch (const Other& other) {
    return other.value;
  }
}

struct Guard {
  explicit Guard(std::uint64_t s) : seed(s) {}
  Guard(const Guard&) = delete;
  [[gnu::noinline]] ~Guard() {
    if (seed % 8 == 0) sink = sink + static_cast<std::uint64_t>(caught_inside(static_cast<int>(seed & 7)));
    touch(&seed);
  }
  std::uint64_t seed;
};

enum Shape { kPlain, kPushes, kAlloca, kAligned, kCleanup, kRethrow, kTranslate, kCatch, kShapes };

template <int D, int V>
[[gnu::noinline]] std::uint64_t level(std::uint64_t seed);

[[gnu::noinline]] void leave(std::uint64_t seed) {
  if (cancelled) {
    pthread_cancel(pthread_self());
    pthread_testcancel();
  }
  if (seed % 2 == 0) throw static_cast<int>(seed & 0xff);
  throw Other{static_cast<int>(seed & 0xff)};
}

// One direct call per variant, so that the call site names its callee. The asm keeps it from becoming a tail call.
template <int D>
[[gnu::always_inline]] inline std::uint64_t descend(std::uint64_t seed) {
  std::uint64_t result = 0;
  if constexpr (D < kDepth) {
    switch (next_random() % kShapes) {
      case kPlain: result = level<D, kPlain>(seed); break;
      case kPushes: result = level<D, kPushes>(seed); break;
      case kAlloca: result = level<D, kAlloca>(seed); break;
      case kAligned: result = level<D, kAligned>(seed); break;
      case kCleanup: result = level<D, kCleanup>(seed); break;
      case kRethrow: result = level<D, kRethrow>(seed); break;
      case kTranslate: result = level<D, kTranslate>(seed); break;
      default: result = level<D, kCatch>(seed); break;
    }
    asm volatile("" : "+r"(result));
  } else {
    leave(seed);
    asm volatile("");
  }
  return result;
}

template <int D, int V>
std::uint64_t level(std::uint64_t seed) {
  if constexpr (V == kPushes) {
    // Enough live values to use every callee-saved register.
#ifdef __i386__
    auto word = static_cast<std::uint32_t>(seed);
    std::uint32_t a = word * 3, b = word ^ 5, c = word + 7;
    asm volatile("" : "+r"(a), "+r"(b), "+r"(c));
    const std::uint64_t inner = descend<D + 1>(next_random());
    return inner + a + b + c;
#else
    std::uint64_t a = seed * 3, b = seed ^ 5, c = seed + 7, d = seed * 11, e = seed ^ 13, f = seed + 17;
    asm volatile("" : "+r"(a), "+r"(b), "+r"(c), "+r"(d), "+r"(e), "+r"(f));
    const std::uint64_t inner = descend<D + 1>(next_random());
    return inner + a + b + c + d + e + f;
#endif
  } else if constexpr (V == kAlloca) {
    const std::size_t size = 16 + (seed & 0xff);
    void* memory = __builtin_alloca(size);
    touch(memory);
    const Guard guard(seed);
    const std::uint64_t inner = descend<D + 1>(next_random());
    touch(memory);
    return inner + size;
  } else if constexpr (V == kAligned) {
    alignas(64) char memory[64];
    touch(memory);
    const std::uint64_t inner = descend<D + 1>(next_random());
    touch(memory);
    return inner + 1;
  } else if constexpr (V == kCleanup) {
    Guard guard(seed);
    const std::uint64_t inner = descend<D + 1>(next_random());
    return inner + guard.seed;
  } else if constexpr (V == kRethrow) {
    try {
      return descend<D + 1>(next_random()) + 4;
    } catch (...) {
      sink = sink + 1;
      throw;
    }
  } else if constexpr (V == kTranslate) {
    try {
      return descend<D + 1>(next_random()) + 5;
    } catch (const int number) {
      throw Other{number};
    }
  } else if constexpr (V == kCatch) {
    try {
      return descend<D + 1>(next_random()) + 6;
    } catch (const Other& other) {
      return static_cast<std::uint64_t>(other.value);
    }
  } else {
    return descend<D + 1>(next_random()) + 3;
  }
}

[[gnu::noinline]] void in_throw_path() {
  try {
    sink = sink + descend<0>(next_random());
  } catch (const int number) {
    sink = sink + static_cast<std::uint64_t>(number);
  } catch (const Other& other) {
    sink = sink + static_cast<std::uint64_t>(other.value);
  }
}

[[gnu::noinline]] void all_paths(int times) {
  for (int i = 0; i < times; ++i) in_throw_path();
  asm volatile("");
}

void* cancelled_thread(void* seed) {
  cancelled = true;
  random_state ^= reinterpret_cast<std::uintptr_t>(seed);
  all_paths(1 << 20);
  return nullptr;
}

int main(int argc, char** argv) {
  const double seconds = argc > 1 ? std::atof(argv[1]) : 1.0;
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (std::chrono::steady_clock::now() < end) {
    all_paths(200);
    pthread_t thread;
    if (pthread_create(&thread, nullptr, cancelled_thread, reinterpret_cast<void*>(next_random() << 8)) != 0) return 1;
    pthread_join(thread, nullptr);
  }
  std::printf("%llu\n", static_cast<unsigned long long>(sink));
  return 0;
}
