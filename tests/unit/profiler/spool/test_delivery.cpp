// Batches of a spool reach a server that fails now and then, in order, each once.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "profiler/spool/delivery.h"
#include "spool_folder.h"

namespace windlass::testing {
namespace {

using namespace std::chrono_literals;
using spool::Answer;
using Texts = std::vector<std::string>;

constexpr spool::BackoffLimits kQuick{.first = 1ms, .most = 2ms, .most_asked = 3ms};
Answer later() { return {.kind = Answer::Kind::kLater, .why = "the server is away"}; }

// Answers in turn, then kTaken.
struct Server {
  Answer operator()(const spool::SpooledBatch& batch) {
    const Answer answer = tries < answers.size() ? answers[tries] : Answer{};
    ++tries;
    if (answer.kind == Answer::Kind::kTaken) taken.push_back(batch.bytes);
    return answer;
  }
  std::vector<Answer> answers;
  std::size_t tries = 0;
  Texts taken;
};

struct Sending {
  Sending(spool::Spool& spool, Server& server, const spool::BackoffLimits& limits = kQuick)
      : delivery(
            spool, [&](const spool::SpooledBatch& batch) { return server(batch); },
            [this](const std::string& text) { said.push_back(text); }, limits) {}
  Texts said;
  spool::Delivery delivery;
};

TEST(Delivery, TriesAgainUntilTheServerTakes) {
  const SpoolFolder folder;
  auto spool = folder.open();
  for (const char* text : {"a", "b", "c"}) ASSERT_TRUE(spool.append(text, 1).has_value());
  Server server{.answers = {later(), later(), {}, later()}, .taken = {}};
  Sending sending(spool, server);
  sending.delivery.stop(1h);  // until all is sent
  sending.delivery.run();
  EXPECT_EQ(server.taken, (Texts{"a", "b", "c"}));
  EXPECT_EQ(server.tries, 6u);
  EXPECT_EQ(sending.said, (Texts{"the server is away", "the server is away"}));
  const auto counters = sending.delivery.counters();
  EXPECT_EQ(counters.retries, 3u);
  EXPECT_EQ(counters.failures, 0u);
  EXPECT_EQ(counters.spool.acknowledged_samples, 3u);
  EXPECT_EQ(counters.spool.dropped_samples, 0u);
}

TEST(Delivery, DropsWhatTheServerRefuses) {
  const SpoolFolder folder;
  auto spool = folder.open();
  for (const char* text : {"a", "b"}) ASSERT_TRUE(spool.append(text, 5).has_value());
  Server server{.answers = {{.kind = Answer::Kind::kRefused, .why = "too large"}}, .taken = {}};
  Sending sending(spool, server);
  sending.delivery.stop(1h);
  sending.delivery.run();
  EXPECT_EQ(server.taken, (Texts{"b"}));
  EXPECT_EQ(sending.said, (Texts{"too large"}));
  EXPECT_EQ(sending.delivery.counters().spool.dropped_samples, 5u);
  EXPECT_EQ(sending.delivery.counters().spool.acknowledged_samples, 5u);
}

// The wait is far longer than the test: stop() tries once more, and leaves the rest for the next run.
TEST(Delivery, StopsWhileTheServerIsAway) {
  const SpoolFolder folder;
  auto spool = folder.open();
  for (const char* text : {"a", "b"}) ASSERT_TRUE(spool.append(text, 1).has_value());
  Server server{.answers = std::vector<Answer>(100, later()), .taken = {}};
  Sending sending(spool, server, {.first = 1h, .most = 1h, .most_asked = 1h});
  std::thread sends([&] { sending.delivery.run(); });
  while (sending.delivery.counters().retries == 0) std::this_thread::sleep_for(1ms);
  sending.delivery.stop(10min);
  sends.join();
  EXPECT_EQ(server.tries, 2u);
  EXPECT_EQ(spool.counters().batches, 2u);
  EXPECT_EQ(take_all(spool), (Texts{"a", "b"}));
}

TEST(Delivery, SendsWhatComesWhileItWaits) {
  const SpoolFolder folder;
  auto spool = folder.open();
  Server server;
  Sending sending(spool, server);
  std::thread sends([&] { sending.delivery.run(); });
  Texts all;
  for (int i = 0; i < 50; ++i) {
    all.push_back(std::to_string(i));
    ASSERT_TRUE(spool.append(all.back(), 1).has_value());
    sending.delivery.notify();
    if (i % 10 == 0)
      while (sending.delivery.counters().spool.batches != 0) std::this_thread::sleep_for(1ms);
  }
  sending.delivery.stop(1h);
  sends.join();
  EXPECT_EQ(server.taken, all);
}

// A batch may be appended at the end, when the sending thread waits for one.
TEST(Delivery, SendsWhatIsAppendedJustBeforeTheEnd) {
  for (int round = 0; round < 50; ++round) {
    const SpoolFolder folder;
    auto spool = folder.open();
    Server server;
    Sending sending(spool, server);
    std::thread thread([&] { sending.delivery.run(); });
    std::this_thread::sleep_for(1ms);
    ASSERT_TRUE(spool.append("last", 1).has_value());
    sending.delivery.notify();
    sending.delivery.stop(1h);
    thread.join();
    ASSERT_EQ(server.taken, (Texts{"last"}));
  }
}

}  // namespace
}  // namespace windlass::testing
