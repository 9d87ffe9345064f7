#include "lookup/table/builder.h"
#include "lookup/table/rule_set.h"

#include <gtest/gtest.h>

#include <random>
#include <utility>
#include <vector>

#include "support/table_reference.h"

namespace windlass::table {
namespace {

TraceRule rsp(std::int32_t offset) {
  TraceRule rule{};
  rule.cfa_kind = WL_CFA_REG;
  rule.cfa_reg = 7;
  rule.cfa_offset = offset;
  rule.ra_kind = WL_REG_CFA;
  rule.ra_offset = -8;
  return rule;
}

void expect_same(const UnwindTable& table, const ReferenceTable& reference, std::uint64_t address) {
  const TraceRule want = reference.find(address), got = table.find(address);
  ASSERT_TRUE(same(want, got)) << std::hex << address << std::dec << " want " << want.cfa_offset << " got "
                               << got.cfa_offset;
}

TEST(Layout, Sizes) {
  EXPECT_EQ(sizeof(wl_rule), 16u);
  EXPECT_EQ(sizeof(wl_page_head), 512u);
  EXPECT_EQ(sizeof(wl_escape), 8u);
  EXPECT_LE(WL_MAX_PAGES * sizeof(std::uint32_t), WL_CHUNK_SIZE - 8);
  // The largest page, every row an escape, still fits a chunk.
  EXPECT_LE(sizeof(wl_page_head) + 65536 * 2 + 8 + 65536 * sizeof(wl_escape), WL_CHUNK_SIZE);
}

// Many share a slot.
TEST(RuleSet, RulesThatDifferInOneHalfAreDifferent) {
  RuleSet rules;
  for (int round = 0; round < 2; ++round)
    for (std::uint32_t i = 1; i <= 20'000; ++i) {
      ASSERT_EQ(rules.intern(1, i), 2 * i - 1);
      ASSERT_EQ(rules.intern(i + 1, 0), 2 * i);
    }
  EXPECT_EQ(rules.rules().size(), 40'001U);
  EXPECT_EQ(rules.intern(PackedRule{}), kNoneRule);
}

TEST(Builder, Empty) {
  TableBuilder builder;
  const auto table = builder.finish();
  ASSERT_TRUE(table);
  EXPECT_TRUE(table->empty());
  EXPECT_EQ(table->find(0x1000).cfa_kind, WL_CFA_NONE);
  EXPECT_EQ(table->find(~0ull).cfa_kind, WL_CFA_NONE);
}

TEST(Builder, OneFunction) {
  TableBuilder builder;
  builder.begin_function(0x401000, 0x401040);
  builder.row(0x401000, rsp(8));
  builder.row(0x401001, rsp(16));
  builder.row(0x401030, rsp(8));
  builder.end_function();
  const auto table = builder.finish();
  ASSERT_TRUE(table);
  EXPECT_EQ(table->find(0x400fff).cfa_kind, WL_CFA_NONE);
  EXPECT_EQ(table->find(0x401000).cfa_offset, 8);
  EXPECT_EQ(table->find(0x401001).cfa_offset, 16);
  EXPECT_EQ(table->find(0x40102f).cfa_offset, 16);
  EXPECT_EQ(table->find(0x401030).cfa_offset, 8);
  EXPECT_EQ(table->find(0x40103f).cfa_offset, 8);
  EXPECT_EQ(table->find(0x401040).cfa_kind, WL_CFA_NONE);
  EXPECT_EQ(table->find(0x501040).cfa_kind, WL_CFA_NONE);
}

TEST(Builder, MergesEqualNeighboursAndPadding) {
  TableBuilder builder;
  for (std::uint64_t at : {0x1000, 0x1020, 0x1060}) {  // 0x1010-0x1020: 16 bytes; 0x1051-0x1060: 15
    builder.begin_function(at, at == 0x1020 ? 0x1051 : at + 16);
    builder.row(at, rsp(8));
    builder.row(at + 4, rsp(8));
    builder.end_function();
  }
  const auto table = builder.finish();
  ASSERT_TRUE(table);
  EXPECT_EQ(table->find(0x1010).cfa_kind, WL_CFA_NONE);
  EXPECT_EQ(table->find(0x101f).cfa_kind, WL_CFA_NONE);
  EXPECT_EQ(table->find(0x1051).cfa_offset, 8);
  EXPECT_EQ(table->find(0x105f).cfa_offset, 8);
  // none at the page's begin, 0x1000, none at 0x1010, 0x1020, none at 0x1070
  EXPECT_EQ(table->stats().rows, 5u);
  EXPECT_EQ(table->stats().raw_rows, 6u);
}

TEST(Builder, SecondRowAtAnAddressCounts) {
  TableBuilder builder;
  builder.begin_function(0x1000, 0x1010);
  builder.row(0x1000, rsp(8));
  builder.row(0x1000, rsp(16));
  builder.row(0x1004, rsp(24));
  builder.row(0x1004, rsp(16));  // merges away
  builder.row(0x1004, rsp(32));
  builder.row(0x1008, rsp(32));  // merges away
  builder.row(0x1006, rsp(99));  // goes back: dropped
  builder.row(0x1010, rsp(99));  // outside: dropped
  builder.row(0xfff, rsp(99));
  builder.end_function();
  const auto table = builder.finish();
  ASSERT_TRUE(table);
  EXPECT_EQ(table->find(0x1000).cfa_offset, 16);
  EXPECT_EQ(table->find(0x1003).cfa_offset, 16);
  EXPECT_EQ(table->find(0x1004).cfa_offset, 32);
  EXPECT_EQ(table->find(0x100f).cfa_offset, 32);
  EXPECT_EQ(table->stats().dropped_rows, 3u);
}

TEST(Builder, OverlapsUnsorted) {
  ReferenceTable reference;
  reference.functions = {
      {0x3000, 0x3100, {{0x3000, rsp(1)}, {0x3080, rsp(2)}}},
      {0x1000, 0x9000, {{0x1000, rsp(3)}, {0x3050, rsp(4)}, {0x5000, rsp(5)}}},  // around the others
      {0x3000, 0x3200, {{0x3000, rsp(6)}, {0x3180, rsp(7)}}},                    // same begin, longer
      {0x3090, 0x3300, {{0x3090, rsp(8)}}},                                      // crosses an end
      {0x8000, 0x7000, {{0x8000, rsp(9)}}},                                      // inverted
  };
  const auto table = reference.build();
  ASSERT_TRUE(table);
  for (std::uint64_t at = 0xf00; at < 0x9100; ++at) expect_same(*table, reference, at);
  EXPECT_EQ(table->stats().overlaps, 3u);
  EXPECT_EQ(table->stats().dropped_functions, 1u);
}

TEST(Builder, ClipsToExecutableRanges) {
  ReferenceTable reference;
  reference.executable = {{0x5000, 0x6000}, {0x1000, 0x2000}, {0x9000, 0x9000}, {0x6000, 0x6100}};
  reference.functions = {
      {0x0800, 0x1800, {{0x0800, rsp(1)}, {0x1100, rsp(2)}}},                    // hangs out below
      {0x1900, 0x5100, {{0x1900, rsp(3)}, {0x3000, rsp(4)}, {0x5080, rsp(5)}}},  // over the hole
      {0x3000, 0x4000, {{0x3000, rsp(6)}}},                                      // in the hole
      {0x6000, 0x1000000000, {{0x6000, rsp(7)}}},                                // hangs out above
      {0, 0x10, {{0, rsp(8)}}},                                                  // discarded by the linker
  };
  const auto table = reference.build();
  ASSERT_TRUE(table);
  for (std::uint64_t at = 0; at < 0x7000; ++at) expect_same(*table, reference, at);
  EXPECT_EQ(table->stats().dropped_functions, 2u);
  EXPECT_EQ(table->stats().clipped_functions, 3u);
}

TEST(Builder, TooFarApart) {
  TableBuilder builder;
  for (std::uint64_t at : {std::uint64_t{0x1000}, std::uint64_t{WL_MAX_PAGES} << WL_PAGE_SHIFT}) {
    builder.begin_function(at, at + 16);
    builder.row(at, rsp(8));
    builder.end_function();
  }
  const auto table = builder.finish();
  ASSERT_FALSE(table);
  EXPECT_EQ(table.error().code, ErrorCode::kLimit);
}

TEST(Builder, FunctionOfSixteenGigabytes) {
  constexpr std::uint64_t kEnd = std::uint64_t{WL_MAX_PAGES} << WL_PAGE_SHIFT;
  ReferenceTable reference;
  reference.functions = {{0, kEnd, {{0, rsp(1)}, {0x1'0000'0000, rsp(2)}, {0x2'8000'0004, rsp(3)}}}};
  const auto table = reference.build();
  ASSERT_TRUE(table);
  for (std::uint64_t edge : {std::uint64_t{0}, std::uint64_t{0x1'0000'0000}, std::uint64_t{0x2'8000'0004}, kEnd})
    for (std::uint64_t at = edge - 3; at != edge + 3; ++at) expect_same(*table, reference, at);
  EXPECT_EQ(table->stats().functions, 1u);
  EXPECT_LT(table->pages().size_bytes(), 4096u);  // pages one rule covers are shared
}

// Between 0x1004 and 0x1011, and between 0x1020 and 0x1023: in both alignment explains less. Functions in any order.
TEST(Builder, RulesOfSmallGaps) {
  for (const bool in_order : {true, false}) {
    SCOPED_TRACE(in_order);
    TableBuilder builder;
    const auto add = [&](std::uint64_t begin, std::uint64_t end, std::int32_t offset) {
      builder.begin_function(begin, end);
      builder.row(begin, rsp(offset));
      builder.end_function();
    };
    if (!in_order) add(0x1023, 0x1030, 3);
    add(0x1000, 0x1004, 1);
    add(0x1011, 0x1020, 2);
    if (in_order) add(0x1023, 0x1030, 3);
    std::vector<std::uint64_t> seen;
    builder.add_small_gaps([&](TableBuilder::SmallGap& gap) {
      seen.insert(seen.end(), {gap.begin, gap.end, static_cast<std::uint64_t>(gap.rule.cfa_offset)});
      if (gap.begin == 0x1004) gap.rule = rsp(7);
    });
    EXPECT_EQ(seen, (std::vector<std::uint64_t>{0x1004, 0x1011, 1, 0x1020, 0x1023, 2}));
    const auto table = builder.finish();
    ASSERT_TRUE(table);
    const std::pair<std::uint64_t, int> expected[] = {{0x1003, 1}, {0x1004, 7}, {0x1010, 7}, {0x1011, 2},
                                                      {0x1022, 2}, {0x1023, 3}, {0x102f, 3}};
    for (const auto& [at, offset] : expected) EXPECT_EQ(table->find(at).cfa_offset, offset) << std::hex << at;
  }
}

TEST(Builder, MoreRulesThanThePalette) {
  for (const int rules : {254, 255, 256, 300, 70000}) {
    TableBuilder builder;
    builder.begin_function(0x10000, 0x10000 + static_cast<std::uint64_t>(rules) * 3);
    for (int i = 0; i < rules; ++i) builder.row(0x10000 + static_cast<std::uint64_t>(i) * 3, rsp(i));
    builder.end_function();
    const auto table = builder.finish();
    ASSERT_TRUE(table);
    ASSERT_EQ(table->rules().size(), static_cast<std::size_t>(rules) + 1);
    EXPECT_GE(table->stats().escapes, static_cast<std::uint64_t>(rules > 254 ? rules - 254 : 0));
    for (int i = 0; i < rules * 3; ++i)
      ASSERT_EQ(table->find(0x10000 + static_cast<std::uint64_t>(i)).cfa_offset, i / 3);
  }
}

// The palette has the rules that are used most.
TEST(Builder, WhatIsUsedMostIsInThePalette) {
  constexpr int kRules = 300, kRows = 2000;
  TableBuilder builder;
  builder.begin_function(0x10000, 0x10000 + kRows);
  for (int i = 0; i < kRows; ++i)
    builder.row(0x10000 + static_cast<std::uint64_t>(i), rsp(8 * (i % 2 == 0 ? kRules : i / 2 % kRules)));
  builder.end_function();
  const auto table = builder.finish();
  ASSERT_TRUE(table);
  EXPECT_GT(table->stats().escapes, 0u);
  EXPECT_LT(table->stats().escapes, 300u) << "half of the rows have one rule";
}

TEST(Builder, PageWithARowOnEveryByte) {
  TableBuilder builder;
  builder.begin_function(0x20000, 0x30000);
  for (std::uint64_t at = 0x20000; at < 0x30000; ++at) builder.row(at, rsp(static_cast<std::int32_t>(at % 7)));
  builder.end_function();
  const auto table = builder.finish();
  ASSERT_TRUE(table);
  EXPECT_EQ(table->stats().rows, 65536u);
  for (std::uint64_t at = 0x20000; at < 0x30000; ++at)
    ASSERT_EQ(table->find(at).cfa_offset, static_cast<std::int32_t>(at % 7));
}

TEST(Builder, TenMillionRows) {
  constexpr std::uint64_t kRows = 10'000'000, kPerFunction = 10;
  TableBuilder builder;
  const auto rule_at = [](std::uint64_t n) { return rsp(static_cast<std::int32_t>(n * 2654435761u % 200 * 8)); };
  for (std::uint64_t n = 0; n < kRows; n += kPerFunction) {
    builder.begin_function(0x1000 + n * 6, 0x1000 + (n + kPerFunction) * 6);
    for (std::uint64_t i = n; i < n + kPerFunction; ++i) builder.row(0x1000 + i * 6, rule_at(i));
    builder.end_function();
  }
  const auto table = builder.finish();
  ASSERT_TRUE(table);
  EXPECT_EQ(table->stats().raw_rows, kRows);
  EXPECT_LT(static_cast<double>(table->bytes()) / kRows, 3.0);
  for (std::uint64_t n = 0; n < kRows; n += 997) {
    ASSERT_TRUE(same(table->find(0x1000 + n * 6), rule_at(n)));
    ASSERT_TRUE(same(table->find(0x1000 + n * 6 + 5), rule_at(n)));
  }
}

TEST(Builder, RandomAgainstReference) {
  std::mt19937_64 random(20);
  for (int round = 0; round < 300; ++round) {
    ReferenceTable reference;
    const std::uint64_t base = random() % 0x40000;
    const auto pick = [&](std::uint64_t n) { return random() % n; };
    const int rules = round % 3 == 0 ? 600 : 5;
    if (round % 4 == 0)
      for (int i = 0; i < 3; ++i) {
        const std::uint64_t begin = base + pick(0x1000);
        reference.executable.push_back({begin, begin + pick(0x800)});
      }
    for (int i = 0; i < 30; ++i) {
      ReferenceTable::Function function{base + pick(0x1000), 0, {}, round % 5 == 0 && pick(2) == 0};
      function.end = function.begin + pick(round % 2 ? 0x40 : 0x400);
      for (std::uint64_t at = function.begin; at < function.end; at += 1 + pick(24))
        function.rows[at] = rsp(static_cast<std::int32_t>(pick(static_cast<std::uint64_t>(rules))));
      reference.functions.push_back(function);
    }
    const auto table = reference.build();
    ASSERT_TRUE(table);
    for (std::uint64_t at = base - std::min<std::uint64_t>(base, 16); at < base + 0x1420; ++at)
      ASSERT_NO_FATAL_FAILURE(expect_same(*table, reference, at)) << "round " << round;
  }
}

}  // namespace
}  // namespace windlass::table
