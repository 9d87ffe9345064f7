// The files code was mapped from. One module per file content (build id, else device, inode, time and size), however
// many processes, mounts and names show it; its table is compiled and loaded once, on worker threads, small files
// first.
//
// A file is opened once, when it is first seen mapped, by the way that certainly leads to it: /proc/PID/map_files, then
// the process's (or its parent's) root directory, then the plain path - the latter two only if inode or build id agree.
// The descriptor is kept, so that symbolisation finds deleted files and files of containers that are gone.
//
// Bounds: kMaxModules files with a table (those no live process maps are dropped first), and as many kept descriptors
// as half of RLIMIT_NOFILE allows.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <queue>
#include <string>
#include <thread>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "agent/kernel_side.h"
#include "agent/process_table.h"
#include "image/elf.h"
#include "image/machine.h"
#include "image/mapped_file.h"
#include "image/pe.h"
#include "profile/profile.h"
#include "source/unwind_source.h"

namespace windlass::agent {

enum class TableState : std::uint8_t {
  kPending,  // queued or being compiled
  kReady,
  kNoTable,  // nothing to compile; `reason` says why
  kDropped,  // evicted
};

// One file. What is const after resolve() is read without a lock; the rest belongs to the registry.
struct CodeFile {
  std::uint32_t number = 0;
  std::string path;      // as the first process saw it
  std::string build_id;  // hex, empty if none
  int fd = -1;           // kept open for symbolisation; -1 where too many are
  image::MappedFile file;
  std::optional<image::ElfImage> image;                         // empty: not ELF, or not to be opened
  std::optional<image::PeImage> pe;                             // empty: not PE; its addresses are RVAs
  image::CodeMachine machine;                                   // whose code it is
  std::uint64_t code_begin = 0, code_end = 0, code_offset = 0;  // its first executable segment, and where in the file
  std::uint32_t kernel_id = 0;                                  // the kernel side's number
  std::uint64_t last_used = 0;  // generation of the last eviction scan that saw it mapped

  std::atomic<TableState> state = TableState::kPending;
  std::string reason;  // guarded by the registry
  double compile_seconds = 0;
  std::uint64_t table_rows = 0, table_bytes = 0;

  std::unique_ptr<source::UnwindSource> source;  // made when first needed; the registry's owner thread only

  CodeFile();
  ~CodeFile();
};

class ModuleRegistry {
 public:
  static constexpr std::size_t kMaxModules = 16384;
  static constexpr std::uint32_t kAnonymous = 0;  // number of "code that is in no file"

  // `kernel` may be null (tests): then nothing is compiled. It must outlive the registry.
  explicit ModuleRegistry(KernelSide* kernel, unsigned workers = 0);
  ~ModuleRegistry();
  ModuleRegistry(const ModuleRegistry&) = delete;
  ModuleRegistry& operator=(const ModuleRegistry&) = delete;

  // One thread only (the one that applies process events), as for everything below unless said otherwise.
  [[nodiscard]] ProcessTable::CodeLocation resolve(std::uint32_t tgid, std::uint32_t parent, const MapRecord& map);

  // The PE images among a process's mappings, of those whose files can be read.
  [[nodiscard]] std::vector<ProcessTable::Image> find_images(std::uint32_t tgid, std::uint32_t parent,
                                                             const std::vector<process::ProcMap>& maps);

  // Compiles what will most likely be needed: this process's own libraries, the C library among them, and `executable`.
  void preload(const std::string& executable);

  // Null for kAnonymous and numbers never given. Valid as long as the registry.
  [[nodiscard]] CodeFile* find(std::uint32_t number);
  // The kernel side's number for a registry number.
  [[nodiscard]] std::uint32_t kernel_id(std::uint32_t number);

  // The unwind information of `file`, which says nothing where it is neither ELF nor PE. Valid until the file is
  // evicted: as long as evictions() stays the same.
  [[nodiscard]] const source::UnwindSource& source(CodeFile& file);
  [[nodiscard]] std::uint64_t evictions() const { return evictions_; }

  // For Aggregator::build.
  void describe(std::uint32_t number, profile::Module& module);

  // Waits until every queued table is loaded, at most `timeout`. False on timeout.
  bool wait_idle(std::chrono::milliseconds timeout);
  [[nodiscard]] std::size_t pending() const;

  // Drops tables no mapping in `in_use` needs, until at most `keep` are left. In_use lists registry numbers.
  std::size_t evict(const std::vector<std::uint32_t>& in_use, std::size_t keep);

  struct Failure {
    std::string path, reason;
  };
  [[nodiscard]] std::vector<Failure> failures() const;
  struct Totals {
    std::size_t files = 0, tables = 0;
    std::uint64_t rows = 0, bytes = 0;
    double compile_seconds = 0;
  };
  [[nodiscard]] Totals totals() const;

 private:
  using FileKey = std::tuple<std::uint32_t, std::uint32_t, std::uint64_t, std::uint64_t>;
  struct Opened {
    int fd = -1;
    image::MappedFile file;
    std::optional<image::ElfImage> image;
    std::optional<image::PeImage> pe;
    std::string content;  // what makes two files the same module
    std::string problem;  // why there is neither
  };
  struct Job {
    std::uint64_t size;
    CodeFile* file;
    bool operator<(const Job& other) const { return size > other.size; }  // smallest on top
  };

  CodeFile* known(const MapRecord& map, std::uint32_t tgid);
  CodeFile* vdso();
  std::optional<Opened> open(std::uint32_t tgid, std::uint32_t parent, const MapRecord& map) const;
  std::optional<Opened> open_as(const std::string& path, const MapRecord& map, bool certain) const;
  CodeFile& add(Opened opened, const std::string& path);
  CodeFile& make_file();
  ProcessTable::CodeLocation place(CodeFile& file, const MapRecord& map) const;
  void compile(CodeFile& file);
  void finish(CodeFile& file, TableState state, std::string reason);
  void work();

  KernelSide* kernel_;
  std::deque<CodeFile> files_;  // by number - 1; addresses stay
  std::unordered_map<std::string, CodeFile*> by_content_;
  std::unordered_map<std::string, CodeFile*> by_build_id_;  // raw bytes, as events have them
  std::map<FileKey, CodeFile*> by_inode_;
  CodeFile* vdso_ = nullptr;
  bool vdso_tried_ = false;
  std::uint32_t anonymous_kernel_id_ = 0;
  std::size_t kept_fds_ = 0, max_fds_ = 0;
  std::uint64_t generation_ = 0;
  std::uint64_t evictions_ = 0;  // calls of evict() that dropped a file

  mutable std::mutex mutex_;
  std::condition_variable wake_, idle_;
  std::priority_queue<Job> jobs_;
  std::size_t running_ = 0;
  bool stopping_ = false;
  std::vector<std::jthread> workers_;
};

// From here on a file that is truncated while it is mapped reads as zeros past its end, in place of a SIGBUS.
// Process-wide.
void survive_truncated_files();

}  // namespace windlass::agent
