// A process made up for a test: code and call frame information in one ELF image, memory in pieces.
#pragma once

#include <elf.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "support/cfi_builder.h"
#include "windlass/walk.h"

namespace windlass::test {

// Words at addresses; all else is unreadable.
class WordMemory : public Memory {
 public:
  bool read(std::uint64_t address, void* to, std::size_t size) const override {
    ++reads;
    auto* out = static_cast<std::uint8_t*>(to);
    for (std::size_t i = 0; i < size;) {
      const auto found = words.find((address + i) & ~std::uint64_t{7});
      if (found == words.end()) return false;
      do out[i] = static_cast<std::uint8_t>(found->second >> 8 * ((address + i) % 8));
      while (++i < size && (address + i) % 8 != 0);
    }
    return true;
  }
  const std::byte* in_place(std::uint64_t address, std::size_t size) const override {
    asked_in_place = {address, size};
    return nullptr;
  }
  void set(std::uint64_t address, std::uint64_t value) { words[address] = value; }

  mutable std::pair<std::uint64_t, std::size_t> asked_in_place;  // by the last call
  std::map<std::uint64_t, std::uint64_t> words;
  mutable std::uint64_t reads = 0;
};

// An ELF file with one executable segment [0, kSize) and an .eh_frame.
inline std::vector<std::byte> elf_with_eh_frame(Architecture architecture, const std::vector<std::uint8_t>& code,
                                                std::uint64_t code_at, const std::vector<std::uint8_t>& eh_frame,
                                                std::uint64_t size) {
  static constexpr char kNames[] = "\0.eh_frame\0.shstrtab";
  const std::uint64_t cfi_at = (size + 7) / 8 * 8;
  const std::uint64_t names_at = cfi_at + eh_frame.size();
  const std::uint64_t sections_at = (names_at + sizeof kNames + 7) / 8 * 8;
  // No byte behind it is its own: the address sanitizer shall see who reads there.
  std::vector<std::byte> file(std::max(sections_at + 3 * sizeof(Elf64_Shdr), code_at + code.size()));
  const auto put = [&file](std::uint64_t at, const void* from, std::size_t count) {
    if (count != 0) std::memcpy(file.data() + at, from, count);
  };
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_ident[EI_VERSION] = EV_CURRENT;
  header.e_type = ET_DYN;
  header.e_machine = architecture == Architecture::kX86_64 ? EM_X86_64 : EM_AARCH64;
  header.e_version = EV_CURRENT;
  header.e_phoff = sizeof header;
  header.e_shoff = sections_at;
  header.e_ehsize = sizeof header;
  header.e_phentsize = sizeof(Elf64_Phdr);
  header.e_phnum = 1;
  header.e_shentsize = sizeof(Elf64_Shdr);
  header.e_shnum = 3;
  header.e_shstrndx = 2;
  Elf64_Phdr segment{};
  segment.p_type = PT_LOAD;
  segment.p_flags = PF_R | PF_X;
  segment.p_filesz = segment.p_memsz = names_at;
  segment.p_align = 4096;
  Elf64_Shdr sections[3] = {};
  sections[1].sh_name = 1;
  sections[1].sh_type = SHT_PROGBITS;
  sections[1].sh_flags = SHF_ALLOC;
  sections[1].sh_addr = sections[1].sh_offset = cfi_at;
  sections[1].sh_size = eh_frame.size();
  sections[2].sh_name = 11;
  sections[2].sh_type = SHT_STRTAB;
  sections[2].sh_offset = names_at;
  sections[2].sh_size = sizeof kNames;
  put(0, &header, sizeof header);
  put(sizeof header, &segment, sizeof segment);
  put(code_at, code.data(), code.size());
  put(cfi_at, eh_frame.data(), eh_frame.size());
  put(names_at, kNames, sizeof kNames);
  put(sections_at, sections, sizeof sections);
  return file;
}

// Functions at addresses of kBias + [kCode, kCode + kSize). Their CFI defines their behaviour.
class WalkTarget {
 public:
  static constexpr std::uint64_t kBias = 0x5555'0000'0000, kCode = 0x1000, kSize = 0x10000;

  // `size`: of the code, with its zeros behind what there is of it.
  explicit WalkTarget(Architecture architecture = Architecture::kX86_64, std::uint64_t size = kSize)
      : architecture_(architecture), size_(size) {
    auto owned = std::make_unique<WordMemory>();
    memory_ = owned.get();
    space_.emplace(architecture, std::move(owned));
  }

  [[nodiscard]] CieSpec cie_spec() const {
    CieSpec spec;
    if (architecture_ == Architecture::kAArch64) {
      spec.return_register = 30;
      spec.instructions = {0x0c, 31, 0};  // def_cfa sp, 0
    }
    return spec;
  }
  // CFI of a function at kCode + `offset`. Before start().
  void function(std::uint64_t offset, std::uint64_t size, const Bytes& instructions) {
    function(offset, size, instructions, cie_spec());
  }
  void function(std::uint64_t offset, std::uint64_t size, const Bytes& instructions, const CieSpec& spec) {
    cfi_.fde(cfi_.cie(spec), kCode + offset, size, instructions);
  }
  void start(const std::vector<std::uint8_t>& code = {}) {
    const Bytes end{0, 0, 0, 0};
    cfi_.raw().add(end);
    auto image = elf_with_eh_frame(architecture_, code, kCode, cfi_.raw().data(), kCode + size_);
    ModuleInfo info{kBias, kBias + kCode + size_, kBias, "synthetic", {}};
    (void)space_->add_module(std::move(info), std::move(image));
  }

  [[nodiscard]] static std::uint64_t pc(std::uint64_t offset) { return kBias + kCode + offset; }
  [[nodiscard]] Registers at(CodeAddress pc, std::uint64_t sp) const {
    Registers registers(architecture_);
    registers.set_pc(pc);
    registers.set_sp(sp);
    return registers;
  }
  [[nodiscard]] WordMemory& memory() { return *memory_; }
  [[nodiscard]] AddressSpace& space() { return *space_; }

 private:
  Architecture architecture_;
  std::uint64_t size_;
  CfiBuilder cfi_;
  WordMemory* memory_ = nullptr;
  std::optional<AddressSpace> space_;
};

}  // namespace windlass::test
