// An object that is not linked (ET_REL), laid out as a linker would do it. Each loaded section has an address, and
// relocations lead there. Symbols of other files and slots of the GOT have addresses at which nothing is.
#pragma once

#include <cstdint>
#include <functional>
#include <unordered_set>
#include <vector>

#include "formats/image/elf.h"
#include "windlass/error.h"

namespace windlass::image {

class LaidOutObject {
 public:
  // x86-64 and AArch64 with Elf64_Rela; `image` must outlive it. Errors name the offset in the file. A relocation that
  // cannot be applied is an error of the code it is in only.
  [[nodiscard]] static Expected<LaidOutObject> make(const ElfImage& image);

  // Where the section's first byte is; 0: it is not loaded. No two sections adjoin.
  [[nodiscard]] std::uint64_t address_of(std::size_t section) const { return places_[section].address; }
  // Relocated. The view stays valid when moved.
  [[nodiscard]] Expected<ByteView> code(std::size_t section, std::uint64_t offset, std::uint64_t size) const;
  // What is in the section at `address`, all or nothing.
  [[nodiscard]] bool read(std::uint64_t address, void* to, std::size_t size) const;
  // Does the object's `.eh_frame` begin a description there?
  [[nodiscard]] bool is_described(std::uint64_t address) const { return described_.contains(address); }

 private:
  friend class Relocator;

  struct Place {
    std::uint64_t address = 0;
    std::vector<std::byte> bytes;  // none of SHT_NOBITS
  };
  struct Problem {
    std::uint64_t address;
    Error error;
  };

  std::vector<Place> places_;        // by section
  std::vector<std::size_t> loaded_;  // sections, by address
  std::vector<Problem> problems_;    // by address
  std::unordered_set<std::uint64_t> described_;
};

}  // namespace windlass::image
