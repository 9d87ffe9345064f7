// Rules kept for own walks: those that fit a word, the palette of the others, and the cache.
#include <gtest/gtest.h>
#include <sys/auxv.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "walk/own/rules.h"

namespace windlass::walk {
namespace {

constexpr std::uint8_t kSp = kOwnArchitecture == Architecture::kX86_64 ? 7 : 31;
constexpr std::uint8_t kFp = kOwnArchitecture == Architecture::kX86_64 ? 6 : 29;

table::TraceRule rule_of(std::int32_t cfa_offset, std::int16_t ra_offset = -8) {
  table::TraceRule rule{};
  rule.cfa_kind = WL_CFA_REG;
  rule.cfa_reg = kSp;
  rule.cfa_offset = cfa_offset;
  rule.ra_kind = WL_REG_CFA;
  rule.ra_offset = ra_offset;
  rule.fp_kind = WL_REG_SAME;
  return rule;
}

constexpr std::uint64_t key(std::uint64_t i) { return 0x5000'0000 + i * 48; }
void insert(std::uint64_t i) { RuleCache::insert(key(i), PackedStep::other(PackedStep::kPalette, 0, i)); }

// Page faults of rules put in right after prepare(), all over its 64 KiB.
long faults_of_first_rules() {
  const auto faults = [] {
    rusage usage{};
    getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_minflt;
  };
  RuleCache::prepare();
  (void)faults();
  insert(500);  // what the code itself needs, and a page in the middle
  const long before = faults();
  for (std::uint64_t i = 0; i < RuleCache::kPreparedSets / 2; ++i) insert(i);
  return faults() - before;
}

// The first test: in this process the cache has not been used, and each child has a new one.
TEST(OwnRules, APreparedCacheTakesRulesWithoutPageFaults) {
  if (::getauxval(AT_SYSINFO_EHDR) == 0) GTEST_SKIP() << "no page faults of the program's own (qemu-user)";
  int status = -1;
  for (int attempt = 0; attempt < 3 && status != 0; ++attempt) {  // the system may take a page away meanwhile
    const pid_t child = fork();
    ASSERT_NE(child, -1);
    if (child == 0) _exit(static_cast<int>(std::min(faults_of_first_rules(), 100L)));
    ASSERT_EQ(waitpid(child, &status, 0), child);
  }
  EXPECT_EQ(status, 0) << "page faults: " << WEXITSTATUS(status);
}

TEST(OwnRules, APreparedCacheHasWhatWasInIt) {
  insert(1);
  RuleCache::prepare();
  PackedStep it;
  ASSERT_TRUE(RuleCache::View().find(key(1), it));
  EXPECT_EQ(it.index(), 1u);
}

// What lies behind the cache is others' memory: a rule that is put there breaks, say, the record of a thread's last
// walk.
TEST(OwnRules, AFullCacheStaysAsLargeAsItIs) {
  for (std::uint64_t i = 0; i < 8 * RuleCache::kSets; ++i) {
    insert(i);
    ASSERT_LE(RuleCache::sets_in_use(), RuleCache::kSets) << "after " << i << " rules";
    PackedStep it;
    ASSERT_TRUE(RuleCache::View().find(key(i), it)) << i;
    ASSERT_EQ(it.index(), i);
  }
  EXPECT_EQ(RuleCache::sets_in_use(), RuleCache::kSets);
}

TEST(OwnRules, AWordHasWhatItWasPackedFrom) {
  for (const std::int32_t offset : {16, 4096, 1 << 21}) {
    table::TraceRule rule = rule_of(offset);
    rule.fp_kind = WL_REG_CFA;
    rule.fp_offset = -16;
    PackedStep step;
    ASSERT_TRUE(PackedStep::pack(rule, false, 0x1234, step)) << offset;
    EXPECT_EQ(step.return_offset(), static_cast<std::uint64_t>(offset - 8));
    EXPECT_EQ(step.return_below_cfa(), 8u);
    EXPECT_EQ(step.fp_below_return(), 8u);
    EXPECT_EQ(step.tag(), 0x1234u);
    EXPECT_TRUE(step.is(PackedStep::kFromSp, 0x1234));
    EXPECT_FALSE(step.is(PackedStep::kFromSp, 0));
    EXPECT_TRUE(step.simple() && step.fp_saved() && !step.from_fp());
  }
}

TEST(OwnRules, WhatDoesNotFitIsNotPacked) {
  PackedStep step;
  EXPECT_FALSE(PackedStep::pack(rule_of((1 << 21) + 8), false, 0, step));
  EXPECT_FALSE(PackedStep::pack(rule_of(12), false, 0, step));
  EXPECT_FALSE(PackedStep::pack(rule_of(-8), false, 0, step));
  EXPECT_FALSE(PackedStep::pack(rule_of(16, -24), false, 0, step)) << "a slot that has been popped";
  EXPECT_FALSE(PackedStep::pack(rule_of(16, 8), false, 0, step));
  EXPECT_EQ(PackedStep::pack(rule_of(32, -16), false, 0, step), kOwnArchitecture != Architecture::kX86_64);
  table::TraceRule other = rule_of(16);
  other.cfa_reg = 3;
  EXPECT_FALSE(PackedStep::pack(other, false, 0, step));
  other = rule_of(16);
  other.flags = WL_RULE_SIGNAL;
  EXPECT_FALSE(PackedStep::pack(other, false, 0, step));
  other = rule_of(16);
  other.fp_kind = WL_REG_CFA;
  other.fp_offset = -8;
  EXPECT_FALSE(PackedStep::pack(other, false, 0, step)) << "where the return address is";
  other = rule_of(16);
  other.cfa_reg = kFp;
  EXPECT_TRUE(PackedStep::pack(other, false, 0, step));
  EXPECT_TRUE(step.from_fp());
}

// At a ret, what the function saved has been popped, and is where it belongs.
TEST(OwnRules, AFramePointerBelowSpIsOneOfAnInstruction) {
  table::TraceRule rule = rule_of(8);
  rule.fp_kind = WL_REG_CFA;
  rule.fp_offset = -16;
  PackedStep step;
  EXPECT_FALSE(PackedStep::pack(rule, false, 0, step));
  ASSERT_TRUE(PackedStep::pack(rule, true, 0, step));
  EXPECT_FALSE(step.fp_saved());
  rule.cfa_offset = 16;
  ASSERT_TRUE(PackedStep::pack(rule, true, 0, step));
  EXPECT_TRUE(step.fp_saved());
}

TEST(OwnRules, ThePaletteIsUsedToItsLastPlace) {
  std::vector<std::uint64_t> places;
  std::uint64_t index = 0;
  for (std::int32_t i = 0; RuleCache::intern(rule_of(1 << 24 | i), index); ++i) {
    places.push_back(index);
    ASSERT_LT(i, 100000);
  }
  EXPECT_EQ(places.size(), 512u);
  for (std::size_t i = 0; i < places.size(); ++i) {
    table::TraceRule rule{};
    ASSERT_TRUE(RuleCache::palette(places[i], rule));
    EXPECT_EQ(rule.cfa_offset, 1 << 24 | static_cast<std::int32_t>(i));
    ASSERT_TRUE(RuleCache::intern(rule, index)) << "one that is there already";
    EXPECT_EQ(index, places[i]);
  }
  table::TraceRule rule{};
  EXPECT_FALSE(RuleCache::palette(512, rule));
}

// What is found in a set's second way again and again gets a set of its own before a walk.
TEST(OwnRules, ACacheWhoseSecondWaysAreInUseGrowsBeforeAWalk) {
  const auto step = [](std::uint64_t i) { return PackedStep::other(PackedStep::kPalette, 0, i); };
  constexpr std::uint64_t kKey = 0x7000'0000;
  constexpr std::uint64_t kOther = kKey ^ std::uint64_t{1} << 17;  // of the same set at first
  RuleCache::insert(kKey, step(1));
  RuleCache::insert(kOther, step(2));
  PackedStep it;
  for (std::size_t i = 0; i <= RuleCache::kFirstSets * 32; ++i) ASSERT_TRUE(RuleCache::View().find(kKey, it));
  RuleCache::before_walk();
  RuleCache::insert(kOther ^ std::uint64_t{1} << 40, step(3));
  RuleCache::insert(kOther ^ std::uint64_t{1} << 41, step(4));
  ASSERT_TRUE(RuleCache::View().find(kKey, it)) << "the others are in another set by now";
  EXPECT_EQ(it.index(), 1u);
  EXPECT_FALSE(RuleCache::View().find(kOther, it));
}

// A profiler's signal comes at any instruction, and the walk of each is dear if its rule is lost.
TEST(OwnRules, NeighbouringInstructionsDoNotReplaceEachOther) {
  constexpr std::uint64_t kCode = kInstructionBit | 0x7100'0000;
  for (std::uint64_t i = 0; i < 64; ++i)
    RuleCache::insert(kCode + i, PackedStep::other(PackedStep::kPalette, 0, i + 1));
  PackedStep it;
  for (std::uint64_t i = 0; i < 64; ++i) {
    ASSERT_TRUE(RuleCache::View().find(kCode + i, it)) << i;
    EXPECT_EQ(it.index(), i + 1);
  }
}

TEST(OwnRules, AReturnAddressIsFoundByBothLookUps) {
  PackedStep by_any, by_return;
  for (std::uint64_t i = 0; i < 8; ++i) {
    insert(900 + i);
    ASSERT_TRUE(RuleCache::View().find(key(900 + i), by_any));
    ASSERT_TRUE(RuleCache::View().find_return(key(900 + i), by_return));
    EXPECT_EQ(by_any.word(), by_return.word());
  }
}

// Two rules of a set are both found. The third replaces the older one. The cache grows with its contents.
TEST(OwnRules, TheCacheKeepsTheNewerOfEachSetAndGrows) {
  const auto step = [](std::uint64_t i) { return PackedStep::other(PackedStep::kPalette, 0, i); };
  const auto found = [](std::uint64_t key) {
    PackedStep it;
    return RuleCache::View().find(key, it) ? it.index() : 0;
  };
  constexpr std::uint64_t kFirst = 0x10'0000;
  // Keys of one set, however large the cache is: those that differ in none of the bits that choose it.
  const std::uint64_t second = kFirst ^ (std::uint64_t{1} << 40), third = kFirst ^ (std::uint64_t{1} << 41);
  RuleCache::insert(kFirst, step(1));
  RuleCache::insert(second, step(2));
  EXPECT_EQ(found(kFirst), 1u);
  EXPECT_EQ(found(second), 2u);
  RuleCache::insert(third, step(3));
  EXPECT_EQ(found(third), 3u);
  EXPECT_EQ(found(second), 2u);
  EXPECT_EQ(found(kFirst), 0u);
  constexpr std::uint64_t kMany = 8000;
  for (std::uint64_t i = 0; i < kMany; ++i) RuleCache::insert(0x4000'0000 + i * 8, step(i + 10));
  std::uint64_t there = 0;
  for (std::uint64_t i = 0; i < kMany; ++i) there += found(0x4000'0000 + i * 8) == i + 10 ? 1 : 0;
  EXPECT_GT(there, kMany * 9 / 10) << "of " << kMany << " in a cache of 16,384";
}

}  // namespace
}  // namespace windlass::walk
