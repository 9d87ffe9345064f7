// Arguments of floating point, alone and in structures, in registers and on the stack. test_arguments_beside_gdb.py
// compares them.
#include <stdio.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone))
struct pair {
  float x, y;
};
struct four {
  float a[4];
};
struct mixed {
  double d;
  long n;
};
struct large {
  double d[5];
  long double ld;
};
volatile double half = 0.5;
volatile int sink;

NOINLINE static void stop(void) {
  printf("ready\n");
  fflush(stdout);
  for (;;) pause();
}

NOINLINE double kept(float f, double d, long double ld, const double* p, double zero, double nothing, double endless) {
  stop();
  return f + d + ld + *p + zero + nothing + endless + sink;
}

NOINLINE double values(struct pair p, struct four f, struct mixed m, struct large l, struct mixed* q) {
  double third = 1.0 / 3;
  double r =
      kept(0.1f, 1e300 * half, 1.0L / 3, &third, -0.0, half - half == 0 ? __builtin_nan("") : 0, 1e300 * 1e300 * half);
  return r + p.x + p.y + f.a[3] + m.d + m.n + l.d[4] + (double)l.ld + q->d + third + sink;
}

NOINLINE double stacked(double a, double b, double c, double d, double e, double f, double g, double h, double i,
                        float j, int k, float l) {
  struct mixed m = {half * 3, 9};
  double r = values((struct pair){1.25f, -2.5f}, (struct four){{1, 2, 3, 4.75f}}, m,
                    (struct large){{1, 2, 3, 4, 5}, 6.5L}, &m);
  return r + a + b * c + d * e + f * g + h + i + j + k + l + m.d + sink;
}

int main(void) { return (int)stacked(1, 2.5, 3e-300, 4e10, 5, 6, 7, 8, 9.125, 10.5f, 11, 1e-10f); }
