// `windlass agent` with a store in ClickHouse that goes away.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <optional>
#include <string>
#include <thread>

#include <fmt/format.h>

#include "os/descriptor.h"
#include "profiler/spool/spool_files.h"
#include "profiler/store/clickhouse_store.h"
#include "profiler/store/packed_batch.h"
#include "support/agent_store.h"
#include "support/child_program.h"
#include "support/clickhouse_process.h"

namespace windlass::test {
namespace {

using testing::ClickhouseProcess;

class AgentClickhouse : public AgentStore {
 protected:
  void SetUp() override {
    AgentStore::SetUp();
    if (IsSkipped()) return;
    if (testing::clickhouse_program().empty()) GTEST_SKIP() << "no clickhouse-server, and apt has none";
    server_.emplace(folder_ + "/server");
    ASSERT_TRUE(server_->start());
    path_ = server_->url("agents");
    ASSERT_TRUE(store::create_clickhouse(path_, {}).has_value());
  }
  void TearDown() override {
    server_.reset();
    AgentStore::TearDown();
  }

  [[nodiscard]] std::string spool() const { return folder_ + "/spool"; }
  [[nodiscard]] os::Descriptor spool_folder() const {
    return os::Descriptor(::open(spool().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  }
  [[nodiscard]] std::size_t waiting() const { return spool::list_batches(spool_folder().get())->batches.size(); }
  // False: half a minute has gone.
  template <typename Holds>
  static bool await(Holds holds) {
    for (int tries = 0; tries < 1500; ++tries, std::this_thread::sleep_for(std::chrono::milliseconds(20)))
      if (holds()) return true;
    return false;
  }
  std::unique_ptr<Running> start_agent(const std::string& host, const std::string& options = "") {
    return start(
        fmt::format("-a -F 97 --interval 300ms --host {0} --store-spool {1} --metrics unix:{2}/{0}.metrics {3}", host,
                    spool(), folder_, options));
  }
  [[nodiscard]] std::uint64_t counter(const std::string& host, const std::string& name) const {
    const std::string text =
        run(fmt::format("curl -s --unix-socket {}/{}.metrics http://localhost/metrics", folder_, host)).output;
    const std::size_t at = text.find("\n" + name + " ");
    return at == std::string::npos ? ~std::uint64_t{0} : std::stoull(text.substr(at + name.size() + 2));
  }
  store::Stacks of_host(const std::string& host) {
    const auto store = store::open_store(path_);
    EXPECT_TRUE(store.has_value());
    auto stacks = (*store)->stacks({"", {{"host", host}}}, 0, ~std::uint64_t{0});
    EXPECT_TRUE(stacks.has_value());
    return std::move(*stacks);
  }

  std::optional<ClickhouseProcess> server_;
};

struct Waiting {
  std::uint64_t samples = 0, behind = 0;  // behind: the sequence after the last
};

Waiting waiting_in(int folder) {
  Waiting sum;
  const auto all = spool::list_batches(folder);
  for (const auto& listed : all->batches) {
    const auto read = spool::read_batch(folder, listed.sequence);
    const auto batch = store::unpack_batch((*read)->bytes);
    EXPECT_TRUE(batch.has_value());
    sum.samples += (*read)->header.samples;
    sum.behind = batch->id.sequence + 1;
  }
  return sum;
}

// The server is killed, then the agent. Another agent begins while the server is away.
TEST_F(AgentClickhouse, ServerAndAgentAreKilled) {
  auto first = start_agent("one");
  await_intervals(2);
  server_->stop(SIGKILL);
  ASSERT_TRUE(await([&] { return waiting() >= 4; })) << first->text();
  const std::size_t now = waiting();
  ASSERT_TRUE(await([&] { return waiting() > now; }));  // the next interval ends later
  first->signal(SIGKILL);
  (void)first->wait();
  const Waiting left = waiting_in(spool_folder().get());
  const std::size_t batches = waiting();
  auto second = start_agent("two");
  ASSERT_TRUE(second->said("no connection")) << second->text();
  ASSERT_TRUE(await([&] { return waiting() >= batches + 3; })) << second->text();
  EXPECT_EQ(counter("two", "windlass_agent_stored_samples_total"), 0u);
  EXPECT_GE(counter("two", "windlass_agent_store_waiting_intervals"), batches);
  ASSERT_TRUE(server_->start());
  ASSERT_TRUE(await([&] { return waiting() == 0; })) << second->text();
  EXPECT_TRUE(await([&] { return counter("two", "windlass_agent_stored_earlier_samples_total") == left.samples; }));
  second->signal(SIGTERM);
  const CommandResult done = second->wait();
  EXPECT_EQ(done.status, 0) << done.output;
  EXPECT_NE(done.output.find(fmt::format("windlass: {} samples of an earlier agent were sent, too, in {} batches",
                                         left.samples, batches)),
            std::string::npos)
      << done.output;
  const auto numbers = numbers_of(done.output);
  EXPECT_LE(numbers[0], numbers[1]) << done.output;
  EXPECT_GT(numbers[0], 0u);
  const store::Stacks one = of_host("one"), two = of_host("two");
  EXPECT_EQ(one.intervals, left.behind) << "each interval once";
  EXPECT_GE(count_of(one), left.samples);
  EXPECT_EQ(two.intervals, numbers[2]) << done.output;
  EXPECT_EQ(count_of(two), numbers[0]) << done.output;
  EXPECT_EQ(waiting(), 0u);
}

// What the spool has no room for is dropped, counted, and said to the store.
TEST_F(AgentClickhouse, ASpoolWithoutRoom) {
  // An idle machine has few stacks, which fill nothing.
  const ChildProgram busy({"sh", "-c", "while :; do ls -R /usr/lib > /dev/null; done"}, "/dev/null", STDOUT_FILENO);
  auto agent = start_agent("one", "--store-spool-size 64K");
  await_intervals(1);
  server_->stop(SIGKILL);
  ASSERT_TRUE(agent->said("no connection"));
  const auto not_stored = [&] { return counter("one", "windlass_agent_lost_samples_total{reason=\"not_stored\"}"); };
  ASSERT_TRUE(await([&] { return not_stored() != 0 && not_stored() != ~std::uint64_t{0}; })) << agent->text();
  ASSERT_TRUE(server_->start());
  ASSERT_TRUE(await([&] { return waiting() <= 1; })) << agent->text();
  std::this_thread::sleep_for(std::chrono::seconds(1));
  agent->signal(SIGTERM);
  const CommandResult done = agent->wait();
  EXPECT_EQ(done.status, 3) << done.output;
  const auto numbers = numbers_of(done.output);
  unsigned long dropped = 0;
  const std::size_t at = done.output.rfind(" samples were dropped");
  ASSERT_NE(at, std::string::npos) << done.output;
  ASSERT_EQ(std::sscanf(done.output.c_str() + done.output.rfind("windlass: ", at), "windlass: %lu", &dropped), 1);
  EXPECT_GT(dropped, 0u);
  const store::Stacks stored = of_host("one");
  EXPECT_EQ(count_of(stored), numbers[0]);
  EXPECT_LE(numbers[0] + dropped, numbers[1]) << done.output;
  EXPECT_GE(stored.lost, dropped) << done.output;
}

}  // namespace
}  // namespace windlass::test
