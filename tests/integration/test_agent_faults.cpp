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
  // Of one agent alone: a sample is in the store, or counts as lost. So may other samples, which were never taken.
  void expect_complete(const CommandResult& done) {
    EXPECT_EQ(done.status, 0) << done.output;
    const auto numbers = numbers_of(done.output);
    const store::Stacks stacks = all();
    EXPECT_EQ(count_of(stacks), numbers[0]) << done.output;
    EXPECT_LE(numbers[0], numbers[1]) << done.output;
    EXPECT_GE(numbers[0] + stacks.lost, numbers[1]) << done.output;
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
  EXPECT_GE(numbers[2], 12u);
  EXPECT_GT(numbers[0], 200u);
  const store::Stacks stacks = all();
  expect_complete(done);
  EXPECT_LE(stacks.lost, 2u);
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
  if (mount("none", disk.c_str(), "tmpfs", 0, "size=2m") != 0) GTEST_SKIP() << "no file system can be mounted";
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

TEST_F(AgentFaults, TwoAgentsShareAStore) {
  auto one = start("-a -F 97 --interval 500ms --host one --duration 5");
  auto two = start("-a -F 97 --interval 500ms --host two --duration 5");
  const CommandResult first = one->wait(), second = two->wait();
  EXPECT_EQ(first.status, 0) << first.output;
  EXPECT_EQ(second.status, 0) << second.output;
  const auto a = numbers_of(first.output), b = numbers_of(second.output);
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
