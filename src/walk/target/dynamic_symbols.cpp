#include "walk/target/dynamic_symbols.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string_view>

#include <elf.h>

#include "formats/image/elf.h"
#include "formats/image/elf_structures.h"

namespace windlass::walk {
namespace {

// Addresses in the image's own numbering; 0: there is none.
struct DynamicTable {
  std::uint64_t symbols = 0, names = 0, names_size = 0, hash = 0, gnu_hash = 0;
};

// As the file has it, or with the bias that the dynamic linker has added.
std::uint64_t own_address(const image::ElfImage& image, std::uint64_t stored, std::uint64_t bias) {
  if (stored >= bias && image.from_address(stored - bias)) return stored - bias;
  return image.from_address(stored) ? stored : 0;
}

DynamicTable read_table(const image::ElfImage& image, std::uint64_t bias) {
  DynamicTable table;
  for (const image::Segment& segment : image.segments()) {
    if (segment.type != PT_DYNAMIC) continue;
    const auto bytes = image.from_address(segment.vaddr);
    if (!bytes) break;
    const std::size_t size = image::stored_size<Elf64_Dyn>(image.elf_class());
    for (std::uint64_t at = 0; at < std::min<std::uint64_t>(segment.filesz, bytes->size()); at += size) {
      const auto entry = image::read_stored<Elf64_Dyn>(*bytes, image.elf_class(), at);
      if (!entry || entry->d_tag == DT_NULL) break;
      const std::uint64_t value = entry->d_un.d_val;
      switch (entry->d_tag) {
        case DT_SYMTAB: table.symbols = own_address(image, value, bias); break;
        case DT_STRTAB: table.names = own_address(image, value, bias); break;
        case DT_STRSZ: table.names_size = value; break;
        case DT_HASH: table.hash = own_address(image, value, bias); break;
        case DT_GNU_HASH: table.gnu_hash = own_address(image, value, bias); break;
        default: break;
      }
    }
  }
  return table;
}

// The hash table is {buckets, first symbol, bloom words, shift}, the bloom words, the buckets, and a word for each
// symbol from the first symbol on. The words are in chains by bucket. The last word of a chain has its lowest bit set.
std::uint64_t count_by_gnu_hash(ByteView hash, image::ElfClass elf_class) {
  const auto buckets = hash.at<std::uint32_t>(0), first = hash.at<std::uint32_t>(4), bloom = hash.at<std::uint32_t>(8);
  if (!buckets || !first || !bloom) return 0;
  const std::uint64_t word = elf_class == image::ElfClass::k32 ? 4 : 8;
  const std::uint64_t buckets_at = 16 + *bloom * word, chains_at = buckets_at + *buckets * std::uint64_t{4};
  std::uint64_t last = 0;
  for (std::uint64_t i = 0; i < *buckets; ++i) {
    const auto symbol = hash.at<std::uint32_t>(buckets_at + i * 4);
    if (!symbol) return 0;
    last = std::max<std::uint64_t>(last, *symbol);
  }
  if (last < *first) return *first;  // none is defined
  for (;; ++last) {
    const auto chain = hash.at<std::uint32_t>(chains_at + (last - *first) * 4);
    if (!chain) return 0;
    if ((*chain & 1) != 0) return last + 1;
  }
}

std::uint64_t count_symbols(const image::ElfImage& image, const DynamicTable& table) {
  if (table.hash != 0)
    if (const auto hash = image.from_address(table.hash))
      if (const auto chains = hash->at<std::uint32_t>(4)) return *chains;
  if (table.gnu_hash == 0) return 0;
  const auto hash = image.from_address(table.gnu_hash);
  return hash ? count_by_gnu_hash(*hash, image.elf_class()) : 0;
}

// Where it is in the file; empty: not all of it is there.
std::optional<std::uint64_t> offset_of(const image::ElfImage& image, std::uint64_t address, std::uint64_t size) {
  const auto bytes = image.at_address(address, size);
  return bytes ? std::optional(bytes->origin()) : std::nullopt;
}

struct Place {
  std::uint64_t address, offset, size;
};

// libdw looks for the build id in sections where there are any.
std::vector<Place> notes_of(const image::ElfImage& image) {
  constexpr std::size_t kMost = 8;
  std::vector<Place> notes;
  for (const image::Segment& segment : image.segments()) {
    if (segment.type != PT_NOTE || notes.size() == kMost) continue;
    if (const auto offset = offset_of(image, segment.vaddr, segment.filesz))
      notes.push_back({segment.vaddr, *offset, segment.filesz});
  }
  return notes;
}

struct Sections {
  std::uint64_t symbols_at, symbols_offset, symbols_size;
  std::uint64_t names_at, names_offset, names_size;
  std::vector<Place> notes;
};

template <typename Header, typename SectionHeader, typename Symbol>
void append(std::vector<std::byte>& bytes, const Sections& found) {
  constexpr std::string_view kNames("\0.dynsym\0.dynstr\0.shstrtab\0.note\0", 33);
  const std::size_t names_at = (bytes.size() + 7) & ~std::size_t{7};
  const std::size_t headers_at = names_at + 40;
  static_assert(kNames.size() <= 40);
  std::vector<SectionHeader> headers(4 + found.notes.size());
  const auto set = [&](SectionHeader& to, std::uint32_t name, std::uint32_t type, std::uint64_t address,
                       std::uint64_t offset, std::uint64_t size) {
    to.sh_name = name;
    to.sh_type = type;
    to.sh_flags = address != 0 ? SHF_ALLOC : 0;
    to.sh_addr = static_cast<decltype(to.sh_addr)>(address);
    to.sh_offset = static_cast<decltype(to.sh_offset)>(offset);
    to.sh_size = static_cast<decltype(to.sh_size)>(size);
    to.sh_addralign = 1;
  };
  set(headers[1], 1, SHT_DYNSYM, found.symbols_at, found.symbols_offset, found.symbols_size);
  headers[1].sh_link = 2;
  headers[1].sh_info = 1;
  headers[1].sh_addralign = 8;
  headers[1].sh_entsize = sizeof(Symbol);
  set(headers[2], 9, SHT_STRTAB, found.names_at, found.names_offset, found.names_size);
  set(headers[3], 17, SHT_STRTAB, 0, names_at, kNames.size());
  for (std::size_t i = 0; i < found.notes.size(); ++i) {
    const Place& note = found.notes[i];
    set(headers[4 + i], 27, SHT_NOTE, note.address, note.offset, note.size);
    headers[4 + i].sh_addralign = 4;
  }
  bytes.resize(headers_at + headers.size() * sizeof(SectionHeader));
  std::memcpy(bytes.data() + names_at, kNames.data(), kNames.size());
  std::memcpy(bytes.data() + headers_at, headers.data(), headers.size() * sizeof(SectionHeader));
  Header header;
  std::memcpy(&header, bytes.data(), sizeof header);
  header.e_shoff = static_cast<decltype(header.e_shoff)>(headers_at);
  header.e_shentsize = sizeof(SectionHeader);
  header.e_shnum = static_cast<decltype(header.e_shnum)>(headers.size());
  header.e_shstrndx = 3;
  std::memcpy(bytes.data(), &header, sizeof header);
}

}  // namespace

void add_symbol_sections(std::vector<std::byte>& image, std::uint64_t bias) {
  const auto parsed = image::ElfImage::parse(ByteView(image.data(), image.size()));
  if (!parsed || !parsed->sections().empty()) return;
  const DynamicTable table = read_table(*parsed, bias);
  const std::uint64_t count = count_symbols(*parsed, table);
  const std::uint64_t size = count * image::stored_size<Elf64_Sym>(parsed->elf_class());
  if (table.symbols == 0 || table.names == 0 || count < 2) return;
  const auto symbols = offset_of(*parsed, table.symbols, size);
  const auto names = offset_of(*parsed, table.names, table.names_size);
  if (!symbols || !names) return;
  const Sections found{table.symbols, *symbols, size, table.names, *names, table.names_size, notes_of(*parsed)};
  if (parsed->elf_class() == image::ElfClass::k32)
    append<Elf32_Ehdr, Elf32_Shdr, Elf32_Sym>(image, found);
  else
    append<Elf64_Ehdr, Elf64_Shdr, Elf64_Sym>(image, found);
}

}  // namespace windlass::walk
