// The children that watched processes start while their allocations are recorded. A probe belongs to a process, and
// children do not inherit probes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "profiler/kernel/allocation_probes.h"
#include "windlass_event_layout.h"

struct bpf_link;
struct windlass_bpf;

namespace windlass::profiler {

class AllocationChildren {
 public:
  // At most so many at once, others are not watched: each has some ten probes, which take the kernel a millisecond or
  // so to set.
  static constexpr std::size_t kMost = 64;

  // `known`: what is watched already. Places that are new are added there, as far as the maps have room.
  AllocationChildren(const windlass_bpf& skeleton, AllocationProbes& known) : skeleton_(skeleton), known_(known) {}
  ~AllocationChildren();
  AllocationChildren(const AllocationChildren&) = delete;
  AllocationChildren& operator=(const AllocationChildren&) = delete;

  // A WL_EVENT_FORK, WL_EVENT_EXEC or WL_EVENT_EXIT; others are ignored.
  void take(const wl_event_head& head, std::size_t size);
  // Programs that children have begun meanwhile may have other allocators. They are looked for once these are mapped.
  void look_again();

 private:
  struct Child {
    std::vector<bpf_link*> links;
    std::set<std::tuple<std::uint64_t, std::uint64_t, std::uint64_t>> places;  // device, inode, offset
    std::uint64_t program_since = 0;                                           // CLOCK_MONOTONIC, ns
    unsigned looks = 0;                                                        // since then; kLooks: enough
  };
  void watch(std::uint32_t tgid, Child& child);
  void drop(Child& child);

  const windlass_bpf& skeleton_;
  AllocationProbes& known_;
  std::unordered_map<std::uint32_t, Child> children_;
};

}  // namespace windlass::profiler
