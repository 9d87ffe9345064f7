#include "walk/target/memory_image.h"

#include <algorithm>
#include <cstring>

#include <elf.h>

#include "base/pages.h"
#include "formats/image/elf_structures.h"
#include "walk/target/dynamic_symbols.h"

namespace windlass::walk {
namespace {

constexpr std::size_t kMaxImage = std::size_t{256} << 20;
constexpr std::size_t kMaxSegments = 512;

// Section headers are not in memory, whatever the header says.
template <typename Header>
void forget_sections(std::vector<std::byte>& bytes) {
  Header header;
  std::memcpy(&header, bytes.data(), sizeof header);
  header.e_shoff = 0;
  header.e_shnum = header.e_shstrndx = 0;
  std::memcpy(bytes.data(), &header, sizeof header);
}

// Up to the end of the program headers.
Expected<std::vector<std::byte>> read_headers(const Memory& memory, std::uint64_t base) {
  std::byte begin[sizeof(Elf64_Ehdr)];
  if (!memory.read(base, begin, sizeof begin) || std::memcmp(begin, ELFMAG, SELFMAG) != 0)
    return fail(ErrorCode::kNotFound, "no ELF header in memory", base);
  const auto elf_class = begin[EI_CLASS] == std::byte{ELFCLASS32} ? image::ElfClass::k32 : image::ElfClass::k64;
  const Elf64_Ehdr file = *image::read_stored<Elf64_Ehdr>(ByteView(begin, sizeof begin), elf_class, 0);
  const std::size_t entry_size = image::stored_size<Elf64_Phdr>(elf_class);
  if (file.e_phentsize != entry_size || file.e_phnum > kMaxSegments || file.e_phoff > kSmallestPage * 16)
    return fail(ErrorCode::kMalformed, "program headers in memory are damaged", base + file.e_phoff, file.e_phnum);
  std::vector<std::byte> bytes(std::max<std::size_t>(sizeof file, file.e_phoff + file.e_phnum * entry_size));
  if (!memory.read(base, bytes.data(), bytes.size()))
    return fail(ErrorCode::kNotFound, "program headers are not in memory", base);
  if (elf_class == image::ElfClass::k32)
    forget_sections<Elf32_Ehdr>(bytes);
  else
    forget_sections<Elf64_Ehdr>(bytes);
  return bytes;
}

// Reads page by page where not all of it can be read. True if every byte was.
bool read_partly(const Memory& memory, std::uint64_t address, std::byte* to, std::size_t size) {
  if (memory.read(address, to, size)) return true;
  bool all = true;
  for (std::size_t done = 0; done < size;) {
    const std::size_t piece = std::min<std::size_t>(size - done, kSmallestPage - (address + done) % kSmallestPage);
    all &= memory.read(address + done, to + done, piece);
    done += piece;
  }
  return all;
}

std::uint64_t bias_of(std::uint64_t base, std::span<const image::Segment> segments) {
  for (const image::Segment& s : segments)
    if (s.type == PT_LOAD && s.offset < kSmallestPage) return base - (s.vaddr - s.offset);
  return base;
}

}  // namespace

Expected<LoadedHeaders> read_loaded_headers(const Memory& memory, std::uint64_t base) {
  auto headers = read_headers(memory, base);
  if (!headers) return Failure(headers.error());
  // Notes stand in the first page or two; enough to find the build id with the file's own reader.
  std::vector<std::byte> bytes = std::move(*headers);
  const auto parsed = image::ElfImage::parse(ByteView(bytes.data(), bytes.size()));
  if (!parsed) return Failure(parsed.error());
  LoadedHeaders found;
  found.segments.assign(parsed->segments().begin(), parsed->segments().end());
  found.entry = parsed->entry();
  found.bias = bias_of(base, found.segments);
  for (const image::Segment& s : found.segments) {
    constexpr std::uint64_t kMaxNotes = 65536;
    if (s.type != PT_NOTE || s.filesz > kMaxNotes || s.offset > kMaxImage) continue;
    if (bytes.size() < s.offset + s.filesz) bytes.resize(s.offset + s.filesz);
    (void)read_partly(memory, s.vaddr + found.bias, bytes.data() + s.offset, s.filesz);
  }
  if (const auto again = image::ElfImage::parse(ByteView(bytes.data(), bytes.size())))
    found.build_id = again->build_id();
  return found;
}

Expected<std::vector<std::byte>> read_memory_image(const Memory& memory, std::uint64_t base) {
  auto headers = read_headers(memory, base);
  if (!headers) return Failure(headers.error());
  std::vector<std::byte> bytes = std::move(*headers);
  const auto parsed = image::ElfImage::parse(ByteView(bytes.data(), bytes.size()));
  if (!parsed) return Failure(parsed.error());
  const std::vector<image::Segment> segments(parsed->segments().begin(), parsed->segments().end());
  const std::uint64_t bias = bias_of(base, segments);
  std::size_t size = bytes.size();
  for (const image::Segment& s : segments) {
    if (s.type != PT_LOAD) continue;
    if (s.filesz > kMaxImage || s.offset > kMaxImage - s.filesz)
      return fail(ErrorCode::kLimit, "image in memory is too large", base, s.filesz);
    size = std::max<std::size_t>(size, s.offset + s.filesz);
  }
  const std::vector<std::byte> first = bytes;
  bytes.resize(size);
  for (const image::Segment& s : segments) {
    if (s.type != PT_LOAD && s.type != PT_GNU_EH_FRAME) continue;
    if (s.offset > size || s.filesz > size - s.offset) continue;
    const bool all = read_partly(memory, s.vaddr + bias, bytes.data() + s.offset, s.filesz);
    if (s.type == PT_GNU_EH_FRAME && !all)
      return fail(ErrorCode::kNotFound, "unwind information is not in memory", s.vaddr + bias, s.filesz);
  }
  std::memcpy(bytes.data(), first.data(), first.size());  // the header without section headers
  add_symbol_sections(bytes, bias);
  return bytes;
}

}  // namespace windlass::walk
