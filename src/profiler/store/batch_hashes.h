// The hashes by which stores keep the contents of a batch once.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "profiler/store/content_hash.h"
#include "profiler/store/store.h"

namespace windlass::store {

// The keys and values of a set, in the order of its hash: host, process, pid, tid, thread if there is one, own labels.
[[nodiscard]] std::vector<Label> all_labels(const LabelSet& set);
inline constexpr std::size_t kAlwaysLabels = 4;  // without thread and own labels
[[nodiscard]] HashBytes hash_of(const LabelSet& set, const std::vector<Label>& all);

// Of one profile, which must outlive this. Each hash is computed once. Indexes must lie within the profile; kNone as a
// module or function is nothing, and has a hash of zeros.
class BatchHashes {
 public:
  explicit BatchHashes(const profile::Profile& profile);

  [[nodiscard]] HashBytes module(std::uint32_t index);
  [[nodiscard]] HashBytes function(std::uint32_t index);
  [[nodiscard]] HashBytes frame(std::uint32_t index);
  // Of a stack's locations.
  [[nodiscard]] HashBytes stack(const std::vector<std::uint32_t>& locations);

 private:
  using Known = std::vector<std::optional<HashBytes>>;

  const profile::Profile& profile_;
  Known modules_, functions_, frames_;
};

}  // namespace windlass::store
