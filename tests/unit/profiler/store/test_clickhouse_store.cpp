// The store in ClickHouse, over a real server: faults of the way and of the server, hostile names, and late symbols.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <span>
#include <string>

#include <nlohmann/json.hpp>

#include "profiler/store/batch_queue.h"
#include "profiler/store/clickhouse_store.h"
#include "profiler/store/clickhouse_wire.h"
#include "profiler/store/id_numbers.h"
#include "support/clickhouse_process.h"
#include "support/clickhouse_relay.h"
#include "support/store_contract.h"

namespace windlass::testing {
namespace {

using Mode = ClickhouseRelay::Mode;

TEST(ClickhouseAddress, Urls) {
  const auto parsed = [](const char* url) {
    const auto address = store::ClickhouseAddress::parse(url);
    std::string all = address ? "" : "error";
    if (address)
      for (const auto& one : *address) all += (all.empty() ? "" : "; ") + one.http + " " + one.database;
    return all;
  };
  EXPECT_EQ(parsed("clickhouse://db.example"), "http://db.example:8123/ windlass");
  EXPECT_EQ(parsed("clickhouse://db.example:9/prof"), "http://db.example:9/ prof");
  EXPECT_EQ(parsed("clickhouses://u:p@[::1]/prof"), "https://u:p@[::1]:8443/ prof");
  EXPECT_EQ(parsed("clickhouse://u:p@a,b:9,[::1]/prof"),
            "http://u:p@a:8123/ prof; http://u:p@b:9/ prof; http://u:p@[::1]:8123/ prof");
  for (const char* wrong : {"http://a/", "clickhouse://a,/b", "clickhouse://,a/b", "clickhouse://a,,c/b",
                            "clickhouse://", "clickhouse:///a", "clickhouse://a/b;c", "clickhouse://a/b/c",
                            "clickhouse://a/1b", "clickhouse://u@/b", "clickhouse://a b/"})
    EXPECT_EQ(parsed(wrong), "error") << wrong;
}

TEST(ClickhouseWire, TextsAreLiterals) {
  EXPECT_EQ(store::sql_text("nginx-1.2"), "'nginx-1.2'");
  EXPECT_EQ(store::sql_text(std::string_view("'\\\0\xff", 4)), "'\\x27\\x5c\\x00\\xff'");
}

TEST(ClickhouseWire, RowsThatEndEarlyAreNotGood) {
  for (const std::string& bytes : {std::string("\x05"
                                               "abc"),
                                   std::string("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), std::string("\x80")}) {
    store::RowReader texts(bytes), lists(bytes);
    (void)texts.text();
    (void)lists.numbers<std::uint64_t>();
    EXPECT_FALSE(texts.is_good());
    EXPECT_FALSE(lists.is_good());
  }
}

TEST(ClickhouseWire, TheBytesOfAColumnAreThoseThatWereRead) {
  const std::string bytes = std::string("\x03") + "abc" + "\x02" + "de" + "\x01" + "f";
  store::RowReader row(bytes);
  (void)row.text();
  const std::string_view from = row.rest();
  EXPECT_EQ(row.since(from), "");
  (void)row.text();
  EXPECT_EQ(row.since(from), bytes.substr(4, 3));
}

class ClickhouseFaults : public ::testing::Test {
 protected:
  void SetUp() override {
    if (clickhouse_program().empty()) GTEST_SKIP() << "no clickhouse-server, and apt has none";
    ASSERT_TRUE(server_.start());
    relay_.emplace(server_.port());
    ASSERT_TRUE(store::create_clickhouse(server_.url("faults"), {}).has_value());
  }

  std::unique_ptr<store::ProfileStore> through_relay() {
    auto opened = store::open_clickhouse(server_.url("faults", relay_->port()), {.write = true, .keep = {}},
                                         std::chrono::seconds(60));
    EXPECT_TRUE(opened.has_value()) << opened.error().text();
    return opened ? std::move(*opened) : nullptr;
  }
  std::unique_ptr<store::ProfileStore> direct() {
    auto opened = store::open_clickhouse(server_.url("faults"), {.write = true, .keep = {}});
    EXPECT_TRUE(opened.has_value()) << opened.error().text();
    return opened ? std::move(*opened) : nullptr;
  }
  // What the server has is what was acknowledged, each once.
  void expect_all(const StoreReference& reference) {
    const auto store = direct();
    ASSERT_NE(store, nullptr);
    expect_same_answers(*store, reference, {}, kStart, kStart + 600 * kTenSeconds);
    // The rollup has the same: whole minutes without labels.
    const auto rollup = store->series({}, kStart, kStart + 600 * kTenSeconds, 6 * kTenSeconds);
    ASSERT_TRUE(rollup.has_value());
    std::map<std::string, std::map<std::uint64_t, store::Sums>> seen;
    for (const auto& one : *rollup)
      for (std::size_t i = 0; i < one.steps.size(); ++i)
        if (one.steps[i] != store::Sums{}) seen[text_of(one.event)][i] = one.steps[i];
    EXPECT_TRUE(seen == reference.series({}, kStart, kStart + 600 * kTenSeconds, 6 * kTenSeconds));
    EXPECT_EQ(store->stacks({}, kStart, kStart + 600 * kTenSeconds)->lost,
              reference.lost(kStart, kStart + 600 * kTenSeconds));
  }

  ClickhouseProcess server_{store_folder("windlass-clickhouse-faults-")};
  std::optional<ClickhouseRelay> relay_;
  RandomProfiles random_{11};
};

TEST_F(ClickhouseFaults, ALostAnswerCountsOnce) {
  const auto store = through_relay();
  ASSERT_NE(store, nullptr);
  StoreReference reference;
  const KeptBatch batch = batch_at(0, random_.make(60));
  reference.append(batch);
  relay_->set(Mode::kLoseAnswer);
  EXPECT_FALSE(store->append(batch.batch()).has_value());
  relay_->set(Mode::kPass);
  const auto again = store->append(batch.batch());
  ASSERT_TRUE(again.has_value()) << again.error().text();
  EXPECT_FALSE(*again);
  expect_all(reference);
}

// The replica has what the first server acknowledged: one database stands for two replicas here.
TEST_F(ClickhouseFaults, AReplicaTakesThePlaceOfAServerThatIsAway) {
  const std::string url = fmt::format("clickhouse://127.0.0.1:{},127.0.0.1:{}/faults", relay_->port(), server_.port());
  const auto opened = [&] {
    return store::open_clickhouse(url, {.write = true, .keep = {}}, std::chrono::seconds(60));
  };
  StoreReference reference;
  for (std::uint64_t i = 0; i < 4; ++i) {
    const KeptBatch batch = batch_at(i, random_.make(60));
    reference.append(batch);
    auto store = opened();
    ASSERT_TRUE(store.has_value()) << store.error().text();
    // The first server takes the batch, and nobody hears of it; from then on it is away.
    if (i == 1) relay_->set(Mode::kLoseAnswer);
    const auto appended = (*store)->append(batch.batch());
    EXPECT_EQ(appended.has_value(), i != 1);
    if (appended) continue;
    relay_->canned = "HTTP/1.1 503 Gone\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    relay_->set(Mode::kAnswer);
    auto replica = opened();
    ASSERT_TRUE(replica.has_value()) << replica.error().text();
    EXPECT_FALSE((*replica)->append(batch.batch()).value_or(true)) << "it is there";
  }
  expect_all(reference);
  server_.stop(SIGKILL);
  EXPECT_EQ(opened().error().code, ErrorCode::kUnreadable);
}

TEST_F(ClickhouseFaults, HalfABatchIsNone) {
  const auto store = through_relay();
  ASSERT_NE(store, nullptr);
  StoreReference reference;
  const KeptBatch batch = batch_at(0, random_.make(300));
  relay_->set(Mode::kCutBody);
  EXPECT_FALSE(store->append(batch.batch()).has_value());
  relay_->set(Mode::kPass);
  expect_all(reference);
  EXPECT_TRUE(store->append(batch.batch()).value_or(false));
  reference.append(batch);
  expect_all(reference);
}

TEST_F(ClickhouseFaults, AServerKilledInMidBatch) {
  const auto store = through_relay();
  ASSERT_NE(store, nullptr);
  StoreReference reference;
  store::BatchQueue queue(*store, 10);
  relay_->on_cut = [this] { server_.stop(SIGKILL); };
  for (std::uint64_t i = 0; i < 6; ++i) {
    const KeptBatch batch = batch_at(i, random_.make(50));
    reference.append(batch);
    queue.add({batch.id, batch.begin_ns, batch.end_ns, batch.profile});
    if (i == 2) relay_->set(Mode::kCutBody);
    const bool flushed = queue.flush().has_value();
    EXPECT_EQ(flushed, i < 2 || i > 3) << i;
    if (i == 2) relay_->set(Mode::kPass);
    if (i == 3) {
      ASSERT_TRUE(server_.start());
    }
  }
  EXPECT_EQ(queue.waiting(), 0u);
  EXPECT_EQ(queue.dropped_samples(), 0u);
  expect_all(reference);
}

TEST_F(ClickhouseFaults, AServerThatIsAwayForLongIsToldOfTheDropped) {
  const auto store = through_relay();
  ASSERT_NE(store, nullptr);
  store::BatchQueue queue(*store, 3);
  server_.stop(SIGKILL);
  std::uint64_t samples = 0;
  for (std::uint64_t i = 0; i < 8; ++i) {
    KeptBatch batch = batch_at(i, random_.make(50));
    batch.profile.lost = 0;
    const std::uint64_t some = profile::count_samples(batch.profile);
    samples += some;
    queue.add({batch.id, batch.begin_ns, batch.end_ns, std::move(batch.profile), some});
    EXPECT_FALSE(queue.flush().has_value());
  }
  ASSERT_TRUE(server_.start());
  ASSERT_TRUE(queue.flush().has_value());
  EXPECT_GT(queue.dropped_samples(), 0u);
  EXPECT_EQ(queue.kept_samples() + queue.dropped_samples(), samples);
  const auto reader = direct();
  ASSERT_NE(reader, nullptr);
  const auto stacks = reader->stacks({}, kStart, kStart + 600 * kTenSeconds);
  ASSERT_TRUE(stacks.has_value());
  EXPECT_EQ(stacks->lost, queue.dropped_samples());
  std::uint64_t kept = 0;
  for (const auto& stack : stacks->stacks) kept += stack.sums.count;
  EXPECT_EQ(kept, queue.kept_samples());
}

TEST_F(ClickhouseFaults, AnswersThatAreNone) {
  const auto store = through_relay();
  ASSERT_NE(store, nullptr);
  StoreReference reference;
  const KeptBatch batch = batch_at(0, random_.make(50));
  const std::string page = "<html>503</html>";
  const auto answer = [](const std::string& head, const std::string& body) {
    return "HTTP/1.1 " + head + "\r\nConnection: close\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" +
           body;
  };
  for (const std::string& canned :
       {answer("503 Service Unavailable", page), answer("429 Too Many Requests", ""), answer("200 OK", page),
        answer("200 OK", ""), std::string("\x16\x03\x01 garbage"), std::string(),
        answer("200 OK\r\nX-ClickHouse-Server-Display-Name: x", page),
        answer("500 Internal Server Error", "Code: 243, e.displayText() = DB::Exception: Cannot reserve 1.00 MiB")}) {
    relay_->canned = canned;
    relay_->set(Mode::kAnswer);
    const auto appended = store->append(batch.batch());
    EXPECT_FALSE(appended.has_value()) << canned;
    EXPECT_FALSE(store->stacks({}, kStart, kStart + 1).has_value()) << canned;
    // All may be tried again: the queue drops none of them.
    if (!appended) {
      EXPECT_NE(appended.error().code, ErrorCode::kOutOfRange);
      EXPECT_NE(appended.error().code, ErrorCode::kLimit);
    }
    relay_->set(Mode::kPass);
    expect_all(reference);
  }
  EXPECT_TRUE(store->append(batch.batch()).value_or(false));
  reference.append(batch);
  expect_all(reference);
}

TEST_F(ClickhouseFaults, AServerThatIsSilent) {
  auto opened = store::open_clickhouse(server_.url("faults", relay_->port()), {.write = true, .keep = {}},
                                       std::chrono::milliseconds(300));
  ASSERT_TRUE(opened.has_value()) << opened.error().text();
  relay_->set(Mode::kSilent);
  const KeptBatch batch = batch_at(0, random_.make(50));
  const auto appended = (*opened)->append(batch.batch());
  ASSERT_FALSE(appended.has_value());
  EXPECT_EQ(appended.error().code, ErrorCode::kUnreadable) << appended.error().text();
}

TEST_F(ClickhouseFaults, AFullDisk) {
  StoreReference reference;
  server_.stop(SIGTERM);
  ASSERT_TRUE(server_.start(2048));  // bytes of a file
  const auto store = through_relay();
  ASSERT_NE(store, nullptr);
  const KeptBatch batch = batch_at(0, random_.make(4000));
  const auto appended = store->append(batch.batch());
  ASSERT_FALSE(appended.has_value());
  EXPECT_EQ(appended.error().code, ErrorCode::kUnreadable) << appended.error().text();
  server_.stop(SIGKILL);
  ASSERT_TRUE(server_.start());
  expect_all(reference);
  const auto again = through_relay();
  EXPECT_TRUE(again->append(batch.batch()).value_or(false));
  reference.append(batch);
  expect_all(reference);
}

TEST_F(ClickhouseFaults, NamesAreNoQueries) {
  const auto store = direct();
  ASSERT_NE(store, nullptr);
  const std::string evil = "x' OR 1=1; DROP TABLE samples --\\'\n\t`\"{p:String}%27";
  profile::Profile p = events_profile();
  p.strings.insert(p.strings.end(), {evil, evil + "2"});
  const auto text = static_cast<std::uint32_t>(p.strings.size() - 2);
  p.label_sets.push_back({{text, text + 1}});
  for (auto& sample : p.samples) {
    sample.comm = text;
    sample.labels = static_cast<std::uint32_t>(p.label_sets.size() - 1);
  }
  const KeptBatch batch = batch_at(0, std::move(p), evil), other = batch_at(1, events_profile(), "plain");
  StoreReference reference;
  for (const auto* one : {&batch, &other}) {
    ASSERT_TRUE(store->append(one->batch()).value_or(false));
    reference.append(*one);
  }
  const std::vector<store::Filter> filters = {{"", {{"host", evil}}},
                                              {"", {{"thread", evil}}},
                                              {"", {{"process", evil}}},
                                              {"", {{evil, evil + "2"}}},
                                              {evil, {}},
                                              {"", {{"host", "' OR ''='"}}}};
  for (const auto& filter : filters) {
    expect_same_answers(*store, reference, filter, kStart, kStart + 9 * kTenSeconds);
    expect_same_totals(*store, reference, evil, filter, kStart, kStart + 9 * kTenSeconds);
  }
  EXPECT_EQ(*store->labels(), reference.labels());
  EXPECT_EQ(*store->values(evil), reference.values(evil));
}

TEST_F(ClickhouseFaults, ALateSymbolIsANewerRow) {
  const auto store = direct();
  ASSERT_NE(store, nullptr);
  profile::Profile p = events_profile();
  for (auto& location : p.locations) location.lines.clear();
  const KeptBatch batch = batch_at(0, std::move(p));
  ASSERT_TRUE(store->append(batch.batch()).value_or(false));
  store::ClickhouseServer server(store::ClickhouseAddress::parse(server_.url("faults"))->front());
  ASSERT_TRUE(
      server
          .query("INSERT INTO frames SELECT frame, period, ver + 1, has_module, path, build_id, begin, end, "
                 "file_offset, pid, is_kernel, address, function_begin, interpreted, ['late'], ['late'], ['l.c'], "
                 "[toUInt32(1)], [toUInt32(7)], [toUInt8(1)] FROM frames")
          .has_value());
  // A frame that comes again without a name does not hide the name.
  ASSERT_TRUE(direct()->append(batch_at(1, batch.profile).batch()).value_or(false));
  const auto read = store::read_profile(*direct(), {}, kStart, kStart + 2 * kTenSeconds);
  ASSERT_TRUE(read.has_value());
  ASSERT_FALSE(read->locations.empty());
  for (const auto& location : read->locations) {
    ASSERT_EQ(location.lines.size(), 1u);
    EXPECT_EQ(location.lines[0].line, 7u);
  }
  ASSERT_EQ(read->functions.size(), 1u);
  EXPECT_EQ(read->functions[0].name, "late");
}

// Most stacks of a service are read as a range, few of them by their ids. Ids that nobody has are said.
TEST_F(ClickhouseFaults, AFewStacksHaveTheFramesThatAllHave) {
  const auto store = direct();
  ASSERT_NE(store, nullptr);
  for (unsigned at = 0; at < 4; ++at)
    ASSERT_TRUE(store->append(batch_at(at, random_.make(60)).batch()).value_or(false));
  const auto stacks = store->stacks({}, kStart, kStart + 9 * kTenSeconds);
  ASSERT_TRUE(stacks.has_value());
  std::set<std::uint64_t> distinct;
  for (const store::StackSums& one : stacks->stacks) distinct.insert(one.stack);
  const std::vector<std::uint64_t> ids(distinct.begin(), distinct.end());
  ASSERT_GT(ids.size(), 20u);
  const auto frames_in = [](const store::Frames& frames, std::size_t stack) {
    std::vector<std::string> list;
    for (const std::uint32_t place : frames.stacks[stack]) {
      const profile::Location& it = frames.locations[place];
      list.push_back(std::to_string(it.address));
      if (it.module != profile::kNone) list.push_back(frames.modules[it.module].path);
      for (const profile::Line& line : it.lines)
        list.push_back((line.function != profile::kNone ? frames.functions[line.function].name : "") + ':' +
                       std::to_string(line.line));
    }
    return list;
  };
  const auto all = store->frames(ids);
  ASSERT_TRUE(all.has_value()) << all.error().text();
  for (std::size_t i = 0; i < ids.size(); i += 7) {
    const auto one = store->frames(std::span(ids).subspan(i, 1));
    ASSERT_TRUE(one.has_value()) << one.error().text();
    EXPECT_EQ(frames_in(*one, 0), frames_in(*all, i));
    EXPECT_LE(one->locations.size(), one->stacks[0].size());
  }
  EXPECT_FALSE(store->frames(std::vector<std::uint64_t>{ids.front(), ids.front() + 1}).has_value());
}

TEST(IdNumbers, AreGivenInOrder) {
  store::IdNumbers numbers;
  EXPECT_FALSE(numbers.find(0).has_value());
  constexpr std::uint64_t kStep = std::uint64_t{1} << 40;  // ids that agree in their low bits
  for (std::uint64_t i = 0; i < 5000; ++i) EXPECT_EQ(numbers.number_of(i * kStep), i);
  for (std::uint64_t i = 0; i < 5000; ++i) EXPECT_EQ(numbers.find(i * kStep), i);
  EXPECT_FALSE(numbers.find(5000 * kStep).has_value());
  EXPECT_EQ(numbers.ids().size(), 5000u);
}

using ByProcess = std::map<std::tuple<std::string, std::string, std::uint64_t, int, int>, store::Sums>;

ByProcess by_process(const store::Stacks& stacks) {
  ByProcess all;
  for (const store::StackSums& stack : stacks.stacks) {
    auto& sums = all[{text_of(stacks.events[stack.event]), stacks.label_sets[stack.labels].process, stack.stack,
                      stack.end, stack.certainty}];
    sums.count += stack.sums.count;
    sums.value += stack.sums.value;
  }
  return all;
}

// Whole minutes come from the rollup, their seconds before and behind from the samples.
TEST_F(ClickhouseFaults, StacksWithoutThreadsHaveTheSameSums) {
  const auto store = direct();
  ASSERT_NE(store, nullptr);
  for (std::uint64_t i = 0; i < 30; ++i)
    ASSERT_TRUE(store->append(batch_at(i, random_.make(20)).batch()).value_or(false));
  for (const char* process : {"", "main", "sshd"})
    for (const std::string event : {"", "cpu"})
      for (const auto& [first, behind] : {std::pair(0, 30), {1, 29}, {5, 7}, {3, 4}, {6, 24}, {40, 50}}) {
        store::Filter filter{.event = event, .labels = {}};
        if (*process != '\0') filter.labels.push_back({"process", process});
        const std::uint64_t from = kStart + first * kTenSeconds, to = kStart + behind * kTenSeconds;
        const auto threads = store->stacks(filter, from, to);
        filter.process_is_enough = true;
        const auto processes = store->stacks(filter, from, to);
        ASSERT_TRUE(threads.has_value() && processes.has_value());
        EXPECT_TRUE(by_process(*threads) == by_process(*processes)) << process << " " << first << " " << behind;
        EXPECT_EQ(by_process(*processes).size(), processes->stacks.size()) << "each once";
        EXPECT_EQ(processes->intervals, threads->intervals);
        EXPECT_EQ(processes->lost, threads->lost);
        if (*process == '\0') {  // a process may have none
          EXPECT_EQ(threads->stacks.empty(), first == 40);
        }
        for (const auto& set : processes->label_sets) EXPECT_EQ(set.host, "");
      }
  // Labels that samples alone have: one set for a process.
  std::size_t chosen = 0;
  for (const std::string& key : store->labels().value_or(std::vector<std::string>())) {
    if (key == "host" || key == "process" || key == "thread" || key == "pid" || key == "tid") continue;
    for (const std::string& value : store->values(key).value_or(std::vector<std::string>())) {
      store::Filter filter{.event = "", .labels = {{key, value}}};
      const std::uint64_t to = kStart + 30 * kTenSeconds;
      const auto threads = store->stacks(filter, kStart, to);
      filter.process_is_enough = true;
      const auto processes = store->stacks(filter, kStart, to);
      ASSERT_TRUE(threads.has_value() && processes.has_value());
      EXPECT_TRUE(by_process(*threads) == by_process(*processes)) << key << " " << value;
      EXPECT_EQ(by_process(*processes).size(), processes->stacks.size()) << "each once";
      chosen += processes->stacks.size();
    }
  }
  EXPECT_GT(chosen, 0u);
  // A choice of hosts needs the samples.
  const auto of_host = store->stacks({.event = "", .labels = {{"host", "host-a"}}, .process_is_enough = true}, kStart,
                                     kStart + 30 * kTenSeconds);
  ASSERT_TRUE(of_host.has_value());
  ASSERT_FALSE(of_host->label_sets.empty());
  EXPECT_EQ(of_host->label_sets[0].host, "host-a");
}

std::string replaced(std::string text, std::string_view what, const std::string& by) {
  for (std::size_t at = 0; (at = text.find(what, at)) != text.npos; at += by.size()) text.replace(at, what.size(), by);
  return text;
}

// Grafana's own data source puts the times into the queries.
TEST_F(ClickhouseFaults, TheDashboardShowsTheStore) {
  const auto store = direct();
  ASSERT_NE(store, nullptr);
  for (std::uint64_t i = 0; i < 12; ++i)
    ASSERT_TRUE(store->append(batch_at(i, random_.make(60), i % 2 == 0 ? "host-a" : "host-b").batch()).value_or(false));
  const std::uint64_t from = kStart / 3'600'000'000'000 * 3600, to = from + 7200;
  store::ClickhouseServer server(store::ClickhouseAddress::parse(server_.url("faults"))->front());
  std::ifstream file(WINDLASS_DASHBOARD);
  const auto dashboard = nlohmann::json::parse(file);
  std::map<std::string, std::string> answers;
  const auto ask = [&](std::string sql) {
    sql = replaced(std::move(sql), "$__fromTime", fmt::format("toDateTime({})", from));
    sql = replaced(std::move(sql), "$__toTime", fmt::format("toDateTime({})", to));
    sql = replaced(std::move(sql), "$__interval_s", "60");
    const auto answer = server.query(replaced(std::move(sql), "${event}", "cpu") + " FORMAT RowBinary");
    EXPECT_TRUE(answer.has_value()) << answer.error().text() << ": " << sql;
    return answer.value_or("");
  };
  for (const auto& panel : dashboard["panels"])
    for (const auto& target : panel["targets"]) answers[panel["title"]] = ask(target["rawSql"]);
  for (const auto& variable : dashboard["templating"]["list"])
    if (variable["type"] == "query") {
      EXPECT_NE(ask(variable["query"]), "");
    }
  for (const auto& [title, answer] : answers) EXPECT_NE(answer, "") << title;
  // In billionths of the unit, of all processes that have any.
  std::map<std::string, std::uint64_t> shown, kept, over_time;
  const auto billionths = [](store::RowReader& row) {
    return static_cast<std::uint64_t>(std::llround(std::bit_cast<double>(row.u64()) * 1e9));
  };
  for (store::RowReader row(answers["Largest processes"]); row.has_more();) {
    const std::string process = row.text();
    shown[process] = billionths(row);
  }
  for (store::RowReader row(answers["Processes over time"]); row.has_more();) {
    const std::uint64_t time = row.u32();
    EXPECT_TRUE(time >= from && time < to);
    const std::string process = row.text();
    over_time[process] += billionths(row) * 60;
  }
  const auto totals =
      store->totals("process", {.event = "cpu", .labels = {}}, from * 1'000'000'000, to * 1'000'000'000);
  ASSERT_TRUE(totals.has_value());
  for (const store::Total& total : *totals) kept[total.value] += total.sums.value;
  EXPECT_FALSE(kept.empty());
  EXPECT_EQ(shown, kept);
  for (const auto& [process, value] : over_time) EXPECT_NEAR(double(value), double(kept[process]), 600);
  EXPECT_EQ(over_time.size(), kept.size());
}

TEST_F(ClickhouseFaults, OldDaysArePruned) {
  const auto store = direct();
  ASSERT_NE(store, nullptr);
  constexpr std::uint64_t kDayNs = 86'400'000'000'000;
  for (std::uint64_t day = 0; day < 4; ++day) {
    KeptBatch batch = batch_at(day, random_.make(30));
    batch.begin_ns += day * kDayNs;
    batch.end_ns += day * kDayNs;
    ASSERT_TRUE(store->append(batch.batch()).value_or(false));
  }
  const std::uint64_t third = (kStart / kDayNs + 2) * 86'400;
  const auto pruned = store::prune_clickhouse(server_.url("faults"), third);
  ASSERT_TRUE(pruned.has_value()) << pruned.error().text();
  EXPECT_EQ(*pruned, 2u);
  EXPECT_EQ(store->stacks({}, 0, ~std::uint64_t{0})->intervals, 2u);
  EXPECT_TRUE(store::read_profile(*store, {}, 0, ~std::uint64_t{0}).has_value());
}

TEST_F(ClickhouseFaults, WhatIsNoStore) {
  EXPECT_EQ(store::open_clickhouse(server_.url("nothing"), {}).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(store::open_clickhouse(server_.url("default"), {}).error().code, ErrorCode::kNotFound);
  ASSERT_TRUE(store::create_clickhouse(server_.url("other"), {}).has_value());
  ASSERT_TRUE(store::create_clickhouse(server_.url("other"), {}).has_value());  // again
  store::ClickhouseServer server(store::ClickhouseAddress::parse(server_.url("other"))->front());
  ASSERT_TRUE(server.query("INSERT INTO windlass_store VALUES (77, 0)").has_value());
  EXPECT_EQ(store::open_clickhouse(server_.url("other"), {}).error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(store::create_clickhouse(server_.url("other"), {}).error().code, ErrorCode::kUnsupported);
  const auto reader = store::open_clickhouse(server_.url("faults"), {});
  EXPECT_EQ((*reader)->append(batch_at(0, events_profile()).batch()).error().code, ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace windlass::testing
