#include "profiler/kernel/allocation_links.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cmath>
#include <numbers>

#include "profiler/kernel/event_links.h"
#include "windlass_filter_layout.h"
#include "windlass_process_layout.h"
#include "windlass_types.h"
// After the types of its variables.
#include "windlass.skel.h"

namespace windlass::profiler {
namespace {

// x / (1 - exp(-x)) as 8.24.
__u32 weight_at(unsigned step) {
  const double x = static_cast<double>(step) / WL_WEIGHT_STEPS;
  return static_cast<__u32>(std::lround((step == 0 ? 1 : x / -std::expm1(-x)) * (1 << 24)));
}

}  // namespace

void prepare_allocations(windlass_bpf& skeleton, const AllocationProbes* probes, std::uint64_t period,
                         std::uint16_t event) {
  bpf_program__set_autoload(skeleton.progs.windlass_allocation, probes != nullptr);
  bpf_program__set_autoload(skeleton.progs.windlass_free, probes != nullptr && probes->follows_blocks());
  if (probes == nullptr) return;
  bpf_map__set_max_entries(skeleton.maps.allocation_places, static_cast<__u32>(probes->probes.size()));
  bpf_map__set_max_entries(skeleton.maps.allocators,
                           static_cast<__u32>(std::max<std::size_t>(probes->functions.size(), 1)));
  if (probes->follows_blocks()) bpf_map__set_max_entries(skeleton.maps.sampled_blocks, WL_MAX_SAMPLED_BLOCKS);
  auto& data = *skeleton.rodata;
  period = std::clamp<std::uint64_t>(period, 1, WL_MAX_ALLOCATION_PERIOD);
  data.wl_allocation_event = event;
  data.wl_allocation_period = period;
  // -log2(u) as 8.24, times ln(2) * period, with 31 bits of that.
  const double mean = std::numbers::ln2 * static_cast<double>(period);
  const int shift = 31 - static_cast<int>(std::bit_width(period));
  data.wl_distance_factor = static_cast<__u64>(std::llround(std::ldexp(mean, shift)));
  data.wl_distance_shift = 24 + static_cast<__u64>(shift);
  for (unsigned step = 0; step < WL_WEIGHTS; ++step) data.wl_allocation_weights[step] = weight_at(step);
}

// Who listens to frees first sees each block of a sample go.
std::expected<void, int> attach_allocations(const windlass_bpf& skeleton, const AllocationProbes& probes,
                                            std::vector<bpf_link*>& links) {
  const auto fill = [](const bpf_map* map, std::uint32_t number, const void* value) {
    return bpf_map_update_elem(bpf_map__fd(map), &number, value, BPF_ANY);
  };
  for (std::uint32_t i = 0; i < probes.functions.size(); ++i)
    if (const int failed = fill(skeleton.maps.allocators, i, &probes.functions[i]); failed != 0)
      return std::unexpected(-failed);
  for (std::uint32_t i = 0; i < probes.probes.size(); ++i)
    if (const int failed = fill(skeleton.maps.allocation_places, i, &probes.probes[i].place); failed != 0)
      return std::unexpected(-failed);
  const std::size_t before = links.size();
  int error = 0;
  for (const bool frees : {true, false})
    for (std::uint32_t i = 0; i < probes.probes.size(); ++i) {
      const AllocationProbe& probe = probes.probes[i];
      if ((probe.place.kind == WL_ALLOCATION_FREE) != frees) continue;
      const bpf_program* program = frees ? skeleton.progs.windlass_free : skeleton.progs.windlass_allocation;
      bpf_link* link =
          attach_uprobe(*program, static_cast<pid_t>(probe.tgid), probe.file, probe.offset, probe.semaphore, i);
      if (link != nullptr) {
        links.push_back(link);
        continue;
      }
      error = errno;  // a process may have ended meanwhile
      if (error != ESRCH && error != ENOENT) return std::unexpected(error);
    }
  if (links.size() == before && error != 0) return std::unexpected(error);
  return {};
}

}  // namespace windlass::profiler
