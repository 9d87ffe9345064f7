#include "lookup/sources/sframe_source.h"

#include <algorithm>
#include <vector>

namespace windlass::sources {
namespace {

Function function_of(const sframe::Section& section, const sframe::Function& found) {
  Function function;
  function.begin = function.primary = found.begin;
  function.end = found.end;
  function.signal_frame = found.signal_frame;
  function.record = {RecordPlace::kSFrame, found.record, section.address() + found.record};
  return function;
}

}  // namespace

Expected<void> SFrameSource::row_at(std::uint64_t address, FrameRow& to) const {
  const auto found = section_.find(address);
  if (!found) return Failure(found.error());
  return section_.row_at(*found, address, to);
}

Expected<Function> SFrameSource::function_at(std::uint64_t address) const {
  const auto found = section_.find(address);
  if (!found) return Failure(found.error());
  return function_of(section_, *found);
}

void SFrameSource::for_each_function(FunctionSink callback, ErrorSink report) const {
  std::vector<Function> functions;
  const auto add = [&](const sframe::Function& found) {
    if (found.end > found.begin) functions.push_back(function_of(section_, found));
    return true;
  };
  section_.for_each_function(add, report);
  std::ranges::stable_sort(functions, {}, &Function::begin);
  for (std::size_t i = 0; i < functions.size(); ++i) {
    if (i + 1 < functions.size() && functions[i + 1].begin == functions[i].begin) continue;  // a look-up finds the last
    if (!callback(functions[i])) return;
  }
}

void SFrameSource::for_each_row(const Function& function, RowSink callback, ErrorSink report) const {
  const auto found = section_.function_of(function.record.offset);
  if (!found) return report(found.error());
  if (const auto done = section_.for_each_row(*found, callback); !done) report(done.error());
}

void SFrameSource::for_each_row(RowVisitor& visitor, ErrorSink report) const {
  visitor.begin_section(".sframe");
  const auto give = [&](const FrameRow& row) { visitor.row(row); };
  const auto each = [&](const sframe::Function& found) {
    if (const auto done = section_.for_each_row(found, give); !done) report(done.error());
    return visitor.wants_more();
  };
  section_.for_each_function(each, report);
}

}  // namespace windlass::sources
