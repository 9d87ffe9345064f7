// Tables as comma-separated values (RFC 4180), with a line of names first.
#pragma once

#include <string>
#include <string_view>

#include "base/text_writer.h"
#include "profiler/profile/profile.h"
#include "windlass/error.h"

namespace windlass::exporter {

// Text of others as one cell: shown(), in quotes where needed. Text that a table program would run as a formula (it
// begins with = + - @) gets a ' before it.
[[nodiscard]] std::string csv_cell(std::string_view text);

// "self,total,unit,function,module,modules,file,line,value": the functions of write_json(), in its order. `module` is
// the path of the first of its `modules`, which is a number. `value` is the name that --value takes, the same in each.
[[nodiscard]] Expected<void> write_csv(const profile::Profile& profile, TextWriter& out, profile::ValueType type);

}  // namespace windlass::exporter
