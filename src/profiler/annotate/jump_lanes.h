// Arrows of jumps in front of instructions.
#pragma once

#include <string>
#include <vector>

#include "profiler/annotate/annotation.h"

namespace windlass::annotate {

// One text a line of `code`, all of one width: "╭─", "│ ", "╰→". Jumps from and to lines that are there have an arrow.
// Short jumps are drawn nearest to the instructions; those that find no room within `lanes` are left out.
[[nodiscard]] std::vector<std::string> jump_lanes(const std::vector<CodeLine>& code, std::size_t lanes = 4);

}  // namespace windlass::annotate
