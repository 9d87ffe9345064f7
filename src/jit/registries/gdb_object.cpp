#include "jit/registries/gdb_object.h"

#include <elf.h>

#include <cstring>
#include <limits>

#include "jit/registries/debug_lines.h"
#include "windlass/backtrace.h"
#include "windlass/format/dwarf.h"

namespace windlass::registries {
namespace {

struct SectionKind {
  Elf64_Word type = SHT_PROGBITS;
  Elf64_Xword flags = 0;
  Elf64_Addr address = 0;
  Elf64_Xword size = 0;  // of one without bytes
  Elf64_Word link = 0;
  Elf64_Word info = 0;
  Elf64_Xword align = 1;
  Elf64_Xword entry_size = 0;
};

// Sections and what they hold, put together at the end.
class Object {
 public:
  Object() { sections_.emplace_back(); }

  // The section's index.
  unsigned add(std::string_view name, const SectionKind& kind, std::vector<std::byte> bytes = {}) {
    const Elf64_Shdr header{static_cast<Elf64_Word>(names_.size()),
                            kind.type,
                            kind.flags,
                            kind.address,
                            0,
                            kind.type == SHT_NOBITS ? kind.size : bytes.size(),
                            kind.link,
                            kind.info,
                            kind.align,
                            kind.entry_size};
    names_.append(name) += '\0';
    sections_.push_back({header, std::move(bytes)});
    return static_cast<unsigned>(sections_.size() - 1);
  }

  std::vector<std::byte> take() {
    const unsigned strings = add(".shstrtab", {.type = SHT_STRTAB, .align = 1});
    sections_[strings].bytes = bytes_of(names_);
    sections_[strings].header.sh_size = names_.size();
    std::vector<std::byte> file(sizeof(Elf64_Ehdr));
    for (Section& section : sections_) {
      while (file.size() % 8 != 0) file.push_back(std::byte{0});
      if (section.header.sh_type != SHT_NULL) section.header.sh_offset = file.size();
      file.insert(file.end(), section.bytes.begin(), section.bytes.end());
    }
    while (file.size() % 8 != 0) file.push_back(std::byte{0});
    Elf64_Ehdr header{};
    std::memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64;
    header.e_ident[EI_DATA] = ELFDATA2LSB;
    header.e_ident[EI_VERSION] = EV_CURRENT;
    header.e_type = ET_REL;
    header.e_machine = kOwnArchitecture == Architecture::kX86_64 ? EM_X86_64 : EM_AARCH64;
    header.e_version = EV_CURRENT;
    header.e_shoff = file.size();
    header.e_ehsize = sizeof header;
    header.e_shentsize = sizeof(Elf64_Shdr);
    header.e_shnum = static_cast<Elf64_Half>(sections_.size());
    header.e_shstrndx = static_cast<Elf64_Half>(strings);
    for (const Section& section : sections_) {
      const auto* from = reinterpret_cast<const std::byte*>(&section.header);
      file.insert(file.end(), from, from + sizeof section.header);
    }
    std::memcpy(file.data(), &header, sizeof header);
    return file;
  }

  static std::vector<std::byte> bytes_of(std::string_view text) {
    const auto* from = reinterpret_cast<const std::byte*>(text.data());
    return {from, from + text.size()};
  }

 private:
  struct Section {
    Elf64_Shdr header{};
    std::vector<std::byte> bytes;
  };
  std::vector<Section> sections_;
  std::string names_ = std::string(1, '\0');
};

Expected<std::vector<std::byte>> eh_frame_of(std::span<const Function> functions) {
  dwarf::Writer writer({.architecture = kOwnArchitecture, .pointers = dwarf::Pointers::kAbsolute});
  RowsOf rows_of;
  for (const Function& function : functions) {
    const auto rows = rows_of(function);
    if (!rows) return Failure(rows.error());
    if (const auto ok = writer.add(*rows, {.address = function.begin()}); !ok) return Failure(ok.error());
  }
  return std::move(writer).take().bytes;
}

// Functions by name, in the sections of their runs.
void add_symbols(Object& object, std::span<const Function> functions, std::span<const Run> runs, unsigned first_text) {
  std::string names(1, '\0');
  std::vector<Elf64_Sym> symbols(1);
  for (std::size_t i = 0; i < runs.size(); ++i)
    for (const Function& function : functions.subspan(runs[i].first, runs[i].last - runs[i].first)) {
      if (function.given->name.empty()) continue;
      symbols.push_back({.st_name = static_cast<Elf64_Word>(names.size()),
                         .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC),
                         .st_other = STV_DEFAULT,
                         .st_shndx = static_cast<Elf64_Half>(first_text + i),
                         .st_value = function.begin() - runs[i].begin,
                         .st_size = function.given->size});
      names.append(function.given->name) += '\0';
    }
  const unsigned strings = object.add(".strtab", {.type = SHT_STRTAB, .align = 1}, Object::bytes_of(names));
  const auto* from = reinterpret_cast<const std::byte*>(symbols.data());
  object.add(".symtab", {.type = SHT_SYMTAB, .link = strings, .info = 1, .align = 8, .entry_size = sizeof(Elf64_Sym)},
             {from, from + symbols.size() * sizeof(Elf64_Sym)});
}

}  // namespace

Expected<std::vector<std::byte>> make_object(std::span<const Function> functions, std::span<const Run> runs) {
  constexpr std::size_t kMostRuns = 65000;  // section numbers above have a meaning of their own
  if (runs.size() > kMostRuns)
    return fail(ErrorCode::kLimit, "more pieces of code than sections of an object file", functions.front().begin(),
                runs.size());
  Object object;
  const unsigned first_text = 1;
  for (const Run& run : runs)
    object.add(".text", {.type = SHT_NOBITS,
                         .flags = SHF_ALLOC | SHF_EXECINSTR,
                         .address = run.begin,
                         .size = run.end - run.begin,
                         .align = 1});
  auto frames = eh_frame_of(functions);
  if (!frames) return Failure(frames.error());
  object.add(".eh_frame", {.type = SHT_PROGBITS, .flags = SHF_ALLOC, .align = 8}, std::move(*frames));
  add_symbols(object, functions, runs, first_text);
  const DebugLines lines = debug_lines_of(functions);
  const auto debug = [&](std::string_view name, const std::vector<std::byte>& bytes) {
    if (!bytes.empty()) object.add(name, {.type = SHT_PROGBITS, .align = 1}, bytes);
  };
  debug(".debug_abbrev", lines.abbreviations);
  debug(".debug_info", lines.info);
  debug(".debug_line", lines.lines);
  return object.take();
}

}  // namespace windlass::registries
