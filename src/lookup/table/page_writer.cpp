#include "lookup/table/page_writer.h"

#include <algorithm>
#include <cstring>

namespace windlass::table {

PageWriter::PageWriter(std::span<const std::uint32_t> order, std::uint64_t first_page, std::uint32_t page_count,
                       std::size_t expected_rows)
    : directory(page_count, 0),
      pages(1, 0),
      order_(order),
      first_page_(first_page),
      pending_address_(first_page << WL_PAGE_SHIFT),
      page_rows_(std::size_t{1} << WL_PAGE_SHIFT) {
  // Each row costs 2 bytes, and a page with at least one row of its own 520 more.
  const std::size_t full_pages = std::min<std::size_t>(page_count, expected_rows);
  pages.reserve(1 + (expected_rows * 2 + full_pages * (sizeof(wl_page_head) + 16)) / 8);
  start_page();
}

void PageWriter::start_page() {
  clear_page();
  head_ = {};
  row_count_ = add_row(0, 0, current_rule_);
}

std::uint32_t PageWriter::add_escape(std::uint32_t offset, std::uint32_t rule) {
  page_escapes_.push_back({offset, rule});
  return WL_RULE_ESCAPE;
}

void PageWriter::turn_to(std::uint64_t page) {
  write_page();
  ++page_;
  start_page();
  if (page_ == page) return;
  // The pages up to `page` hold nothing but the rule in force.
  write_page();
  for (std::uint64_t between = page_ + 1; between < page; ++between) directory[between] = directory[page_];
  page_ = page;
  start_page();
}

void PageWriter::write_page() {
  const bool uniform = row_count_ == 1;
  if (uniform && current_rule_ == kNoneRule) return;  // directory entry 0
  if (uniform && current_rule_ == uniform_rule_) {
    directory[page_] = uniform_page_;
    return;
  }
  for (std::uint32_t block = 1; block < WL_BLOCKS; ++block)
    head_.last[block] = std::max(head_.last[block], head_.last[block - 1]);
  const std::uint64_t escape_count = page_escapes_.size();
  const std::size_t row_bytes = row_count_ * sizeof(std::uint16_t);
  const std::size_t escape_bytes = escape_count * sizeof(wl_escape);
  const std::size_t start = pages.size();
  const std::size_t row_units = (row_bytes + 7) / 8;
  pages.resize(start + sizeof(wl_page_head) / 8 + row_units + 1 + escape_bytes / 8);
  std::uint64_t* out = pages.data() + start;
  std::memcpy(out, &head_, sizeof head_);
  out += sizeof head_ / sizeof *out;
  std::memcpy(out, page_rows_.data(), row_bytes);
  out += row_units;
  *out++ = escape_count;
  if (escape_bytes != 0) std::memcpy(out, page_escapes_.data(), escape_bytes);

  directory[page_] = static_cast<std::uint32_t>(start);
  if (uniform) {
    uniform_rule_ = current_rule_;
    uniform_page_ = directory[page_];
  }
  rows += row_count_;
  escapes += escape_count;
}

void PageWriter::finish() {
  if (pending_rule_ != current_rule_) append(pending_address_, pending_rule_);
  write_page();
}

}  // namespace windlass::table
