// Reads ELF core files of x86-64, AArch64 and i386, as kernels (fs/binfmt_elf.c) and gdb's gcore write them: the places
// of memory in the file, and the contents of the notes. The bytes may be hostile: every count and size is checked
// against the bytes that are there. A damaged or missing part costs only that part.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/image/elf.h"
#include "windlass/bytes.h"

namespace windlass::image {

// A thread, from its NT_PRSTATUS and the notes up to the next one. Views into the file.
struct CoreThread {
  std::uint64_t id = 0;
  int signal = 0;              // that ended the process; 0: it was alive (gcore)
  ByteView general;            // elf_gregset_t
  ByteView vector;             // NT_FPREGSET, empty if there is none
  std::uint64_t pac_mask = 0;  // NT_ARM_PAC_MASK, of code addresses; 0: none
};

// A mapped file, from NT_FILE.
struct CoreMapping {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::uint64_t offset = 0;  // bytes
  std::string path;          // without " (deleted)"
  bool deleted = false;
};

// A PT_LOAD: [begin, end) of memory, of which the first `bytes.size()` are in the file.
struct CoreSegment {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  bool executable = false;
  bool cut_off = false;  // the file ends before the bytes it promises
  ByteView bytes;
};

// A view: it points into the bytes given to `parse`, which must outlive it.
class CoreFile {
 public:
  static constexpr std::size_t kMaxThreads = std::size_t{1} << 20;
  static constexpr std::size_t kMaxMappings = std::size_t{1} << 18;
  static constexpr std::size_t kMaxProblems = 256;

  // Errors: not ELF, or not a core file, of one of the machines. Anything else that is wrong is in `problems`.
  [[nodiscard]] static Expected<CoreFile> parse(ByteView file);

  Machine machine = Machine::kX86_64;
  std::vector<CoreSegment> segments;  // by begin; where they overlap the later begins
  std::vector<CoreThread> threads;    // as in the file: a kernel puts the one that crashed first
  std::vector<CoreMapping> mappings;  // by begin
  std::vector<std::pair<std::uint64_t, std::uint64_t>> auxiliary;  // NT_AUXV
  std::string name;                                                // pr_fname
  std::string arguments;                                           // pr_psargs
  std::uint64_t process = 0;
  std::vector<Error> problems;  // `where` is the file offset

  // The value of an entry of the auxiliary vector (AT_*).
  [[nodiscard]] std::optional<std::uint64_t> auxiliary_value(std::uint64_t type) const;
  // The segment that contains an address, or null. Logarithmic.
  [[nodiscard]] const CoreSegment* segment_at(std::uint64_t address) const;

 private:
  void report(const Error& problem);
  void read_segments(const ElfImage& elf);
  void read_notes(ByteView notes);
  void read_note(std::string_view owner, std::uint32_t type, ByteView desc);
  void read_status(ByteView desc);
  void read_process_info(ByteView desc);
  void read_files(ByteView desc);
};

}  // namespace windlass::image
