// ELF32 and ELF64: the same structures, with fields of other widths and, in some, in another order (gABI 4.1 chapters 4
// and 5). What is read of either class is the 64-bit structure.
#pragma once

#include <elf.h>

#include <cstddef>
#include <cstdint>

#include "formats/image/elf.h"
#include "windlass/bytes.h"

namespace windlass::image {

static_assert(static_cast<int>(ElfClass::k32) == ELFCLASS32 && static_cast<int>(ElfClass::k64) == ELFCLASS64);

namespace detail {

inline Elf64_Ehdr widened(const Elf32_Ehdr& from) {
  Elf64_Ehdr to{};
  for (unsigned i = 0; i < EI_NIDENT; ++i) to.e_ident[i] = from.e_ident[i];
  to.e_type = from.e_type;
  to.e_machine = from.e_machine;
  to.e_version = from.e_version;
  to.e_entry = from.e_entry;
  to.e_phoff = from.e_phoff;
  to.e_shoff = from.e_shoff;
  to.e_flags = from.e_flags;
  to.e_ehsize = from.e_ehsize;
  to.e_phentsize = from.e_phentsize;
  to.e_phnum = from.e_phnum;
  to.e_shentsize = from.e_shentsize;
  to.e_shnum = from.e_shnum;
  to.e_shstrndx = from.e_shstrndx;
  return to;
}
inline Elf64_Phdr widened(const Elf32_Phdr& from) {
  return {from.p_type,  from.p_flags,  from.p_offset, from.p_vaddr,
          from.p_paddr, from.p_filesz, from.p_memsz,  from.p_align};
}
inline Elf64_Shdr widened(const Elf32_Shdr& from) {
  return {from.sh_name, from.sh_type, from.sh_flags, from.sh_addr,      from.sh_offset,
          from.sh_size, from.sh_link, from.sh_info,  from.sh_addralign, from.sh_entsize};
}
inline Elf64_Chdr widened(const Elf32_Chdr& from) { return {from.ch_type, 0, from.ch_size, from.ch_addralign}; }
inline Elf64_Sym widened(const Elf32_Sym& from) {
  return {from.st_name, from.st_info, from.st_other, from.st_shndx, from.st_value, from.st_size};
}
inline Elf64_auxv_t widened(const Elf32_auxv_t& from) { return {from.a_type, {from.a_un.a_val}}; }
inline Elf64_Dyn widened(const Elf32_Dyn& from) { return {from.d_tag, {from.d_un.d_val}}; }

// The 32-bit structure of a 64-bit one. For their types alone: they have no body.
Elf32_Ehdr narrowed(const Elf64_Ehdr& from);
Elf32_Phdr narrowed(const Elf64_Phdr& from);
Elf32_Shdr narrowed(const Elf64_Shdr& from);
Elf32_Chdr narrowed(const Elf64_Chdr& from);
Elf32_Sym narrowed(const Elf64_Sym& from);
Elf32_Dyn narrowed(const Elf64_Dyn& from);
Elf32_auxv_t narrowed(const Elf64_auxv_t& from);

template <typename Wide>
struct Narrow {
  using Type = decltype(narrowed(Wide()));
};

}  // namespace detail

// How many bytes the structure takes in a file of this class.
template <typename Wide>
[[nodiscard]] constexpr std::size_t stored_size(ElfClass elf_class) {
  return elf_class == ElfClass::k32 ? sizeof(typename detail::Narrow<Wide>::Type) : sizeof(Wide);
}

// The structure at `offset` of a file of this class. Errors: as ByteView::at.
template <typename Wide>
[[nodiscard]] Expected<Wide> read_stored(ByteView bytes, ElfClass elf_class, std::uint64_t offset) {
  if (elf_class == ElfClass::k64) return bytes.at<Wide>(offset);
  const auto narrow = bytes.at<typename detail::Narrow<Wide>::Type>(offset);
  if (!narrow) return Failure(narrow.error());
  return detail::widened(*narrow);
}

}  // namespace windlass::image
