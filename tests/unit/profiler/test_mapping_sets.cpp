#include "profiler/kernel/mapping_sets.h"
#include "windlass_interpreter_layout.h"

#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <map>

namespace windlass::profiler {
namespace {

using namespace std::chrono_literals;

// The BPF map, in user space.
class FakeEntries final : public ProcessEntries {
 public:
  std::map<std::uint32_t, wl_process> entries;
  int refuse_with = 0, looks = 0;

  int update(std::uint32_t tgid, const wl_process& process) override {
    if (refuse_with == 0) entries[tgid] = process;
    return refuse_with;
  }
  void erase(std::uint32_t tgid) override { entries.erase(tgid); }
  bool refuse_list = false;
  std::optional<std::unordered_set<std::uint32_t>> spaces() override {
    ++looks;
    if (refuse_list) return std::nullopt;
    std::unordered_set<std::uint32_t> spaces;
    for (const auto& [tgid, process] : entries) spaces.insert(process.space);
    return spaces;
  }
};

class MappingSetsTest : public testing::Test {
 protected:
  std::array<wl_module, 4> list{};
  std::unique_ptr<table::Arena> arena = *table::Arena::create({}, 4);
  wl_way way{};
  KernelModules modules{list, *arena, way};
  FakeEntries entries;
  MappingSets sets{entries, modules, *arena};
  MappingSets::Clock::time_point now{1h};
  std::uint32_t module = *modules.add_module();

  std::vector<wl_mapping> two() const { return {{0x1000, 0x2000, 0, module, 0}, {0x3000, 0x4000, 0, module, 0}}; }
  std::uint32_t publish(std::uint32_t tgid) {
    const auto space = sets.publish(tgid, {two()}, 5, now);
    EXPECT_TRUE(space);
    return space.value_or(0);
  }
  wl_maps_head* head_of(const wl_process& process) const {
    return reinterpret_cast<wl_maps_head*>(arena->at(process.maps)) - 1;
  }
  void pass(std::chrono::milliseconds time) {
    now += time;
    sets.housekeeping(now);
  }
};

TEST_F(MappingSetsTest, WhatTheProgramsRead) {
  const std::uint32_t space = publish(10);
  const wl_process& process = entries.entries.at(10);
  EXPECT_EQ(process.space, space);
  EXPECT_EQ(process.map_count, 2u);
  EXPECT_EQ(process.epoch, 5u);
  EXPECT_EQ(head_of(process)->space, space);
  EXPECT_EQ(head_of(process)->count, 2u);
  wl_mapping read[2];
  std::memcpy(read, arena->at(process.maps), sizeof read);
  EXPECT_EQ(read[1].begin, 0x3000u);
}

TEST_F(MappingSetsTest, AnInterpreterStandsBehindTheMappings) {
  publish(10);
  EXPECT_EQ(entries.entries.at(10).flags, 0U);
  wl_interpreter interpreter{};
  interpreter.python.interpreters = 0x1234;
  interpreter.python.bytes_begin = 32;
  ASSERT_TRUE(sets.publish(11, {two(), &interpreter}, 5, now));
  const wl_process& process = entries.entries.at(11);
  EXPECT_EQ(process.flags, WL_PROCESS_INTERPRETED);
  EXPECT_EQ(std::memcmp(arena->at(process.maps) + 2 * sizeof(wl_mapping), &interpreter, sizeof interpreter), 0);
  sets.forget(11, now);
  for (int i = 0; i < 4; ++i) pass(1s);
  EXPECT_EQ(sets.size(), 1U);
}

TEST_F(MappingSetsTest, SpacesAreNeverUsedTwice) {
  const std::uint32_t first = publish(10);
  const std::uint32_t second = publish(10);
  EXPECT_NE(first, second);
  sets.forget(10, now);
  for (int i = 0; i < 4; ++i) pass(1s);
  EXPECT_EQ(sets.size(), 0u);
  EXPECT_GT(publish(10), second);
}

// An inherited entry may name it still.
TEST_F(MappingSetsTest, ASetStaysWhileEntriesCannotBeListed) {
  publish(10);
  entries.entries[11] = entries.entries.at(10);
  const wl_maps_head* old = head_of(entries.entries.at(10));
  publish(10);
  entries.refuse_list = true;
  for (int i = 0; i < 4; ++i) pass(1s);
  EXPECT_EQ(sets.size(), 2u);
  EXPECT_NE(old->space, 0u);
}

TEST_F(MappingSetsTest, AReplacedSetIsHiddenThenFreedAGracePeriodApart) {
  publish(10);
  wl_maps_head* old = head_of(entries.entries.at(10));
  const std::uint64_t one = arena->bytes_used();
  publish(10);
  pass(MappingSets::kGrace - 1ms);
  EXPECT_NE(old->space, 0u) << "a walk may be about to begin with it";
  pass(MappingSets::kGrace);
  EXPECT_EQ(old->space, 0u);
  EXPECT_EQ(arena->bytes_used(), 2 * one) << "a walk may be in it";
  pass(MappingSets::kGrace);
  EXPECT_EQ(arena->bytes_used(), one);
  EXPECT_EQ(sets.size(), 1u);
}

// The set between two others: what comes to its place leaves both as they are.
TEST_F(MappingSetsTest, AFreedSetsPlaceIsGivenToAnother) {
  for (const std::uint32_t tgid : {10U, 11U, 12U}) publish(tgid);
  const std::uint32_t between = entries.entries.at(11).maps;
  sets.forget(11, now);
  for (int i = 0; i < 3; ++i) pass(1s);
  ASSERT_EQ(sets.size(), 2U);
  publish(13);
  EXPECT_EQ(entries.entries.at(13).maps, between);
  for (const std::uint32_t tgid : {10U, 12U, 13U}) {
    const wl_process& process = entries.entries.at(tgid);
    EXPECT_EQ(head_of(process)->space, process.space) << tgid;
    EXPECT_EQ(std::memcmp(arena->at(process.maps), two().data(), 2 * sizeof(wl_mapping)), 0) << tgid;
  }
}

TEST_F(MappingSetsTest, AForkedChildKeepsItsParentsSet) {
  publish(10);
  entries.entries[11] = entries.entries.at(10);  // the fork program's doing
  wl_maps_head* shared = head_of(entries.entries.at(11));
  sets.forget(10, now);
  for (int i = 0; i < 10; ++i) pass(1s);
  EXPECT_NE(shared->space, 0u);
  EXPECT_EQ(sets.size(), 1u);
  entries.entries.erase(11);
  for (int i = 0; i < 2; ++i) pass(1s);
  EXPECT_EQ(sets.size(), 0u);
  EXPECT_EQ(arena->bytes_used(), 0u);
}

TEST_F(MappingSetsTest, AModuleIsFreedAfterTheLastSetThatNamesIt) {
  publish(10);
  publish(12);
  modules.remove_module(module);
  modules.set_no_table(module);  // something to see it by
  sets.forget(10, now);
  for (int i = 0; i < 3; ++i) pass(1s);
  EXPECT_EQ(list[module].state, WL_MODULE_NO_TABLE);
  sets.forget(12, now);
  for (int i = 0; i < 3; ++i) pass(1s);
  EXPECT_EQ(list[module].state, WL_MODULE_PENDING);
  EXPECT_EQ(modules.add_module().value(), module);
}

TEST_F(MappingSetsTest, ARefusedEntryLeavesNothingBehind) {
  const std::uint32_t space = publish(10);
  const std::uint64_t before = arena->bytes_used();
  entries.refuse_with = E2BIG;
  const auto refused = sets.publish(11, {two()}, 0, now);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, E2BIG);
  EXPECT_NE(refused.error().text.find("process 11"), std::string::npos);
  EXPECT_FALSE(sets.publish(10, {two()}, 0, now));
  EXPECT_EQ(arena->bytes_used(), before);
  EXPECT_EQ(entries.entries.at(10).space, space) << "what was published stays";
  for (int i = 0; i < 3; ++i) pass(1s);
  EXPECT_EQ(sets.size(), 1u);
}

// Sets of all sizes, side by side: each is as large as what is in it, and as it was written.
TEST_F(MappingSetsTest, SetsLieBesideEachOther) {
  std::uint64_t bytes = 0;
  for (std::uint32_t i = 0; i < 12; ++i) {
    std::vector<wl_mapping> mappings(i);
    for (std::uint64_t at = 0; wl_mapping & mapping : mappings)
      mapping = {++at << 12 | i, at << 12 | 0xfff, i, module, 0};
    wl_interpreter interpreter{};
    interpreter.python.interpreters = i;
    ASSERT_TRUE(sets.publish(100 + i, {mappings, i % 2 == 0 ? &interpreter : nullptr}, 5, now));
    bytes += (sizeof(wl_maps_head) + i * sizeof(wl_mapping) + (i % 2 == 0 ? sizeof interpreter : 0) + 7) / 8 * 8;
  }
  EXPECT_EQ(arena->bytes_used(), bytes);
  for (std::uint32_t i = 0; i < 12; ++i) {
    const wl_process& process = entries.entries.at(100 + i);
    EXPECT_EQ(head_of(process)->space, process.space);
    ASSERT_EQ(head_of(process)->count, i);
    for (std::uint32_t n = 0; n < i; ++n) {
      wl_mapping read;
      std::memcpy(&read, arena->at(process.maps) + n * sizeof read, sizeof read);
      EXPECT_EQ(read.begin, std::uint64_t{n + 1} << 12 | i);
      EXPECT_EQ(read.bias, i);
    }
    if (i % 2 != 0) continue;
    wl_interpreter read;
    std::memcpy(&read, arena->at(process.maps) + i * sizeof(wl_mapping), sizeof read);
    EXPECT_EQ(read.python.interpreters, i);
  }
  for (std::uint32_t i = 0; i < 12; ++i) sets.forget(100 + i, now);
  for (int i = 0; i < 3; ++i) pass(1s);
  EXPECT_EQ(arena->bytes_used(), 0u);
}

// The kernel side takes a process's entry away when it ends, before anybody here knows of that.
TEST_F(MappingSetsTest, ASetThatIsNotForgottenStaysWithoutAnEntry) {
  publish(10);
  publish(11);
  sets.forget(11, now);
  entries.entries.erase(10);
  for (int i = 0; i < 4; ++i) pass(1s);
  EXPECT_EQ(sets.size(), 1u);
  sets.forget(10, now);
  for (int i = 0; i < 3; ++i) pass(1s);
  EXPECT_EQ(sets.size(), 0u);
}

// Looking at all entries of the kernel's map costs a call each.
TEST_F(MappingSetsTest, EntriesAreLookedAtSeldomAndOnlyForWhatIsReplaced) {
  publish(10);
  for (int i = 0; i < 10; ++i) pass(1s);
  EXPECT_EQ(entries.looks, 0) << "nothing is replaced";
  publish(10);
  for (int i = 0; i < 9; ++i) pass(MappingSets::kGrace / 10);
  EXPECT_EQ(entries.looks, 0);
  pass(MappingSets::kGrace / 10);
  for (int i = 0; i < 9; ++i) pass(MappingSets::kGrace / 10);
  EXPECT_EQ(entries.looks, 1);
}

TEST_F(MappingSetsTest, AFullArenaIsAnError) {
  const std::vector<wl_mapping> many(20'000, {0x1000, 0x2000, 0, module, 0});
  std::uint32_t published = 0;
  while (published < 100) {
    const auto space = sets.publish(published, {many}, 5, now);
    if (!space) {
      EXPECT_EQ(space.error().code, ENOMEM);
      EXPECT_NE(space.error().text.find("a process's mappings"), std::string::npos);
      break;
    }
    ++published;
  }
  EXPECT_EQ(published, 4u) << "one for each of its chunks";
  EXPECT_EQ(sets.size(), published);
  EXPECT_FALSE(entries.entries.contains(published));
}

TEST_F(MappingSetsTest, ForgettingAnUnknownProcessDoesNothing) {
  publish(10);
  sets.forget(99, now);
  for (int i = 0; i < 3; ++i) pass(1s);
  EXPECT_EQ(sets.size(), 1u);
}

}  // namespace
}  // namespace windlass::profiler
