// An image as a loader lays it out, without its headers and relocations.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "formats/image/pe.h"

namespace windlass::test {

inline void lay_out(const image::PeImage& image, std::uint8_t* to, std::uint64_t size) {
  for (const image::PeSection& section : image.sections()) {
    const auto bytes = image.from_rva(section.rva);
    if (bytes && section.rva < size)
      std::memcpy(to + section.rva, bytes->data(), std::min<std::uint64_t>(bytes->size(), size - section.rva));
  }
}

}  // namespace windlass::test
