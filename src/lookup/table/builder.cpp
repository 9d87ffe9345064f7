#include "lookup/table/builder.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "lookup/table/page_writer.h"

namespace windlass::table {

namespace {

// Sorts by 32-bit key, stably, 11 bits a pass; passes in which all keys agree are left out.
struct Keyed {
  std::uint32_t key;
  std::uint32_t index;
};
void radix_sort(std::vector<Keyed>& items) {
  constexpr int kBits = 11;
  constexpr std::uint32_t kBuckets = 1u << kBits;
  std::vector<Keyed> other(items.size());
  for (int shift = 0; shift < 32; shift += kBits) {
    std::vector<std::uint32_t> starts(kBuckets, 0);
    for (const Keyed& item : items) ++starts[(item.key >> shift) & (kBuckets - 1)];
    if (starts[(items[0].key >> shift) & (kBuckets - 1)] == items.size()) continue;
    std::uint32_t sum = 0;
    for (std::uint32_t& start : starts) sum += std::exchange(start, sum);
    for (const Keyed& item : items) other[starts[(item.key >> shift) & (kBuckets - 1)]++] = item;
    items.swap(other);
  }
}

// Merges touching ranges, drops empty ones, sorts.
std::vector<AddressRange> normalised(std::span<const AddressRange> ranges) {
  std::vector<AddressRange> sorted;
  for (const AddressRange& range : ranges)
    if (range.begin < range.end) sorted.push_back(range);
  std::ranges::sort(sorted, {}, &AddressRange::begin);
  std::vector<AddressRange> merged;
  for (const AddressRange& range : sorted) {
    if (!merged.empty() && range.begin <= merged.back().end)
      merged.back().end = std::max(merged.back().end, range.end);
    else
      merged.push_back(range);
  }
  if (ranges.empty()) merged.push_back({0, ~0ull});
  return merged;
}

// Restricts an ascending stream of rows to ranges: outside of them the NONE rule holds.
class ClippedRows {
 public:
  ClippedRows(PageWriter& writer, std::span<const AddressRange> ranges)
      : writer_(writer), next_(ranges.begin() + 1), end_(ranges.end()), range_(ranges.front()) {}
  void put(std::uint64_t address, std::uint32_t number) {
    if (range_.begin == range_.end) return;  // past the last range
    while (address >= range_.end) [[unlikely]] {
        writer_.put(range_.end, kNoneRule);
        if (next_ == end_) {
          range_ = {~0ull, ~0ull};
          return;
        }
        range_ = *next_++;
        if (range_.begin < address) writer_.put(range_.begin, held_);
      }
    held_ = number;
    writer_.put(std::max(address, range_.begin), number);
  }
  // The rows of a whole function, which ends at `end`.
  template <typename Row>
  void put_rows(std::uint64_t base, const Row* row, const Row* last, std::uint64_t end) {
    if (base >= range_.begin && end <= range_.end && row != last) [[likely]] {
      held_ = last[-1].rule;
      writer_.put_rows(base, row, last);
    } else {
      for (; row != last; ++row) put(base + row->offset, row->rule);
    }
  }

 private:
  PageWriter& writer_;
  std::span<const AddressRange>::iterator next_, end_;
  AddressRange range_;
  std::uint32_t held_ = kNoneRule;
};

}  // namespace

TableBuilder::TableBuilder(std::span<const AddressRange> executable) : executable_(normalised(executable)) {}

void TableBuilder::reserve(std::size_t rows, std::size_t functions) {
  rows_.make_room(rows);
  functions_.reserve(functions);
}

void TableBuilder::begin_function(std::uint64_t begin, std::uint64_t end) {
  function_begin_ = begin;
  function_end_ = end;
  function_first_row_ = rows_.size();
  next_offset_limit_ = begin < end ? std::min<std::uint64_t>(end - begin - 1, 0xffffffff) : 0;
  last_offset_ = 0;
  last_rule_ = kNoRule;
}

void TableBuilder::row(std::uint64_t begin, const PackedRule& rule) {
  ++stats_.raw_rows;
  const std::uint32_t number = rules_.intern(rule);
  const std::uint64_t offset = begin - function_begin_;
  if (offset > next_offset_limit_ || begin < function_begin_) return unusual_row(begin, number);
  if (offset <= last_offset_ && rows_.size() > function_first_row_) return unusual_row(begin, number);
  add_row(static_cast<std::uint32_t>(offset), number);
}

void TableBuilder::rows(std::span<const PendingRow> rows) {
  if (function_end_ - function_begin_ > 0xffffffff || rows_.size() != function_first_row_) [[unlikely]] {
    for (const PendingRow& pending : rows) row(pending.begin, PackedRule{pending.low, pending.high});
    return;
  }
  stats_.raw_rows += rows.size();
  rows_.make_room(rows.size() + 1);
  Row* out = rows_.end();
  std::uint32_t last = kNoRule;
  for (const PendingRow& pending : rows) {
    const std::uint32_t number = rules_.intern(pending.low, pending.high);
    *out = {static_cast<std::uint32_t>(pending.begin - function_begin_), number};
    out += number != last ? 1 : 0;  // no branch: one row in twenty repeats the rule before it, unpredictably
    last = number;
  }
  rows_.resize(static_cast<std::size_t>(out - rows_.data()));
  last_rule_ = last;
  if (!rows.empty()) last_offset_ = static_cast<std::uint32_t>(rows.back().begin - function_begin_);
}

void TableBuilder::add_row(std::uint32_t offset, std::uint32_t number) {
  last_offset_ = offset;
  if (number == last_rule_) return;
  rows_.push_back({offset, number});
  last_rule_ = number;
}

// Rows that go back, repeat the address of the row before them, leave their function, or lie 4 GiB from its begin.
void TableBuilder::unusual_row(std::uint64_t begin, std::uint32_t number) {
  if (begin < function_begin_ || begin >= function_end_ || begin - function_begin_ < last_offset_) {
    ++stats_.dropped_rows;
    return;
  }
  const std::uint64_t offset = begin - function_begin_;
  if (offset > next_offset_limit_) {  // offsets have 32 bits: the rest of the function is one of its own
    const std::uint64_t end = std::exchange(function_end_, begin);
    end_function();
    --stats_.functions;
    begin_function(begin, end);
    return add_row(0, number);
  }
  // The address of the row before: this one counts instead.
  if (rows_.back().offset != offset) return add_row(static_cast<std::uint32_t>(offset), number);
  rows_.back().rule = number;
  last_rule_ = number;
  if (rows_.size() - function_first_row_ >= 2 && rows_[rows_.size() - 2].rule == number) rows_.pop_back();
}

void TableBuilder::end_function() {
  ++stats_.functions;
  const auto keep_none = [this] {
    ++stats_.dropped_functions;
    stats_.dropped_rows += rows_.size() - function_first_row_;
    rows_.resize(function_first_row_);
  };
  if (function_begin_ >= function_end_ || rows_.size() == function_first_row_) return keep_none();

  // Functions near each other come one after another: the range of the last one is nearly always right.
  if (executable_hint_ >= executable_.size() || function_begin_ < executable_[executable_hint_].begin ||
      function_end_ > executable_[executable_hint_].end) {
    const auto after = std::ranges::upper_bound(executable_, function_begin_, {}, &AddressRange::begin);
    const bool begins_inside = after != executable_.begin() && function_begin_ < std::prev(after)->end;
    const bool reaches_next = after != executable_.end() && function_end_ > after->begin;
    if (!begins_inside && !reaches_next) return keep_none();
    executable_hint_ = static_cast<std::size_t>(after - executable_.begin()) - (begins_inside ? 1 : 0);
    if (!begins_inside || function_end_ > executable_[executable_hint_].end) ++stats_.clipped_functions;
  }
  if (!functions_.empty() && function_begin_ <= functions_.back().begin) sorted_ = false;
  functions_.push_back({function_begin_, function_end_, function_first_row_, rows_.size()});
}

// By begin; of equal ones the first given comes last, because the sweep lets the later one win.
void TableBuilder::sort_functions() {
  if (std::exchange(sorted_, true)) return;
  std::uint64_t lowest = ~0ull, highest = 0;
  for (const Function& function : functions_) {
    lowest = std::min(lowest, function.begin);
    highest = std::max(highest, function.begin);
  }
  const auto count = static_cast<std::uint32_t>(functions_.size());
  order_.resize(count);
  if (highest - lowest > 0xffffffff) {
    std::iota(order_.rbegin(), order_.rend(), 0u);
    std::ranges::stable_sort(order_, {}, [this](std::uint32_t i) { return functions_[i].begin; });
    return;
  }
  std::vector<Keyed> keys(count);
  for (std::uint32_t i = 0; i < count; ++i)
    keys[count - 1 - i] = {static_cast<std::uint32_t>(functions_[i].begin - lowest), i};
  radix_sort(keys);
  for (std::uint32_t i = 0; i < count; ++i) order_[i] = keys[i].index;
}

// Functions of one row for the gaps in which another rule holds than that of the row before.
void TableBuilder::add_small_gaps(FunctionRef<void(SmallGap&)> look) {
  const std::size_t count = functions_.size();
  if (count > kMostFunctions) return;  // finish() says so
  sort_functions();
  std::vector<std::uint32_t> with_gaps;
  with_gaps.reserve(count);
  std::size_t before = 0;  // of those so far the one that ends last
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t at = order_.empty() ? i : order_[i];
    const std::uint64_t begin = functions_[before].end, end = functions_[at].begin;
    const std::uint64_t alignment = end & (0 - end);
    if (i != 0 && begin < end && end - begin <= kPaddingGap && end - begin >= alignment) {
      const TraceRule rule = rules_.rules()[rows_[functions_[before].end_row - 1].rule];
      SmallGap gap{begin, end, rule};
      look(gap);
      const PackedRule packed = PackedRule::of(gap.rule);
      if (packed != PackedRule::of(rule)) {
        rows_.push_back({0, rules_.intern(packed)});
        with_gaps.push_back(static_cast<std::uint32_t>(functions_.size()));
        functions_.push_back({begin, end, rows_.size() - 1, rows_.size()});
      }
    }
    with_gaps.push_back(static_cast<std::uint32_t>(at));
    if (i == 0 || functions_[at].end >= functions_[before].end) before = at;
  }
  if (with_gaps.size() != count) order_ = std::move(with_gaps);
}

// The final index of every rule number: 0 for "none", then by falling use.
std::vector<std::uint32_t> TableBuilder::number_by_use() const {
  std::vector<std::uint64_t> uses(rules_.rules().size(), 0);
  for (const Row& row : rows_) ++uses[row.rule];
  std::vector<std::uint32_t> by_use(uses.size());
  std::iota(by_use.begin(), by_use.end(), 0u);
  std::stable_sort(by_use.begin() + 1, by_use.end(), [&](auto a, auto b) { return uses[a] > uses[b]; });
  std::vector<std::uint32_t> order(by_use.size());
  for (std::uint32_t index = 0; index < by_use.size(); ++index) order[by_use[index]] = index;
  return order;
}

// Walks all functions in address order and gives every row that is in force to `writer`.
class TableBuilder::Sweep {
 public:
  Sweep(TableBuilder& builder, PageWriter& writer) : builder_(builder), out_(writer, builder.executable_) {}

  void run() {
    const std::vector<Function>& functions = builder_.functions_;
    const std::span<const std::uint32_t> order = builder_.order_;
    at_ = order.empty() ? functions.front().begin : functions[order.front()].begin;
    for (std::size_t i = 0; i < functions.size(); ++i) {
      if (i + kAhead < order.size()) fetch_ahead(order.data() + i);
      const Function& function = functions[order.empty() ? i : order[i]];
      play(function.begin);
      const bool fallback = function.first_row >= builder_.fallback_from_;
      auto& open = fallback ? fallback_ : open_;
      if (!open.empty()) ++builder_.stats_.overlaps;
      if (open_.empty() && fallback_.empty() && function.begin - at_ > kPaddingGap) out_.put(at_, kNoneRule);
      at_ = function.begin;
      open.push_back({&function, function.first_row});
    }
    play(~0ull);
    out_.put(at_, kNoneRule);
  }

 private:
  struct Open {
    const Function* function;
    std::uint64_t next_row;  // rows before it have been given already, or hidden by a function inside
  };

  // In sorted order functions and rows are read here and there: a cache miss each, unless asked for in time.
  static constexpr std::size_t kAhead = 16;
  void fetch_ahead(const std::uint32_t* order) const {
    __builtin_prefetch(&builder_.functions_[order[kAhead]]);
    __builtin_prefetch(builder_.rows_.data() + builder_.functions_[order[kAhead / 2]].first_row);
  }

  // Gives the rows in [at_, until): of the open function that began last, while it lasts, fallback ones after all
  // others.
  void play(std::uint64_t until) {
    while (!open_.empty() || !fallback_.empty()) {
      auto& open = open_.empty() ? fallback_ : open_;
      Open& inner = open.back();
      const std::uint64_t stop = std::min(inner.function->end, until);
      if (at_ < stop) {
        give(inner, stop);
        at_ = stop;
      }
      if (inner.function->end > until) return;
      open.pop_back();
    }
  }
  void give(Open& inner, std::uint64_t stop) {
    const std::uint64_t base = inner.function->begin;
    const std::uint64_t end = inner.function->end_row;
    const Row* rows = builder_.rows_.data();
    if (at_ == base && inner.function->end == stop && rows[inner.next_row].offset == 0) {
      // Nothing overlaps it.
      inner.next_row = end;
      return out_.put_rows(base, rows + inner.function->first_row, rows + end, stop);
    }
    std::uint64_t row = inner.next_row;
    // Resumed behind a hole, or a first row that is not at the begin: what holds at `at_` itself?
    while (row < end && base + rows[row].offset <= at_) ++row;
    out_.put(at_, row > inner.function->first_row ? rows[row - 1].rule : kNoneRule);
    for (; row < end && base + rows[row].offset < stop; ++row) out_.put(base + rows[row].offset, rows[row].rule);
    inner.next_row = row;
  }

  TableBuilder& builder_;
  ClippedRows out_;
  std::uint64_t at_ = 0;        // everything below it has been given
  std::vector<Open> open_;      // by begin; the last holds
  std::vector<Open> fallback_;  // the same; these hold where open_ is empty
};

Expected<UnwindTable> TableBuilder::finish() {
  UnwindTable table;
  table.x_reg_ = x_reg_;
  table.stats_ = stats_;
  if (functions_.empty()) return table;
  if (functions_.size() > kMostFunctions)
    return fail(ErrorCode::kLimit, "too many functions in one module", 0, functions_.size());
  sort_functions();

  std::uint64_t begin = ~0ull, end = 0;
  for (const Function& function : functions_) {
    begin = std::min(begin, function.begin);
    end = std::max(end, function.end);
  }
  begin = std::max(begin, executable_.front().begin);
  end = std::min(end, executable_.back().end);
  const std::uint64_t first_page = begin >> WL_PAGE_SHIFT;
  const std::uint64_t page_count = ((end - 1) >> WL_PAGE_SHIFT) - first_page + 1;
  if (page_count > WL_MAX_PAGES)
    return fail(ErrorCode::kLimit, "a module's functions span more addresses than a table can cover", begin,
                end - begin);

  const std::vector<std::uint32_t> order = number_by_use();
  PageWriter writer(order, first_page, static_cast<std::uint32_t>(page_count), rows_.size());
  Sweep(*this, writer).run();
  writer.finish();

  table.first_page_ = first_page;
  table.directory_ = std::move(writer.directory);
  table.pages_ = std::move(writer.pages);
  table.rules_.resize(order.size());
  for (std::size_t number = 0; number < order.size(); ++number) table.rules_[order[number]] = rules_.rules()[number];
  table.stats_.rows = writer.rows;
  table.stats_.escapes = writer.escapes;
  table.stats_.overlaps = stats_.overlaps;
  return table;
}

}  // namespace windlass::table
