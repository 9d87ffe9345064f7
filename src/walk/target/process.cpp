// Another process as an address space.
#include <algorithm>
#include <cerrno>

#include <fmt/format.h>
#include <unistd.h>

#include "process/proc_file.h"
#include "walk/target/attachment.h"
#include "walk/target/modules.h"
#include "walk/target/process_memory.h"
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

std::string command_of(std::uint64_t pid) {
  std::string text = process::read_proc_file(fmt::format("/proc/{}/cmdline", pid));
  while (text.ends_with('\0')) text.pop_back();
  std::replace(text.begin(), text.end(), '\0', ' ');
  return text.empty() ? without_newline(process::read_proc_file(fmt::format("/proc/{}/comm", pid))) : text;
}

// map_files is the mapped file itself, whatever became of its name, but wants CAP_SYS_ADMIN or
// CAP_CHECKPOINT_RESTORE. The path is looked up where the process sees it.
std::vector<walk::FileCandidate> files_of(std::uint64_t pid, const process::ProcMap& map) {
  std::vector<walk::FileCandidate> files;
  files.push_back({fmt::format("/proc/{}/map_files/{:x}-{:x}", pid, map.begin, map.end), true, 0});
  if (!map.deleted) files.push_back({fmt::format("/proc/{}/root{}", pid, map.path), false, map.inode});
  return files;
}

}  // namespace

Expected<Target> open_process(std::uint64_t pid, const ProcessOptions& options) {
  if (pid == 0 || pid > INT32_MAX)
    return fail(ErrorCode::kSystem, "no such process", pid, static_cast<std::uint64_t>(ESRCH));
  if (pid == static_cast<std::uint64_t>(::getpid()))
    return fail(ErrorCode::kUnsupported, "a process cannot stop itself", pid);
  auto attachment = walk::Attachment::attach(static_cast<pid_t>(pid), kHost, options.stop_timeout_ms);
  if (!attachment) return std::unexpected(attachment.error());

  Target target{.kind = TargetKind::kProcess,
                .space = AddressSpace(kHost, std::make_unique<walk::ProcessMemory>(static_cast<pid_t>(pid))),
                .threads = {},
                .command = command_of(pid),
                .process = pid,
                .problems = {},
                .notes = {},
                .attachment = *attachment};
  if ((*attachment)->pac_mask() != 0) target.space.set_pointer_mask((*attachment)->pac_mask());
  for (const walk::StoppedThread& stopped : (*attachment)->threads()) {
    const auto id = static_cast<std::uint64_t>(stopped.id);
    Thread thread{id, without_newline(process::read_proc_file(fmt::format("/proc/{}/task/{}/comm", pid, id))),
                  stopped.registers, false};
    if (!stopped.stopped)
      target.problems.push_back(Error{ErrorCode::kLimit, "thread does not stop: uninterruptible wait", id});
    target.threads.push_back(std::move(thread));
  }
  std::sort(target.threads.begin(), target.threads.end(), [](const Thread& a, const Thread& b) { return a.id < b.id; });

  const auto maps = process::parse_proc_maps(process::read_proc_file(fmt::format("/proc/{}/maps", pid)));
  if (maps.empty()) return fail(ErrorCode::kSystem, "mappings cannot be read", pid, static_cast<std::uint64_t>(EPERM));
  (void)walk::add_modules(
      target, maps, [&](const process::ProcMap& map, std::string&) { return files_of(pid, map); },
      static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)));
  return target;
}

}  // namespace windlass
