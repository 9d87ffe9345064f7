/* Its own stack by libunwind's local interface; frames as module+offset. Compiled twice: against libunwind's header and
 * library, and against windlass/c/libunwind.h. */
#define _GNU_SOURCE
#define UNW_LOCAL_ONLY
#ifdef WITH_WINDLASS
#include <windlass/c/libunwind.h>
#else
#include <libunwind.h>
#endif
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void print(const char* what, int index, unw_word_t pc) {
  Dl_info info;
  const char* module = "?";
  if (dladdr((void*)pc, &info)) {
    module = strrchr(info.dli_fname, '/') ? strrchr(info.dli_fname, '/') + 1 : info.dli_fname;
    pc -= (unw_word_t)info.dli_fbase;
  }
  printf("%s %d %s+0x%lx", what, index, module, (unsigned long)pc);
}

static void walk(const char* what, unw_context_t* context, int flags) {
  unw_cursor_t cursor;
  unw_word_t value = 0;
  int status = 0;
  int index = 0;
  if (unw_init_local2(&cursor, context, flags) != 0) printf("no cursor\n");
  do {
    unw_proc_info_t info;
    unw_cursor_t copy = cursor;
    char name[64];
    if (unw_get_reg(&cursor, UNW_REG_IP, &value) != 0 || value == 0) break;
    print(what, index++, value);
    if (unw_get_proc_info(&copy, &info) == 0)
      printf(" in=%ld size=%ld", (long)(value - info.start_ip), (long)(info.end_ip - info.start_ip));
    if (unw_get_proc_name(&copy, name, sizeof name, &value) == 0) printf(" %s+%ld", name, (long)value);
    printf(" signal=%d", unw_is_signal_frame(&cursor) > 0);
    if (unw_get_reg(&cursor, UNW_REG_SP, &value) == 0) printf(" sp%%16=%ld", (long)(value & 15));
    unw_save_loc_t at;
    if (unw_get_save_loc(&cursor, UNW_X86_64_RBX, &at) == 0 && at.type == UNW_SLT_MEMORY &&
        unw_get_reg(&cursor, UNW_X86_64_RBX, &value) == 0)
      printf(" rbx=%s", *(unw_word_t*)at.u.addr == value ? "there" : "WRONG");
    printf("\n");
  } while ((status = unw_step(&cursor)) > 0);
  printf("%s ended with %d\n", what, status);
}

static void handler(int signal, siginfo_t* info, void* context) {
  (void)signal;
  (void)info;
  walk("interrupted", context, UNW_INIT_SIGNAL_FRAME);
  unw_context_t own;
  unw_getcontext(&own);
  walk("handler", &own, 0);
}

static volatile int sink;
__attribute__((noinline)) static int compare(const void* a, const void* b) {
  if (sink++ == 0) {
    unw_context_t context;
    unw_getcontext(&context);
    walk("plain", &context, 0);
    void* pcs[100];
    int count = unw_backtrace(pcs, 100);
    for (int i = 0; i < count; ++i) {
      print("backtrace", i, (unw_word_t)pcs[i]);
      printf("\n");
    }
  }
  return *(const int*)a - *(const int*)b;
}
__attribute__((noinline)) static void interrupted(void) {
  raise(SIGUSR1);
  sink = sink + 1;
}

int main(void) {
  struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
  int numbers[] = {3, 1, 2};
  sigaction(SIGUSR1, &action, NULL);
  qsort(numbers, 3, sizeof numbers[0], compare);
  interrupted();
  printf("%s %s\n", unw_regname(UNW_X86_64_R15), unw_strerror(-UNW_EBADFRAME));
  return sizeof(unw_cursor_t) != 127 * 8 || sizeof(unw_context_t) != sizeof(ucontext_t);
}
