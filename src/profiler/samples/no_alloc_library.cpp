// In place of alloc_library.cpp, where the library is not built.
#include "profiler/samples/alloc_library.h"

namespace windlass::profiler {

std::span<const std::byte> alloc_library() { return {}; }

}  // namespace windlass::profiler
