// Arguments that debug information describes by operations with types. test_walk_arguments.py knows the values.
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static volatile int is_stopped = 1;

static void __attribute__((noinline)) stop(void) {
  puts("ready");
  fflush(stdout);
  while (is_stopped) pause();
}

// What the caller has kept is a; all others are computed from it.
static inline int __attribute__((always_inline))
derived(unsigned half, unsigned long third, unsigned char low, long wide, unsigned rest, short product, int is_more,
        long long difference) {
  if (half) stop();
  return 1;
}

int __attribute__((noinline)) source(int a, unsigned b, unsigned long c) {
  int r = derived(b / 2, c / 3, (unsigned char)b, (long)a * 3, b % 1000, (short)(a * 5), b > 7u, (long long)b - a);
  return r + a + (int)b + (int)c;
}

int main(int argc, char** argv) {
  return source(-1234567 * argc / 2, 4000000001u * (argc - 1), 18000000000000000000ul + argc);
}
