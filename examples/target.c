/* Every thread of another process (an id), or of a core file or minidump (a path). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <windlass/c/windlass.h>

static int print_frame(windlass_cursor* cursor, const windlass_frame* frame, void* user) {
  (void)cursor;
  (void)user;
  printf("  %#018llx %s+%#llx [%s]\n", (unsigned long long)frame->pc,
         frame->module_path != NULL ? frame->module_path : "?",
         (unsigned long long)(frame->lookup - frame->module_bias), windlass_origin_name(frame->origin));
  return 0;
}

static windlass_status open_target(const char* what, windlass_space** space, windlass_error* error) {
  windlass_status status;
  if (what[strspn(what, "0123456789")] == '\0') return windlass_open_process(atoll(what), space, error);
  status = windlass_open_core(what, NULL, space, error);
  return status == WINDLASS_OK ? status : windlass_open_minidump(what, NULL, space, error);
}

int main(int argc, char** argv) {
  windlass_space* space;
  windlass_error error;
  size_t i, threads = 0;
  error.size = sizeof error;
  if (argc != 2) return 2;
  if (open_target(argv[1], &space, &error) != WINDLASS_OK) {
    fprintf(stderr, "%s: %s\n", argv[1], error.text);
    return 1;
  }
  windlass_thread_count(space, &threads);
  for (i = 0; i < threads; ++i) {
    windlass_thread thread;
    windlass_registers registers;
    uint32_t end = 0;
    thread.size = sizeof thread;
    registers.size = sizeof registers;
    windlass_thread_at(space, i, &thread, &registers);
    printf("thread %llu %s%s\n", (unsigned long long)thread.id, thread.name,
           (thread.flags & WINDLASS_FAULTED) != 0 ? " (crashed)" : "");
    if (windlass_walk(space, &registers, NULL, print_frame, NULL, &end, &error) != WINDLASS_OK ||
        end != WINDLASS_END_COMPLETE)
      printf("  [%s: %s]\n", windlass_end_name(end), error.text);
  }
  windlass_close(space);
  return 0;
}
