#include "windlass/error.h"

#include <cstring>

#include <fmt/format.h>

namespace windlass {

std::string Error::text() const {
  if (code == ErrorCode::kSystem) return fmt::format("{}: {}", what, std::strerror(static_cast<int>(detail)));
  if (detail != 0) return fmt::format("{:#x}: {} ({:#x})", where, what, detail);
  return fmt::format("{:#x}: {}", where, what);
}

}  // namespace windlass
