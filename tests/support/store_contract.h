// The contract of every ProfileStore. A suite instantiates it with a type that makes an empty store:
//
//   struct MySubject { std::unique_ptr<store::ProfileStore> make(); };
//   INSTANTIATE_TYPED_TEST_SUITE_P(MyStore, StoreContract, MySubject);
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "base/text_writer.h"
#include "profiler/export/report.h"
#include "profiler/store/read_profile.h"
#include "support/events_profile.h"
#include "support/store_reference.h"
#include "support/synthetic_profile.h"

namespace windlass::testing {

inline constexpr std::uint64_t kStart = 1'790'000'000'000'000'000, kTenSeconds = 10'000'000'000;

// In memory where there is such a place: each append waits for the disk, which tests nothing here.
inline std::filesystem::path store_folder(const std::string& name) {
  const std::filesystem::path memory = "/dev/shm";
  const bool has = access(memory.c_str(), W_OK) == 0;
  const auto folder = (has ? memory : std::filesystem::temp_directory_path()) / (name + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  return folder;
}

inline KeptBatch batch_at(std::uint64_t number, profile::Profile profile, std::string host = "host-a") {
  return {{std::move(host), kStart, number},
          kStart + number * kTenSeconds,
          kStart + (number + 1) * kTenSeconds,
          std::move(profile)};
}

inline SumsByText stacks_of(store::ProfileStore& store, const store::Filter& filter, std::uint64_t from,
                            std::uint64_t to) {
  const auto stacks = store.stacks(filter, from, to);
  std::vector<std::uint64_t> ids;
  if (stacks)
    for (const auto& stack : stacks->stacks) ids.push_back(stack.stack);
  const auto frames = store.frames(ids);
  if (!stacks || !frames) {
    ADD_FAILURE() << (stacks ? frames.error() : stacks.error()).text();
    return {};
  }
  return texts_of(*stacks, *frames);
}

inline void expect_same_answers(store::ProfileStore& store, const StoreReference& reference,
                                const store::Filter& filter, std::uint64_t from, std::uint64_t to) {
  const auto expected = reference.stacks(filter, from, to);
  EXPECT_EQ(stacks_of(store, filter, from, to).size(), expected.size());
  EXPECT_TRUE(stacks_of(store, filter, from, to) == expected);
  constexpr std::uint64_t kStep = 3 * kTenSeconds;
  const auto series = store.series(filter, from, to, kStep);
  ASSERT_TRUE(series.has_value()) << series.error().text();
  std::map<std::string, std::map<std::uint64_t, store::Sums>> seen;
  for (const auto& one : *series)
    for (std::size_t i = 0; i < one.steps.size(); ++i)
      if (one.steps[i] != store::Sums{}) seen[text_of(one.event)][i] = one.steps[i];
  EXPECT_TRUE(seen == reference.series(filter, from, to, kStep));
}

inline void expect_same_totals(store::ProfileStore& store, const StoreReference& reference, const std::string& label,
                               const store::Filter& filter, std::uint64_t from, std::uint64_t to) {
  const auto totals = store.totals(label, filter, from, to);
  ASSERT_TRUE(totals.has_value()) << totals.error().text();
  std::map<std::pair<std::string, std::string>, store::Sums> seen;
  for (const auto& one : *totals)
    EXPECT_TRUE(seen.try_emplace({one.value, text_of(one.event)}, one.sums).second) << one.value;
  EXPECT_TRUE(seen == reference.totals(label, filter, from, to)) << label;
}

// What `report --json` says, without the numbers that it gives to modules, functions and locations.
inline std::vector<std::string> json_contents(const profile::Profile& profile) {
  std::string text;
  TextWriter out(&text);
  EXPECT_TRUE(exporter::write_json(profile, out, profile::shown_by_default(profile)).has_value());
  std::map<std::int64_t, nlohmann::json> modules, functions, locations;
  std::vector<nlohmann::json> records;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) records.push_back(nlohmann::json::parse(line));
  const auto without_id = [](nlohmann::json record) {
    record.erase("id");
    return record;
  };
  for (auto& record : records) {
    const auto by_content = [](nlohmann::json& member, const auto& known) {
      if (!member.is_null()) member = known.at(member.template get<std::int64_t>());
    };
    if (record["type"] == "module") modules[record["id"]] = without_id(record);
    if (record["type"] == "function") {
      by_content(record["module"], modules);
      for (auto& module : record["modules"]) by_content(module, modules);
      std::sort(record["modules"].begin(), record["modules"].end());
      functions[record["id"]] = without_id(record);
    }
    if (record["type"] == "location") {
      by_content(record["module"], modules);
      for (auto& line : record["lines"]) by_content(line["function"], functions);
      locations[record["id"]] = without_id(record);
    }
    if (record["type"] == "sample")
      for (auto& location : record["locations"]) by_content(location, locations);
    record.erase("id");
  }
  std::vector<std::string> contents;
  for (const auto& record : records) contents.push_back(record.dump());
  std::ranges::sort(contents);
  return contents;
}

// As a recording writes it: what no sample has is not there, and samples that agree in all but their sums are one.
inline profile::Profile tidied(const profile::Profile& profile);

// With samples and locations in an order of their contents. A view takes a function's file from the first location.
inline profile::Profile in_order(const profile::Profile& profile) {
  std::vector<std::string> locations;
  for (const profile::Location& location : profile.locations)
    locations.push_back(text_of(location, profile.modules, profile.functions));
  std::vector<std::pair<std::string, std::size_t>> order;
  for (std::size_t i = 0; i < profile.samples.size(); ++i) {
    const profile::Sample& sample = profile.samples[i];
    std::string text = fmt::format("{} {} {} {} {}", profile.events[sample.event].name, sample.pid, sample.tid,
                                   sample.end, sample.certainty);
    for (const profile::Label& label : profile.label_sets[sample.labels])
      text += fmt::format(" {}={}", profile.strings[label.key], profile.strings[label.value]);
    text += sample.comm < profile.strings.size() ? profile.strings[sample.comm] : "";
    for (const auto location : sample.locations) text += locations[location];
    order.emplace_back(std::move(text), i);
  }
  std::ranges::sort(order);
  profile::Profile made = profile;
  for (std::size_t i = 0; i < order.size(); ++i) made.samples[i] = profile.samples[order[i].second];
  return tidied(made);
}

// As a store gives it back: each sample has the label host.
inline profile::Profile with_host(profile::Profile profile, const std::string& host) {
  const auto text = [&](std::string_view wanted) {
    profile.strings.emplace_back(wanted);
    return static_cast<std::uint32_t>(profile.strings.size() - 1);
  };
  const profile::Label label{text("host"), text(host)};
  for (auto& set : profile.label_sets) set.push_back(label);
  profile.label_sets.insert(profile.label_sets.begin(), std::vector<profile::Label>());
  for (profile::Sample& sample : profile.samples) ++sample.labels;
  return profile;
}

// A profile is read as it was written. `profile` has no unused contents, and no two equal ones.
inline void expect_round_trip(store::ProfileStore& store, KeptBatch kept) {
  kept.profile.start_unix_ns = kept.begin_ns;
  ASSERT_TRUE(store.append(kept.batch()).value_or(false));
  const auto read = store::read_profile(store, {}, kept.begin_ns, kept.begin_ns + 1);
  ASSERT_TRUE(read.has_value()) << read.error().text();
  const auto wanted = json_contents(in_order(with_host(kept.profile, kept.id.host))),
             seen = json_contents(in_order(*read));
  ASSERT_EQ(wanted.size(), seen.size());
  for (std::size_t i = 0; i < wanted.size(); ++i) ASSERT_EQ(wanted[i], seen[i]);
}

template <typename Subject>
class StoreContract : public ::testing::Test {
 protected:
  void SetUp() override {
    if constexpr (requires { Subject::not_here(); })
      if (const std::string reason = Subject::not_here(); !reason.empty()) GTEST_SKIP() << reason;
  }
  Subject subject_;
};
TYPED_TEST_SUITE_P(StoreContract);

TYPED_TEST_P(StoreContract, AnswersAreTheSumsOfTheProfiles) {
  for (std::uint32_t seed = 1; seed <= 5; ++seed) {
    const auto store = this->subject_.make();
    ASSERT_NE(store, nullptr);
    StoreReference reference;
    RandomProfiles random(seed);
    for (std::uint64_t i = 0; i < 12; ++i) {
      const KeptBatch batch = batch_at(i, random.make(40 + random.below(80)), i % 3 == 0 ? "host-b" : "host-a");
      ASSERT_TRUE(store->append(batch.batch()).value_or(false));
      reference.append(batch);
    }
    const std::uint64_t all = kStart + 12 * kTenSeconds;
    const std::vector<store::Filter> filters = {{},
                                                {"cpu", {}},
                                                {"off-cpu", {{"reason", "futex"}}},
                                                {"", {{"host", "host-b"}, {"pid", "101"}}},
                                                {"", {{"process", "sshd"}}},
                                                {"", {{"thread", "worker"}, {"reason", "disk"}}},
                                                {"", {{"reason", "futex"}, {"reason", "disk"}}},
                                                {"", {{std::string("a\0b\xff", 4), std::string("a\0b\xff", 4)}}},
                                                {"nothing", {}},
                                                {"", {{"reason", "nothing"}}}};
    for (const auto& filter : filters) {
      expect_same_answers(*store, reference, filter, 0 + kStart, all);
      expect_same_answers(*store, reference, filter, kStart + 1, kStart + 5 * kTenSeconds + 1);
      expect_same_answers(*store, reference, filter, all, all + kTenSeconds);
      for (const auto& label : reference.labels()) expect_same_totals(*store, reference, label, filter, kStart, all);
      expect_same_totals(*store, reference, "process", filter, kStart + 1, kStart + 5 * kTenSeconds + 1);
    }
    EXPECT_EQ(*store->labels(), reference.labels());
    for (const auto& label : reference.labels()) EXPECT_EQ(*store->values(label), reference.values(label));
    EXPECT_TRUE(store->values("no such label")->empty());
    EXPECT_EQ(store->stacks({}, kStart, all)->lost, reference.lost(kStart, all));
    EXPECT_EQ(store->stacks({}, kStart, all)->intervals, 12u);
    EXPECT_EQ(*store->extent(), (store::Extent{kStart, all, kTenSeconds}));
  }
}

TYPED_TEST_P(StoreContract, ABatchCountsOnce) {
  const auto store = this->subject_.make();
  ASSERT_NE(store, nullptr);
  StoreReference reference;
  RandomProfiles random(9);
  std::vector<KeptBatch> batches;
  for (std::uint64_t i = 0; i < 4; ++i) batches.push_back(batch_at(i, random.make(50)));
  for (int again = 0; again < 2; ++again)
    for (const auto& batch : batches) {
      const auto appended = store->append(batch.batch());
      ASSERT_TRUE(appended.has_value());
      EXPECT_EQ(*appended, again == 0);
      reference.append(batch);
    }
  // Another host, start or number is another batch.
  for (auto change : {+[](store::BatchId& id) { id.host = "host-c"; }, +[](store::BatchId& id) { ++id.agent_start_ns; },
                      +[](store::BatchId& id) { id.sequence = 77; }}) {
    KeptBatch other = batches.front();
    change(other.id);
    EXPECT_TRUE(store->append(other.batch()).value_or(false));
    reference.append(other);
  }
  expect_same_answers(*store, reference, {}, kStart, kStart + 4 * kTenSeconds);
}

TYPED_TEST_P(StoreContract, ABatchThatIsWrongIsRefusedWhole) {
  const auto store = this->subject_.make();
  ASSERT_NE(store, nullptr);
  KeptBatch wrong = batch_at(0, events_profile());
  wrong.profile.samples.back().locations.push_back(99);
  EXPECT_EQ(store->append(wrong.batch()).error().code, ErrorCode::kOutOfRange);
  wrong = batch_at(0, events_profile());
  wrong.profile.samples.back() = wrong.profile.samples.front();
  wrong.profile.samples.back().count = ~std::uint64_t{0};
  EXPECT_EQ(store->append(wrong.batch()).error().code, ErrorCode::kLimit);
  EXPECT_EQ(store->stacks({}, 0, ~std::uint64_t{0})->intervals, 0u);
  EXPECT_TRUE(store->append(batch_at(0, events_profile()).batch()).value_or(false));
}

TYPED_TEST_P(StoreContract, SumsThatDoNotFitAreAnError) {
  const auto store = this->subject_.make();
  ASSERT_NE(store, nullptr);
  for (std::uint64_t i = 0; i < 2; ++i) {
    KeptBatch large = batch_at(i, events_profile());
    large.profile.samples[1].value = ~std::uint64_t{0} / 3 * 2;
    ASSERT_TRUE(store->append(large.batch()).value_or(false));
  }
  EXPECT_TRUE(store->stacks({}, kStart, kStart + 1).has_value());
  EXPECT_EQ(store->totals("host", {}, kStart, kStart + 2 * kTenSeconds).error().code, ErrorCode::kLimit);
  EXPECT_EQ(store->stacks({}, kStart, kStart + 2 * kTenSeconds).error().code, ErrorCode::kLimit);
  EXPECT_EQ(store->series({}, kStart, kStart + 2 * kTenSeconds, 2 * kTenSeconds).error().code, ErrorCode::kLimit);
  EXPECT_EQ(store->series({}, 0, ~std::uint64_t{0}, 1).error().code, ErrorCode::kLimit);
  EXPECT_EQ(store->series({}, 0, 1, 0).error().code, ErrorCode::kMalformed);
}

TYPED_TEST_P(StoreContract, AProfileIsReadAsItWasWritten) {
  const auto store = this->subject_.make();
  ASSERT_NE(store, nullptr);
  expect_round_trip(*store, batch_at(0, events_profile()));
  profile::Profile synthetic = tidied(synthetic_profile());
  expect_round_trip(*store, batch_at(1, synthetic));
  RandomProfiles random(3);
  profile::Profile made = tidied(random.make(100));
  expect_round_trip(*store, batch_at(2, std::move(made)));
}

TYPED_TEST_P(StoreContract, AnEmptyRangeIsAnEmptyProfile) {
  const auto store = this->subject_.make();
  ASSERT_NE(store, nullptr);
  EXPECT_FALSE(store->extent()->has_value());
  ASSERT_TRUE(store->append(batch_at(0, events_profile()).batch()).has_value());
  EXPECT_TRUE(store->totals("host", {}, kStart + 1, kStart + 2)->empty());
  const auto read = store::read_profile(*store, {}, kStart + 1, kStart + 2);
  ASSERT_TRUE(read.has_value());
  EXPECT_TRUE(read->samples.empty());
  EXPECT_EQ(read->events.size(), 1u);
  EXPECT_FALSE(store->frames(std::vector<std::uint64_t>{12345}).has_value());
}

REGISTER_TYPED_TEST_SUITE_P(StoreContract, AnswersAreTheSumsOfTheProfiles, ABatchCountsOnce,
                            ABatchThatIsWrongIsRefusedWhole, SumsThatDoNotFitAreAnError, AProfileIsReadAsItWasWritten,
                            AnEmptyRangeIsAnEmptyProfile);

inline profile::Profile tidied(const profile::Profile& profile) {
  profile::Profile made = profile;
  std::map<std::string, std::uint32_t> places;
  std::vector<profile::Sample> samples;
  std::vector<std::uint32_t> locations(profile.locations.size(), profile::kNone);
  std::map<std::string, std::uint32_t> known;
  made.locations.clear();
  made.modules.clear();
  for (const profile::Sample& sample : profile.samples) {
    profile::Sample tidy = sample;
    for (std::uint32_t& location : tidy.locations) {
      if (locations[location] == profile::kNone) {
        const profile::Location& of = profile.locations[location];
        const auto [place, is_new] = known.try_emplace(text_of(of, profile.modules, profile.functions),
                                                       static_cast<std::uint32_t>(made.locations.size()));
        if (is_new) {
          made.locations.push_back(of);
          if (of.module != profile::kNone) {
            const auto module = std::ranges::find_if(made.modules, [&](const profile::Module& other) {
              return text_of(&other) == text_of(&profile.modules[of.module]);
            });
            made.locations.back().module = static_cast<std::uint32_t>(module - made.modules.begin());
            if (module == made.modules.end()) made.modules.push_back(profile.modules[of.module]);
          }
        }
        locations[location] = place->second;
      }
      location = locations[location];
    }
    std::string key = fmt::format("{} {} {} {} {} {} {}", tidy.event, tidy.labels, tidy.pid, tidy.tid, tidy.comm,
                                  tidy.end, tidy.certainty);
    for (const auto location : tidy.locations) key += fmt::format(" {}", location);
    const auto [place, is_new] = places.try_emplace(key, static_cast<std::uint32_t>(samples.size()));
    if (is_new) {
      samples.push_back(tidy);
    } else {
      samples[place->second].count += tidy.count;
      samples[place->second].value += tidy.value;
    }
  }
  made.samples = std::move(samples);
  return made;
}

}  // namespace windlass::testing
