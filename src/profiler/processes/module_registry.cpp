#include "profiler/processes/module_registry.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "os/mapped_files.h"
#include "os/proc_file.h"
#include "os/process_memory.h"
#include "os/readers.h"
#include "profiler/kernel/descriptor_limit.h"
#include "walk/target/loaded_pe.h"
#include "windlass/backtrace.h"

namespace windlass::profiler {
namespace {

constexpr std::string_view kVdso = "[vdso]";
constexpr std::uint64_t kNarrow = std::uint64_t{1} << 32;  // what a 32-bit process has lies below

unsigned worker_count(const TableStore* store, unsigned wanted) {
  if (store == nullptr) return 0;
  return wanted != 0 ? wanted : std::clamp(std::thread::hardware_concurrency() / 2, 1u, 8u);
}

// What the kernel runs for a file: the program itself, or the interpreter that a script names (execve(2)).
std::string executed_file(const std::string& file) {
  constexpr std::streamsize kLongest = 256;  // BINPRM_BUF_SIZE
  constexpr const char* kBlank = " \t";
  std::string line(kLongest, '\0');
  std::ifstream stream(file, std::ios::binary);
  stream.read(line.data(), kLongest);
  line.resize(static_cast<std::size_t>(stream.gcount()));
  if (!line.starts_with("#!")) return file;
  line = line.substr(2, line.find('\n') - 2);
  const std::size_t begin = line.find_first_not_of(kBlank);
  return begin != std::string::npos ? line.substr(begin, line.find_first_of(kBlank, begin) - begin) : "";
}

}  // namespace

ModuleRegistry::ModuleRegistry(TableStore* store, unsigned workers, TableCache* cache)
    : store_(store),
      queue_(worker_count(store, workers), [store, cache](CodeFile& file) { compile_table(file, *store, cache); }) {
  if (const rlim_t limit = raise_descriptor_limit(); limit != 0) max_descriptors_ = std::min<rlim_t>(limit, 65536) / 2;
  if (store_ == nullptr) return;
  if (const auto id = store_->add_module()) {
    anonymous_kernel_id_ = *id;
    store_->set_no_table(*id);
  }
}

// ---- which file -----------------------------------------------------------------------------------------------------

ProcessTable::CodeLocation ModuleRegistry::resolve(std::uint32_t tgid, std::uint32_t parent, const os::ProcMap& map) {
  if (map.path == kVdso) {
    const CodeFile* file = map.end > kNarrow ? vdso() : narrow_vdso(tgid, map);
    return file != nullptr ? file->place(map) : ProcessTable::CodeLocation{};
  }
  if (!map.has_file()) return {};
  if (const CodeFile* file = catalogue_.known(map, tgid)) return file->place(map);

  auto opened = open_code_file(os::files_of(static_cast<pid_t>(tgid), static_cast<pid_t>(parent), map));
  if (!opened) return resolve_in_memory(tgid, map);
  CodeFile* file = catalogue_.with_content(opened->content);
  if (file != nullptr)
    close(opened->fd);
  else
    file = &add(std::move(*opened), map.path);
  catalogue_.remember(map.file, *file);
  return file->place(map);
}

// The file may not be opened, or is gone: what the process has mapped of it is in its memory. Nothing where that is
// gone, too; another process may show it again.
ProcessTable::CodeLocation ModuleRegistry::resolve_in_memory(std::uint32_t tgid, const os::ProcMap& map) {
  const auto nothing = [&] {
    return ProcessTable::CodeLocation{.silent = os::is_silent(static_cast<pid_t>(tgid), os::device_of(map))};
  };
  const auto found = memory_images_.find(tgid, map);
  if (!found) return nothing();
  CodeFile* file = catalogue_.with_content(found->content);
  if (file == nullptr) {
    auto opened = memory_images_.read(*found);
    if (!opened) return nothing();
    file = &add(std::move(*opened), map.path);
    file->from_memory = true;
  }
  return file->place(map);
}

CodeFile* ModuleRegistry::vdso() {
  if (vdso_tried_) return vdso_;
  vdso_tried_ = true;
  if (auto opened = open_memory_file(os::open_vdso(), "vdso")) vdso_ = &add(std::move(*opened), std::string(kVdso));
  return vdso_;
}

// The first process with one that can be read gives it to all.
CodeFile* ModuleRegistry::narrow_vdso(std::uint32_t tgid, const os::ProcMap& map) {
  if (narrow_vdso_ != nullptr) return narrow_vdso_;
  if (auto opened = open_memory_file(os::open_vdso_of(static_cast<pid_t>(tgid), map), "vdso of 32-bit processes"))
    narrow_vdso_ = &add(std::move(*opened), std::string(kVdso));
  return narrow_vdso_;
}

std::vector<ProcessTable::Image> ModuleRegistry::find_images(std::uint32_t tgid, std::uint32_t parent,
                                                             const std::vector<os::ProcMap>& maps) {
  const auto read = [tgid](std::uint64_t address, void* to, std::size_t size) {
    return os::read_memory(static_cast<pid_t>(tgid), address, to, size);
  };
  std::vector<ProcessTable::Image> images;
  for (const walk::LoadedPe& loaded : walk::find_loaded_pe(maps, read)) {
    const CodeFile* file = find(resolve(tgid, parent, maps[loaded.headers]).module);
    // The path may lead to another file by now.
    if (file != nullptr && file->pe && file->pe->timestamp() == loaded.timestamp)
      images.push_back({loaded.begin, loaded.end, file->number, file->thread_slot_at(loaded.begin)});
  }
  return images;
}

void ModuleRegistry::preload(const std::string& command) {
  const std::string executable = executed_file(command);
  struct stat status {};
  if (executable.empty() || stat(executable.c_str(), &status) != 0) return;
  os::ProcMap map;
  map.path = executable;
  map.file.inode = status.st_ino;
  map.file.major = major(status.st_dev);
  map.file.minor = minor(status.st_dev);
  if (const char* full = realpath(executable.c_str(), nullptr)) {
    map.path = full;
    std::free(const_cast<char*>(full));
  }
  (void)resolve(static_cast<std::uint32_t>(getpid()), 0, map);
}

// ---- having it compiled ---------------------------------------------------------------------------------------------

CodeFile& ModuleRegistry::add(OpenedFile opened, const std::string& path) {
  const int fd = opened.fd;
  const std::string problem = opened.problem;
  CodeFile& file = catalogue_.add(std::move(opened), path);
  keep_descriptor(file, fd);
  if (store_ != nullptr) request_table(file, problem);
  return file;
}

void ModuleRegistry::keep_descriptor(CodeFile& file, int fd) {
  if (kept_descriptors_ < max_descriptors_) {
    file.fd = fd;
    ++kept_descriptors_;
  } else {
    close(fd);
  }
}

void ModuleRegistry::request_table(CodeFile& file, const std::string& problem) {
  const auto without_table = [&](std::string reason) {
    file.reason = std::move(reason);
    file.state = TableState::kNoTable;
  };
  const auto id = store_->add_module();
  file.kernel_id = id.value_or(anonymous_kernel_id_);
  if (!id) return without_table(id.error().text);
  const bool foreign = !file.machine.runs_on(kOwnArchitecture);
  if (!foreign && (file.image || file.pe)) return queue_.push(file);
  store_->set_no_table(file.kernel_id);
  const bool unwound = file.machine.architecture == Architecture::kI386;
  without_table(unwound ? "32-bit code: unwound in user space" : foreign ? "code of another machine" : problem);
}

const sources::UnwindSource& ModuleRegistry::source(CodeFile& file) {
  if (file.source == nullptr)
    file.source = file.image || file.pe
                      ? file.make_source()
                      : sources::make_failed_source(Error{ErrorCode::kNotFound, "no unwind information"}, false);
  return *file.source;
}

std::uint32_t ModuleRegistry::kernel_id(std::uint32_t number) {
  const CodeFile* file = find(number);
  return file == nullptr || file->state == TableState::kDropped ? anonymous_kernel_id_ : file->kernel_id;
}

// ---- letting go -----------------------------------------------------------------------------------------------------

namespace {

// How many of the first must go, so that the tables of the others are at most `most` bytes.
std::size_t beyond_bytes(const std::vector<CodeFile*>& files, std::uint64_t most) {
  const auto bytes = [](const CodeFile* file) { return file->state == TableState::kReady ? file->table_bytes : 0; };
  std::uint64_t sum = 0;
  for (std::size_t i = files.size(); i > 0; --i) {
    sum += bytes(files[i - 1]);
    if (sum > most) return i;
  }
  return 0;
}

}  // namespace

std::size_t ModuleRegistry::evict(const std::vector<std::uint32_t>& in_use, std::size_t keep,
                                  std::uint64_t idle_bytes) {
  std::size_t tables = 0;
  std::vector<CodeFile*> gone = catalogue_.unused(in_use, tables);
  std::erase(gone, vdso_);
  std::erase(gone, narrow_vdso_);
  const bool dropped_sources = drop_idle_sources(gone);
  const std::size_t too_many = tables > keep ? tables - keep : 0;
  const std::size_t too_idle = gone.size() > kMaxIdleFiles ? gone.size() - kMaxIdleFiles : 0;
  gone.resize(std::min(gone.size(), std::max({too_many, too_idle, beyond_bytes(gone, idle_bytes)})));
  for (CodeFile* file : gone) {
    if (store_ != nullptr && file->kernel_id != anonymous_kernel_id_) store_->remove_module(file->kernel_id);
    file->drop();
  }
  catalogue_.forget(gone);
  evictions_ += gone.empty() && !dropped_sources ? 0 : 1;
  return gone.size();
}

void ModuleRegistry::forget(const std::function<bool(std::uint32_t number)>& needed) {
  catalogue_.erase_dropped([&](std::uint32_t number) {
    if (needed(number)) return true;
    if (catalogue_.find(number)->fd >= 0) --kept_descriptors_;
    return false;
  });
}

// Symbols and indexes of functions take a megabyte of a large program. What walkers keep goes with any source, so that
// many go at a time. `unused`: the longest unused first.
bool ModuleRegistry::drop_idle_sources(const std::vector<CodeFile*>& unused) {
  const auto has_source = [](const CodeFile* file) { return file->source != nullptr; };
  const auto sources = static_cast<std::size_t>(std::ranges::count_if(unused, has_source));
  if (sources <= kMaxIdleSources) return false;
  std::size_t surplus = sources - kMaxIdleSources / 2;
  for (CodeFile* file : unused) {
    if (surplus == 0) break;
    if (!has_source(file)) continue;
    file->source.reset();
    --surplus;
  }
  return true;
}

void ModuleRegistry::let_go_of_pages() {
  for (const auto& [number, file] : catalogue_.files())
    if (file.state == TableState::kReady || file.state == TableState::kNoTable) file.let_go_of_pages();
}

// ---- what is known of them ------------------------------------------------------------------------------------------

void ModuleRegistry::describe(std::uint32_t number, profile::Module& module) {
  if (const CodeFile* file = find(number))
    file->describe(module);
  else
    module.path = "[anon]";
}

std::vector<ModuleRegistry::Failure> ModuleRegistry::failures() const {
  std::vector<Failure> failures;
  for (const auto& [number, file] : catalogue_.files())
    if (file.state == TableState::kNoTable) failures.push_back({file.path, file.reason});
  return failures;
}

ModuleRegistry::Totals ModuleRegistry::totals() const {
  Totals totals;
  totals.files = catalogue_.files().size();
  for (const auto& [number, file] : catalogue_.files()) {
    if (file.state == TableState::kPending) continue;
    totals.from_memory += file.from_memory ? 1 : 0;
    totals.tables += file.state == TableState::kReady ? 1 : 0;
    totals.from_cache += file.from_cache ? 1 : 0;
    totals.rows += file.table_rows;
    totals.bytes += file.table_bytes;
    totals.compile_seconds += file.compile_seconds;
  }
  return totals;
}

}  // namespace windlass::profiler
