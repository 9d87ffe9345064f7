// Going on somewhere else on the stack. x86-64 and AArch64; the only assembly there is here.
#pragma once

#include <cstdint>
#include <optional>

#include "windlass/registers.h"

namespace windlass::managed {

// The place where a thread is to go on, and the changes at that moment. A sampler sees the old stack before that
// moment, and the new stack after it.
struct Landing {
  std::uint64_t slots[Registers::kSlots] = {};  // registers that calls preserve, sp, pc; rax and rdi, x0 and x1
  struct Store {
    std::uint64_t* at;
    std::uint64_t value;
  } stores[3];
};

}  // namespace windlass::managed

// Does the stores, loads the registers and jumps.
extern "C" [[noreturn]] void windlass_install(const windlass::managed::Landing* landing);

// Calls function(base, object) and returns its result. Before the call, `slots` gets all that windlass_install() needs
// to come back from this call as if the function had returned. The result is then the value in slot 0.
extern "C" std::uint64_t windlass_call_funclet(std::uint64_t function, std::uint64_t base, std::uint64_t object,
                                               std::uint64_t* slots);

// What a hijacked method returns to: nothing that can be called.
extern "C" const char windlass_hijacked_return;

namespace windlass::managed {

// Is the pc where hijacked methods of this process return to, before anything has been done there? On AArch64 the
// return address stands in a register then, and is no longer in its slot.
[[nodiscard]] inline bool is_hijacked_return(const Registers& registers) {
  return registers.pc().value() == reinterpret_cast<std::uint64_t>(&windlass_hijacked_return);
}
// Nothing here keeps a shadow stack (CET) in step: where the calling thread has one, says so and ends the process.
void refuse_shadow_stack(const char* what);
// Of a thread of this process that is in windlass_install() at these registers: where it goes.
[[nodiscard]] std::optional<Registers> landing_of(const Registers& registers);

}  // namespace windlass::managed
