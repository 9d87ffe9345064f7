#include "symbols/symbol_table.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <tuple>

namespace windlass::symbols {

namespace {

constexpr std::uint64_t kFarthestFromZeroSize = 4096;
constexpr std::uint32_t kMostFollowed = 4'000'000;  // instructions, for all addresses of a table: a second or two
constexpr int kNoSymbol = 0;                        // as ELF has it: entry 0 is reserved (gABI 4.1, "Symbol Table")

struct Candidate {
  std::uint64_t value = 0;
  std::uint64_t end = 0;
  const char* name = nullptr;  // the module's
  int symbol = kNoSymbol;
  bool is_function = false;
  std::int8_t binding = 0;

  // Of several symbols: the innermost, a function before a label, a global before an alias, the plainer name, the first
  // in the table.
  [[nodiscard]] bool operator<(const Candidate& other) const {
    return value != other.value ? value < other.value : rank() < other.rank();
  }

 private:
  [[nodiscard]] std::tuple<bool, int, int, int, int> rank() const {
    const std::string_view text = name;
    const auto underscores = static_cast<int>(std::min(text.find_first_not_of('_'), text.size()));
    return {is_function, binding, -underscores, -static_cast<int>(text.size()), -symbol};
  }
};

Candidate candidate_of(int index, const char* name, const GElf_Sym& symbol, GElf_Addr value) {
  const unsigned char bind = GELF_ST_BIND(symbol.st_info);
  return {.value = value,
          .end = value + symbol.st_size,
          .name = name,
          .symbol = index,
          .is_function = GELF_ST_TYPE(symbol.st_info) != STT_NOTYPE,
          .binding = static_cast<std::int8_t>(bind == STB_GLOBAL ? 2
                                              : bind == STB_WEAK ? 1
                                                                 : 0)};
}

// A symbol table as a file has it, if libdwfl's numbers are the file's.
class StoredSymbols {
 public:
  explicit StoredSymbols(Dwfl_Module* module) : count_(dwfl_module_getsymtab(module)) {
    GElf_Sym first;
    GElf_Addr value = 0;
    if (count_ <= 1 || dwfl_module_getsym_info(module, 1, &first, &value, nullptr, &elf_, &bias_) == nullptr) return;
    const Elf64_Ehdr* header = elf64_getehdr(elf_);
    if (header == nullptr || header->e_ident[EI_DATA] != ELFDATA2LSB || header->e_type == ET_REL ||
        (header->e_machine != EM_X86_64 && header->e_machine != EM_AARCH64))
      return;
    Elf_Scn* table = nullptr;
    for (Elf_Scn* section = nullptr; (section = elf_nextscn(elf_, section)) != nullptr;) {
      const Elf64_Shdr* of = elf64_getshdr(section);
      in_memory_.resize(elf_ndxscn(section) + 1);
      in_memory_.back() = of != nullptr && (of->sh_flags & SHF_ALLOC) != 0;
      if (of != nullptr && (of->sh_type == SHT_SYMTAB || (of->sh_type == SHT_DYNSYM && table == nullptr)))
        table = section;
    }
    const Elf_Data* symbols = table != nullptr ? elf_getdata(table, nullptr) : nullptr;
    const Elf_Data* names =
        symbols != nullptr ? elf_getdata(elf_getscn(elf_, elf64_getshdr(table)->sh_link), nullptr) : nullptr;
    if (names == nullptr || names->d_size == 0 || names->d_buf == nullptr || symbols->d_buf == nullptr ||
        symbols->d_size / sizeof(Elf64_Sym) != static_cast<std::size_t>(count_))
      return;
    const auto* all = static_cast<const Elf64_Sym*>(symbols->d_buf);
    const auto* text = static_cast<const char*>(names->d_buf);
    if (text[names->d_size - 1] != '\0' || std::memcmp(&all[1], &first, sizeof first) != 0) return;
    symbols_ = all;
    names_ = {text, names->d_size};
  }

  [[nodiscard]] int count() const { return count_; }
  // Null: libdwfl has to be asked.
  [[nodiscard]] const Elf64_Sym* at(int index) const {
    const Elf64_Sym* symbol = symbols_ != nullptr ? &symbols_[index] : nullptr;
    return symbol != nullptr && symbol->st_shndx < in_memory_.size() && symbol->st_shndx < SHN_LORESERVE &&
                   symbol->st_name < names_.size()
               ? symbol
               : nullptr;
  }
  [[nodiscard]] const char* name(const Elf64_Sym& symbol) const { return names_.data() + symbol.st_name; }
  [[nodiscard]] GElf_Addr value(const Elf64_Sym& symbol) const {
    return symbol.st_value + (in_memory_[symbol.st_shndx] ? bias_ : 0);
  }
  [[nodiscard]] Elf* elf() const { return elf_; }
  [[nodiscard]] GElf_Addr bias() const { return bias_; }

 private:
  int count_;
  Elf* elf_ = nullptr;
  GElf_Addr bias_ = 0;
  const Elf64_Sym* symbols_ = nullptr;
  std::string_view names_;
  std::vector<bool> in_memory_;  // of sections
};

// The code of the section that a symbol lies in, at the module's addresses.
class SectionCode {
 public:
  SectionCode(Dwfl_Module* module, int symbol) {
    GElf_Sym of;
    GElf_Addr value = 0, bias = 0;
    GElf_Word index = 0;
    Elf* elf = nullptr;
    GElf_Ehdr file;
    GElf_Shdr header;
    if (dwfl_module_getsym_info(module, symbol, &of, &value, &index, &elf, &bias) == nullptr ||
        gelf_getehdr(elf, &file) == nullptr || (file.e_machine != EM_X86_64 && file.e_machine != EM_AARCH64))
      return;
    Elf_Scn* const section = elf_getscn(elf, index);
    const Elf_Data* const data = section != nullptr ? elf_getdata(section, nullptr) : nullptr;
    if (data == nullptr || data->d_buf == nullptr || gelf_getshdr(section, &header) == nullptr) return;
    bytes_ = {static_cast<const char*>(data->d_buf), data->d_size};
    begin_ = header.sh_addr + bias;
    architecture_ = file.e_machine == EM_AARCH64 ? Architecture::kAArch64 : Architecture::kX86_64;
  }
  // False for a file of debug information, which has no code, and for other machines.
  [[nodiscard]] bool can_be_followed() const { return !bytes_.empty(); }
  [[nodiscard]] Architecture architecture() const { return architecture_; }
  [[nodiscard]] bool has(std::uint64_t address) const { return address - begin_ < bytes_.size(); }
  [[nodiscard]] bool read(std::uint64_t address, void* to, std::size_t size) const {
    if (!has(address) || size > bytes_.size() - (address - begin_)) return false;
    std::memcpy(to, bytes_.data() + (address - begin_), size);
    return true;
  }

 private:
  std::string_view bytes_;
  std::uint64_t begin_ = 0;
  Architecture architecture_ = Architecture::kX86_64;
};

bool can_name_code(const GElf_Sym& symbol) {
  const int type = GELF_ST_TYPE(symbol.st_info);
  return type == STT_FUNC || type == STT_GNU_IFUNC || type == STT_NOTYPE;
}

// Calls `handle` for every defined symbol that can name code, if wants(symbol, value).
template <typename Wants, typename Handle>
void for_each_code_symbol(Dwfl_Module* module, Wants wants, Handle handle) {
  const StoredSymbols stored(module);
  for (int i = 1; i < stored.count(); ++i) {
    GElf_Sym symbol;
    GElf_Addr value = 0, bias = stored.bias();
    GElf_Word section = 0;
    Elf* elf = stored.elf();
    const char* name = nullptr;
    if (const Elf64_Sym* at = stored.at(i); at != nullptr) {
      symbol = *at;
      value = stored.value(symbol);
      section = symbol.st_shndx;
      if (section == SHN_UNDEF || !can_name_code(symbol) || !wants(symbol, value)) continue;
      name = stored.name(symbol);
    } else {
      name = dwfl_module_getsym_info(module, i, &symbol, &value, &section, &elf, &bias);
      if (name == nullptr || section == SHN_UNDEF || section == SHN_ABS || !can_name_code(symbol) ||
          !wants(symbol, value))
        continue;
    }
    if (*name == '\0') continue;
    if (name[0] == '$' || (name[0] == '.' && name[1] == 'L')) continue;  // assemblers' own marks
    handle(i, name, symbol, value, section, elf, bias);
  }
}

constexpr auto kAll = [](const GElf_Sym&, GElf_Addr) { return true; };

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

}  // namespace

void SymbolTable::expect(std::span<const std::uint64_t> addresses) {
  if (has_ranges_) return;
  if (scanned_.empty() && addresses.size() <= kMostScanned)
    scan(addresses);
  else
    read_sized();
}

// Of several symbols with the address, the last in the order of read_sized().
void SymbolTable::scan(std::span<const std::uint64_t> addresses) {
  std::vector<std::uint64_t> wanted(addresses.begin(), addresses.end());
  std::ranges::sort(wanted);
  std::vector<Candidate> best(wanted.size());
  const auto is_local = [](const GElf_Sym& symbol) { return GELF_ST_BIND(symbol.st_info) == STB_LOCAL; };
  const auto first_in = [&](const GElf_Sym& symbol, GElf_Addr value) {
    const auto at = std::ranges::lower_bound(wanted, value);
    const bool wraps = value + symbol.st_size < value;
    return !wraps && at != wanted.end() && *at - value < symbol.st_size ? at : wanted.end();
  };
  const auto wants = [&](const GElf_Sym& symbol, GElf_Addr value) {
    return (!is_full_ && is_local(symbol)) || first_in(symbol, value) != wanted.end();
  };
  const auto take = [&](int index, const char* name, const GElf_Sym& symbol, GElf_Addr value, GElf_Word, Elf*,
                        GElf_Addr) {
    is_full_ |= is_local(symbol);
    const Candidate candidate = candidate_of(index, name, symbol, value);
    for (auto at = first_in(symbol, value); at != wanted.end() && *at - value < symbol.st_size; ++at) {
      Candidate& known = best[static_cast<std::size_t>(at - wanted.begin())];
      if (known.symbol == kNoSymbol || known < candidate) known = candidate;
    }
  };
  for_each_code_symbol(module_, wants, take);
  for (std::size_t i = 0; i < wanted.size(); ++i) scanned_.push_back({wanted[i], best[i].symbol});
}

// Symbols may overlap. Since of several the one that begins last counts, those in force at a point are a stack.
void SymbolTable::read_sized() {
  has_ranges_ = true;
  std::vector<Candidate> symbols;
  symbols.reserve(static_cast<std::size_t>(std::max(dwfl_module_getsymtab(module_), 0)));
  for_each_code_symbol(
      module_, kAll,
      [&](int index, const char* name, const GElf_Sym& symbol, GElf_Addr value, GElf_Word, Elf*, GElf_Addr) {
        is_full_ |= GELF_ST_BIND(symbol.st_info) == STB_LOCAL;
        const bool wraps = value + symbol.st_size < value;
        if (symbol.st_size != 0 && !wraps) symbols.push_back(candidate_of(index, name, symbol, value));
      });
  std::sort(symbols.begin(), symbols.end());
  std::vector<Candidate> open;
  const auto name_from = [&](std::uint64_t begin) {
    const int symbol = open.empty() ? kNoSymbol : open.back().symbol;
    if (!ranges_.empty() && ranges_.back().begin == begin) ranges_.pop_back();
    if (ranges_.empty() || ranges_.back().symbol != symbol) ranges_.push_back({begin, symbol});
  };
  const auto close_until = [&](std::uint64_t address) {
    while (!open.empty() && open.back().end <= address) {
      const std::uint64_t end = open.back().end;
      while (!open.empty() && open.back().end <= end) open.pop_back();
      name_from(end);
    }
  };
  for (const Candidate& symbol : symbols) {
    close_until(symbol.value);
    open.push_back(symbol);
    name_from(symbol.value);
  }
  close_until(~std::uint64_t{0});
}

void SymbolTable::read_starts() {
  has_starts_ = true;
  for_each_code_symbol(
      module_, kAll,
      [&](int index, const char*, const GElf_Sym& symbol, GElf_Addr value, GElf_Word section, Elf* elf,
          GElf_Addr bias) {
        GElf_Shdr header;
        Elf_Scn* place = elf_getscn(elf, section);
        if (place == nullptr || gelf_getshdr(place, &header) == nullptr || (header.sh_flags & SHF_EXECINSTR) == 0)
          return;
        starts_.push_back({value, symbol.st_size, header.sh_addr + header.sh_size + bias, index});
      });
  std::stable_sort(starts_.begin(), starts_.end(), [](const Start& a, const Start& b) { return a.value < b.value; });
}

SymbolTable::Symbol SymbolTable::symbol(int index) const {
  GElf_Sym symbol;
  GElf_Addr value = 0;
  const char* name = dwfl_module_getsym_info(module_, index, &symbol, &value, nullptr, nullptr, nullptr);
  if (name == nullptr) return {};
  return {plain_name(name), value};
}

int SymbolTable::sized_at(std::uint64_t address) {
  if (!has_ranges_) {
    const auto known = std::ranges::lower_bound(scanned_, address, {}, &Scanned::address);
    if (known != scanned_.end() && known->address == address) return known->symbol;
    read_sized();
  }
  const auto after = std::ranges::upper_bound(ranges_, address, {}, &Range::begin);
  return after != ranges_.begin() ? std::prev(after)->symbol : kNoSymbol;
}

SymbolTable::Symbol SymbolTable::at(std::uint64_t address) {
  if (const int sized = sized_at(address); sized != kNoSymbol) return symbol(sized);
  return without_size_at(address);
}

// The address is an instruction's, or the last byte of a call.
bool SymbolTable::code_leads_to(const Start& start, std::uint64_t address) {
  const SectionCode code(module_, start.symbol);
  if (!code.can_be_followed()) return false;
  if (scratch_ == nullptr) {
    scratch_.reset(flow::make_scratch());
    flow::budget_of(*scratch_) = flow::Budget(kMostFollowed);
  }
  const auto read = [&](std::uint64_t at, void* to, std::size_t size) { return code.read(at, to, size); };
  const auto kind = [&](std::uint64_t at) { return code.has(at) ? flow::CodeKind::kFile : flow::CodeKind::kNoCode; };
  const auto any = [](const FrameRow&) { return true; };
  const flow::CodeSource source{.architecture = code.architecture(), .read = read, .kind = kind, .plausible = any};
  return flow::leads_to(source, start.value, CodeAddress::instruction(address), *scratch_) ||
         flow::leads_to(source, start.value, CodeAddress::return_address(address + 1), *scratch_);
}

SymbolTable::Symbol SymbolTable::without_size_at(std::uint64_t address) {
  if (!has_starts_) read_starts();
  const auto after = std::upper_bound(starts_.begin(), starts_.end(), address,
                                      [](std::uint64_t at, const Start& start) { return at < start.value; });
  if (after == starts_.begin()) return {};
  const auto first = std::lower_bound(starts_.begin(), after, std::prev(after)->value,
                                      [](const Start& start, std::uint64_t at) { return start.value < at; });
  const bool none_has_size = std::all_of(first, after, [](const Start& start) { return start.size == 0; });
  const bool names = none_has_size && address < first->section_end && address - first->value <= kFarthestFromZeroSize &&
                     unwind_information_allows(module_, first->value, address) &&
                     (is_full_ || code_leads_to(*first, address));
  return names ? symbol(first->symbol) : Symbol();
}

}  // namespace windlass::symbols
