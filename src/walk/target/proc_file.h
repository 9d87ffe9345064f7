// Files of /proc, whose size nobody tells beforehand.
#pragma once

#include <string>

namespace windlass::walk {

// Its text; empty if it cannot be read or is empty. At most `limit` bytes.
[[nodiscard]] std::string read_proc_file(const std::string& path, std::size_t limit = std::size_t{64} << 20);

}  // namespace windlass::walk
