// Another process as an address space.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include <elf.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "formats/image/elf_structures.h"
#include "formats/image/machine.h"
#include "os/living_thread.h"
#include "os/mapped_files.h"
#include "os/proc_file.h"
#include "os/readers.h"
#include "walk/inside.h"
#include "walk/target/live_process.h"
#include "walk/target/thread_stacks.h"
#include "windlass/target.h"

namespace windlass {
namespace {

#if defined(__x86_64__)
constexpr Architecture kHost = Architecture::kX86_64;
#elif defined(__aarch64__)
constexpr Architecture kHost = Architecture::kAArch64;
#else
#error "neither x86-64 nor AArch64"
#endif

std::string without_newline(std::string text) {
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

// The value of an entry of /proc/PID/auxv; 0: there is none.
std::uint64_t auxiliary_value(std::string_view vector, image::ElfClass elf_class, std::uint64_t type) {
  const ByteView bytes(reinterpret_cast<const std::byte*>(vector.data()), vector.size());
  for (std::uint64_t at = 0;; at += image::stored_size<Elf64_auxv_t>(elf_class)) {
    const auto entry = image::read_stored<Elf64_auxv_t>(bytes, elf_class, at);
    if (!entry) return 0;
    if (entry->a_type == type) return entry->a_un.a_val;
  }
}

// By the size of program headers that the kernel has told the program. None: it has not.
std::optional<Architecture> architecture_by(std::string_view auxv) {
  if (auxiliary_value(auxv, image::ElfClass::k64, AT_PHENT) == sizeof(Elf64_Phdr)) return kHost;
  if (kHost == Architecture::kX86_64 && auxiliary_value(auxv, image::ElfClass::k32, AT_PHENT) == sizeof(Elf32_Phdr))
    return Architecture::kI386;
  return std::nullopt;
}

// Of the program that runs in the process. x86-64 kernels run i386's, too.
Architecture architecture_of_program(pid_t pid) {
  const os::Descriptor program(os::open_regular(fmt::format("/proc/{}/exe", os::living_thread(pid))));
  std::byte header[sizeof(Elf64_Ehdr)];
  const ssize_t size = program ? ::pread(program.get(), header, sizeof header, 0) : -1;
  if (kHost != Architecture::kX86_64 || size <= 0) return kHost;
  const auto machine = image::machine_of(ByteView(header, static_cast<std::size_t>(size)));
  return machine.architecture == Architecture::kI386 ? Architecture::kI386 : kHost;
}

}  // namespace

namespace walk {

os::Descriptor LiveProcess::open_file(const std::string& name) const {
  return os::open_proc_file(pid_, folder_.get(), name);
}

std::string LiveProcess::read_file(const std::string& name) const {
  return os::read_proc_file_of(pid_, open_file(name).get());
}

std::string LiveProcess::read_name(std::uint64_t thread) const {
  const std::string name = fmt::format("task/{}/comm", thread);  // nothing holds up who reads it
  const os::Descriptor file(::openat(folder_.get(), name.c_str(), O_RDONLY | O_CLOEXEC));
  return without_newline(os::read_proc_file(file.get()));
}

// Asked at the first stop. A request to a reader process costs more than the reading, so all that the first look needs
// comes together.
Architecture LiveProcess::find_architecture() {
  if (os::readers() != nullptr) {
    const std::string names[] = {"auxv", "maps", "cmdline"};
    std::vector<std::string> texts = os::read_proc_files(pid_, folder_.get(), names);
    texts_ = {std::move(texts[0]), std::move(texts[1]), std::move(texts[2])};
  }
  const auto known = architecture_by(texts_.auxv);
  return known ? *known : architecture_of_program(pid_);
}

std::uint64_t LiveProcess::program_id_at(std::string_view auxv) const {
  const bool wide = attachment_.architecture() != Architecture::kI386;
  return auxiliary_value(auxv, wide ? image::ElfClass::k64 : image::ElfClass::k32, AT_RANDOM);
}

// The kernel's 16 bytes are where they were and what they were in the same program alone.
bool LiveProcess::finds_new_program() {
  ProgramId now{};
  if (program_at_ != 0 && memory_->read(program_at_, now.data(), now.size()) && now == program_) return false;
  const std::uint64_t at = program_id_at(read_file("auxv"));
  if (at == 0 || !memory_->read(at, now.data(), now.size())) now = {};
  const bool is_new = stops_ == 0 || now != program_;
  program_ = now;
  program_at_ = at;
  return is_new;
}

// What walks begin with. Of many threads their stacks alone: most of them run the same code.
void LiveProcess::expect_stacks() {
  constexpr std::size_t kFew = 8;
  const std::vector<StoppedThread>& threads = attachment_.threads();
  std::vector<std::uint64_t> pcs;
  for (const StoppedThread& thread : threads) {
    if (!thread.registers.has_sp()) continue;
    memory_->expect(thread.registers.sp());
    if (threads.size() <= kFew) pcs.push_back(thread.registers.pc().value());
  }
  for (const std::uint64_t pc : pcs) memory_->expect(pc);
  modules_.expect_in(*memory_, std::move(pcs));
}

void LiveProcess::read_command(Target& target, std::string text) const {
  while (text.ends_with('\0')) text.pop_back();
  std::ranges::replace(text, '\0', ' ');
  target.command = !text.empty() ? std::move(text) : without_newline(read_file("comm"));
}

Expected<Target> LiveProcess::open(pid_t pid, const ProcessOptions& options) {
  const auto number = static_cast<std::uint64_t>(pid);
  os::Descriptor folder(::open(fmt::format("/proc/{}", pid).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder) return fail(ErrorCode::kSystem, "no such process", number, static_cast<std::uint64_t>(ESRCH));
  auto live = std::make_shared<LiveProcess>(pid, options, std::move(folder));
  if (const auto stopped = live->attachment_.stop(); !stopped) return Failure(stopped.error());
  auto memory = std::make_unique<ProcessMemory>(pid);
  live->memory_ = memory.get();
  Target target(TargetKind::kProcess, AddressSpace(live->attachment_.architecture(), std::move(memory)));
  target.process = number;
  Inside::live(target) = live;
  if (const auto read = live->read_stopped(target); !read) return Failure(read.error());
  return target;
}

LiveProcess::LiveProcess(pid_t pid, const ProcessOptions& options, os::Descriptor folder)
    : attachment_(
          pid, folder.get(), [this] { return find_architecture(); }, options),
      pid_(pid),
      folder_(std::move(folder)) {
  if (options.one_walk) modules_.expect_one_walk();
}

Expected<Refreshed> LiveProcess::refresh(Target& target) {
  target.threads.clear();
  target.problems.clear();
  target.notes.clear();
  (void)release();
  memory_->forget();
  read_names_by_turns();
  if (const auto stopped = attachment_.stop(); !stopped) return Failure(stopped.error());
  return read_stopped(target);
}

Expected<Refreshed> LiveProcess::read_stopped(Target& target) {
  auto changed = read(target);
  if (!changed) {
    (void)release();
    target.threads.clear();
  }
  return changed;
}

std::uint64_t LiveProcess::release() {
  keep_files(false);
  return attachment_.release();
}

// While all of it stands still, a path of its mapped files leads to the same file.
void LiveProcess::keep_files(bool keep) {
  if (keep == keeps_files_ || os::readers() == nullptr) return;
  os::readers()->keep_mapped_files_of(keep ? pid_ : 0);
  keeps_files_ = keep;
}

// Of the stopped process.
Expected<Refreshed> LiveProcess::read(Target& target) {
  keep_files(std::ranges::all_of(attachment_.threads(), &StoppedThread::stopped));
  expect_stacks();
  Texts first = std::exchange(texts_, {});
  bool is_new = stops_ == 0;
  if (is_new && !first.auxv.empty()) {
    program_at_ = program_id_at(first.auxv);
    if (program_at_ != 0) memory_->expect(program_at_);
  } else {
    is_new = finds_new_program();
  }
  if (is_new) maps_ = {};
  if (attachment_.pac_mask() != 0) target.space.set_pointer_mask(attachment_.pac_mask());
  auto changed = update_modules(target, first.maps);
  if (!changed) return changed;
  if (!first.auxv.empty() && (program_at_ == 0 || !memory_->read(program_at_, program_.data(), program_.size())))
    program_ = {};
  changed->executed = stops_ != 0 && is_new;
  if (is_new) {
    names_.clear();
    read_command(target, !first.command.empty() ? std::move(first.command) : read_file("cmdline"));
  }
  read_threads(target);
  ++stops_;
  return changed;
}

// `maps`: their text, empty where it has not been read.
Expected<Refreshed> LiveProcess::update_modules(Target& target, std::string_view maps) {
  if (!maps.empty()) return modules_.update(target, pid_, maps);
  if (!maps_) maps_ = open_file("maps");
  auto changed = modules_.update(target, pid_, maps_.get());
  if (changed) return changed;
  maps_ = {};
  const bool ended = ::faccessat(folder_.get(), "maps", F_OK, 0) != 0;
  if (ended) return fail(ErrorCode::kSystem, "no such process", target.process, static_cast<std::uint64_t>(ESRCH));
  return fail(ErrorCode::kSystem, changed.error().what, 0, static_cast<std::uint64_t>(EPERM));  // no other tracer
}

// Nothing stands meanwhile: which moment a name is of matters little.
void LiveProcess::read_names_by_turns() {
  for (auto& [id, name] : names_)
    if ((id + stops_) % kNameTurns == 0) name = read_name(id);
}

void LiveProcess::read_threads(Target& target) {
  std::unordered_map<std::uint64_t, std::string> names;
  for (const StoppedThread& stopped : attachment_.threads()) {
    const auto id = static_cast<std::uint64_t>(stopped.id);
    const auto known = names_.find(id);
    std::string name = known != names_.end() ? std::move(known->second) : read_name(id);
    names[id] = name;
    target.threads.push_back({id, std::move(name), stopped.registers, false, stopped.kernel_only});
    if (!stopped.stopped)
      target.problems.push_back(Error{ErrorCode::kLimit, "thread does not stop: uninterruptible wait", id});
  }
  names_ = std::move(names);
  std::ranges::sort(target.threads, {}, &Thread::id);
}

std::vector<std::byte> vector_registers(const Target& target, const Thread& thread) {
  const auto& live = Inside::live(target);
  return live != nullptr ? live->vector_registers(thread.id) : std::vector<std::byte>();
}

}  // namespace walk

std::uint64_t Target::release() { return live_ != nullptr ? live_->release() : 0; }

Expected<Refreshed> Target::refresh() {
  if (live_ == nullptr)
    return fail(ErrorCode::kUnsupported, "a dump does not change: only a process can be read again", 0);
  return live_->refresh(*this);
}

Expected<Target> open_process(std::uint64_t pid, const ProcessOptions& options) {
  if (pid == 0 || pid > INT32_MAX)
    return fail(ErrorCode::kSystem, "no such process", pid, static_cast<std::uint64_t>(ESRCH));
  if (pid == static_cast<std::uint64_t>(::getpid()))
    return fail(ErrorCode::kUnsupported,
                "a process cannot stop itself: walk the own process by StackWalker or windlass_backtrace()", pid);
  return walk::LiveProcess::open(static_cast<pid_t>(pid), options);
}

}  // namespace windlass
