#include "formats/image/function_symbols.h"

#include <elf.h>

#include <algorithm>
#include <string_view>

#include "formats/image/elf_structures.h"

namespace windlass::image {

FunctionSymbols::FunctionSymbols(const ElfImage& image) {
  for (const Section& section : image.sections())
    if (section.type == SHT_SYMTAB || section.type == SHT_DYNSYM) add(image, section);
  // Of several names the one with the largest size.
  std::sort(functions_.begin(), functions_.end(), [](const Function& a, const Function& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.size > b.size;
  });
  const auto same = [](const Function& a, const Function& b) { return a.begin == b.begin; };
  functions_.erase(std::unique(functions_.begin(), functions_.end(), same), functions_.end());
  functions_.shrink_to_fit();
}

void FunctionSymbols::add(const ElfImage& image, const Section& table) {
  const auto bytes = image.stored_bytes(table);
  if (!bytes) return;
  Expected<ByteView> names = fail(ErrorCode::kNotFound, "no names", 0);
  if (table.link < image.sections().size()) names = image.stored_bytes(image.sections()[table.link]);
  const std::size_t size = stored_size<Elf64_Sym>(image.elf_class());
  const std::size_t count = bytes->size() / size;
  for (std::size_t i = 0; i < count; ++i) {
    const auto symbol = read_stored<Elf64_Sym>(*bytes, image.elf_class(), i * size);
    if (!symbol) return;
    const unsigned type = ELF64_ST_TYPE(symbol->st_info);
    if ((type != STT_FUNC && type != STT_GNU_IFUNC) || symbol->st_shndx == SHN_UNDEF || symbol->st_value == 0) continue;
    // GCC's cold parts are functions to the symbol table only: they begin with their function's frame set up.
    const auto name = names ? names->string_at(symbol->st_name) : Expected<std::string_view>("");
    if (name && name->find(".cold") != std::string_view::npos) continue;
    functions_.push_back({symbol->st_value, symbol->st_size});
  }
}

std::uint64_t FunctionSymbols::start_of(std::uint64_t address) const {
  auto next = std::upper_bound(functions_.begin(), functions_.end(), address,
                               [](std::uint64_t a, const Function& function) { return a < function.begin; });
  // Aliases into a function's middle are seldom and nested one deep: look at a few before.
  constexpr int kMostBefore = 4;
  constexpr std::uint64_t kMostUnsized = 1 << 16;  // the last one has no next
  for (int i = 0; i < kMostBefore && next != functions_.begin(); ++i) {
    --next;
    if (next->size == 0) return i == 0 && address - next->begin < kMostUnsized ? next->begin : 0;
    if (address - next->begin < next->size) return next->begin;
  }
  return 0;
}

}  // namespace windlass::image
