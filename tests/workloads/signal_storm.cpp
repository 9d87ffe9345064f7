// Signals to itself, one right after the other, in a function whose return address is all that is on the stack. Every
// possible stack of the program's own frames is known: main, storm, interrupted; the handler has the C library's way
// back from it in between.
//
// usage: signal_storm SECONDS
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cstdlib>

static volatile unsigned long calls;

extern "C" __attribute__((noinline)) void handler(int) { calls = calls + 1; }

// A system call and nothing else, so that the kernel delivers the signal here.
extern "C" __attribute__((noinline)) long interrupted(long process, long thread, long signal) {
#ifdef __x86_64__
  long result = SYS_tgkill;
  asm volatile("syscall" : "+a"(result) : "D"(process), "S"(thread), "d"(signal) : "rcx", "r11", "memory");
  return result;
#else
  register long x0 asm("x0") = process;
  register long x1 asm("x1") = thread;
  register long x2 asm("x2") = signal;
  register long x8 asm("x8") = SYS_tgkill;
  asm volatile("svc 0" : "+r"(x0) : "r"(x1), "r"(x2), "r"(x8) : "memory");
  return x0;
#endif
}

extern "C" __attribute__((noinline)) void storm(long process) {
  for (int i = 0; i < 10000; ++i) (void)interrupted(process, process, SIGUSR1);
  asm volatile("");
}

int main(int count, char** arguments) {
  const time_t end = time(nullptr) + (count > 1 ? std::atoi(arguments[1]) : 1);
  struct sigaction action = {};
  action.sa_handler = handler;
  sigaction(SIGUSR1, &action, nullptr);
  while (time(nullptr) < end) storm(getpid());
  return 0;
}
