// Writes the pages of a table from rows in ascending address order.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "table/rule_set.h"
#include "windlass_layout.h"

namespace windlass::table {

class PageWriter {
 public:
  // `order[n]` is the final index of rule number n; indexes below WL_PALETTE_RULES become rule ids of one byte.
  // Covers `page_count` pages from `first_page` on.
  PageWriter(std::span<const std::uint32_t> order, std::uint64_t first_page, std::uint32_t page_count);

  // From `address` on, rule `number` holds. Addresses ascend; one given again replaces what was said of it.
  void put(std::uint64_t address, std::uint32_t number) {
    if (address != pending_address_) {
      if (pending_rule_ != current_rule_) append(pending_address_, pending_rule_);
      pending_address_ = address;
    }
    pending_rule_ = number;
  }
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
      row_count_ = 0, page_escapes_.clear();
    add_row(offset, number);
  }
  void add_row(std::uint32_t offset, std::uint32_t number) {
    const std::uint32_t block = offset >> WL_BLOCK_SHIFT;
    while (block_ < block) head_.last[block_++] = static_cast<std::uint16_t>(row_count_ - 1);
    std::uint32_t id = order_[number];
    if (id >= WL_PALETTE_RULES) [[unlikely]] {
      page_escapes_.push_back({offset, id});
      id = WL_RULE_ESCAPE;
    }
    page_rows_[row_count_++] = static_cast<std::uint16_t>((offset & 0xff) << 8 | id);
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
  std::uint32_t block_ = 0;      // blocks before this one have their `last`
  std::uint32_t row_count_ = 0;  // row 0 is always there
  wl_page_head head_;
  std::vector<std::uint16_t> page_rows_;
  std::vector<wl_escape> page_escapes_;
  // Pages that one rule covers from end to end are written once for a run of them.
  std::uint32_t uniform_rule_ = kNoneRule;
  std::uint32_t uniform_page_ = 0;
};

}  // namespace windlass::table
