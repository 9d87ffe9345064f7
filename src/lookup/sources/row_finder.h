// An index of all the functions of an ELF file's call frame information, and the full row in force at an address: every
// register it restores, expressions included.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "formats/dwarf/cfi.h"
#include "formats/dwarf/lower.h"
#include "formats/image/elf.h"
#include "formats/image/unwind_sections.h"

namespace windlass::sources {

// Not thread-safe. Keeps 24 bytes an FDE. The image must outlive it.
class RowFinder {
 public:
  // Null where the image has no call frame information. Linear in its size. `without_eh_frame`: of the other sections.
  static std::unique_ptr<RowFinder> make(const image::ElfImage& image, bool without_eh_frame = false);

  // `address` as the file numbers it. kNotFound where nothing covers it. Logarithmic in the number of FDEs.
  [[nodiscard]] Expected<void> find(std::uint64_t address, FrameRow& to);

  // The FDE that covers an address. Its CIE is valid as long as this.
  struct Located {
    std::uint32_t section;  // of find_row_sections
    dwarf::Fde fde;
  };
  [[nodiscard]] Expected<Located> locate(std::uint64_t address);
  // All of them, ascending; of those that begin at the same address the one that find() prefers. callback: false ends.
  void for_each(FunctionRef<bool(const Located&)> callback, dwarf::ErrorSink report);

  [[nodiscard]] std::size_t section_count() const { return sections_.sections.size(); }
  [[nodiscard]] const dwarf::CfiSection& section(std::uint32_t number) const { return sections_.sections[number]; }

  ~RowFinder();

 private:
  RowFinder() = default;
  struct Section;
  struct Entry {
    std::uint64_t begin;
    std::uint64_t offset;  // of the FDE in its section
    std::uint32_t length;  // of the range
    std::uint32_t section;
  };
  void index(std::uint32_t number);

  image::UnwindSections sections_;
  std::vector<std::unique_ptr<Section>> readers_;
  std::vector<Entry> entries_;  // by begin
};

}  // namespace windlass::sources
