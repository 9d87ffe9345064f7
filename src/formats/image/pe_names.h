// Names in a PE image: exports, imports, COFF symbols. Nothing here allocates but PeSymbols::make.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "formats/image/pe.h"
#include "windlass/function_ref.h"

namespace windlass::image {

struct PeExport {
  std::string_view name;  // empty: exported by ordinal only
  std::uint32_t ordinal = 0;
  std::uint32_t rva = 0;       // 0 where it is a forwarder
  std::string_view forwarder;  // "NTDLL.RtlAllocateHeap" or "NTDLL.#12"; empty: not forwarded
};

// The export tables ("The .edata Section"). A view into the image, which must outlive it.
class PeExports {
 public:
  // kNotFound: the image exports nothing. Other errors: tables outside of the image.
  [[nodiscard]] static Expected<PeExports> open(const PeImage& image);

  [[nodiscard]] std::string_view module_name() const { return module_name_; }
  [[nodiscard]] std::uint32_t name_count() const { return name_count_; }
  [[nodiscard]] std::uint32_t address_count() const { return address_count_; }
  // The i-th name in the name table (ascending by the text, which `find` relies on). Constant time.
  [[nodiscard]] Expected<PeExport> named(std::uint32_t i) const;
  // The i-th address, without its name. rva and forwarder both empty: an unused ordinal.
  [[nodiscard]] Expected<PeExport> address(std::uint32_t i) const;
  // Logarithmic in the number of names. kNotFound.
  [[nodiscard]] Expected<PeExport> find(std::string_view name) const;

 private:
  const PeImage* image_ = nullptr;
  RvaRange directory_;
  std::string_view module_name_;
  std::uint32_t ordinal_base_ = 0, address_count_ = 0, name_count_ = 0;
  ByteView addresses_, names_, ordinals_;
};

struct PeImport {
  std::string_view module;
  std::string_view name;  // empty: imported by ordinal
  std::uint32_t ordinal = 0;
};

// What the slot at `rva` of an import address table stands for ("Import Address Table"). Linear in the number of
// imported modules, of which at most 4,096 are looked at. kNotFound.
[[nodiscard]] Expected<PeImport> import_at(const PeImage& image, std::uint32_t rva);

// Calls callback(name, rva, is_function) for every COFF symbol that is defined in a section.
void each_coff_symbol(const PeImage& image,
                      FunctionRef<void(std::string_view name, std::uint32_t rva, bool is_function)> callback);

// Functions by address: COFF symbols (MinGW) and, where there are none at an address, exports.
class PeSymbols {
 public:
  struct Symbol {
    std::uint32_t rva;
    std::string_view name;
  };
  PeSymbols() = default;
  // Sorts once: n log n and one allocation.
  [[nodiscard]] static PeSymbols make(const PeImage& image);

  // The last symbol at or before `rva`. Logarithmic, no allocation.
  [[nodiscard]] std::optional<Symbol> nearest(std::uint32_t rva) const;
  // The symbol at exactly `rva`; empty name: none.
  [[nodiscard]] std::string_view at(std::uint32_t rva) const;
  [[nodiscard]] std::size_t size() const { return symbols_.size(); }
  [[nodiscard]] const std::vector<Symbol>& all() const { return symbols_; }  // ascending

 private:
  std::vector<Symbol> symbols_;
};

}  // namespace windlass::image
