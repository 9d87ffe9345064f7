// The layers below windlass/winarm64.h: unwind codes and epilogues into .xdata records and packed entries, the pieces
// of a function that have one entry each into unwind codes, and both back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "winarm64/read.h"
#include "windlass/prologue.h"
#include "windlass/winarm64.h"

namespace windlass::winarm64 {

// ---- records ------------------------------------------------------------------------------------------------------

// Where an epilogue starts, and the codes of its instructions in their order, without the last one (the return or
// jump) and without `end`.
struct EpilogueCodes {
  std::uint32_t start = 0;  // bytes from the function's start
  std::vector<UnwindCode> codes = {};

  // Of its first instruction that is none of its own any more.
  [[nodiscard]] std::uint64_t end() const;
};

// What a record says, without how it lays it out.
struct RecordContents {
  std::uint32_t length = 0;               // bytes of code
  std::vector<UnwindCode> prologue = {};  // as stored: the last instruction first, without `end`
  std::vector<EpilogueCodes> epilogues = {};
  std::optional<FrameHandler> handler = {};
};

// The smallest .xdata record that says it: epilogues share the codes of the prologue and each other's, the E bit stands
// for a single epilogue at the end, the extension word is there only if needed. The codes are taken as they are.
// Its size is a multiple of 4 if that of the handler's data is.
// Errors: kMalformed a length or start that is no multiple of 4, epilogues out of order; kOutOfRange one outside of the
// function; kLimit more than 1 MiB - 4 of code, 65,535 epilogues or 1,020 bytes of codes; and append_code's. `where` is
// an offset into the code. Quadratic in the number of different epilogues at worst.
[[nodiscard]] Expected<std::vector<std::byte>> encode(const RecordContents& contents);

// What a record says; encode gives it back. A handler's data is empty, as its size is not in the record.
// Errors: those of code_at, kOutOfRange an epilogue whose codes are outside of the record's.
[[nodiscard]] Expected<RecordContents> decode(const UnwindRecord& record);

// The word of a packed entry. Errors: kOutOfRange a field that does not fit its bits, kMalformed one that is no
// multiple of its unit or fields that contradict each other. `where` is 0.
[[nodiscard]] Expected<std::uint32_t> encode_packed(const PackedFields& fields, bool fragment);
// The packed entry that stands for just these instructions, if there is one.
[[nodiscard]] std::optional<std::uint32_t> packed_form(const RecordContents& contents);

// ---- fragments ----------------------------------------------------------------------------------------------------

// A piece of a function that has one entry. Offsets count from the function's begin.
struct Fragment {
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
  std::vector<FrameAction> entered = {};  // done before its begin, in order
  std::vector<FrameOp> ops = {};          // of its own prologue
  std::uint32_t prologue_end = 0;         // nops up to here, where that is behind the last op
  std::vector<Epilogue> epilogues = {};   // the last one may end behind the fragment

  [[nodiscard]] bool leaf() const { return entered.empty() && ops.empty(); }
};

// A function in as few pieces as its parts ask for, whatever their length.
[[nodiscard]] std::vector<Fragment> fragments_of(const Prologue& prologue);
// How many of the actions done before it (entered, then ops) an epilogue of the fragment leaves in place: those of the
// function around a part that it leaves, or none.
[[nodiscard]] std::size_t left_in_place(const Fragment& fragment, const Epilogue& epilogue);
// What its one entry says, in the smallest codes. Errors as write.
[[nodiscard]] Expected<RecordContents> contents_of(const Fragment& fragment, const FrameHandler* handler);
// The entry of one fragment that begins at `rva`, and its record's bytes; none where it is packed. Where
// there are some, `data` is 0 until their RVA is known. Not cut further: kLimit where it would have to be.
struct Piece {
  RuntimeFunction entry;
  std::vector<std::byte> bytes = {};
};
[[nodiscard]] Expected<Piece> piece_of(const Fragment& fragment, const FrameHandler* handler, std::uint32_t rva);

// The reverse: what a record says the function does. Its epilogues are there as far as they undo this fragment's ops
// (up to `end_c`). kUnsupported: system frames, SVE, q registers. Else the errors of decode.
[[nodiscard]] Expected<Fragment> fragment_of(const UnwindRecord& record);
// The same for a function in one piece. kUnsupported: it is a later fragment.
[[nodiscard]] Expected<Prologue> prologue_of(const UnwindRecord& record);

}  // namespace windlass::winarm64
