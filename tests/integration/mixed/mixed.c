/* Called by programs of other languages, and calls them back. */
#include <time.h>

static volatile unsigned kept;

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

__attribute__((noinline)) static void mixed_work(void) {
  for (unsigned i = 0; i < 200000; i++) kept += i;
}

__attribute__((noinline)) void mixed_spin(void) {
  const double end = now() + 0.02;
  do mixed_work();
  while (now() < end);
  kept++;
}

__attribute__((noinline)) void mixed_enter(void (*back)(void)) {
  back();
  kept++;
}
