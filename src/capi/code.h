// Code ranges of the C interface.
#pragma once

#include <vector>

#include "capi/structs.h"
#include "windlass/jit/code_range.h"
#include "windlass/prologue.h"

namespace windlass::capi {

// False for a struct that is not set up: of a wrong size, or with one of a pointer and a count.
[[nodiscard]] bool from_c(const windlass_code* from, Architecture architecture, CodeRange& to);

// An array of rows, which may be empty. False where one is not set up.
[[nodiscard]] bool from_c(const windlass_row* from, std::size_t count, Architecture architecture,
                          std::vector<FrameRow>& to);
// Code of the own process (registration.cpp).
[[nodiscard]] bool prologue_from_c(const windlass_generated& from, Prologue& to);

// The end of a call that adds a range. `id` may be null.
windlass_status added(const Expected<CodeRangeId>& result, std::uint64_t* id, windlass_error* error);
windlass_status done(const Expected<void>& result, windlass_error* error);

}  // namespace windlass::capi
