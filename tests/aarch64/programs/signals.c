// Signals on the stack and on an alternate one, nested, raised and asynchronous, left by return and by siglongjmp.
#include <setjmp.h>
#include <signal.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

static volatile unsigned count;
static sigjmp_buf back;
static char alternate[65536];
static volatile unsigned* volatile nowhere;

__attribute__((noinline)) static unsigned work(unsigned n) {
  unsigned sum = n;
  for (unsigned i = 0; i < 40; ++i) sum = sum * 31 + i;
  return sum;
}

static void plain(int number) { count += work((unsigned)number); }

static void nested(int number, siginfo_t* info, void* context) {
  (void)info;
  (void)context;
  count += work((unsigned)number);
  raise(SIGUSR1);
}

static void leaves(int number) {
  count += (unsigned)number;
  siglongjmp(back, 1);
}

__attribute__((noinline)) static unsigned faulting(volatile unsigned* at) { return *at + 1; }

static void install(int number, void (*handler)(int), int flags) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = handler;
  action.sa_flags = flags;
  sigaction(number, &action, 0);
}

int main(void) {
  stack_t stack = {.ss_sp = alternate, .ss_size = sizeof alternate};
  sigaltstack(&stack, 0);
  install(SIGUSR1, plain, 0);
  install(SIGALRM, plain, SA_RESTART);
  install(SIGSEGV, leaves, SA_ONSTACK | SA_NODEFER);
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_sigaction = nested;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigaction(SIGUSR2, &action, 0);
  struct itimerval every = {{0, 20000}, {0, 5000}};
  setitimer(ITIMER_REAL, &every, 0);
  for (unsigned round = 0; round < 3; ++round) {
    raise(SIGUSR1);
    raise(SIGUSR2);
    if (sigsetjmp(back, 1) == 0) count += faulting(nowhere);
    count += work(round);
  }
  every.it_value.tv_usec = every.it_interval.tv_usec = 0;
  setitimer(ITIMER_REAL, &every, 0);
  return 0;
}
