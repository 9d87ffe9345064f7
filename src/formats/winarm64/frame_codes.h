// A Prologue as unwind codes, and back: the pieces of a function that have one entry each. What write() and the
// assembly texts have in common.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "formats/winarm64/encode.h"

namespace windlass::winarm64 {

// A piece of a function that has one entry. Offsets count from the function's begin.
struct Fragment {
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
  std::vector<prologue::Action> entered = {};      // done before its begin, in order
  std::vector<prologue::Op> ops = {};              // of its own prologue
  std::uint32_t prologue_end = 0;                  // nops up to here, where that is behind the last op
  std::vector<prologue::Epilogue> epilogues = {};  // the last one may end behind the fragment

  [[nodiscard]] bool leaf() const { return entered.empty() && ops.empty(); }
};

// A function in as few pieces as its parts ask for, whatever their length.
[[nodiscard]] std::vector<Fragment> fragments_of(const Prologue& prologue);
// The number of earlier actions (entered, then ops) that an epilogue of the fragment leaves in place. Those are the
// actions of the function around a part, if the epilogue leaves the part; otherwise 0.
[[nodiscard]] std::size_t left_in_place(const Fragment& fragment, const prologue::Epilogue& epilogue);
// What its one entry says, in the smallest codes. Errors as write.
[[nodiscard]] Expected<RecordContents> contents_of(const Fragment& fragment, const prologue::Handler* handler);
// The entry of one fragment that begins at `rva`, and its record's bytes; none where it is packed. Where
// there are some, `data` is 0 until their RVA is known. Not cut further: kLimit where it would have to be.
struct Piece {
  RuntimeFunction entry;
  std::vector<std::byte> bytes = {};
};
[[nodiscard]] Expected<Piece> piece_of(const Fragment& fragment, const prologue::Handler* handler, std::uint32_t rva);

// The reverse: what a record says the function does. Its epilogues are there as far as they undo this fragment's ops
// (up to `end_c`). kUnsupported: system frames, SVE, q registers. Else the errors of decode.
[[nodiscard]] Expected<Fragment> fragment_of(const UnwindRecord& record);
// The same for a function in one piece. kUnsupported: it is a later fragment.
[[nodiscard]] Expected<Prologue> prologue_of(const UnwindRecord& record);

}  // namespace windlass::winarm64
