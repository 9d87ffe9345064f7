#include "symbols/debug_lines.h"

#include <dwarf.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include <fmt/format.h>

#include "os/mapped_files.h"
#include "os/readers.h"

namespace windlass::symbols {

namespace {

constexpr int kDeepestEntry = 256;                // nesting of inlined calls followed
constexpr int kDeepestIndex = 64;                 // nesting of scopes followed
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

const char* linkage_name(Dwarf_Die* die) {
  const char* name = string_of(die, DW_AT_linkage_name);
  return name != nullptr ? name : string_of(die, DW_AT_MIPS_linkage_name);
}

bool names_a_scope(int tag) {
  return tag == DW_TAG_namespace || tag == DW_TAG_class_type || tag == DW_TAG_structure_type ||
         tag == DW_TAG_union_type || tag == DW_TAG_module || tag == DW_TAG_enumeration_type;
}

bool has_qualified_names(Dwarf_Die* unit) {
  switch (dwarf_srclang(unit)) {
    case DW_LANG_C89:
    case DW_LANG_C:
    case DW_LANG_C99:
    case DW_LANG_C11:
    case DW_LANG_Mips_Assembler: return false;
    default: return true;
  }
}

// "_Z3foov.cold" and "foo.constprop.0" are a part and a copy of what DWARF describes as one function.
std::string without_clone_suffix(std::string_view name) {
  std::size_t end = name.size();
  for (const auto suffix : {".cold", ".constprop.", ".isra.", ".part.", ".lto_priv.", ".llvm.", ".localalias"})
    end = std::min(end, name.find(suffix));
  return std::string(name.substr(0, end));
}

// Follows DW_AT_abstract_origin and DW_AT_specification to the declaration, whose place in the tree is its scope.
Dwarf_Die declaration_of(Dwarf_Die die) {
  for (int steps = 0; steps < 16; ++steps) {
    Dwarf_Attribute memory;
    Dwarf_Die next;
    Dwarf_Attribute* link = dwarf_attr(&die, DW_AT_abstract_origin, &memory);
    if (link == nullptr) link = dwarf_attr(&die, DW_AT_specification, &memory);
    if (link == nullptr || dwarf_formref_die(link, &next) == nullptr) break;
    die = next;
  }
  return die;
}

// "a::S::" for an entry inside namespace a, struct S. Entries have no link to their parent: the way down from the unit
// is found by comparing positions, one level after the other.
std::string scope_prefix(Dwarf_Die target) {
  std::string prefix;
  Dwarf_Die unit, child;
  if (dwarf_diecu(&target, &unit, nullptr, nullptr) == nullptr || !has_qualified_names(&unit)) return prefix;
  Dwarf_Die parent = unit;
  for (int depth = 0; depth < 64 && dwarf_child(&parent, &child) == 0; ++depth) {
    Dwarf_Die next = child;
    int more = 0;
    while ((more = dwarf_siblingof(&child, &next)) == 0 && next.addr <= target.addr) child = next;
    if (more < 0 || child.addr >= target.addr) break;
    const int tag = dwarf_tag(&child);
    const char* name = dwarf_diename(&child);
    if (name == nullptr) name = tag == DW_TAG_namespace ? "(anonymous namespace)" : "{lambda}";  // GCC's have no name
    if (names_a_scope(tag) || tag == DW_TAG_subprogram) prefix.append(name).append("::");
    parent = child;
  }
  return prefix;
}

// The files a unit's decl_file and call_file count, made absolute.
class UnitFiles {
 public:
  std::string name(Dwarf_CU* cu, Dwarf_Word index) {
    auto& files = of(cu);
    const char* name = index < files.count ? dwarf_filesrc(files.table, index, nullptr, nullptr) : nullptr;
    return name == nullptr ? std::string() : absolute(name, files.directory);
  }
  std::string absolute(const char* name, Dwarf_CU* cu) { return absolute(name, of(cu).directory); }

 private:
  struct Files {
    Dwarf_Files* table = nullptr;
    std::size_t count = 0;
    const char* directory = nullptr;
  };
  static std::string absolute(const char* name, const char* directory) {
    if (name[0] == '/' || directory == nullptr) return name;
    return std::string(directory).append("/").append(name);
  }
  Files& of(Dwarf_CU* cu) {
    const auto [entry, is_new] = by_unit_.try_emplace(cu);
    Dwarf_Die die;
    if (!is_new || dwarf_cu_info(cu, nullptr, nullptr, &die, nullptr, nullptr, nullptr, nullptr) != 0)
      return entry->second;
    if (dwarf_getsrcfiles(&die, &entry->second.table, &entry->second.count) != 0) entry->second.count = 0;
    Dwarf_Attribute memory;
    entry->second.directory = dwarf_formstring(dwarf_attr(&die, DW_AT_comp_dir, &memory));
    return entry->second;
  }
  std::map<Dwarf_CU*, Files> by_unit_;
};

// One compilation unit: its functions by address.
class Unit {
 public:
  explicit Unit(const Dwarf_Die& unit) : lines_(unit), entries_(unit) {
    Dwarf_Die split;
    std::uint8_t type = 0;
    if (dwarf_cu_info(entries_.cu, nullptr, &type, nullptr, nullptr, nullptr, nullptr, nullptr) == 0 &&
        type == DW_UT_skeleton && split_file_answers() &&
        dwarf_cu_info(entries_.cu, nullptr, &type, nullptr, &split, nullptr, nullptr, nullptr) == 0 &&
        split.addr != nullptr)
      entries_ = split;  // the entries are in a .dwo file, the line table is here
    index_children(&entries_, false, 0);
    sort_ranges(functions_);
  }

  // Outermost first: the function, then the calls inlined into it that contain pc.
  std::vector<Dwarf_Die> scopes_at(Dwarf_Addr pc) {
    std::vector<Dwarf_Die> scopes;
    const PcRange* function = find_range(functions_, pc);
    if (function == nullptr && !has_nested_) {  // GCC nests the code of a local class in the function that declares it
      has_nested_ = true;
      functions_.clear();
      indexed_ = 0;
      index_children(&entries_, true, 0);
      sort_ranges(functions_);
      function = find_range(functions_, pc);
    }
    if (function == nullptr) return scopes;
    scopes.push_back(function->die);
    Dwarf_Die inside = function->die;
    for (int depth = 0; depth < kDeepestEntry && descend(inside, pc); ++depth)
      if (dwarf_tag(&inside) == DW_TAG_inlined_subroutine) scopes.push_back(inside);
    return scopes;
  }
  Dwarf_Line* line_at(Dwarf_Addr pc) { return dwarf_getsrc_die(&lines_, pc); }
  [[nodiscard]] Dwarf_CU* line_unit() const { return lines_.cu; }

 private:
  // libdw opens the .dwo file itself: it shall not wait for one on a server that has stopped.
  bool split_file_answers() {
    if (os::readers() == nullptr) return true;
    Dwarf_Attribute memory;
    const char* name = dwarf_formstring(dwarf_attr(&entries_, DW_AT_dwo_name, &memory));
    if (name == nullptr) name = dwarf_formstring(dwarf_attr(&entries_, DW_AT_GNU_dwo_name, &memory));
    if (name == nullptr) return false;
    const char* folder = dwarf_formstring(dwarf_attr(&entries_, DW_AT_comp_dir, &memory));
    const std::string path =
        name[0] == '/' || folder == nullptr ? std::string(name) : fmt::format("{}/{}", folder, name);
    const os::Descriptor file(os::open_regular(path));
    return file || errno != ETIMEDOUT;
  }

  // Functions at the level of the unit and its namespaces and classes; with `nested`, those inside functions too, which
  // means looking at every entry.
  void index_children(Dwarf_Die* parent, bool nested, int depth) {
    Dwarf_Die child;
    if (depth > kDeepestIndex || dwarf_child(parent, &child) != 0) return;
    do {
      if (++indexed_ > kMostEntries) return;
      const int tag = dwarf_tag(&child);
      if (tag == DW_TAG_subprogram) add_ranges(&child, functions_);
      if (nested || names_a_scope(tag)) index_children(&child, nested, depth + 1);
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
  bool has_nested_ = false;
};

}  // namespace

class DebugLines::Units {
 public:
  explicit Units(Dwarf* dwarf) : dwarf_(dwarf) { dwarf_getaranges(dwarf, &aranges_, nullptr); }

  void name(std::size_t index, Dwarf_Addr pc, const std::string& symbol, ModuleNames& names) {
    Unit* unit = unit_of(pc);
    if (unit == nullptr) return;
    auto scopes = unit->scopes_at(pc);
    if (scopes.empty() && symbol.empty()) return;
    std::string file;
    int line = 0;
    if (Dwarf_Line* found = unit->line_at(pc); found != nullptr) {
      if (const char* name = dwarf_linesrc(found, nullptr, nullptr); name != nullptr)
        file = files_.absolute(name, unit->line_unit());
      dwarf_lineno(found, &line);
    }
    if (scopes.empty() && line != 0)  // assembly: lines, but no entry for the function
      names.add_line(index, {names.function(symbol, file, 0), static_cast<std::uint32_t>(line)});
    // From the innermost out: where a frame is, is where the next inner one was called.
    for (std::size_t i = scopes.size(); i-- > 0;) {
      Dwarf_Die& scope = scopes[i];
      add(index, scope, i == 0 ? symbol : std::string(), file, line, names);
      Dwarf_Attribute memory;
      Dwarf_Word number = 0;
      file.clear();
      if (dwarf_formudata(dwarf_attr(&scope, DW_AT_call_file, &memory), &number) == 0)
        file = files_.name(memory.cu, number);
      line = dwarf_formudata(dwarf_attr(&scope, DW_AT_call_line, &memory), &number) == 0 ? static_cast<int>(number) : 0;
    }
  }

  std::vector<Dwarf_Die> scopes_at(Dwarf_Addr pc) {
    Unit* unit = unit_of(pc);
    return unit == nullptr ? std::vector<Dwarf_Die>() : unit->scopes_at(pc);
  }

 private:
  // What does not depend on the address, once an entry.
  struct Declared {
    std::string name;
    std::string file;
    std::uint32_t line = 0;
  };

  void add(std::size_t index, Dwarf_Die& scope, const std::string& symbol, const std::string& file, int line,
           ModuleNames& names) {
    const auto [entry, is_new] = declared_.try_emplace(scope.addr);
    auto& declared = entry->second;
    if (is_new) declared = declaration(scope, symbol);
    const std::string& in_file = file.empty() ? declared.file : file;
    const auto function = names.function(declared.name, in_file, in_file == declared.file ? declared.line : 0);
    names.add_line(index, {function, static_cast<std::uint32_t>(line)});
  }

  Declared declaration(Dwarf_Die& scope, const std::string& symbol) {
    Declared result;
    Dwarf_Attribute memory;
    Dwarf_Word number = 0;
    // dwarf_decl_file() would do, but 0.188 asserts on units of .dwo files.
    if (dwarf_formudata(dwarf_attr_integrate(&scope, DW_AT_decl_file, &memory), &number) == 0)
      result.file = files_.name(memory.cu, number);
    if (dwarf_formudata(dwarf_attr_integrate(&scope, DW_AT_decl_line, &memory), &number) == 0)
      result.line = static_cast<std::uint32_t>(number);
    const char* linkage = linkage_name(&scope);
    const char* name = string_of(&scope, DW_AT_name);
    Dwarf_Die unit;
    const bool is_c = dwarf_diecu(&scope, &unit, nullptr, nullptr) != nullptr && !has_qualified_names(&unit);
    if (linkage != nullptr && !is_c)
      result.name = without_clone_suffix(linkage);
    else if (!symbol.empty())  // C: libc calls its malloc __GI___libc_malloc in DWARF; the symbol table knows better
      result.name = without_clone_suffix(symbol);
    else if (name != nullptr)
      result.name = scope_prefix(declaration_of(scope)) + name;
    else
      result.name = linkage != nullptr ? linkage : "[unnamed]";
    return result;
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
  Dwarf_Aranges* aranges_ = nullptr;
  bool scanned_ = false;
  std::vector<PcRange> unit_ranges_;
  std::map<void*, std::unique_ptr<Unit>> units_;
  UnitFiles files_;
  std::unordered_map<void*, Declared> declared_;
};

DebugLines::DebugLines(Dwfl_Module* module) {
  Dwarf_Addr bias = 0;
  if (Dwarf* dwarf = dwfl_module_getdwarf(module, &bias); dwarf != nullptr) units_ = std::make_unique<Units>(dwarf);
  bias_ = bias;
}

DebugLines::~DebugLines() = default;

void DebugLines::name(std::size_t index, std::uint64_t address, const std::string& symbol, ModuleNames& names) {
  if (units_ != nullptr) units_->name(index, address - bias_, symbol, names);
}

std::vector<Dwarf_Die> DebugLines::scopes_at(Dwarf_Addr pc) {
  return units_ == nullptr ? std::vector<Dwarf_Die>() : units_->scopes_at(pc);
}

}  // namespace windlass::symbols
