/* What stands between a judge of exactness and an unwinder under test: one C function. A judge stops a process at an
 * instruction, hands over every register and a way to read memory, and asks for the callers. An unwinder is a shared
 * object that exports `uj_unwind`; every judge that speaks this interface can load it.
 *
 * Registers have their x86-64 DWARF numbers: 0 rax, 1 rdx, 2 rcx, 3 rbx, 4 rsi, 5 rdi, 6 rbp, 7 rsp, 8 to 15 r8 to r15,
 * 16 the pc (psABI figure 3.36).
 */
#ifndef WINDLASS_EXACTNESS_PEER_H
#define WINDLASS_EXACTNESS_PEER_H
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

enum { UJ_ABI = 1, UJ_REGISTERS = 17, UJ_SP = 7, UJ_PC = 16 };

/* A caller: its registers just after the call returns (for an ordinary frame reg[UJ_SP] is the CFA). */
struct uj_frame {
  uint64_t reg[UJ_REGISTERS];
  uint32_t known; /* bit i: reg[i] is claimed to be known */
  uint32_t flags; /* 0 */
};

struct uj_request {
  uint32_t abi;               /* UJ_ABI */
  int32_t pid;                /* traced and stopped; its /proc files may be read */
  uint64_t generation;        /* changes whenever the process's mappings may have changed */
  uint64_t reg[UJ_REGISTERS]; /* all known */
  int (*read)(void* context, uint64_t address, void* to, size_t size); /* 0: all of it was read */
  void* context;
};

/* Fills out[0], out[1]... with the callers, innermost first, at most `max`.
 *   n > 0  n callers; fewer than `max` says that the stack ends behind them
 *   0      there is no caller
 *   n < 0  the unwinder gives up; the first -n - 1 callers are claimed */
int uj_unwind(const struct uj_request* request, struct uj_frame* out, int max);
typedef int (*uj_unwind_function)(const struct uj_request* request, struct uj_frame* out, int max);

#ifdef __cplusplus
}
#endif
#endif
