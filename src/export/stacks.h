// Samples merged by stack.
#pragma once

#include <cstdint>
#include <vector>

#include "profile/profile.h"

namespace windlass::exporter {

inline std::uint64_t mix_hash(std::uint64_t hash, std::uint64_t value) {
  hash = (hash ^ value) * 0x9e3779b97f4a7c15ull;
  return hash ^ (hash >> 29);
}

// Samples with the same comm, end and locations, counted together. Open addressing over sample indexes.
class DistinctStacks {
 public:
  struct Stack {
    const profile::Sample* sample;
    std::uint64_t count;
    std::uint64_t hash;
  };

  void add(const profile::Sample& sample) {
    if (stacks_.size() * 2 >= slots_.size()) grow();
    std::uint64_t hash = mix_hash(sample.comm, sample.end);
    for (const auto location : sample.locations) hash = mix_hash(hash, location);
    for (std::size_t slot = hash & mask();; slot = (slot + 1) & mask()) {
      if (slots_[slot] == profile::kNone) {
        slots_[slot] = static_cast<std::uint32_t>(stacks_.size());
        stacks_.push_back({&sample, sample.count, hash});
        return;
      }
      auto& known = stacks_[slots_[slot]];
      if (known.hash == hash && known.sample->comm == sample.comm && known.sample->end == sample.end &&
          known.sample->locations == sample.locations) {
        known.count += sample.count;
        return;
      }
    }
  }
  [[nodiscard]] const std::vector<Stack>& stacks() const { return stacks_; }

 private:
  [[nodiscard]] std::size_t mask() const { return slots_.size() - 1; }
  void grow() {
    slots_.assign(slots_.empty() ? 1024 : slots_.size() * 2, profile::kNone);
    for (std::uint32_t i = 0; i < stacks_.size(); ++i) {
      std::size_t slot = stacks_[i].hash & mask();
      while (slots_[slot] != profile::kNone) slot = (slot + 1) & mask();
      slots_[slot] = i;
    }
  }

  std::vector<Stack> stacks_;
  std::vector<std::uint32_t> slots_;
};

}  // namespace windlass::exporter
