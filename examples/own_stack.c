/* The own stack, in C: every frame with its function. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <windlass/c/windlass.h>

static int print_frame(windlass_cursor* cursor, const windlass_frame* frame, void* user) {
  Dl_info symbol;
  const char* name = "?";
  (void)cursor;
  (void)user;
  if (dladdr((void*)frame->lookup, &symbol) && symbol.dli_sname != NULL) name = symbol.dli_sname;
  printf("#%-2llu %#llx %s\n", (unsigned long long)frame->index, (unsigned long long)frame->pc, name);
  return 0; /* anything else stops the walk */
}

__attribute__((noinline)) void inner(windlass_space* space) {
  windlass_registers registers;
  uint32_t end;
  registers.size = sizeof registers;
  windlass_capture_registers(&registers);
  windlass_walk(space, &registers, NULL, print_frame, NULL, &end, NULL);
  printf("%s\n", windlass_end_name(end));
}

__attribute__((noinline)) void outer(windlass_space* space) {
  inner(space);
  puts("back"); /* so that the call above is no jump */
}

int main(void) {
  windlass_space* space;
  windlass_error error;
  error.size = sizeof error;
  if (windlass_open_self(&space, &error) != WINDLASS_OK) {
    fprintf(stderr, "%s\n", error.text);
    return 1;
  }
  outer(space);
  windlass_close(space);
  return 0;
}
