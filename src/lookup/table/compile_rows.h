// From the full rows of any source to its dense table.
#pragma once

#include <vector>

#include "lookup/sources/unwind_source.h"
#include "lookup/table/builder.h"
#include "lookup/table/extra_register.h"

namespace windlass::table {

// Gives `builder` every function of the source, with a rule that says that nothing is known for what the rows of a
// function leave out. Returns their ranges, ascending by begin. `x_reg`: the register that the rules' x part is about.
// What no row can say is no error. Linear in the rows.
std::vector<AddressRange> add_functions(const sources::UnwindSource& source, std::uint8_t x_reg, TableBuilder& builder,
                                        sources::ErrorSink report);

// Counts, for every row of a source, from which register its CFA comes, where that is neither stack nor frame pointer.
void count_cfa_registers(const sources::UnwindSource& source, CfaRegisterUse& use);

// The table of a source that is nothing but rows.
[[nodiscard]] Expected<UnwindTable> compile_rows(const sources::UnwindSource& source, sources::ErrorSink report);

}  // namespace windlass::table
