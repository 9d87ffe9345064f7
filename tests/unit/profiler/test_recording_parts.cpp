// The small parts of a recording: its targets, its checkpoints, what /proc says of a process, commands.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "profiler/processes/child_command.h"
#include "profiler/processes/live_process.h"
#include "profiler/processes/targets.h"
#include "profiler/samples/checkpoint_schedule.h"

namespace windlass::profiler {
namespace {

TEST(Targets, TheWholeMachineHasNoList) {
  Targets targets;
  targets.add(1);
  targets.remove(1);
  EXPECT_TRUE(targets.everything());
  EXPECT_TRUE(targets.contains(1));
  EXPECT_TRUE(targets.chosen().empty());
}

TEST(Targets, ChosenOnesMayAllBeGone) {
  Targets targets(false);
  EXPECT_FALSE(targets.contains(1));
  targets.add(1);
  EXPECT_TRUE(targets.contains(1));
  targets.remove(1);
  EXPECT_FALSE(targets.contains(1)) << "not the whole machine then";
}

TEST(CheckpointSchedule, DoublesUpToAMinute) {
  CheckpointSchedule schedule;
  double now = 0;
  std::vector<double> waits;
  for (int i = 0; i < 8; ++i) {
    const double begin = now;
    while (!schedule.due(now)) now += 0.5;
    waits.push_back(now - begin);
    schedule.made(now, now);
  }
  EXPECT_EQ(waits, (std::vector<double>{2, 4, 8, 16, 32, 60, 60, 60}));
}

TEST(CheckpointSchedule, CostsAHundredthOfTheTime) {
  CheckpointSchedule schedule;
  schedule.made(2, 5);  // three seconds
  EXPECT_FALSE(schedule.due(5 + 299.9));
  EXPECT_TRUE(schedule.due(5 + 300.1));
}

TEST(LifeStatus, WhatIsAlive) {
  const auto parse = [](const char* state, const char* threads, const char* name = "x") {
    return parse_life_status(std::string("Name:\t") + name + "\nUmask:\t0022\nState:\t" + state +
                             "\nTgid:\t42\nPid:\t43\nThreads:\t" + threads + "\n");
  };
  EXPECT_EQ(parse("R (running)", "1").tgid, 42u);
  EXPECT_TRUE(parse("R (running)", "1").alive());
  EXPECT_TRUE(parse("Z (zombie)", "2").alive()) << "its first thread has ended, it has not";
  EXPECT_FALSE(parse("Z (zombie)", "1").alive());
  EXPECT_FALSE(parse("X (dead)", "1").alive());
  EXPECT_TRUE(parse("S (sleeping)", "1", "Threads:\t9 Tgid: 1").alive()) << "a name is no field";
  EXPECT_EQ(parse("S (sleeping)", "1", "Threads:\t9 Tgid: 1").tgid, 42u);
  EXPECT_FALSE(parse_life_status("").alive());
  EXPECT_FALSE(parse_life_status("Tgid:").alive());
}

TEST(LiveProcess, ThisOne) {
  const auto self = static_cast<std::uint32_t>(getpid());
  EXPECT_TRUE(read_life_status(self).alive());
  EXPECT_EQ(read_life_status(self).tgid, self);
  EXPECT_TRUE(process_exists(self));
  EXPECT_TRUE(cpu_seconds_of(self));
  EXPECT_EQ(find_target(self, {}).value_or(0), self);
}

TEST(LiveProcess, NoneAtAll) {
  constexpr std::uint32_t kNone = 1u << 30;  // above PID_MAX_LIMIT
  EXPECT_FALSE(read_life_status(kNone).alive());
  EXPECT_FALSE(process_exists(kNone));
  EXPECT_FALSE(cpu_seconds_of(kNone));
  const auto target = find_target(kNone, {});
  ASSERT_FALSE(target);
  EXPECT_EQ(target.error().code, ESRCH);
}

TEST(FindCommand, AsExecvpDoes) {
  EXPECT_EQ(find_command("./x/y"), "./x/y");
  EXPECT_EQ(find_command("no-such-command-anywhere"), "");
  const std::string shell = find_command("sh");
  EXPECT_TRUE(shell.ends_with("/sh")) << shell;
}

}  // namespace
}  // namespace windlass::profiler
