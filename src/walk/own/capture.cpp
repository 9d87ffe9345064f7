// Where the two architectures differ in taking the own registers: the only assembly there is.
#include <ucontext.h>

#include "base/registers.h"
#include "walk/own/capture.h"
#include "windlass/backtrace.h"

// extern "C" void windlass_capture(std::uint64_t* slots): slots as Registers numbers them.
#if defined(__x86_64__)
asm(R"(
  .text
  .p2align 4
  .globl windlass_capture
  .type windlass_capture, @function
windlass_capture:
  .cfi_startproc
  movq %rbx, 8*3(%rdi)
  movq %rbp, 8*6(%rdi)
  leaq 8(%rsp), %rax
  movq %rax, 8*7(%rdi)
  movq %r12, 8*12(%rdi)
  movq %r13, 8*13(%rdi)
  movq %r14, 8*14(%rdi)
  movq %r15, 8*15(%rdi)
  movq (%rsp), %rax
  movq %rax, 8*16(%rdi)
  ret
  .cfi_endproc
  .size windlass_capture, .-windlass_capture
)");
#else
asm(R"(
  .text
  .p2align 4
  .globl windlass_capture
  .type windlass_capture, %function
windlass_capture:
  .cfi_startproc
  hint #34  // bti c
  stp x19, x20, [x0, #8*19]
  stp x21, x22, [x0, #8*21]
  stp x23, x24, [x0, #8*23]
  stp x25, x26, [x0, #8*25]
  stp x27, x28, [x0, #8*27]
  stp x29, x30, [x0, #8*29]
  mov x9, sp
  stp x9, x30, [x0, #8*31]
  add x9, x0, #8*36
  stp d8, d9, [x9]
  stp d10, d11, [x9, #16]
  stp d12, d13, [x9, #32]
  stp d14, d15, [x9, #48]
  ret
  .cfi_endproc
  .size windlass_capture, .-windlass_capture
)");
#endif

namespace windlass {

std::uint64_t walk::preserved_slots() {
  constexpr std::uint64_t kSlots = [] {
    std::uint64_t slots = 0;
    for (unsigned slot = 0; slot < Registers::kSlots; ++slot)
      if (is_callee_saved(kOwnArchitecture, Registers::number_of(kOwnArchitecture, slot)))
        slots |= std::uint64_t{1} << slot;
    return slots;
  }();
  return kSlots;
}

Registers registers_of(const void* ucontext) {
  const mcontext_t& machine = static_cast<const ucontext_t*>(ucontext)->uc_mcontext;
  Registers registers(kOwnArchitecture);
#if defined(__x86_64__)
  // psABI figure 3.36 numbers them rax, rdx, rcx, rbx, rsi, rdi, rbp, rsp, r8-r15.
  constexpr int kByNumber[16] = {REG_RAX, REG_RDX, REG_RCX, REG_RBX, REG_RSI, REG_RDI, REG_RBP, REG_RSP,
                                 REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
  for (RegisterNumber reg = 0; reg < 16; ++reg)
    registers.set(reg, static_cast<std::uint64_t>(machine.gregs[kByNumber[reg]]));
  registers.set_pc(CodeAddress::instruction(static_cast<std::uint64_t>(machine.gregs[REG_RIP])));
#else
  for (RegisterNumber reg = 0; reg < 31; ++reg) registers.set(reg, machine.regs[reg]);
  registers.set_sp(machine.sp);
  registers.set_pc(CodeAddress::instruction(machine.pc));
  // The vector registers stand in the records behind: magic, size, payload; the end is two zeros.
  constexpr std::uint32_t kFpsimdMagic = 0x46508001;
  const auto* record = reinterpret_cast<const std::uint8_t*>(machine.__reserved);
  const auto* const end = record + sizeof machine.__reserved;
  for (std::uint32_t head[2]; end - record >= 16; record += head[1]) {
    std::memcpy(head, record, sizeof head);
    if (head[0] == 0 || head[1] < 16 || head[1] > static_cast<std::size_t>(end - record)) break;
    if (head[0] != kFpsimdMagic || head[1] < 16 + 32 * 16) continue;
    for (RegisterNumber d = 8; d < 16; ++d) {
      std::uint64_t low;
      std::memcpy(&low, record + 16 + d * 16, sizeof low);
      registers.set(static_cast<RegisterNumber>(64 + d), low);
    }
    break;
  }
#endif
  return registers;
}

}  // namespace windlass
