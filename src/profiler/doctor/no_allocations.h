// Why a program does not load the library that records allocations, and what that library does not see.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace windlass::profiler {

struct PreloadObstacle {
  std::string text;      // "it is statically linked"
  bool ends_it = false;  // the program would not even start with the library
};

// Of the program in that file; nothing if none is known.
[[nodiscard]] std::optional<PreloadObstacle> preload_obstacle(const std::string& path);

// The language whose objects lie on a heap of the file's own, which is not malloc's: "Java", ".NET", "JavaScript",
// "Go". Empty for other programs and libraries.
[[nodiscard]] std::string_view managed_heap_of(const std::string& path);

}  // namespace windlass::profiler
