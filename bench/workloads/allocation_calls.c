/* The CPU time of a malloc() and its free(): a line of nanoseconds for each 20,000, until it is killed. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { kCalls = 20000 };

static double cpu_seconds(void) {
  struct timespec used;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return (double)used.tv_sec + (double)used.tv_nsec * 1e-9;
}

int main(void) {
  for (;;) {
    const double begun = cpu_seconds();
    for (int i = 0; i < kCalls; ++i) {
      void* block = malloc(64);
      __asm__ volatile("" : "+r"(block) : : "memory");
      free(block);
    }
    printf("%.0f\n", (cpu_seconds() - begun) / kCalls * 1e9);
    fflush(stdout);
    usleep(20000);
  }
}
