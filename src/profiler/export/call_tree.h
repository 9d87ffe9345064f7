// The samples of a profile merged into one call tree, and self and total counts a function.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "profiler/export/frames.h"
#include "profiler/profile/profile.h"

namespace windlass::exporter {

struct TreeNode {
  std::uint32_t frame = profile::kNone;
  std::uint32_t parent = profile::kNone;
  std::uint32_t first_child = profile::kNone;  // children by descending total, then name
  std::uint32_t next_sibling = profile::kNone;
  std::uint64_t self = 0;   // samples that end here
  std::uint64_t total = 0;  // samples that pass through or end here
};

struct FunctionCount {
  std::uint64_t self = 0;
  std::uint64_t total = 0;  // a recursive function counts once a sample
};

// Of one of the profile's values.
struct Totals {
  std::uint64_t samples = 0;  // how many; as all of these numbers, in the unit of the value
  std::uint64_t truncated = 0;
  std::uint64_t chained = 0;
  std::uint64_t by_end[256] = {};
};
// Of each of the values: Totals::samples. One pass over the samples, which do not fit in a cache.
[[nodiscard]] std::vector<std::uint64_t> sums_of(const profile::Profile& profile,
                                                 std::span<const profile::ValueType> types);
[[nodiscard]] Totals totals_of(const profile::Profile& profile, profile::ValueType type);
[[nodiscard]] inline Totals totals_of(const profile::Profile& profile) {
  return totals_of(profile, shown_by_default(profile));
}

// Node 0 is the root. Below it are the paths of Frames::path_of(). O(samples + nodes), where samples share a pool.
class CallTree {
 public:
  // The weights of samples are the values of `type`. `pid`: of this process's samples alone; kNone: of all.
  CallTree(const profile::Profile& profile, Frames& frames, profile::ValueType type,
           std::uint32_t pid = profile::kNone);
  CallTree(const profile::Profile& profile, Frames& frames, std::uint32_t pid = profile::kNone)
      : CallTree(profile, frames, shown_by_default(profile), pid) {}

  [[nodiscard]] const std::vector<TreeNode>& nodes() const { return nodes_; }
  // Indexed by frame id.
  [[nodiscard]] const std::vector<FunctionCount>& functions() const { return functions_; }

 private:
  void add_totals_and_sort(const Frames& frames);
  void count_functions(std::size_t frames);

  std::vector<TreeNode> nodes_;
  std::vector<FunctionCount> functions_;
};

// The functions by descending self, then total: frames that are neither a thread's name nor a reason of truncation, and
// that a sample has. At most so many of them are sorted, and come first.
[[nodiscard]] std::vector<std::uint32_t> functions_by_self(const Frames& frames, const CallTree& tree,
                                                           std::size_t sorted = ~std::size_t{0});

}  // namespace windlass::exporter
