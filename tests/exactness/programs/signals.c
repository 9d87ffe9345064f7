// Signals: at the start and in the middle of functions, nested, on a stack of their own. Also out of a fault by
// siglongjmp, and out of an interrupted system call.
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "marker.h"

static volatile int count;
static sigjmp_buf back;

__attribute__((noinline)) static int work(int depth) {
  char bytes[64];
  memset(bytes, depth, sizeof bytes);
  count += bytes[3];
  return depth ? work(depth - 1) + count : count;
}
static void plain(int number) {
  count += number;
  work(3);
}
static void nested(int number, siginfo_t* info, void* context) {
  (void)info;
  (void)context;
  work(2);
  if (number == SIGUSR1) raise(SIGUSR2);
}
static void leave(int number, siginfo_t* info, void* context) {
  (void)info;
  (void)context;
  count += number;
  siglongjmp(back, 1);
}
__attribute__((noinline)) static int fault(volatile int* where) {
  work(1);
  return *where + count;
}

static void on(int number, int flags, void* handler) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_flags = flags;
  if (flags & SA_SIGINFO)
    action.sa_sigaction = (void (*)(int, siginfo_t*, void*))handler;
  else
    action.sa_handler = (void (*)(int))handler;
  sigaction(number, &action, 0);
}

int main(void) {
  stack_t other;
  memset(&other, 0, sizeof other);
  other.ss_sp = malloc(65536);
  other.ss_size = 65536;
  sigaltstack(&other, 0);
  on(SIGHUP, 0, (void*)plain);
  on(SIGALRM, SA_RESTART, (void*)plain);
  on(SIGUSR1, SA_SIGINFO, (void*)nested);
  on(SIGUSR2, SA_SIGINFO | SA_ONSTACK, (void*)nested);
  on(SIGSEGV, SA_SIGINFO | SA_ONSTACK | SA_NODEFER, (void*)leave);
  judge_from_here();
  for (int i = 0; i < 6; ++i) {
    raise(SIGHUP);
    raise(SIGUSR1);
    kill(getpid(), SIGUSR2);
    if (!sigsetjmp(back, 1)) fault(0);
    work(4);
  }
  struct timespec pause = {0, 2000000};
  ualarm(1000, 0);
  nanosleep(&pause, 0);
  return count == 42;
}
