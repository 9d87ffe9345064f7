// The small parts of a recording: its targets, its checkpoints, what /proc says of a process, commands.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <future>
#include <optional>
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

// What sched(7) has for two threads, this one and another, in a child process.
struct Policies {
  int own = 0;
  int other = 0;
  bool operator==(const Policies&) const = default;
};

Policies policies_of(pid_t other) { return {::sched_getscheduler(0), ::sched_getscheduler(other)}; }

// Before os::EndsFirst, while it is there, when it is gone or has been there for too long.
std::array<Policies, 3> policies_of_ending(bool raise, bool too_long) {
  int ends[2];
  if (::pipe(ends) != 0) return {};
  const pid_t child = ::fork();
  if (child == 0) {
    if (raise) os::raise_priority(false);
    std::atomic<pid_t> id = 0;
    std::thread other([&id] {
      id = ::gettid();
      id.notify_all();
      ::pause();
    });
    id.wait(0);
    std::array<Policies, 3> found;
    found[0] = policies_of(id);
    auto first = std::make_optional<os::EndsFirst>();
    found[1] = policies_of(id);
    if (!too_long) first.reset();
    for (int i = 0; i < 1000 && policies_of(id) != found[0]; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    found[2] = policies_of(id);
    (void)!::write(ends[1], &found, sizeof found);
    _exit(0);
  }
  ::close(ends[1]);
  std::array<Policies, 3> found{};
  (void)!::read(ends[0], &found, sizeof found);
  ::close(ends[0]);
  ::waitpid(child, nullptr, 0);
  return found;
}

TEST(Priority, WhoEndsRunsFirstAndNotForLong) {
  constexpr Policies kUsual{SCHED_OTHER, SCHED_OTHER}, kFirst{SCHED_RR, SCHED_RR};
  const sched_param lowest{::sched_get_priority_min(SCHED_RR)};
  const Nice nice = nice_of_raised(true, true);
  bool allowed = nice.own == -20;
  if (allowed) {
    allowed = ::sched_setscheduler(0, SCHED_RR, &lowest) == 0;
    constexpr sched_param kNone{};
    (void)::sched_setscheduler(0, SCHED_OTHER, &kNone);
  }
  for (const bool too_long : {false, true}) {
    SCOPED_TRACE(too_long);
    const auto found = policies_of_ending(true, too_long);
    EXPECT_EQ(found[0], kUsual);
    EXPECT_EQ(found[1], allowed ? kFirst : kUsual);
    EXPECT_EQ(found[2], kUsual);
    EXPECT_EQ(policies_of_ending(false, too_long)[1], kUsual) << "its priority was not raised";
  }
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
