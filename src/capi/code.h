// Code ranges of the C interface.
#pragma once

#include <deque>
#include <vector>

#include "capi/structs.h"
#include "windlass/jit/code_range.h"
#include "windlass/jit/generated_function.h"
#include "windlass/prologue.h"

namespace windlass::capi {

// False for a struct that is not set up: of a wrong size, or with one of a pointer and a count.
[[nodiscard]] bool from_c(const windlass_code* from, Architecture architecture, CodeRange& to);

// An array of rows, which may be empty. False where one is not set up.
[[nodiscard]] bool from_c(const windlass_row* from, std::size_t count, Architecture architecture,
                          std::vector<FrameRow>& to);
// Functions of the own process, with the memory behind their spans and pointers.
struct GeneratedFunctions {
  std::vector<GeneratedFunction> all;
  std::deque<Prologue> prologues;
  std::deque<std::vector<FrameRow>> rows;
};
// An array of a caller's structs, of whichever version; each has the size of the first (generated.cpp).
[[nodiscard]] windlass_status from_c(const windlass_generated* from, std::size_t count, GeneratedFunctions& to,
                                     windlass_error* error);

// The end of a call that adds a range. `id` may be null.
windlass_status added(const Expected<CodeRangeId>& result, std::uint64_t* id, windlass_error* error);
windlass_status done(const Expected<void>& result, windlass_error* error);

}  // namespace windlass::capi
