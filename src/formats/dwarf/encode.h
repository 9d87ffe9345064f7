// CFA instructions as bytes: DWARF 5 section 6.4.2 and table 7.29.
#pragma once

#include <cstdint>
#include <vector>

#include "formats/dwarf/frame_program.h"

namespace windlass::dwarf {

// What a CIE says that its functions' advances and offsets count in.
struct FrameFactors {
  std::uint32_t code = 1;
  std::int32_t data = -8;
};

using Block = std::vector<std::uint8_t>;

// LEB128: DWARF 5 section 7.6.
void put_uleb(Block& block, std::uint64_t value);
void put_sleb(Block& block, std::int64_t value);

// Goes forward by `distance` bytes of code, a multiple of its factor (kUnsupported otherwise, at `where`); nothing for
// 0.
[[nodiscard]] Expected<void> put_advance(Block& block, std::uint32_t distance, const FrameFactors& factors,
                                         std::uint32_t where);
// In the form that binutils and LLVM choose, too.
void put_instruction(Block& block, const FrameInstruction& instruction, const FrameFactors& factors);

}  // namespace windlass::dwarf
