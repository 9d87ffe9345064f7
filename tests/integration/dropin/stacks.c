/* Its own stack by every interface of libgcc and glibc that reads one; frames as module+offset, so that runs compare.
 * Also in a signal handler on another stack. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <execinfo.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unwind.h>

static void print(const char* what, int index, void* pc) {
  Dl_info info;
  const char* module = "?";
  unsigned long offset = (unsigned long)pc;
  if (dladdr(pc, &info)) {
    module = strrchr(info.dli_fname, '/') ? strrchr(info.dli_fname, '/') + 1 : info.dli_fname;
    offset -= (unsigned long)info.dli_fbase;
  }
  printf("%s %d %s+0x%lx", what, index, module, offset);
}

struct walk {
  const char* what;
  int count;
};

static _Unwind_Reason_Code each(struct _Unwind_Context* context, void* argument) {
  struct walk* walk = argument;
  int before = 0;
  void* pc = (void*)_Unwind_GetIPInfo(context, &before);
  if (pc == NULL) return _URC_NO_REASON; /* libgcc's frame behind the last one */
  print(walk->what, walk->count++, pc);
  if ((void*)_Unwind_GetIP(context) != pc) printf(" IP differs");
  char* start = (char*)_Unwind_GetRegionStart(context);
  if (before == 0 && start != NULL && _Unwind_FindEnclosingFunction(pc) != start) printf(" enclosing function differs");
  printf(" before=%d in=%ld lsda=%d cfa=%ld rbp=%d\n", before, start == NULL ? -1L : (long)((char*)pc - start),
         _Unwind_GetLanguageSpecificData(context) != NULL, (long)(_Unwind_GetCFA(context) & 15),
         _Unwind_GetGR(context, 6) != 0);
  return _URC_NO_REASON;
}

static _Unwind_Reason_Code third(struct _Unwind_Context* context, void* argument) {
  (void)context;
  return ++*(int*)argument == 3 ? _URC_NORMAL_STOP : _URC_NO_REASON;
}

static void all(const char* what) {
  void* pcs[100];
  struct walk walk = {what, 0};
  int count = backtrace(pcs, 100);
  for (int i = 0; i < count; ++i) {
    print("backtrace", i, pcs[i]);
    printf("\n");
  }
  printf("cut: %d\n", backtrace(pcs, 2));
  printf("%s ended with %d\n", what, _Unwind_Backtrace(each, &walk));
  count = 0;
  printf("stopped with %d\n", _Unwind_Backtrace(third, &count));
}

static void handler(int signal, siginfo_t* info, void* context) {
  (void)signal;
  (void)info;
  (void)context;
  all("handler");
}

static volatile int sink;
__attribute__((noinline)) static int compare(const void* a, const void* b) {
  if (sink++ == 0) all("plain");
  return *(const int*)a - *(const int*)b;
}
__attribute__((noinline)) static void interrupted(void) {
  raise(SIGUSR1);
  sink = sink + 1;
}

int main(void) {
  static char stack[256 * 1024];
  stack_t other = {.ss_sp = stack, .ss_size = sizeof stack};
  struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_ONSTACK};
  int numbers[] = {3, 1, 2};
  sigaltstack(&other, NULL);
  sigaction(SIGUSR1, &action, NULL);
  qsort(numbers, 3, sizeof numbers[0], compare);
  interrupted();
  return 0;
}
