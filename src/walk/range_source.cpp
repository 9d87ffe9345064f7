#include "walk/range_source.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "formats/dwarf/cfi.h"
#include "formats/dwarf/lower.h"
#include "lookup/sources/function_tables.h"
#include "lookup/sources/rows_source.h"

namespace windlass::walk {
namespace {

using Rows = std::vector<FrameRow>;
using Functions = std::vector<sources::GivenFunction>;

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

sources::GivenFunction function_of(std::uint64_t begin, std::uint64_t end) {
  sources::GivenFunction given;
  given.function.begin = begin;
  given.function.end = end;
  return given;
}

// The functions of all FDEs. Any error in the section makes it unusable, as its author can mend it.
Expected<Functions> evaluate(const CodeRange& range, Architecture architecture) {
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
  Functions functions;
  for (dwarf::Fde fde; !problem && reader.next_fde(fde);) {
    if (fde.begin < range.begin || fde.end > range.end)
      return fail(ErrorCode::kOutOfRange, "FDE does not lie in its code range", fde.offset, fde.begin);
    Rows& rows = functions.emplace_back(function_of(fde.begin, fde.end)).rows;
    const auto done = evaluator.for_each_row(fde, [&](const FrameRow& row) { rows.push_back(row); });
    if (!done) return Failure(done.error());
  }
  if (problem) return Failure(*problem);
  if (functions.empty()) return fail(ErrorCode::kNotFound, ".eh_frame of a code range has no FDE with rows", 0);
  return functions;
}

}  // namespace

Expected<std::unique_ptr<sources::UnwindSource>> make_range_source(CodeRange range, Architecture architecture) {
  const FunctionTable& table = range.function_table;
  if (!range.rows.empty() + !range.eh_frame.empty() + !table.bytes.empty() > 1)
    return fail(ErrorCode::kMalformed, "give a code range one kind of unwind information", range.begin);
  if (!table.bytes.empty()) {
    if (architecture != Architecture::kX86_64)
      return fail(ErrorCode::kUnsupported, "function tables of code ranges are of Windows x64", range.begin);
    return sources::make_table_source(table, range.begin, range.end);
  }
  Functions functions;
  std::vector<std::byte> expressions;
  if (range.eh_frame.empty()) {
    expressions = own_expressions(range.rows);
    functions.push_back(function_of(range.begin, range.end));
    functions.back().rows = std::move(range.rows);
  } else {
    auto evaluated = evaluate(range, architecture);
    if (!evaluated) return Failure(evaluated.error());
    functions = std::move(*evaluated);
    expressions = std::move(range.eh_frame);  // what rows have views of: a moved vector's bytes are where they were
  }
  auto rows = sources::RowsSource::make(architecture, std::move(functions), std::move(expressions));
  if (!rows) return Failure(rows.error());
  return std::make_unique<sources::RowsSource>(std::move(*rows));
}

}  // namespace windlass::walk
