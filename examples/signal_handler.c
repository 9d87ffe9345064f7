/* The stack of code that was interrupted, walked within the signal handler: no allocation, no lock. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <windlass/c/windlass.h>

static windlass_space* space; /* opened before any signal can come */
static uint64_t pcs[256];
static size_t count;
static uint32_t end;

/* A cursor lives where its user says. One handler at a time uses this. */
static _Alignas(WINDLASS_CURSOR_ALIGNMENT) unsigned char storage[8192];

static void on_signal(int number, siginfo_t* info, void* ucontext) {
  windlass_registers registers;
  windlass_cursor* cursor;
  windlass_frame frame;
  (void)number;
  (void)info;
  registers.size = sizeof registers;
  frame.size = sizeof frame;
  windlass_from_ucontext(ucontext, &registers);
  if (windlass_cursor_init(storage, sizeof storage, space, &registers, NULL, &cursor, NULL) != WINDLASS_OK) return;
  do {
    windlass_cursor_frame(cursor, &frame);
    pcs[count++] = frame.pc;
  } while (count < 256 && windlass_step(cursor, NULL) == WINDLASS_OK);
  windlass_end_reason(cursor, &end);
  windlass_cursor_end(cursor);
}

static volatile int depth;
__attribute__((noinline, noclone)) static void recurse(int levels) {
  if (levels == 0)
    raise(SIGUSR1);
  else
    recurse(levels - 1);
  depth = depth + 1;
}

int main(void) {
  struct sigaction action;
  size_t i;
  memset(&action, 0, sizeof action);
  action.sa_sigaction = on_signal;
  action.sa_flags = SA_SIGINFO;
  if (windlass_cursor_size() > sizeof storage || windlass_open_self(&space, NULL) != WINDLASS_OK) return 1;
  sigaction(SIGUSR1, &action, NULL);
  recurse(10);
  for (i = 0; i < count; ++i) printf("%#llx\n", (unsigned long long)pcs[i]);
  printf("%zu frames, %s\n", count, windlass_end_name(end));
  windlass_close(space);
  return 0;
}
