// Code ranges of the C interface.
#pragma once

#include "capi/structs.h"
#include "windlass/code_range.h"

namespace windlass::capi {

// False for a struct that is not set up: of a wrong size, or with one of a pointer and a count.
[[nodiscard]] bool from_c(const windlass_code* from, Architecture architecture, CodeRange& to);

// The end of a call that adds a range. `id` may be null.
windlass_status added(const Expected<CodeRangeId>& result, std::uint64_t* id, windlass_error* error);
windlass_status done(const Expected<void>& result, windlass_error* error);

}  // namespace windlass::capi
