// The CFA instructions that make rows, for the writers of bytes and of text.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "windlass/error.h"
#include "windlass/frame_row.h"
#include "windlass/registers.h"

namespace windlass::dwarf {

// An instruction, with its operands not yet encoded.
struct FrameInstruction {
  enum Kind : std::uint8_t {
    kDefCfa,           // CFA = reg + offset
    kDefCfaRegister,   // reg
    kDefCfaOffset,     // offset
    kCfaExpression,    // block
    kOffset,           // reg = [CFA + offset]
    kValueOffset,      // reg = CFA + offset
    kRegister,         // reg = source
    kUndefined,        // reg
    kSameValue,        // reg
    kRestore,          // reg as in the CIE
    kExpression,       // reg = [block]
    kValueExpression,  // reg = block
    kRememberState,
    kRestoreState,
    kNegateRaState,  // AArch64: signed or not
  };

  std::uint32_t at = 0;  // offset into the code from which on it holds
  Kind kind = kRestore;
  RegisterNumber reg = 0;
  RegisterNumber source = 0;
  std::int32_t offset = 0;
  std::vector<std::uint8_t> block = {};  // an expression
};

// What the CIE says already: the frame at a function's entry by the architecture's calling convention.
[[nodiscard]] FrameRow entry_row(Architecture architecture);
[[nodiscard]] RegisterNumber return_column(Architecture architecture);

// The fewest instructions that take one row after the other into force, from entry_row() on. A state that comes back,
// as behind an epilogue in the middle, is remembered. Linear, but for rows that never come back. Errors: kMalformed
// rows that do not ascend and adjoin, or none.
[[nodiscard]] Expected<std::vector<FrameInstruction>> program_of(std::span<const FrameRow> rows,
                                                                 Architecture architecture);

}  // namespace windlass::dwarf
