// The small parts of a recording: its targets, its checkpoints, what /proc says of a process, commands.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <future>
#include <thread>

#include "os/priority.h"
#include "profiler/processes/child_command.h"
#include "profiler/processes/live_process.h"
#include "profiler/processes/targets.h"
#include "profiler/samples/checkpoint_schedule.h"
#include "profiler/samples/checkpoint_writer.h"

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

TEST(CheckpointWriter, WritesWithoutBeingWaitedFor) {
  std::promise<void> go_on;
  std::vector<std::uint64_t> written;
  CheckpointWriter writer(
      [&](const profile::Profile& profile, const std::atomic<bool>&) {
        go_on.get_future().wait();
        written.push_back(profile.lost);
      },
      [] { return 7.0; });
  EXPECT_TRUE(writer.is_free());
  profile::Profile profile;
  profile.lost = 3;
  writer.start(5, profile);
  EXPECT_FALSE(writer.is_free());
  EXPECT_FALSE(writer.take_written());
  go_on.set_value();
  std::optional<CheckpointWriter::Written> done;
  while (!(done = writer.take_written())) std::this_thread::yield();
  EXPECT_EQ(done->begin, 5);
  EXPECT_EQ(done->end, 7);
  EXPECT_EQ(written, std::vector<std::uint64_t>{3});
  EXPECT_TRUE(writer.is_free());
  EXPECT_FALSE(writer.take_written()) << "said once";
}

TEST(CheckpointWriter, GivesUpAtTheEnd) {
  bool was_given_up = false;
  {
    CheckpointWriter writer(
        [&](const profile::Profile&, const std::atomic<bool>& given_up) {
          while (!given_up) std::this_thread::yield();
          was_given_up = true;
        },
        [] { return 7.0; });
    writer.start(5, {});
  }
  EXPECT_TRUE(was_given_up);
}

TEST(CheckpointWriter, WithNothingToWriteToItIsNeverFree) {
  const CheckpointWriter writer({}, [] { return 0.0; });
  EXPECT_FALSE(writer.is_free());
}

struct Nice {
  std::string session;  // "" without autogroups
  int own = 0;
};

// Of a child that has called os::raise_priority(). `first`: it has a session of its own.
Nice nice_of_raised(bool first, bool alone) {
  int ends[2];
  if (::pipe(ends) != 0) return {};
  const pid_t child = ::fork();
  if (child == 0) {
    if (first) ::setsid();
    os::raise_priority(alone);
    std::string line;
    std::getline(std::ifstream("/proc/self/autogroup"), line);
    (void)!::write(ends[1], line.data(), line.size());
    _exit(::getpriority(PRIO_PROCESS, 0) + 20);
  }
  ::close(ends[1]);
  char text[100] = {};
  (void)!::read(ends[0], text, sizeof text - 1);
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  const std::string group = text;  // "/autogroup-12 nice 0"
  return {group.substr(std::min(group.find(' '), group.size())), WEXITSTATUS(status) - 20};
}

TEST(Priority, ASessionOfItsOwnIsRaisedWithIt) {
  const std::string raised = " nice -20";
  EXPECT_NE(nice_of_raised(false, true).session, raised) << "there is a shell in it";
  EXPECT_NE(nice_of_raised(true, false).session, raised) << "there is a command in it";
  const Nice nice = nice_of_raised(true, true);
  EXPECT_EQ(nice.session == raised, nice.own == -20 && !nice.session.empty());
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
