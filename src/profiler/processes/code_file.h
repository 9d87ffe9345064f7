// One file that code was mapped from: what it is, how it is opened, where its mappings lie in it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/mapped_file.h"
#include "formats/dwarf/switched_stack.h"
#include "formats/image/elf.h"
#include "formats/image/machine.h"
#include "formats/image/pe.h"
#include "lookup/sources/unwind_source.h"
#include "os/mapped_files.h"
#include "profiler/processes/process_table.h"
#include "profiler/processes/table_cache.h"
#include "profiler/profile/profile.h"

namespace windlass::profiler {

// A file that was opened, and looked at as far as it takes to say what it is.
struct OpenedFile {
  int fd = -1;  // whoever has it closes it
  std::uint64_t inode = 0;
  MappedFile file;
  std::optional<image::ElfImage> image;  // empty: not ELF, or not to be opened
  std::optional<image::PeImage> pe;      // empty: not PE
  std::string content;                   // two files with the same one hold the same code
  std::string problem;                   // why there is neither image
  std::optional<TableKey> key;           // of its table in files; empty: it is kept in none
};

// The first of the files that can be opened and is what was mapped.
[[nodiscard]] std::optional<OpenedFile> open_code_file(const std::vector<os::FileCandidate>& candidates);
// The same of what is in no file, or in none that may be opened, by a descriptor of a memory file of its bytes (-1:
// there is none), which it takes over.
[[nodiscard]] std::optional<OpenedFile> open_memory_file(int fd, std::string content);

enum class TableState : std::uint8_t {
  kPending,  // queued or being compiled
  kReady,
  kNoTable,  // nothing to compile; `reason` says why
  kDropped,  // evicted
};

// Numbers, path and images are const once it is in the catalogue; the rest says whose it is.
struct CodeFile {
  std::uint32_t number = 0;
  std::string path;      // as the first process saw it
  std::string build_id;  // hex, empty if none
  int fd = -1;           // kept open for symbolisation; -1 where too many are
  std::uint64_t inode = 0;
  MappedFile file;
  std::optional<image::ElfImage> image;                         // empty: not ELF, or not to be opened
  std::optional<image::PeImage> pe;                             // empty: not PE; its addresses are RVAs
  image::CodeMachine machine;                                   // whose code it is
  std::optional<TableKey> key;                                  // OpenedFile's
  bool from_memory = false;                                     // of a process: the file may not be opened
  bool has_interpreter = false;                                 // it may be one's process that maps it
  bool has_thread_context = false;                              // CodeLocation::thread_context
  wl_label_source goroutines{};                                 // CodeLocation's
  dwarf::ThreadSlot thread_slot;                                // of a Go program for Windows
  std::uint64_t code_begin = 0, code_end = 0, code_offset = 0;  // its first executable segment, and where in the file
  std::uint32_t kernel_id = 0;                                  // the table store's number
  std::uint64_t last_used = 0;                                  // the catalogue's

  // The compiling thread's while it is kPending, and const after that but for becoming kDropped.
  std::atomic<TableState> state = TableState::kPending;
  std::string reason;
  double compile_seconds = 0;
  bool from_cache = false;
  std::uint64_t table_rows = 0, table_bytes = 0;

  std::unique_ptr<sources::UnwindSource> source;  // made when first needed; the registry's owner thread only

  CodeFile();
  ~CodeFile();
  // Takes over all but the descriptor and the content.
  void take(OpenedFile opened, std::string from_path);
  // Lets go of what is mapped and made of it. The descriptor stays, symbolisation may want it.
  void drop();

  // Its pages stay in the page cache; they need not count as this process's.
  void let_go_of_pages() const;

  // Its unwind information; there must be an image. Refers to what is mapped.
  [[nodiscard]] std::unique_ptr<sources::UnwindSource> make_source() const {
    return pe ? sources::make_source(*pe) : sources::make_source(*image);
  }
  // Where a mapping of it lies in its own numbering.
  [[nodiscard]] ProcessTable::CodeLocation place(const os::ProcMap& map) const;
  // CodeLocation's, of a process that has it `bias` above its own numbering.
  [[nodiscard]] std::uint64_t thread_slot_at(std::uint64_t bias) const;
  // For Aggregator::build.
  void describe(profile::Module& module) const;
};

}  // namespace windlass::profiler
