#include "formats/go/program.h"

#include <elf.h>

#include <algorithm>
#include <string_view>

#include "formats/image/unwind_sections.h"

namespace windlass::runtimes::go {
namespace {

// Go's linker aligns the table so (cmd/link/internal/ld/data.go).
constexpr std::uint64_t kAlignment = 32;

const image::Section* find_section(const image::ElfImage& image, std::string_view name) {
  const auto found = std::ranges::find(image.sections(), name, &image::Section::name);
  return found == image.sections().end() ? nullptr : &*found;
}

// Calls each(address, value) for the words that are relative to where the image is loaded; each says whether it wants
// more.
void each_relocated(const image::ElfImage& image, FunctionRef<bool(std::uint64_t, std::uint64_t)> each) {
  const std::uint32_t relative =
      image.machine() == image::Machine::kX86_64 ? std::uint32_t{R_X86_64_RELATIVE} : std::uint32_t{R_AARCH64_RELATIVE};
  for (const image::Section& section : image.sections()) {
    if (section.type != SHT_RELA) continue;
    const auto bytes = image.stored_bytes(section);
    if (!bytes) continue;
    for (std::uint64_t at = 0; at + sizeof(Elf64_Rela) <= bytes->size(); at += sizeof(Elf64_Rela)) {
      const Elf64_Rela entry = *bytes->at<Elf64_Rela>(at);
      if (ELF64_R_TYPE(entry.r_info) == relative && !each(entry.r_offset, static_cast<std::uint64_t>(entry.r_addend)))
        return;
    }
  }
}

// Places of an aligned table in a section. True: one was used.
bool search(std::uint64_t address, ByteView bytes, Program::IsHeader is_header, Program::Use use) {
  const std::uint64_t begin = (kAlignment - address % kAlignment) % kAlignment;
  for (std::uint64_t at = begin; at + kWord <= bytes.size(); at += kAlignment) {
    const ByteView rest(bytes.data() + at, bytes.size() - at, bytes.origin() + at);
    if (is_header(rest) && use({address + at, rest})) return true;
  }
  return false;
}

// Where the system's linker has made a library, a plugin or a program with C in it, the table is a part of
// .data.rel.ro. Its first 8 bytes have no relocation.
Expected<void> search_elf(const image::ElfImage& image, Program::IsHeader is_header, Program::Use use) {
  const image::Section* const section = find_section(image, ".data.rel.ro");
  if (section == nullptr || find_section(image, ".note.go.buildid") == nullptr)
    return fail(ErrorCode::kNotFound, "no program of Go's", 0);
  const auto bytes = image.stored_bytes(*section);
  if (!bytes) return Failure(bytes.error());
  if (search(section->address, *bytes, is_header, use)) return {};
  return fail(ErrorCode::kNotFound, "a library of Go's without its table of functions", bytes->origin());
}

Expected<void> each_of_elf(const image::ElfImage& image, Program::IsHeader is_header, Program::Use use) {
  for (const std::string_view name : {".gopclntab", ".data.rel.ro.gopclntab"}) {
    const image::Section* const section = find_section(image, name);
    if (section == nullptr) continue;
    const auto bytes = image.stored_bytes(*section);
    if (!bytes) return Failure(bytes.error());
    if (use({section->address, *bytes})) return {};
  }
  return search_elf(image, is_header, use);
}

// Go's linker puts the table among other constants. Each of its images has a section .symtab, which no other linker
// makes, so that other images need not be searched (cmd/link/internal/ld/pe.go).
Expected<void> each_of_pe(const image::PeImage& image, Program::IsHeader is_header, Program::Use use) {
  const bool is_go = std::ranges::find(image.sections(), ".symtab", &image::PeSection::name) != image.sections().end();
  for (const image::PeSection& section : image.sections())
    if (is_go && !section.writable() && !section.executable() &&
        search(section.rva, image.rest_from(section.rva), is_header, use))
      return {};
  return fail(ErrorCode::kNotFound, "no program of Go's", 0);
}

}  // namespace

Architecture Program::architecture() const {
  if (const auto* image = elf()) return image::architecture_of(image->machine());
  return pe()->machine() == image::PeMachine::kArm64 ? Architecture::kAArch64 : Architecture::kX86_64;
}

bool Program::has_wide_words() const { return elf() == nullptr || elf()->elf_class() == image::ElfClass::k64; }

Expected<ByteView> Program::at_address(std::uint64_t address, std::uint64_t size) const {
  if (const auto* image = elf()) return image->at_address(address, size);
  const auto rest = from_address(address);
  return rest ? rest->sub(0, size) : rest;
}

Expected<ByteView> Program::from_address(std::uint64_t address) const {
  if (const auto* image = elf()) return image->from_address(address);
  const ByteView rest = address >> 32 == 0 ? pe()->rest_from(static_cast<std::uint32_t>(address)) : ByteView();
  if (rest.empty()) return fail(ErrorCode::kOutOfRange, "outside of the image", address);
  return rest;
}

std::uint64_t Program::base() const { return pe() != nullptr ? pe()->image_base() : 0; }

Expected<void> Program::each_table(IsHeader is_header, Use use) const {
  return elf() != nullptr ? each_of_elf(*elf(), is_header, use) : each_of_pe(*pe(), is_header, use);
}

std::optional<std::uint64_t> Program::pointer_at(std::uint64_t address) const {
  std::optional<std::uint64_t> found;
  const auto look = [&](std::uint64_t at, std::uint64_t value) {
    if (at == address) found = value;
    return !found;
  };
  if (elf() != nullptr) each_relocated(*elf(), look);
  if (found) return found;
  const auto bytes = at_address(address, kWord);
  return bytes ? std::optional(*bytes->at<std::uint64_t>(0) - base()) : std::nullopt;
}

std::optional<std::uint64_t> Program::find_pointer(std::uint64_t to) const {
  std::optional<std::uint64_t> found;
  const auto look = [&](std::uint64_t at, std::uint64_t value) {
    if (value == to) found = at;
    return !found;
  };
  const auto look_through = [&](std::uint64_t address, ByteView bytes) {
    for (std::uint64_t at = 0; at + kWord <= bytes.size() && !found; at += kWord)
      look(address + at, *bytes.at<std::uint64_t>(at) - base());
  };
  if (const auto* image = elf()) {
    each_relocated(*image, look);
    for (const image::Section& section : image->sections()) {
      if (found) return found;
      if ((section.flags & SHF_WRITE) == 0 || section.type != SHT_PROGBITS) continue;
      if (const auto bytes = image->stored_bytes(section)) look_through(section.address, *bytes);
    }
    return found;
  }
  for (const image::PeSection& section : pe()->sections())
    if (section.writable()) look_through(section.rva, pe()->rest_from(section.rva));
  return found;
}

}  // namespace windlass::runtimes::go
