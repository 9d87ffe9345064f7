#include "jit/registries/executable.h"

#include <fcntl.h>

#include <algorithm>

#include "os/descriptor.h"
#include "walk/own/executable.h"

namespace windlass::registries {

Expected<void> check_executable(std::span<const Run> runs, walk::CodeExtent& known) {
  os::Descriptor maps;
  for (const Run& run : runs) {
    for (std::uint64_t at = run.begin; at < run.end; at = known.end) {
      if (known.holds(at, 1)) continue;
      if (!maps) maps = os::Descriptor(::open("/proc/self/maps", O_RDONLY | O_CLOEXEC));
      if (!maps) return {};
      walk::CodeExtent found;
      const walk::Executable answer = walk::query_executable(maps.get(), at, found);
      if (answer == walk::Executable::kUnknown) return {};
      if (answer == walk::Executable::kNo)
        return fail(ErrorCode::kMalformed, "code that is not executable", at, run.begin);
      known = found;
    }
  }
  return {};
}

}  // namespace windlass::registries
