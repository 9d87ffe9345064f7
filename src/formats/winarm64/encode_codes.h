// Unwind codes back into bytes. Source: the table of "Unwind codes" in the ARM64 page, as read.h has it.
#pragma once

#include <cstdint>
#include <vector>

#include "formats/winarm64/read.h"

namespace windlass::winarm64 {

// Bytes of codes, as they are stored.
using CodeBytes = std::vector<std::uint8_t>;

// Appends the code as it stands, in the form that its operation names. Errors, at `where`:
// - kOutOfRange: a value or register that the form cannot hold.
// - kMalformed: a value that is no multiple of its unit, or registers that are no pair.
// - kUnsupported: an undefined code.
[[nodiscard]] Expected<void> append_code(CodeBytes& to, const UnwindCode& code, std::uint64_t where);

// The smallest code for the instruction of `code`, whose present form does not matter. Never save_next, which depends
// on the code behind it. Errors as append_code, and kOutOfRange for more than one instruction can do.
[[nodiscard]] Expected<UnwindCode> smallest(const UnwindCode& code, std::uint64_t where);

// In codes as stored (the last instruction of a prologue first): pairs of x registers right above the one behind them
// become save_next, which is a byte shorter. Not d registers: Windows counts them up wrongly, and LLVM avoids it too.
void use_save_next(std::vector<UnwindCode>& codes);
// The opposite: save_next becomes the pair it stands for. kMalformed, at the code's position: none behind it.
[[nodiscard]] Expected<void> resolve_save_next(std::vector<UnwindCode>& codes);

}  // namespace windlass::winarm64
