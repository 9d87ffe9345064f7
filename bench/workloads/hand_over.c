/* Two threads that hand a byte back and forth argv[1] times, each below argv[2] frames or 20: two waits a turn. */
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

static int there[2], back[2];
static long turns = 10000;
static int depth = 20;

static int hand(int from, int to, int first) {
  char byte = 'x';
  for (long i = 0; i < turns; ++i) {
    if (first && write(to, &byte, 1) != 1) return 1;
    if (read(from, &byte, 1) != 1) return 1;
    if (!first && write(to, &byte, 1) != 1) return 1;
  }
  return 0;
}

__attribute__((noinline)) static int below(int frames, int from, int to, int first) {
  const int failed = frames == 0 ? hand(from, to, first) : below(frames - 1, from, to, first);
  __asm__ volatile("" ::: "memory"); /* no tail call */
  return failed;
}

static void* answer(void* unused) {
  (void)unused;
  return below(depth, there[0], back[1], 0) ? &turns : NULL;
}

int main(int argc, char** argv) {
  pthread_t other;
  void* failed;
  if (argc > 1) turns = atol(argv[1]);
  if (argc > 2) depth = atoi(argv[2]);
  if (pipe(there) != 0 || pipe(back) != 0) return 1;
  pthread_create(&other, NULL, answer, NULL);
  if (below(depth, back[0], there[1], 1)) return 1;
  pthread_join(other, &failed);
  return failed != NULL;
}
