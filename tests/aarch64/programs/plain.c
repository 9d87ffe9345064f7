// Frames of many shapes: recursion, variable arrays, saved vector registers, tail calls, functions without a frame
// pointer, calls through pointers, lazily bound library calls.
#include <alloca.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static volatile unsigned sink;

__attribute__((noinline)) static unsigned leaf(unsigned a, unsigned b) { return a * 31 + b; }

__attribute__((noinline)) static unsigned recurse(unsigned depth, unsigned a) {
  if (depth == 0) return leaf(a, 1);
  const unsigned inner = recurse(depth - 1, a + depth);
  return inner ^ leaf(inner, depth);
}

__attribute__((noinline)) static unsigned variable_array(unsigned n) {
  char* bytes = (char*)(alloca(n * 8 + 1));
  memset(bytes, (int)(n), n * 8);
  unsigned more[n + 1];
  for (unsigned i = 0; i <= n; ++i) more[i] = leaf((unsigned char)(bytes[i]), i);
  return more[n / 2];
}

__attribute__((noinline)) static double vectors(double a, double b, double c, unsigned n) {
  double sum = 0;
  for (unsigned i = 0; i < n; ++i) sum += sin(a + i) * b + cos(sum) * c;
  return sum + a * b * c;
}

struct Wide {
  _Alignas(64) char bytes[256];
};
__attribute__((noinline)) static unsigned wide(unsigned n) {
  struct Wide here;
  memset(&here, (int)(n), sizeof here);
  return leaf((unsigned char)(here.bytes[n % 256]), recurse(2, n));
}

__attribute__((noinline)) static unsigned large_frame(unsigned n) {
  volatile char bytes[70000];
  bytes[n] = (char)(n);
  bytes[69999] = 1;
  return leaf((unsigned char)(bytes[n]), recurse(1, n));
}

__attribute__((noinline)) static unsigned tail(unsigned n) { return recurse(n % 3, n); }

typedef unsigned (*Function)(unsigned);
static Function functions[] = {variable_array, wide, large_frame, tail};

static int compare(const void* a, const void* b) {
  const unsigned x = *(const unsigned*)(a), y = *(const unsigned*)(b);
  return x < y ? -1 : x > y;
}

int main(void) {
  unsigned total = 0;
  for (unsigned round = 0; round < 3; ++round) {
    total += recurse(6, round);
    for (unsigned i = 0; i < 4; ++i) total ^= functions[i](round * 3 + i + 1);
    total += (unsigned)(vectors(1.5, round, 0.25, 3));
    unsigned numbers[24];
    for (unsigned i = 0; i < 24; ++i) numbers[i] = leaf(i * 77, round) % 101;
    qsort(numbers, 24, sizeof numbers[0], compare);
    total += numbers[12];
    char text[64];
    snprintf(text, sizeof text, "%u %s %.3f", total, "round", round * 0.5);
    total += (unsigned)(strtoul(text, 0, 10));
    void* memory = malloc(100 + round * 5000);
    free(memory);
  }
  sink = total;
  return 0;
}
