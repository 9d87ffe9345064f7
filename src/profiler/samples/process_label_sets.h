// The labels of sampled processes, each set once.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <unordered_map>
#include <vector>

#include "profiler/processes/process_labels.h"

namespace windlass::profiler {

// One thread only.
class ProcessLabelSets {
 public:
  static constexpr std::size_t kMostSets = 65536;  // then processes have no labels

  using Set = std::vector<Label>;
  // What a process's labels are now; nothing if it has gone. An empty function: processes have none.
  using Read = std::function<std::optional<Set>(std::uint32_t tgid)>;
  // `of_gone`: the labels of a process that has gone before they were read, sorted by key.
  explicit ProcessLabelSets(Read read = {}, Set of_gone = {}) : read_(std::move(read)), of_gone_(std::move(of_gone)) {}

  // The number of the process's set, which is read at the first call. 0 is the empty set.
  std::uint32_t of(std::uint32_t tgid);
  // The number of the set with `more`, sorted by key. Of a key that both have, the set's label stays. The set itself if
  // there is no room for another one.
  std::uint32_t with(std::uint32_t set, const Set& more);
  // A process begins with its parent's.
  void on_fork(std::uint32_t parent, std::uint32_t child);
  // It is read anew. One that has gone keeps what it had.
  void on_exec(std::uint32_t tgid);
  // Forgets the sets of all but the processes that are known, and the overflow. The result gives an old number its new
  // one; it refers to this object.
  [[nodiscard]] std::function<std::uint32_t(std::uint32_t set)> forget();
  // Drops the processes for which known(tgid) is false.
  void keep_only(const std::function<bool(std::uint32_t tgid)>& known);

  [[nodiscard]] const std::vector<Set>& sets() const { return sets_; }
  // There was no room for a set.
  [[nodiscard]] bool has_overflowed() const { return has_overflowed_; }

 private:
  std::uint32_t number_of(Set set, std::uint32_t if_full = 0);

  Read read_;
  Set of_gone_;
  std::unordered_map<std::uint32_t, std::uint32_t> known_;  // by tgid
  std::vector<Set> sets_{{}};
  std::map<Set, std::uint32_t> numbers_{{{}, 0}};
  bool has_overflowed_ = false;
};

}  // namespace windlass::profiler
