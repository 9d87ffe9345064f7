#include "agent/module_registry.h"

#include <fcntl.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <set>

#include <fmt/format.h>

#include "agent/descriptor_limit.h"
#include "arch/registers.h"
#include "process/proc_file.h"
#include "source/unwind_source.h"
#include "table/compile.h"
#include "walk/target/loaded_pe.h"
#include "windlass/backtrace.h"

namespace windlass::agent {
namespace {

constexpr std::string_view kVdso = "[vdso]";

std::string to_hex(std::string_view bytes) {
  std::string hex;
  for (const char byte : bytes) hex += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return hex;
}

std::string from_hex(std::string_view hex) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2)
    bytes += static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16));
  return bytes;
}

// Code that no file describes: "", "//anon" (perf), "[heap]", "[stack]", "[anon:...]", "anon_inode:...", "/dev/zero".
bool is_anonymous(const MapRecord& map) {
  const std::string& path = map.path;
  if (path.empty() || path[0] != '/') return true;
  return path.starts_with("//") || path.starts_with("/dev/") || path.starts_with("/SYSV");
}

// Where in the image the section is that holds this byte of the file.
std::optional<std::uint64_t> rva_of_file_offset(const image::PeImage& image, std::uint64_t offset) {
  for (const image::PeSection& section : image.sections())
    if (offset >= section.file_offset && offset - section.file_offset < section.file_size)
      return section.rva + (offset - section.file_offset);
  return std::nullopt;
}

double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

const auto page_size = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));

extern "C" void zeros_for_missing_page(int signal, siginfo_t* info, void*) {
  // Past the end of a mapped file. mmap is a plain system call: safe in a handler.
  auto* page = reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(info->si_addr) & ~(page_size - 1));
  if (info->si_code == BUS_ADRERR &&
      mmap(page, page_size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED)
    return;
  std::signal(signal, SIG_DFL);
}

// The vdso is the same in every 64-bit process: this one's own is read.
std::vector<MapRecord> own_maps() { return parse_proc_maps(process::read_proc_file("/proc/self/maps")); }

std::string own_vdso() {
  for (const MapRecord& map : own_maps())
    if (map.path == kVdso) return std::string(reinterpret_cast<const char*>(map.begin), map.end - map.begin);
  return {};
}

}  // namespace

void survive_truncated_files() {
  struct sigaction action {};
  action.sa_sigaction = zeros_for_missing_page;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  sigaction(SIGBUS, &action, nullptr);
}

CodeFile::CodeFile() = default;
CodeFile::~CodeFile() {
  if (fd >= 0) close(fd);
}

ModuleRegistry::ModuleRegistry(KernelSide* kernel, unsigned workers) : kernel_(kernel) {
  if (const rlim_t limit = raise_descriptor_limit(); limit != 0) max_fds_ = std::min<rlim_t>(limit, 65536) / 2;
  if (kernel_ == nullptr) return;
  if (const auto id = kernel_->add_module()) {
    anonymous_kernel_id_ = *id;
    kernel_->set_no_table(*id);
  }
  if (workers == 0) workers = std::clamp(std::thread::hardware_concurrency() / 2, 1u, 8u);
  for (unsigned i = 0; i < workers; ++i) workers_.emplace_back([this] { work(); });
}

ModuleRegistry::~ModuleRegistry() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
}

// ---- which module ---------------------------------------------------------------------------------------------------

ProcessTable::CodeLocation ModuleRegistry::resolve(std::uint32_t tgid, std::uint32_t parent, const MapRecord& map) {
  if (map.path == kVdso) {
    if (CodeFile* file = vdso()) return place(*file, map);
    return {kAnonymous, 0, MappingKind::kGenerated};
  }
  if (is_anonymous(map)) return {kAnonymous, 0, MappingKind::kGenerated};
  if (CodeFile* file = known(map, tgid)) return place(*file, map);

  auto opened = open(tgid, parent, map);
  if (!opened)
    return {kAnonymous, 0, MappingKind::kGenerated};  // gone before it could be read; another process may show it again
  CodeFile* file = nullptr;
  if (const auto same = by_content_.find(opened->content); same != by_content_.end()) {
    file = same->second;
    if (opened->fd >= 0) close(opened->fd);
  } else {
    file = &add(std::move(*opened), map.path);
  }
  if (!map.file.build_id.empty()) by_build_id_[map.file.build_id] = file;
  if (map.file.inode != 0)
    by_inode_[FileKey{map.file.major, map.file.minor, map.file.inode, map.file.generation}] = file;
  return place(*file, map);
}

std::vector<ProcessTable::Image> ModuleRegistry::find_images(std::uint32_t tgid, std::uint32_t parent,
                                                             const std::vector<process::ProcMap>& maps) {
  const auto read = [tgid](std::uint64_t address, void* to, std::size_t size) {
    iovec local{to, size}, remote{reinterpret_cast<void*>(address), size};
    return process_vm_readv(static_cast<pid_t>(tgid), &local, 1, &remote, 1, 0) == static_cast<ssize_t>(size);
  };
  std::vector<ProcessTable::Image> images;
  for (const walk::LoadedPe& loaded : walk::find_loaded_pe(maps, read)) {
    process::ProcMap headers = maps[loaded.headers];
    const CodeFile* file = find(resolve(tgid, parent, to_map_record(std::move(headers))).module);
    // The path may lead to another file by now.
    if (file != nullptr && file->pe && file->pe->timestamp() == loaded.timestamp)
      images.push_back({loaded.begin, loaded.end, file->number});
  }
  return images;
}

void ModuleRegistry::preload(const std::string& executable) {
  const auto self = static_cast<std::uint32_t>(getpid());
  for (const MapRecord& map : own_maps()) (void)resolve(self, 0, map);
  struct stat status {};
  if (executable.empty() || stat(executable.c_str(), &status) != 0) return;
  MapRecord map;
  map.path = executable;
  map.file.inode = status.st_ino;
  map.file.major = major(status.st_dev);
  map.file.minor = minor(status.st_dev);
  if (const char* full = realpath(executable.c_str(), nullptr)) {
    map.path = full;
    std::free(const_cast<char*>(full));
  }
  (void)resolve(self, 0, map);
}

CodeFile* ModuleRegistry::known(const MapRecord& map, std::uint32_t tgid) {
  if (!map.file.build_id.empty()) {
    const auto found = by_build_id_.find(map.file.build_id);
    return found == by_build_id_.end() ? nullptr : found->second;
  }
  const auto found = by_inode_.find(FileKey{map.file.major, map.file.minor, map.file.inode, map.file.generation});
  if (found == by_inode_.end()) return nullptr;
  CodeFile& file = *found->second;
  if ((file.image && !file.build_id.empty()) || file.fd < 0) return &file;
  // Nothing but its inode tells this file's content: written over in place, it is another module.
  struct stat then {
  }, now{};
  const std::string path = fmt::format("/proc/{}/root{}", tgid, map.path);
  if (fstat(file.fd, &then) != 0 || stat(path.c_str(), &now) != 0 || now.st_ino != then.st_ino) return &file;
  const bool same = now.st_size == static_cast<off_t>(file.file.bytes().size());
  return same ? &file : nullptr;
}

ProcessTable::CodeLocation ModuleRegistry::place(CodeFile& file, const MapRecord& map) const {
  if (file.pe) {
    const auto rva = rva_of_file_offset(*file.pe, map.file_offset);
    // Its headers, as find_images asks, or not as its section table says.
    return rva ? ProcessTable::CodeLocation{file.number, map.begin - *rva, MappingKind::kFile, true}
               : ProcessTable::CodeLocation{file.number, map.begin, MappingKind::kGenerated, true};
  }
  if (!file.image) return {file.number, 0, MappingKind::kGenerated};
  const auto address = file.image->address_of_file_offset(map.file_offset, true, page_size);
  if (!address)
    return {kAnonymous, 0, MappingKind::kGenerated};  // mapped executable, but not as its program headers say
  return {file.number, map.begin - *address, MappingKind::kFile};
}

CodeFile* ModuleRegistry::vdso() {
  if (vdso_tried_) return vdso_;
  vdso_tried_ = true;
  const std::string bytes = own_vdso();
  const int fd = memfd_create("windlass-vdso", MFD_CLOEXEC);
  if (fd < 0 || bytes.empty() || write(fd, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size())) {
    if (fd >= 0) close(fd);
    return nullptr;
  }
  Opened opened;
  opened.fd = fd;
  opened.content = "vdso";
  if (auto file = image::MappedFile::from_fd(fd)) opened.file = std::move(*file);
  if (auto image = image::ElfImage::parse(opened.file.bytes())) opened.image = std::move(*image);
  vdso_ = &add(std::move(opened), std::string(kVdso));
  return vdso_;
}

// ---- opening --------------------------------------------------------------------------------------------------------

std::optional<ModuleRegistry::Opened> ModuleRegistry::open(std::uint32_t tgid, std::uint32_t parent,
                                                           const MapRecord& map) const {
  const std::string range = fmt::format("/proc/{}/map_files/{:x}-{:x}", tgid, map.begin, map.end);
  if (auto opened = open_as(range, map, true)) return opened;
  if (auto opened = open_as(fmt::format("/proc/{}/root{}", tgid, map.path), map, false)) return opened;
  if (parent != 0)
    if (auto opened = open_as(fmt::format("/proc/{}/root{}", parent, map.path), map, false)) return opened;
  return open_as(map.path, map, false);
}

std::optional<ModuleRegistry::Opened> ModuleRegistry::open_as(const std::string& path, const MapRecord& map,
                                                              bool certain) const {
  Opened opened;
  opened.fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (opened.fd < 0) return std::nullopt;
  const auto refuse = [&] {
    close(opened.fd);
    return std::nullopt;
  };
  struct stat status {};
  if (fstat(opened.fd, &status) != 0 || !S_ISREG(status.st_mode)) return refuse();
  auto file = image::MappedFile::from_fd(opened.fd);
  if (!file) return refuse();
  opened.file = std::move(*file);
  std::string build_id;
  if (auto image = image::ElfImage::parse(opened.file.bytes())) {
    build_id = image->build_id();
    opened.image = std::move(*image);
  } else if (auto pe = image::PeImage::parse(opened.file.bytes())) {
    opened.pe = std::move(*pe);
  } else {
    opened.problem = image::PeImage::sniff(opened.file.bytes()) ? pe.error().text() : image.error().text();
  }
  if (!map.file.build_id.empty() && build_id != to_hex(map.file.build_id)) return refuse();
  if (!certain && map.file.build_id.empty() && map.file.inode != status.st_ino) return refuse();
  // (A PE image's CodeView identity is the PDB file's: two images may share it.)
  opened.content = !build_id.empty() ? "id " + build_id
                                     : fmt::format("inode {}:{} {}.{} {}", status.st_dev, status.st_ino,
                                                   status.st_mtim.tv_sec, status.st_mtim.tv_nsec, status.st_size);
  return opened;
}

CodeFile& ModuleRegistry::make_file() {
  const std::lock_guard lock(mutex_);  // failures() and totals() walk the files from other threads
  CodeFile& file = files_.emplace_back();
  file.number = static_cast<std::uint32_t>(files_.size());
  return file;
}

CodeFile& ModuleRegistry::add(Opened opened, const std::string& path) {
  CodeFile& file = make_file();
  file.path = path;
  file.file = std::move(opened.file);
  file.image = std::move(opened.image);
  file.pe = std::move(opened.pe);
  file.machine = image::machine_of(file.file.bytes());
  if (file.pe) {
    file.build_id = file.pe->build_id();
    const auto sections = file.pe->sections();
    if (const auto code = std::ranges::find_if(sections, &image::PeSection::executable); code != sections.end()) {
      file.code_begin = code->rva;
      file.code_end = std::uint64_t{code->rva} + code->virtual_size;
      file.code_offset = code->file_offset;
    }
  }
  if (file.image) {
    file.build_id = file.image->build_id();
    if (const auto segments = file.image->executable_segments(); !segments.empty()) {
      file.code_begin = segments.front().vaddr;
      file.code_end = segments.front().vaddr + segments.front().memsz;
      file.code_offset = segments.front().file_offset;
    }
  }
  if (kept_fds_ < max_fds_) {
    file.fd = opened.fd;
    ++kept_fds_;
  } else {
    close(opened.fd);
  }
  by_content_[opened.content] = &file;
  if (file.image && !file.build_id.empty() && file.build_id.size() <= 40) by_build_id_[from_hex(file.build_id)] = &file;
  if (kernel_ == nullptr) return file;

  const auto id = kernel_->add_module();
  if (!id) {
    file.kernel_id = anonymous_kernel_id_;
    finish(file, TableState::kNoTable, id.error().text);
    return file;
  }
  file.kernel_id = *id;
  const bool foreign = !file.machine.runs_on(kOwnArchitecture);
  if (foreign || (!file.image && !file.pe)) {
    kernel_->set_no_table(file.kernel_id);
    finish(file, TableState::kNoTable, foreign ? "code of another machine" : opened.problem);
    return file;
  }
  {
    const std::lock_guard lock(mutex_);
    jobs_.push({file.file.bytes().size(), &file});
  }
  wake_.notify_one();
  return file;
}

// ---- compiling ------------------------------------------------------------------------------------------------------

void ModuleRegistry::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [this] { return stopping_ || !jobs_.empty(); });
    if (stopping_) return;
    CodeFile& file = *jobs_.top().file;
    jobs_.pop();
    ++running_;
    lock.unlock();
    compile(file);
    lock.lock();
    --running_;
    if (jobs_.empty() && running_ == 0) idle_.notify_all();
  }
}

void ModuleRegistry::compile(CodeFile& file) {
  const double begin = thread_seconds();
  const auto ignore = [](const Error&) {};
  const auto from = file.pe ? source::make_source(*file.pe) : source::make_source(*file.image);
  const auto table = table::compile(*from, ignore);
  if (!table || table->empty()) {
    kernel_->set_no_table(file.kernel_id);
    finish(file, TableState::kNoTable, table ? "no unwind information" : table.error().text());
  } else if (const auto loaded = kernel_->load_table(file.kernel_id, *table); !loaded) {
    kernel_->set_no_table(file.kernel_id);
    finish(file, TableState::kNoTable, loaded.error().text);
  } else {
    {
      const std::lock_guard lock(mutex_);
      file.table_rows = table->stats().rows;
      file.table_bytes = table->bytes();
      file.compile_seconds = thread_seconds() - begin;
    }
    finish(file, TableState::kReady, {});
  }
  // The file's pages stay in the page cache; they need not count as this process's.
  const ByteView bytes = file.file.bytes();
  if (!bytes.empty()) madvise(const_cast<std::byte*>(bytes.data()), bytes.size(), MADV_DONTNEED);
}

void ModuleRegistry::finish(CodeFile& file, TableState state, std::string reason) {
  const std::lock_guard lock(mutex_);
  file.reason = std::move(reason);
  file.state = state;
}

bool ModuleRegistry::wait_idle(std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  return idle_.wait_for(lock, timeout, [this] { return jobs_.empty() && running_ == 0; });
}

std::size_t ModuleRegistry::pending() const {
  const std::lock_guard lock(mutex_);
  return jobs_.size() + running_;
}

// ---- looking up and letting go --------------------------------------------------------------------------------------

CodeFile* ModuleRegistry::find(std::uint32_t number) {
  return number == kAnonymous || number > files_.size() ? nullptr : &files_[number - 1];
}

std::uint32_t ModuleRegistry::kernel_id(std::uint32_t number) {
  const CodeFile* file = find(number);
  return file == nullptr || file->state == TableState::kDropped ? anonymous_kernel_id_ : file->kernel_id;
}

const source::UnwindSource& ModuleRegistry::source(CodeFile& file) {
  if (file.source == nullptr)
    file.source = file.image || file.pe
                      ? source::make_source(file.file.bytes(), image::PeLayout::kFile)
                      : source::make_failed_source(Error{ErrorCode::kNotFound, "no unwind information"}, false);
  return *file.source;
}

void ModuleRegistry::describe(std::uint32_t number, profile::Module& module) {
  const CodeFile* file = find(number);
  if (file == nullptr) {
    module.path = "[anon]";
    return;
  }
  module.path = file->path;
  module.build_id = file->build_id;
  if (file->fd >= 0) module.open_path = fmt::format("/proc/self/fd/{}", file->fd);
  module.begin = file->code_begin;
  module.end = file->code_end;
  module.file_offset = file->code_offset;
}

std::size_t ModuleRegistry::evict(const std::vector<std::uint32_t>& in_use, std::size_t keep) {
  ++generation_;
  for (const std::uint32_t number : in_use)
    if (CodeFile* file = find(number)) file->last_used = generation_;
  std::vector<CodeFile*> idle;
  std::size_t tables = 0;
  for (CodeFile& file : files_) {
    const TableState state = file.state;
    if (state == TableState::kDropped || state == TableState::kPending) continue;
    ++tables;
    if (file.last_used != generation_ && &file != vdso_) idle.push_back(&file);
  }
  std::sort(idle.begin(), idle.end(), [](const CodeFile* a, const CodeFile* b) { return a->last_used < b->last_used; });
  std::size_t dropped = 0;
  std::set<const CodeFile*> gone;
  for (CodeFile* file : idle) {
    if (tables - dropped <= keep) break;
    if (kernel_ != nullptr && file->kernel_id != anonymous_kernel_id_) kernel_->remove_module(file->kernel_id);
    file->state = TableState::kDropped;
    gone.insert(file);
    ++dropped;
  }
  const auto is_gone = [&](const auto& entry) { return gone.contains(entry.second); };
  std::erase_if(by_content_, is_gone);
  std::erase_if(by_build_id_, is_gone);
  std::erase_if(by_inode_, is_gone);
  evictions_ += gone.empty() ? 0 : 1;
  // `source`, `image` and `pe` point into `file`: all go; the descriptor stays, symbolisation may want it.
  for (const CodeFile* constant : gone) {
    CodeFile& file = files_[constant->number - 1];
    file.source.reset();
    file.image.reset();
    file.pe.reset();
    file.file = image::MappedFile();
  }
  return dropped;
}

std::vector<ModuleRegistry::Failure> ModuleRegistry::failures() const {
  const std::lock_guard lock(mutex_);
  std::vector<Failure> failures;
  for (const CodeFile& file : files_)
    if (file.state == TableState::kNoTable) failures.push_back({file.path, file.reason});
  return failures;
}

ModuleRegistry::Totals ModuleRegistry::totals() const {
  const std::lock_guard lock(mutex_);
  Totals totals;
  totals.files = files_.size();
  for (const CodeFile& file : files_) {
    totals.tables += file.state == TableState::kReady ? 1 : 0;
    totals.rows += file.table_rows;
    totals.bytes += file.table_bytes;
    totals.compile_seconds += file.compile_seconds;
  }
  return totals;
}

}  // namespace windlass::agent
