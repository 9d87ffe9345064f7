// The rows of a source as text or JSON.
#pragma once

#include "base/text_writer.h"
#include "lookup/sources/unwind_source.h"

namespace windlass::cli {

// Prints every row, one a line, section by section; `json`: one object a line, without section names. False where the
// source has no sections, of which there may be empty ones.
bool list_rows(const sources::UnwindSource& source, TextWriter& out, sources::ErrorSink report, bool json);

// Prints how many rows each section has. As text: `json` is false.
bool count_rows(const sources::UnwindSource& source, TextWriter& out, sources::ErrorSink report, bool json);

}  // namespace windlass::cli
