// A Prologue as UNWIND_INFOs without their RVAs: what write() and the assembly texts have in common.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "formats/winx64/encode.h"
#include "formats/winx64/registers.h"
#include "rows/frame_state.h"
#include "windlass/prologue.h"

namespace windlass::winx64 {

// An epilogue as version 2 describes it. Offsets into the code.
struct EpilogueV2 {
  std::uint32_t begin = 0;  // of its first instruction
  std::uint32_t pops = 0;   // begin of the described code: behind the instruction that frees the frame
  std::uint32_t exit = 0;   // of its last instruction
  std::uint32_t end = 0;    // behind it
  // It has an entry of its own, from `pops` to `end`, whose codes are these registers' pushes.
  std::optional<std::vector<RegisterNumber>> own_pops = {};
  // That entry ends at `exit`, and what follows needs none, as a leaf: more than the instruction that leaves, or one
  // that unwinders do not know. Each of the pops has an entry of its own, with the pushes that are not undone yet.
  bool runs_on = false;
  [[nodiscard]] std::uint32_t size() const { return exit - pops + 1; }
};

// An entry of the function table to be.
struct Piece {
  std::uint32_t begin = 0;  // offsets into the code
  std::uint32_t end = 0;
  std::optional<std::size_t> parent = {};  // the piece it is chained to, one before it
  InfoContent content = {};                // handler and chained entry are not set, their flags are
  std::vector<EpilogueV2> epilogues = {};
};

// Ascending and disjoint. `code`: as write()'s. Errors as write()'s.
[[nodiscard]] Expected<std::vector<Piece>> pieces_of(const Prologue& prologue, std::uint32_t version,
                                                     bool saves_can_wait, std::span<const std::byte> code);

// The same of version 3, which pieces_of() calls.
[[nodiscard]] Expected<std::vector<Piece>> pieces_of_v3(const Prologue& prologue);

// An epilogue is judged by this: the frame that it takes back, and the codes of that frame.
struct BodyFrame {
  FrameState state;
  bool by_pointer = false;                     // SET_FPREG says where rsp was, whatever it is now
  std::vector<RegisterNumber> pops = {};       // of version 2: what undoes the PUSH_NONVOLs, in order
  std::optional<std::uint32_t> part_end = {};  // in a part, which an epilogue may leave at its end
  std::span<const std::byte> code = {};        // of the whole function; empty: not known
};

// Is the epilogue one that unwinders of the version get right at each of its instructions? Nothing: yes, and nothing
// need be written of it. Errors as write()'s.
[[nodiscard]] Expected<std::optional<EpilogueV2>> judge_epilogue(const prologue::Epilogue& epilogue,
                                                                 const BodyFrame& frame, std::uint32_t version);

// Bytes of a pop.
[[nodiscard]] constexpr std::uint32_t pop_size(RegisterNumber reg) { return instruction_number(reg) >= 8 ? 2 : 1; }

// Does it what one x86-64 push does?
[[nodiscard]] inline bool is_push(const prologue::Save& save) {
  return save.allocate == 8 && save.offset == 0 && save.second == prologue::kNoRegister && !is_xmm(save.reg);
}

}  // namespace windlass::winx64
