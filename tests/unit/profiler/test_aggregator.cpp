#include "profiler/samples/aggregator.h"

#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace windlass::profiler {
namespace {

const Aggregator::Counts kNoCounts = [](const auto&) {};
const Aggregator::ModuleFiller kNamed = [](std::uint32_t number, profile::Module& module) {
  module.path = "file " + std::to_string(number);
};

class AggregatorTest : public testing::Test {
 protected:
  AggregatorTest() {
    maps.add({0x10000, 0x20000, 0, 3, 0xf000, MappingKind::kFile});
    maps.add({0x30000, 0x31000, 0, 0, 0, MappingKind::kGenerated});
  }
  StackRecord stack(std::span<const std::uint64_t> user, std::uint8_t end = WL_END_COMPLETE) const {
    StackRecord record;
    record.tgid = 7;
    record.tid = 8;
    record.comm = "worker";
    record.end = end;
    record.user = user;
    return record;
  }
  Aggregator aggregator;
  MapSet maps;
  std::uint64_t unknown = 0;
};

TEST_F(AggregatorTest, AddressesAreRelativeToTheirModuleAndReturnAddressesNameTheCall) {
  const std::uint64_t kernel[] = {0xffffffff81000010, 0xffffffff81000020};
  const std::uint64_t user[] = {0x10005 | WL_FRAME_EXACT, 0x10020, 0x30100, 0x99999};
  StackRecord record = stack(user);
  record.kernel = kernel;
  aggregator.add(record, &maps, 2);
  const profile::Profile profile = aggregator.build(kNoCounts, unknown, kNamed);
  ASSERT_EQ(profile.samples.size(), 1u);
  const profile::Sample& sample = profile.samples[0];
  EXPECT_EQ(sample.count, 2u);
  EXPECT_EQ(sample.pid, 7u);
  EXPECT_EQ(profile.strings[sample.comm], "worker");
  ASSERT_EQ(sample.locations.size(), 6u);
  const auto at = [&](int i) { return profile.locations[sample.locations[i]]; };
  const auto module = [&](int i) { return profile.modules[at(i).module]; };
  EXPECT_TRUE(module(0).is_kernel);
  EXPECT_EQ(at(0).address, 0xffffffff81000010);
  EXPECT_EQ(at(1).address, 0xffffffff8100001f);
  EXPECT_EQ(module(2).path, "file 3");
  EXPECT_EQ(at(2).address, 0x1005u);
  EXPECT_EQ(at(3).address, 0x101fu);
  EXPECT_EQ(module(4).path, "[anon]");
  EXPECT_EQ(module(4).pid, 7u);
  EXPECT_EQ(at(4).address, 0x300ffu);
  EXPECT_EQ(module(5).path, "[unmapped]");
}

TEST_F(AggregatorTest, AddressesInFilesAreToldOnce) {
  const std::uint64_t kernel[] = {0xffffffff81000010};
  const std::uint64_t one[] = {0x10005 | WL_FRAME_EXACT, 0x10020, 0x30100, 0x99999};
  const std::uint64_t two[] = {0x10020, 0x10040};
  using Code = std::vector<std::pair<std::uint32_t, std::uint64_t>>;
  std::size_t from = 0;
  const auto told = [&] {
    Code code;
    from = aggregator.for_code_since(from, [&](std::uint32_t file, std::uint64_t at) { code.emplace_back(file, at); });
    return code;
  };
  EXPECT_EQ(told(), Code());
  StackRecord record = stack(one);
  record.kernel = kernel;
  aggregator.add(record, &maps, 1);
  EXPECT_EQ(told(), (Code{{3, 0x1005}, {3, 0x101f}}));
  aggregator.add(stack(two), &maps, 1);
  aggregator.add(stack(one), &maps, 1);
  EXPECT_EQ(told(), (Code{{3, 0x103f}}));
  EXPECT_EQ(told(), Code());
}

TEST_F(AggregatorTest, SaysWhatTruncatedStacksEndIn) {
  using In = Aggregator::TruncatedIn;
  const std::uint64_t in_file[] = {0x30100, 0x10020}, generated[] = {0x30100}, unmapped[] = {0x99999};
  const std::uint64_t kernel[] = {0xffffffff81000010};
  std::uint64_t count = 6;
  for (const std::span<const std::uint64_t> user :
       {std::span<const std::uint64_t>(in_file), std::span<const std::uint64_t>(generated),
        std::span<const std::uint64_t>(unmapped), std::span<const std::uint64_t>()})
    aggregator.add(stack(user, WL_END_NO_TIME), &maps, --count);
  StackRecord of_kernel = stack({}, WL_END_NO_TIME);
  of_kernel.kernel = kernel;
  aggregator.add(of_kernel, &maps, 1);
  aggregator.add(stack(in_file), &maps, 9);
  std::vector<In> found;
  for (const auto& truncation : aggregator.truncations(kNoCounts)) {
    EXPECT_EQ(truncation.end, WL_END_NO_TIME);
    EXPECT_EQ(truncation.module, truncation.in == In::kFile ? 3u : 0u);
    found.push_back(truncation.in);
  }
  EXPECT_EQ(found, (std::vector{In::kFile, In::kGenerated, In::kUnmapped, In::kNothing, In::kKernel}));
}

// A signal trampoline: the frame above it is an instruction, and no call stands before where the handler returns to.
TEST_F(AggregatorTest, TheCallerOfAHandlerIsNamedAtItsFirstInstruction) {
  const std::uint64_t user[] = {0x10005 | WL_FRAME_EXACT, 0x10020, 0x10040 | WL_FRAME_EXACT, 0x10060};
  aggregator.add(stack(user), &maps, 1);
  const profile::Profile profile = aggregator.build(kNoCounts, unknown, kNamed);
  std::vector<std::uint64_t> addresses;
  for (const std::uint32_t location : profile.samples.at(0).locations)
    addresses.push_back(profile.locations[location].address);
  EXPECT_EQ(addresses, (std::vector<std::uint64_t>{0x1005, 0x1020, 0x1040, 0x105f}));
}

TEST_F(AggregatorTest, EqualStacksAreOneSample) {
  const std::uint64_t one[] = {0x10005 | WL_FRAME_EXACT, 0x10020};
  const std::uint64_t two[] = {0x10005 | WL_FRAME_EXACT, 0x10024};
  aggregator.add(stack(one), &maps, 1);
  aggregator.add(stack(one), &maps, 1);
  aggregator.add(stack(two), &maps, 1);
  aggregator.add(stack(one, WL_END_NO_ROW), &maps, 1);
  const profile::Profile profile = aggregator.build(kNoCounts, unknown, kNamed);
  EXPECT_EQ(profile.samples.size(), 3u);
  EXPECT_EQ(profile.samples[0].count, 2u);
  EXPECT_EQ(profile.locations.size(), 3u);
}

TEST_F(AggregatorTest, KernelCountsComeOnTopOfEvents) {
  const std::uint64_t one[] = {0x10005 | WL_FRAME_EXACT};
  const wl_stack_key key{123, 7, 8};
  aggregator.add_counted(key, stack(one), &maps, 1);
  const Aggregator::Counts counts = [](const auto& sink) {
    sink(wl_stack_key{123, 7, 8}, {41, 0, 1});
    sink(wl_stack_key{999, 7, 8}, {5, 0, 1});
  };
  EXPECT_EQ(aggregator.build(counts, unknown, kNamed).samples.at(0).count, 42u);
  EXPECT_EQ(unknown, 5u);
  unknown = 0;
  aggregator.settle(counts, unknown);
  EXPECT_EQ(unknown, 5u);
  EXPECT_EQ(aggregator.counted_stacks(), 0u);
  EXPECT_EQ(aggregator.build(kNoCounts, unknown, kNamed).samples.at(0).count, 42u);
}

// Each part has what has come since the one before: the parts together are the whole.
TEST_F(AggregatorTest, PartsHaveWhatHasComeSince) {
  const std::uint64_t one[] = {0x10005 | WL_FRAME_EXACT}, two[] = {0x10006 | WL_FRAME_EXACT, 0x10020};
  const wl_stack_key key{123, 7, 8};
  std::uint64_t counted = 0;
  const Aggregator::Counts counts = [&](const auto& sink) { sink(key, {counted, counted * 10, 1}); };
  std::vector<wl_count> told;
  const auto part = [&] { return aggregator.build_since(told, counts, unknown, kNamed); };
  aggregator.add_counted(key, stack(one), &maps, 1);
  profile::Profile profile = part();
  ASSERT_EQ(profile.samples.size(), 1u);
  EXPECT_EQ(profile.samples[0].count, 1u);
  EXPECT_TRUE(part().samples.empty());
  counted = 4;
  aggregator.add(stack(two), &maps, 2);
  profile = part();
  ASSERT_EQ(profile.samples.size(), 2u);
  EXPECT_EQ(profile.samples[0].count, 4u);
  EXPECT_EQ(profile.samples[0].value, 40u);
  EXPECT_EQ(profile.samples[1].count, 2u);
  EXPECT_EQ(profile.strings[profile.samples[1].comm], "worker");
  aggregator.settle(counts, unknown);
  counted = 0;
  aggregator.add(stack(two), &maps, 1);
  profile = part();
  ASSERT_EQ(profile.samples.size(), 1u);
  EXPECT_EQ(profile.samples[0].count, 1u);
  ASSERT_EQ(profile.locations.size(), 2u);  // those of this part only
  EXPECT_EQ(profile.locations[profile.samples[0].locations[0]].address, 0x10006u - 0xf000);
  EXPECT_EQ(profile.modules[profile.locations[0].module].path, "file 3");
}

// A wait's event is its begin; how long it was comes with the counts.
TEST_F(AggregatorTest, WaitsHaveTheTimeThatIsCounted) {
  const std::uint64_t one[] = {0x10005 | WL_FRAME_EXACT};
  StackRecord wait = stack(one);
  wait.event = 1;
  wait.reason = WL_WAIT_FAULT;
  const wl_stack_key key{123, 7, 8};
  aggregator.add(stack(one), &maps, 1);
  aggregator.add_counted(key, wait, &maps, 0);
  const Aggregator::Counts counts = [&](const auto& sink) { sink(key, {2, 5000, 1}); };
  const auto check = [&](const profile::Profile& profile) {
    ASSERT_EQ(profile.samples.size(), 2u);
    EXPECT_EQ(profile.samples[0].event, 0u);
    EXPECT_EQ(profile.samples[0].count, 1u);
    EXPECT_EQ(profile.samples[0].labels, 0u);
    EXPECT_EQ(profile.samples[1].event, 1u);
    EXPECT_EQ(profile.samples[1].count, 2u);
    EXPECT_EQ(profile.samples[1].value, 5000u);
    const auto& labels = profile.label_sets.at(profile.samples[1].labels);
    ASSERT_EQ(labels.size(), 1u);
    EXPECT_EQ(profile.strings[labels[0].key], "reason");
    EXPECT_EQ(profile.strings[labels[0].value], "page fault");
  };
  check(aggregator.build(counts, unknown, kNamed));
  EXPECT_EQ(aggregator.build(kNoCounts, unknown, kNamed).samples.size(), 1u) << "no wait has ended";
  // When counting begins anew, the stacks of those that wait are still known.
  aggregator.settle(counts, unknown, [&](const auto& sink) { sink(key); });
  check(aggregator.build(kNoCounts, unknown, kNamed));
  EXPECT_EQ(aggregator.build(counts, unknown, kNamed).samples.at(1).value, 10000u);
  aggregator.settle(counts, unknown);
  EXPECT_EQ(unknown, 0u);
  EXPECT_EQ(aggregator.build(counts, unknown, kNamed).samples.at(1).value, 10000u);
  EXPECT_EQ(unknown, 2u) << "of a stack that nobody knows any more";
}

// From the waker's event on, the wait is counted under another key. The event may come before the stacks do.
TEST_F(AggregatorTest, AWaitSeemsToCallItsWaker) {
  const std::uint64_t waiting[] = {0x10005 | WL_FRAME_EXACT, 0x10020}, waking[] = {0x10105 | WL_FRAME_EXACT, 0x10120};
  const wl_stack_key wait_key{123, 7, 8}, waker_key{456, 7, 9}, joined{789, 7, 8}, by_interrupt{790, 7, 8};
  const auto add_waker = [&](const wl_stack_key& key, const wl_stack_key& waker, const char* comm) {
    wl_waker_event event{};
    event.head.tgid = key.tgid;
    event.head.tid = key.tid;
    std::copy_n(comm, std::string_view(comm).size(), event.head.comm);
    event.hash = key.hash;
    event.wait_hash = wait_key.hash;
    event.waker = waker;
    aggregator.add_waker(event);
  };
  add_waker(joined, waker_key, "unlocks");
  aggregator.join_wakers();
  StackRecord wait = stack(waiting), waker = stack(waking, WL_END_NO_ROW);
  wait.reason = waker.reason = WL_WAIT_ENDED;
  waker.tid = 9;
  aggregator.add_counted(wait_key, wait, &maps, 0);
  aggregator.add_counted(waker_key, waker, &maps, 0);
  add_waker(by_interrupt, {}, "");
  const Aggregator::Counts counts = [&](const auto& sink) {
    sink(joined, {2, 5000, 1});
    sink(by_interrupt, {1, 300, 1});
  };
  aggregator.join_wakers();
  const auto check = [](const profile::Profile& profile) {
    std::map<std::uint64_t, std::vector<std::string>> by_value;
    for (const profile::Sample& sample : profile.samples) {
      EXPECT_EQ(sample.tid, 8u);
      EXPECT_EQ(sample.end, WL_END_COMPLETE);
      for (const std::uint32_t at : sample.locations) {
        const profile::Location& location = profile.locations[at];
        const bool named = !location.lines.empty();
        EXPECT_EQ(named, profile.modules[location.module].path == "[waker]");
        by_value[sample.value].push_back(named ? profile.functions[location.lines[0].function].name
                                               : std::to_string(location.address));
      }
    }
    const std::map<std::uint64_t, std::vector<std::string>> expected{
        {5000, {"4357", "4383", "[woken by unlocks (truncated)]", "4101", "4127"}},
        {300, {"[woken by an interrupt]", "4101", "4127"}}};
    EXPECT_EQ(by_value, expected);
  };
  check(aggregator.build(counts, unknown, kNamed));
  // When counting begins anew, a wait that goes on keeps its waker.
  const Aggregator::Counts none = [](const auto&) {};
  aggregator.settle(none, unknown, [&](const auto& sink) {
    sink(joined);
    sink(by_interrupt);
  });
  aggregator.join_wakers();
  check(aggregator.build(counts, unknown, kNamed));
  EXPECT_EQ(unknown, 0u);
}

// Waits with the same stack and the same thread number of two processes are two waits. Of one wait the last waker
// counts.
TEST_F(AggregatorTest, AWaitOfAnotherProcessHasItsOwnWaker) {
  const std::uint64_t waiting[] = {0x10005 | WL_FRAME_EXACT}, waking[] = {0x10105 | WL_FRAME_EXACT};
  const auto add_waker = [&](const wl_stack_key& key, const wl_stack_key& waker, std::string_view comm) {
    wl_waker_event event{};
    event.head.tgid = key.tgid;
    event.head.tid = key.tid;
    std::ranges::copy(comm, event.head.comm);
    event.hash = key.hash;
    event.wait_hash = key.hash + 1;
    event.waker = waker;
    aggregator.add_waker(event);
  };
  StackRecord record = stack(waiting);
  for (const std::uint32_t tgid : {7U, 17U}) {
    record.tgid = tgid;
    aggregator.add_counted({790, tgid, 8}, record, &maps, 0);
  }
  record = stack(waking);
  record.tid = 9;
  aggregator.add_counted({456, 7, 9}, record, &maps, 0);
  add_waker({789, 7, 8}, {456, 7, 9}, "first");
  add_waker({789, 17, 8}, {456, 7, 9}, "other");
  add_waker({789, 7, 8}, {456, 7, 9}, "second");
  aggregator.join_wakers();
  const auto profile = aggregator.build(
      [](const auto& sink) {
        sink({789, 7, 8}, {1, 100, 1});
        sink({789, 17, 8}, {1, 200, 1});
      },
      unknown, kNamed);
  std::map<std::uint64_t, std::string> wakers;
  for (const profile::Sample& sample : profile.samples)
    for (const std::uint32_t at : sample.locations)
      if (const profile::Location& location = profile.locations[at]; !location.lines.empty())
        wakers[sample.value] += profile.functions[location.lines[0].function].name;
  EXPECT_EQ(wakers, (std::map<std::uint64_t, std::string>{{100, "[woken by second]"}, {200, "[woken by other]"}}));
  EXPECT_EQ(unknown, 0u);
}

// A sample is one of a process with its labels.
TEST_F(AggregatorTest, LabelsOfProcessesTellSamplesApart) {
  const std::uint64_t one[] = {0x10005 | WL_FRAME_EXACT};
  StackRecord labelled = stack(one);
  labelled.labels = 1;
  aggregator.add(stack(one), &maps, 1);
  aggregator.add(labelled, &maps, 2);
  const ProcessLabelSets::Set sets[] = {{}, {{"a", "1"}, {"b", "2"}}};
  const profile::Profile profile = aggregator.build(kNoCounts, unknown, kNamed, {}, sets);
  ASSERT_EQ(profile.samples.size(), 2u);
  EXPECT_EQ(profile.samples[0].labels, 0u);
  const auto& labels = profile.label_sets.at(profile.samples[1].labels);
  ASSERT_EQ(labels.size(), 2u);
  EXPECT_EQ(profile.strings[labels[1].key], "b");
  EXPECT_EQ(profile.strings[labels[1].value], "2");
}

// A set that is not among those given is none.
TEST_F(AggregatorTest, LabelsThatAreNotGivenAreNone) {
  const std::uint64_t one[] = {0x10005 | WL_FRAME_EXACT};
  StackRecord labelled = stack(one);
  labelled.labels = 2;
  aggregator.add(labelled, &maps, 1);
  const ProcessLabelSets::Set sets[] = {{}, {{"a", "1"}}, {{"beyond", "those given"}}};
  const profile::Profile profile = aggregator.build(kNoCounts, unknown, kNamed, {}, std::span(sets, 2));
  ASSERT_EQ(profile.samples.size(), 1u);
  EXPECT_EQ(profile.samples[0].labels, 0u);
}

TEST(ProcessLabelSetsTest, ChildrenHaveTheirParentsUntilTheyAreAnotherProgram) {
  std::map<std::uint32_t, std::string> names{{1, "parent"}};
  unsigned reads = 0;
  ProcessLabelSets sets([&](std::uint32_t tgid) -> std::optional<ProcessLabelSets::Set> {
    ++reads;
    const auto found = names.find(tgid);
    if (found == names.end()) return std::nullopt;
    return ProcessLabelSets::Set{{"name", found->second}};
  });
  const auto name = [&](std::uint32_t tgid) {
    const auto& set = sets.sets().at(sets.of(tgid));
    return set.empty() ? std::string() : set.front().value;
  };
  EXPECT_EQ(name(1), "parent");
  EXPECT_EQ(name(1), "parent");
  EXPECT_EQ(reads, 1u) << "read once";
  sets.on_fork(1, 2);
  EXPECT_EQ(name(2), "parent") << "although nobody can read it any more";
  names[2] = "child";
  EXPECT_EQ(name(2), "parent");
  sets.on_exec(2);
  EXPECT_EQ(name(2), "child");
  names.erase(2);
  sets.on_exec(2);
  EXPECT_EQ(name(2), "child") << "gone meanwhile";
  EXPECT_EQ(name(3), "");
  sets.keep_only([](std::uint32_t tgid) { return tgid == 1; });
  EXPECT_EQ(name(2), "");
  EXPECT_EQ(sets.sets().size(), 3u) << "each once";
  ProcessLabelSets none;
  EXPECT_EQ(none.of(1), 0u);
}

TEST(ProcessLabelSetsTest, ThoseOfAProcessThatHasGoneAreTheFixedOnes) {
  const ProcessLabelSets::Set fixed{{"version", "1.2"}};
  ProcessLabelSets sets([](std::uint32_t) { return std::nullopt; }, fixed);
  EXPECT_EQ(sets.sets().at(sets.of(1)), fixed);
  EXPECT_EQ(sets.of(2), sets.of(1));
}

TEST_F(AggregatorTest, WhatAnEvaluatorRunsIsInItsLocation) {
  CodeNames names;
  const std::uint32_t outer = names.add_inlined({.name = "outer", .file = "a.py", .line = 3}, CodeNames::kUnknown);
  const std::uint32_t numbers[] = {names.add_inlined({.name = "inner", .file = "a.py", .line = 7}, outer), 0};
  const std::uint64_t user[] = {0x10005 | WL_FRAME_EXACT, 0x10006};
  StackRecord record = stack(user);
  record.names = numbers;
  aggregator.add(record, &maps, 1);
  aggregator.add(stack(user), &maps, 1);
  const profile::Profile profile = aggregator.build(kNoCounts, unknown, kNamed, names);
  ASSERT_EQ(profile.samples.size(), 2U) << "where nothing is known it is another stack";
  const profile::Location& location = profile.locations[profile.samples[0].locations[0]];
  EXPECT_TRUE(location.interpreted);
  EXPECT_EQ(location.address, 0x1005U);
  ASSERT_EQ(location.lines.size(), 2U);
  EXPECT_EQ(profile.functions[location.lines[0].function].name, "inner");
  EXPECT_EQ(profile.functions[location.lines[1].function].name, "outer");
  EXPECT_EQ(location.lines[1].line, 3U);
  EXPECT_FALSE(profile.locations[profile.samples[1].locations[0]].interpreted);
}

TEST_F(AggregatorTest, TruncationsNameTheOutermostModule) {
  const std::uint64_t one[] = {0x30005 | WL_FRAME_EXACT, 0x10020};
  const std::uint64_t two[] = {0x30005 | WL_FRAME_EXACT};
  aggregator.add(stack(one, WL_END_NO_ROW), &maps, 3);
  aggregator.add(stack(two, WL_END_BAD_FRAME_POINTER), &maps, 1);
  aggregator.add(stack(two), &maps, 9);
  const auto where = aggregator.truncations(kNoCounts);
  ASSERT_EQ(where.size(), 2u);
  EXPECT_EQ(where[0].module, 3u);
  EXPECT_EQ(where[0].count, 3u);
  EXPECT_EQ(where[1].in, Aggregator::TruncatedIn::kGenerated);
}

// What a profile has of stacks of three frames, the outermost of which is shared, under bounds.
class FullProfile : public AggregatorTest {
 protected:
  void add_stacks(const Aggregator::Bounds& bounds, std::uint64_t stacks) {
    aggregator = Aggregator(bounds);
    for (std::uint64_t i = 0; i < stacks; ++i) {
      const std::uint64_t user[] = {(0x10000 + i) | WL_FRAME_EXACT, 0x18001 + i, 0x17001};
      EXPECT_EQ(aggregator.has_cut(), cut_ != 0);
      aggregator.add(stack(user), &maps, 1);
      cut_ += aggregator.has_cut() ? 1 : 0;
    }
    profile_ = aggregator.build(kNoCounts, unknown, kNamed);
    for (const profile::Sample& sample : profile_.samples) {
      counted_ += sample.count;
      if (sample.locations.size() == 3 && sample.end == WL_END_COMPLETE) whole_ += sample.count;
      if (sample.end != WL_END_NO_ROOM) continue;
      ASSERT_LE(sample.locations.size(), 1U);
      if (sample.locations.empty()) {
        EXPECT_EQ(sample.pid, 0U);
        without_frame_ += sample.count;
      } else {
        EXPECT_EQ(sample.pid, 7U);
        EXPECT_LT(profile_.locations[sample.locations[0]].address, 0x7000U) << "a caller, as the function itself";
        alone_ += sample.count;
      }
    }
    EXPECT_EQ(counted_, stacks) << "no sample is lost";
  }
  profile::Profile profile_;
  std::uint64_t cut_ = 0, counted_ = 0, whole_ = 0, alone_ = 0, without_frame_ = 0;
};

TEST_F(FullProfile, OfFramesHasTheInnermostOnes) {
  add_stacks({.frames = 1 + 1 + 2 * 10, .alone = 5}, 100);
  EXPECT_EQ(whole_, 10U);
  EXPECT_EQ(alone_, 5U);
  EXPECT_EQ(without_frame_, 85U);
  EXPECT_EQ(cut_, 90U);
}

TEST_F(FullProfile, OfSamplesHasTheInnermostOnes) {
  add_stacks({.samples = 10, .alone = 20}, 100);
  EXPECT_EQ(whole_, 10U);
  EXPECT_EQ(alone_, 20U);
}

TEST_F(FullProfile, OfFramesOfSamplesHasTheInnermostOnes) {
  add_stacks({.sample_frames = 30, .alone = 7}, 100);
  EXPECT_EQ(whole_, 10U);
  EXPECT_EQ(alone_, 7U);
}

TEST_F(FullProfile, OfAddressesShowsNoStackWithAFrameLeftOut) {
  add_stacks({.locations = 1 + 2 * 10 + 1}, 100);
  EXPECT_EQ(whole_, 10U);
  EXPECT_EQ(alone_, 1U) << "the one whose innermost address has a place, and whose caller has none";
  EXPECT_EQ(without_frame_, 89U);
}

TEST_F(AggregatorTest, ProcessesWithRunTimeCodeAreBounded) {
  const std::uint64_t one[] = {0x30005 | WL_FRAME_EXACT};
  for (std::uint32_t tgid = 1; tgid < Aggregator::Bounds{}.anonymous_modules + 100; ++tgid) {
    StackRecord record = stack(one);
    record.tgid = tgid;
    aggregator.add(record, &maps, 1);
  }
  EXPECT_LE(aggregator.build(kNoCounts, unknown, kNamed).modules.size(), Aggregator::Bounds{}.anonymous_modules + 1);
}

// Random stacks that share callers, some of them equal, of several threads.
TEST_F(AggregatorTest, ManyStacksComeOutAsTheyWentIn) {
  std::mt19937 random(1);
  std::map<std::pair<std::uint32_t, std::vector<std::uint64_t>>, std::uint64_t> expected;
  for (int i = 0; i < 20'000; ++i) {
    std::vector<std::uint64_t> user(random() % 12);
    for (std::uint64_t& frame : user) frame = 0x10000 + 16 * (random() % 3) + 1;
    StackRecord record = stack(user);
    record.tid = 8 + random() % 2;
    aggregator.add(record, &maps, 1);
    ++expected[{record.tid, user}];
  }
  const profile::Profile profile = aggregator.build(kNoCounts, unknown, kNamed);
  EXPECT_EQ(profile.samples.size(), expected.size());
  for (const profile::Sample& sample : profile.samples) {
    std::vector<std::uint64_t> user;
    for (const std::uint32_t location : sample.locations) user.push_back(profile.locations[location].address + 0xf001);
    ASSERT_TRUE(expected.contains({sample.tid, user}));
    EXPECT_EQ(sample.count, (expected[{sample.tid, user}]));
  }
}

#ifdef __GLIBC__
// Stacks of 30 frames that differ in the innermost three: what they share is stored once.
TEST_F(AggregatorTest, AStackTakesLittleMemory) {
  constexpr std::size_t kStacks = 200'000;
  const std::size_t before = mallinfo2().uordblks + mallinfo2().hblkhd;
  std::vector<std::uint64_t> user(30);
  for (std::size_t i = 0; i < user.size(); ++i) user[i] = 0x10001 + 16 * i;
  for (std::size_t i = 0; i < kStacks; ++i) {
    for (int frame = 0; frame < 3; ++frame) user[frame] = 0x11001 + 16 * (i >> (6 * frame) & 0xff);
    wl_stack_key key{};
    key.hash = i * 0x9e3779b97f4a7c15ull;
    aggregator.add_counted(key, stack(user), &maps, 1);
  }
  const std::size_t after = mallinfo2().uordblks + mallinfo2().hblkhd;
  if (after == 0) GTEST_SKIP() << "this allocator keeps no account";
  EXPECT_LT((after - before) / kStacks, 130u);
}
#endif

}  // namespace
}  // namespace windlass::profiler
