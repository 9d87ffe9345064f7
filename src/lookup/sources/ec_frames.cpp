#include "lookup/sources/ec_frames.h"

#include "base/registers.h"
#include "formats/winarm64/exec.h"

namespace windlass::sources {
namespace {

constexpr unsigned kEcRegisters = 17;
constexpr RegisterNumber kLr = aarch64::kX30;
// rax, rdx, rcx, rbx, rsi, rdi, rbp, rsp, r8-r15, rip.
constexpr RegisterNumber kEcNumbers[kEcRegisters] = {8, 1, 0, 27, 25, 26, 29, 31, 2, 3, 4, 5, 19, 20, 21, 22, 32};

}  // namespace

RegisterNumber ec_register(RegisterNumber x64) { return x64 == x86_64::kMm0 ? kLr : kEcNumbers[x64]; }

Expected<HandlerCall> unwind_ec(const UnwindSource& arm64, const Callee& callee, Registers& caller,
                                SavedLocations& saved) {
  Registers frame(Architecture::kAArch64), found(Architecture::kAArch64);
  SavedLocations places;
  for (RegisterNumber x64 = 0; x64 < kEcRegisters; ++x64) {
    if (callee.registers.has(x64)) frame.set(kEcNumbers[x64], callee.registers.get(x64));
    places.set(frame, kEcNumbers[x64], saved.at(callee.registers, x64));
  }
  frame.set_pc(callee.registers.pc());
  // Behind a call mm0 is a value of the callee.
  if (!frame.pc().is_return_address() && callee.registers.has(x86_64::kMm0))
    frame.set(kLr, callee.registers.get(x86_64::kMm0));
  const Callee named{callee.memory, frame, callee.bias, winarm64::ExecContext{}.pac_mask};
  const auto unwound = arm64.unwind(named, found, places);
  if (!unwound && unwound.error().code == ErrorCode::kNotFound)
    return fail(ErrorCode::kNotFound, "ARM64EC code has not saved a register that x64 has no name for",
                unwound.error().where);
  if (!unwound) return unwound;
  caller = Registers(Architecture::kX86_64);
  for (RegisterNumber x64 = 0; x64 < kEcRegisters; ++x64) {
    if (found.has(kEcNumbers[x64])) caller.set(x64, found.get(kEcNumbers[x64]));
    saved.set(caller, x64, places.at(found, kEcNumbers[x64]));
  }
  caller.set_pc(found.pc());
  if (found.has(kLr)) caller.set(x86_64::kMm0, found.get(kLr));  // of an interrupted instruction
  return unwound;
}

}  // namespace windlass::sources
