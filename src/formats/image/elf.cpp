#include "formats/image/elf.h"

#include <algorithm>
#include <utility>

#include <elf.h>

#include "formats/image/decompress.h"
#include "formats/image/elf_structures.h"

namespace windlass::image {
namespace {

// Newer than the distribution's elf.h.
constexpr std::uint32_t kCompressZstd = 2;

// Each machine has one class: x86-64's 32-bit one (x32) is not known here.
bool is_supported(std::uint16_t machine, ElfClass elf_class) {
  return elf_class == ElfClass::k32 ? machine == EM_386 : machine == EM_X86_64 || machine == EM_AARCH64;
}

std::string hex(ByteView bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  text.reserve(bytes.size() * 2);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    text += kDigits[bytes.u8()[i] >> 4];
    text += kDigits[bytes.u8()[i] & 15];
  }
  return text;
}

Expected<Elf64_Ehdr> read_header(ByteView file) {
  if (file.size() < SELFMAG || std::memcmp(file.data(), ELFMAG, SELFMAG) != 0)
    return fail(ErrorCode::kMalformed, "not an ELF file", file.origin());
  const auto stored_class = file.size() > EI_CLASS ? file.u8()[EI_CLASS] : std::uint8_t{ELFCLASSNONE};
  if (stored_class != ELFCLASSNONE && stored_class != ELFCLASS32 && stored_class != ELFCLASS64)
    return fail(ErrorCode::kUnsupported, "neither a 32-bit nor a 64-bit ELF file", file.origin() + EI_CLASS,
                stored_class);
  const auto elf_class = static_cast<ElfClass>(stored_class);
  const auto header = read_stored<Elf64_Ehdr>(file, elf_class, 0);
  if (!header) return fail(ErrorCode::kTruncated, "ELF header reaches past the end of the file", file.origin());
  if (header->e_ident[EI_DATA] != ELFDATA2LSB)
    return fail(ErrorCode::kUnsupported, "not a little-endian ELF file", file.origin() + EI_DATA);
  if (!is_supported(header->e_machine, elf_class))
    return fail(ErrorCode::kUnsupported, "ELF machine is none of x86-64, AArch64 and i386",
                file.origin() + offsetof(Elf64_Ehdr, e_machine), header->e_machine);
  return header;
}

}  // namespace

Expected<ElfImage> ElfImage::parse(ByteView file) {
  const auto header = read_header(file);
  if (!header) return Failure(header.error());
  ElfImage image;
  image.file_ = file;
  image.machine_ = static_cast<Machine>(header->e_machine);
  image.type_ = header->e_type;
  image.entry_ = header->e_entry;

  // gABI "ELF header": counts that do not fit 16 bits are in section header 0.
  std::uint64_t section_count = header->e_shnum;
  std::uint64_t name_index = header->e_shstrndx;
  std::uint64_t segment_count = header->e_phnum;
  if (header->e_shoff != 0) {
    if (const auto zero = read_stored<Elf64_Shdr>(file, image.elf_class(), header->e_shoff)) {
      if (section_count == 0) section_count = zero->sh_size;
      if (name_index == SHN_XINDEX) name_index = zero->sh_link;
      if (segment_count == PN_XNUM) segment_count = zero->sh_info;
    }
  }
  image.read_segments(header->e_phoff, segment_count, header->e_phentsize);
  if (header->e_shoff != 0) image.read_sections(header->e_shoff, section_count, name_index, header->e_shentsize);
  image.find_build_id();
  return image;
}

void ElfImage::read_segments(std::uint64_t offset, std::uint64_t count, std::uint64_t entry_size) {
  if (count == 0) return;
  const std::size_t right_size = stored_size<Elf64_Phdr>(elf_class());
  if (entry_size != right_size) {
    problems_.push_back(Error{ErrorCode::kMalformed, "program header entries have the wrong size", offset, entry_size});
    return;
  }
  const std::uint64_t room = offset < file_.size() ? (file_.size() - offset) / right_size : 0;
  if (count > room) {
    problems_.push_back(Error{ErrorCode::kOutOfRange, "program headers reach past the end of the file", offset, count});
    count = room;
    has_all_segments_ = false;
  }
  segments_.reserve(count);
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto entry = *read_stored<Elf64_Phdr>(file_, elf_class(), offset + i * right_size);
    segments_.push_back(Segment{entry.p_type, entry.p_flags, entry.p_offset, entry.p_vaddr, entry.p_filesz,
                                entry.p_memsz, entry.p_align});
  }
}

void ElfImage::read_sections(std::uint64_t offset, std::uint64_t count, std::uint64_t name_index,
                             std::uint64_t entry_size) {
  const std::size_t right_size = stored_size<Elf64_Shdr>(elf_class());
  if (entry_size != right_size) {
    problems_.push_back(Error{ErrorCode::kMalformed, "section header entries have the wrong size", offset, entry_size});
    return;
  }
  if (count > file_.size() / right_size || !file_.sub(offset, count * right_size)) {
    problems_.push_back(Error{ErrorCode::kOutOfRange, "section headers reach past the end of the file", offset, count});
    return;
  }
  const auto header = [&](std::uint64_t i) {
    return *read_stored<Elf64_Shdr>(file_, elf_class(), offset + i * right_size);
  };
  ByteView names;
  if (name_index < count && header(name_index).sh_type != SHT_NOBITS) {
    const auto table = header(name_index);
    if (const auto bytes = file_.sub(table.sh_offset, table.sh_size))
      names = *bytes;
    else
      problems_.push_back(bytes.error());
  }
  sections_.reserve(count);
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto entry = header(i);
    Section section{{},
                    entry.sh_type,
                    entry.sh_flags,
                    entry.sh_addr,
                    entry.sh_offset,
                    entry.sh_size,
                    entry.sh_link,
                    entry.sh_info,
                    entry.sh_entsize};
    if (const auto name = names.string_at(entry.sh_name))
      section.name = *name;
    else if (!names.empty())
      problems_.push_back(name.error());
    sections_.push_back(section);
  }
}

const Section* ElfImage::section(std::string_view name) const {
  const auto found = std::find_if(sections_.begin(), sections_.end(), [&](const Section& s) { return s.name == name; });
  return found == sections_.end() ? nullptr : &*found;
}

// gABI "Note section": {namesz, descsz, type}, name and descriptor each padded. Real files pad to 4 bytes in 4-aligned
// note segments and to 8 in 8-aligned ones (.note.gnu.property).
bool ElfImage::scan_notes(ByteView notes, std::uint64_t align) {
  const std::uint64_t pad = align == 8 ? 7 : 3;
  std::uint64_t at = 0;
  while (const auto note = notes.at<Elf64_Nhdr>(at)) {  // the same in both classes
    const std::uint64_t name_at = at + sizeof(Elf64_Nhdr);
    const std::uint64_t desc_at = (name_at + note->n_namesz + pad) & ~pad;
    const auto name = notes.sub(name_at, note->n_namesz);
    const auto desc = notes.sub(desc_at, note->n_descsz);
    if (!name || !desc) return false;
    if (note->n_type == NT_GNU_BUILD_ID && name->size() == 4 && std::memcmp(name->data(), "GNU", 4) == 0 &&
        !desc->empty() && desc->size() <= 64) {
      build_id_ = hex(*desc);
      return true;
    }
    at = (desc_at + note->n_descsz + pad) & ~pad;
  }
  return false;
}

void ElfImage::find_build_id() {
  for (const Segment& segment : segments_) {
    if (segment.type != PT_NOTE) continue;
    const auto notes = file_.sub(segment.offset, segment.filesz);
    if (notes && scan_notes(*notes, segment.align)) return;
  }
  // Relocatable files have no segments; debug files made by `objcopy --only-keep-debug` have segments without contents.
  for (const Section& section : sections_) {
    if (section.type != SHT_NOTE) continue;
    const auto notes = file_.sub(section.offset, section.size);
    if (notes && (scan_notes(*notes, 4) || scan_notes(*notes, 8))) return;
  }
}

std::vector<ExecutableSegment> ElfImage::executable_segments() const {
  std::vector<ExecutableSegment> out;
  for (const Segment& s : segments_)
    if (s.type == PT_LOAD && (s.flags & PF_X) != 0) out.push_back({s.vaddr, s.memsz, s.offset, s.filesz});
  return out;
}

Expected<ByteView> ElfImage::stored_bytes(const Section& section) const {
  if (section.type == SHT_NOBITS)
    return fail(ErrorCode::kUnsupported, "section has no bytes in this file", section.offset);
  return file_.sub(section.offset, section.size);
}

Expected<SectionBytes> ElfImage::bytes(const Section& section) const {
  const auto stored = stored_bytes(section);
  if (!stored) return Failure(stored.error());
  Expected<std::vector<std::byte>> inflated;
  if ((section.flags & SHF_COMPRESSED) != 0) {
    const auto header = read_stored<Elf64_Chdr>(*stored, elf_class(), 0);
    if (!header) return Failure(header.error());
    const std::size_t header_size = stored_size<Elf64_Chdr>(elf_class());
    const ByteView payload = *stored->sub(header_size, stored->size() - header_size);
    if (header->ch_type == ELFCOMPRESS_ZLIB)
      inflated = inflate_zlib(payload, header->ch_size, kMaxDecompressedBytes);
    else if (header->ch_type == kCompressZstd)
      inflated = inflate_zstd(payload, header->ch_size, kMaxDecompressedBytes);
    else
      return fail(ErrorCode::kUnsupported, "unknown section compression", section.offset, header->ch_type);
  } else if (section.name.starts_with(".zdebug") && stored->size() > 12 &&
             std::memcmp(stored->data(), "ZLIB", 4) == 0) {
    // The GNU form that came before SHF_COMPRESSED: "ZLIB", then the size as 8 big-endian bytes.
    const std::uint64_t size = __builtin_bswap64(*stored->at<std::uint64_t>(4));
    inflated = inflate_zlib(*stored->sub(12, stored->size() - 12), size, kMaxDecompressedBytes);
  } else {
    return SectionBytes{*stored, {}};
  }
  if (!inflated) return Failure(inflated.error());
  SectionBytes out;
  out.owned = std::move(*inflated);
  out.view = ByteView(out.owned.data(), out.owned.size());
  return out;
}

Expected<std::vector<std::byte>> ElfImage::mini_debug_info() const {
  const Section* section = this->section(".gnu_debugdata");
  if (section == nullptr) return fail(ErrorCode::kNotFound, "no .gnu_debugdata section", 0);
  const auto stored = stored_bytes(*section);
  if (!stored) return Failure(stored.error());
  return inflate_xz(*stored, kMaxDecompressedBytes);
}

Expected<ByteView> ElfImage::from_address(std::uint64_t vaddr) const {
  for (const Segment& s : segments_) {
    if (s.type != PT_LOAD || vaddr < s.vaddr || vaddr - s.vaddr >= s.filesz) continue;
    if (s.offset >= file_.size()) return fail(ErrorCode::kTruncated, "segment lies past the end of the file", s.offset);
    const std::uint64_t size = std::min(s.filesz, file_.size() - s.offset);
    if (vaddr - s.vaddr < size) return file_.sub(s.offset + (vaddr - s.vaddr), size - (vaddr - s.vaddr));
  }
  return fail(ErrorCode::kOutOfRange, "address is not in the file", vaddr);
}

Expected<ByteView> ElfImage::at_address(std::uint64_t vaddr, std::uint64_t size) const {
  const auto rest = from_address(vaddr);
  if (!rest) return rest;
  return rest->sub(0, size);
}

std::optional<std::uint64_t> ElfImage::address_of_file_offset(std::uint64_t file_offset, bool executable,
                                                              std::uint64_t page_size) const {
  return image::address_of_file_offset(segments_, file_offset, executable, page_size);
}

std::optional<std::uint64_t> address_of_file_offset(std::span<const Segment> segments, std::uint64_t file_offset,
                                                    bool executable, std::uint64_t page_size) {
  for (const Segment& s : segments) {
    if (s.type != PT_LOAD || (executable && (s.flags & PF_X) == 0)) continue;
    const std::uint64_t slack = s.offset & (page_size - 1);
    const std::uint64_t first = s.offset - slack;
    if (file_offset >= first && file_offset - first < slack + s.filesz) return s.vaddr - slack + (file_offset - first);
  }
  return std::nullopt;
}

}  // namespace windlass::image
