// A recording that goes on for months forgets what has been told: nothing is told twice, and bounds begin anew.
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "profiler/samples/aggregator.h"
#include "profiler/samples/code_names.h"
#include "profiler/samples/process_label_sets.h"

namespace windlass::profiler {
namespace {

const Aggregator::Counts kNothing = [](const auto&) {};
const Aggregator::Renumber kSame = [](std::uint32_t number) { return number; };
const Aggregator::ModuleFiller kFiles = [](std::uint32_t number, profile::Module& module) {
  module.path = "file " + std::to_string(number);
};

class Forgetting : public testing::Test {
 protected:
  Forgetting() { maps.add({0x10000, 0x20000, 0, 3, 0xf000, MappingKind::kFile}); }

  StackRecord stack(std::span<const std::uint64_t> user, std::string_view comm = "worker") const {
    StackRecord record;
    record.tgid = 7;
    record.tid = 8;
    record.comm = comm;
    record.user = user;
    return record;
  }
  // Of all samples, and of those that have frames.
  static std::pair<std::uint64_t, std::uint64_t> counts(const profile::Profile& profile) {
    std::pair<std::uint64_t, std::uint64_t> sums;
    for (const profile::Sample& sample : profile.samples) {
      sums.first += sample.count;
      if (!sample.locations.empty()) sums.second += sample.count;
    }
    return sums;
  }

  MapSet maps;
  std::uint64_t unknown = 0;
  std::vector<wl_count> told;
};

// Ten intervals of ten stacks each, all of them new: of the 100 stacks, 16 fit.
TEST_F(Forgetting, ABoundIsThatOfAPart) {
  for (const bool forgets : {false, true}) {
    Aggregator aggregator(Aggregator::Bounds{.samples = 16, .alone = 0});
    told.clear();
    std::pair<std::uint64_t, std::uint64_t> sums;
    for (std::uint64_t interval = 0; interval < 10; ++interval) {
      for (std::uint64_t i = 0; i < 10; ++i) {
        const std::uint64_t user[] = {(0x10000 + interval * 100 + i) | WL_FRAME_EXACT};
        aggregator.add(stack(user), &maps, 1);
      }
      const auto part = counts(aggregator.build_since(told, kNothing, unknown, kFiles));
      sums = {sums.first + part.first, sums.second + part.second};
      EXPECT_TRUE(aggregator.is_half_full());
      EXPECT_EQ(aggregator.has_cut(), !forgets && interval != 0);
      if (!forgets) continue;
      aggregator.settle(kNothing, unknown);
      aggregator.forget(told, kSame, kSame);
      EXPECT_FALSE(aggregator.is_half_full());
    }
    EXPECT_EQ(sums.first, 100u);
    EXPECT_EQ(sums.second, forgets ? 100u : 16u);
  }
}

TEST_F(Forgetting, WhatWasCutIsOfThePartThatIsKept) {
  Aggregator aggregator(Aggregator::Bounds{.samples = 2, .alone = 0});
  const auto add = [&](std::uint64_t at) {
    const std::uint64_t user[] = {(0x10000 + at) | WL_FRAME_EXACT};
    aggregator.add(stack(user), &maps, 1);
  };
  for (std::uint64_t i = 0; i < 3; ++i) add(i);
  EXPECT_TRUE(aggregator.has_cut());
  (void)aggregator.build_since(told, kNothing, unknown, kFiles);
  aggregator.settle(kNothing, unknown);
  aggregator.forget(told, kSame, kSame);
  EXPECT_FALSE(aggregator.has_cut());
  add(1);
  EXPECT_FALSE(aggregator.has_cut());
  for (std::uint64_t i = 2; i < 5; ++i) add(i);
  EXPECT_TRUE(aggregator.has_cut());
}

TEST_F(Forgetting, NothingIsToldTwice) {
  Aggregator aggregator;
  const std::uint64_t one[] = {0x10005 | WL_FRAME_EXACT};
  const wl_stack_key key{123, 7, 8};
  std::uint64_t in_kernel = 3;
  const Aggregator::Counts counted = [&](const auto& sink) { sink(key, {in_kernel, in_kernel * 10, 1}); };
  aggregator.add_counted(key, stack(one), &maps, 1);
  EXPECT_EQ(counts(aggregator.build_since(told, counted, unknown, kFiles)).first, 4u);
  in_kernel = 5;
  aggregator.settle(counted, unknown);
  const profile::Profile rest = aggregator.build_since(told, kNothing, unknown, kFiles);
  EXPECT_EQ(counts(rest).first, 2u);
  aggregator.forget(told, kSame, kSame);
  EXPECT_FALSE(aggregator.has_module(3));
  const profile::Profile empty = aggregator.build_since(told, kNothing, unknown, kFiles);
  EXPECT_TRUE(empty.samples.empty());
  EXPECT_TRUE(empty.modules.empty());
  EXPECT_TRUE(empty.strings.empty());
  // The kernel side sends the stack anew.
  aggregator.add_counted(key, stack(one), &maps, 1);
  in_kernel = 1;
  EXPECT_EQ(counts(aggregator.build_since(told, counted, unknown, kFiles)).first, 2u);
  EXPECT_EQ(unknown, 0u);
}

// A wait is told while it goes on. Each nanosecond of it is told once, and so is its end.
TEST_F(Forgetting, AWaitThatGoesOnKeepsItsStack) {
  Aggregator aggregator;
  const std::uint64_t one[] = {0x10005 | WL_FRAME_EXACT, 0x10020};
  const wl_stack_key key{123, 7, 8};
  StackRecord wait = stack(one);
  wait.event = 1;
  aggregator.add_counted(key, wait, &maps, 0);
  std::uint64_t count = 0, value = 0;
  const auto tell = [&](const Aggregator::Counts& counted) {
    for (const auto& sample : aggregator.build_since(told, counted, unknown, kFiles).samples) {
      count += sample.count;
      value += sample.value;
      EXPECT_EQ(sample.locations.size(), 2u);
    }
  };
  for (const std::uint64_t so_far : {600, 1000}) {
    tell([&](const auto& sink) { sink(key, {1, so_far, 0}); });
    EXPECT_EQ(value, so_far);
  }
  aggregator.settle(kNothing, unknown, [&](const auto& sink) { sink(key); });
  tell(kNothing);
  aggregator.forget(told, kSame, kSame);
  const Aggregator::Counts longer = [&](const auto& sink) { sink(key, {1, 5000, 0}); };
  tell(longer);
  EXPECT_EQ(count, 1u) << "it is one wait";
  // It ends, and counting begins anew once more.
  aggregator.settle(longer, unknown);
  tell(kNothing);
  aggregator.forget(told, kSame, kSame);
  EXPECT_EQ(count, 1u);
  EXPECT_EQ(value, 5000u);
  tell(kNothing);
  EXPECT_EQ(value, 5000u);
  EXPECT_EQ(unknown, 0u);
}

TEST_F(Forgetting, NamesAndLabelsGetNewNumbers) {
  Aggregator aggregator;
  CodeNames names;
  ProcessLabelSets labels([](std::uint32_t tgid) { return ProcessLabelSets::Set{{"process", std::to_string(tgid)}}; });
  for (std::uint32_t tgid = 1; tgid <= 7; ++tgid) (void)labels.of(tgid);
  labels.keep_only([](std::uint32_t tgid) { return tgid > 5; });
  (void)names.add_inlined({.name = "unused", .file = "", .line = 1}, CodeNames::kUnknown);
  const std::uint32_t outer = names.add_inlined({.name = "outer", .file = "a.py", .line = 3}, CodeNames::kUnknown);
  const std::uint32_t numbers[] = {names.add_inlined({.name = "inner", .file = "a.py", .line = 7}, outer)};
  const std::uint64_t one[] = {0x10005 | WL_FRAME_EXACT};
  const wl_stack_key key{123, 7, 8};
  StackRecord record = stack(one);
  record.names = numbers;
  record.labels = labels.of(7);
  aggregator.add_counted(key, record, &maps, 0);
  aggregator.settle(kNothing, unknown, [&](const auto& sink) { sink(key); });
  aggregator.forget(told, labels.forget(), names.forget());
  EXPECT_EQ(labels.sets().size(), 3u) << "the empty set, and those of the processes 6 and 7";
  EXPECT_EQ(labels.sets()[labels.of(7)].front().value, "7");
  const profile::Profile profile = aggregator.build_since(
      told,
      [&](const auto& sink) {
        sink(key, {2, 0, 1});
      },
      unknown, kFiles, names, labels.sets());
  ASSERT_EQ(profile.samples.size(), 1u);
  EXPECT_EQ(profile.strings[profile.samples[0].comm], "worker");
  const auto& set = profile.label_sets.at(profile.samples[0].labels);
  EXPECT_EQ(profile.strings[set.at(0).value], "7");
  const auto& lines = profile.locations.at(profile.samples[0].locations[0]).lines;
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(profile.functions[lines[0].function].name, "inner");
  EXPECT_EQ(profile.functions[lines[1].function].name, "outer");
}

}  // namespace
}  // namespace windlass::profiler
