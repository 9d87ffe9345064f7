// From a PE image's function table to its dense table.
#pragma once

#include "base/function_ref.h"
#include "image/pe.h"
#include "table/unwind_table.h"
#include "windlass/error.h"

namespace windlass::table {

// The rows of every entry of the exception directory, x64 or ARM64, by RVA. What no entry covers is a leaf function, as
// the system's unwinder takes it: the return address is on top of the stack, or in x30; where x64 code without an entry
// pushes something all the same, its rows say so (straight_line.h). Padding between functions is left to the function
// before it. Where an entry's codes mean something that no row can say, the
// table says WL_CFA_UNSUPPORTED; an image without an exception directory gives an empty table.
// A malformed entry goes to `report` with its RVA and costs only itself: its range is then a leaf, too. Errors: kLimit
// (code over more than WL_MAX_PAGES pages), kUnsupported (another machine). Linear in the size of the code.
[[nodiscard]] Expected<UnwindTable> compile_pe(const image::PeImage& image, FunctionRef<void(const Error&)> report);

// How many bytes at the front of `code`, which is behind a function, are padding that nothing returns to.
[[nodiscard]] std::size_t padding_size(ByteView code, bool arm64);

}  // namespace windlass::table
