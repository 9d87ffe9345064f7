// The own registers on Windows x64: the only assembly there is.
#include <windows.h>

#include "formats/winx64/registers.h"
#include "walk/own/capture.h"
#include "windlass/backtrace.h"

// extern "C" void windlass_capture(std::uint64_t* slots): slots as Registers numbers them. A leaf: it moves neither rsp
// nor a preserved register, so it needs no unwind information.
asm(R"(
  .text
  .p2align 4
  .globl windlass_capture
  .def windlass_capture; .scl 2; .type 32; .endef
windlass_capture:
  movq %rbx, 8*3(%rcx)
  movq %rsi, 8*4(%rcx)
  movq %rdi, 8*5(%rcx)
  movq %rbp, 8*6(%rcx)
  leaq 8(%rsp), %rax
  movq %rax, 8*7(%rcx)
  movq %r12, 8*12(%rcx)
  movq %r13, 8*13(%rcx)
  movq %r14, 8*14(%rcx)
  movq %r15, 8*15(%rcx)
  movq (%rsp), %rax
  movq %rax, 8*16(%rcx)
  ret
)");

namespace windlass {

std::uint64_t walk::preserved_slots() {
  constexpr std::uint64_t kSlots = [] {
    std::uint64_t slots = 0;
    for (unsigned slot = 0; slot < Registers::kSlots; ++slot)
      if (winx64::is_preserved(winx64::instruction_number(Registers::number_of(Architecture::kX86_64, slot))))
        slots |= std::uint64_t{1} << slot;
    return slots;
  }();
  return kSlots;
}

Registers registers_of(const void* context) {
  const auto& machine = *static_cast<const CONTEXT*>(context);
  Registers registers(kOwnArchitecture);
  const DWORD64* const integer = &machine.Rax;  // in the order of instruction numbers
  for (unsigned number = 0; number < 16; ++number) registers.set(winx64::dwarf_number(number), integer[number]);
  registers.set_pc(CodeAddress::instruction(machine.Rip));
  return registers;
}

}  // namespace windlass
