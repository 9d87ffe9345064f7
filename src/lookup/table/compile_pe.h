// From a PE image's function table to its dense table.
#pragma once

#include "formats/winarm64/read.h"
#include "formats/winx64/read.h"
#include "lookup/sources/unwind_source.h"
#include "lookup/table/unwind_table.h"
#include "windlass/error.h"

namespace windlass::table {

// The rows of every entry of the exception directory, by RVA. What no entry covers is a leaf function, as the system's
// unwinder takes it: the return address is on top of the stack, or in x30; where x64 code without an entry pushes
// something all the same, its rows say so (linear_scan.h). Padding between functions is left to the function before it.
// Where an entry's codes mean something that no row can say, the table says WL_CFA_UNSUPPORTED, but for machine frames
// of x64. A malformed entry goes to `report` with its RVA and costs only itself: its range is then a leaf, too.
// `functions` is what the source is made of. Linear in the size of the code.
[[nodiscard]] Expected<UnwindTable> compile_winx64(const sources::UnwindSource& source,
                                                   const winx64::Functions& functions, sources::ErrorSink report);
[[nodiscard]] Expected<UnwindTable> compile_winarm64(const sources::UnwindSource& source,
                                                     const winarm64::Functions& functions, sources::ErrorSink report);

// How many bytes at the front of `code`, which is behind a function, are padding that nothing returns to.
[[nodiscard]] std::size_t padding_size(ByteView code, bool arm64);

}  // namespace windlass::table
