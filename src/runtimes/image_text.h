// Finds a text among the constants or the data of an ELF file, in its loaded image: what it says of itself and exports
// no symbol for.
#pragma once

#include <cstdint>
#include <string_view>

#include "windlass/error.h"
#include "windlass/walk.h"

namespace windlass::runtimes {

enum class SegmentKind : std::uint8_t {
  kConstant,  // cannot be written
  kData,
};

// Where the 64-bit image at `base` has the text first. kNotFound. Reads these segments, as far as the file has them.
[[nodiscard]] Expected<std::uint64_t> find_text(const Memory& memory, std::uint64_t base, SegmentKind kind,
                                                std::string_view text);

}  // namespace windlass::runtimes
