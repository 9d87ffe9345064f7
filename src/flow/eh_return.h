// GCC's __builtin_eh_return: how libgcc's _Unwind_RaiseException and similar functions go to a landing pad.
//
// Such a function saves every register that a landing pad may need, also rax and rdx. On i386 these are eax and edx,
// and so on; on AArch64, below, x0 to x3. uw_install_context_1 writes the landing pad's registers over the saved
// registers, with the return address. The code behind that call loads them, moves rsp to rcx, and jumps. From the call
// on, unwind information describes a frame that is no longer there.
//
// GCC Internals, "Exception handling": EH_RETURN_STACKADJ_RTX is rcx.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "windlass/bytes.h"
#include "windlass/frame_row.h"
#include "windlass/registers.h"

namespace windlass::flow {

// Do the rules of a row save rax and rdx (i386: eax and edx; AArch64: x0 and x1), as no other function does?
[[nodiscard]] bool saves_landing_registers(const FrameRow& row, Architecture architecture);

// Does the code at `address` go straight to eh_return's change of rsp, past one call (_Unwind_DebugHook) at most?
// `code` is its beginning. No allocation, thread-safe.
[[nodiscard]] bool leads_to_eh_return(ByteView code, std::uint64_t address,
                                      Architecture architecture = Architecture::kX86_64);

// Has the function just moved rsp to the landing pad's frame? `before`: the kEhReturnMove bytes of code that end there.
[[nodiscard]] bool behind_eh_return(ByteView before, Architecture architecture = Architecture::kX86_64);
inline constexpr std::size_t kEhReturnMove = 3;

// How much of the code behind an address leads_to_eh_return() needs.
inline constexpr std::size_t kEhReturnBytes = 256;

// The part of a function from the call of uw_install_context_1 on until it is left. Quadratic in the number of its
// instructions: for those that have a row of eh_return only.
struct EhReturnPart {
  std::uint64_t begin, end;
};
[[nodiscard]] std::optional<EhReturnPart> eh_return_part(ByteView function, std::uint64_t address);

// The same on AArch64 (GCC 13 and before), where the end is one for landings and plain returns: `add sp, sp, x4; ret`,
// behind the registers' being taken back. x4 (EH_RETURN_STACKADJ_RTX) is 0 for a plain return.
enum class WayOut : std::uint8_t {
  kPlain,    // or not there at all
  kLanding,  // x4 is still to be set for it, or a call away
  kAsX4HasIt,
};
// Where the code at `pc` of a function goes, straight and past one call at most. No allocation, thread-safe.
[[nodiscard]] WayOut way_out(ByteView function, std::uint64_t begin, std::uint64_t pc);

// The parts of such a function from the call of uw_install_context_1 to the way out, by rising addresses and disjoint.
// There may be several: the call and the code behind it may be placed far behind the way out, which plain returns
// share. Quadratic in the number of instructions.
[[nodiscard]] std::vector<EhReturnPart> landing_parts(ByteView function, std::uint64_t begin);

// The last two instructions of such a function.
[[nodiscard]] bool is_eh_return_end(ByteView code);
inline constexpr std::size_t kEhReturnEnd = 8;

}  // namespace windlass::flow
