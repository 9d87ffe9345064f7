/* A handwritten assembler that tells everybody what it has made: a generated function that calls back, described once,
 * registered with the unwinder of this process, with GDB, perf and the walks of this library. `jit_bytes` prints two
 * backtraces through it; `jit_bytes stop` raises SIGINT there for a debugger, `jit_bytes spin DIR` computes for a
 * profiler; the jitdump goes to DIR, and the perf map where it is looked for, to /tmp.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include <unwind.h>
#include <windlass/c/windlass.h>

/* ---- the assembler ---- */

typedef struct code {
  unsigned char* at;
  uint32_t size;
} code;

static void emit(code* to, const void* bytes, uint32_t count) {
  memcpy(to->at + to->size, bytes, count);
  to->size += count;
}
#define EMIT(to, ...) emit(to, (const unsigned char[]){__VA_ARGS__}, sizeof((const unsigned char[]){__VA_ARGS__}))

/* ---- void generated(void (*call)(void*), void* argument): a frame of 64 bytes and one saved register, no frame
 * pointer */

static windlass_op ops[2];
static windlass_epilogue epilogue; /* `undone` is empty: the prologue in reverse */
static const windlass_prologue prologue = {sizeof prologue, ops, 2, &epilogue, 1};

static windlass_generated make(code* to) {
  windlass_generated made = {.size = sizeof made, .name = "generated"};
#if defined(__x86_64__)
  EMIT(to, 0x53); /* push rbx */
  ops[0] =
      (windlass_op){.end = to->size, .action = WINDLASS_SAVE, .reg = 3, .second = WINDLASS_NO_REGISTER, .bytes = 8};
  EMIT(to, 0x48, 0x83, 0xec, 64); /* sub rsp, 64 */
  ops[1] = (windlass_op){.end = to->size, .action = WINDLASS_ALLOCATE, .bytes = 64};
  EMIT(to, 0x48, 0x89, 0xf8, 0x48, 0x89, 0xf7, 0xff, 0xd0); /* mov rax, rdi; mov rdi, rsi; call rax */
  epilogue.begin = to->size;
  EMIT(to, 0x48, 0x83, 0xc4, 64, 0x5b, 0xc3); /* add rsp, 64; pop rbx; ret */
#else
  EMIT(to, 0xfe, 0x4f, 0xbf, 0xa9); /* stp x30, x19, [sp, #-16]! */
  ops[0] = (windlass_op){.end = to->size, .action = WINDLASS_SAVE, .reg = 30, .second = 19, .bytes = 16};
  EMIT(to, 0xff, 0x03, 0x01, 0xd1); /* sub sp, sp, #64 */
  ops[1] = (windlass_op){.end = to->size, .action = WINDLASS_ALLOCATE, .bytes = 64};
  EMIT(to, 0xe8, 0x03, 0x00, 0xaa, 0xe0, 0x03, 0x01, 0xaa, 0x00, 0x01, 0x3f, 0xd6); /* mov x8, x0; mov x0, x1; blr x8 */
  epilogue.begin = to->size;
  EMIT(to, 0xff, 0x03, 0x01, 0x91, 0xfe, 0x4f, 0xc1, 0xa8, 0xc0, 0x03, 0x5f, 0xd6); /* add sp; ldp x30, x19; ret */
#endif
  made.address = (uint64_t)(uintptr_t)to->at;
  made.code_size = to->size;
  made.prologue = &prologue;
  return made;
}

/* ---- what is called from it ---- */

static uint64_t begin, end;
static int unwound, walked;

static _Unwind_Reason_Code unwinder_frame(struct _Unwind_Context* context, void* count) {
  const uint64_t pc = (uint64_t)_Unwind_GetIP(context);
  ++*(int*)count;
  if (pc > begin && pc < end) unwound = *(int*)count;
  return _URC_NO_REASON;
}

static int own_frame(windlass_cursor* cursor, const windlass_frame* frame, void* count) {
  (void)cursor;
  ++*(int*)count;
  if (frame->pc > begin && frame->pc < end) walked = *(int*)count;
  return 0;
}

static void called_back(void* argument) {
  const char* const what = argument;
  int frames = 0, own = 0;
  uint32_t reason = 0;
  windlass_space* space = NULL;
  windlass_registers registers;
  if (strcmp(what, "stop") == 0) raise(SIGINT);
  for (const clock_t until = clock() + CLOCKS_PER_SEC; strcmp(what, "spin") == 0 && clock() < until;) continue;
  _Unwind_Backtrace(unwinder_frame, &frames);
  registers.size = sizeof registers;
  windlass_capture_registers(&registers);
  windlass_open_self(&space, NULL);
  windlass_walk(space, &registers, NULL, own_frame, &own, &reason, NULL);
  windlass_close(space);
  printf("libgcc: %d frames, generated code is number %d\n", frames, unwound);
  printf("windlass: %d frames, generated code is number %d, %s\n", own, walked, windlass_end_name(reason));
}

int main(int argc, char** argv) {
  static const char* const kNames[] = {"own walks", "unwinder", "gdb", "perf map", "jitdump"};
  const windlass_registrar_options jitdump = {.size = sizeof jitdump, .folder = argc > 2 ? argv[2] : "/tmp"};
  windlass_registrar* registrars[5] = {0};
  windlass_error error = {.size = sizeof error};
  code to = {.at = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)};
  const windlass_generated made = make(&to);
  void (*function)(void (*)(void*), const char*);
  mprotect(to.at, 4096, PROT_READ | PROT_EXEC);
  __builtin___clear_cache((char*)to.at, (char*)to.at + to.size);
  begin = made.address;
  end = begin + made.code_size;
  for (uint32_t i = 0; i < 5; ++i)
    if (windlass_open_registrar(i, i == 4 ? &jitdump : NULL, &registrars[i], &error) != WINDLASS_OK ||
        windlass_register(registrars[i], &made, 1, NULL, &error) != WINDLASS_OK) {
      fprintf(stderr, "%s: %s\n", kNames[i], error.text);
      return 1;
    }
  memcpy(&function, &to.at, sizeof function);
  function(called_back, argc > 1 ? argv[1] : "");
  for (uint32_t i = 0; i < 5; ++i) windlass_close_registrar(registrars[i]); /* before the memory is given away */
  munmap(to.at, 4096);
  return unwound != 0 && walked != 0 ? 0 : 1;
}
