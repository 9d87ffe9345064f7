// Static probes that a program offers in its code (USDT): the notes that sys/sdt.h of SystemTap writes. Their form:
// sourceware.org/systemtap/wiki/UserSpaceProbeImplementation.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "formats/image/elf.h"

namespace windlass::profiler {

// Offsets in the file.
struct StaticProbe {
  std::uint64_t place = 0;      // the instruction
  std::uint64_t semaphore = 0;  // what counts who listens, 2 bytes; 0: there is none
  std::string arguments{};      // "8@%rdi -4@-20(%rbp)": where they are
};

// All places of the probe in the image, in the order of the notes. Notes that are cut off or lead out of the file are
// left out. Linear in the notes.
[[nodiscard]] std::vector<StaticProbe> find_static_probes(const image::ElfImage& image, std::string_view provider,
                                                          std::string_view name);

}  // namespace windlass::profiler
