// Unwinding by what is kept of a pc, compared with unwinding by its codes.
#pragma once

#include <cstring>

#include "formats/winx64/exec.h"

namespace windlass::test {

inline bool same_unwind(const winx64::Unwound& a, const winx64::Unwound& b) {
  for (unsigned slot = 0; slot < Registers::kSlots; ++slot)
    if (a.caller.get_slot(slot) != b.caller.get_slot(slot)) return false;
  return a.caller.known_slots() == b.caller.known_slots() && a.caller.pc() == b.caller.pc() &&
         a.establisher == b.establisher && a.position == b.position && a.machine_frame == b.machine_frame &&
         a.handler == b.handler && a.handler_data == b.handler_data && a.handler_flags == b.handler_flags;
}

// Is the answer the same however often the pc has been met? The fifth time at the latest it is found out what unwinding
// from it comes to, and then that is taken.
template <typename M>
bool same_when_known(const winx64::Functions& functions, std::uint64_t base, const M& memory, const Registers& frame) {
  winx64::Unwound expected;
  winx64::SavedAddresses expected_saved;
  const auto by_codes = winx64::unwind_by_codes(functions, base, memory, frame, expected, &expected_saved);
  for (int time = 1; time <= 6; ++time) {
    winx64::Unwound unwound;
    winx64::SavedAddresses saved;
    const auto done = winx64::virtual_unwind(functions, base, memory, frame, unwound, &saved);
    if (done.has_value() != by_codes.has_value()) return false;
    if (!done) {
      if (done.error().text() != by_codes.error().text()) return false;
    } else if (!same_unwind(unwound, expected) || std::memcmp(&saved, &expected_saved, sizeof saved) != 0) {
      return false;
    }
  }
  return true;
}

}  // namespace windlass::test
