// The functions of the programs whose every possible stack is known. level<D, V> is only ever called by level<D-1, *>,
// through one direct call per variant; so a sampled stack is right exactly if, from main up, its levels are 0, 1, 2,
// ... without a gap or a repeat, and every return address follows a call of the very function that stands above it. The
// variants stand for the frame shapes that unwinders get wrong; most of the run time is spent in prologues and
// epilogues.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>

// What the innermost level calls, if anything.
#ifndef TRUTH_LEAF
#define TRUTH_LEAF(seed) (seed)
#endif

namespace {

constexpr int kDepth = 40;
std::uint64_t random_state = 88172645463325252ull;
volatile std::uint64_t sink;

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
    if ((seed & 0x3f) == 0) return TRUTH_LEAF(seed);  // some stacks are short
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
#ifdef __i386__  // which has half of them, of half the width
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

// ---- ways in that both programs have ------------------------------------------------------------------------------

// main -> in_plain_path -> level<0, *>.
[[gnu::noinline]] void in_plain_path() {
  sink = sink + descend<0>(next_random() | 1);
  asm volatile("");
}

// Through the C library: in_callback_path -> qsort -> compare -> level<0, *>.
[[gnu::noinline]] int compare(const void* left, const void* right) {
  sink = sink + descend<0>(next_random() | 1);
  return *static_cast<const int*>(left) - *static_cast<const int*>(right);
}

[[gnu::noinline]] void in_callback_path() {
  int values[8] = {5, 3, 8, 1, 9, 2, 7, 4};
  std::qsort(values, 8, sizeof(int), compare);
  touch(values);
}
