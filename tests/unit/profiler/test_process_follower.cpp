#include "profiler/processes/process_follower.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "profiler/kernel/kernel_side.h"
#include "windlass_interpreter_layout.h"

namespace windlass::profiler {
namespace {

constexpr std::uint64_t kSecond = 1'000'000'000;

class FakeSource final : public SampleSource {
 public:
  std::map<std::uint32_t, std::vector<wl_mapping>> published;
  std::map<std::uint32_t, std::uint64_t> epochs;
  std::vector<std::uint32_t> forgotten;
  KernelSideStats figures;

  std::expected<std::uint32_t, SystemError> publish(std::uint32_t tgid, std::span<const wl_mapping> mappings,
                                                    std::uint64_t epoch, const wl_interpreter*,
                                                    const ThreadPlaces&) override {
    published[tgid] = {mappings.begin(), mappings.end()};
    epochs[tgid] = epoch;
    return 1;
  }
  void forget(std::uint32_t tgid) override { forgotten.push_back(tgid); }
  std::expected<void, SystemError> start() override { return {}; }
  void stop() override {}
  int poll(std::chrono::milliseconds, const Handler&) override { return 0; }
  int event_fd() const override { return -1; }
  void for_each_count(const CountHandler&, bool) override {}
  KernelSideStats stats() const override { return figures; }
};

// A machine whose processes, /proc and clock are the test's.
class ProcessFollowerTest : public testing::Test {
 protected:
  std::uint64_t now = 100 * kSecond;
  std::uint64_t scan_takes = 0, others_take = 0;  // of the processor, meanwhile
  std::uint64_t processor_time = 0;
  std::map<std::uint32_t, std::string> proc;
  std::map<std::uint32_t, int> scans;
  FakeSource source;
  ProcessTable table{[](std::uint32_t, std::uint32_t, const os::ProcMap& map) {
                       const auto inode = static_cast<std::uint32_t>(map.file.inode);
                       return ProcessTable::CodeLocation{
                           inode, 0, inode == 0 ? MappingKind::kGenerated : MappingKind::kFile, inode == kPeFile};
                     },
                     [this](std::uint32_t tgid, std::string& text) {
                       ++scans[tgid];
                       now += scan_takes + others_take;
                       processor_time += scan_takes;
                       const auto found = proc.find(tgid);
                       if (found != proc.end()) text = found->second;
                       return found != proc.end();
                     },
                     [](std::uint32_t, std::uint32_t, const std::vector<os::ProcMap>&) {
                       return std::vector<ProcessTable::Image>{{0x5000, 0x6000, kPeFile}};
                     }};
  static constexpr std::uint32_t kPeFile = 77;
  static constexpr const char* kCode = "1000-2000 r-xp 00000000 08:01 7 /a\n";

  ProcessFollower make(Targets& targets) {
    return {table,
            source,
            targets,
            [](std::uint32_t module) { return module + 1000; },
            {.now = [this] { return now; },
             .processor_time = [this] { return processor_time; },
             .processes =
                 [this] {
                   std::vector<std::uint32_t> tgids;
                   for (const auto& [tgid, text] : proc) tgids.push_back(tgid);
                   return tgids;
                 },
             .exists = [this](std::uint32_t tgid) { return proc.contains(tgid); }}};
  }
  static ProcessEvent event(ProcessEventKind kind, std::uint64_t time, std::uint32_t tgid, std::uint32_t parent = 0) {
    ProcessEvent made;
    made.kind = kind;
    made.time = time;
    made.tgid = made.tid = tgid;
    made.parent_tgid = parent;
    return made;
  }
  static ProcessEvent mapping(std::uint64_t time, std::uint32_t tgid, std::uint64_t begin, std::uint64_t inode) {
    ProcessEvent made = event(ProcessEventKind::kMap, time, tgid);
    made.map.begin = begin;
    made.map.end = begin + 0x1000;
    made.map.file.inode = inode;
    made.map.executable = true;
    return made;
  }
  static bool kernel(ProcessFollower& follower, std::uint32_t type, std::uint32_t tgid, std::uint64_t time,
                     std::uint64_t epoch, std::uint64_t address = 0, std::uint64_t length = 0) {
    wl_process_event made{};
    made.head.type = type;
    made.head.tgid = tgid;
    made.head.time = time;
    made.epoch = epoch;
    made.address = address;
    made.length = length;
    return follower.on_kernel(made.head, sizeof made);
  }
};

TEST_F(ProcessFollowerTest, PublishesWhatChangedOnce) {
  Targets targets;
  ProcessFollower follower = make(targets);
  proc = {{10, std::string(kCode) + "7000-8000 r-xp 00000000 00:00 0 \n" +
                   "ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0 [vsyscall]\n"},
          {11, "1000-2000 rw-p 00000000 08:01 7 /data\n"}};
  follower.scan_all();
  follower.finish_round(now);
  ASSERT_EQ(source.published.size(), 1u) << "a process without code has nothing to publish";
  const auto& mappings = source.published.at(10);
  ASSERT_EQ(mappings.size(), 2u) << "not the kernel's vsyscall page";
  EXPECT_EQ(mappings[0].module, 1007u);
  EXPECT_EQ(mappings[0].kind, std::uint32_t{WL_MAPPING_FILE});
  EXPECT_EQ(mappings[1].kind, std::uint32_t{WL_MAPPING_GENERATED});
  source.published.clear();
  follower.finish_round(now);
  EXPECT_TRUE(source.published.empty());
}

TEST_F(ProcessFollowerTest, FollowsTargetsAndTheirChildrenOnly) {
  Targets targets(false);
  targets.add(10);
  ProcessFollower follower = make(targets);
  proc = {{10, kCode}, {20, kCode}};
  follower.scan_all();
  proc[11] = proc[21] = "";
  follower.on_process(event(ProcessEventKind::kFork, now + 1, 11, 10));
  follower.on_process(event(ProcessEventKind::kFork, now + 1, 21, 20));
  follower.on_process(mapping(now + 2, 20, 0x3000, 5));
  follower.on_process(event(ProcessEventKind::kFork, now + 3, 0, 10));    // outside of this PID namespace
  follower.on_process(event(ProcessEventKind::kFork, now + 3, ~0u, 10));  // dead already
  follower.finish_round(now);
  EXPECT_EQ(scans.count(20), 0u);
  EXPECT_EQ(table.find(20), nullptr) << "nothing is kept of others";
  EXPECT_EQ(source.published.size(), 2u);
  EXPECT_TRUE(source.published.contains(10));
  EXPECT_TRUE(source.published.contains(11));
  EXPECT_FALSE(targets.contains(0));
  EXPECT_FALSE(targets.contains(~0u));
}

TEST_F(ProcessFollowerTest, EpochsOfTheKernelSideArePublished) {
  Targets targets(false);
  targets.add(10);
  ProcessFollower follower = make(targets);
  proc = {{10, kCode}};
  follower.scan_all();
  EXPECT_TRUE(kernel(follower, WL_EVENT_EXEC, 10, now, 3));
  EXPECT_TRUE(kernel(follower, WL_EVENT_EXEC, 99, now, 8));  // no target
  follower.finish_round(now);
  EXPECT_EQ(source.epochs.at(10), 3u);
  EXPECT_EQ(source.epochs.size(), 1u);

  proc[12] = kCode;
  EXPECT_TRUE(kernel(follower, WL_EVENT_FORK, 10, now, 4, 12));
  follower.on_process(event(ProcessEventKind::kFork, now + 1, 12, 10));
  EXPECT_TRUE(kernel(follower, WL_EVENT_UNMAP, 10, now + 2, 5, 0x1000, 0x1000));
  follower.on_process(mapping(now + 3, 10, 0x9000, 7));
  proc[10] = "9000-a000 r-xp 00000000 08:01 7 /a\n";
  follower.finish_round(now + 3);
  EXPECT_TRUE(targets.contains(12));
  EXPECT_EQ(source.epochs.at(10), 5u);
  ASSERT_EQ(source.published.at(10).size(), 1u);
  EXPECT_EQ(source.published.at(10)[0].begin, 0x9000u);
}

// perf's ring runs over where many processes map much: its fork event may never come.
TEST_F(ProcessFollowerTest, AChildOfWhomOnlyTheKernelSideTellsHasItsParentsMappings) {
  Targets targets(false);
  targets.add(10);
  ProcessFollower follower = make(targets);
  proc = {{10, kCode}};
  follower.scan_all();
  proc[12] = "";  // it is there, but is not read
  const std::size_t mappings = table.find(10)->maps->mappings().size();
  ASSERT_GT(mappings, 0u);
  EXPECT_TRUE(kernel(follower, WL_EVENT_FORK, 10, now + 1, 4, 12));
  ASSERT_NE(table.find(12), nullptr);
  EXPECT_EQ(table.find(12)->maps->mappings().size(), mappings);
  follower.finish_round(now + 2);
  EXPECT_EQ(source.epochs.at(12), 4u);
  // What it has by then is its own.
  follower.on_process(mapping(now + 3, 12, 0x9000, 7));
  EXPECT_TRUE(kernel(follower, WL_EVENT_FORK, 10, now + 4, 5, 12));
  EXPECT_EQ(table.find(12)->maps->mappings().size(), mappings + 1);
}

// The library was unloaded and another one loaded in its place before the kernel side had heard of it.
TEST_F(ProcessFollowerTest, CodeThatMayBeReplacedIsUsedWhenProcHasIt) {
  Targets targets(false);
  targets.add(10);
  ProcessFollower follower = make(targets);
  proc = {{10, kCode}};
  follower.scan_all();
  EXPECT_TRUE(kernel(follower, WL_EVENT_UNMAP, 10, now + 1, 5, 0x1000, 0x1000));
  follower.on_process(mapping(now + 2, 10, 0x1000, 8));
  follower.finish_round(now + 2);
  EXPECT_EQ(source.published.at(10).size(), 1u) << "what comes over it is noticed";
  EXPECT_EQ(source.epochs.at(10), ProcessFollower::kNoEpoch) << "/proc has the other one";
  proc[10] = "1000-2000 r-xp 00000000 08:01 8 /b\n2000-3000 r-xp 00000000 08:01 9 /c\n";
  follower.finish_round(now + 3);
  EXPECT_EQ(source.epochs.at(10), 5u);
}

// Nothing has to be forgotten of a library that was unloaded: the kernel side tells of what comes in its place.
TEST_F(ProcessFollowerTest, CodeThatIsGoneIsNotReplaced) {
  Targets targets(false);
  targets.add(10);
  ProcessFollower follower = make(targets);
  proc = {{10, kCode}};
  follower.scan_all();
  EXPECT_TRUE(kernel(follower, WL_EVENT_UNMAP, 10, now + 1, 5, 0x1000, 0x1000));
  follower.on_process(mapping(now + 2, 10, 0x1000, 8));
  proc[10] = "2000-3000 r-xp 00000000 08:01 9 /c\n";
  follower.finish_round(now + 3);
  EXPECT_EQ(source.epochs.at(10), 5u);
  // Code made at run time is the same, however the kernel divides it.
  follower.on_process(mapping(now + 4, 10, 0x7000, 0));
  follower.on_process(mapping(now + 4, 10, 0x8000, 0));
  proc[10] = "7000-9000 r-xp 00000000 00:00 0 \n";
  EXPECT_TRUE(kernel(follower, WL_EVENT_UNMAP, 10, now + 5, 6, 0x1000, 0x1000));
  follower.finish_round(now + 1'000'000'000);
  EXPECT_EQ(source.epochs.at(10), 6u);
}

TEST_F(ProcessFollowerTest, AnEndIsForgotten) {
  Targets targets(false);
  targets.add(10);
  ProcessFollower follower = make(targets);
  proc = {{10, kCode}};
  follower.scan_all();
  EXPECT_TRUE(kernel(follower, WL_EVENT_EXIT, 10, now, 0));
  follower.finish_round(now);
  EXPECT_EQ(source.forgotten, std::vector<std::uint32_t>{10});
  EXPECT_TRUE(source.published.empty());
  EXPECT_FALSE(targets.contains(10));
  EXPECT_TRUE(table.alive().empty());
}

// Where everything is a target, too.
TEST_F(ProcessFollowerTest, AProcessThatEndedIsNotPublished) {
  Targets targets;
  ProcessFollower follower = make(targets);
  proc = {{10, kCode}};
  follower.scan_all();
  EXPECT_TRUE(kernel(follower, WL_EVENT_EXIT, 10, now, 0));
  follower.finish_round(now);
  EXPECT_TRUE(source.published.empty());
}

TEST_F(ProcessFollowerTest, ADeadProcessWhoseEndWasLostIsSweptOut) {
  Targets targets;
  ProcessFollower follower = make(targets);
  proc = {{10, kCode}, {11, kCode}};
  follower.scan_all();
  follower.finish_round(now);
  proc.erase(11);
  follower.finish_round(now + ProcessFollower::kSweepInterval - 1);
  EXPECT_TRUE(source.forgotten.empty());
  follower.finish_round(now + 2 * ProcessFollower::kSweepInterval);
  EXPECT_EQ(source.forgotten, std::vector<std::uint32_t>{11});
  EXPECT_EQ(table.alive(), std::vector<std::uint32_t>{10});
}

TEST_F(ProcessFollowerTest, LostRecordsAreMadeGoodFromProc) {
  Targets targets;
  ProcessFollower follower = make(targets);
  proc = {{10, kCode}};
  follower.finish_round(now);  // sweeps
  follower.on_process(event(ProcessEventKind::kLost, now, 0));
  follower.finish_round(now);
  EXPECT_EQ(follower.rescans(), 1u);
  EXPECT_TRUE(source.published.contains(10));
  follower.on_process(event(ProcessEventKind::kLost, now, 0));
  follower.finish_round(now + ProcessFollower::kRescanInterval);
  EXPECT_EQ(scans.at(10), 1) << "not more than once a second";
  follower.finish_round(now + ProcessFollower::kRescanInterval + 1);
  EXPECT_EQ(scans.at(10), 2);

  source.figures.lost_process_events = 3;
  follower.finish_round(now + ProcessFollower::kSweepInterval + 1);  // notices
  follower.finish_round(now + ProcessFollower::kSweepInterval + 2);
  EXPECT_EQ(scans.at(10), 3);
}

TEST_F(ProcessFollowerTest, AProcessIsReadAgainOnceASecondAtMost) {
  Targets targets(false);
  targets.add(10);
  ProcessFollower follower = make(targets);
  proc = {{10, kCode}, {20, kCode}};
  for (int i = 0; i < 5; ++i) follower.rescan(10, now + static_cast<unsigned>(i));
  follower.rescan(20, now);
  EXPECT_EQ(scans[10], 1);
  EXPECT_EQ(scans[20], 0) << "no target";
  follower.rescan(10, now + ProcessFollower::kRescanInterval);
  EXPECT_EQ(scans[10], 2);
  EXPECT_EQ(follower.rescans(), 2u);
}

// Samples of code that has come are in the same round: they need what /proc alone says of it.
// The rings of samples run over meanwhile.
TEST_F(ProcessFollowerTest, ARescanOfThousandsIsNoRoundOfSeconds) {
  constexpr std::uint32_t kProcesses = 1000;
  for (std::uint32_t tgid = 1; tgid <= kProcesses; ++tgid) proc[tgid] = kCode;
  Targets everything;
  ProcessFollower follower = make(everything);
  follower.on_process(event(ProcessEventKind::kLost, now, 0));
  scan_takes = 1'000'000;
  std::size_t rounds = 0;
  for (; scans.size() < kProcesses && rounds < kProcesses; ++rounds) {
    const std::uint64_t before = now;
    follower.finish_round(now);
    ASSERT_LE(now - before, ProcessFollower::kRescanShare + scan_takes);
    now += kSecond / 100;
  }
  EXPECT_EQ(scans.size(), kProcesses);
  EXPECT_GT(rounds, 10u);
  EXPECT_EQ(follower.rescans(), 1u);
  for (const auto& [tgid, count] : scans) ASSERT_EQ(count, 1) << tgid;
}

TEST_F(ProcessFollowerTest, CodeInNoFileIsLookedForWhenItComes) {
  Targets targets;
  ProcessFollower follower = make(targets);
  proc = {{10, std::string(kCode) + "5000-6000 r-xp 00000000 00:00 0 \n9000-a000 r-xp 00000000 00:00 0 \n"}};
  follower.on_process(mapping(now, 10, 0x1000, 7));
  EXPECT_EQ(scans[10], 0) << "a process with files only costs nothing";
  follower.on_process(mapping(now, 10, 0x5000, 0));
  EXPECT_EQ(scans[10], 1);
  ASSERT_NE(table.find(10), nullptr);
  EXPECT_NE(table.find(10)->maps->find(0x9000), nullptr) << "moved there, of which no event tells";
  follower.finish_round(now);
  EXPECT_EQ(scans[10], 1);
}

TEST_F(ProcessFollowerTest, LookingForImagesTakesItsShareOfTimeOnly) {
  Targets targets;
  ProcessFollower follower = make(targets);
  proc = {{10, kCode}};
  scan_takes = 1000;
  const auto generate = [&] { follower.on_process(mapping(now + 1, 10, 0x5000, 0)); };
  follower.on_process(mapping(now, 10, 0x3000, kPeFile));
  generate();
  follower.finish_round(now);
  EXPECT_EQ(scans[10], 1);
  follower.on_process(mapping(now, 10, 0x3000, kPeFile));
  generate();
  follower.finish_round(now);
  EXPECT_EQ(scans[10], 2) << "the first opens what the others know";
  now += scan_takes * (ProcessFollower::kImageScanShare - 1);
  follower.on_process(mapping(now, 10, 0x3000, kPeFile));
  generate();
  follower.finish_round(now);
  EXPECT_EQ(scans[10], 2) << "it would be more than a share of the time";
  proc[11] = proc[10];
  follower.on_process(mapping(now, 11, 0x3000, kPeFile));
  follower.on_process(mapping(now + 1, 11, 0x5000, 0));
  EXPECT_EQ(scans[11], 1) << "each process has its share";
  now += scan_takes;
  follower.finish_round(now);
  EXPECT_EQ(scans[10], 3);
}

TEST_F(ProcessFollowerTest, WhatOthersTakeOfTheProcessorIsNoShareOfTheLooks) {
  Targets targets;
  ProcessFollower follower = make(targets);
  proc = {{10, kCode}};
  others_take = 100 * kSecond;
  for (int look = 1; look <= 4; ++look) {
    follower.on_process(mapping(now, 10, 0x3000, kPeFile));
    follower.on_process(mapping(now + 1, 10, 0x5000, 0));
    follower.finish_round(now);
    EXPECT_EQ(scans[10], look);
  }
}

TEST_F(ProcessFollowerTest, EventsThatAreNotItsOwnOrCutShort) {
  Targets targets;
  ProcessFollower follower = make(targets);
  wl_process_event event{};
  event.head.type = WL_EVENT_STACK;
  EXPECT_FALSE(follower.on_kernel(event.head, sizeof event));
  event.head.type = WL_EVENT_EXIT;
  event.head.tgid = 10;
  EXPECT_TRUE(follower.on_kernel(event.head, sizeof event - 1));
  EXPECT_EQ(follower.malformed(), 1u);
  EXPECT_TRUE(source.forgotten.empty());
}

}  // namespace
}  // namespace windlass::profiler
