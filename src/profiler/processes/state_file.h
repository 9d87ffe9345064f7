// A file in which others keep what they know.
#pragma once

#include <cstddef>
#include <string>

namespace windlass::profiler {

// Its text; empty if it cannot be read, is no regular file, has more than `most` bytes, or does not answer.
[[nodiscard]] std::string read_state_file(const std::string& path, std::size_t most);

}  // namespace windlass::profiler
