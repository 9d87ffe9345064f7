// Samples merged by stack.
#pragma once

#include <cstdint>
#include <vector>

#include "profiler/profile/profile.h"

namespace windlass::exporter {

inline std::uint64_t mix_hash(std::uint64_t hash, std::uint64_t value) {
  hash = (hash ^ value) * 0x9e3779b97f4a7c15ull;
  return hash ^ (hash >> 29);
}

// The samples of a large profile are scattered over memory. For a loop that is at `at`: has the ones to come fetched.
inline void prefetch_stack(const std::vector<profile::Sample>& samples, std::size_t at) {
  constexpr std::size_t kAhead = 8;
  if (samples.size() - at <= kAhead) return;
  const auto& coming = samples[at + kAhead].locations;
  for (std::size_t n = 0; n < coming.size() && n < 64; n += 16) __builtin_prefetch(coming.data() + n);
}

// Adds up the weights of the samples with the same root, comm, end and locations; leaves out those without weight. Open
// addressing over stack indexes. 128 bits of hash stand for a stack, because comparing the locations themselves costs a
// third of the total time, all of it cache misses. The chance of a collision among a million stacks is 10^-27.
class DistinctStacks {
 public:
  struct Hash {
    std::uint64_t low, high;
    bool operator==(const Hash&) const = default;
  };
  struct Stack {
    const profile::Sample* sample;
    std::uint64_t weight;
    Hash hash;
  };

  DistinctStacks(const profile::Profile& profile, profile::ValueType type) : profile_(&profile), type_(type) {}

  void add(const profile::Sample& sample) {
    if (const std::uint64_t weight = weight_of(*profile_, sample, type_)) add(sample, weight);
  }
  // Returns the place in stacks().
  std::uint32_t add(const profile::Sample& sample, std::uint64_t weight) {
    if (stacks_.size() * 2 >= slots_.size()) grow();
    const Hash hash = hash_of(sample, root_of(*profile_, sample));
    std::size_t at = hash.low & mask();
    for (; slots_[at].stack != profile::kNone; at = (at + 1) & mask()) {
      if (slots_[at].tag != tag_of(hash)) continue;
      auto& known = stacks_[slots_[at].stack];
      if (known.hash == hash) {
        known.weight += weight;
        return slots_[at].stack;
      }
    }
    slots_[at] = {tag_of(hash), static_cast<std::uint32_t>(stacks_.size())};
    stacks_.push_back({&sample, weight, hash});
    return slots_[at].stack;
  }
  void add_all(const std::vector<profile::Sample>& samples) {
    for (std::size_t i = 0; i < samples.size(); ++i) {
      prefetch_stack(samples, i);
      add(samples[i]);
    }
  }
  [[nodiscard]] const std::vector<Stack>& stacks() const { return stacks_; }

 private:
  struct Slot {
    std::uint32_t tag = 0;
    std::uint32_t stack = profile::kNone;
  };
  static std::uint32_t tag_of(const Hash& hash) { return static_cast<std::uint32_t>(hash.low >> 32); }
  static Hash hash_of(const profile::Sample& sample, std::uint32_t root) {
    const auto& ids = sample.locations;
    Hash hash{std::uint64_t{sample.comm} << 8 | sample.end, ids.size()};
    const auto add = [&](std::uint64_t value) {
      hash.low = mix_hash(hash.low, value);
      hash.high = (hash.high ^ value) * 0xc2b2ae3d27d4eb4full + (hash.high >> 31);
    };
    if (root != profile::kNone) add(root);
    std::size_t i = 0;
    for (; i + 1 < ids.size(); i += 2) add(std::uint64_t{ids[i]} << 32 | ids[i + 1]);
    if (i < ids.size()) add(ids[i]);
    hash.low = mix_hash(hash.low, hash.high);
    return hash;
  }
  [[nodiscard]] std::size_t mask() const { return slots_.size() - 1; }
  void grow() {
    slots_.assign(slots_.empty() ? 16 : slots_.size() * 2, {});
    for (std::uint32_t i = 0; i < stacks_.size(); ++i) {
      std::size_t at = stacks_[i].hash.low & mask();
      while (slots_[at].stack != profile::kNone) at = (at + 1) & mask();
      slots_[at] = {tag_of(stacks_[i].hash), i};
    }
  }

  const profile::Profile* profile_;
  profile::ValueType type_;
  std::vector<Stack> stacks_;
  std::vector<Slot> slots_;
};

}  // namespace windlass::exporter
