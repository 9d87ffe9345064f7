#include "symbols/code_points.h"

#include <dwarf.h>

#include <algorithm>
#include <cstring>

namespace windlass::symbols {
namespace {

constexpr int kDeepest = 256;

class Points {
 public:
  Points(std::vector<std::uint64_t>& to, std::uint64_t bias) : to_(to), bias_(bias) {}
  void add(std::uint64_t address) { to_.push_back(address + bias_); }
  void add_ranges(Dwarf_Die* die) {
    Dwarf_Addr base = 0, low = 0, high = 0;
    for (std::ptrdiff_t next = 0; (next = dwarf_ranges(die, next, &base, &low, &high)) > 0;) {
      add(low);
      add(high);
    }
  }
  void add_entries(Dwarf_Die* parent, int depth) {
    Dwarf_Die child;
    if (depth > kDeepest || dwarf_child(parent, &child) != 0) return;
    do {
      switch (dwarf_tag(&child)) {
        case DW_TAG_subprogram:
        case DW_TAG_inlined_subroutine:
        case DW_TAG_lexical_block:
        case DW_TAG_try_block:
        case DW_TAG_catch_block: add_ranges(&child); break;
        case DW_TAG_enumeration_type:
        case DW_TAG_subroutine_type:
        case DW_TAG_array_type: continue;
        default: break;
      }
      if (dwarf_haschildren(&child) == 1) add_entries(&child, depth + 1);
    } while (dwarf_siblingof(&child, &child) == 0);
  }
  void add_lines(Dwarf_Die* unit) {
    Dwarf_Lines* lines = nullptr;
    std::size_t count = 0;
    if (dwarf_getsrclines(unit, &lines, &count) != 0) return;
    for (std::size_t i = 0; i < count; ++i) {
      Dwarf_Addr address = 0;
      if (dwarf_lineaddr(dwarf_onesrcline(lines, i), &address) == 0) add(address);
    }
  }

 private:
  std::vector<std::uint64_t>& to_;
  std::uint64_t bias_;
};

void add_dwarf(Dwfl_Module* module, std::vector<std::uint64_t>& to) {
  Dwarf_Addr bias = 0;
  Dwarf* dwarf = dwfl_module_getdwarf(module, &bias);
  if (dwarf == nullptr) return;
  Points points(to, bias);
  Dwarf_Aranges* aranges = nullptr;
  std::size_t count = 0;
  if (dwarf_getaranges(dwarf, &aranges, &count) == 0)
    for (std::size_t i = 0; i < count; ++i) {
      Dwarf_Addr begin = 0;
      Dwarf_Word size = 0;
      if (dwarf_getarangeinfo(dwarf_onearange(aranges, i), &begin, &size, nullptr) != 0) continue;
      points.add(begin);
      points.add(begin + size);
    }
  Dwarf_CU* cu = nullptr;
  Dwarf_Die die, split;
  std::uint8_t type = 0;
  while (dwarf_get_units(dwarf, cu, &cu, nullptr, &type, &die, &split) == 0) {
    if (type != DW_UT_compile && type != DW_UT_skeleton) continue;
    points.add_ranges(&die);
    points.add_lines(&die);
    points.add_entries(type == DW_UT_skeleton && split.addr != nullptr ? &split : &die, 0);
  }
}

// Code of linkage stubs has a name each, and stubs have many sizes.
void add_sections(Dwfl_Module* module, std::vector<std::uint64_t>& to) {
  GElf_Addr bias = 0;
  Elf* elf = dwfl_module_getelf(module, &bias);
  std::size_t strings = 0;
  if (elf == nullptr || elf_getshdrstrndx(elf, &strings) != 0) return;
  for (Elf_Scn* section = nullptr; (section = elf_nextscn(elf, section)) != nullptr;) {
    GElf_Shdr header;
    if (gelf_getshdr(section, &header) == nullptr || (header.sh_flags & SHF_EXECINSTR) == 0) continue;
    const std::uint64_t begin = header.sh_addr + bias, end = begin + header.sh_size;
    to.insert(to.end(), {begin, end});
    const char* name = elf_strptr(elf, strings, header.sh_name);
    constexpr std::uint64_t kMost = 64u << 20;
    if (name == nullptr || std::strncmp(name, ".plt", 4) != 0 || header.sh_size > kMost) continue;
    for (std::uint64_t at = begin; at < end; at += 4) to.push_back(at);
  }
}

// A symbol without a size names the code behind it for a part of the way, which unwind information decides: each of
// its addresses is asked for.
bool add_symbols(Dwfl_Module* module, std::vector<std::uint64_t>& to) {
  constexpr std::uint64_t kFarthest = 4097;
  constexpr std::size_t kMost = 4'000'000;
  bool is_full = false;
  std::vector<std::uint64_t> begins, without_size;
  const int count = dwfl_module_getsymtab(module);
  for (int i = 1; i < count; ++i) {
    GElf_Sym symbol;
    GElf_Addr value = 0;
    GElf_Word section = 0;
    if (dwfl_module_getsym_info(module, i, &symbol, &value, &section, nullptr, nullptr) == nullptr) continue;
    const int type = GELF_ST_TYPE(symbol.st_info);
    if (section == SHN_UNDEF || section == SHN_ABS) continue;
    if (type != STT_FUNC && type != STT_GNU_IFUNC && type != STT_NOTYPE) continue;
    is_full |= GELF_ST_BIND(symbol.st_info) == STB_LOCAL;
    begins.push_back(value);
    to.insert(to.end(), {value, value + symbol.st_size});
    if (symbol.st_size == 0) without_size.push_back(value);
  }
  std::ranges::sort(begins);
  const std::size_t most = to.size() + kMost;
  for (const std::uint64_t begin : without_size) {
    const auto next = std::ranges::upper_bound(begins, begin);
    const std::uint64_t end = std::min(begin + kFarthest, next != begins.end() ? *next : ~std::uint64_t{0});
    for (std::uint64_t at = begin; at < end && to.size() < most; ++at) to.push_back(at);
    to.push_back(end);
  }
  return is_full;
}

}  // namespace

bool add_code_points(Dwfl_Module* module, std::vector<std::uint64_t>& to) {
  add_sections(module, to);
  add_dwarf(module, to);
  return add_symbols(module, to);
}

}  // namespace windlass::symbols
