// Distinct rules, numbered in the order they were first seen. Evaluating a module asks for a number once per row, so
// the common answer is one hash and one 16-byte comparison.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "lookup/table/trace_row.h"

namespace windlass::table {

inline constexpr std::uint32_t kNoneRule = 0;  // the all-zero rule: no row covers the address

class RuleSet {
 public:
  RuleSet();

  // The number of `rule`, added if it is new. Expected O(1); the hash is keyed per process, so that no file can be made
  // to collide.
  [[nodiscard]] std::uint32_t intern(const PackedRule& rule) { return intern(rule.low, rule.high); }
  [[nodiscard]] std::uint32_t intern(std::uint64_t low, std::uint64_t high) {
    const std::uint64_t slot = hash(low, high) >> shift_;
    const Slot& probe = slots_[slot];
    if (probe.low == low && probe.high == high) [[likely]]
      return probe.number;
    return probe_on({low, high}, slot);
  }

  [[nodiscard]] const std::vector<TraceRule>& rules() const { return rules_; }

 private:
  static constexpr std::uint32_t kEmpty = 0xffffffff;
  struct Slot {
    std::uint64_t low = ~0ull, high = ~0ull;  // no rule: none has such a proof
    std::uint32_t number = kEmpty;
  };

  [[nodiscard]] std::uint64_t hash(std::uint64_t low, std::uint64_t high) const {
    // Folded multiplication, as in wyhash: both halves of the product depend on every input bit.
    __extension__ using Wide = unsigned __int128;
    const Wide product = static_cast<Wide>(low ^ key_[0]) * (high ^ key_[1]);
    return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
  }
  [[nodiscard]] std::uint32_t probe_on(PackedRule rule, std::uint64_t slot);
  std::uint32_t add(PackedRule rule, std::uint64_t slot);
  void grow();

  std::vector<TraceRule> rules_;
  std::vector<Slot> slots_;
  std::uint64_t mask_ = 0;
  int shift_ = 0;
  std::uint64_t key_[2];
};

}  // namespace windlass::table
