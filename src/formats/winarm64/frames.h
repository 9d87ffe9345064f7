// Frames that the system builds: where their registers stand, relative to sp. Layouts: .NET's unwinder
// (ARM64_KTRAP_FRAME), winnt.h (CONTEXT of ARM64, ARM64EC_NT_CONTEXT).
#pragma once

#include <cstdint>
#include <span>

#include "formats/winarm64/read.h"
#include "windlass/frame_row.h"

namespace windlass::winarm64 {

[[nodiscard]] constexpr RegisterNumber dwarf_number(RegisterFile file, unsigned number) {
  return static_cast<RegisterNumber>(file == RegisterFile::kX ? number : 64 + number);
}

struct FrameSlot {
  RegisterNumber reg;  // DWARF number
  std::uint16_t offset;
};

struct SystemFrame {
  std::span<const FrameSlot> slots;
  int flags_offset;   // of ContextFlags; -1: none, and the pc is an interrupted instruction
  bool replaces_all;  // a register without a slot is not known any more
};

inline constexpr std::uint32_t kContextUnwoundToCall = 0x2000'0000;
inline constexpr std::uint32_t kTrapVfpState = 0x10;  // a pointer to KARM64_VFP_STATE, or null
inline constexpr std::uint32_t kVfpControl = 0x08;    // Fpcr and Fpsr there; all ones: not saved
inline constexpr std::uint32_t kVfpRegisters = 0x10;

// Of kTrapFrame, kMachineFrame, kContext or kEcContext.
[[nodiscard]] const SystemFrame& system_frame_layout(Operation operation);

}  // namespace windlass::winarm64
