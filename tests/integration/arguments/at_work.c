// Functions that run all the time, with arguments that are always the same: a walk meets each of their instructions.
#include <stdio.h>

struct pair {
  int a;
  long b;
};
volatile long sink;
volatile int one = 1;
#define NOINLINE __attribute__((noinline))

NOINLINE long leaf(int a, long b, const char* s, struct pair p) { return a + b + s[one] + p.a + p.b; }

NOINLINE long mid(int a, long b, int c, int d, int e, int f, int g, int h) {
  long r = leaf(a + 1, b * 2, "text", (struct pair){a, b});
  return r * c + d + e + f + g + h + sink;
}

NOINLINE long top(int a, long b) {
  char buffer[32];
  for (int i = 0; i < a; i++) buffer[i] = (char)i;
  long r = mid(a, b, 3, 4, 5, 6, 7, 8) + buffer[one];
  return r + mid(a, b, 3, 4, 5, 6, 7, 8) + a + b;
}

// With a tail call.
NOINLINE long maybe(int a, long b) {
  if (sink == 77) return top(a, b);
  long q = top(a, b);
  return q + a;
}

int main(void) {
  printf("ready\n");
  fflush(stdout);
  for (;;) sink = maybe(11 * one, 22 * one) & 1;
}
