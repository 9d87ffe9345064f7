// Which place of its source an instruction or a bytecode comes from, and which bytecode an instruction of baseline
// code.
//
// v8/v8, src/codegen/source-position-table.cc; src/baseline/bytecode-offset-iterator.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace windlass::runtimes::v8 {

struct SourcePosition {
  std::int64_t code = 0;       // offset; -1: the entry of a function
  std::int32_t position = 0;   // characters from the script's begin; -1: not known
  std::int32_t inlining = -1;  // into the inlining positions; -1: it is not inlined
};

// How an entry stores the distance of its code from the code of the entry before. kSign: with a sign that says whether
// a statement begins there. kSignFromZero, V8 7: likewise, but the first one's is its code. kTwoBits, V8 14:
// above two bits that say the kind of the place; kThreeBits, since V8 15: above three. V8 13.6 has the sign, 14.6 two
// bits, 15.0 three.
enum class PositionForm : std::uint8_t { kSign, kTwoBits, kSignFromZero, kThreeBits };

// Ascending by code. Nothing: it is no such table, or not of this form.
[[nodiscard]] std::optional<std::vector<SourcePosition>> read_positions(std::span<const std::byte> table,
                                                                        PositionForm form);
// The last one up to an offset; null: there is none.
[[nodiscard]] const SourcePosition* position_at(const std::vector<SourcePosition>& table, std::int64_t code);

// Of position in a SourcePosition::raw() (source-position.h).
[[nodiscard]] SourcePosition unpacked(std::int64_t code, std::uint64_t raw);

// The offset of the bytecode that an instruction of baseline code is of. `pc`: offset behind the instruction, or of a
// return address; `sizes`: ImageFacts::bytecode_sizes(). Nothing: the tables do not go together, or it is the entry.
[[nodiscard]] std::optional<std::uint32_t> bytecode_at(std::span<const std::byte> table, std::uint64_t pc,
                                                       std::span<const std::byte> bytecodes,
                                                       std::span<const std::uint8_t> sizes);

}  // namespace windlass::runtimes::v8
