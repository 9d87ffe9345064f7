// The full row in force at an address of one file: every register it restores, expressions included. For stacks that
// are unwound in user space.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "dwarf/cfi.h"
#include "dwarf/lower.h"
#include "image/elf.h"
#include "image/unwind_sections.h"

namespace windlass::walk {

// Not thread-safe. Keeps 24 bytes an FDE. The image must outlive it.
class RowFinder {
 public:
  // Null where the image has no call frame information. Linear in its size. `without_eh_frame`: of the other sections.
  static std::unique_ptr<RowFinder> make(const image::ElfImage& image, bool without_eh_frame = false);

  // `address` as the file numbers it. kNotFound where nothing covers it. Logarithmic in the number of FDEs.
  [[nodiscard]] Expected<void> find(std::uint64_t address, FrameRow& to);

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

}  // namespace windlass::walk
