/* A runtime that keeps its generated functions in a code manager. Only the manager tells how to leave them: the size of
 * their frame depends on a counter of the processor, shifted out of its register. Stacks through them, walked by other
 * libraries' interfaces, must end as stacks through an ordinary function, as long as the manager has them. */
#define _GNU_SOURCE
#include <execinfo.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unwind.h>
#include <windlass/c/windlass.h>

#if defined(__x86_64__)
/* sub rsp, 40; call rdi; rdtsc; shr eax, 31; shr eax, 1; add rsp, rax; add rsp, 40; ret */
static const unsigned char code[] = {0x48, 0x83, 0xec, 0x28, 0xff, 0xd7, 0x0f, 0x31, 0xc1, 0xe8, 0x1f,
                                     0xd1, 0xe8, 0x48, 0x01, 0xc4, 0x48, 0x83, 0xc4, 0x28, 0xc3};
static const windlass_row made[] = {
    {0, 4, 7, 8, -8, 0, NULL}, {4, 20, 7, 48, -8, 0, NULL}, {20, 21, 7, 8, -8, 0, NULL}};
#else
/* sub sp, sp, #48; str x30, [sp]; blr x0; mrs x9, cntvct_el0; lsr w9, w9, #31; lsr w9, w9, #1; add sp, sp, x9;
 * ldr x30, [sp]; add sp, sp, #48; ret */
static const uint32_t code[] = {0xd100c3ff, 0xf90003fe, 0xd63f0000, 0xd53be049, 0x531f7d29,
                                0x53017d29, 0x8b2963ff, 0xf94003fe, 0x9100c3ff, 0xd65f03c0};
static const windlass_row made[] = {
    {0, 4, 31, 0, 0, 0, NULL}, {4, 8, 31, 48, 0, 0, NULL}, {8, 36, 31, 48, -48, 0, NULL}, {36, 40, 31, 0, 0, 0, NULL}};
#endif
enum { ROWS = sizeof made / sizeof *made };

struct stack {
  void* pcs[128];
  int size;
};
static struct stack by_backtrace, by_unwind;

static _Unwind_Reason_Code keep(struct _Unwind_Context* context, void* user) {
  struct stack* stack = user;
  if (stack->size < 128) stack->pcs[stack->size++] = (void*)_Unwind_GetIP(context);
  return _URC_NO_REASON;
}
__attribute__((noinline)) static void walk(void) {
  by_backtrace.size = backtrace(by_backtrace.pcs, 128);
  by_unwind.size = 0;
  _Unwind_Backtrace(keep, &by_unwind);
}
__attribute__((noinline)) static void plain(void (*f)(void)) {
  f();
  __asm__ volatile("");
}

__attribute__((noinline, noclone)) static void walk_through(void (*function)(void (*)(void))) {
  function(walk);
  __asm__ volatile("");
}

static int same_end(const struct stack* with, const struct stack* without) {
  return with->size == without->size && with->size > 3 &&
         memcmp(with->pcs + with->size - 2, without->pcs + without->size - 2, 2 * sizeof(void*)) == 0;
}
static struct stack plain_backtrace, plain_unwind;
__attribute__((noinline, noclone)) static int are_whole(void (*function)(void (*)(void))) {
  walk_through(function);
  return same_end(&by_backtrace, &plain_backtrace) && same_end(&by_unwind, &plain_unwind);
}

int main(void) {
  unsigned char* room = mmap(NULL, 8192, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const uint64_t begin = (uint64_t)(uintptr_t)room;
  windlass_error error = {.size = sizeof error};
  windlass_code_manager* manager;
  if (room == MAP_FAILED) return 1;
  are_whole(plain);
  plain_backtrace = by_backtrace, plain_unwind = by_unwind;
  if (windlass_open_code_manager(begin, begin + 8192, 100, &manager, &error) != WINDLASS_OK)
    return printf("%s\n", error.text), 1;
  for (int i = 0; i < 20; ++i) {
    const uint64_t at = begin + (uint64_t)i * 300;
    void* place = room + i * 300;
    void (*function)(void (*)(void));
    windlass_row rows[ROWS];
    windlass_generated managed = {.size = sizeof managed, .address = at, .code_size = sizeof code, .row_count = ROWS};
    memcpy(place, code, sizeof code);
    __builtin___clear_cache(place, (char*)place + sizeof code);
    memcpy(&function, &place, sizeof function);
    for (int row = 0; row < ROWS; ++row) rows[row] = made[row], rows[row].begin += at, rows[row].end += at;
    managed.rows = rows;
    if (are_whole(function)) return printf("%d: whole before it was added\n", i), 1;
    if (windlass_manage(manager, NULL, 0, &managed, 1, &error) != WINDLASS_OK) return printf("%s\n", error.text), 1;
    if (!are_whole(function)) return printf("%d: not whole\n", i), 1;
    if (i % 3 == 0) {
      if (windlass_manage(manager, &at, 1, NULL, 0, &error) != WINDLASS_OK) return printf("%s\n", error.text), 1;
      if (are_whole(function)) return printf("%d: whole after it was removed\n", i), 1;
    }
  }
  if (windlass_close_code_manager(manager) != WINDLASS_OK) return 1;
  puts("every stack is whole");
  return 0;
}
