/* A runtime that makes code with frames of several sizes at one place, and says so to whoever has Windlass's names in
 * this process. Stacks through it, by other people's interfaces, must have as many frames as those through a function
 * of its own, and end where those end. Exit status 2: nobody has the names. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <execinfo.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unwind.h>
#include <windlass/c/windlass.h>

struct stack {
  void* pcs[128];
  int size;
};
static struct stack by_backtrace, by_unwind;
#if defined(WITH_WINDLASS)
static int by_windlass;
static int count(windlass_cursor* cursor, const windlass_frame* frame, void* user) {
  (void)cursor, (void)frame, (void)user;
  ++by_windlass;
  return 0;
}
#endif

static _Unwind_Reason_Code keep(struct _Unwind_Context* context, void* user) {
  struct stack* stack = user;
  if (stack->size < 128) stack->pcs[stack->size++] = (void*)_Unwind_GetIP(context);
  return _URC_NO_REASON;
}

__attribute__((noinline)) static void walk(void) {
  by_backtrace.size = backtrace(by_backtrace.pcs, 128);
  by_unwind.size = 0;
  _Unwind_Backtrace(keep, &by_unwind);
#if defined(WITH_WINDLASS)
  windlass_space* space;
  windlass_registers registers = {.size = sizeof registers};
  windlass_open_self(&space, NULL);
  windlass_capture_registers(&registers);
  by_windlass = 0;
  windlass_walk(space, &registers, NULL, count, NULL, NULL, NULL);
  windlass_close(space);
#endif
}

__attribute__((noinline)) static void call(void (*function)(void (*)(void)), void (*argument)(void)) {
  function(argument);
  __asm__ volatile("");
}
__attribute__((noinline)) static void plain(void (*f)(void)) {
  f();
  __asm__ volatile("");
}

/* void generated(void (*f)(void)) with `size` bytes of stack, below 128 and such that it stays aligned. */
static size_t generate(unsigned char* at, unsigned size, windlass_row rows[5]) {
  const uint64_t begin = (uint64_t)(uintptr_t)at;
  memset(rows, 0, 5 * sizeof *rows);
#if defined(__x86_64__)
  const unsigned char code[] = {0x48, 0x83, 0xec, (unsigned char)size, 0xff, 0xd7,
                                0x48, 0x83, 0xc4, (unsigned char)size, 0xc3};
  const unsigned ends[] = {4, 10, 11}, sizes[] = {8, 8 + size, 8};
  const int returns[] = {-8, -8, -8};
  const uint32_t sp = 7;
#else
  const uint32_t code[] = {0xd10003ff | size << 10, 0xf90003fe, 0xd63f0000, 0xf94003fe,
                           0x910003ff | size << 10, 0xd65f03c0};
  const unsigned ends[] = {4, 8, 16, 20, 24}, sizes[] = {0, size, size, size, 0};
  const int returns[] = {0, 0, -(int)size, 0, 0};
  const uint32_t sp = 31;
#endif
  const size_t count = sizeof ends / sizeof *ends;
  memcpy(at, code, sizeof code);
  __builtin___clear_cache((char*)at, (char*)at + sizeof code);
  for (size_t i = 0; i < count; ++i) {
    rows[i].begin = i == 0 ? begin : rows[i - 1].end;
    rows[i].end = begin + ends[i];
    rows[i].cfa_register = sp;
    rows[i].cfa_offset = (int32_t)sizes[i];
    rows[i].return_offset = returns[i];
  }
  return count;
}

static int same_end(const struct stack* with, const struct stack* without, int more) {
  return with->size == without->size + more && with->size > 3 &&
         memcmp(with->pcs + with->size - 2, without->pcs + without->size - 2, 2 * sizeof(void*)) == 0;
}

int main(void) {
#if defined(WITH_WINDLASS)
  windlass_status (*add)(const windlass_code*, uint64_t*, windlass_error*) = windlass_add_own_code;
  windlass_status (*retire)(uint64_t, windlass_error*) = windlass_retire_own_code;
#else
  windlass_status (*add)(const windlass_code*, uint64_t*, windlass_error*);
  windlass_status (*retire)(uint64_t, windlass_error*);
  *(void**)&add = dlsym(RTLD_DEFAULT, "windlass_add_own_code");
  *(void**)&retire = dlsym(RTLD_DEFAULT, "windlass_retire_own_code");
#endif
  unsigned char* room = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (add == NULL || retire == NULL) return 2;
  if (room == MAP_FAILED) return 1;
  call(plain, walk);
  const struct stack plain_backtrace = by_backtrace, plain_unwind = by_unwind;
#if defined(WITH_WINDLASS)
  const int plain_windlass = by_windlass;
#endif
  for (unsigned i = 0; i < 6; ++i) {
#if defined(__x86_64__)
    const unsigned size = 8 + 16 * (i * 5 % 7);
#else
    const unsigned size = 16 + 16 * (i * 5 % 6);
#endif
    windlass_row rows[5];
    windlass_code code = {.size = sizeof code, .begin = (uint64_t)(uintptr_t)room, .name = "[generated]"};
    windlass_error error = {.size = sizeof error};
    uint64_t id;
    void (*function)(void (*)(void));
    code.row_count = generate(room, size, rows);
    code.rows = rows;
    code.end = rows[code.row_count - 1].end;
    if (add(&code, &id, &error) != WINDLASS_OK) return printf("%s\n", error.text), 1;
    memcpy(&function, &room, sizeof function);
    call(function, walk);
    if (!same_end(&by_backtrace, &plain_backtrace, 0) || !same_end(&by_unwind, &plain_unwind, 0))
      return printf("%u: %d and %d frames instead of %d and %d\n", size, by_backtrace.size, by_unwind.size,
                    plain_backtrace.size, plain_unwind.size),
             1;
#if defined(WITH_WINDLASS)
    if (by_windlass != plain_windlass) return printf("%u: %d frames in libwindlass.so\n", size, by_windlass), 1;
#endif
    if (retire(id, &error) != WINDLASS_OK) return printf("%s\n", error.text), 1;
    /* Another function in its place is not registered. By the old rows the walk would go wrong, so its code is
     * followed. */
    generate(room, size == 16 ? 48 : size == 8 ? 40 : size - 16, rows);
    call(function, walk);
    if (!same_end(&by_backtrace, &plain_backtrace, 0) || !same_end(&by_unwind, &plain_unwind, 0))
      return printf("retired %u: %d and %d frames instead of %d and %d\n", size, by_backtrace.size, by_unwind.size,
                    plain_backtrace.size, plain_unwind.size),
             1;
  }
  puts("every stack is whole");
  return 0;
}
