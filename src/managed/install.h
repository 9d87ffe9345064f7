// Going on somewhere else on the stack. x86-64 and AArch64; the only assembly there is here.
#pragma once

#include <cstdint>

#include "windlass/registers.h"

// Loads the registers that calls preserve, sp, pc, and the first two that arguments are passed and results returned in
// (rax and rdi; x0 and x1), from their slots.
extern "C" [[noreturn]] void windlass_install(const std::uint64_t* slots);

// function(base, object), and its result. What windlass_install() needs to come back from this call, as if the function
// had returned, is in `slots` before it is called; the result is what is in slot 0 then.
extern "C" std::uint64_t windlass_call_funclet(std::uint64_t function, std::uint64_t base, std::uint64_t object,
                                               std::uint64_t* slots);

namespace windlass::managed {

[[noreturn]] inline void install(const Registers& registers) {
  std::uint64_t slots[Registers::kSlots];
  for (unsigned slot = 0; slot < Registers::kSlots; ++slot) slots[slot] = registers.get_slot(slot);
  windlass_install(slots);
}

}  // namespace windlass::managed
