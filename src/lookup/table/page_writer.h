// Writes the pages of a table from rows in ascending address order.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lookup/table/rule_set.h"
#include "windlass_table_layout.h"

namespace windlass::table {

class PageWriter {
 public:
  // `order[n]` is the final index of rule number n; indexes below WL_PALETTE_RULES become rule ids of one byte.
  // Covers `page_count` pages from `first_page` on.
  // About `rows` rows will come.
  PageWriter(std::span<const std::uint32_t> order, std::uint64_t first_page, std::uint32_t page_count,
             std::size_t rows);

  // From `address` on, rule `number` holds. Addresses ascend; one given again replaces what was said of it.
  void put(std::uint64_t address, std::uint32_t number) {
    if (address != pending_address_) {
      if (pending_rule_ != current_rule_) append(pending_address_, pending_rule_);
      pending_address_ = address;
    }
    pending_rule_ = number;
  }
  // A function's rows: {offset from base, rule number}, ascending, neighbours different.
  template <typename Row>
  void put_rows(std::uint64_t base, const Row* row, const Row* end);
  // The last row put must be the "none" rule, at the end of the covered addresses.
  void finish();

  std::vector<std::uint32_t> directory;
  std::vector<std::uint64_t> pages;  // [0] unused
  std::uint64_t rows = 0;
  std::uint64_t escapes = 0;

 private:
  void append(std::uint64_t address, std::uint32_t number) {
    const std::uint64_t page = (address >> WL_PAGE_SHIFT) - first_page_;
    if (page != page_) [[unlikely]]
      turn_to(page);
    current_rule_ = number;
    const auto offset = static_cast<std::uint32_t>(address & 0xffff);
    if (offset == 0) [[unlikely]]
      clear_page();
    row_count_ = add_row(row_count_, offset, number);
  }
  // Returns the new count of rows.
  std::uint32_t add_row(std::uint32_t count, std::uint32_t offset, std::uint32_t number) {
    std::uint32_t id = order_[number];
    if (id >= WL_PALETTE_RULES) [[unlikely]]
      id = add_escape(offset, id);
    head_.last[offset >> WL_BLOCK_SHIFT] = static_cast<std::uint16_t>(count);
    page_rows_[count] = static_cast<std::uint16_t>(offset << 8 | id);
    return count + 1;
  }
  std::uint32_t add_escape(std::uint32_t offset, std::uint32_t rule);
  void clear_page() {
    row_count_ = 0;
    page_escapes_.clear();
  }
  void turn_to(std::uint64_t page);
  void write_page();
  void start_page();

  std::span<const std::uint32_t> order_;
  std::uint64_t first_page_;
  std::uint64_t pending_address_;
  std::uint32_t pending_rule_ = kNoneRule;
  std::uint32_t current_rule_ = kNoneRule;

  // The page being written.
  std::uint64_t page_ = 0;
  std::uint32_t row_count_ = 0;  // row 0 is always there
  wl_page_head head_;            // 0 for blocks without a row of their own, until the page is written
  std::vector<std::uint16_t> page_rows_;
  std::vector<wl_escape> page_escapes_;
  // Pages that one rule covers from end to end are written once for a run of them.
  std::uint32_t uniform_rule_ = kNoneRule;
  std::uint32_t uniform_page_ = 0;
};

template <typename Row>
void PageWriter::put_rows(std::uint64_t base, const Row* row, const Row* end) {
  // The first may merge with what holds before, the last may be replaced: the rows between are final.
  put(base + row->offset, row->rule);
  if (end - row < 2) return;
  ++row;
  --end;
  if (pending_rule_ != current_rule_) append(pending_address_, pending_rule_);
  while (row != end) {
    append(base + row->offset, row->rule);  // turns the page if need be
    const std::uint64_t page_begin = (first_page_ + page_) << WL_PAGE_SHIFT;
    std::uint32_t count = row_count_;
    for (++row; row != end; ++row) {
      const std::uint64_t offset = base + row->offset - page_begin;
      if (offset > 0xffff) break;
      count = add_row(count, static_cast<std::uint32_t>(offset), row->rule);
    }
    row_count_ = count;
    current_rule_ = row[-1].rule;
  }
  pending_address_ = base + end->offset;
  pending_rule_ = end->rule;
}

}  // namespace windlass::table
