/* What a C program that links the installed libwindlass looks like. <error.h> is the system's. */
#include <error.h>
#include <stdio.h>
#include <windlass/c/managed.h>
#include <windlass/c/unwind_info.h>
#include <windlass/c/windlass.h>

static int count(windlass_cursor* cursor, const windlass_frame* frame, void* user) {
  (void)cursor;
  (void)frame;
  ++*(int*)user;
  return 0;
}

int main(void) {
  windlass_space* space = NULL;
  windlass_registers registers;
  uint32_t end = 0;
  int frames = 0;
  registers.size = sizeof registers;
  if (windlass_new_generation() == 0) return 5;
  if (windlass_open_self(&space, NULL) != WINDLASS_OK) return 1;
  if (windlass_capture_registers(&registers) != WINDLASS_OK) return 2;
  if (windlass_walk(space, &registers, NULL, count, &frames, &end, NULL) != WINDLASS_OK) return 3;
  error(0, 0, "%d frames", frames);
  printf("windlass %s: %d frames, %s\n", windlass_version_text(), frames, windlass_end_name(end));
  windlass_close(space);
  return frames >= 3 && end == WINDLASS_END_COMPLETE ? 0 : 4; /* main, __libc_start_call_main, ... */
}
