/* Another process (an id), looked at a number of times, 100 times a second: it stands for each look only. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <windlass/c/windlass.h>

static int count_frame(windlass_cursor* cursor, const windlass_frame* frame, void* user) {
  (void)cursor;
  (void)frame;
  ++*(unsigned long*)user;
  return 0;
}

/* Every thread of the stopped process. */
static unsigned long count_frames(const windlass_space* space) {
  size_t i, threads = 0;
  unsigned long frames = 0;
  windlass_thread_count(space, &threads);
  for (i = 0; i < threads; ++i) {
    windlass_registers registers;
    registers.size = sizeof registers;
    if (windlass_thread_at(space, i, NULL, &registers) == WINDLASS_OK)
      windlass_walk(space, &registers, NULL, count_frame, &frames, NULL, NULL);
  }
  return frames;
}

int main(int argc, char** argv) {
  const struct timespec pause = {0, 10000000};
  windlass_space* space;
  windlass_error error;
  uint64_t stood = 0, stood_ns = 0;
  unsigned long frames;
  int look = 1;
  error.size = sizeof error;
  if (argc != 3) return 2;
  if (windlass_open_process(atoll(argv[1]), &space, &error) != WINDLASS_OK) {
    fprintf(stderr, "%s: %s\n", argv[1], error.text);
    return 1;
  }
  frames = count_frames(space);
  windlass_release(space, NULL); /* opening took its time: it is not counted */
  for (; look < atoi(argv[2]); ++look) {
    nanosleep(&pause, NULL);
    if (windlass_refresh(space, NULL, &error) != WINDLASS_OK) {
      fprintf(stderr, "%s: %s\n", argv[1], error.text);
      break;
    }
    frames += count_frames(space);
    windlass_release(space, &stood);
    stood_ns += stood;
  }
  printf("%d looks, %lu frames, the process stood for %.3f ms\n", look, frames, (double)stood_ns / 1e6);
  windlass_close(space);
  return 0;
}
