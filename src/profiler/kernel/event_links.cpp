#include "profiler/kernel/event_links.h"

#include <bpf/libbpf.h>
#include <unistd.h>

#include <cerrno>

#include "base/mapped_file.h"
#include "formats/image/elf.h"
#include "profiler/kernel/usdt_notes.h"
#include "profiler/kernel/usdt_operand.h"
#include "windlass_event_layout.h"

namespace windlass::profiler {
namespace {

bpf_link* attach_tracepoint(const bpf_program& program, const EventSpec& event, std::uint64_t number) {
  bpf_tracepoint_opts how{};
  how.sz = sizeof how;
  how.bpf_cookie = number;
  return bpf_program__attach_tracepoint_opts(&program, event.category.c_str(), event.point.c_str(), &how);
}

// In every process that runs the file.
bpf_link* attach_probe(const bpf_program& program, const EventSpec& event, std::uint64_t number) {
  bpf_uprobe_opts how{};
  how.sz = sizeof how;
  how.bpf_cookie = number;
  if (event.argument != 0)
    how.bpf_cookie |= (function_argument(event.argument - 1).registers_at + std::uint64_t{1}) << WL_ARGUMENT_SHIFT;
  how.retprobe = event.returns;
  how.func_name = event.function.c_str();
  return bpf_program__attach_uprobe_opts(&program, -1, event.file.c_str(), event.offset, &how);
}

// Without perf's probes libbpf would go by tracefs, which hands no number to the program.
bpf_link* attach_kernel_probe(const bpf_program& program, const EventSpec& event, std::uint64_t number) {
  if (access("/sys/bus/event_source/devices/kprobe", F_OK) != 0) {
    errno = ENODEV;
    return nullptr;
  }
  bpf_kprobe_opts how{};
  how.sz = sizeof how;
  how.bpf_cookie = number;
  how.offset = event.offset;
  how.retprobe = event.returns;
  return bpf_program__attach_kprobe_opts(&program, event.function.c_str(), &how);
}

// A static probe may be at several places.
std::expected<void, int> attach_static_probe(const bpf_program& program, const EventSpec& event, std::uint64_t number,
                                             std::vector<bpf_link*>& links) {
  const auto file = MappedFile::open(event.file);
  if (!file) return std::unexpected(ENOENT);
  const auto image = image::ElfImage::parse(file->bytes());
  if (!image) return std::unexpected(ENOENT);
  const std::vector<StaticProbe> probes = find_static_probes(*image, event.category, event.point);
  if (probes.empty()) return std::unexpected(ENOENT);
  for (const StaticProbe& probe : probes) {
    bpf_link* link = attach_uprobe(program, -1, event.file, probe.place, probe.semaphore, number);
    if (link == nullptr) return std::unexpected(errno);
    links.push_back(link);
  }
  return {};
}

}  // namespace

bpf_link* attach_uprobe(const bpf_program& program, int pid, const std::string& file, std::uint64_t offset,
                        std::uint64_t semaphore, std::uint64_t number) {
  bpf_uprobe_opts how{};
  how.sz = sizeof how;
  how.bpf_cookie = number;
  how.ref_ctr_offset = semaphore;
  return bpf_program__attach_uprobe_opts(&program, pid, file.c_str(), offset, &how);
}

std::expected<void, int> attach_event(const bpf_program& program, const EventSpec& event, std::uint64_t number,
                                      std::vector<bpf_link*>& links) {
  if (event.is_static_probe()) return attach_static_probe(program, event, number, links);
  bpf_link* const link = event.kind == EventKind::kTracepoint    ? attach_tracepoint(program, event, number)
                         : event.kind == EventKind::kKernelProbe ? attach_kernel_probe(program, event, number)
                                                                 : attach_probe(program, event, number);
  if (link == nullptr) return std::unexpected(errno);
  links.push_back(link);
  return {};
}

}  // namespace windlass::profiler
