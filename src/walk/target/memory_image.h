// An ELF file put together again from where it is loaded: for files that can no longer be opened, and for the vdso.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "formats/image/elf.h"
#include "windlass/walk.h"

namespace windlass::walk {

// What the headers at the image's first mapping say. kNotFound if there is no ELF header in memory at `base`.
struct LoadedHeaders {
  std::vector<image::Segment> segments;
  std::string build_id;    // empty if its note is not in memory
  std::uint64_t bias = 0;  // base - the address that the file gives its first byte
  std::uint64_t entry = 0;
};
[[nodiscard]] Expected<LoadedHeaders> read_loaded_headers(const Memory& memory, std::uint64_t base);

// The bytes of the file as far as PT_LOADs put them into memory, at their offsets in the file; of section headers only
// those of the dynamic symbols (dynamic_symbols.h). Parts that cannot be read are zero; kNotFound if the unwind
// information (PT_GNU_EH_FRAME) is among them, kLimit above 256 MiB.
[[nodiscard]] Expected<std::vector<std::byte>> read_memory_image(const Memory& memory, std::uint64_t base);

}  // namespace windlass::walk
