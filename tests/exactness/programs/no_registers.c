// A function made at run time, which begins a mapping of its own and keeps no registers.
#include <string.h>
#include <sys/mman.h>

#include "marker.h"

extern const char generated[], generated_end[];
long call_generated(long n, void* code);

int main(void) {
  char* pages = mmap(0, 3 * 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  void* code = pages + 4096;
  mprotect(code, 4096, PROT_READ | PROT_WRITE);
  memcpy(code, generated, generated_end - generated);
  mprotect(code, 4096, PROT_READ | PROT_EXEC);
  long sum = 0;
  judge_from_here();
  for (int i = 0; i < 6; ++i) sum += call_generated(8 + i, code);
  return sum == 1;
}
