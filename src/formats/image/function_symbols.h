// Where functions start, as an image's symbol tables have it: for code without unwind information.
#pragma once

#include <cstdint>
#include <vector>

#include "formats/image/elf.h"

namespace windlass::image {

// Immutable once made: any number of threads may ask. Keeps 16 bytes a function.
class FunctionSymbols {
 public:
  FunctionSymbols() = default;
  // From .symtab and .dynsym; empty where there are none. Linear (and a sort) in their size.
  explicit FunctionSymbols(const ElfImage& image);

  // The start of the function that contains `address`, as the file numbers it; 0 if none does. A symbol without a size
  // (assembly) reaches to the next one, or 64 KiB. Logarithmic; signal-safe.
  [[nodiscard]] std::uint64_t start_of(std::uint64_t address) const;
  [[nodiscard]] std::size_t size() const { return functions_.size(); }

 private:
  struct Function {
    std::uint64_t begin;
    std::uint64_t size;
  };
  void add(const ElfImage& image, const Section& table);
  std::vector<Function> functions_;  // by begin
};

}  // namespace windlass::image
