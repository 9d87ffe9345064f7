#include "windlass/error.h"

#include <cstring>

#include <fmt/format.h>

namespace windlass {

std::string Error::text() const {
  if (code == ErrorCode::kSystem) {
    const char* reason = strerrordesc_np(static_cast<int>(detail));  // unlike strerror, for any thread
    return fmt::format("{}: {}", what, reason != nullptr ? reason : "unknown error");
  }
  if (detail != 0) return fmt::format("{:#x}: {} ({:#x})", where, what, detail);
  return fmt::format("{:#x}: {}", where, what);
}

}  // namespace windlass
