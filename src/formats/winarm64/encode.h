// Writes .xdata records and packed entries, and reads them back whole: the counterpart of read.h. What is below writes
// unwind codes as they are given; frame_codes.h chooses them for a Prologue.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "formats/winarm64/read.h"
#include "windlass/format/winarm64.h"
#include "windlass/prologue.h"

namespace windlass::winarm64 {

inline constexpr std::uint32_t kMaxPackedLength = 0x7ff * 4;  // of a function, in bytes

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
  std::optional<prologue::Handler> handler = {};
};

// The smallest .xdata record for these contents. Epilogues share the codes of the prologue and of each other. The E bit
// stands for a single epilogue at the end. The extension word is there only if needed. Codes are used as given. The
// record's size is a multiple of 4 if the size of the handler's data is. Quadratic in the number of different epilogues
// at worst.
//
// Errors, with an offset into the code as `where`, and those of append_code():
// - kMalformed: a length or start that is no multiple of 4, or epilogues out of order.
// - kOutOfRange: an epilogue outside of the function.
// - kLimit: more than 1 MiB - 4 of code, 65,535 epilogues or 1,020 bytes of codes.
[[nodiscard]] Expected<std::vector<std::byte>> encode(const RecordContents& contents);

// What a record says; encode gives it back. A handler's data is empty, as its size is not in the record.
// Errors: those of code_at, kOutOfRange an epilogue whose codes are outside of the record's.
[[nodiscard]] Expected<RecordContents> decode(const UnwindRecord& record);

// The word of a packed entry. Errors: kOutOfRange a field that does not fit its bits, kMalformed one that is no
// multiple of its unit or fields that contradict each other. `where` is 0.
[[nodiscard]] Expected<std::uint32_t> encode_packed(const PackedFields& fields, bool fragment);
// The packed entry that stands for just these instructions, if there is one.
[[nodiscard]] std::optional<std::uint32_t> packed_form(const RecordContents& contents);

}  // namespace windlass::winarm64
