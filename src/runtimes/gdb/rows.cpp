#include "runtimes/gdb/rows.h"

#include <utility>

namespace windlass::runtimes::gdb {

Code::Code(Registered registered, const Object::Function& function) : registered_(std::move(registered)) {
  begin = function.begin;
  end = function.end;
  lasting = false;
  name = function.name;
}

void Code::for_each_row(sources::RowSink row, sources::ErrorSink report) const {
  const sources::UnwindSource& source = registered_.object->source();
  if (const auto function = source.function_at(begin)) source.for_each_row(*function, row, report);
}

}  // namespace windlass::runtimes::gdb
