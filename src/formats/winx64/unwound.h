// What an unwind of Windows x64 codes gives.
#pragma once

#include <cstdint>

#include "windlass/registers.h"

namespace windlass::winx64 {

enum class Position : std::uint8_t { kLeaf, kPrologue, kBody, kEpilogue };

// Where each preserved register was saved; 0: it is still in the register.
struct SavedAddresses {
  std::uint64_t integer[16] = {};  // by instruction number
  std::uint64_t xmm[16] = {};      // xmm6-xmm15
  std::uint64_t return_address = 0;
};

struct Unwound {
  // Just after the call returned: rip, rsp and the preserved registers (and what else was popped).
  Registers caller{Architecture::kX86_64};
  // The frame that handlers get: rsp in the body, or the frame register minus its offset.
  std::uint64_t establisher = 0;
  Position position = Position::kBody;
  bool machine_frame = false;  // rip was interrupted, it is no return address
  // Only where control was in the body: neither prologue nor epilogue has handlers. RVAs; 0: none.
  std::uint32_t handler = 0;
  std::uint32_t handler_data = 0;
  std::uint8_t handler_flags = 0;  // kEhandler, kUhandler: in which pass it is called
};

// The preserved registers: their numbers in instructions, and their slots among `Registers`.
inline constexpr std::uint8_t kPreservedNumbers[] = {3, 5, 6, 7, 12, 13, 14, 15};  // rbx rbp rsi rdi r12-r15
inline constexpr std::uint8_t kPreservedSlots[] = {3, 6, 4, 5, 12, 13, 14, 15};
inline constexpr unsigned kPreservedCount = sizeof kPreservedSlots;
inline constexpr std::uint32_t kPreservedMask = 0xf0e8;   // by instruction number
inline constexpr std::uint64_t kPreservedKnown = 0xf078;  // by slot

// By itself: whole-vector copies of what was written by single words just before would wait for these to reach the
// cache.
[[nodiscard]] inline std::uint64_t as_word(std::uint64_t value) {
  asm("" : "+r"(value));
  return value;
}

}  // namespace windlass::winx64
