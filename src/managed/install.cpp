#include "managed/install.h"

#include <cstddef>
#include <cstdio>
#include <cstdlib>

#include "windlass/managed/explicit_frame.h"

static_assert(offsetof(windlass::managed::Landing, stores) == 8 * 44);

#if defined(__x86_64__)
asm(R"(
  .macro windlass_push register
  pushq \register
  .cfi_adjust_cfa_offset 8
  .cfi_rel_offset \register, 0
  .endm
  .macro windlass_pop register
  popq \register
  .cfi_adjust_cfa_offset -8
  .cfi_restore \register
  .endm

  .text
  .p2align 4
  .globl windlass_install
  .type windlass_install, @function
windlass_install:
  .cfi_startproc
  .cfi_undefined %rip
  movq 8*44(%rdi), %rax
  movq 8*45(%rdi), %rcx
  movq %rcx, (%rax)
  movq 8*46(%rdi), %rax
  movq 8*47(%rdi), %rcx
  movq %rcx, (%rax)
  movq 8*48(%rdi), %rax
  movq 8*49(%rdi), %rcx
  movq %rcx, (%rax)
  movq 8*0(%rdi), %rax
  movq 8*3(%rdi), %rbx
  movq 8*6(%rdi), %rbp
  movq 8*12(%rdi), %r12
  movq 8*13(%rdi), %r13
  movq 8*14(%rdi), %r14
  movq 8*15(%rdi), %r15
  movq 8*7(%rdi), %rdx
  movq 8*16(%rdi), %rcx
  movq 8*5(%rdi), %rdi
windlass_install_loaded:  // the landing, which lies below, may be overwritten from here on
  movq %rdx, %rsp
  jmp *%rcx
windlass_install_end:
  .cfi_endproc
  .size windlass_install, .-windlass_install

  .p2align 4
  .globl windlass_call_funclet
  .type windlass_call_funclet, @function
windlass_call_funclet:
  .cfi_startproc
  windlass_push %rbp
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
  windlass_pop %rbp
  ret
  .cfi_endproc
  .size windlass_call_funclet, .-windlass_call_funclet

  .p2align 4
  .globl windlass_hijacked_return
  .type windlass_hijacked_return, @function
windlass_hijacked_return:
  .cfi_startproc
  // sp is the caller's. The return address that was replaced still stands below it, where the new one will be. Room for
  // the slots and xmm0-xmm1, aligned as calls want it. What the slots have is in its registers, too.
  .cfi_def_cfa_offset 0
  subq $8, %rsp
  .cfi_def_cfa_offset 8
  pushq %rbp
  .cfi_def_cfa_offset 16
  .cfi_offset %rbp, -16
  movq %rsp, %rbp
  .cfi_def_cfa_register %rbp
  subq $(8*44 + 32 + 16), %rsp
  andq $-16, %rsp
  movq %rax, 8*0(%rsp)
  movq %rdx, 8*1(%rsp)
  movq %rbx, 8*3(%rsp)
  movq (%rbp), %rax
  movq %rax, 8*6(%rsp)
  leaq 16(%rbp), %rax
  movq %rax, 8*7(%rsp)
  movq %r12, 8*12(%rsp)
  movq %r13, 8*13(%rsp)
  movq %r14, 8*14(%rsp)
  movq %r15, 8*15(%rsp)
  movups %xmm0, 8*44(%rsp)
  movups %xmm1, 8*44+16(%rsp)
  movq %rsp, %rdi
  call windlass_on_hijacked_return
  movups 8*44(%rsp), %xmm0
  movups 8*44+16(%rsp), %xmm1
  movq 8*0(%rsp), %rax
  movq 8*1(%rsp), %rdx
  movq 8*3(%rsp), %rbx
  movq 8*12(%rsp), %r12
  movq 8*13(%rsp), %r13
  movq 8*14(%rsp), %r14
  movq 8*15(%rsp), %r15
  movq 8*6(%rsp), %rcx
  movq %rcx, (%rbp)
  movq %rbp, %rsp
  .cfi_def_cfa_register %rsp
  popq %rbp
  .cfi_def_cfa_offset 8
  .cfi_restore %rbp
  ret
  .cfi_endproc
  .size windlass_hijacked_return, .-windlass_hijacked_return

  .p2align 4
  .globl windlass_call_saving_registers
  .type windlass_call_saving_registers, @function
windlass_call_saving_registers:
  .cfi_startproc
  windlass_push %rbp
  windlass_push %rbx
  windlass_push %r12
  windlass_push %r13
  windlass_push %r14
  windlass_push %r15
  subq $8, %rsp
  .cfi_adjust_cfa_offset 8
  movq %rdi, %rax
  movq %rsi, %rdi
  call *%rax
  addq $8, %rsp
  .cfi_adjust_cfa_offset -8
  windlass_pop %r15
  windlass_pop %r14
  windlass_pop %r13
  windlass_pop %r12
  windlass_pop %rbx
  windlass_pop %rbp
  ret
  .cfi_endproc
  .size windlass_call_saving_registers, .-windlass_call_saving_registers
)");
#else
asm(R"(
  // The frame of windlass_call_saving_registers has 160 bytes.
  .macro windlass_save first, second, at
  stp \first, \second, [sp, #\at]
  .cfi_offset \first, \at - 160
  .cfi_offset \second, \at - 152
  .endm
  .macro windlass_restore first, second, at
  ldp \first, \second, [sp, #\at]
  .cfi_restore \first
  .cfi_restore \second
  .endm

  // Preserved registers, `operation` ldp or stp, in the slots at `slots`. x10 is overwritten.
  .macro windlass_slots_x operation, slots
  \operation x19, x20, [\slots, #8*19]
  \operation x21, x22, [\slots, #8*21]
  \operation x23, x24, [\slots, #8*23]
  \operation x25, x26, [\slots, #8*25]
  \operation x27, x28, [\slots, #8*27]
  .endm
  .macro windlass_slots_d operation, slots
  add x10, \slots, #8*36
  \operation d8, d9, [x10]
  \operation d10, d11, [x10, #16]
  \operation d12, d13, [x10, #32]
  \operation d14, d15, [x10, #48]
  .endm

  .text
  .p2align 4
  .globl windlass_install
  .type windlass_install, %function
windlass_install:
  .cfi_startproc
  .cfi_undefined x30
  hint #34  // bti c
  ldp x9, x10, [x0, #8*44]
  str x10, [x9]
  ldp x9, x10, [x0, #8*46]
  str x10, [x9]
  ldp x9, x10, [x0, #8*48]
  str x10, [x9]
  windlass_slots_x ldp, x0
  ldp x29, x30, [x0, #8*29]
  ldp x9, x16, [x0, #8*31]
  windlass_slots_d ldp, x0
  ldp x0, x1, [x0]
windlass_install_loaded:  // the landing, which lies below, may be overwritten from here on
  mov sp, x9
  br x16
windlass_install_end:
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
  windlass_slots_x stp, x3
  stp x29, x30, [x3, #8*29]
  adr x10, 1f
  mov x9, sp
  stp x9, x10, [x3, #8*31]
  windlass_slots_d stp, x3
  blr x16
1:
  ldp x29, x30, [sp], #16
  .cfi_adjust_cfa_offset -16
  .cfi_restore x29
  .cfi_restore x30
  ret
  .cfi_endproc
  .size windlass_call_funclet, .-windlass_call_funclet

  .p2align 4
  .globl windlass_hijacked_return
  .type windlass_hijacked_return, %function
windlass_hijacked_return:
  .cfi_startproc
  // x30 is the address of this.
  hint #36  // bti j
  mov x9, sp
  sub sp, sp, #(8*44 + 64)
  .cfi_def_cfa_offset 416
  stp x0, x1, [sp]
  windlass_slots_x stp, sp
  stp x29, x30, [sp, #8*29]
  stp x9, x30, [sp, #8*31]
  .cfi_offset x30, 8*32 - 416
  windlass_slots_d stp, sp
  stp q0, q1, [x10, #64]
  mov x0, sp
  bl windlass_on_hijacked_return
  windlass_slots_d ldp, sp
  ldp q0, q1, [x10, #64]
  ldp x0, x1, [sp]
  windlass_slots_x ldp, sp
  ldr x29, [sp, #8*29]
  ldr x30, [sp, #8*32]
  .cfi_restore x30
  add sp, sp, #(8*44 + 64)
  .cfi_def_cfa_offset 0
  ret
  .cfi_endproc
  .size windlass_hijacked_return, .-windlass_hijacked_return

  .p2align 4
  .globl windlass_call_saving_registers
  .type windlass_call_saving_registers, %function
windlass_call_saving_registers:
  .cfi_startproc
  hint #34  // bti c
  stp x29, x30, [sp, #-160]!
  .cfi_def_cfa_offset 160
  .cfi_offset x29, -160
  .cfi_offset x30, -152
  windlass_save x19, x20, 16
  windlass_save x21, x22, 32
  windlass_save x23, x24, 48
  windlass_save x25, x26, 64
  windlass_save x27, x28, 80
  windlass_save d8, d9, 96
  windlass_save d10, d11, 112
  windlass_save d12, d13, 128
  windlass_save d14, d15, 144
  mov x9, x0
  mov x0, x1
  blr x9
  windlass_restore x19, x20, 16
  windlass_restore x21, x22, 32
  windlass_restore x23, x24, 48
  windlass_restore x25, x26, 64
  windlass_restore x27, x28, 80
  windlass_restore d8, d9, 96
  windlass_restore d10, d11, 112
  windlass_restore d12, d13, 128
  windlass_restore d14, d15, 144
  ldp x29, x30, [sp], #160
  .cfi_restore x29
  .cfi_restore x30
  .cfi_def_cfa_offset 0
  ret
  .cfi_endproc
  .size windlass_call_saving_registers, .-windlass_call_saving_registers
)");
#endif

extern "C" const char windlass_install_loaded[], windlass_install_end[];

namespace windlass::managed {

void refuse_shadow_stack([[maybe_unused]] const char* what) {
#if defined(__x86_64__)
  std::uint64_t shadow = 0;
  asm volatile("rdsspq %0" : "+r"(shadow));  // leaves 0 where there is none
  if (shadow == 0) return;
  std::fprintf(stderr, "windlass: %s is not possible on a thread with a shadow stack (CET)\n", what);
  std::abort();
#endif
}

std::optional<Registers> landing_of(const Registers& registers) {
  const auto address = [](const void* code) { return reinterpret_cast<std::uint64_t>(code); };
  const std::uint64_t pc = registers.pc().value();
  if (pc < address(reinterpret_cast<const void*>(&windlass_install)) || pc >= address(windlass_install_end))
    return std::nullopt;
  const bool x86 = registers.architecture() == Architecture::kX86_64;
  if (pc < address(windlass_install_loaded)) {
    SavedContext context;
    context.known = kCapturedSlots;
    const auto* landing = reinterpret_cast<const Landing*>(registers.get(x86 ? 5 : 0));
    for (unsigned slot = 0; slot < Registers::kSlots; ++slot) context.value[slot] = landing->slots[slot];
    return context.registers(registers.architecture());
  }
  Registers there = registers;
  there.set_sp(registers.get(x86 ? 1 : 9));
  there.set_pc(CodeAddress::instruction(registers.get(x86 ? 2 : 16)));
  return there;
}

}  // namespace windlass::managed
