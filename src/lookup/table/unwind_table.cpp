#include "lookup/table/unwind_table.h"

#include <algorithm>
#include <bit>

namespace windlass::table {

namespace {

std::uint32_t last_of(const std::byte* page, std::uint32_t block) {
  std::uint16_t last;
  std::memcpy(&last, page + block * sizeof last, sizeof last);
  return last;
}
std::uint32_t row_of(const std::byte* page, std::uint32_t index) {
  std::uint16_t row;
  std::memcpy(&row, page + sizeof(wl_page_head) + index * sizeof row, sizeof row);
  return row;
}

}  // namespace

PageShape UnwindTable::shape(const std::byte* page) {
  PageShape shape;
  shape.rows = last_of(page, WL_BLOCKS - 1) + 1;
  shape.escapes_offset = (static_cast<std::uint32_t>(sizeof(wl_page_head)) + shape.rows * 2 + 7) & ~7u;
  std::uint64_t count;
  std::memcpy(&count, page + shape.escapes_offset, sizeof count);
  shape.escapes = static_cast<std::uint32_t>(count);
  return shape;
}

const TraceRule& UnwindTable::find(std::uint64_t address) const {
  const std::uint64_t index = (address >> WL_PAGE_SHIFT) - first_page_;
  if (index >= directory_.size() || directory_[index] == 0) return rules_[0];
  const std::byte* start = page(directory_[index]);
  const auto offset = static_cast<std::uint32_t>(address & 0xffff);
  const std::uint32_t block = offset >> WL_BLOCK_SHIFT;
  // The last of the block's rows that begins at or before the address, else the row before them. Found by halving,
  // without a branch that depends on the address: a branch predictor knows nothing of code that is met for the first
  // time. Up to the usual number of rows, no branch depends on that number either.
  constexpr std::uint32_t kUsual = 16;
  std::uint32_t low = block == 0 ? 0 : last_of(start, block - 1);
  const std::uint32_t high = last_of(start, block);
  const auto advance = [&](std::uint32_t by) {
    const std::uint32_t at = low + by < high ? low + by : high;
    low = row_of(start, at) >> 8 <= (offset & 0xff) ? at : low;
  };
  for (std::uint32_t by = std::bit_floor(high - low); by > kUsual; by /= 2) advance(by);
  for (std::uint32_t by = kUsual; by != 0; by /= 2) advance(by);
  const std::uint32_t id = row_of(start, low) & 0xff;
  if (id != WL_RULE_ESCAPE) return rules_[id];

  const PageShape parts = shape(start);
  const auto* escapes = reinterpret_cast<const wl_escape*>(start + parts.escapes_offset + 8);
  const auto* after = std::upper_bound(escapes, escapes + parts.escapes, offset,
                                       [](std::uint32_t at, const wl_escape& e) { return at < e.page_offset; });
  return rules_[std::prev(after)->rule];
}

std::size_t UnwindTable::bytes() const {
  const std::size_t escape_rules = rules_.size() > WL_PALETTE_RULES ? rules_.size() - WL_PALETTE_RULES : 0;
  const std::size_t palette = std::min<std::size_t>(rules_.size(), WL_PALETTE_RULES);
  return directory_.size() * sizeof(directory_[0]) + pages_.size() * sizeof(pages_[0]) +
         (palette + escape_rules) * sizeof(TraceRule);
}

}  // namespace windlass::table
