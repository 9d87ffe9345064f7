// The call frame information that rows are made of.
#pragma once

#include "formats/image/elf.h"
#include "formats/image/unwind_sections.h"

namespace windlass::sources {

// As image::find_unwind_sections(), but for an .eh_frame of x86-64 that describes no function: each FDE has a single
// row, that of a frame record, for a range of many functions. Dart's compiler writes such a section
// (runtime/vm/elf.cc). At the first and last instructions of each function, and in functions without a frame, the
// caller would be left out. Such a section is reported as kUnsupported.
//
// On AArch64 Dart's code has its stack pointer in x15, so that nothing else leads to the caller. The section is used.
[[nodiscard]] image::UnwindSections find_row_sections(const image::ElfImage& image, dwarf::ErrorSink report);

// As image::find_eh_frame(), but for such a section.
[[nodiscard]] Expected<dwarf::CfiSection> find_row_eh_frame(const image::ElfImage& image);

}  // namespace windlass::sources
