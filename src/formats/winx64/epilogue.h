// Epilogues of version 1 functions. Unwind information does not describe these, so they are known by their
// instructions. Source: "x64 exception handling", "Unwind procedure" and "x64 prolog and epilog". Windows really
// accepts more: see .NET's copy of its unwinder (coreclr/unwinder/amd64), which the comments name.
#pragma once

#include <cstdint>

#include "windlass/bytes.h"

namespace windlass::winx64 {

// How many bytes of code the matcher may look at: lea (8), 16 pops of 2 bytes, vzeroupper,
// a prefix, a jump of 6.
inline constexpr std::uint32_t kEpilogueWindow = 56;

// What is left of an epilogue from some instruction on.
struct EpilogueMatch {
  enum class Release : std::uint8_t { kNone, kAdd, kLea } release = Release::kNone;
  enum class Exit : std::uint8_t {
    kReturn,
    kJump,          // to `target`: an epilogue only if that is another function
    kIndirectJump,  // through an import slot, or marked by a REX.W that is of no other use: always leaves the function
  } exit = Exit::kReturn;
  std::int32_t displacement = 0;  // of add or lea
  std::uint8_t base = 0;          // lea: the frame register
  std::uint8_t pop_count = 0;
  bool nop_first = false;         // it begins with a nop
  std::uint16_t return_pops = 0;  // ret n
  std::int64_t target = 0;        // of a jump, from the first byte of the match
  std::uint8_t pops[16];          // instruction numbers, first popped first
  // Its instructions, the exit last: where each begins, and how many of the pops come before it.
  struct Step {
    std::uint8_t at;
    std::uint8_t pops;
  };
  std::uint8_t step_count = 0;
  Step steps[40];  // release, 16 pops, as many vzeroupper as fit the window, nop, exit
};

// Can code whose first two bytes these are be the rest of an epilogue? Most cannot, and this is quick to say so.
[[nodiscard]] constexpr bool may_begin_epilogue(std::uint8_t first, std::uint8_t second) {
  if ((first & 0xf0) == 0x40) {  // REX: a pop, `add rsp`, `lea rsp` or an indirect jump
    if ((second & 0xf8) == 0x58) return true;
    if (first == 0x48 && (second == 0x83 || second == 0x81)) return true;
    return (first & 8) != 0 && (second == 0xff || (first <= 0x49 && second == 0x8d));
  }
  if ((first & 0xf8) == 0x58 || (first & 0xfe) == 0xc2 || (first & 0xfd) == 0xe9 || first == 0xf2) return true;
  return (first == 0xc5 && second == 0xf8) || ((first == 0x90 || first == 0xf3) && second == 0xc3) ||
         (first == 0xff && second == 0x25);
}

// Does `code` begin with the rest of an epilogue? `frame_register` is that of the unwind information; 0: none.
// `inside`: the number of these bytes that belong to the function. Bytes past the view's end count as 0, which no
// epilogue contains.
[[nodiscard]] bool match_epilogue(const ByteView& code, unsigned frame_register, std::uint32_t inside,
                                  EpilogueMatch& match);

// Do these 7 bytes of code end with a pop, an addition to rsp, or `lea rsp` from a register?
[[nodiscard]] bool ends_with_release(ByteView code);

}  // namespace windlass::winx64
