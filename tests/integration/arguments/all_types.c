// Functions with arguments of all types, in a stack that stands still. test_walk_arguments.py knows the values. Those
// of pointers are printed.
#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>

enum color { RED, GREEN = 5, BLUE = -2 };
struct point {
  int x;
  short y;
  unsigned bits : 3;
  int sbits : 5;
};
struct big {
  long l[10];
  char name[8];
  struct point p;
};
typedef unsigned long long u64;
typedef const char* text;
union both {
  int i;
  float f;
};
volatile int sink;
volatile int minus_seven = -7;
#define NOINLINE __attribute__((noinline))

NOINLINE static void stop(void* p) {
  printf("ready\n");
  fflush(stdout);
  for (;;) pause();
  sink = p != NULL;
}

NOINLINE int ints(signed char c, unsigned char uc, short s, unsigned short us, int i, unsigned u, long l, u64 ull) {
  stop((void*)&sink);
  return c + uc + s + us + i + (int)u + (int)l + (int)ull + sink;
}

NOINLINE int others(bool b, enum color e, float f, double d, long double ld, text t, void* p, int (*fn)(int), char c) {
  int r = ints(-5, 200, -300, 60000, minus_seven, 4000000000u, -5000000000L, 18000000000000000000ull);
  sink += r;
  return r + b + e + (int)f + (int)d + (int)ld + t[0] + (p != 0) + (fn != 0) + c;
}

NOINLINE int structs(struct point p, struct big b, union both u, struct point* q, const struct big* r) {
  int v = others(true, BLUE, 1.5f, -2.25, 3.5L, "hello \"w\"\x1b[31m", (void*)&sink, 0, 'x');
  return v + p.x + (int)b.l[3] + u.i + q->x + (int)r->l[0] + sink;
}

static inline __attribute__((always_inline)) int inlined(int depth, long k) {
  struct point p = {1, 2, 3, -4};
  struct big b = {{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, "name", {5, 6, 7, 8}};
  union both u;
  u.f = 1.0f;
  printf("pointer q %p\npointer r %p\npointer p %p\n", (void*)&p, (void*)&b, (void*)&sink);
  int r = structs(p, b, u, &p, &b);
  return r + depth + (int)k + sink;
}

NOINLINE int recursive(int n, long acc) {
  if (n == 0) return inlined(n, acc) + sink;
  int r = recursive(n - 1, acc * 3 + minus_seven);
  return r + n + sink;
}

int main(int argc, char** argv) {
  printf("pointer argv %p\n", (void*)argv);
  int r = recursive(4, argc);
  return r + (argv != 0);
}
