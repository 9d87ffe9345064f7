#include "agent/module_registry.h"

#include <elf.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <set>

#include <fmt/format.h>

#include "agent/descriptor_limit.h"
#include "arch/registers.h"
#include "process/mapped_files.h"
#include "process/proc_file.h"
#include "process/process_memory.h"
#include "source/row_finder.h"
#include "source/unwind_source.h"
#include "table/compile.h"
#include "walk/target/loaded_pe.h"
#include "windlass/backtrace.h"
#include "winx64/lower.h"
#include "winx64/registers.h"

namespace windlass::agent {
namespace {

constexpr std::string_view kVdso = "[vdso]";

// What makes a file with this build id one module.
std::string content_of(const std::string& build_id) { return "id " + build_id; }

// Where in the image the section is that holds this byte of the file.
std::optional<std::uint64_t> rva_of_file_offset(const image::PeImage& image, std::uint64_t offset) {
  for (const image::PeSection& section : image.sections())
    if (offset >= section.file_offset && offset - section.file_offset < section.file_size)
      return section.rva + (offset - section.file_offset);
  return std::nullopt;
}

// Whose code it is, as the file's header says. An Elf32_Ehdr is the same up to e_machine, and its file is longer.
void tell_machine(CodeFile& file) {
  const auto header = file.file.bytes().at<Elf64_Ehdr>(0);
  const bool elf = header && std::memcmp(header->e_ident, ELFMAG, SELFMAG) == 0;
  const bool wide = elf && header->e_ident[EI_CLASS] == ELFCLASS64;
  const auto is = [&](std::uint16_t elf_machine, image::PeMachine pe_machine) {
    return (wide && header->e_machine == elf_machine) || (file.pe && file.pe->machine() == pe_machine);
  };
  file.known_machine = elf || file.pe;
  if (is(EM_X86_64, image::PeMachine::kAmd64)) file.architecture = Architecture::kX86_64;
  if (is(EM_AARCH64, image::PeMachine::kArm64)) file.architecture = Architecture::kAArch64;
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

ProcessTable::CodeLocation ModuleRegistry::resolve(std::uint32_t tgid, std::uint32_t parent,
                                                   const process::ProcMap& map) {
  if (map.path == kVdso) {
    if (CodeFile* file = vdso()) return place(*file, map);
    return {kAnonymous, 0, true};
  }
  if (!map.has_file()) return {kAnonymous, 0, true};
  if (CodeFile* file = known(map, tgid)) return place(*file, map);

  auto opened = open(tgid, parent, map);
  if (!opened) return {kAnonymous, 0, true};  // gone before it could be read; another process may show it again
  CodeFile* file = nullptr;
  if (const auto same = by_content_.find(opened->content); same != by_content_.end()) {
    file = same->second;
    if (opened->fd >= 0) close(opened->fd);
  } else {
    file = &add(std::move(*opened), map.path);
  }
  if (map.file.inode != 0) by_inode_[map.file] = file;
  return place(*file, map);
}

std::vector<ProcessTable::Image> ModuleRegistry::find_images(std::uint32_t tgid, std::uint32_t parent,
                                                             const std::vector<process::ProcMap>& maps) {
  const auto read = [tgid](std::uint64_t address, void* to, std::size_t size) {
    return process::read_memory(static_cast<pid_t>(tgid), address, to, size);
  };
  std::vector<ProcessTable::Image> images;
  for (const walk::LoadedPe& loaded : walk::find_loaded_pe(maps, read)) {
    const CodeFile* file = find(resolve(tgid, parent, maps[loaded.headers]).module);
    // The path may lead to another file by now.
    if (file != nullptr && file->pe && file->pe->timestamp() == loaded.timestamp)
      images.push_back({loaded.begin, loaded.end, file->number});
  }
  return images;
}

void ModuleRegistry::preload(const std::string& executable) {
  const auto self = static_cast<std::uint32_t>(getpid());
  for (const process::ProcMap& map : process::parse_proc_maps(process::read_proc_file("/proc/self/maps")))
    if (map.executable) (void)resolve(self, 0, map);
  struct stat status {};
  if (executable.empty() || stat(executable.c_str(), &status) != 0) return;
  process::ProcMap map;
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

CodeFile* ModuleRegistry::known(const process::ProcMap& map, std::uint32_t tgid) {
  if (!map.file.build_id.empty()) {
    const auto found = by_content_.find(content_of(map.file.build_id));
    return found == by_content_.end() ? nullptr : found->second;
  }
  const auto found = by_inode_.find(map.file);
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

ProcessTable::CodeLocation ModuleRegistry::place(CodeFile& file, const process::ProcMap& map) const {
  if (file.pe) {
    const auto rva = rva_of_file_offset(*file.pe, map.offset);
    // Its headers, as find_images asks, or not as its section table says.
    return rva ? ProcessTable::CodeLocation{file.number, map.begin - *rva, false, true}
               : ProcessTable::CodeLocation{file.number, map.begin, true, true};
  }
  if (!file.image) return {file.number, 0, true};
  const auto address = file.image->address_of_file_offset(map.offset, true, page_size);
  if (!address) return {kAnonymous, 0, true};  // mapped executable, but not as its program headers say
  return {file.number, map.begin - *address, false};
}

CodeFile* ModuleRegistry::vdso() {
  if (vdso_tried_) return vdso_;
  vdso_tried_ = true;
  const int fd = process::open_vdso();
  if (fd < 0) return nullptr;
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
                                                           const process::ProcMap& map) const {
  for (const process::FileCandidate& candidate :
       process::files_of(static_cast<pid_t>(tgid), static_cast<pid_t>(parent), map))
    if (auto opened = open_as(candidate, map.file.build_id)) return opened;
  return std::nullopt;
}

std::optional<ModuleRegistry::Opened> ModuleRegistry::open_as(const process::FileCandidate& candidate,
                                                              const std::string& mapped_build_id) const {
  Opened opened;
  opened.fd = process::open_regular(candidate.path);
  if (opened.fd < 0) return std::nullopt;
  const auto refuse = [&] {
    close(opened.fd);
    return std::nullopt;
  };
  struct stat status {};
  if (fstat(opened.fd, &status) != 0) return refuse();
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
  // Something else may be mapped there by now, even where map_files leads.
  const auto same = process::compare({.inode = candidate.inode, .build_id = mapped_build_id}, build_id, status.st_ino);
  if (same == process::Sameness::kOther || (same == process::Sameness::kUnknown && !candidate.certain)) return refuse();
  // (A PE image's CodeView identity is the PDB file's: two images may share it.)
  opened.content = !build_id.empty() ? content_of(build_id)
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
  tell_machine(file);
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
  if (kernel_ == nullptr) return file;

  const auto id = kernel_->add_module();
  if (!id) {
    file.kernel_id = anonymous_kernel_id_;
    finish(file, TableState::kNoTable, id.error().text);
    return file;
  }
  file.kernel_id = *id;
  const bool foreign = file.foreign_to(kOwnArchitecture);
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

// ---- looking up and letting go
// -----------------------------------------------------------------------------------------

CodeFile* ModuleRegistry::find(std::uint32_t number) {
  return number == kAnonymous || number > files_.size() ? nullptr : &files_[number - 1];
}

std::uint32_t ModuleRegistry::kernel_id(std::uint32_t number) {
  const CodeFile* file = find(number);
  return file == nullptr || file->state == TableState::kDropped ? anonymous_kernel_id_ : file->kernel_id;
}

source::RowFinder* ModuleRegistry::rows(CodeFile& file) {
  if (!file.rows_tried && file.image) {
    file.rows_tried = true;
    file.rows = source::RowFinder::make(*file.image);
  }
  return file.rows.get();
}

namespace {

// Code of Windows without an entry is a leaf function: it moves neither rsp nor a preserved register.
void leaf_row(std::uint64_t address, FrameRow& row) {
  row = FrameRow();
  row.begin = address;
  row.end = address + 1;
  row.cfa = CfaRule::at(x86_64::kRsp, 8);
  row.return_address = RegisterRule::at_cfa(-8);
  for (const unsigned number : {6u, 7u})
    (void)row.registers.set(winx64::dwarf_number(number), RegisterRule::same_value());
}

}  // namespace

Expected<void> ModuleRegistry::row_at(CodeFile& file, std::uint64_t address, FrameRow& to) {
  const auto none = [&] { return fail(ErrorCode::kNotFound, "no unwind information", address); };
  if (file.pe) {
    const auto rva = static_cast<std::uint32_t>(address);
    const image::PeSection* section = rva == address ? file.pe->section_at(rva) : nullptr;
    if (section == nullptr || !section->executable() || !file.pe->is_x64_format()) return none();
    if (!file.functions) file.functions = std::make_unique<winx64::Functions>(*file.pe);
    if (const auto entry = file.functions->find(rva)) return winx64::row_at(*file.functions, *entry, rva, to);
    leaf_row(address, to);
    return {};
  }
  source::RowFinder* finder = rows(file);
  if (finder == nullptr) return none();
  return finder->find(address, to);
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
    file->rows.reset();
    file->functions.reset();
    file->rows_tried = true;
    file->state = TableState::kDropped;
    gone.insert(file);
    ++dropped;
  }
  const auto is_gone = [&](const auto& entry) { return gone.contains(entry.second); };
  std::erase_if(by_content_, is_gone);
  std::erase_if(by_inode_, is_gone);
  // `image` and `pe` point into `file`: all go; the descriptor stays, symbolisation may want it.
  for (const CodeFile* constant : gone) {
    CodeFile& file = files_[constant->number - 1];
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
