// A live process, which nobody stops.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <climits>

#include "os/proc_file.h"
#include "symbols/subject.h"
#include "walk/target/process_memory.h"
#include "windlass/backtrace.h"

namespace windlass::symbols {

Expected<std::unique_ptr<Subject>> ProcessSubject::open(std::uint64_t pid, KnownModules& modules) {
  const auto refuse = [&](int number) {
    const char* what = number == ENOENT || number == ESRCH ? "no such process" : "process may not be looked at";
    return fail(ErrorCode::kSystem, what, pid, static_cast<std::uint64_t>(number == ENOENT ? ESRCH : number));
  };
  if (pid == 0 || pid > INT_MAX) return refuse(ESRCH);
  os::Descriptor folder(::open(fmt::format("/proc/{}", pid).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder) return refuse(errno);
  auto subject = std::make_unique<ProcessSubject>(static_cast<pid_t>(pid), std::move(folder), modules);
  errno = 0;
  subject->begin_call();
  if (subject->mapped_ == nullptr) return refuse(errno != 0 ? errno : ESRCH);  // empty: a zombie, or the kernel's own
  return subject;
}

ProcessSubject::Mapped::Mapped(pid_t pid, const std::string& maps, KnownModules& known)
    : target(TargetKind::kProcess, AddressSpace(kOwnArchitecture, std::make_unique<walk::ProcessMemory>(pid))),
      subject(target.space, {.process = static_cast<std::uint64_t>(pid), .live = true}, known) {
  target.process = static_cast<std::uint64_t>(pid);
  (void)modules.update(target, pid, maps);
  subject.open_all();
}

std::string ProcessSubject::read_maps() const {
  return os::read_proc_file_of(pid_, os::open_proc_file(pid_, folder_.get(), "maps").get());
}

void ProcessSubject::begin_call() {
  std::string maps = read_maps();
  if (maps.empty()) return;
  if (maps == maps_) return mapped_->modules.fix_time(mapped_->target);
  auto mapped = std::make_unique<Mapped>(pid_, maps, modules_);
  // What was read by number was this process's if it is there now.
  if (read_maps().empty()) return;
  mapped_ = std::move(mapped);
  maps_ = std::move(maps);
}

}  // namespace windlass::symbols
