// Lines of a text file, in bounded memory.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace windlass::os {

// Calls `line` with every line of a regular file (procfs files count as such), in 256 KiB pieces, until it says no.
// False, and `note` says why: it cannot be read.
bool for_each_line(const std::string& path, std::string& note, const std::function<bool(std::string_view)>& line);

}  // namespace windlass::os
