/* A runtime that makes code while it runs: its region is added, and walks pass through it. The generated function has
 * no unwind information; its instructions show how to get out of it. */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <windlass/c/windlass.h>

static windlass_space* space;
static uint64_t region_begin, region_end;
static int frames, generated, inside;
static uint32_t end;

static int count_frame(windlass_cursor* cursor, const windlass_frame* frame, void* user) {
  (void)cursor;
  (void)user;
  ++frames;
  if (inside) printf("its caller was found by: %s\n", windlass_origin_name(frame->origin));
  inside = frame->pc >= region_begin && frame->pc < region_end;
  if (inside) printf("in %s\n", frame->module_path);
  generated += inside;
  return 0;
}

static void called_from_generated_code(void) {
  windlass_registers registers;
  registers.size = sizeof registers;
  windlass_capture_registers(&registers);
  windlass_walk(space, &registers, NULL, count_frame, NULL, &end, NULL);
}

/* void generated(void (*f)(void)): keeps a frame of its own and calls f. */
#if defined(__x86_64__)
static const unsigned char kCode[] = {
    0x53,                   /* push rbx */
    0x48, 0x83, 0xec, 0x20, /* sub rsp, 32 */
    0xff, 0xd7,             /* call rdi */
    0x48, 0x83, 0xc4, 0x20, /* add rsp, 32 */
    0x5b,                   /* pop rbx */
    0xc3                    /* ret */
};
#else
static const unsigned char kCode[] = {
    0xfd, 0x7b, 0xbe, 0xa9, /* stp x29, x30, [sp, #-32]! */
    0xfd, 0x03, 0x00, 0x91, /* mov x29, sp */
    0x00, 0x00, 0x3f, 0xd6, /* blr x0 */
    0xfd, 0x7b, 0xc2, 0xa8, /* ldp x29, x30, [sp], #32 */
    0xc0, 0x03, 0x5f, 0xd6  /* ret */
};
#endif

int main(void) {
  unsigned char* region = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  windlass_code code = {.size = sizeof code, .name = "[my runtime]"};
  uint64_t id;
  void (*function)(void (*)(void));
  if (region == MAP_FAILED || windlass_open_self(&space, NULL) != WINDLASS_OK) return 1;
  memcpy(region, kCode, sizeof kCode);
  mprotect(region, 4096, PROT_READ | PROT_EXEC);
  __builtin___clear_cache((char*)region, (char*)region + sizeof kCode);

  code.begin = region_begin = (uint64_t)(uintptr_t)region;
  code.end = region_end = region_begin + 4096;
  if (windlass_add_code(space, &code, &id, NULL) != WINDLASS_OK) return 1;
  memcpy(&function, &region, sizeof function);
  function(called_from_generated_code);
  printf("%d frames, %d generated, %s\n", frames, generated, windlass_end_name(end));

  windlass_retire_code(space, id, NULL); /* before the region is given away */
  munmap(region, 4096);
  windlass_close(space);
  return generated == 1 && end == WINDLASS_END_COMPLETE ? 0 : 1;
}
