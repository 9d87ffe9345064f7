#include "lookup/table/rule_set.h"

#include <sys/auxv.h>

#include <bit>

namespace windlass::table {

namespace {
constexpr std::uint64_t kFirstSlots = 4096;
}

RuleSet::RuleSet() : slots_(kFirstSlots), mask_(kFirstSlots - 1), shift_(64 - std::countr_zero(kFirstSlots)) {
  key_[0] = 0x9e3779b97f4a7c15;
  key_[1] = 0xbf58476d1ce4e5b9;
  // 16 random bytes the kernel gives every process (getauxval(3)).
  if (const auto* random = reinterpret_cast<const void*>(getauxval(AT_RANDOM))) std::memcpy(key_, random, sizeof key_);
  (void)intern(PackedRule{});
}

std::uint32_t RuleSet::probe_on(PackedRule rule, std::uint64_t slot) {
  for (;; slot = (slot + 1) & mask_) {
    const Slot& probe = slots_[slot];
    if (probe.number == kEmpty) return add(rule, slot);
    if (probe.low == rule.low && probe.high == rule.high) return probe.number;
  }
}

std::uint32_t RuleSet::add(PackedRule rule, std::uint64_t slot) {
  const auto number = static_cast<std::uint32_t>(rules_.size());
  rules_.push_back(rule.rule());
  Slot& place = slots_[slot];
  place.low = rule.low;
  place.high = rule.high;
  place.number = number;
  if (rules_.size() * 4 > slots_.size()) grow();
  return number;
}

void RuleSet::grow() {
  std::vector<Slot> old(slots_.size() * 4);
  old.swap(slots_);
  mask_ = slots_.size() - 1;
  shift_ = 64 - std::countr_zero(slots_.size());
  for (const Slot& entry : old) {
    if (entry.number == kEmpty) continue;
    std::uint64_t slot = hash(entry.low, entry.high) >> shift_;
    while (slots_[slot].number != kEmpty) slot = (slot + 1) & mask_;
    slots_[slot] = entry;
  }
}

}  // namespace windlass::table
