// The code of a recording's files: opened here if they are the files that were mapped, as modules of the profile and
// as sources of rows.
//
// A file is looked for under its path, then in perf's cache of files by build id. Its build id
// decides, else its inode. What is not found has no rows and no names.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/mapped_file.h"
#include "formats/image/elf.h"
#include "formats/image/machine.h"
#include "lookup/sources/unwind_source.h"
#include "os/register_writers.h"
#include "profiler/import/perf_file.h"
#include "profiler/import/perf_processes.h"
#include "profiler/import/profile_builder.h"

namespace windlass::importer {

struct PerfFilePlaces {
  bool open = true;                         // false: no file is opened, as if none were here
  std::string cache{};                      // of perf; empty: ~/.debug
  std::string kallsyms = "/proc/kallsyms";  // of the running kernel
};

struct PerfCodeFile {
  std::uint32_t module = profile::kNone;  // of the profile
  MappedFile file;
  std::optional<image::ElfImage> image;
  image::CodeMachine machine;
  std::unique_ptr<sources::UnwindSource> source;  // null: nothing is known
  bool generated = false;                         // code that is in no file

  // Its address in the numbering of the module - `address`; of a file that was not found, the offset in the file
  // counts.
  [[nodiscard]] std::uint64_t bias_of(const PerfMapping& mapping) const;
};

class PerfCode {
 public:
  // `file` and `builder` must outlive it.
  PerfCode(const PerfFile& file, ProfileBuilder& builder, PerfFilePlaces places);

  // By PerfMapping::file. Code that is in no file is the process's own.
  [[nodiscard]] const PerfCodeFile& of(const PerfMapping& mapping, const PerfProcesses& processes, std::uint32_t pid);
  // "[kernel]".
  [[nodiscard]] std::uint32_t kernel() const { return kernel_; }
  // True if the kernel was replacing the user registers of a sample. Known of the running kernel alone.
  [[nodiscard]] bool were_writing(std::span<const std::uint64_t> kernel) const;
  // Is the running kernel the one that was recorded, and since the same start? `text`: PerfProcesses::kernel_text().
  [[nodiscard]] bool is_running_kernel(std::uint64_t text) const;

 private:
  void open(const PerfMappedFile& mapped, PerfCodeFile& to, profile::Module& module);
  bool try_path(const std::string& path, const os::FileIdentity& wanted, bool certain, PerfCodeFile& to);
  bool open_vdso(const std::string& wanted, PerfCodeFile& to) const;

  const PerfFile& file_;
  ProfileBuilder& builder_;
  PerfFilePlaces places_;
  std::uint32_t kernel_;
  mutable std::optional<os::RegisterWriters> writers_;                      // once asked for
  std::unordered_map<std::uint64_t, std::unique_ptr<PerfCodeFile>> files_;  // by number, and by process if generated
};

}  // namespace windlass::importer
