// Arguments of all sizes of integers, in registers and on the stack. test_arguments_beside_gdb.py compares them.
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

typedef __int128 wide;
typedef unsigned __int128 uwide;
#define NOINLINE __attribute__((noinline, noclone))
volatile int sink;
volatile long one = 1;

NOINLINE static void stop(void) {
  printf("ready\n");
  fflush(stdout);
  for (;;) pause();
}

NOINLINE int many(int8_t a, uint8_t b, int16_t c, uint16_t d, int32_t e, uint32_t f, int64_t g, uint64_t h, bool i,
                  char j, _Bool k) {
  stop();
  return a + b + c + d + e + (int)f + (int)g + (int)h + i + j + k + sink;
}

NOINLINE long wides(wide a, uwide b, wide c, wide d, uwide e) {
  long r =
      many(-128, 255, -32768, 65535, -2147483647 - 1, 4294967295u, INT64_MIN, UINT64_MAX, one != 0, '\n', one == 0);
  return r + (long)a + (long)(b >> 64) + (long)c + (long)d + (long)e + sink;
}

NOINLINE long enough(long a, long b, long c, long d, long e, long f, long g, short h, signed char i, wide j) {
  long r =
      wides(-(wide)one, ~(uwide)0, (wide)one << 100, -((wide)1 << 126) * 2, (uwide)12345678901234567890u * 1000000007u);
  return r + a * b + c * d + e * f + g + h + i + (long)j + sink;
}

static inline __attribute__((always_inline)) long inlined(long k, unsigned char small) {
  return enough(1, -2, k, 4, -5, 6, -7, -8, 'i', (wide)k * -1000000000000000000) + small + sink;
}

int main(int argc, char** argv) { return (int)inlined(argc * 1000, 200) + (argv == 0); }
