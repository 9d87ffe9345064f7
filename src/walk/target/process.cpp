// Another process as an address space.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include <elf.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "image/elf_structures.h"
#include "image/machine.h"
#include "process/proc_file.h"
#include "walk/target/live_process.h"
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

// Of the program that runs in the process. x86-64 kernels run i386's, too.
Architecture architecture_of_program(const process::Descriptor& folder) {
  const process::Descriptor program(::openat(folder.get(), "exe", O_RDONLY | O_CLOEXEC));
  std::byte header[sizeof(Elf64_Ehdr)];
  const ssize_t size = program ? ::pread(program.get(), header, sizeof header, 0) : -1;
  if (kHost != Architecture::kX86_64 || size <= 0) return kHost;
  const auto machine = image::machine_of(ByteView(header, static_cast<std::size_t>(size)));
  return machine.architecture == Architecture::kI386 ? Architecture::kI386 : kHost;
}

}  // namespace

namespace walk {

std::string LiveProcess::read_file(const std::string& name) const {
  return process::read_proc_file(fmt::format("/proc/self/fd/{}/{}", folder_.get(), name));
}

LiveProcess::ProgramId LiveProcess::program_id(const Memory& memory) const {
  ProgramId id{};
  const std::uint64_t at = auxiliary_value(
      read_file("auxv"),
      attachment_.architecture() == Architecture::kI386 ? image::ElfClass::k32 : image::ElfClass::k64, AT_RANDOM);
  if (at == 0 || !memory.read(at, id.data(), id.size())) id = {};
  return id;
}

Expected<Target> LiveProcess::open(pid_t pid, const ProcessOptions& options) {
  const auto number = static_cast<std::uint64_t>(pid);
  process::Descriptor folder(::open(fmt::format("/proc/{}", pid).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder) return fail(ErrorCode::kSystem, "no such process", number, static_cast<std::uint64_t>(ESRCH));
  const Architecture architecture = architecture_of_program(folder);
  auto memory = std::make_unique<ProcessMemory>(pid);
  auto live = std::make_shared<LiveProcess>(pid, architecture, options, std::move(folder));
  live->memory_ = memory.get();
  Target target{.kind = TargetKind::kProcess,
                .space = AddressSpace(architecture, std::move(memory)),
                .threads = {},
                .command = {},
                .process = number,
                .problems = {},
                .notes = {},
                .attachment = live};
  if (const auto read = live->refresh(target); !read) return std::unexpected(read.error());
  return target;
}

Expected<Refreshed> LiveProcess::refresh(Target& target) {
  target.threads.clear();
  target.problems.clear();
  target.notes.clear();
  (void)attachment_.release();
  memory_->forget();
  if (const auto stopped = attachment_.stop(); !stopped) return std::unexpected(stopped.error());
  auto changed = read(target);
  if (!changed) {
    (void)attachment_.release();
    target.threads.clear();
  }
  return changed;
}

// Of the stopped process.
Expected<Refreshed> LiveProcess::read(Target& target) {
  const std::string maps = read_file("maps");
  if (maps.empty()) {
    const bool ended = ::faccessat(folder_.get(), "maps", F_OK, 0) != 0;
    return fail(ErrorCode::kSystem, ended ? "no such process" : "mappings cannot be read", target.process,
                static_cast<std::uint64_t>(ended ? ESRCH : EPERM));
  }
  if (attachment_.pac_mask() != 0) target.space.set_pointer_mask(attachment_.pac_mask());
  Refreshed changed = modules_.update(target, pid_, maps);
  const ProgramId program = program_id(*memory_);
  changed.executed = stops_ != 0 && program != program_;
  if (stops_ == 0 || changed.executed) {
    names_.clear();
    target.command = read_file("cmdline");
    while (target.command.ends_with('\0')) target.command.pop_back();
    std::replace(target.command.begin(), target.command.end(), '\0', ' ');
    if (target.command.empty()) target.command = without_newline(read_file("comm"));
  }
  program_ = program;
  read_threads(target);
  ++stops_;
  return changed;
}

void LiveProcess::read_threads(Target& target) {
  std::unordered_map<std::uint64_t, std::string> names;
  for (const StoppedThread& stopped : attachment_.threads()) {
    const auto id = static_cast<std::uint64_t>(stopped.id);
    const auto known = names_.find(id);
    const bool keeps = known != names_.end() && (id + stops_) % kNameTurns != 0;
    std::string name = keeps ? std::move(known->second) : without_newline(read_file(fmt::format("task/{}/comm", id)));
    names[id] = name;
    target.threads.push_back({id, std::move(name), stopped.registers, false});
    if (!stopped.stopped)
      target.problems.push_back(Error{ErrorCode::kLimit, "thread does not stop: uninterruptible wait", id});
  }
  names_ = std::move(names);
  std::ranges::sort(target.threads, {}, &Thread::id);
}

}  // namespace walk

std::uint64_t Target::release() { return attachment != nullptr ? attachment->release() : 0; }

Expected<Refreshed> Target::refresh() {
  if (attachment == nullptr) return fail(ErrorCode::kUnsupported, "a dump is what it is: only a process changes", 0);
  return attachment->refresh(*this);
}

Expected<Target> open_process(std::uint64_t pid, const ProcessOptions& options) {
  if (pid == 0 || pid > INT32_MAX)
    return fail(ErrorCode::kSystem, "no such process", pid, static_cast<std::uint64_t>(ESRCH));
  if (pid == static_cast<std::uint64_t>(::getpid()))
    return fail(ErrorCode::kUnsupported, "a process cannot stop itself", pid);
  return walk::LiveProcess::open(static_cast<pid_t>(pid), options);
}

}  // namespace windlass
