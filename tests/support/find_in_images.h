// Where something is that an image of a process has: a runtime, say.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "process/proc_file.h"
#include "process/proc_maps.h"
#include "windlass/walk.h"

namespace windlass::test {

inline std::vector<process::ProcMap> maps_of(pid_t pid) {
  return process::parse_proc_maps(process::read_proc_file("/proc/" + std::to_string(pid) + "/maps"));
}

// What find(memory, base) gives for the first image that has it.
template <typename Find>
[[nodiscard]] std::optional<std::uint64_t> find_in_images(const Memory& memory, std::span<const process::ProcMap> maps,
                                                          Find&& find) {
  for (const process::ProcMap& map : maps)
    if (map.has_file() && map.offset == 0)
      if (const auto found = find(memory, map.begin)) return *found;
  return std::nullopt;
}

}  // namespace windlass::test
