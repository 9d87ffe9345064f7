// What goes wrong around an agent: no sample is there twice, and what is lost is counted.
#include <gtest/gtest.h>
#include <sqlite3.h>
#include <sys/mount.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include <fmt/format.h>

#include "support/agent_store.h"

namespace windlass::test {
namespace {

class AgentFaults : public AgentStore {
 protected:
  [[nodiscard]] std::string asked(const std::string& sql) const {
    sqlite3* database = nullptr;
    sqlite3_stmt* statement = nullptr;
    EXPECT_EQ(sqlite3_open_v2(path_.c_str(), &database, SQLITE_OPEN_READONLY, nullptr), SQLITE_OK);
    EXPECT_EQ(sqlite3_prepare_v2(database, sql.c_str(), -1, &statement, nullptr), SQLITE_OK) << sql;
    std::string text;
    if (sqlite3_step(statement) == SQLITE_ROW) text = reinterpret_cast<const char*>(sqlite3_column_text(statement, 0));
    sqlite3_finalize(statement);
    sqlite3_close(database);
    return text;
  }
  // 0: there is no store yet.
  [[nodiscard]] std::uint64_t all_intervals() {
    return std::filesystem::exists(path_) ? static_cast<std::uint64_t>(all().intervals) : 0;
  }
  // The numbers of the last line of an agent that has ended well.
  static std::vector<unsigned long> numbers_at_end(Running& agent) {
    const CommandResult done = agent.wait();
    EXPECT_EQ(done.status, 0) << done.output;
    return numbers_of(done.output);
  }
  void expect_sound() const {
    EXPECT_EQ(asked("PRAGMA integrity_check"), "ok");
    EXPECT_EQ(asked("SELECT count(*) FROM intervals a JOIN intervals b ON a.host = b.host AND a.agent_start_ns = "
                    "b.agent_start_ns AND a.id < b.id WHERE a.end_ns > b.begin_ns"),
              "0")
        << "two intervals of an agent have a time in common";
  }
};

// The recorder forgets what it has told, here every three seconds.
TEST_F(AgentFaults, ForgettingLosesNothing) {
  const CommandResult done = agent("-F 199 --interval 500ms -- " + std::string(kBusy));
  EXPECT_EQ(done.status, 0) << done.output;
  const auto numbers = numbers_of(done.output);
  EXPECT_GE(numbers[2], 2u);
  EXPECT_GT(numbers[0], 0u);
  expect_complete(done);
  expect_sound();
  const CommandResult report = run(fmt::format("{} report --folded {} 2>&1", WINDLASS_COMMAND, path_));
  EXPECT_NE(report.output.find("sh;"), std::string::npos) << report.output.substr(0, 2000);
}

TEST_F(AgentFaults, KilledAndStartedAgain) {
  auto first = start("-a -F 97 --interval 1s");
  await_intervals(2);
  first->signal(SIGKILL);
  (void)first->wait();
  const std::uint64_t kept = count_of(all());
  EXPECT_GT(kept, 0u);
  const CommandResult second = agent("-a -F 97 --interval 1s --duration 3");
  EXPECT_EQ(second.status, 0) << second.output;
  const auto numbers = numbers_of(second.output);
  EXPECT_LE(numbers[0], numbers[1]);
  EXPECT_EQ(count_of(all()), kept + numbers[0]);
  expect_sound();
}

// At any moment of a write, and of the start: what the store had, it has.
TEST_F(AgentFaults, KilledAgainAndAgain) {
  std::uint64_t kept = 0;
  for (int round = 0; round < 8; ++round) {
    auto agent = start("-a -F 997 --interval 50ms");
    await_intervals(all_intervals() + 2);
    std::this_thread::sleep_for(std::chrono::milliseconds(7 * round));
    const std::uint64_t before = count_of(all());
    agent->signal(SIGKILL);
    (void)agent->wait();
    EXPECT_GE(before, kept);
    kept = count_of(all());
    EXPECT_GE(kept, before);
  }
  expect_sound();
  EXPECT_EQ(asked("SELECT count(*) FROM samples WHERE interval NOT IN (SELECT id FROM intervals)"), "0");
}

// libfaketime's file says what the agent's clock shows. The other clocks go on.
TEST_F(AgentFaults, TheClockIsSet) {
  const std::string library = "/usr/lib/" WINDLASS_TRIPLET "/faketime/libfaketime.so.1", file = folder_ + "/clock";
  if (!std::filesystem::exists(library)) GTEST_SKIP() << "faketime is not installed";
  const auto set = [&](const char* clock) {
    std::ofstream(file + ".new") << clock << "\n";
    std::filesystem::rename(file + ".new", file);
  };
  set("+0");
  auto agent =
      start("-a -F 97 --interval 500ms", fmt::format("env LD_PRELOAD={} FAKETIME_TIMESTAMP_FILE={} FAKETIME_NO_CACHE=1 "
                                                     "FAKETIME_DONT_FAKE_MONOTONIC=1",
                                                     library, file));
  std::uint64_t intervals = 2;
  await_intervals(intervals);
  for (const char* clock : {"+365d", "-1d", "+1h", "+0"}) {
    set(clock);
    await_intervals(intervals += 3);
  }
  agent->signal(SIGTERM);
  expect_complete(agent->wait());
  EXPECT_EQ(asked("PRAGMA integrity_check"), "ok");
  EXPECT_NE(asked("SELECT count(*) FROM intervals a JOIN intervals b ON b.id = a.id + 1 WHERE b.begin_ns > a.end_ns + "
                  "86400000000000"),
            "0")
      << "the clock was a year ahead";
  EXPECT_NE(asked("SELECT count(*) FROM intervals a JOIN intervals b ON b.id = a.id + 1 WHERE b.begin_ns < a.begin_ns"),
            "0")
      << "and was set back";
  EXPECT_EQ(asked("SELECT count(*) FROM intervals WHERE abs(end_ns - begin_ns - duration_ns) > 3600000000000"), "0")
      << "an interval has one clock";
  EXPECT_EQ(asked("SELECT count(*) FROM intervals WHERE sequence >= (SELECT count(*) FROM intervals)"), "0");
}

// As builds and scripts start them. Many have ended before anything can be read of them.
TEST_F(AgentFaults, ThousandsOfShortProcesses) {
  auto agent = start("-a -F 97 --interval 500ms");
  await_intervals(1);
  EXPECT_EQ(run("for i in $(seq 2000); do /bin/true & [ $((i % 50)) -ne 0 ] || wait; done; wait").status, 0);
  const std::uint64_t before = all().intervals;
  await_intervals(before + 2);
  agent->signal(SIGTERM);
  expect_complete(agent->wait());
  expect_sound();
}

TEST_F(AgentFaults, StoppedForSomeSeconds) {
  auto agent = start("-a -F 97 --interval 1s");
  await_intervals(1);
  agent->signal(SIGSTOP);
  std::this_thread::sleep_for(std::chrono::seconds(4));
  agent->signal(SIGCONT);
  const std::uint64_t before = all().intervals;
  await_intervals(before + 2);
  agent->signal(SIGTERM);
  expect_complete(agent->wait());
  expect_sound();
  EXPECT_NE(asked("SELECT count(*) FROM intervals WHERE end_ns - begin_ns > 3500000000"), "0")
      << "the one in which it was stopped";
  EXPECT_EQ(asked("SELECT count(*) FROM intervals a WHERE sequence > 0 AND NOT EXISTS (SELECT 1 FROM intervals b "
                  "WHERE b.end_ns = a.begin_ns)"),
            "0");
}

TEST_F(AgentFaults, AFullDiskIsWaitedFor) {
  const std::string disk = folder_ + "/disk";
  std::filesystem::create_directories(disk);
  if (mount("none", disk.c_str(), "tmpfs", 0, "size=8m") != 0) GTEST_SKIP() << "no file system can be mounted";
  path_ = disk + "/profiles.db";
  auto agent = start("-a -F 97 --interval 500ms");
  await_intervals(1);
  const std::string filler = disk + "/filler";
  {
    std::ofstream out(filler, std::ios::binary);
    const std::string page(4096, 'x');
    while (out.write(page.data(), static_cast<std::streamsize>(page.size())).flush()) continue;
  }
  EXPECT_TRUE(agent->said("for the store") || agent->said("No space left")) << agent->text();
  std::this_thread::sleep_for(std::chrono::seconds(1));
  std::filesystem::remove(filler);
  const std::uint64_t before = all().intervals;
  await_intervals(before + 2);
  agent->signal(SIGTERM);
  expect_complete(agent->wait());
  expect_sound();
  umount2(disk.c_str(), MNT_DETACH);
}

TEST_F(AgentFaults, AFileThatIsDeletedBeginsAnew) {
  auto agent = start("-a -F 97 --interval 500ms");
  await_intervals(2);
  std::filesystem::rename(path_, folder_ + "/moved.db");
  await_intervals(2);
  std::filesystem::remove(path_);
  await_intervals(2);
  agent->signal(SIGTERM);
  const CommandResult done = agent->wait();
  EXPECT_EQ(done.status, 0) << done.output;
  const auto numbers = numbers_of(done.output);
  EXPECT_LE(numbers[0], numbers[1]);
  EXPECT_GE(numbers[2], 6u);
  expect_sound();
}

// Each has all samples of the machine.
TEST_F(AgentFaults, TwoAgentsHaveTwoStores) {
  const std::string first = path_, second = folder_ + "/second.db";
  auto one = start("-a -F 97 --interval 500ms --duration 5");
  path_ = second;
  auto two = start("-a -F 97 --interval 500ms --duration 5");
  expect_complete(two->wait());
  expect_sound();
  path_ = first;
  expect_complete(one->wait());
  expect_sound();
}

// Batches are told apart by the start of the agent, though the host is one.
TEST_F(AgentFaults, TwoAgentsOfOneHostShareAStore) {
  auto one = start("-a -F 97 --interval 500ms --duration 5");
  auto two = start("-a -F 97 --interval 500ms --duration 5");
  const auto a = numbers_at_end(*one), b = numbers_at_end(*two);
  const store::Stacks stacks = all();
  EXPECT_EQ(count_of(stacks), a[0] + b[0]);
  EXPECT_EQ(stacks.intervals, a[2] + b[2]);
  expect_sound();
}

TEST_F(AgentFaults, TwoAgentsShareAStore) {
  auto one = start("-a -F 97 --interval 500ms --host one --duration 5");
  auto two = start("-a -F 97 --interval 500ms --host two --duration 5");
  const auto a = numbers_at_end(*one), b = numbers_at_end(*two);
  EXPECT_LE(a[0], a[1]);
  EXPECT_LE(b[0], b[1]);
  EXPECT_EQ(count_of(all()), a[0] + b[0]);
  std::uint64_t of_one = 0;
  const store::Stacks stacks = all();
  for (const auto& stack : stacks.stacks)
    if (stacks.label_sets[stack.labels].host == "one") of_one += stack.sums.count;
  EXPECT_EQ(of_one, a[0]);
  expect_sound();
}

}  // namespace
}  // namespace windlass::test
