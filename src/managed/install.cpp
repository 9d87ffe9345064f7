#include "managed/install.h"

#include <cstddef>
#include <cstdio>
#include <cstdlib>

#include "windlass/explicit_frame.h"

static_assert(offsetof(windlass::managed::Landing, stores) == 8 * 44);

#if defined(__x86_64__)
asm(R"(
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
  pushq %rbp
  .cfi_adjust_cfa_offset 8
  .cfi_rel_offset %rbp, 0
  pushq %rbx
  .cfi_adjust_cfa_offset 8
  .cfi_rel_offset %rbx, 0
  pushq %r12
  .cfi_adjust_cfa_offset 8
  .cfi_rel_offset %r12, 0
  pushq %r13
  .cfi_adjust_cfa_offset 8
  .cfi_rel_offset %r13, 0
  pushq %r14
  .cfi_adjust_cfa_offset 8
  .cfi_rel_offset %r14, 0
  pushq %r15
  .cfi_adjust_cfa_offset 8
  .cfi_rel_offset %r15, 0
  subq $8, %rsp
  .cfi_adjust_cfa_offset 8
  movq %rdi, %rax
  movq %rsi, %rdi
  call *%rax
  addq $8, %rsp
  .cfi_adjust_cfa_offset -8
  popq %r15
  .cfi_adjust_cfa_offset -8
  .cfi_restore %r15
  popq %r14
  .cfi_adjust_cfa_offset -8
  .cfi_restore %r14
  popq %r13
  .cfi_adjust_cfa_offset -8
  .cfi_restore %r13
  popq %r12
  .cfi_adjust_cfa_offset -8
  .cfi_restore %r12
  popq %rbx
  .cfi_adjust_cfa_offset -8
  .cfi_restore %rbx
  popq %rbp
  .cfi_adjust_cfa_offset -8
  .cfi_restore %rbp
  ret
  .cfi_endproc
  .size windlass_call_saving_registers, .-windlass_call_saving_registers
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
  ldp x9, x10, [x0, #8*44]
  str x10, [x9]
  ldp x9, x10, [x0, #8*46]
  str x10, [x9]
  ldp x9, x10, [x0, #8*48]
  str x10, [x9]
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
  stp x19, x20, [sp, #8*19]
  stp x21, x22, [sp, #8*21]
  stp x23, x24, [sp, #8*23]
  stp x25, x26, [sp, #8*25]
  stp x27, x28, [sp, #8*27]
  stp x29, x30, [sp, #8*29]
  stp x9, x30, [sp, #8*31]
  .cfi_offset x30, 8*32 - 416
  add x10, sp, #8*36
  stp d8, d9, [x10]
  stp d10, d11, [x10, #16]
  stp d12, d13, [x10, #32]
  stp d14, d15, [x10, #48]
  stp q0, q1, [x10, #64]
  mov x0, sp
  bl windlass_on_hijacked_return
  add x10, sp, #8*36
  ldp q0, q1, [x10, #64]
  ldp d8, d9, [x10]
  ldp d10, d11, [x10, #16]
  ldp d12, d13, [x10, #32]
  ldp d14, d15, [x10, #48]
  ldp x0, x1, [sp]
  ldp x19, x20, [sp, #8*19]
  ldp x21, x22, [sp, #8*21]
  ldp x23, x24, [sp, #8*23]
  ldp x25, x26, [sp, #8*25]
  ldp x27, x28, [sp, #8*27]
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
  stp x19, x20, [sp, #16]
  .cfi_offset x19, -144
  .cfi_offset x20, -136
  stp x21, x22, [sp, #32]
  .cfi_offset x21, -128
  .cfi_offset x22, -120
  stp x23, x24, [sp, #48]
  .cfi_offset x23, -112
  .cfi_offset x24, -104
  stp x25, x26, [sp, #64]
  .cfi_offset x25, -96
  .cfi_offset x26, -88
  stp x27, x28, [sp, #80]
  .cfi_offset x27, -80
  .cfi_offset x28, -72
  stp d8, d9, [sp, #96]
  .cfi_offset d8, -64
  .cfi_offset d9, -56
  stp d10, d11, [sp, #112]
  .cfi_offset d10, -48
  .cfi_offset d11, -40
  stp d12, d13, [sp, #128]
  .cfi_offset d12, -32
  .cfi_offset d13, -24
  stp d14, d15, [sp, #144]
  .cfi_offset d14, -16
  .cfi_offset d15, -8
  mov x9, x0
  mov x0, x1
  blr x9
  ldp x19, x20, [sp, #16]
  .cfi_restore x19
  .cfi_restore x20
  ldp x21, x22, [sp, #32]
  .cfi_restore x21
  .cfi_restore x22
  ldp x23, x24, [sp, #48]
  .cfi_restore x23
  .cfi_restore x24
  ldp x25, x26, [sp, #64]
  .cfi_restore x25
  .cfi_restore x26
  ldp x27, x28, [sp, #80]
  .cfi_restore x27
  .cfi_restore x28
  ldp d8, d9, [sp, #96]
  .cfi_restore d8
  .cfi_restore d9
  ldp d10, d11, [sp, #112]
  .cfi_restore d10
  .cfi_restore d11
  ldp d12, d13, [sp, #128]
  .cfi_restore d12
  .cfi_restore d13
  ldp d14, d15, [sp, #144]
  .cfi_restore d14
  .cfi_restore d15
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
