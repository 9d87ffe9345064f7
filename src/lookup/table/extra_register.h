// Which register, other than stack and frame pointer, a module's rows take their CFA from.
#pragma once

#include <cstdint>
#include <vector>

#include "base/registers.h"
#include "formats/dwarf/cfi.h"

namespace windlass::table {

inline constexpr unsigned kTrackable = 32;  // registers a CFA can be taken from: TraceState lets no other through

// [register] = how many rows take their CFA from it, where it is neither stack nor frame pointer.
using CfaRegisterUse = std::vector<std::uint64_t>;

// Bit n: register n is preserved by calls, and below kTrackable.
[[nodiscard]] std::uint32_t preserved_registers(Architecture architecture);  // System V, AAPCS64
inline constexpr std::uint32_t kPreservedOnWindowsX64 = 0xf038 | 1u << 6;    // rbx rsi rdi rbp r12-r15

// The register worth tracking through calls: one of `preserved`, and the one most rows need; WL_NO_XREG if there is
// none. A caller-saved one (r10 in GCC's DRAP prologues) matters only in the innermost frame, where it is known anyway.
[[nodiscard]] std::uint8_t choose_extra_register(const CfaRegisterUse& use, std::uint32_t preserved);

// The offsets of entries in which an instruction may stand that takes the CFA from a callee-saved register: few, and
// most of them do not. Evaluating only these says in advance which register to track; whoever evaluates everything
// then finds out whether that was right. It misses expressions, instructions in CIEs and padded LEB128.
// A tenth of the time of evaluating the section.
[[nodiscard]] std::vector<std::uint64_t> suspect_entries(const dwarf::CfiSection& section);

}  // namespace windlass::table
