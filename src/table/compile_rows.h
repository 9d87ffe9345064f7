// From the full rows of any source to its dense table.
#pragma once

#include <vector>

#include "base/function_ref.h"
#include "source/unwind_source.h"
#include "table/builder.h"

namespace windlass::table {

struct RowCompilation {
  std::uint8_t x_reg;  // the register that the rules' x part is about
  // The rule for what the rows of a function leave out.
  FunctionRef<TraceRule(const source::Function& function)> missing;
};

// Gives `builder` every function of the source. Returns their ranges, ascending by begin. What no row can say is no
// error. Linear in the rows.
std::vector<AddressRange> add_functions(const source::UnwindSource& source, const RowCompilation& how,
                                        TableBuilder& builder, source::ErrorSink report);

// A rule that says that nothing is known.
[[nodiscard]] TraceRule no_rule();

// The table of a source that is nothing but rows. What they leave out of a function has no rule.
[[nodiscard]] Expected<UnwindTable> compile_rows(const source::UnwindSource& source, source::ErrorSink report);

}  // namespace windlass::table
