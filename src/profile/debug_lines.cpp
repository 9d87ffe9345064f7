// Functions, inlined frames and lines from DWARF through libdw. Only the units that own a wanted address are read: they
// are found by .debug_aranges and, for compilers that leave it out (clang), by the ranges of the unit entries. A unit's
// functions are indexed once, so that an address costs a search and a descent into one function.
#include <dwarf.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>

#include "profile/symbol_file.h"

namespace windlass::profile {

namespace {

constexpr int kDeepestEntry = 256;           // nesting of entries followed
constexpr std::size_t kMostEntries = 20'000'000;  // entries indexed in one unit

struct PcRange {
  Dwarf_Addr low, high;
  Dwarf_Die die;
  [[nodiscard]] bool contains(Dwarf_Addr pc) const { return pc >= low && pc < high; }
};

void add_ranges(Dwarf_Die* die, std::vector<PcRange>& ranges) {
  Dwarf_Addr base = 0, low = 0, high = 0;
  for (std::ptrdiff_t next = 0; (next = dwarf_ranges(die, next, &base, &low, &high)) > 0;)
    if (low < high) ranges.push_back({low, high, *die});
}

// Innermost range first among those that contain pc; functions hardly ever overlap.
const PcRange* find_range(const std::vector<PcRange>& sorted, Dwarf_Addr pc) {
  auto after = std::upper_bound(sorted.begin(), sorted.end(), pc,
                                [](Dwarf_Addr at, const PcRange& range) { return at < range.low; });
  for (int tries = 0; after != sorted.begin() && tries < 8; ++tries)
    if ((--after)->contains(pc)) return &*after;
  return nullptr;
}

void sort_ranges(std::vector<PcRange>& ranges) {
  std::stable_sort(ranges.begin(), ranges.end(), [](const auto& a, const auto& b) { return a.low < b.low; });
}

const char* string_of(Dwarf_Die* die, unsigned attribute) {
  Dwarf_Attribute memory;
  return dwarf_formstring(dwarf_attr_integrate(die, attribute, &memory));
}

// One compilation unit: its functions by address.
class Unit {
 public:
  explicit Unit(const Dwarf_Die& unit) : lines_(unit), entries_(unit) {
    Dwarf_Die split;
    std::uint8_t type = 0;
    if (dwarf_cu_info(entries_.cu, nullptr, &type, nullptr, &split, nullptr, nullptr, nullptr) == 0 &&
        type == DW_UT_skeleton && split.addr != nullptr)
      entries_ = split;  // the entries are in a .dwo file, the line table is here
    index_children(&entries_, 0);
    sort_ranges(functions_);
  }

  // Outermost first: the function, then the calls inlined into it that contain pc.
  std::vector<Dwarf_Die> scopes_at(Dwarf_Addr pc) {
    std::vector<Dwarf_Die> scopes;
    const PcRange* function = find_range(functions_, pc);
    if (function == nullptr) return scopes;
    scopes.push_back(function->die);
    Dwarf_Die inside = function->die;
    for (int depth = 0; depth < kDeepestEntry && descend(inside, pc); ++depth)
      if (dwarf_tag(&inside) == DW_TAG_inlined_subroutine) scopes.push_back(inside);
    return scopes;
  }
  Dwarf_Line* line_at(Dwarf_Addr pc) { return dwarf_getsrc_die(&lines_, pc); }
  const char* file_name(Dwarf_Word index) {
    if (files_ == nullptr && dwarf_getsrcfiles(&entries_, &files_, &file_count_) != 0) return nullptr;
    return index < file_count_ ? dwarf_filesrc(files_, index, nullptr, nullptr) : nullptr;
  }

 private:
  void index_children(Dwarf_Die* parent, int depth) {
    Dwarf_Die child;
    if (depth > 32 || dwarf_child(parent, &child) != 0) return;
    do {
      if (++indexed_ > kMostEntries) return;
      switch (dwarf_tag(&child)) {
        case DW_TAG_subprogram: add_ranges(&child, functions_); break;
        case DW_TAG_namespace: case DW_TAG_class_type: case DW_TAG_structure_type: case DW_TAG_union_type:
        case DW_TAG_module: case DW_TAG_enumeration_type: index_children(&child, depth + 1); break;
        default: break;
      }
    } while (dwarf_siblingof(&child, &child) == 0);
  }
  static bool descend(Dwarf_Die& die, Dwarf_Addr pc) {
    Dwarf_Die child;
    if (dwarf_child(&die, &child) != 0) return false;
    do {
      const int tag = dwarf_tag(&child);
      if (tag != DW_TAG_inlined_subroutine && tag != DW_TAG_lexical_block && tag != DW_TAG_try_block &&
          tag != DW_TAG_catch_block)
        continue;
      if (dwarf_haspc(&child, pc) == 1) {
        die = child;
        return true;
      }
    } while (dwarf_siblingof(&child, &child) == 0);
    return false;
  }

  Dwarf_Die lines_, entries_;
  std::vector<PcRange> functions_;
  std::size_t indexed_ = 0;
  Dwarf_Files* files_ = nullptr;
  std::size_t file_count_ = 0;
};

class DwarfNames {
 public:
  DwarfNames(Dwarf* dwarf, ModuleNames& names) : dwarf_(dwarf), names_(names) {
    dwarf_getaranges(dwarf, &aranges_, nullptr);
  }

  void name(std::size_t index, Dwarf_Addr pc, const std::string& symbol) {
    Unit* unit = unit_of(pc);
    if (unit == nullptr) return;
    auto scopes = unit->scopes_at(pc);
    if (scopes.empty()) return;
    const char* file = nullptr;
    int line = 0;
    if (Dwarf_Line* found = unit->line_at(pc); found != nullptr) {
      file = dwarf_linesrc(found, nullptr, nullptr);
      dwarf_lineno(found, &line);
    }
    // From the innermost out: where a frame is, is where the next inner one was called.
    for (std::size_t i = scopes.size(); i-- > 0;) {
      Dwarf_Die& scope = scopes[i];
      add(index, scope, i == 0 ? symbol : std::string(), file, line);
      if (i == 0) break;
      Dwarf_Attribute memory;
      Dwarf_Word call_file = 0, call_line = 0;
      const bool has_file = dwarf_formudata(dwarf_attr(&scope, DW_AT_call_file, &memory), &call_file) == 0;
      if (dwarf_formudata(dwarf_attr(&scope, DW_AT_call_line, &memory), &call_line) != 0) call_line = 0;
      file = has_file ? unit->file_name(call_file) : nullptr;
      line = static_cast<int>(call_line);
    }
  }

 private:
  void add(std::size_t index, Dwarf_Die& scope, const std::string& symbol, const char* file, int line) {
    const char* name = string_of(&scope, DW_AT_linkage_name);
    if (name == nullptr) name = string_of(&scope, DW_AT_MIPS_linkage_name);
    const bool is_mangled = symbol.starts_with("_Z") || symbol.starts_with("_R");
    if (name == nullptr && !is_mangled) name = string_of(&scope, DW_AT_name);
    if (name == nullptr) name = symbol.empty() ? "[unnamed]" : symbol.c_str();
    const char* declared_in = dwarf_decl_file(&scope);
    int start_line = 0;
    if (file == nullptr) file = declared_in;
    if (declared_in != nullptr && std::strcmp(declared_in, file) == 0) dwarf_decl_line(&scope, &start_line);
    const auto function = names_.function(name, file == nullptr ? "" : file, static_cast<std::uint32_t>(start_line));
    names_.add_line(index, {function, static_cast<std::uint32_t>(line)});
  }

  Unit* unit_of(Dwarf_Addr pc) {
    Dwarf_Arange* arange = aranges_ == nullptr ? nullptr : dwarf_getarange_addr(aranges_, pc);
    Dwarf_Off offset = 0;
    Dwarf_Die die;
    if (arange != nullptr && dwarf_getarangeinfo(arange, nullptr, nullptr, &offset) == 0 &&
        dwarf_offdie(dwarf_, offset, &die) != nullptr)
      return unit(die);
    if (!scanned_) scan_units();
    const PcRange* range = find_range(unit_ranges_, pc);
    return range == nullptr ? nullptr : unit(range->die);
  }
  Unit* unit(const Dwarf_Die& die) {
    auto& known = units_[die.addr];
    if (known == nullptr) known = std::make_unique<Unit>(die);
    return known.get();
  }
  void scan_units() {
    scanned_ = true;
    Dwarf_CU* cu = nullptr;
    Dwarf_Die die;
    std::uint8_t type = 0;
    while (dwarf_get_units(dwarf_, cu, &cu, nullptr, &type, &die, nullptr) == 0)
      if (type == DW_UT_compile || type == DW_UT_skeleton) add_ranges(&die, unit_ranges_);
    sort_ranges(unit_ranges_);
  }

  Dwarf* dwarf_;
  ModuleNames& names_;
  Dwarf_Aranges* aranges_ = nullptr;
  bool scanned_ = false;
  std::vector<PcRange> unit_ranges_;
  std::map<void*, std::unique_ptr<Unit>> units_;
};

}  // namespace

void name_from_dwarf(Dwfl_Module* module, std::span<const std::uint64_t> addresses,
                     std::span<const std::string> symbols, ModuleNames& names) {
  Dwarf_Addr bias = 0;
  Dwarf* dwarf = dwfl_module_getdwarf(module, &bias);
  if (dwarf == nullptr) return;
  DwarfNames from_dwarf(dwarf, names);
  for (std::size_t i = 0; i < addresses.size(); ++i) from_dwarf.name(i, addresses[i] - bias, symbols[i]);
}

}  // namespace windlass::profile
