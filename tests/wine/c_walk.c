/* The C interface on Windows: the own stack walked from C beside RtlCaptureStackBackTrace. */
#include <windlass/c/windlass.h>
#include <windows.h>

#include <stdio.h>
#include <stdlib.h>

#define MOST 256

struct seen {
  size_t count;
  uint64_t pcs[MOST];
};

static int see(windlass_cursor* cursor, const windlass_frame* frame, void* user) {
  struct seen* seen = user;
  (void)cursor;
  if (seen->count == MOST || frame->module_path == NULL) return 1;
  seen->pcs[seen->count++] = frame->pc;
  return 0;
}

static int failures;

static int __cdecl walk(const void* a, const void* b) {
  struct seen seen = {0};
  void* system[MOST];
  windlass_space* space = NULL;
  windlass_registers registers;
  size_t count, i;
  registers.size = sizeof registers;
  if (windlass_open_self(&space, NULL) != WINDLASS_OK) ++failures;
  windlass_capture_registers(&registers);
  if (windlass_walk(space, &registers, NULL, see, &seen, NULL, NULL) != WINDLASS_OK) ++failures;
  windlass_close(space);
  count = RtlCaptureStackBackTrace(0, MOST, system, NULL);
  for (i = 1; i < seen.count && i < count; ++i)
    if ((uint64_t)(uintptr_t)system[i] != seen.pcs[i]) ++failures;
  if (seen.count < 6 || i < 5) ++failures;
  return *(const int*)a - *(const int*)b;
}

int main(void) {
  int numbers[] = {3, 1, 2};
  qsort(numbers, 3, sizeof *numbers, walk);
  printf("%d failures\n", failures);
  return failures != 0;
}
