#include "cli/thread_stacks.h"

#include <charconv>
#include <map>
#include <unordered_map>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include "process/proc_file.h"
#include "symbols/symbolize.h"
#include "walk/module.h"

namespace windlass::cli {
namespace {

// The perf map that a JIT compiler writes is named after its process as that sees itself, in its own /tmp.
std::string perf_map_of(const Target& target) {
  if (target.kind != TargetKind::kProcess) return fmt::format("/tmp/perf-{}.map", target.process);
  const std::string status = process::read_proc_file(fmt::format("/proc/{}/status", target.process));
  const auto line = status.find("\nNSpid:");
  if (line == std::string::npos) return fmt::format("/tmp/perf-{}.map", target.process);
  const std::string ids = status.substr(line + 1, status.find('\n', line + 1) - line - 1);
  const std::string inner = ids.substr(ids.find_last_of("\t :") + 1);
  return fmt::format("/proc/{}/root/tmp/perf-{}.map", target.process, inner);
}

class Collector {
 public:
  Collector(const Target& target, ThreadStacks& walked) : target_(target), walked_(walked) {}

  void walk(const Thread& thread, std::size_t max_frames) {
    ThreadStack& to = walked_.threads.emplace_back();
    to.thread = &thread;
    if (thread.registers.pc().value() == 0 && !thread.registers.has_sp()) {
      to.end = WalkEnd::kLost;
      to.error = Error{ErrorCode::kNotFound, "registers of the thread are not known", thread.id};
      return;
    }
    StackWalker walker(target_.space, thread.registers, {.max_frames = max_frames});
    do {
      const Frame& frame = walker.frame();
      to.frames.push_back({frame.registers, frame.origin, frame.signal_frame, location_of(frame.pc())});
    } while (walker.step());
    to.end = walker.end_reason();
    to.error = walker.error();
  }

 private:
  std::uint32_t location_of(CodeAddress pc) {
    const auto [entry, is_new] =
        locations_.try_emplace(pc.lookup(), static_cast<std::uint32_t>(walked_.names.locations.size()));
    if (is_new) {
      const walk::Module* module = target_.space.find(pc.lookup());
      profile::Location& location = walked_.names.locations.emplace_back();
      location.address = pc.lookup();
      if (module != nullptr) {
        location.address -= module->info().bias;
        location.module = module_of(*module);
      }
    }
    return entry->second;
  }

  std::uint32_t module_of(const walk::Module& module) {
    const auto [entry, is_new] =
        modules_.try_emplace(&module, static_cast<std::uint32_t>(walked_.names.modules.size()));
    if (!is_new) return entry->second;
    const ModuleInfo& info = module.info();
    profile::Module to;
    to.path = info.path;
    to.begin = info.begin - info.bias;
    to.end = info.end - info.bias;
    if (module.generated()) {
      if (!info.path.starts_with('/')) {
        to.pid = static_cast<std::uint32_t>(target_.process);
        to.open_path = perf_map_of(target_);
      }
    } else {
      to.open_path = hold(info);
    }
    walked_.names.modules.push_back(std::move(to));
    return entry->second;
  }

  // A descriptor of the module's file, or of its bytes in memory.
  std::string hold(const ModuleInfo& info) {
    int fd = -1;
    if (!info.file.empty()) {
      fd = ::open(info.file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
      if (fd < 0) return info.file;
    } else {
      fd = copy_of_memory(info);
      if (fd < 0) return {};
    }
    walked_.files.push_back(fd);
    return fmt::format("/proc/self/fd/{}", fd);
  }

  // The vdso: its image is its mapping.
  int copy_of_memory(const ModuleInfo& info) {
    constexpr std::uint64_t kMax = std::uint64_t{1} << 20;
    if (info.path != "[vdso]" || info.end - info.begin > kMax) return -1;
    std::vector<char> bytes(info.end - info.begin);
    if (!target_.space.memory().read(info.begin, bytes.data(), bytes.size())) return -1;
    const int fd = ::memfd_create("windlass-vdso", MFD_CLOEXEC);
    if (fd >= 0 && ::write(fd, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size())) {
      ::close(fd);
      return -1;
    }
    return fd;
  }

  const Target& target_;
  ThreadStacks& walked_;
  std::unordered_map<std::uint64_t, std::uint32_t> locations_;
  std::map<const walk::Module*, std::uint32_t> modules_;
};

}  // namespace

ThreadStacks::~ThreadStacks() {
  for (const int fd : files) ::close(fd);
}

ThreadStacks walk_all(const Target& target, std::size_t max_frames) {
  ThreadStacks walked;
  Collector collector(target, walked);
  for (const Thread& thread : target.threads) collector.walk(thread, max_frames);
  return walked;
}

void name_frames(ThreadStacks& walked, const NameOptions& options) {
  symbols::SymbolizeOptions how;
  how.lines = options.lines || options.inlines;
  how.debug_directory = options.debug_directory;
  (void)symbols::symbolize(walked.names, how);
}

}  // namespace windlass::cli
