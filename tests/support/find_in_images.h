// Where something is that an image of a process has: a runtime, say.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "os/proc_file.h"
#include "os/proc_maps.h"
#include "windlass/walk.h"

namespace windlass::test {

inline std::vector<os::ProcMap> maps_of(pid_t pid) {
  return os::parse_proc_maps(os::read_proc_file("/proc/" + std::to_string(pid) + "/maps"));
}

// What find(memory, base) gives for the first image that has it.
template <typename Find>
[[nodiscard]] std::optional<std::uint64_t> find_in_images(const Memory& memory, std::span<const os::ProcMap> maps,
                                                          Find&& find) {
  for (const os::ProcMap& map : maps)
    if (map.has_file() && map.offset == 0)
      if (const auto found = find(memory, map.begin)) return *found;
  return std::nullopt;
}

}  // namespace windlass::test
