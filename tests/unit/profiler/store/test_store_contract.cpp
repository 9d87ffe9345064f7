// Every store answers as the profiles themselves do. Another store is one more instantiation.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "profiler/store/clickhouse_store.h"
#include "profiler/store/open_store.h"
#include "profiler/store/several_stores.h"
#include "support/clickhouse_process.h"
#include "support/store_contract.h"

namespace windlass::testing {

struct SqliteSubject {
  ~SqliteSubject() { std::filesystem::remove_all(folder); }
  std::unique_ptr<store::ProfileStore> make() {
    auto opened = store::open_store(folder / (std::to_string(made++) + ".db"), {.write = true, .keep = {}});
    EXPECT_TRUE(opened.has_value()) << opened.error().text();
    return std::move(*opened);
  }

  std::filesystem::path folder = store_folder("windlass-store-");
  int made = 0;
};

INSTANTIATE_TYPED_TEST_SUITE_P(Sqlite, StoreContract, SqliteSubject);

// Three stores, each of its own hosts, that are read as one.
class StoresOfHosts final : public store::ProfileStore {
 public:
  explicit StoresOfHosts(SqliteSubject& files) {
    std::vector<std::unique_ptr<store::ProfileStore>> stores;
    for (auto*& one : writers_) one = stores.emplace_back(files.make()).get();
    all_ = store::several_stores(std::move(stores));
  }
  Expected<bool> append(const store::Batch& batch) override {
    EXPECT_EQ(all_->append(batch).error().code, ErrorCode::kUnsupported);
    return writers_[static_cast<std::size_t>(batch.id.host.back() - 'a') % 3]->append(batch);
  }
  Expected<std::optional<store::Extent>> extent() override { return all_->extent(); }
  Expected<std::vector<std::string>> labels() override { return all_->labels(); }
  Expected<std::vector<std::string>> values(std::string_view label) override { return all_->values(label); }
  Expected<std::vector<store::Series>> series(const store::Filter& filter, std::uint64_t from, std::uint64_t to,
                                              std::uint64_t step) override {
    return all_->series(filter, from, to, step);
  }
  Expected<std::vector<store::Total>> totals(std::string_view label, const store::Filter& filter, std::uint64_t from,
                                             std::uint64_t to) override {
    return all_->totals(label, filter, from, to);
  }
  Expected<store::Stacks> stacks(const store::Filter& filter, std::uint64_t from, std::uint64_t to) override {
    return all_->stacks(filter, from, to);
  }
  Expected<store::Frames> frames(std::span<const std::uint64_t> stacks) override { return all_->frames(stacks); }

 private:
  store::ProfileStore* writers_[3] = {};
  std::unique_ptr<store::ProfileStore> all_;
};

struct SeveralSubject {
  std::unique_ptr<store::ProfileStore> make() { return std::make_unique<StoresOfHosts>(files); }
  SqliteSubject files;
};

INSTANTIATE_TYPED_TEST_SUITE_P(Several, StoreContract, SeveralSubject);

TEST(SeveralStores, SamplesHaveTheirHost) {
  SqliteSubject files;
  StoresOfHosts stores(files);
  for (const char* host : {"host-a", "host-b"})
    ASSERT_TRUE(stores.append(batch_at(0, events_profile(), host).batch()).value_or(false));
  const auto read = store::read_profile(stores, {}, kStart, kStart + 1);
  ASSERT_TRUE(read.has_value()) << read.error().text();
  std::map<std::string, std::uint64_t> counts;
  for (const auto& sample : read->samples)
    for (const auto& label : read->label_sets[sample.labels])
      if (read->strings[label.key] == "host") counts[read->strings[label.value]] += sample.count;
  std::uint64_t all = 0;
  for (const auto& sample : events_profile().samples) all += sample.count;
  EXPECT_EQ(counts, (std::map<std::string, std::uint64_t>{{"host-a", all}, {"host-b", all}}));
  const std::size_t functions =
      store::read_profile(stores, {"", {{"host", "host-a"}}}, kStart, kStart + 1)->functions.size();
  EXPECT_EQ(read->functions.size(), functions) << "equal functions of two stores are one";
}

// events_profile() has a stack with all of the CPU time, and two that share the waits: 3.5 ms and 1 ms.
TEST(ReadProfile, StacksThatAreLeftOutAreCounted) {
  SqliteSubject files;
  const auto store = files.make();
  ASSERT_TRUE(store->append(batch_at(0, events_profile()).batch()).value_or(false));
  const auto read = [&](std::size_t most) { return *store::read_profile(*store, {}, kStart, kStart + 1, most); };
  using Key = std::tuple<std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t>;
  using Sums = std::map<Key, std::pair<std::uint64_t, std::uint64_t>>;
  const auto sums_of = [](const profile::Profile& profile, bool left_out) {
    Sums sums;
    for (const auto& sample : profile.samples) {
      const auto& inner = profile.locations[*sample.locations.begin()].lines;
      const bool is_out =
          sample.locations.size() == 1 && profile.functions[inner[0].function].name == "[stacks left out]";
      if (left_out && !is_out) continue;
      auto& [count, value] = sums[{sample.event, sample.labels, sample.pid, sample.tid}];
      count += sample.count;
      value += sample.value;
    }
    return sums;
  };
  const profile::Profile all = read(store::kAllStacks);
  EXPECT_TRUE(sums_of(all, true).empty());
  EXPECT_TRUE(all.comments.empty());
  EXPECT_EQ(read(3).comments, all.comments) << "three stacks are there";
  for (const std::size_t most : {1, 2}) {
    const profile::Profile some = read(most);
    EXPECT_EQ(sums_of(some, false), sums_of(all, false)) << "sums by labels stay";
    std::uint64_t waits = 0;
    for (const auto& [key, sum] : sums_of(some, true)) waits += sum.first;
    EXPECT_EQ(waits, most == 2 ? 1u : 8u) << "the lighter stacks";
    ASSERT_EQ(some.comments.size(), 1u);
    EXPECT_EQ(some.comments[0], most == 2 ? "the heaviest 2 stacks; 1 others, with 11.1% of the samples' weight, are "
                                            "[stacks left out]"
                                          : "the heaviest 1 stacks; 2 others, with 50.0% of the samples' weight, are "
                                            "[stacks left out]");
  }
}

// One server for all; each store is a database.
struct ClickhouseSubject {
  static ClickhouseProcess* server() {
    static const auto running = [] {
      auto process = std::make_unique<ClickhouseProcess>(store_folder("windlass-clickhouse-"));
      return process->start() ? std::move(process) : nullptr;
    }();
    return running.get();
  }
  static std::string not_here() { return clickhouse_program().empty() ? "no clickhouse-server, and apt has none" : ""; }
  std::unique_ptr<store::ProfileStore> make() {
    if (server() == nullptr) return nullptr;
    static int made = 0;
    const std::string url = server()->url("store" + std::to_string(made++));
    const auto created = store::create_clickhouse(url, {});
    EXPECT_TRUE(created.has_value()) << created.error().text();
    auto opened = store::open_store(url, {.write = true, .keep = {}});
    EXPECT_TRUE(opened.has_value()) << opened.error().text();
    return opened ? std::move(*opened) : nullptr;
  }
};

INSTANTIATE_TYPED_TEST_SUITE_P(Clickhouse, StoreContract, ClickhouseSubject);

}  // namespace windlass::testing
