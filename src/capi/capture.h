// Entries that hand on the caller's registers. A function in C cannot do that, because its own prologue has changed
// them already. The entry `name` calls `target` (extern "C") with its own arguments and, as argument number `n` counted
// from 0, the slots that registers_from_capture() takes. The slots hold the caller's registers as they are when `name`
// returns.
#pragma once

#include "windlass/registers.h"

static_assert(windlass::Registers::kSlots == 44);  // 352 bytes below

#if defined(_WIN32)

#define WINDLASS_HIDDEN
#define WINDLASS_ARGUMENT_1 "rdx"
#define WINDLASS_ARGUMENT_2 "r8"
// The slots stand above the 32 bytes that the callee may use.
#define WINDLASS_CAPTURING_ENTRY(name, target, n)                                         \
  __asm__(".text\n.p2align 4\n.globl " #name "\n.def " #name                              \
          "; .scl 2; .type 32; .endef\n"                                                  \
          ".seh_proc " #name "\n" #name                                                   \
          ":\nsubq $392, %rsp\n.seh_stackalloc 392\n.seh_endprologue\n"                   \
          "movq %rbx, 32+8*3(%rsp)\nmovq %rsi, 32+8*4(%rsp)\nmovq %rdi, 32+8*5(%rsp)\n"   \
          "movq %rbp, 32+8*6(%rsp)\nmovq %r12, 32+8*12(%rsp)\nmovq %r13, 32+8*13(%rsp)\n" \
          "movq %r14, 32+8*14(%rsp)\nmovq %r15, 32+8*15(%rsp)\n"                          \
          "leaq 400(%rsp), %rax\nmovq %rax, 32+8*7(%rsp)\n"                               \
          "movq 392(%rsp), %rax\nmovq %rax, 32+8*16(%rsp)\n"                              \
          "leaq 32(%rsp), %" WINDLASS_ARGUMENT_##n "\ncall " #target                      \
                                                   "\n"                                   \
                                                   "addq $392, %rsp\nret\n.seh_endproc\n")

#else

#define WINDLASS_HIDDEN [[gnu::visibility("hidden")]]
#define WINDLASS_ENTRY_HEAD(name, kind) \
  ".text\n.p2align 4\n.globl " #name "\n.type " #name ", " kind "\n" #name ":\n.cfi_startproc\n"
#define WINDLASS_ENTRY_TAIL(name) "ret\n.cfi_endproc\n.size " #name ", . - " #name "\n"

#if defined(__x86_64__)

#define WINDLASS_ARGUMENT_1 "rsi"
#define WINDLASS_ARGUMENT_2 "rdx"
#define WINDLASS_CAPTURING_ENTRY(name, target, n) \
  __asm__(WINDLASS_ENTRY_HEAD(name, "@function") "endbr64\n"                                            \
          "subq $360, %rsp\n.cfi_adjust_cfa_offset 360\n"                                               \
          "movq %rbx, 8*3(%rsp)\nmovq %rbp, 8*6(%rsp)\n"                                                \
          "movq %r12, 8*12(%rsp)\nmovq %r13, 8*13(%rsp)\nmovq %r14, 8*14(%rsp)\nmovq %r15, 8*15(%rsp)\n" \
          "leaq 368(%rsp), %rax\nmovq %rax, 8*7(%rsp)\n"                                                \
          "movq 360(%rsp), %rax\nmovq %rax, 8*16(%rsp)\n"                                               \
          "movq %rsp, %" WINDLASS_ARGUMENT_##n "\ncall " #target "\n"                                   \
          "addq $360, %rsp\n.cfi_adjust_cfa_offset -360\n" WINDLASS_ENTRY_TAIL(name))

#elif defined(__aarch64__)

#define WINDLASS_CAPTURING_ENTRY(name, target, n) \
  __asm__(WINDLASS_ENTRY_HEAD(name, "%function") "hint #34\n" /* bti c */                           \
          "sub sp, sp, #352\n.cfi_def_cfa_offset 352\n"                                             \
          "stp x19, x20, [sp, #8*19]\nstp x21, x22, [sp, #8*21]\nstp x23, x24, [sp, #8*23]\n"       \
          "stp x25, x26, [sp, #8*25]\nstp x27, x28, [sp, #8*27]\nstp x29, x30, [sp, #8*29]\n"       \
          ".cfi_offset x30, -112\n"                                                                 \
          "add x9, sp, #352\nstp x9, x30, [sp, #8*31]\n"                                            \
          "stp d8, d9, [sp, #288]\nstp d10, d11, [sp, #304]\n"                                      \
          "stp d12, d13, [sp, #320]\nstp d14, d15, [sp, #336]\n"                                    \
          "mov x" #n ", sp\nbl " #target "\n"                                                       \
          "ldr x30, [sp, #8*30]\nadd sp, sp, #352\n.cfi_def_cfa_offset 0\n.cfi_restore x30\n"       \
          WINDLASS_ENTRY_TAIL(name))

#endif

#endif
