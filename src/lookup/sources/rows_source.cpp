#include "lookup/sources/rows_source.h"

#include <algorithm>

namespace windlass::sources {
namespace {

std::uint64_t begin_of(const GivenFunction& given) { return given.function.begin; }

// The last of an ascending range that begins at or before an address, or null.
template <typename Range, typename Begin>
auto* last_at_or_before(const Range& range, std::uint64_t address, Begin begin) {
  const auto after = std::ranges::upper_bound(range, address, {}, begin);
  return after == range.begin() ? nullptr : &*std::prev(after);
}

Expected<void> check(const GivenFunction& given) {
  std::uint64_t at = given.function.begin;
  if (at >= given.function.end) return fail(ErrorCode::kMalformed, "function has no range", at, given.function.end);
  for (const FrameRow& row : given.rows) {
    if (row.begin >= row.end) return fail(ErrorCode::kMalformed, "row has no range", row.begin, row.end);
    if (row.begin < at || row.end > given.function.end)
      return fail(ErrorCode::kMalformed, "row is outside of its function, or over another one", row.begin, row.end);
    at = row.end;
  }
  return {};
}

}  // namespace

Expected<RowsSource> RowsSource::make(Architecture architecture, std::vector<GivenFunction> functions,
                                      std::vector<std::byte> expressions) {
  std::ranges::sort(functions, {}, begin_of);
  std::uint64_t end = 0;
  for (std::size_t i = 0; i < functions.size(); ++i) {
    Function& function = functions[i].function;
    if (const auto good = check(functions[i]); !good) return Failure(good.error());
    if (function.begin < end) return fail(ErrorCode::kMalformed, "function is over another one", function.begin, end);
    end = function.end;
    if (function.primary == 0) function.primary = function.begin;
    function.record = {0, i, 0};
  }
  return RowsSource(architecture, std::move(functions), std::move(expressions));
}

const GivenFunction* RowsSource::find(std::uint64_t address) const {
  const GivenFunction* given = last_at_or_before(functions_, address, begin_of);
  return given != nullptr && given->function.contains(address) ? given : nullptr;
}

Expected<void> RowsSource::row_at(std::uint64_t address, FrameRow& to) const {
  const GivenFunction* given = find(address);
  const FrameRow* row = given != nullptr ? last_at_or_before(given->rows, address, &FrameRow::begin) : nullptr;
  if (row == nullptr || address >= row->end) return fail(ErrorCode::kNotFound, "no row covers the address", address);
  to = *row;
  return {};
}

Expected<Function> RowsSource::function_at(std::uint64_t address) const {
  const GivenFunction* given = find(address);
  if (given == nullptr) return fail(ErrorCode::kNotFound, "no function contains the address", address);
  return given->function;
}

void RowsSource::for_each_function(FunctionSink callback, ErrorSink) const {
  for (const GivenFunction& given : functions_)
    if (!callback(given.function)) return;
}

void RowsSource::for_each_row(const Function& function, RowSink callback, ErrorSink) const {
  if (function.record.offset >= functions_.size()) return;
  for (const FrameRow& row : functions_[function.record.offset].rows) callback(row);
}

void RowsSource::for_each_row(RowVisitor& visitor, ErrorSink) const {
  if (functions_.empty()) return;
  visitor.begin_section("rows");
  for (const GivenFunction& given : functions_) {
    if (!visitor.wants_more()) return;
    for (const FrameRow& row : given.rows) visitor.row(row);
  }
}

std::uint64_t RowsSource::function_start(std::uint64_t address) const {
  const GivenFunction* given = find(address);
  return given != nullptr ? given->function.primary : 0;
}

}  // namespace windlass::sources
