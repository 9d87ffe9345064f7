#include "lookup/sources/go_source.h"

#include "lookup/sources/pe_source.h"

namespace windlass::sources {
namespace {

// Without the padding behind it, which belongs to nobody.
std::uint64_t code_end(const runtimes::go::CodeMap& map, const runtimes::go::Function& found) {
  std::uint64_t end = found.begin;
  const auto each = [&](std::uint64_t, std::uint64_t behind, std::int32_t) {
    end = behind;
    return true;
  };
  const bool known = map.for_each_value(found, found.stack, each).has_value() && end != found.begin;
  return known ? end : found.end;
}

Function function_of(const runtimes::go::GoRows& rows, const runtimes::go::Function& found) {
  const runtimes::go::CodeMap& map = rows.map();
  Function function;
  function.signal_frame = rows.role_of(found) == runtimes::go::Role::kSignalReturn;
  function.begin = rows.begin_of(found);
  function.primary = found.begin;
  function.end = code_end(map, found);
  const runtimes::go::Table& table = map.table();
  const std::uint64_t offset = table.functions.origin() + found.record - table.origin;
  function.record = {RecordPlace::kGoFunctions, offset, table.address + offset};
  return function;
}

}  // namespace

Expected<Function> GoSource::function_at(std::uint64_t address) const {
  const auto found = rows_.map().function_at(address);
  if (!found) return Failure(found.error());
  const Function function = function_of(rows_, *found);
  if (address >= function.end) return fail(ErrorCode::kNotFound, "between Go's functions", address);
  return function;
}

void GoSource::for_each_function(FunctionSink callback, ErrorSink report) const {
  const runtimes::go::CodeMap& map = rows_.map();
  for (std::uint64_t i = 0; i < map.size(); ++i) {
    const auto found = map.function(i);
    if (!found)
      report(found.error());
    else if (!callback(function_of(rows_, *found)))
      return;
  }
}

void GoSource::for_each_row(const Function& function, RowSink callback, ErrorSink report) const {
  const auto found = rows_.map().function_at(function.primary);
  if (!found) return report(found.error());
  if (const auto done = rows_.for_each_row(*found, callback); !done) report(done.error());
}

void GoSource::for_each_row(RowVisitor& visitor, ErrorSink report) const {
  for_each_row_by_function(*this, kSectionName, visitor, report);
}

std::unique_ptr<GoSource> find_go_source(const runtimes::go::Program& program, ErrorSink report) {
  const auto table = runtimes::go::find_table(program);
  if (table) return std::make_unique<GoSource>(*table, program);
  if (table.error().code != ErrorCode::kNotFound) report(table.error());
  return nullptr;
}

std::unique_ptr<UnwindSource> make_go_source(const image::PeImage& image, ErrorSink report) {
  return find_go_source(image, report);
}

}  // namespace windlass::sources
