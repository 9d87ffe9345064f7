// The arguments of a static probe, as its note says: "8@%rdi -4@-20(%rbp) 8@$5", "8@x0 8@[sp, 16]".
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "windlass_allocation_layout.h"

namespace windlass::profiler {

// Nothing for an argument that is none of these forms: a register, a constant, memory at a register and an offset.
[[nodiscard]] std::vector<std::optional<wl_operand>> parse_operands(std::string_view text);

// The argument of a function, counted from 0, where the function is entered.
[[nodiscard]] wl_operand function_argument(unsigned number);

}  // namespace windlass::profiler
