/* Allocates without a loader that could preload anything. */
#include <stdlib.h>

int main(void) {
  for (int i = 0; i < 1000; ++i) {
    void* block = malloc(100);
    __asm__ volatile("" : "+r"(block) : : "memory");
    free(block);
  }
  return 0;
}
