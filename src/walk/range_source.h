// The unwind source of code that was made at run time.
#pragma once

#include <memory>

#include "lookup/sources/unwind_source.h"
#include "windlass/jit/code_range.h"

namespace windlass::walk {

// The rows of a range, in addresses of the process: those given, or what its .eh_frame or function table says. Errors
// as add_own_code() names them.
[[nodiscard]] Expected<std::unique_ptr<sources::UnwindSource>> make_range_source(CodeRange range,
                                                                                 Architecture architecture);

}  // namespace windlass::walk
