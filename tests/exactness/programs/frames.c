// Frames of every shape that a compiler makes: realigned (DRAP), variable, large, with many saved registers, none at
// all, tail calls. Also calls that do not return, at the end of a function that never returns, and jumps out of these.
#include <alloca.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include "marker.h"

#define NOINLINE __attribute__((noinline, noclone))
typedef struct {
  _Alignas(64) char bytes[128];
} Wide;

static volatile int sink;
static jmp_buf back;

NOINLINE static int leaf(int n) { return n * 3 + 1; }
NOINLINE static int many(int a, int b, int c, int d) {
  int e = leaf(a), f = leaf(b), g = leaf(c), h = leaf(d), i = leaf(a ^ d), j = leaf(b ^ c);
  for (int k = 0; k < 3; ++k) e += leaf(f + k) ^ g, f += h, g += i * j, h ^= e, i += leaf(j);
  return e + f + g + h + i + j;
}
NOINLINE static int realigned(int n) {
  Wide wide;
  memset(wide.bytes, n, sizeof wide.bytes);
  sink = wide.bytes[n & 127];
  return many(n, sink, 2, 3) + wide.bytes[3];
}
NOINLINE static int realigned_variable(int n) {
  Wide wide;
  char bytes[n + 1];
  memset(bytes, n, (size_t)n + 1);
  memset(wide.bytes, n, sizeof wide.bytes);
  sink = wide.bytes[bytes[n] & 127];
  return realigned(n) + bytes[n / 2] + wide.bytes[5];
}
NOINLINE static int variable(int n) {
  char* bytes = alloca((size_t)n * 8 + 16);
  memset(bytes, n, (size_t)n * 8);
  return realigned_variable(n) + bytes[n];
}
NOINLINE static int large(int n) {
  char bytes[70000];
  memset(bytes, n, 64);
  sink = bytes[n & 63];
  return variable(n) + bytes[1];
}
NOINLINE static int variadic(int count, ...) {
  va_list list;
  va_start(list, count);
  int sum = 0;
  while (count-- > 0) sum += va_arg(list, int);
  va_end(list);
  return sum + leaf(sum);
}
NOINLINE static int stack_arguments(int a, int b, int c, int d, int e, int f, int g, int h, int i) {
  return many(a + b, c + d, e + f, g + h + i);
}
NOINLINE static int tail(int n) { return n > 5 ? large(n) : variable(n + 1); }
NOINLINE static double floats(double x, int n) {
  double y = x;
  for (int i = 0; i < n; ++i) y = y * x + leaf(i);
  return y;
}
NOINLINE __attribute__((noreturn)) static void leave(int n) {
  char bytes[100];
  memset(bytes, n, sizeof bytes);
  sink = bytes[n];
  longjmp(back, 1);
}
NOINLINE static int may_leave(int n) {
  if (n > 2) leave(n);  // the call is the function's last instruction: its return address is the next function's
  return n;
}

int main(void) {
  int sum = 0;
  judge_from_here();
  for (volatile int i = 1; i < 5; ++i) {
    sum += tail(i * 2) + variadic(3, i, 2, 3) + stack_arguments(1, 2, 3, 4, 5, 6, 7, 8, i) + (int)floats(1.5, i);
    if (!setjmp(back)) sum += may_leave(i);
  }
  return sum == 1;
}
