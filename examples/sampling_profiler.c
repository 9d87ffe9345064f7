/* A sampling profiler in 60 lines: SIGPROF interrupts, its handler walks, the end of the program counts. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>
#include <windlass/c/windlass.h>

enum { kSamples = 4096, kDepth = 64 };
static windlass_space* space;
static uint64_t stacks[kSamples][kDepth]; /* where to look symbols up; 0 behind the last */
static volatile sig_atomic_t samples;

static int keep_frame(windlass_cursor* cursor, const windlass_frame* frame, void* stack) {
  (void)cursor;
  ((uint64_t*)stack)[frame->index] = frame->lookup;
  return frame->index + 1 == kDepth;
}

static void on_tick(int number, siginfo_t* info, void* ucontext) {
  windlass_registers registers;
  (void)number;
  (void)info;
  if (samples == kSamples) return;
  registers.size = sizeof registers;
  windlass_from_ucontext(ucontext, &registers);
  windlass_walk(space, &registers, NULL, keep_frame, stacks[samples], NULL, NULL);
  ++samples;
}

volatile double sink;
__attribute__((noinline)) void spin(long n) {
  while (n-- > 0) sink = sink * 0.999 + 1;
}
__attribute__((noinline)) void hot(void) { spin(30000000), sink = sink + 1; }
__attribute__((noinline)) void cold(void) { spin(10000000), sink = sink + 1; }

static int passes(uint64_t* stack, const char* function) {
  Dl_info symbol;
  for (int i = 0; i < kDepth && stack[i] != 0; ++i)
    if (dladdr((void*)stack[i], &symbol) && symbol.dli_sname != NULL && strcmp(symbol.dli_sname, function) == 0)
      return 1;
  return 0;
}

int main(void) {
  const char* names[] = {"main", "hot", "cold", "spin"};
  const struct itimerval every = {{0, 1000}, {0, 1000}}, never = {{0, 0}, {0, 0}};
  struct sigaction action = {.sa_sigaction = on_tick, .sa_flags = SA_SIGINFO | SA_RESTART};
  if (windlass_open_self(&space, NULL) != WINDLASS_OK) return 1;
  sigaction(SIGPROF, &action, NULL);
  setitimer(ITIMER_PROF, &every, NULL);
  for (int i = 0; i < 4; ++i) hot(), cold();
  setitimer(ITIMER_PROF, &never, NULL);
  for (int n = 0; n < 4; ++n) {
    int inside = 0;
    for (int i = 0; i < samples; ++i) inside += passes(stacks[i], names[n]);
    printf("%-5s in %d of %d samples\n", names[n], inside, (int)samples);
  }
  windlass_close(space);
  return 0;
}
