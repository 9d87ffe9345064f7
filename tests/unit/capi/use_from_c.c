/* The C interface as a C99 compiler with every warning sees it. Returns the line of the first thing that is wrong. */
#include "windlass/c/managed.h"
#include "windlass/c/unwind_info.h"

#include <string.h>

#define CHECK(condition)               \
  do {                                 \
    if (!(condition)) return __LINE__; \
  } while (0)

struct stack {
  uint64_t base;
  uint64_t words[8];
  int released;
};

static int read_stack(void* user, uint64_t address, void* to, size_t length) {
  const struct stack* stack = user;
  if (address < stack->base || address + length > stack->base + sizeof stack->words) return 0;
  memcpy(to, (const char*)stack->words + (address - stack->base), length);
  return 1;
}

static void release_stack(void* user) { ((struct stack*)user)->released = 1; }

struct seen {
  unsigned count;
  uint64_t pc[4];
  uint64_t rbp_at;
};

static int see(windlass_cursor* cursor, const windlass_frame* frame, void* user) {
  struct seen* seen = user;
  if (seen->count < 4) seen->pc[seen->count] = frame->pc;
  if (frame->index != seen->count++) return 1;
  return windlass_saved_at(cursor, 6, &seen->rbp_at) != WINDLASS_OK;
}

/* What a code generator in C writes by. */
static int offsets_are_the_structs(void) {
  windlass_call_site_frame site;
  windlass_context_frame saved;
  const char *at = (const char*)&site, *header = (const char*)&site.header;
  CHECK((const char*)&site.pc - at == WINDLASS_CALL_SITE_PC_OFFSET);
  CHECK((const char*)&site.fp - at == WINDLASS_CALL_SITE_FP_OFFSET);
  CHECK((const char*)&site.header.form - header == WINDLASS_FRAME_FORM_OFFSET);
  CHECK((const char*)&site.header.references - header == WINDLASS_FRAME_REFERENCES_OFFSET);
  CHECK((const char*)&saved.context - (const char*)&saved == WINDLASS_FRAME_CONTEXT_OFFSET);
  return 0;
}

int use_from_c(void);

/* Two frames by frame pointers in generated code, made by hand. */
int use_from_c(void) {
  struct stack stack = {0x7000, {0x7020, 0x1100, 0, 0, 0, 0x1200, 0, 0}, 0};
  windlass_memory memory = {sizeof memory, read_stack, release_stack, &stack};
  windlass_code code = {.size = sizeof code, .begin = 0x1000, .end = 0x2000, .name = "made by hand"};
  windlass_options options = {sizeof options, 0, WINDLASS_NO_CODE_ANALYSIS, 0};
  windlass_space* space = NULL;
  windlass_registers registers;
  struct seen seen;
  uint32_t end = 0;

  CHECK(windlass_open_callbacks(WINDLASS_X86_64, &memory, &space, NULL) == WINDLASS_OK && space != NULL);
  CHECK(windlass_add_code(space, &code, NULL, NULL) == WINDLASS_OK);
  registers.size = sizeof registers;
  CHECK(windlass_registers_init(&registers, WINDLASS_X86_64) == WINDLASS_OK);
  CHECK(windlass_set(&registers, 16, 0x1010) == WINDLASS_OK);
  CHECK(windlass_set(&registers, 6, 0x7000) == WINDLASS_OK);
  CHECK(windlass_set(&registers, 7, 0x7000) == WINDLASS_OK);
  registers.flags = WINDLASS_RETURN_ADDRESS;

  memset(&seen, 0, sizeof seen);
  CHECK(windlass_walk(space, &registers, &options, see, &seen, &end, NULL) == WINDLASS_OK);
  CHECK(end == WINDLASS_END_GUESSED); /* a frame pointer of 0 is no proof */
  CHECK(seen.count == 3 && seen.pc[0] == 0x1010 && seen.pc[1] == 0x1100 && seen.pc[2] == 0x1200);
  CHECK(seen.rbp_at == 0x7020);
  CHECK(windlass_close(space) == WINDLASS_OK);
  CHECK(stack.released == 1);
  CHECK(windlass_close(space) == WINDLASS_INVALID);
  return offsets_are_the_structs();
}
