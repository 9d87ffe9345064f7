// Why a program does not load the library that records allocations.
#pragma once

#include <optional>
#include <string>

namespace windlass::profiler {

struct PreloadObstacle {
  std::string text;      // "it is statically linked"
  bool ends_it = false;  // the program would not even start with the library
};

// Of the program in that file; nothing if none is known.
[[nodiscard]] std::optional<PreloadObstacle> preload_obstacle(const std::string& path);

}  // namespace windlass::profiler
