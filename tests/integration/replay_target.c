// A program in plain C for whoever samples it: library calls through the linkage table, callbacks, the clock, and a
// timer signal whose handler has frames of its own. Runs until it is killed, or for argv[1] seconds.
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>

static volatile int sink;

__attribute__((noinline)) static int compare(const void* a, const void* b) {
  const int x = *(const int*)a, y = *(const int*)b;
  return (x > y) - (x < y);
}

__attribute__((noinline)) static int sort_some(unsigned seed) {
  int numbers[64];
  for (unsigned i = 0; i < 64; ++i) numbers[i] = (int)((seed + i) * 2654435761u >> 7);
  qsort(numbers, 64, sizeof numbers[0], compare);
  return numbers[13];
}

__attribute__((noinline)) static int format_some(unsigned seed) {
  char text[80];
  snprintf(text, sizeof text, "%u %s %f", seed, "text", seed / 3.0);
  return (int)strlen(text) + 1;
}

__attribute__((noinline)) static int ask_the_time(unsigned n) {
  time_t sum = 0;
  for (unsigned i = 0; i < n; ++i) sum += time(0);
  return (int)sum + 1;
}

__attribute__((noinline)) static int descend(unsigned depth, unsigned seed) {
  if (depth == 0) return sort_some(seed) + format_some(seed) + ask_the_time(200);
  return descend(depth - 1, seed + depth) + 1;
}

static void on_alarm(int number) { sink += descend(3, (unsigned)number); }

int main(int argc, char** argv) {
  const time_t end = argc > 1 ? time(0) + atoi(argv[1]) : 0;
  struct itimerval interval = {{0, 2000}, {0, 2000}};
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = on_alarm;
  action.sa_flags = SA_RESTART;
  sigaction(SIGALRM, &action, 0);
  setitimer(ITIMER_REAL, &interval, 0);
  for (unsigned i = 0; end == 0 || time(0) < end; ++i) sink += descend(i % 20, i);
  return 0;
}
