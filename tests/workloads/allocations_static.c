/* Allocates without a loader that could preload anything. Usage: allocations_static [SECONDS], which it then lives on
 */
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char** argv) {
  for (int i = 0; i < 1000; ++i) {
    void* block = malloc(100);
    __asm__ volatile("" : "+r"(block) : : "memory");
    free(block);
  }
  if (argc > 1) sleep((unsigned)atoi(argv[1]));
  return 0;
}
