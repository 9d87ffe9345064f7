#include "profiler/kernel/allocation_links.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <numbers>
#include <optional>
#include <span>

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

// For processes that are started later.
constexpr std::size_t kMorePlaces = 256;

int fill(const bpf_map* map, std::size_t number, const void* value) {
  const auto key = static_cast<__u32>(number);
  return bpf_map_update_elem(bpf_map__fd(map), &key, value, BPF_ANY);
}

std::span<const wl_code_range> ranges_of(const AllocationProbes& probes, const wl_allocation_place& place) {
  return std::span(probes.functions).subspan(place.first_range, place.ranges);
}

// Does a hit mean the same at both, wherever the functions of their files are numbered?
bool is_same_place(const AllocationProbes& a, const wl_allocation_place& at_a, const AllocationProbes& b,
                   const wl_allocation_place& at_b) {
  wl_allocation_place left = at_a, right = at_b;
  left.first_range = right.first_range = 0;
  const auto same_range = [](const wl_code_range& x, const wl_code_range& y) {
    return x.begin == y.begin && x.end == y.end;
  };
  return std::memcmp(&left, &right, sizeof left) == 0 &&
         std::ranges::equal(ranges_of(a, at_a), ranges_of(b, at_b), same_range);
}

// The number of the place among those of `known`, and in the map; none if there is no room.
std::optional<std::uint32_t> number_of(const windlass_bpf& skeleton, AllocationProbes& known,
                                       const AllocationProbes& found, const AllocationProbe& probe) {
  const auto same = std::ranges::find_if(known.probes, [&](const AllocationProbe& other) {
    return is_same_place(known, other.place, found, probe.place);
  });
  if (same != known.probes.end()) return static_cast<std::uint32_t>(same - known.probes.begin());
  const auto ranges = ranges_of(found, probe.place);
  const auto& maps = skeleton.maps;
  if (known.probes.size() >= bpf_map__max_entries(maps.allocation_places) ||
      known.functions.size() + ranges.size() > bpf_map__max_entries(maps.allocators))
    return std::nullopt;
  AllocationProbe added = probe;
  added.place.first_range = static_cast<std::uint32_t>(known.functions.size());
  for (const wl_code_range& range : ranges) {
    (void)fill(maps.allocators, known.functions.size(), &range);
    known.functions.push_back(range);
  }
  (void)fill(maps.allocation_places, known.probes.size(), &added.place);
  known.probes.push_back(added);
  return static_cast<std::uint32_t>(known.probes.size() - 1);
}

bpf_link* attach_at(const windlass_bpf& skeleton, const AllocationProbe& probe, std::uint32_t number) {
  const bool frees = probe.place.kind == WL_ALLOCATION_FREE;
  return attach_uprobe(frees ? *skeleton.progs.windlass_free : *skeleton.progs.windlass_allocation,
                       static_cast<pid_t>(probe.tgid), probe.file, probe.offset, probe.semaphore, number);
}

}  // namespace

void prepare_allocations(windlass_bpf& skeleton, const AllocationProbes* probes, std::uint64_t period,
                         std::uint16_t event) {
  bpf_program__set_autoload(skeleton.progs.windlass_allocation, probes != nullptr);
  bpf_program__set_autoload(skeleton.progs.windlass_free, probes != nullptr && probes->follows_blocks());
  if (probes == nullptr) return;
  bpf_map__set_max_entries(skeleton.maps.allocation_places, static_cast<__u32>(probes->probes.size() + kMorePlaces));
  bpf_map__set_max_entries(skeleton.maps.allocators, static_cast<__u32>(probes->functions.size() + kMorePlaces));
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
      bpf_link* link = attach_at(skeleton, probe, i);
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

void attach_more_allocations(const windlass_bpf& skeleton, AllocationProbes& known, const AllocationProbes& found,
                             std::vector<bpf_link*>& links) {
  for (const bool frees : {true, false})
    for (const AllocationProbe& probe : found.probes) {
      if ((probe.place.kind == WL_ALLOCATION_FREE) != frees) continue;
      const auto number = number_of(skeleton, known, found, probe);
      bpf_link* link = number ? attach_at(skeleton, probe, *number) : nullptr;
      if (link != nullptr) links.push_back(link);
    }
}

}  // namespace windlass::profiler
