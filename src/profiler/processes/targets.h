// Which processes a recording is of: all of the machine, or some and what they fork.
#pragma once

#include <cstdint>
#include <unordered_set>
#include <vector>

namespace windlass::profiler {

class Targets {
 public:
  // `everything`: the whole machine; what is added or removed then makes no difference.
  explicit Targets(bool everything = true) : everything_(everything) {}

  [[nodiscard]] bool everything() const { return everything_; }
  [[nodiscard]] bool contains(std::uint32_t tgid) const { return everything_ || chosen_.contains(tgid); }
  void add(std::uint32_t tgid) {
    if (!everything_) chosen_.insert(tgid);
  }
  void remove(std::uint32_t tgid) { chosen_.erase(tgid); }
  // Those that are known, in no order; none of the whole machine.
  [[nodiscard]] std::vector<std::uint32_t> chosen() const { return {chosen_.begin(), chosen_.end()}; }

 private:
  bool everything_;
  std::unordered_set<std::uint32_t> chosen_;
};

}  // namespace windlass::profiler
