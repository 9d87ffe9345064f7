// Registers by number, and where they come from.
#include "base/registers.h"
#include "capi/capture.h"
#include "capi/structs.h"
#include "windlass/backtrace.h"

using namespace windlass;
using namespace windlass::capi;

extern "C" {

windlass_status windlass_registers_init(windlass_registers* registers, uint32_t architecture) {
  if (!is_architecture(architecture)) return WINDLASS_INVALID;
  return give(to_c(Registers(static_cast<Architecture>(architecture))), registers) ? WINDLASS_OK : WINDLASS_INVALID;
}

windlass_status windlass_get(const windlass_registers* registers, uint32_t number, uint64_t* value) {
  windlass_registers given;
  Registers own;
  if (value == nullptr || !take(registers, given) || !from_c(given, own)) return WINDLASS_INVALID;
  if (!own.holds(number)) return WINDLASS_OUT_OF_RANGE;
  if (!own.has(number)) return WINDLASS_NOT_FOUND;
  *value = own.get(number);
  return WINDLASS_OK;
}

windlass_status windlass_set(windlass_registers* registers, uint32_t number, uint64_t value) {
  windlass_registers given;
  Registers own;
  if (!take(registers, given) || !from_c(given, own)) return WINDLASS_INVALID;
  if (!own.holds(number)) return WINDLASS_OUT_OF_RANGE;
  if (number == Registers::pc_number(own.architecture()))
    own.set_pc(CodeAddress::instruction(value));
  else
    own.set(number, value);
  (void)give(to_c(own), registers);
  return WINDLASS_OK;
}

uint32_t windlass_preserved(uint32_t architecture, uint16_t* numbers, uint32_t capacity) {
  if (!is_architecture(architecture)) return 0;
  std::uint32_t count = 0;
  const Registers all(static_cast<Architecture>(architecture));
  for (RegisterNumber number = 0; number < 128; ++number) {
    if (!all.holds(number) || !is_callee_saved(all.architecture(), number)) continue;
    if (numbers != nullptr && count < capacity) numbers[count] = number;
    ++count;
  }
  return count;
}

WINDLASS_HIDDEN windlass_status windlass_capi_captured(windlass_registers* to, const std::uint64_t* slots) {
  return give(to_c(registers_from_capture(slots)), to) ? WINDLASS_OK : WINDLASS_INVALID;
}
WINDLASS_CAPTURING_ENTRY(windlass_capture_registers, windlass_capi_captured, 1);

windlass_status windlass_from_ucontext(const void* ucontext, windlass_registers* registers) {
  if (ucontext == nullptr) return WINDLASS_INVALID;
  return give(to_c(registers_of(ucontext)), registers) ? WINDLASS_OK : WINDLASS_INVALID;
}

}  // extern "C"
