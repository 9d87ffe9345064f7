// From a PE image's function table to its dense table.
#pragma once

#include "formats/winarm64/read.h"
#include "formats/winx64/read.h"
#include "lookup/sources/unwind_source.h"
#include "lookup/table/unwind_table.h"
#include "windlass/error.h"

namespace windlass::table {

// Compiles the rows of every entry of the exception directory, by RVA. Linear in the size of the code. The `source` is
// made of `functions`.
//
// Code without an entry is a leaf, as for the system's unwinder: the return address is on top of the stack, or in x30.
// If x64 code without an entry pushes nevertheless, its rows say so (linear_scan.h). Padding between functions belongs
// to the function before. Codes that no row can express become WL_CFA_UNSUPPORTED, except machine frames of x64. A
// malformed entry goes to `report` with its RVA; its range is then a leaf too.
[[nodiscard]] Expected<UnwindTable> compile_winx64(const sources::UnwindSource& source,
                                                   const winx64::Functions& functions, sources::ErrorSink report);
[[nodiscard]] Expected<UnwindTable> compile_winarm64(const sources::UnwindSource& source,
                                                     const winarm64::Functions& functions, sources::ErrorSink report);

// How many bytes at the front of `code`, which is behind a function, are padding that nothing returns to.
[[nodiscard]] std::size_t padding_size(ByteView code, bool arm64);

}  // namespace windlass::table
