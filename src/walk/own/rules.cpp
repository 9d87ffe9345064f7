#include "walk/own/rules.h"

#include <bit>

namespace windlass::walk {
namespace {

constexpr std::size_t kPaletteSize = 512;

struct PaletteEntry {
  enum State : std::uint32_t { kEmpty, kBusy, kReady };
  std::atomic<std::uint32_t> state;
  table::PackedRule rule;
};
PaletteEntry rules[kPaletteSize];

constexpr std::uint64_t kSp = kOwnArchitecture == Architecture::kX86_64 ? 7 : 31;
constexpr std::uint64_t kFp = kOwnArchitecture == Architecture::kX86_64 ? 6 : 29;

// -offset / 8 if that is whole and fits `bits`.
bool words_below(std::int64_t offset, unsigned bits, std::uint64_t& words) {
  if (offset >= 0 || offset % 8 != 0) return false;
  words = static_cast<std::uint64_t>(-offset / 8);
  return words < std::uint64_t{1} << bits;
}

}  // namespace

alignas(4096) RuleCache::Set RuleCache::sets_[kSets];
std::atomic<std::size_t> RuleCache::mask_ = kFirstSets - 1;
std::atomic<std::size_t> RuleCache::remaining_ = kFirstSets;

bool PackedStep::pack(const table::TraceRule& rule, std::uint16_t tag, PackedStep& step) {
  if (rule.cfa_kind != WL_CFA_REG || (rule.cfa_reg != kSp && rule.cfa_reg != kFp)) return false;
  if ((rule.flags & WL_RULE_SIGNAL) != 0 || rule.ra_kind != WL_REG_CFA) return false;
  if (rule.cfa_offset < 0 || rule.cfa_offset % 8 != 0 || rule.cfa_offset >= 1 << 23) return false;
  std::uint64_t ra = 0;
  std::uint64_t fp = 0;
  if (!words_below(rule.ra_offset, 12, ra)) return false;
  const bool from_sp = rule.cfa_reg == kSp;
  if (from_sp && static_cast<std::int64_t>(ra) * 8 > rule.cfa_offset) return false;  // a slot that has been popped
  if (rule.fp_kind != WL_REG_SAME && (rule.fp_kind != WL_REG_CFA || !words_below(rule.fp_offset, 13, fp))) return false;
  step = PackedStep((rule.cfa_reg == kFp ? kFromFp : kFromSp) | std::uint64_t{tag} << 2 |
                    std::uint64_t{rule.fp_kind == WL_REG_CFA} << 18 | ra << 19 | fp << 31 |
                    static_cast<std::uint64_t>(rule.cfa_offset / 8) << 44);
  return true;
}

void RuleCache::insert(std::uint64_t key, PackedStep step) {
  const std::size_t mask = mask_.load(std::memory_order_relaxed);
  place(key, step, mask);
  if (mask + 1 < kSets && remaining_.fetch_sub(1, std::memory_order_relaxed) == 1) grow(mask);
}

// Four times the sets. What was in use finds its new place; what other threads insert meanwhile may be lost to misses.
void RuleCache::grow(std::size_t mask) {
  const std::size_t larger = mask * 4 + 3;
  if (!mask_.compare_exchange_strong(mask, larger, std::memory_order_relaxed)) return;
  remaining_.store(larger + 1, std::memory_order_relaxed);
  for (std::size_t i = 0; i <= mask; ++i) {
    for (const Way& way : sets_[i].way) {
      const std::uint64_t word = way.rule.load(std::memory_order_relaxed);
      const std::uint64_t key = way.check.load(std::memory_order_relaxed) ^ mix(word);
      if (key != 0 && (hash(key) & larger) != i) place(key, PackedStep(word), larger);
    }
  }
}

// The newest is found first; the older of a full set goes.
void RuleCache::place(std::uint64_t key, PackedStep step, std::size_t mask) {
  Set& set = sets_[hash(key) & mask];
  const std::uint64_t check = set.way[0].check.load(std::memory_order_relaxed);
  const std::uint64_t word = set.way[0].rule.load(std::memory_order_relaxed);
  if ((check ^ mix(word)) != key && check != 0) {
    set.way[1].rule.store(word, std::memory_order_relaxed);
    set.way[1].check.store(check, std::memory_order_relaxed);
  }
  set.way[0].rule.store(step.word(), std::memory_order_relaxed);
  set.way[0].check.store(key ^ mix(step.word()), std::memory_order_relaxed);
}

bool RuleCache::intern(const table::TraceRule& rule, std::uint64_t& index) {
  const table::PackedRule packed = table::PackedRule::of(rule);
  for (std::size_t i = 0; i < kPaletteSize; ++i) {
    PaletteEntry& entry = rules[i];
    std::uint32_t state = PaletteEntry::kEmpty;
    if (entry.state.compare_exchange_strong(state, PaletteEntry::kBusy)) {
      entry.rule = packed;
      entry.state.store(PaletteEntry::kReady, std::memory_order_release);
    } else if (state != PaletteEntry::kReady || entry.rule.low != packed.low || entry.rule.high != packed.high) {
      continue;
    }
    index = i;
    return true;
  }
  return false;
}

bool RuleCache::palette(std::uint64_t index, table::TraceRule& rule) {
  if (index >= kPaletteSize || rules[index].state.load(std::memory_order_acquire) != PaletteEntry::kReady) return false;
  rule = rules[index].rule.rule();
  return true;
}

}  // namespace windlass::walk
