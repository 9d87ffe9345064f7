// The files code was mapped from, from the first mapping seen to the table in the kernel: finds or opens the file
// behind a mapping, has its table compiled, lets go of what no process needs any more.
//
// A file is opened once, when it is first seen mapped, by the ways of os::files_of. The descriptor is kept, so
// that symbolisation finds deleted files and files of containers that are gone. One that may not be opened is read from
// the process's memory.
//
// Bounds: kMaxModules files with a table (those no live process maps are dropped first), kMaxIdleFiles files that no
// live process maps, kMaxIdleBytes of tables and kMaxIdleSources sources of these, and as many kept descriptors as half
// of RLIMIT_NOFILE allows. Of a file that was dropped, a profile's samples alone need what is left.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "profiler/kernel/table_store.h"
#include "profiler/processes/code_file.h"
#include "profiler/processes/compile_queue.h"
#include "profiler/processes/file_catalogue.h"
#include "profiler/processes/memory_images.h"
#include "profiler/processes/process_table.h"
#include "profiler/profile/profile.h"

namespace windlass::profiler {

// One thread only (the one that applies process events); its workers are its own.
class ModuleRegistry {
 public:
  static constexpr std::size_t kMaxModules = 16384;
  static constexpr std::size_t kMaxIdleFiles = 1024;
  static constexpr std::size_t kMaxIdleSources = 64;
  static constexpr std::uint64_t kMaxIdleBytes = std::uint64_t{64} << 20;
  static constexpr std::uint32_t kAnonymous = 0;  // number of "code that is in no file"

  // `store` may be null (no kernel side): then nothing is compiled. It must outlive the registry. `workers` 0: half of
  // the CPUs, 8 at most. `cache`: the tables of other recordings, null: none. It must outlive the registry, too.
  explicit ModuleRegistry(TableStore* store, unsigned workers = 0, TableCache* cache = nullptr);
  ModuleRegistry(const ModuleRegistry&) = delete;
  ModuleRegistry& operator=(const ModuleRegistry&) = delete;

  [[nodiscard]] ProcessTable::CodeLocation resolve(std::uint32_t tgid, std::uint32_t parent, const os::ProcMap& map);

  // The PE images among a process's mappings, of those whose files can be read.
  [[nodiscard]] std::vector<ProcessTable::Image> find_images(std::uint32_t tgid, std::uint32_t parent,
                                                             const std::vector<os::ProcMap>& maps);

  // Compiles what will be needed first: the table of the program, or of a script's interpreter. Nothing for a file that
  // cannot be read.
  void preload(const std::string& command);

  // Null for kAnonymous, numbers never given and files that were forgotten. Valid until forget().
  [[nodiscard]] CodeFile* find(std::uint32_t number) { return catalogue_.find(number); }
  // The store's number for a registry number.
  [[nodiscard]] std::uint32_t kernel_id(std::uint32_t number);

  // The unwind information of a file, made when asked for; never null. It and what refers to it are valid until evict()
  // drops any file or source: as long as evictions() stays the same.
  [[nodiscard]] const sources::UnwindSource& source(CodeFile& file);
  [[nodiscard]] std::uint64_t evictions() const { return evictions_; }

  // For Aggregator::build.
  void describe(std::uint32_t number, profile::Module& module);

  // Waits until every queued table is loaded, at most `timeout`. False on timeout.
  bool wait_idle(std::chrono::milliseconds timeout) { return queue_.wait_idle(timeout); }
  [[nodiscard]] std::size_t pending() const { return queue_.pending(); }

  // Drops tables no mapping in `in_use` needs, the longest unused first, until at most `keep` are left, and at most
  // kMaxIdleFiles and `idle_bytes` of tables that are not in use. `in_use` lists registry numbers. How many were
  // dropped. Where files that are not in use have more than kMaxIdleSources sources, more than half of these go, too;
  // they are made anew when asked for. O(files).
  std::size_t evict(const std::vector<std::uint32_t>& in_use, std::size_t keep,
                    std::uint64_t idle_bytes = kMaxIdleBytes);

  // Forgets the dropped files for which needed(number) is false: nobody may ask for them any more. O(files).
  void forget(const std::function<bool(std::uint32_t number)>& needed);

  // Of the files, where they are read here, for as long as nobody reads them again. O(files).
  void let_go_of_pages();

  struct Failure {
    std::string path, reason;
  };
  [[nodiscard]] std::vector<Failure> failures() const;
  struct Totals {
    std::size_t files = 0, tables = 0, from_memory = 0, from_cache = 0;
    std::uint64_t rows = 0, bytes = 0;
    double compile_seconds = 0;
  };
  [[nodiscard]] Totals totals() const;

 private:
  ProcessTable::CodeLocation resolve_in_memory(std::uint32_t tgid, const os::ProcMap& map);
  CodeFile* vdso();
  CodeFile* narrow_vdso(std::uint32_t tgid, const os::ProcMap& map);
  CodeFile& add(OpenedFile opened, const std::string& path);
  void keep_descriptor(CodeFile& file, int fd);
  static bool drop_idle_sources(const std::vector<CodeFile*>& unused);
  void request_table(CodeFile& file, const std::string& problem);

  TableStore* store_;
  FileCatalogue catalogue_;
  MemoryImages memory_images_;
  CodeFile* vdso_ = nullptr;
  CodeFile* narrow_vdso_ = nullptr;  // of 32-bit processes
  bool vdso_tried_ = false;
  std::uint32_t anonymous_kernel_id_ = 0;
  std::uint64_t evictions_ = 0;  // calls of evict() that dropped a file or a source
  std::size_t kept_descriptors_ = 0, max_descriptors_ = 0;
  CompileQueue queue_;  // last: its threads end before the files go
};

}  // namespace windlass::profiler
