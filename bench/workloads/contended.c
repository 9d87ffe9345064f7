/* Four threads that take one mutex as often as they can, for argv[1] turns each: some turns wait in futex(). */
#include <pthread.h>
#include <stdlib.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static volatile unsigned long counter;

__attribute__((noinline)) static void turn(void) {
  pthread_mutex_lock(&lock);
  for (int i = 0; i < 200; ++i) ++counter;
  pthread_mutex_unlock(&lock);
}

static void* take_turns(void* turns) {
  for (long i = 0; i < (long)turns; ++i) turn();
  return NULL;
}

int main(int argc, char** argv) {
  pthread_t threads[4];
  const long turns = argc > 1 ? atol(argv[1]) : 100000;
  for (int i = 0; i < 4; ++i) pthread_create(&threads[i], NULL, take_turns, (void*)turns);
  for (int i = 0; i < 4; ++i) pthread_join(threads[i], NULL);
  return counter == 800UL * (unsigned long)turns ? 0 : 1;
}
