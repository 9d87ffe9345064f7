// Rows that were made before. Of the millions of rows in an image, nearly all say of registers what one of a few
// hundred rows says. So who makes rows keeps these, and who prints them keeps their text.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "windlass/frame_row.h"
#include "windlass/function_ref.h"

namespace windlass {

// A CFA that is kept, or passed on, as one word. A rule is put together from parts, and the processor waits where a
// word is read that was written in parts just before.
enum class CfaWord : std::uint64_t {};
[[nodiscard]] constexpr CfaWord word_of(const CfaRule& cfa) { return CfaWord{std::bit_cast<std::uint64_t>(cfa)}; }
[[nodiscard]] constexpr CfaRule rule_of(CfaWord cfa) { return std::bit_cast<CfaRule>(cfa); }
// The rule's offset grows by `more`.
[[nodiscard]] constexpr CfaWord grown(CfaWord cfa, std::int32_t more) {
  const auto word = static_cast<std::uint64_t>(cfa);
  return CfaWord{word >> 32 << 32 | (static_cast<std::uint32_t>(word) + static_cast<std::uint32_t>(more))};
}
static_assert(rule_of(grown(word_of(CfaRule::at(7, 16)), -24)) == CfaRule::at(7, -8));

// A row of a listing: that of a number, with addresses and a CFA of its own.
struct NumberedRow {
  std::uint64_t begin;
  std::uint64_t end;
  CfaWord cfa;
  std::uint32_t number;
};
// Rows of one function, ascending. A call for each row would take as long as the row.
using NumberedRowSink = FunctionRef<void(std::span<const NumberedRow>)>;

// Rows by number. The number stands for all that a row says but its addresses and its CFA. Not thread-safe.
class KnownRows {
 public:
  // 1 MiB. A file may have been made to have more.
  static constexpr std::uint32_t kMost = 2048;

  // The number of a row without expressions. Constant, but for the first rows that say something new: these may
  // allocate. 0: there are kMost others.
  [[nodiscard]] std::uint32_t number_of(const FrameRow& row);
  // The row of that number, with these addresses and this CFA. Valid until the next call for the same number.
  [[nodiscard]] const FrameRow& row_of(const NumberedRow& numbered) {
    FrameRow& row = rows_[numbered.number - first_];
    row.begin = numbered.begin;
    row.end = numbered.end;
    row.cfa = rule_of(numbered.cfa);
    return row;
  }
  // Calls sink(row) with it.
  template <typename Sink>
  void give(const NumberedRow& numbered, const Sink& sink) {
    given_ = numbered.number;
    sink(row_of(numbered));
    given_ = 0;
  }
  // While a sink is called: the number of the row it has got. 0: the row is none of these.
  [[nodiscard]] std::uint32_t given() const { return given_; }
  // Rows that wait are given to `sink`, at the latest when there are kMostTogether. The sink must outlive its use.
  void give_to(const NumberedRowSink& sink) { sink_ = &sink; }
  void add(const NumberedRow& row) {
    waiting_[waiting_count_++] = row;
    if (waiting_count_ == kMostTogether) give_waiting();
  }
  // To be called before anything else is given.
  void give_waiting() {
    if (const std::size_t count = std::exchange(waiting_count_, 0); count != 0) (*sink_)({waiting_, count});
  }
  [[nodiscard]] bool full() const { return rows_.size() >= kMost; }
  // Forgets all rows. Numbers do not come again, until there have been four thousand million.
  void clear();

 private:
  static constexpr std::size_t kSlots = std::size_t{4} * kMost;
  static constexpr std::size_t kMostTogether = 64;

  std::uint32_t first_ = 1;  // number of the first row here
  std::uint32_t given_ = 0;
  std::vector<FrameRow> rows_;        // never moves
  std::vector<std::uint16_t> slots_;  // by hash, then the next free one: index + 1
  const NumberedRowSink* sink_ = nullptr;
  std::size_t waiting_count_ = 0;
  NumberedRow waiting_[kMostTogether];
};

}  // namespace windlass
