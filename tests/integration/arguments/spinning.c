// A function that runs, with arguments in vector registers. test_arguments_beside_gdb.py compares them.
#include <stdio.h>

#define NOINLINE __attribute__((noinline, noclone))
struct pair {
  float x, y;
};
volatile double half = 0.5;

NOINLINE int spin(float f, double d, struct pair p, long n) {
  for (;;) __asm__ volatile("pause" : : "x"(f), "x"(d), "x"(p.x), "r"(n));
  return 0;
}

int main(int argc, char** argv) {
  printf("ready\n");
  fflush(stdout);
  return spin(0.1f, 3 * half, (struct pair){1.5f, -2.5f}, argc) + (argv == 0);
}
