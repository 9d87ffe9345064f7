/* Opened by allocations.cpp, and closed again. */
#include <stdlib.h>

__attribute__((noinline)) void known_plugin(unsigned long rounds) {
  for (unsigned long i = 0; i < rounds; ++i) {
    void* block = malloc(72);
    __asm__ volatile("" : "+r"(block) : : "memory");
  }
}
