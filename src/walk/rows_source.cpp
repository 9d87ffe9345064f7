#include "walk/rows_source.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "dwarf/cfi.h"
#include "dwarf/lower.h"

namespace windlass::walk {
namespace {

using Rows = std::vector<FrameRow>;

class RowsSource final : public UnwindSource {
 public:
  // `expressions`: what the rows have views of.
  RowsSource(Rows rows, std::vector<std::byte> expressions)
      : rows_(std::move(rows)), expressions_(std::move(expressions)) {}

  Expected<void> row_at(std::uint64_t address, FrameRow& to) const override {
    const auto after = std::upper_bound(rows_.begin(), rows_.end(), address,
                                        [](std::uint64_t a, const FrameRow& row) { return a < row.begin; });
    if (after == rows_.begin() || address >= after[-1].end)
      return fail(ErrorCode::kNotFound, "no row covers the address", address);
    to = after[-1];
    return {};
  }

 private:
  Rows rows_;
  std::vector<std::byte> expressions_;
};

// Copies what the rows have views of. Neighbours that were made together share theirs.
std::vector<std::byte> own_expressions(Rows& rows) {
  const auto shares = [](const FrameRow& a, const FrameRow& b) {
    return a.expressions.data() == b.expressions.data() && a.expressions.size() == b.expressions.size();
  };
  std::vector<std::byte> bytes;
  std::vector<std::size_t> starts;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const bool again = i != 0 && shares(rows[i - 1], rows[i]);
    starts.push_back(again ? starts.back() : bytes.size());
    const ByteView view = rows[i].expressions;
    if (!again) bytes.insert(bytes.end(), view.data(), view.data() + view.size());
  }
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const ByteView view = rows[i].expressions;
    rows[i].expressions = ByteView(bytes.data() + starts[i], view.size(), view.origin());
  }
  return bytes;
}

Expected<void> check_rows(const CodeRange& range) {
  std::uint64_t behind = range.begin;
  for (std::size_t i = 0; i < range.rows.size(); ++i) {
    const FrameRow& row = range.rows[i];
    if (row.begin < behind || row.begin >= row.end || row.end > range.end)
      return fail(ErrorCode::kMalformed, "rows of a code range must ascend, be disjoint and lie in it", row.begin, i);
    behind = row.end;
  }
  return {};
}

// The rows of all FDEs. Anything that is wrong with the section makes it unusable: whoever made it can mend it.
Expected<Rows> evaluate(const CodeRange& range, Architecture architecture) {
  dwarf::CfiSection section;
  section.bytes = ByteView(range.eh_frame.data(), range.eh_frame.size());
  section.address = range.eh_frame_address;
  section.architecture = architecture;
  std::optional<Error> problem;
  const auto report = [&](const Error& error) {
    if (!problem) problem = error;
  };
  dwarf::CfiReader reader(section, report);
  dwarf::RowEvaluator evaluator(section);
  Rows rows;
  for (dwarf::Fde fde; !problem && reader.next_fde(fde);) {
    if (fde.begin < range.begin || fde.end > range.end)
      return fail(ErrorCode::kOutOfRange, "FDE does not lie in its code range", fde.offset, fde.begin);
    const auto done = evaluator.for_each_row(fde, [&](const FrameRow& row) { rows.push_back(row); });
    if (!done) return std::unexpected(done.error());
  }
  if (problem) return std::unexpected(*problem);
  if (rows.empty()) return fail(ErrorCode::kNotFound, ".eh_frame of a code range has no FDE with rows", 0);
  std::ranges::sort(rows, {}, &FrameRow::begin);
  return rows;
}

}  // namespace

Expected<std::unique_ptr<UnwindSource>> make_rows_source(CodeRange range, Architecture architecture) {
  if (!range.eh_frame.empty()) {
    if (!range.rows.empty())
      return fail(ErrorCode::kMalformed, "give a code range rows or .eh_frame, not both", range.begin);
    auto rows = evaluate(range, architecture);
    if (!rows) return std::unexpected(rows.error());
    range.rows = std::move(*rows);
  }
  if (const auto checked = check_rows(range); !checked) return std::unexpected(checked.error());
  // Views of .eh_frame stay: a moved vector's bytes are where they were.
  std::vector<std::byte> expressions = range.eh_frame.empty() ? own_expressions(range.rows) : std::move(range.eh_frame);
  return std::make_unique<RowsSource>(std::move(range.rows), std::move(expressions));
}

}  // namespace windlass::walk
