#include "walk/own/rules.h"

#include <algorithm>
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

// bytes / 8 if that is whole and fits `bits`.
bool words_of(std::int64_t bytes, unsigned bits, std::uint64_t& words) {
  if (bytes < 0 || bytes % 8 != 0) return false;
  words = static_cast<std::uint64_t>(bytes) / 8;
  return words < std::uint64_t{1} << bits;
}

}  // namespace

alignas(4096) constinit RuleCache::Table RuleCache::table_;
std::atomic<std::size_t> RuleCache::mask_ = mask_of(kFirstSets);

[[gnu::hot]] bool PackedStep::pack(const table::TraceRule& rule, bool exact, std::uint16_t tag, PackedStep& step) {
  if (rule.cfa_kind != WL_CFA_REG || (rule.cfa_reg != kSp && rule.cfa_reg != kFp)) return false;
  if ((rule.flags & WL_RULE_SIGNAL) != 0 || rule.ra_kind != WL_REG_CFA) return false;
  if (rule.fp_kind != WL_REG_SAME && rule.fp_kind != WL_REG_CFA) return false;
  const std::int64_t return_offset = std::int64_t{rule.cfa_offset} + rule.ra_offset;
  std::uint64_t from_base = 0;
  std::uint64_t below_cfa = 0;
  if (!words_of(return_offset, 18, from_base)) return false;  // negative: a slot that has been popped
  if (!words_of(-std::int64_t{rule.ra_offset}, 12, below_cfa) || below_cfa == 0) return false;
  if (kOwnArchitecture == Architecture::kX86_64 && below_cfa != 1) return false;
  bool fp_saved = rule.fp_kind == WL_REG_CFA;
  if (fp_saved && rule.cfa_reg == kSp && rule.cfa_offset + rule.fp_offset < 0) {
    if (!exact) return false;
    fp_saved = false;  // its slot is dead, it has been popped: see apply.h
  }
  std::uint64_t fp_below = 0;
  if (fp_saved && (!words_of(rule.ra_offset - rule.fp_offset, 12, fp_below) || fp_below == 0)) return false;
  step = PackedStep((rule.cfa_reg == kFp ? kFromFp : kFromSp) | std::uint64_t{tag} << 2 |
                    std::uint64_t{fp_saved} << 18 | below_cfa << 19 | fp_below << 31 | from_base << 46);
  return true;
}

[[gnu::hot]] void RuleCache::insert(std::uint64_t key, PackedStep step) {
  const std::size_t mask = mask_.load(std::memory_order_relaxed);
  place(key, step, mask);
  if (mask == mask_of(kSets)) return;
  // In two steps, as one that no other thread may come between takes as long as finding a rule: where counts are lost
  // it grows somewhat later, or earlier.
  const std::size_t inserted = table_.inserted.load(std::memory_order_relaxed) + 1;
  table_.inserted.store(inserted, std::memory_order_relaxed);
  if (inserted > mask / sizeof(Set)) grow(mask);
}

[[gnu::hot]] void RuleCache::spread() {
  const std::size_t mask = mask_.load(std::memory_order_relaxed);
  table_.second.store(0, std::memory_order_relaxed);
  if (mask != mask_of(kSets)) grow(mask);
}

void RuleCache::prepare() {
  before_walk();  // the first page: growing has only those behind it mapped
  for (std::size_t mask = mask_.load(std::memory_order_relaxed); mask < mask_of(kPreparedSets);
       mask = mask_.load(std::memory_order_relaxed))
    grow(mask, kPreparedSets);
}

// Makes the cache four times as large, or `most` sets. The new pages are written to at once: a read would map them only
// for the first write to map them again. Entries that are used move to their new places. Entries that other threads
// insert meanwhile may be missed, and are then made again.
[[gnu::hot]] void RuleCache::grow(std::size_t mask, std::size_t most) {
  const std::size_t sets = mask / sizeof(Set) + 1;
  const std::size_t more = std::min(sets * 4, most);
  const std::size_t larger = mask_of(more);
  constexpr std::size_t kSetsInPage = 4096 / sizeof(Set);
  const auto map = [](Set& set) { set.way[0].rule.fetch_add(0, std::memory_order_relaxed); };
  for (std::size_t i = std::max(sets, kSetsInPage); i < more; i += kSetsInPage) map(table_.sets[i]);
  map(table_.sets[more - 1]);  // the first set is not at the start of a page
  if (!mask_.compare_exchange_strong(mask, larger, std::memory_order_relaxed)) return;
  table_.inserted.store(0, std::memory_order_relaxed);
  for (std::size_t i = 0; i < sets; ++i) {
    for (const Way& way : table_.sets[i].way) {
      const std::uint64_t word = way.rule.load(std::memory_order_relaxed);
      const std::uint64_t key = way.check.load(std::memory_order_relaxed) ^ mix(word);
      if (key != 0 && &set_of(key, table_.sets, larger) != &table_.sets[i]) place(key, PackedStep(word), larger);
    }
  }
}

// The newest is found first; the older of a full set goes.
[[gnu::hot]] void RuleCache::place(std::uint64_t key, PackedStep step, std::size_t mask) {
  Set& set = set_of(key, table_.sets, mask);
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
