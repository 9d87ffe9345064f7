// The "binary annotations" of an inlined call: which code is its own, and the lines of that.
#pragma once

#include <cstdint>
#include <optional>

#include "formats/pdb/lines.h"
#include "windlass/bytes.h"
#include "windlass/function_ref.h"

namespace windlass::pdb {

// The line at `offset`, which counts from the begin of the function that has the frame. `first`: where the inlined
// function begins in its source. None: the code there is not of the inlined call.
[[nodiscard]] std::optional<SourceLine> inlined_line(ByteView annotations, SourceLine first, std::uint32_t offset);

// Each offset at which inlined_line() may have another answer.
void each_inlined_offset(ByteView annotations, FunctionRef<void(std::uint32_t)> add);

}  // namespace windlass::pdb
