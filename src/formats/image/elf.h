// ELF64 images of x86-64 and AArch64 and ELF32 ones of i386: segments, sections, build id. Reads hostile bytes: every
// count and offset is checked against the bytes there are, and a damaged part costs only itself. System V gABI 4.1
// chapters 4 and 5.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/mapped_file.h"
#include "windlass/bytes.h"

namespace windlass::image {

enum class Machine : std::uint16_t { kI386 = 3, kX86_64 = 62, kAArch64 = 183 };

// e_ident[EI_CLASS]
enum class ElfClass : std::uint8_t { k32 = 1, k64 = 2 };
[[nodiscard]] constexpr ElfClass class_of(Machine machine) {
  return machine == Machine::kI386 ? ElfClass::k32 : ElfClass::k64;
}

struct Segment {
  std::uint32_t type;   // PT_*
  std::uint32_t flags;  // PF_*
  std::uint64_t offset;
  std::uint64_t vaddr;
  std::uint64_t filesz;
  std::uint64_t memsz;
  std::uint64_t align;
};

struct Section {
  std::string_view name;  // empty where the string table is damaged
  std::uint32_t type;     // SHT_*
  std::uint64_t flags;    // SHF_*
  std::uint64_t address;
  std::uint64_t offset;
  std::uint64_t size;  // as stored: compressed size where SHF_COMPRESSED
  std::uint32_t link;
  std::uint32_t info;
  std::uint64_t entsize;
};

// An executable PT_LOAD: where it is in memory (before the load bias) and in the file.
struct ExecutableSegment {
  std::uint64_t vaddr;
  std::uint64_t memsz;
  std::uint64_t file_offset;
  std::uint64_t filesz;
};

// ElfImage::address_of_file_offset(), of segments that are known from elsewhere.
[[nodiscard]] std::optional<std::uint64_t> address_of_file_offset(std::span<const Segment> segments,
                                                                  std::uint64_t file_offset, bool executable,
                                                                  std::uint64_t page_size);

// Bytes of a section: a view into the file, or decompressed storage of their own. The view stays valid when moved.
struct SectionBytes {
  ByteView view;
  std::vector<std::byte> owned;
};

// What decompression may produce at most; a few kilobytes of hostile input could otherwise ask for petabytes.
inline constexpr std::uint64_t kMaxDecompressedBytes = std::uint64_t{512} << 20;

// A view: it points into the bytes given to `parse`, which must outlive it. Immutable after parse, so any number of
// threads may read it.
class ElfImage {
 public:
  // Errors: not ELF, not little-endian, not one of the machines in its class. Damaged program or section headers are
  // none: `segments()` or `sections()` then lack what could not be read, and `problems()` says why.
  [[nodiscard]] static Expected<ElfImage> parse(ByteView file);

  [[nodiscard]] ByteView file() const { return file_; }
  [[nodiscard]] Machine machine() const { return machine_; }
  [[nodiscard]] ElfClass elf_class() const { return class_of(machine_); }
  [[nodiscard]] std::uint16_t type() const { return type_; }  // ET_*
  [[nodiscard]] std::uint64_t entry() const { return entry_; }
  [[nodiscard]] std::span<const Segment> segments() const { return segments_; }
  [[nodiscard]] std::span<const Section> sections() const { return sections_; }
  [[nodiscard]] const std::vector<Error>& problems() const { return problems_; }
  // False: the bytes end before the program headers do, as the first part of a file may.
  [[nodiscard]] bool has_all_segments() const { return has_all_segments_; }
  // Linear in the number of sections; nullptr if there is none of that name.
  [[nodiscard]] const Section* section(std::string_view name) const;
  // GNU build id as lower-case hex; empty if there is none.
  [[nodiscard]] const std::string& build_id() const { return build_id_; }
  [[nodiscard]] std::vector<ExecutableSegment> executable_segments() const;

  // A section's bytes as stored. kUnsupported for SHT_NOBITS.
  [[nodiscard]] Expected<ByteView> stored_bytes(const Section& section) const;
  // A section's bytes, decompressed if they are SHF_COMPRESSED (zlib, zstd) or an old `.zdebug_*` section.
  // In decompressed bytes the origin counts from the start of the decompressed section.
  [[nodiscard]] Expected<SectionBytes> bytes(const Section& section) const;
  // `.gnu_debugdata`: the embedded xz-compressed ELF image (MiniDebugInfo). kNotFound if there is none.
  [[nodiscard]] Expected<std::vector<std::byte>> mini_debug_info() const;

  // The file's bytes behind [vaddr, vaddr + size) of one PT_LOAD; .bss is not in the file and so kOutOfRange.
  [[nodiscard]] Expected<ByteView> at_address(std::uint64_t vaddr, std::uint64_t size) const;
  // The file's bytes from `vaddr` to the end of its PT_LOAD's file part.
  [[nodiscard]] Expected<ByteView> from_address(std::uint64_t vaddr) const;
  // The address, before the load bias, of what is at `file_offset`: for a line of /proc/PID/maps,
  // bias = start - *address_of_file_offset(offset). Offsets are page-aligned there, so a segment is taken to begin at
  // the page its first byte is in. With `executable`, only PF_X segments count: neighbours may share a page of the
  // file.
  [[nodiscard]] std::optional<std::uint64_t> address_of_file_offset(std::uint64_t file_offset, bool executable = true,
                                                                    std::uint64_t page_size = 4096) const;

 private:
  void read_segments(std::uint64_t offset, std::uint64_t count, std::uint64_t entry_size);
  void read_sections(std::uint64_t offset, std::uint64_t count, std::uint64_t name_index, std::uint64_t entry_size);
  void find_build_id();
  bool scan_notes(ByteView notes, std::uint64_t align);

  ByteView file_;
  Machine machine_ = Machine::kX86_64;
  std::uint16_t type_ = 0;
  std::uint64_t entry_ = 0;
  bool has_all_segments_ = true;
  std::vector<Segment> segments_;
  std::vector<Section> sections_;
  std::vector<Error> problems_;
  std::string build_id_;
};

}  // namespace windlass::image
