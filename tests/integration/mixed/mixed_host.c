/* C whose threads, which Go has not made, call Go in a library: for as many seconds as the argument says. */
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

void libraryEnter(void);

static volatile unsigned kept;

__attribute__((noinline)) static void host_enter(void) {
  libraryEnter();
  kept++;
}

static void* host_thread(void* seconds) {
  const time_t end = time(NULL) + atoi(seconds);
  while (time(NULL) < end) host_enter();
  return NULL;
}

int main(int count, char** arguments) {
  pthread_t other;
  if (count < 2 || pthread_create(&other, NULL, host_thread, arguments[1]) != 0) return 1;
  host_thread(arguments[1]);
  return pthread_join(other, NULL);
}
