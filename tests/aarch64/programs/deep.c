// A deep stack of frames of several shapes, a signal handler at its bottom.
#include <alloca.h>
#include <signal.h>
#include <string.h>

static volatile unsigned sink;

typedef unsigned (*Function)(unsigned);
static unsigned plain(unsigned depth);
static unsigned variable(unsigned depth);
static unsigned large(unsigned depth);
static unsigned vectors(unsigned depth);
static Function functions[] = {plain, variable, large, vectors};

__attribute__((noinline)) static unsigned deeper(unsigned depth) {
  if (depth == 0) {
    raise(SIGUSR1);
    return 1;
  }
  return functions[depth % 4](depth - 1) + 1;
}
__attribute__((noinline)) static unsigned plain(unsigned depth) { return deeper(depth) * 3; }
__attribute__((noinline)) static unsigned variable(unsigned depth) {
  char* bytes = (char*)alloca(depth % 50 + 1);
  memset(bytes, 1, depth % 50 + 1);
  return deeper(depth) + (unsigned)bytes[depth % 50];
}
__attribute__((noinline)) static unsigned large(unsigned depth) {
  volatile char bytes[20000];
  bytes[depth] = 1;
  return deeper(depth) + (unsigned)bytes[depth];
}
__attribute__((noinline)) static unsigned vectors(unsigned depth) {
  double a = depth * 0.5, b = depth * 0.25;
  const unsigned inner = deeper(depth);
  return inner + (unsigned)(a + b);
}

static void handler(int number) { sink = sink + (unsigned)number; }

int main(void) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = handler;
  sigaction(SIGUSR1, &action, 0);
  sink = deeper(300);
  return 0;
}
