#include "formats/image/function_symbols.h"

#include <elf.h>

#include <algorithm>
#include <string_view>

#include "formats/image/elf_structures.h"

namespace windlass::image {

// take(function, has_own_start) for every symbol of a function. has_own_start() reads its name: GCC's cold parts are
// functions to the symbol table only, and begin with their function's frame set up.
template <typename Take>
void FunctionSymbols::for_each(const ElfImage& image, Take take) {
  const std::size_t size = stored_size<Elf64_Sym>(image.elf_class());
  for (const Section& table : image.sections()) {
    if (table.type != SHT_SYMTAB && table.type != SHT_DYNSYM) continue;
    const auto bytes = image.stored_bytes(table);
    if (!bytes) continue;
    Expected<ByteView> names = fail(ErrorCode::kNotFound, "no names", 0);
    if (table.link < image.sections().size()) names = image.stored_bytes(image.sections()[table.link]);
    for (std::size_t i = 0; i < bytes->size() / size; ++i) {
      const auto symbol = read_stored<Elf64_Sym>(*bytes, image.elf_class(), i * size);
      if (!symbol) break;
      const unsigned type = ELF64_ST_TYPE(symbol->st_info);
      if ((type != STT_FUNC && type != STT_GNU_IFUNC) || symbol->st_shndx == SHN_UNDEF || symbol->st_value == 0)
        continue;
      take(Function{symbol->st_value, symbol->st_size}, [&] {
        const auto name = names ? names->string_at(symbol->st_name) : Expected<std::string_view>("");
        return !name || name->find(".cold") == std::string_view::npos;
      });
    }
  }
}

FunctionSymbols::FunctionSymbols(const ElfImage& image) {
  for_each(image, [this](const Function& function, auto has_own_start) {
    if (has_own_start()) functions_.push_back(function);
  });
  // Of several names the one with the largest size.
  std::sort(functions_.begin(), functions_.end(), [](const Function& a, const Function& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.size > b.size;
  });
  const auto same = [](const Function& a, const Function& b) { return a.begin == b.begin; };
  functions_.erase(std::unique(functions_.begin(), functions_.end(), same), functions_.end());
  functions_.shrink_to_fit();
}

std::uint64_t FunctionSymbols::start_among(std::span<const Function> before, std::uint64_t address) {
  constexpr std::uint64_t kMostUnsized = 1 << 16;  // the last one has no next
  for (const Function& function : before) {
    if (function.size == 0)
      return &function == before.data() && address - function.begin < kMostUnsized ? function.begin : 0;
    if (address - function.begin < function.size) return function.begin;
  }
  return 0;
}

std::uint64_t FunctionSymbols::start_of(std::uint64_t address) const {
  auto next = std::upper_bound(functions_.begin(), functions_.end(), address,
                               [](std::uint64_t a, const Function& function) { return a < function.begin; });
  Function before[kMostBefore];
  std::size_t count = 0;
  while (count < kMostBefore && next != functions_.begin()) before[count++] = *--next;
  return start_among({before, count}, address);
}

std::uint64_t FunctionSymbols::start_in(const ElfImage& image, std::uint64_t address) {
  Function before[kMostBefore];
  std::size_t count = 0;
  for_each(image, [&](const Function& function, auto has_own_start) {
    if (function.begin > address) return;
    std::size_t at = 0;
    while (at < count && before[at].begin > function.begin) ++at;
    if (at == kMostBefore) return;
    const bool is_known = at < count && before[at].begin == function.begin;
    if ((is_known && before[at].size >= function.size) || !has_own_start()) return;
    if (!is_known) {
      count = std::min(count + 1, kMostBefore);
      std::copy_backward(before + at, before + count - 1, before + count);
    }
    before[at] = function;
  });
  return start_among({before, count}, address);
}

}  // namespace windlass::image
