// Many processes that hardly do anything. usage: many SECONDS PROCESSES
// Starts so many processes of this program. Each works for some 30 us twice a second, 5 to 34 calls deep.
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile unsigned long sink;

__attribute__((noinline)) static void work(int depth) {
  if (depth > 0)
    work(depth - 1);
  else
    for (int i = 0; i < 10000; ++i) sink += (unsigned long)i;
  ++sink;
}

static void live(int seconds) {
  const struct timespec pause = {0, 500000000};
  for (const time_t end = time(NULL) + seconds; time(NULL) < end; nanosleep(&pause, NULL)) work(5 + getpid() % 30);
}

int main(int argc, char** argv) {
  const int seconds = argc > 1 ? atoi(argv[1]) : 1, processes = argc > 2 ? atoi(argv[2]) : 0;
  if (processes == 0) {
    live(seconds);
    return 0;
  }
  for (int i = 0; i < processes; ++i) {
    if (fork() != 0) continue;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    execl("/proc/self/exe", argv[0], argv[1], NULL);
    _exit(1);
  }
  while (wait(NULL) > 0) continue;
  return 0;
}
