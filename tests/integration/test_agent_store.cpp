// `windlass agent`: no sample is missing in the store, none is there twice, and nothing that goes wrong ends the
// recording.
#include <gtest/gtest.h>
#include <sqlite3.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "profiler/export/pprof.h"
#include "support/agent_store.h"
#include "support/store_contract.h"

namespace windlass::testing {
// test_store runs it.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(StoreContract);
}  // namespace windlass::testing

namespace windlass::test {
namespace {

TEST_F(AgentStore, HasWhatTheRecorderCounted) {
  const CommandResult done = agent("-F 97 --interval 2s --host here -- " + std::string(kBusy));
  expect_complete(done);
  const auto numbers = numbers_of(done.output);
  EXPECT_GT(numbers[0], 0u);
  EXPECT_GE(numbers[2], 1u);
  const store::Stacks stacks = all();
  EXPECT_EQ(stacks.intervals, numbers[2]);
  for (const auto& set : stacks.label_sets) EXPECT_EQ(set.host, "here");

  sqlite3* database = nullptr;
  sqlite3_stmt* gaps = nullptr;
  ASSERT_EQ(sqlite3_open(path_.c_str(), &database), SQLITE_OK);
  ASSERT_EQ(sqlite3_prepare_v2(
                database,
                "SELECT count(*) FROM intervals a WHERE sequence > 0 AND NOT EXISTS (SELECT 1 FROM intervals b WHERE "
                "b.end_ns = a.begin_ns)",
                -1, &gaps, nullptr),
            SQLITE_OK);
  ASSERT_EQ(sqlite3_step(gaps), SQLITE_ROW);
  EXPECT_EQ(sqlite3_column_int(gaps, 0), 0) << "an interval does not begin where the one before ends";
  sqlite3_finalize(gaps);
  sqlite3_close(database);

  const CommandResult report = run(fmt::format("{} report --folded {}@-1h 2>&1", WINDLASS_COMMAND, path_));
  EXPECT_EQ(report.status, 0) << report.output;
  EXPECT_NE(report.output.find("sh;"), std::string::npos) << report.output.substr(0, 2000);
  EXPECT_EQ(run(fmt::format("{} report --diff {}@-1h {}@-1h 2>&1", WINDLASS_COMMAND, path_, path_)).status, 0);
  EXPECT_EQ(run(fmt::format("{} report {}@yesterday 2>&1", WINDLASS_COMMAND, path_)).status, 2);
}

// The store counts page faults. The last line counts samples, which were taken of ten page faults each.
TEST_F(AgentStore, TheLastLineCountsSamples) {
  const CommandResult done = agent("-e page-faults@10 --interval 1s -- sh -c ': $(seq 200000)'");
  EXPECT_GT(numbers_of(done.output)[0], 0u);
  expect_complete(done, 10);
}

TEST_F(AgentStore, ASignalWritesTheLastInterval) {
  auto one = start("-a --interval 1h");
  ASSERT_TRUE(one->said("; Ctrl-C ends it")) << one->text();
  std::this_thread::sleep_for(std::chrono::seconds(2));
  one->signal(SIGTERM);
  const CommandResult done = one->wait();
  const auto numbers = numbers_of(done.output);
  EXPECT_EQ(numbers[2], 1u) << done.output;
  expect_complete(done);
  // A second agent goes on in the same file.
  const auto more = numbers_of(agent("-a --interval 1s --duration 3").output);
  EXPECT_EQ(count_of(all()), numbers[0] + more[0]);
}

TEST_F(AgentStore, ALockedStoreDoesNotStopTheRecording) {
  ASSERT_TRUE(store::open_store(path_, {.write = true, .keep = {}}).has_value());
  sqlite3* other = nullptr;
  ASSERT_EQ(sqlite3_open(path_.c_str(), &other), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(other, "BEGIN IMMEDIATE", nullptr, nullptr, nullptr), SQLITE_OK);
  auto one = start("-a -F 97 --interval 1s");
  EXPECT_TRUE(one->said("another program has locked the store")) << one->text();
  sqlite3_exec(other, "ROLLBACK", nullptr, nullptr, nullptr);
  sqlite3_close(other);
  await_intervals(2);
  one->signal(SIGTERM);
  expect_complete(one->wait());
}

TEST_F(AgentStore, TellsTheServiceManager) {
  const std::string name = folder_ + "/notify";
  const int receiver = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  name.copy(address.sun_path, sizeof address.sun_path - 1);
  ASSERT_EQ(bind(receiver, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  agent("-a --duration 4", fmt::format("env NOTIFY_SOCKET={} WATCHDOG_USEC=5000000", name));
  std::vector<std::string> told;
  char text[64];
  for (ssize_t got; (got = recv(receiver, text, sizeof text, MSG_DONTWAIT)) > 0;)
    told.emplace_back(text, static_cast<std::size_t>(got));
  close(receiver);
  ASSERT_GE(told.size(), 4u);
  EXPECT_EQ(told.front(), "READY=1");
  EXPECT_EQ(told[1], "WATCHDOG=1");
  EXPECT_EQ(told.back(), "STOPPING=1");
}

// What the contract test does with profiles that are made by rule. Of a few programs: to name what a whole machine runs
// may take minutes.
TEST_F(AgentStore, ARecordingIsReadAsItWasWritten) {
  const std::string file = folder_ + "/p.pb.gz";
  constexpr const char* kWork =
      "for i in 1 2 3; do seq 20000 | sort -n | md5sum; done; ls -lR /usr/share > /dev/null; sleep 0.1";
  const CommandResult done =
      run(fmt::format("{} record -F 1999 --off-cpu -o {} -- sh -c '{}' 2>&1", WINDLASS_COMMAND, file, kWork));
  auto recorded = exporter::read_pprof_file(file);
  ASSERT_TRUE(recorded.has_value()) << done.output;
  ASSERT_GT(recorded->samples.size(), 50u);
  auto store = store::open_store(path_, {.write = true, .keep = {}});
  ASSERT_TRUE(store.has_value());
  windlass::testing::expect_round_trip(**store, windlass::testing::batch_at(0, windlass::testing::tidied(*recorded)));
  windlass::testing::StoreReference reference;
  reference.append(windlass::testing::batch_at(0, *recorded));
  windlass::testing::KeptBatch again = windlass::testing::batch_at(1, *recorded, "host-b");
  ASSERT_TRUE((*store)->append(again.batch()).value_or(false));
  reference.append(again);
  for (const store::Filter& filter : {store::Filter{}, {"off-cpu", {}}, {"cpu", {{"host", "host-b"}}}})
    windlass::testing::expect_same_answers(**store, reference, filter, windlass::testing::kStart,
                                           windlass::testing::kStart + 2 * windlass::testing::kTenSeconds);
}

}  // namespace
}  // namespace windlass::test
