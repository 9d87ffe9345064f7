#include "profiler/kernel/allocation_children.h"

#include <bpf/libbpf.h>
#include <sys/stat.h>

#include <array>
#include <ranges>

#include "base/monotonic.h"
#include "profiler/kernel/allocation_links.h"
#include "windlass_process_layout.h"

namespace windlass::profiler {
namespace {

// When the dynamic linker has mapped a new program's libraries, in ns: mostly, surely, on a machine with no time.
constexpr std::array<std::uint64_t, 3> kLooks{2'000'000, 50'000'000, 500'000'000};

}  // namespace

AllocationChildren::~AllocationChildren() {
  for (auto& [tgid, child] : children_) drop(child);
}

// The last one first: frees are seen for longer than allocations.
void AllocationChildren::drop(Child& child) {
  for (bpf_link* link : std::views::reverse(child.links)) bpf_link__destroy(link);
  child.links.clear();
}

void AllocationChildren::take(const wl_event_head& head, std::size_t size) {
  if (head.type == WL_EVENT_EXIT) {
    if (const auto found = children_.find(head.tgid); found != children_.end()) {
      drop(found->second);
      children_.erase(found);
    }
  } else if (head.type == WL_EVENT_FORK && size >= sizeof(wl_process_event)) {
    const auto tgid = static_cast<std::uint32_t>(reinterpret_cast<const wl_process_event&>(head).address);
    if (children_.size() >= kMost) return;
    const auto [child, added] = children_.try_emplace(tgid);
    if (!added) return;
    child->second.looks = kLooks.size();
    watch(tgid, child->second);  // its files are still those of its parent
  } else if (head.type == WL_EVENT_EXEC) {
    if (const auto found = children_.find(head.tgid); found != children_.end()) {
      found->second.program_since = monotonic_ns();
      found->second.looks = 0;
    }
  }
}

// Probes of files that the program before had mapped, too, have stayed.
void AllocationChildren::look_again() {
  const std::uint64_t now = monotonic_ns();
  for (auto& [tgid, child] : children_) {
    if (child.looks == kLooks.size() || now < child.program_since + kLooks[child.looks]) continue;
    ++child.looks;
    watch(tgid, child);
  }
}

void AllocationChildren::watch(std::uint32_t tgid, Child& child) {
  const std::uint32_t one[] = {tgid};
  AllocationProbes found = find_allocation_probes({}, one).value_or(AllocationProbes{});
  if (found.follows_blocks() && !known_.follows_blocks()) return;  // the recording has no values for these
  std::erase_if(found.probes, [&](const AllocationProbe& probe) {
    struct stat status {};
    return stat(probe.file.c_str(), &status) != 0 ||
           !child.places.emplace(status.st_dev, status.st_ino, probe.offset).second;
  });
  attach_more_allocations(skeleton_, known_, found, child.links);
}

}  // namespace windlass::profiler
