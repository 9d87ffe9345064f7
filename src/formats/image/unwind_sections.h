// The call frame information of an ELF image, wherever it is kept, and its SFrame section.
#pragma once

#include <memory>
#include <vector>

#include "formats/dwarf/cfi.h"
#include "formats/image/elf.h"
#include "formats/sframe/read.h"

namespace windlass::image {

[[nodiscard]] constexpr Architecture architecture_of(Machine machine) {
  switch (machine) {
    case Machine::kX86_64: return Architecture::kX86_64;
    case Machine::kAArch64: return Architecture::kAArch64;
    case Machine::kI386: break;
  }
  return Architecture::kI386;
}

// Sections ready to be read; owns what had to be decompressed. Movable: the views stay valid.
struct UnwindSections {
  std::vector<dwarf::CfiSection> sections;
  std::vector<std::vector<std::byte>> storage;
};

// The sections, in this order:
// - `.eh_frame`, by its section header. Without a header, from the place that `.eh_frame_hdr` names up to the
//   terminator.
// - `.debug_frame`: plain, SHF_COMPRESSED or `.zdebug_frame`.
// - `.debug_frame` and `.eh_frame` of the xz-compressed image in `.gnu_debugdata`.
//
// A section that cannot be read is reported with its file offset. No unwind information at all is no error.
[[nodiscard]] UnwindSections find_unwind_sections(const ElfImage& image, dwarf::ErrorSink report);

// Whether there may be sections beside `.eh_frame`. Cheap.
[[nodiscard]] bool has_other_unwind_sections(const ElfImage& image);

// `.eh_frame` only: what the table of a module is made of first.
[[nodiscard]] Expected<dwarf::CfiSection> find_eh_frame(const ElfImage& image);

// Finds `.sframe` by the section header or, without one, by PT_GNU_SFRAME. kNotFound: the image has none. Any other
// error says how the section's header is damaged.
[[nodiscard]] Expected<sframe::Section> find_sframe(const ElfImage& image);

}  // namespace windlass::image
