#include "managed/install.h"

#if defined(__x86_64__)
asm(R"(
  .text
  .p2align 4
  .globl windlass_install
  .type windlass_install, @function
windlass_install:
  .cfi_startproc
  .cfi_undefined %rip
  movq 8*0(%rdi), %rax
  movq 8*3(%rdi), %rbx
  movq 8*6(%rdi), %rbp
  movq 8*12(%rdi), %r12
  movq 8*13(%rdi), %r13
  movq 8*14(%rdi), %r14
  movq 8*15(%rdi), %r15
  movq 8*16(%rdi), %rcx
  movq 8*7(%rdi), %rsp
  movq 8*5(%rdi), %rdi
  jmp *%rcx
  .cfi_endproc
  .size windlass_install, .-windlass_install

  .p2align 4
  .globl windlass_call_funclet
  .type windlass_call_funclet, @function
windlass_call_funclet:
  .cfi_startproc
  pushq %rbp
  .cfi_adjust_cfa_offset 8
  .cfi_rel_offset %rbp, 0
  movq %rdi, %rax
  movq %rsi, %rdi
  movq %rdx, %rsi
  movq %rbx, 8*3(%rcx)
  movq %rbp, 8*6(%rcx)
  movq %rsp, 8*7(%rcx)
  movq %r12, 8*12(%rcx)
  movq %r13, 8*13(%rcx)
  movq %r14, 8*14(%rcx)
  movq %r15, 8*15(%rcx)
  leaq 1f(%rip), %rdx
  movq %rdx, 8*16(%rcx)
  call *%rax
1:
  popq %rbp
  .cfi_adjust_cfa_offset -8
  .cfi_restore %rbp
  ret
  .cfi_endproc
  .size windlass_call_funclet, .-windlass_call_funclet
)");
#else
asm(R"(
  .text
  .p2align 4
  .globl windlass_install
  .type windlass_install, %function
windlass_install:
  .cfi_startproc
  .cfi_undefined x30
  hint #34  // bti c
  ldp x19, x20, [x0, #8*19]
  ldp x21, x22, [x0, #8*21]
  ldp x23, x24, [x0, #8*23]
  ldp x25, x26, [x0, #8*25]
  ldp x27, x28, [x0, #8*27]
  ldp x29, x30, [x0, #8*29]
  ldp x9, x16, [x0, #8*31]
  add x10, x0, #8*36
  ldp d8, d9, [x10]
  ldp d10, d11, [x10, #16]
  ldp d12, d13, [x10, #32]
  ldp d14, d15, [x10, #48]
  ldp x0, x1, [x0]
  mov sp, x9
  br x16
  .cfi_endproc
  .size windlass_install, .-windlass_install

  .p2align 4
  .globl windlass_call_funclet
  .type windlass_call_funclet, %function
windlass_call_funclet:
  .cfi_startproc
  hint #34  // bti c
  stp x29, x30, [sp, #-16]!
  .cfi_adjust_cfa_offset 16
  .cfi_rel_offset x29, 0
  .cfi_rel_offset x30, 8
  mov x16, x0
  mov x0, x1
  mov x1, x2
  stp x19, x20, [x3, #8*19]
  stp x21, x22, [x3, #8*21]
  stp x23, x24, [x3, #8*23]
  stp x25, x26, [x3, #8*25]
  stp x27, x28, [x3, #8*27]
  stp x29, x30, [x3, #8*29]
  adr x10, 1f
  mov x9, sp
  stp x9, x10, [x3, #8*31]
  add x10, x3, #8*36
  stp d8, d9, [x10]
  stp d10, d11, [x10, #16]
  stp d12, d13, [x10, #32]
  stp d14, d15, [x10, #48]
  blr x16
1:
  ldp x29, x30, [sp], #16
  .cfi_adjust_cfa_offset -16
  .cfi_restore x29
  .cfi_restore x30
  ret
  .cfi_endproc
  .size windlass_call_funclet, .-windlass_call_funclet
)");
#endif
