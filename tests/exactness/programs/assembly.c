// Calls hand-written code with values in all preserved registers.
#include "marker.h"

int asm_bare(int), asm_moves(int), asm_silent(int), asm_shared(int), asm_realigned(int);
int asm_private(int), asm_aligned(int), asm_slot(int);

__attribute__((noinline)) static int all(int n) {
  int a = asm_bare(n & 3), b = asm_moves(n), c = asm_silent(n), d = asm_shared(n), e = asm_realigned(n);
  for (int i = 0; i < 3; ++i) a += asm_silent(b) * c, b ^= asm_shared(d), c += asm_moves(e), d += asm_bare(i) + a;
  e += asm_private(a) + asm_aligned(b) + asm_slot(c);
  return a + b + c + d + e;
}

int main(void) {
  int sum = 0;
  judge_from_here();
  for (int i = 0; i < 6; ++i) sum += all(i);
  return sum == 1;
}
