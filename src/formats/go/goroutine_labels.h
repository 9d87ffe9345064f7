// Where a goroutine has the labels that runtime/pprof sets (pprof.Do, pprof.SetGoroutineLabels).
#pragma once

#include <cstdint>
#include <optional>

#include "formats/image/elf.h"

namespace windlass::runtimes::go {

// From the thread's pointer: [[[[thread + first] + m] + current] + labels].
struct GoroutineLabels {
  std::int64_t first = 0;
  std::uint64_t m = 0, current = 0, labels = 0;
  bool slice = false;  // From Go 1.24 on; a map before.
};

// A release, as 1.19. Nothing: the image does not say. From Go 1.18 on (src/debug/buildinfo/buildinfo.go).
struct Release {
  unsigned major = 0, minor = 0;
  auto operator<=>(const Release&) const = default;
};
[[nodiscard]] std::optional<Release> find_release(const image::ElfImage& image);

// Of a program of Go 1.18 to 1.26 for x86-64. Nothing for others, and if the code of the runtime is other than known.
// Linear in the functions.
[[nodiscard]] std::optional<GoroutineLabels> find_goroutine_labels(const image::ElfImage& image);

}  // namespace windlass::runtimes::go
