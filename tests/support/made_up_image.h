// An image made up in memory, as the dynamic linker leaves it. Its dynamic symbols are found by DT_HASH, and a
// thread-local variable by the relocation of its module's number.
//
// System V ABI, chapters 4 and 5 (Symbol Table, Dynamic Section, Hash Table); x86-64 psABI 4.4.1.
#pragma once

#include <elf.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "support/made_up_memory.h"

namespace windlass::test {

class MadeUpImage {
 public:
  // `address`: of the process.
  void add(std::string_view name, std::uint64_t address, std::uint64_t size = 8) {
    symbols_.push_back({std::string(name), address, size, 0});
  }
  // `module`: the address of its module's number, which the linker writes.
  void add_thread_local(std::string_view name, std::uint64_t offset, std::uint64_t module) {
    symbols_.push_back({std::string(name), offset, 8, module});
  }
  // Its `.eh_frame_hdr`, which the caller puts there.
  void set_unwind_index(std::uint64_t address, std::uint64_t size) { index_ = address, index_size_ = size; }
  // Headers and tables, from `base` on, which is the image's first byte.
  void put(MadeUpMemory& memory, std::uint64_t base) const {
    constexpr std::uint64_t kSegments = sizeof(Elf64_Ehdr), kTags = kSegments + 3 * sizeof(Elf64_Phdr);
    const std::uint64_t relocations = base + kTags + kTagCount * sizeof(Elf64_Dyn);
    const std::uint64_t symbols = relocations + symbols_.size() * sizeof(Elf64_Rela);
    const std::uint64_t hash = symbols + (symbols_.size() + 1) * sizeof(Elf64_Sym);
    const std::uint64_t texts = hash + (symbols_.size() + 4) * 4;
    put_header(memory, base, kSegments, kTags);
    std::uint64_t relocation_count = 0, text = texts + 1;
    memory.put(symbols, Elf64_Sym{});
    memory.put(hash, std::uint32_t{1}), memory.put(hash + 4, static_cast<std::uint32_t>(symbols_.size() + 1));
    memory.put(hash + 8, std::uint32_t{1}), memory.put(hash + 12, std::uint32_t{0});  // one chain, of all of them
    for (std::uint32_t i = 0; i < symbols_.size(); ++i) {
      const Symbol& symbol = symbols_[i];
      Elf64_Sym entry{};
      entry.st_name = static_cast<std::uint32_t>(text - texts);
      entry.st_shndx = 1;
      entry.st_value = symbol.module != 0 ? symbol.address : symbol.address - base;
      entry.st_size = symbol.size;
      memory.put(symbols + (i + 1) * sizeof entry, entry);
      memory.put(hash + 16 + std::uint64_t{i} * 4, i + 2 <= symbols_.size() ? i + 2 : 0);
      memory.put_bytes(text, symbol.name), text += symbol.name.size() + 1;
      if (symbol.module == 0) continue;
      const Elf64_Rela relocation{symbol.module - base, ELF64_R_INFO(std::uint64_t{i + 1}, R_X86_64_DTPMOD64), 0};
      memory.put(relocations + relocation_count++ * sizeof relocation, relocation);
    }
    const std::array<Elf64_Dyn, kTagCount> tags = {tag(DT_SYMTAB, symbols),
                                                   tag(DT_STRTAB, texts),
                                                   tag(DT_HASH, hash),
                                                   tag(DT_RELA, relocations),
                                                   tag(DT_RELASZ, relocation_count * sizeof(Elf64_Rela)),
                                                   tag(DT_NULL, 0)};
    memory.put(base + kTags, tags);
    Elf64_Phdr index{};
    index.p_type = index_ != 0 ? PT_GNU_EH_FRAME : PT_NULL;
    index.p_vaddr = index_ - base, index.p_memsz = index_size_;
    memory.put(base + kSegments + 2 * sizeof index, index);
  }

 private:
  static constexpr std::size_t kTagCount = 6;
  struct Symbol {
    std::string name;
    std::uint64_t address, size, module;
  };

  static Elf64_Dyn tag(Elf64_Sxword kind, std::uint64_t value) {
    Elf64_Dyn made{};
    made.d_tag = kind;
    made.d_un.d_val = value;
    return made;
  }
  static void put_header(MadeUpMemory& memory, std::uint64_t base, std::uint64_t segments, std::uint64_t tags) {
    Elf64_Ehdr header{};
    std::memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64;
    header.e_ident[EI_DATA] = ELFDATA2LSB;
    header.e_machine = EM_X86_64;
    header.e_phoff = segments;
    header.e_phentsize = sizeof(Elf64_Phdr);
    header.e_phnum = 3;
    memory.put(base, header);
    Elf64_Phdr load{}, dynamic{};
    load.p_type = PT_LOAD;
    load.p_filesz = load.p_memsz = 0x1000;
    dynamic.p_type = PT_DYNAMIC;
    dynamic.p_vaddr = tags;
    dynamic.p_memsz = kTagCount * sizeof(Elf64_Dyn);
    memory.put(base + segments, load), memory.put(base + segments + sizeof load, dynamic);
  }

  std::vector<Symbol> symbols_;
  std::uint64_t index_ = 0, index_size_ = 0;
};

}  // namespace windlass::test
