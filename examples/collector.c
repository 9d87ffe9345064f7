/* A moving collector: objects move, and references that callers keep in preserved registers are changed where those
 * registers were saved. The caller finds the new address in its register when the call returns. */
#include <stdio.h>
#include <string.h>
#include <windlass/c/windlass.h>

struct object {
  char text[32];
};
static struct object from_space = {"moved"}, to_space;
static windlass_space* space;
static int updated;

static int update_frame(windlass_cursor* cursor, const windlass_frame* frame, void* user) {
  const uint16_t* numbers = user;
  int i;
  (void)frame;
  for (i = 0; numbers[i] != 0; ++i) {
    uint64_t value, place;
    if (windlass_cursor_get(cursor, numbers[i], &value) != WINDLASS_OK) continue;
    if (value != (uint64_t)(uintptr_t)&from_space) continue; /* a real one knows its live references exactly */
    if (windlass_saved_at(cursor, numbers[i], &place) != WINDLASS_OK || place == 0) continue;
    *(uint64_t*)(uintptr_t)place = (uint64_t)(uintptr_t)&to_space;
    ++updated;
  }
  return 0;
}

__attribute__((noinline)) static void collect(void) {
  windlass_registers registers;
  uint16_t numbers[32] = {0};
  to_space = from_space;
  memset(&from_space, 'x', sizeof from_space - 1);
  registers.size = sizeof registers;
  windlass_preserved(windlass_native_architecture(), numbers, 31);
  windlass_capture_registers(&registers);
  windlass_walk(space, &registers, NULL, update_frame, numbers, NULL, NULL);
}

/* The mutator keeps its reference in a register over the call. */
__attribute__((noinline)) static const char* mutator(void) {
#if defined(__x86_64__)
  register struct object* reference __asm__("rbx") = &from_space;
#else
  register struct object* reference __asm__("x19") = &from_space;
#endif
  __asm__ volatile("" : "+r"(reference)); /* it is in the register now ... */
  collect();
  __asm__ volatile("" : "+r"(reference)); /* ... and whatever is there now is it */
  return reference->text;
}

int main(void) {
  const char* text;
  if (windlass_open_self(&space, NULL) != WINDLASS_OK) return 1;
  text = mutator();
  printf("%s, %d places updated\n", text, updated);
  windlass_close(space);
  return text == to_space.text && strcmp(text, "moved") == 0 ? 0 : 1;
}
