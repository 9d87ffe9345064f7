// Which symbol an address lies in. A wrong name is worse than none, so:
//  - a symbol with a size names [st_value, st_value + st_size) and nothing else;
//  - a symbol without one (hand-written assembly) names what follows it in its section up to the next symbol, only
//    where the table is a full one (a stripped file's .dynsym says nothing about the local functions between), only
//    near by, and only if the unwind information does not say that a function begins or ends in between.
#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <tuple>

#include "symbols/symbol_file.h"

namespace windlass::symbols {

namespace {

constexpr std::uint64_t kFarthestFromZeroSize = 4096;

struct Candidate {
  std::uint64_t value = 0;
  std::string_view name;
  // Of several symbols: the innermost, a function before a label, a global before an alias, the plainer name.
  [[nodiscard]] auto rank() const { return std::tuple(value, is_function, binding, -underscores, -length); }
  bool is_function = false;
  int binding = 0;
  int underscores = 0;
  int length = 0;
};

Candidate candidate_of(std::string_view name, const GElf_Sym& symbol, GElf_Addr value) {
  const unsigned char bind = GELF_ST_BIND(symbol.st_info);
  Candidate made{.value = value, .name = name};
  made.is_function = GELF_ST_TYPE(symbol.st_info) != STT_NOTYPE;
  made.binding = bind == STB_GLOBAL ? 2 : bind == STB_WEAK ? 1 : 0;
  made.underscores = static_cast<int>(std::min(name.find_first_not_of('_'), name.size()));
  made.length = static_cast<int>(name.size());
  return made;
}

// Where something begins, for symbols without a size.
struct Start {
  std::uint64_t value;
  std::uint64_t size;
  std::uint64_t section_end;
  std::string_view name;
};

// Calls handle(name, symbol, address, section, elf, bias) for every defined symbol that can name code.
template <typename Handle>
void for_each_code_symbol(Dwfl_Module* module, Handle handle) {
  const int count = dwfl_module_getsymtab(module);
  for (int i = 1; i < count; ++i) {
    GElf_Sym symbol;
    GElf_Addr value = 0, bias = 0;
    GElf_Word section = 0;
    Elf* elf = nullptr;
    const char* name = dwfl_module_getsym_info(module, i, &symbol, &value, &section, &elf, &bias);
    const int type = GELF_ST_TYPE(symbol.st_info);
    if (name == nullptr || *name == '\0' || section == SHN_UNDEF || section == SHN_ABS) continue;
    if (type != STT_FUNC && type != STT_GNU_IFUNC && type != STT_NOTYPE) continue;
    if (name[0] == '$' || (name[0] == '.' && name[1] == 'L')) continue;  // assemblers' own marks
    handle(name, symbol, value, section, elf, bias);
  }
}

// "memcpy@@GLIBC_2.14" -> "memcpy"
std::string plain_name(std::string_view name) {
  const auto at = name.find('@');
  return std::string(at == std::string_view::npos || at == 0 ? name : name.substr(0, at));
}

bool unwind_information_allows(Dwfl_Module* module, std::uint64_t symbol, std::uint64_t address) {
  Dwarf_Addr bias = 0;
  Dwarf_CFI* cfi = dwfl_module_eh_cfi(module, &bias);
  if (cfi == nullptr) return true;
  Dwarf_Addr begin = 0, end = 0;
  const auto is_covered = [&](std::uint64_t at) {
    Dwarf_Frame* frame = nullptr;
    if (dwarf_cfi_addrframe(cfi, at - bias, &frame) != 0) return false;
    bool signal = false;
    dwarf_frame_info(frame, &begin, &end, &signal);
    std::free(frame);
    return true;
  };
  // libdw gives the bounds of a row, not of the FDE; one row is certainly of one function.
  if (is_covered(symbol)) return address - bias < end;
  return !is_covered(address);
}

// One for each address that still has no name.
void name_from_zero_size(Dwfl_Module* module, std::span<const std::uint64_t> addresses, std::vector<std::string>& names,
                         std::span<std::uint64_t> begins) {
  std::vector<Start> starts;
  for_each_code_symbol(module, [&](const char* name, const GElf_Sym& symbol, GElf_Addr value, GElf_Word section,
                                   Elf* elf, GElf_Addr bias) {
    GElf_Shdr header;
    Elf_Scn* place = elf_getscn(elf, section);
    if (place == nullptr || gelf_getshdr(place, &header) == nullptr || (header.sh_flags & SHF_EXECINSTR) == 0) return;
    starts.push_back({value, symbol.st_size, header.sh_addr + header.sh_size + bias, name});
  });
  std::stable_sort(starts.begin(), starts.end(), [](const Start& a, const Start& b) { return a.value < b.value; });
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    if (!names[i].empty()) continue;
    const auto after = std::upper_bound(starts.begin(), starts.end(), addresses[i],
                                        [](std::uint64_t at, const Start& start) { return at < start.value; });
    if (after == starts.begin()) continue;
    const auto first = std::lower_bound(starts.begin(), after, (after - 1)->value,
                                        [](const Start& start, std::uint64_t at) { return start.value < at; });
    const bool none_has_size = std::all_of(first, after, [](const Start& start) { return start.size == 0; });
    if (none_has_size && addresses[i] < first->section_end && addresses[i] - first->value <= kFarthestFromZeroSize &&
        unwind_information_allows(module, first->value, addresses[i])) {
      names[i] = plain_name(first->name);
      begins[i] = first->value;
    }
  }
}

}  // namespace

std::vector<std::string> symbols_at(Dwfl_Module* module, std::span<const std::uint64_t> addresses,
                                    std::span<std::uint64_t> begins) {
  std::vector<Candidate> best(addresses.size());
  bool is_full_table = false;
  for_each_code_symbol(module,
                       [&](const char* name, const GElf_Sym& symbol, GElf_Addr value, GElf_Word, Elf*, GElf_Addr) {
                         is_full_table |= GELF_ST_BIND(symbol.st_info) == STB_LOCAL;
                         auto address = std::lower_bound(addresses.begin(), addresses.end(), value);
                         if (address == addresses.end() || *address - value >= symbol.st_size) return;
                         const auto candidate = candidate_of(name, symbol, value);
                         for (; address != addresses.end() && *address - value < symbol.st_size; ++address) {
                           auto& chosen = best[static_cast<std::size_t>(address - addresses.begin())];
                           if (chosen.name.empty() || chosen.rank() < candidate.rank()) chosen = candidate;
                         }
                       });
  std::vector<std::string> names(addresses.size());
  bool all_named = true;
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    names[i] = plain_name(best[i].name);
    begins[i] = best[i].value;
    all_named &= !names[i].empty();
  }
  if (!all_named && is_full_table) name_from_zero_size(module, addresses, names, begins);
  return names;
}

}  // namespace windlass::symbols
