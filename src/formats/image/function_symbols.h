// Where functions start, as an image's symbol tables have it: for code without unwind information.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
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
  // The same of an image from which nothing is kept. Linear, but far cheaper than a FunctionSymbols: nothing is sorted,
  // and few names are read.
  [[nodiscard]] static std::uint64_t start_in(const ElfImage& image, std::uint64_t address);
  [[nodiscard]] std::size_t size() const { return functions_.size(); }

 private:
  struct Function {
    std::uint64_t begin;
    std::uint64_t size;
  };
  // Aliases into a function's middle are seldom and nested one deep: so many symbols before an address are looked at.
  static constexpr std::size_t kMostBefore = 4;
  template <typename Take>
  static void for_each(const ElfImage& image, Take take);
  // `before`: functions at or in front of the address, the nearest first.
  [[nodiscard]] static std::uint64_t start_among(std::span<const Function> before, std::uint64_t address);
  std::vector<Function> functions_;  // by begin
};

}  // namespace windlass::image
