// Rows in, dense table out.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "base/address_range.h"
#include "lookup/table/raw_buffer.h"
#include "lookup/table/rule_set.h"
#include "lookup/table/unwind_table.h"
#include "windlass/error.h"
#include "windlass/function_ref.h"

namespace windlass::table {

// Collects the rows of a module, function by function, in any order of functions, and makes them an UnwindTable.
//
// - Rows of one function come in ascending order; a row holds until the next one or the function's end. Of two rows at
//   one address the later counts, as in the DWARF row table. Neighbours with equal rules become one row.
// - Where functions overlap, the one that begins later holds while it lasts, then the earlier one again; of functions
//   that begin at the same address the first given wins. The binary searches of libgcc and elfutils agree wherever they
//   find a row: they take the entry with the greatest begin at or below the pc, and give up where that one has ended.
// - Functions given after begin_fallback() hold only where no function given before it does.
// - A gap of less than 16 bytes between two functions is padding no call returns to: the row before it goes on. Where
//   alignment does not explain the gap, add_small_gaps() may put another rule. Larger gaps get the all-zero rule.
// - With `executable` ranges given, functions are clipped to them; what lies outside is counted in TableStats.
//
// There is no limit on rows, rules and functions; the covered address range is limited to WL_MAX_PAGES pages.
class TableBuilder {
 public:
  explicit TableBuilder(std::span<const AddressRange> executable = {});

  // Room for this many rows and functions, so that the buffers need not move. A hint: memory is used when written.
  void reserve(std::size_t rows, std::size_t functions);

  void begin_function(std::uint64_t begin, std::uint64_t end);
  void row(std::uint64_t begin, const TraceRule& rule) { row(begin, PackedRule::of(rule)); }
  void row(std::uint64_t begin, const PackedRule& rule);
  // The current function's rows are known only up to `end`.
  void cut_function(std::uint64_t end) { function_end_ = std::min(function_end_, end); }
  void end_function();

  // Many at once, in ascending order, none before its function (an interpreter's).
  struct PendingRow {
    std::uint64_t begin;
    std::uint64_t low, high;  // PackedRule
  };
  void rows(std::span<const PendingRow> rows);

  // Functions given from now on only fill what those given before leave uncovered. Once.
  void begin_fallback() { fallback_from_ = std::min(fallback_from_, rows_.size()); }

  // The register the rules' `x` part is about.
  void set_x_reg(std::uint8_t reg) { x_reg_ = reg; }
  [[nodiscard]] const TableStats& stats() const { return stats_; }

  // Between two functions, less than 16 bytes, and too long for the next function's alignment. The rule of the row
  // before it, or what is put there, holds in all of it.
  struct SmallGap {
    std::uint64_t begin, end;
    TraceRule rule;
  };
  // Calls `look` for each small gap, ascending. After the last function.
  void add_small_gaps(FunctionRef<void(SmallGap&)> look);

  // kLimit if the functions span more than WL_MAX_PAGES pages. The builder is used up.
  [[nodiscard]] Expected<UnwindTable> finish();

 private:
  static constexpr std::uint64_t kPaddingGap = 15;
  static constexpr std::size_t kMostFunctions = 0x7fffffff;  // so that each may have a small gap behind it

  static constexpr std::uint32_t kNoRule = 0xffffffff;  // no rule has this number

  struct Row {
    std::uint32_t offset;  // from the function's begin
    std::uint32_t rule;    // RuleSet number
  };
  struct Function {
    std::uint64_t begin;
    std::uint64_t end;
    std::uint64_t first_row;
    std::uint64_t end_row;
  };

  class Sweep;

  void add_row(std::uint32_t offset, std::uint32_t number);
  void unusual_row(std::uint64_t begin, std::uint32_t number);
  void sort_functions();
  [[nodiscard]] std::vector<std::uint32_t> number_by_use() const;

  std::vector<AddressRange> executable_;                      // sorted, disjoint
  std::size_t fallback_from_ = static_cast<std::size_t>(-1);  // functions with rows from here on are fallback
  std::size_t executable_hint_ = 0;
  RuleSet rules_;
  RawBuffer<Row> rows_;
  std::vector<Function> functions_;
  bool sorted_ = true;                // functions_ is ascending, or order_ is made
  std::vector<std::uint32_t> order_;  // indexes of functions_ as the sweep takes them; empty: as they are

  // The function being given.
  std::uint64_t function_begin_ = 0;
  std::uint64_t function_end_ = 0;
  std::size_t function_first_row_ = 0;
  std::uint64_t next_offset_limit_ = 0;  // greatest offset a row of it may have
  std::uint32_t last_offset_ = 0;
  std::uint32_t last_rule_ = kNoRule;

  std::uint8_t x_reg_ = WL_NO_XREG;
  TableStats stats_;
};

}  // namespace windlass::table
