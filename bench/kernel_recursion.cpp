// 60 frames over 60 functions, frames of various sizes, -O2 without frame pointers; runs until killed.
#include <cstdio>

namespace {
volatile unsigned sink;

template <int N>
__attribute__((noinline)) unsigned level(unsigned seed) {
  // Frames of 16 to 208 bytes, as real code has them.
  volatile unsigned locals[4 + (N * 7) % 48];
  locals[0] = seed;
  // Nearly all the time is spent at the bottom.
  for (unsigned i = 0; i < (N == 0 ? 20000u : 20u); ++i) locals[i % 4] = locals[0] * 1664525u + i;
  unsigned below = seed;
  if constexpr (N > 0) below = level<N - 1>(locals[seed % 4]);
  return below + locals[1];
}
}  // namespace

int main() {
  std::puts("ready");
  std::fflush(stdout);
  for (unsigned i = 0;; ++i) sink = level<59>(i);
}
