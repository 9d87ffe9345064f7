// libwindlass_alloc.so, which this program carries, as a gzip file.
#pragma once

#include <cstddef>
#include <span>

namespace windlass::profiler {

// Empty if this build could not make it.
[[nodiscard]] std::span<const std::byte> alloc_library();

}  // namespace windlass::profiler
