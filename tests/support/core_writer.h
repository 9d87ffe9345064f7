// Small core files as a kernel or gcore lays them out.
#pragma once

#include <elf.h>

#include <string>
#include <utility>
#include <vector>

#include "support/byte_sink.h"
#include "windlass/registers.h"

namespace windlass::test {

class CoreWriter {
 public:
  struct Segment {
    std::uint64_t begin;
    std::vector<std::byte> bytes;
    std::uint64_t memory_size;
    std::uint32_t flags;
  };
  struct File {
    std::uint64_t begin, end, offset;
    std::string path;
  };
  struct CoreThread {
    std::uint32_t id;
    Registers registers;
  };

  explicit CoreWriter(Architecture architecture) : architecture_(architecture) {}

  std::vector<Segment> segments;
  std::vector<File> files;  // offsets in bytes, multiples of 4096
  std::vector<CoreThread> threads;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> auxiliary;
  int signal = 11;
  std::uint32_t process = 0;
  std::string name = "program";
  std::string arguments = "program with arguments";
  std::uint64_t pac_mask = 0;           // 0: no note
  bool extended_segment_count = false;  // PN_XNUM and the count in section header 0
  bool notes_last = false;              // as gcore writes them

  [[nodiscard]] std::vector<std::byte> write() const {
    const std::vector<std::byte> notes = make_notes();
    ByteSink out;
    const std::size_t header_at = out.zeros(sizeof(Elf64_Ehdr));
    const std::size_t count = segments.size() + 1;
    const std::size_t table_at = out.zeros(count * sizeof(Elf64_Phdr));
    Elf64_Phdr note{};
    note.p_type = PT_NOTE;
    note.p_filesz = notes.size();
    note.p_align = 4;
    if (!notes_last) note.p_offset = out.append(notes);
    std::size_t slot = table_at + sizeof(Elf64_Phdr);
    for (const Segment& segment : segments) {
      out.align(4096);
      Elf64_Phdr load{};
      load.p_type = PT_LOAD;
      load.p_flags = segment.flags;
      load.p_vaddr = segment.begin;
      load.p_filesz = segment.bytes.size();
      load.p_memsz = std::max<std::uint64_t>(segment.memory_size, segment.bytes.size());
      load.p_align = 4096;
      load.p_offset = out.append(segment.bytes);
      out.set(slot, load);
      slot += sizeof load;
    }
    if (notes_last) note.p_offset = out.append(notes);
    out.set(table_at, note);
    Elf64_Ehdr header{};
    std::memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64;
    header.e_ident[EI_DATA] = ELFDATA2LSB;
    header.e_ident[EI_VERSION] = EV_CURRENT;
    header.e_type = ET_CORE;
    header.e_machine = architecture_ == Architecture::kX86_64 ? EM_X86_64 : EM_AARCH64;
    header.e_version = EV_CURRENT;
    header.e_phoff = table_at;
    header.e_ehsize = sizeof header;
    header.e_phentsize = sizeof(Elf64_Phdr);
    header.e_phnum = static_cast<std::uint16_t>(count);
    if (extended_segment_count) {
      Elf64_Shdr zero{};
      zero.sh_info = static_cast<std::uint32_t>(count);
      header.e_phnum = PN_XNUM;
      header.e_shentsize = sizeof zero;
      header.e_shnum = 1;
      header.e_shoff = out.put(zero);
    }
    out.set(header_at, header);
    return out.bytes();
  }

 private:
  static void add_note(ByteSink& out, std::string_view owner, std::uint32_t type, const ByteSink& desc) {
    out.put(Elf64_Nhdr{static_cast<std::uint32_t>(owner.size() + 1), static_cast<std::uint32_t>(desc.size()), type});
    out.append(owner);
    out.zeros(1);
    out.align(4);
    out.append(desc.bytes());
    out.align(4);
  }

  [[nodiscard]] ByteSink status(const CoreThread& thread) const {
    ByteSink desc;
    desc.zeros(112);
    desc.set(12, static_cast<std::uint16_t>(signal));
    desc.set(32, thread.id);
    if (architecture_ == Architecture::kX86_64) {
      constexpr int kOrder[] = {15, 14, 13, 12, 6,  3, 11, 10, 9,  8,  0,  2,  1, 4,
                                5,  -1, 16, -1, -1, 7, -1, -1, -1, -1, -1, -1, -1};
      for (const int reg : kOrder) desc.put(reg < 0 ? 0 : thread.registers.get(static_cast<std::uint64_t>(reg)));
    } else {
      for (std::uint64_t reg = 0; reg < 33; ++reg) desc.put(thread.registers.get(reg));
      desc.put(std::uint64_t{0});
    }
    desc.put(std::uint64_t{1});
    return desc;
  }

  [[nodiscard]] std::vector<std::byte> make_notes() const {
    ByteSink out;
    bool first = true;
    for (const CoreThread& thread : threads) {
      add_note(out, "CORE", NT_PRSTATUS, status(thread));
      if (first) add_process_notes(out);
      first = false;
      if (architecture_ == Architecture::kAArch64) add_arm_notes(out, thread);
    }
    return out.bytes();
  }

  void add_process_notes(ByteSink& out) const {
    ByteSink info;
    info.zeros(136);
    info.set(24, process);
    for (std::size_t i = 0; i < name.size() && i < 15; ++i) info.set(40 + i, name[i]);
    for (std::size_t i = 0; i < arguments.size() && i < 79; ++i) info.set(56 + i, arguments[i]);
    add_note(out, "CORE", NT_PRPSINFO, info);
    ByteSink auxv;
    for (const auto& [type, value] : auxiliary) {
      auxv.put(type);
      auxv.put(value);
    }
    add_note(out, "CORE", NT_AUXV, auxv);
    ByteSink list;
    list.put(std::uint64_t{files.size()});
    list.put(std::uint64_t{4096});
    for (const File& file : files) {
      list.put(file.begin);
      list.put(file.end);
      list.put(file.offset / 4096);
    }
    for (const File& file : files) {
      list.append(file.path);
      list.zeros(1);
    }
    add_note(out, "CORE", NT_FILE, list);
  }

  void add_arm_notes(ByteSink& out, const CoreThread& thread) const {
    ByteSink vectors;
    vectors.zeros(528);
    for (std::uint64_t i = 0; i < 8; ++i) vectors.set(16 * (8 + i), thread.registers.get(72 + i));
    add_note(out, "CORE", NT_FPREGSET, vectors);
    if (pac_mask == 0) return;
    ByteSink masks;
    masks.put(pac_mask);
    masks.put(pac_mask);
    add_note(out, "LINUX", 0x406, masks);
  }

  Architecture architecture_;
};

}  // namespace windlass::test
