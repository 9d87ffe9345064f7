#include "runtimes/dynamic_symbol.h"

#include <elf.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "runtimes/memory_reader.h"

namespace windlass::runtimes {
namespace {

constexpr std::size_t kMaxSegments = 128;
constexpr std::size_t kMaxTags = 512;
constexpr std::size_t kMaxChain = 4096;
constexpr std::uint64_t kMaxRelocations = std::uint64_t{1} << 22;

struct Tables {
  std::uint64_t bias = 0;
  std::uint64_t dynamic = 0, dynamic_size = 0;
  std::uint64_t symbols = 0, strings = 0, gnu_hash = 0, hash = 0;
  std::uint64_t relocations = 0, relocations_size = 0;
  std::uint64_t late_relocations = 0, late_relocations_size = 0;  // of the linkage table, and of TLS descriptors
  std::uint64_t flags = 0;                                        // DT_FLAGS_1
};

struct FoundSymbol {
  std::uint32_t index = 0;
  std::uint64_t value = 0, size = 0;
};

bool read_segments(const Memory& memory, std::uint64_t base, Tables& to) {
  const std::vector<Elf64_Phdr> segments = program_headers(memory, base);
  const auto bias = load_bias(segments, base);
  const auto dynamic = std::ranges::find(segments, std::uint32_t{PT_DYNAMIC}, &Elf64_Phdr::p_type);
  if (!bias || dynamic == segments.end()) return false;
  to.bias = *bias;
  to.dynamic = to.bias + dynamic->p_vaddr;
  to.dynamic_size = dynamic->p_memsz;
  return true;
}

// glibc writes addresses of the process over those of the file, musl does not.
bool read_tags(const Memory& memory, Tables& to) {
  std::vector<Elf64_Dyn> tags(std::min<std::size_t>(to.dynamic_size / sizeof(Elf64_Dyn), kMaxTags));
  if (!memory.read(to.dynamic, tags.data(), tags.size() * sizeof(Elf64_Dyn))) return false;
  for (const Elf64_Dyn& tag : tags) {
    const std::uint64_t value = tag.d_un.d_ptr < to.bias ? tag.d_un.d_ptr + to.bias : tag.d_un.d_ptr;
    switch (tag.d_tag) {
      case DT_NULL: return to.symbols != 0 && to.strings != 0;
      case DT_SYMTAB: to.symbols = value; break;
      case DT_STRTAB: to.strings = value; break;
      case DT_GNU_HASH: to.gnu_hash = value; break;
      case DT_HASH: to.hash = value; break;
      case DT_RELA: to.relocations = value; break;
      case DT_RELASZ: to.relocations_size = tag.d_un.d_val; break;
      case DT_JMPREL: to.late_relocations = value; break;
      case DT_PLTRELSZ: to.late_relocations_size = tag.d_un.d_val; break;
      case DT_FLAGS_1: to.flags = tag.d_un.d_val; break;
      default: break;
    }
  }
  return to.symbols != 0 && to.strings != 0;
}

std::optional<FoundSymbol> symbol_at(const Memory& memory, const Tables& tables, std::uint32_t index,
                                     std::string_view name) {
  const auto symbol = read_value<Elf64_Sym>(memory, tables.symbols + std::uint64_t{index} * sizeof(Elf64_Sym));
  if (!symbol || symbol->st_shndx == SHN_UNDEF) return std::nullopt;
  std::string text(name.size() + 1, '\1');
  if (!memory.read(tables.strings + symbol->st_name, text.data(), text.size()) || text.back() != 0 ||
      !text.starts_with(name))
    return std::nullopt;
  return FoundSymbol{index, symbol->st_value, symbol->st_size};
}

std::uint32_t gnu_hash_of(std::string_view name) {
  std::uint32_t hash = 5381;
  for (const char c : name) hash = hash * 33 + static_cast<unsigned char>(c);
  return hash;
}

std::uint32_t hash_of(std::string_view name) {
  std::uint32_t hash = 0;
  for (const char c : name) {
    hash = (hash << 4) + static_cast<unsigned char>(c);
    hash ^= hash >> 24 & 0xf0;
    hash &= 0x0fff'ffff;
  }
  return hash;
}

std::optional<FoundSymbol> by_gnu_hash(const Memory& memory, const Tables& tables, std::string_view name) {
  struct Header {
    std::uint32_t buckets, first, words, shift;
  };
  const auto header = read_value<Header>(memory, tables.gnu_hash);
  if (!header || header->buckets == 0) return std::nullopt;
  const std::uint64_t buckets = tables.gnu_hash + sizeof(Header) + std::uint64_t{header->words} * 8;
  const std::uint64_t chain = buckets + std::uint64_t{header->buckets} * 4;
  const std::uint32_t hash = gnu_hash_of(name);
  const auto bucket = read_value<std::uint32_t>(memory, buckets + std::uint64_t{hash % header->buckets} * 4);
  if (!bucket || *bucket < header->first) return std::nullopt;
  for (std::uint32_t index = *bucket, steps = 0; steps < kMaxChain; ++index, ++steps) {
    const auto entry = read_value<std::uint32_t>(memory, chain + std::uint64_t{index - header->first} * 4);
    if (!entry) return std::nullopt;
    if ((*entry | 1) == (hash | 1))
      if (const auto symbol = symbol_at(memory, tables, index, name)) return symbol;
    if ((*entry & 1) != 0) return std::nullopt;
  }
  return std::nullopt;
}

std::optional<FoundSymbol> by_hash(const Memory& memory, const Tables& tables, std::string_view name) {
  struct Header {
    std::uint32_t buckets, chains;
  };
  const auto header = read_value<Header>(memory, tables.hash);
  if (!header || header->buckets == 0) return std::nullopt;
  const std::uint64_t buckets = tables.hash + sizeof(Header);
  const std::uint64_t chain = buckets + std::uint64_t{header->buckets} * 4;
  auto index = read_value<std::uint32_t>(memory, buckets + std::uint64_t{hash_of(name) % header->buckets} * 4);
  for (std::size_t steps = 0; index && *index != STN_UNDEF && *index < header->chains && steps < kMaxChain; ++steps) {
    if (const auto symbol = symbol_at(memory, tables, *index, name)) return symbol;
    index = read_value<std::uint32_t>(memory, chain + std::uint64_t{*index} * 4);
  }
  return std::nullopt;
}

Expected<FoundSymbol> find_symbol(const Memory& memory, std::uint64_t base, std::string_view name, Tables& tables) {
  if (read_segments(memory, base, tables) && read_tags(memory, tables)) {
    std::optional<FoundSymbol> found;
    if (tables.gnu_hash != 0)
      found = by_gnu_hash(memory, tables, name);
    else if (tables.hash != 0)
      found = by_hash(memory, tables, name);
    if (found) return *found;
  }
  return fail(ErrorCode::kNotFound, "no such dynamic symbol in the image", base);
}

// The first relocation at `at` for which is(relocation) is true.
template <typename Is>
std::optional<Elf64_Rela> find_relocation(const Memory& memory, std::uint64_t at, std::uint64_t bytes, const Is& is) {
  std::vector<Elf64_Rela> some(4096);
  std::uint64_t left = std::min<std::uint64_t>(bytes / sizeof(Elf64_Rela), kMaxRelocations);
  for (; left != 0; at += some.size() * sizeof(Elf64_Rela)) {
    some.resize(std::min<std::uint64_t>(some.size(), left));
    if (!memory.read(at, some.data(), some.size() * sizeof(Elf64_Rela))) return std::nullopt;
    if (const auto found = std::ranges::find_if(some, is); found != some.end()) return *found;
    left -= some.size();
  }
  return std::nullopt;
}

// The address that a relocation of a kind with that symbol writes to.
std::optional<std::uint64_t> relocated_by(const Memory& memory, const Tables& tables, std::uint32_t type,
                                          std::uint32_t symbol) {
  const auto is = [&](const Elf64_Rela& one) { return one.r_info == ELF64_R_INFO(std::uint64_t{symbol}, type); };
  const auto found = find_relocation(memory, tables.relocations, tables.relocations_size, is);
  return found ? std::optional(tables.bias + found->r_offset) : std::nullopt;
}

// How a machine's linker refers to thread-local variables.
struct ThreadRelocations {
  std::uint32_t descriptor, offset, index;
};
std::optional<ThreadRelocations> thread_relocations(std::uint16_t machine) {
  if (machine == EM_X86_64) return ThreadRelocations{R_X86_64_TLSDESC, R_X86_64_TPOFF64, R_X86_64_DTPMOD64};
  if (machine == EM_AARCH64) return ThreadRelocations{R_AARCH64_TLSDESC, R_AARCH64_TLS_TPREL, R_AARCH64_TLS_DTPMOD};
  return std::nullopt;
}

// Of a variable of the program itself. Static storage is below the thread's pointer on x86-64, and above two words
// there on AArch64 (Drepper, variants II and I).
std::int64_t offset_in_program(const Elf64_Phdr& storage, std::uint64_t value, std::uint16_t machine) {
  const std::uint64_t mask = std::max<std::uint64_t>(storage.p_align, 1) - 1;
  if (machine == EM_AARCH64) {
    constexpr std::uint64_t kBefore = 16;
    return static_cast<std::int64_t>(value + kBefore + ((storage.p_vaddr - kBefore) & mask));
  }
  return static_cast<std::int64_t>(value - storage.p_memsz - ((0 - storage.p_vaddr - storage.p_memsz) & mask));
}

}  // namespace

std::optional<std::uint64_t> load_bias(std::span<const Elf64_Phdr> segments, std::uint64_t base) {
  const auto first = std::ranges::find(segments, std::uint32_t{PT_LOAD}, &Elf64_Phdr::p_type);
  if (first == segments.end()) return std::nullopt;
  return base - (first->p_vaddr - first->p_offset);
}

std::vector<Elf64_Phdr> program_headers(const Memory& memory, std::uint64_t base) {
  const auto header = read_value<Elf64_Ehdr>(memory, base);
  if (!header || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 || header->e_ident[EI_CLASS] != ELFCLASS64 ||
      header->e_ident[EI_DATA] != ELFDATA2LSB || header->e_phentsize != sizeof(Elf64_Phdr) ||
      header->e_phnum > kMaxSegments)
    return {};
  std::vector<Elf64_Phdr> segments(header->e_phnum);
  if (!memory.read(base + header->e_phoff, segments.data(), segments.size() * sizeof(Elf64_Phdr))) return {};
  return segments;
}

bool is_loaded(const Memory& memory, std::span<const os::ProcMap> maps, const os::ProcMap& first) {
  const std::vector<Elf64_Phdr> segments = program_headers(memory, first.begin);
  const auto bias = load_bias(segments, first.begin);
  if (!bias) return true;
  const auto is_elsewhere = [&](const Elf64_Phdr& segment) {
    if (segment.p_type != PT_LOAD || segment.p_filesz == 0) return false;
    const std::uint64_t begin = *bias + segment.p_vaddr;
    return std::ranges::any_of(maps, [&](const os::ProcMap& map) {
      return map.begin <= begin && begin < map.end && map.is_at(map.begin, first.file) &&
             map.offset + (begin - map.begin) != segment.p_offset;
    });
  };
  return std::ranges::none_of(segments, is_elsewhere);
}

Expected<DynamicSymbol> find_dynamic_object(const Memory& memory, std::uint64_t base, std::string_view name) {
  Tables tables;
  const auto found = find_symbol(memory, base, name, tables);
  if (!found) return Failure(found.error());
  return DynamicSymbol{tables.bias + found->value, found->size};
}

Expected<std::uint64_t> find_dynamic_symbol(const Memory& memory, std::uint64_t base, std::string_view name) {
  const auto found = find_dynamic_object(memory, base, name);
  if (!found) return Failure(found.error());
  return found->address;
}

Expected<std::uint64_t> find_image_defining(const Memory& memory, std::uint64_t base, std::string_view name) {
  const auto found = find_dynamic_symbol(memory, base, name);
  if (!found) return found;
  return base;
}

Expected<ThreadLocalSymbol> find_thread_local(const Memory& memory, std::uint64_t base, std::string_view name) {
  Tables tables;
  const auto found = find_symbol(memory, base, name, tables);
  if (!found) return Failure(found.error());
  const auto module = relocated_by(memory, tables, R_X86_64_DTPMOD64, found->index);
  if (!module) return fail(ErrorCode::kNotFound, "the image does not find its variable by a module's number", base);
  return ThreadLocalSymbol{*module, found->value};
}

Expected<ThreadVariable> find_thread_variable(const Memory& memory, std::uint64_t base, std::string_view name) {
  using Model = ThreadVariable::Model;
  Tables tables;
  const auto symbol = find_symbol(memory, base, name, tables);
  if (!symbol) return Failure(symbol.error());
  const auto header = read_value<Elf64_Ehdr>(memory, base);
  const auto types = header ? thread_relocations(header->e_machine) : std::nullopt;
  if (!types) return fail(ErrorCode::kUnsupported, "an image for a machine whose thread variables are not known", base);
  // By the symbol, or by its value in the image's own storage if no other image may define it.
  const auto is = [&](const Elf64_Rela& one) {
    const std::uint32_t type = ELF64_R_TYPE(one.r_info);
    if (type != types->descriptor && type != types->offset && type != types->index) return false;
    const std::uint32_t of = ELF64_R_SYM(one.r_info);
    return of == symbol->index ||
           (of == STN_UNDEF && type != types->index && static_cast<std::uint64_t>(one.r_addend) == symbol->value);
  };
  auto found = find_relocation(memory, tables.relocations, tables.relocations_size, is);
  if (!found) found = find_relocation(memory, tables.late_relocations, tables.late_relocations_size, is);
  if (found) {
    const std::uint32_t type = ELF64_R_TYPE(found->r_info);
    const Model model = type == types->descriptor ? Model::kDescriptor
                        : type == types->offset   ? Model::kOffsetAt
                                                  : Model::kIndex;
    return ThreadVariable{model, tables.bias + found->r_offset, 0};
  }
  const std::vector<Elf64_Phdr> segments = program_headers(memory, base);
  const auto storage = std::ranges::find(segments, std::uint32_t{PT_TLS}, &Elf64_Phdr::p_type);
  const bool is_program = header->e_type == ET_EXEC || (tables.flags & DF_1_PIE) != 0 ||
                          std::ranges::any_of(segments, [](const auto& one) { return one.p_type == PT_INTERP; });
  if (!is_program || storage == segments.end())
    return fail(ErrorCode::kNotFound, "no code of the image uses its thread variable", base);
  return ThreadVariable{Model::kOffset, 0, offset_in_program(*storage, symbol->value, header->e_machine)};
}

}  // namespace windlass::runtimes
