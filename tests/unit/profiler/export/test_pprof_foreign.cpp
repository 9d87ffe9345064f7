// pprof files as other programs write them: several sample types, heap profiles, labels, values of all sorts. And what
// a hostile one may do with these.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <protozero/pbf_writer.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "profiler/export/call_tree.h"
#include "profiler/export/firefox.h"
#include "profiler/export/labels.h"
#include "profiler/export/pprof.h"
#include "profiler/export/pprof_fields.h"
#include "profiler/export/report.h"
#include "profiler/export/thread_lines.h"
#include "profiler/export/values.h"

namespace windlass::exporter {
namespace {

using protozero::pbf_writer;

constexpr std::int64_t kMostInt = 0x7fff'ffff'ffff'ffff;

// A file, message by message.
class Foreign {
 public:
  using Labels = std::vector<std::pair<std::string, std::string>>;

  Foreign& type(std::string_view name, std::string_view unit) {
    value_type(pprof::kSampleType, name, unit);
    return *this;
  }
  Foreign& period(std::string_view name, std::string_view unit, std::int64_t period) {
    value_type(pprof::kPeriodType, name, unit);
    top_.add_int64(pprof::kPeriod, period);
    return *this;
  }
  Foreign& default_type(std::string_view name) {
    top_.add_int64(pprof::kDefaultSampleType, id(name));
    return *this;
  }
  Foreign& sample(const std::vector<std::int64_t>& values, const Labels& labels = {}) {
    pbf_writer message(top_, pprof::kSample);
    message.add_packed_uint64(pprof::kSampleLocationId, &kLocation, &kLocation + 1);
    message.add_packed_int64(pprof::kSampleValue, values.begin(), values.end());
    for (const auto& [key, text] : labels) {
      pbf_writer label(message, pprof::kSampleLabel);
      label.add_int64(pprof::kLabelKey, id(key));
      label.add_int64(pprof::kLabelStr, id(text));
    }
    pbf_writer number(message, pprof::kSampleLabel);  // as Go's heap profiles have them
    number.add_int64(pprof::kLabelKey, id("bytes"));
    number.add_int64(pprof::kLabelNum, 48);
    number.add_int64(pprof::kLabelNumUnit, id("bytes"));
    return *this;
  }
  // The location and the strings go last, which the format allows.
  [[nodiscard]] Expected<profile::Profile> read(const PprofLimits& limits = {}) const {
    std::string whole = text_;
    pbf_writer end(whole);
    {
      pbf_writer location(end, pprof::kLocation);
      location.add_uint64(pprof::kLocationId, kLocation);
      location.add_uint64(pprof::kAddress, 0x1000);
    }
    for (const std::string& text : strings_) end.add_string(pprof::kStringTable, text);
    return read_pprof({reinterpret_cast<const std::byte*>(whole.data()), whole.size()}, limits);
  }

 private:
  static constexpr std::uint64_t kLocation = 1;

  void value_type(std::uint32_t tag, std::string_view name, std::string_view unit) {
    pbf_writer message(top_, tag);
    message.add_int64(pprof::kType, id(name));
    message.add_int64(pprof::kUnit, id(unit));
  }
  std::int64_t id(std::string_view text) {
    for (std::size_t i = 0; i < strings_.size(); ++i)
      if (strings_[i] == text) return static_cast<std::int64_t>(i);
    strings_.emplace_back(text);
    return static_cast<std::int64_t>(strings_.size() - 1);
  }

  std::string text_;
  pbf_writer top_{text_};
  std::vector<std::string> strings_{""};
};

// The sum of the value with this name.
std::uint64_t sum_of(const profile::Profile& p, std::string_view name) {
  const auto found = values_named(p, name);
  EXPECT_EQ(found.size(), 1u) << name;
  return found.empty() ? 0 : totals_of(p, found.front().type).samples;
}

// Each of its events makes a sample with the whole stack.
TEST(PprofForeign, FramesCountForEachEventOfASample) {
  Foreign file;
  file.type("cpu", "nanoseconds").type("alloc", "bytes").sample({5, 7});
  const auto both = file.read({.max_frames = 2});
  ASSERT_TRUE(both.has_value()) << both.error().text();
  EXPECT_EQ(both->samples.size(), 2u);
  const auto few = file.read({.max_frames = 1});
  ASSERT_FALSE(few.has_value());
  EXPECT_EQ(few.error().code, ErrorCode::kLimit);
}

// protobuf allows a list to come in parts, packed or not.
TEST(PprofForeign, LocationsInSeveralFields) {
  std::string whole;
  pbf_writer top(whole);
  for (const char* text : {"", "samples", "count"}) top.add_string(pprof::kStringTable, text);
  {
    pbf_writer type(top, pprof::kSampleType);
    type.add_int64(pprof::kType, 1);
    type.add_int64(pprof::kUnit, 2);
  }
  for (const std::uint64_t id : {1, 2, 300}) pbf_writer(top, pprof::kLocation).add_uint64(pprof::kLocationId, id);
  using Parts = std::vector<std::vector<std::uint64_t>>;  // one of one id is not packed
  for (const Parts& parts : {Parts{{1, 300, 2}}, Parts{{1, 300}, {2, 1}}, Parts{{2}, {1, 300}}, Parts{{1, 2}, {300}},
                             Parts{{1}, {2}, {2}}, Parts{}, Parts{{1, 300, 2}}, Parts{{}, {1, 2}}}) {
    pbf_writer sample(top, pprof::kSample);
    for (const auto& ids : parts) {
      if (ids.size() == 1)
        sample.add_uint64(pprof::kSampleLocationId, ids[0]);
      else if (ids.empty())
        sample.add_message(pprof::kSampleLocationId, std::string());
      else
        sample.add_packed_uint64(pprof::kSampleLocationId, ids.begin(), ids.end());
    }
    const std::int64_t one = 1;
    sample.add_packed_int64(pprof::kSampleValue, &one, &one + 1);
  }
  const auto read = [&](const PprofLimits& limits) {
    return read_pprof({reinterpret_cast<const std::byte*>(whole.data()), whole.size()}, limits);
  };
  const auto p = read({});
  ASSERT_TRUE(p.has_value()) << p.error().text();
  std::vector<std::vector<std::uint32_t>> stacks;
  for (const auto& sample : p->samples) stacks.push_back(sample.locations);
  EXPECT_EQ(stacks, (std::vector<std::vector<std::uint32_t>>{
                        {0, 2, 1}, {0, 2, 1, 0}, {1, 0, 2}, {0, 1, 2}, {0, 1, 1}, {}, {0, 2, 1}, {0, 1}}));
  EXPECT_TRUE(read({.max_frames = 21}).has_value());
  EXPECT_FALSE(read({.max_frames = 20}).has_value()) << "a stack counts each time";
}

TEST(PprofForeign, GoHeap) {
  const auto p = Foreign()
                     .type("alloc_objects", "count")
                     .type("alloc_space", "bytes")
                     .type("inuse_objects", "count")
                     .type("inuse_space", "bytes")
                     .period("space", "bytes", 524288)
                     .default_type("inuse_space")
                     .sample({10, 4800, 2, 960})
                     .sample({5, 100, 0, 0})
                     .read();
  ASSERT_TRUE(p.has_value()) << p.error().text();
  EXPECT_EQ(p->events.size(), 2u);
  EXPECT_EQ(p->shown_event, 1u);
  EXPECT_EQ(name_of(*p, shown_by_default(*p)), "inuse_space");
  EXPECT_EQ(sum_of(*p, "alloc_objects"), 15u);
  EXPECT_EQ(sum_of(*p, "alloc_space"), 4900u);
  EXPECT_EQ(sum_of(*p, "inuse_objects"), 2u);
  EXPECT_EQ(sum_of(*p, "inuse_space"), 960u);
  EXPECT_EQ(p->samples.size(), 3u) << "the second sample has nothing in use";
  for (const auto& sample : p->samples) EXPECT_EQ(sample.locations, std::vector<std::uint32_t>{0});
  EXPECT_EQ(p->label_sets.size(), 1u) << "labels with numbers are left out";
}

// jemalloc's and tcmalloc's: the period is the mean distance of samples, also where it happens to divide the values.
TEST(PprofForeign, HeapWithAPeriod) {
  const auto p = Foreign()
                     .type("objects", "count")
                     .type("space", "bytes")
                     .period("space", "bytes", 1024)
                     .sample({2, 2048})
                     .sample({3, 3072})
                     .read();
  ASSERT_TRUE(p.has_value()) << p.error().text();
  EXPECT_EQ(p->events.front().period, 0u);
  EXPECT_EQ(name_of(*p, shown_by_default(*p)), "space");
  EXPECT_EQ(sum_of(*p, "objects"), 5u);
  EXPECT_EQ(sum_of(*p, "space"), 5120u);
}

TEST(PprofForeign, CpuTimeThatIsNoMultipleOfThePeriod) {
  const auto cpu = [](std::int64_t second) {
    return Foreign()
        .type("samples", "count")
        .type("cpu", "nanoseconds")
        .period("cpu", "nanoseconds", 10'000'000)
        .sample({1, 10'000'000})
        .sample({2, second})
        .read();
  };
  const auto even = cpu(20'000'000), odd = cpu(20'000'001), none = cpu(0);
  ASSERT_TRUE(even.has_value() && odd.has_value() && none.has_value());
  EXPECT_EQ(even->events.front().period, 10'000'000u);
  EXPECT_EQ(name_of(*even, shown_by_default(*even)), "samples");
  EXPECT_EQ(odd->events.front().period, 0u);
  EXPECT_EQ(name_of(*odd, shown_by_default(*odd)), "cpu");
  EXPECT_EQ(sum_of(*odd, "samples"), 3u);
  EXPECT_EQ(sum_of(*even, "cpu"), 30'000'000u);
  EXPECT_EQ(sum_of(*odd, "cpu"), 30'000'001u);
  EXPECT_EQ(sum_of(*none, "cpu"), 10'000'000u);
}

TEST(PprofForeign, TheLastTypeIsShownIfTheFileNamesNone) {
  Foreign file;
  file.type("contentions", "count").type("delay", "nanoseconds").type("space", "bytes").sample({1, 2, 3});
  const auto last = file.read();
  ASSERT_TRUE(last.has_value());
  EXPECT_EQ(name_of(*last, shown_by_default(*last)), "space");
  const auto unknown = file.default_type("nosuch").read();
  ASSERT_TRUE(unknown.has_value());
  EXPECT_EQ(name_of(*unknown, shown_by_default(*unknown)), "space");
  const auto named = file.default_type("contentions").read();
  ASSERT_TRUE(named.has_value());
  EXPECT_EQ(named->shown_event, 0u);
}

TEST(PprofForeign, LabelsWithStrings) {
  const auto p = Foreign()
                     .type("samples", "count")
                     .sample({1}, {{"handler", "/login"}, {"region", "eu"}})
                     .sample({2}, {{"handler", "/logout"}})
                     .sample({3}, {{"handler", "/login"}, {"region", "eu"}})
                     .sample({4}, {{"handler", "/login"}, {"handler", "/logout"}})
                     .sample({5}, {{"comm", "worker"}})
                     .read();
  ASSERT_TRUE(p.has_value()) << p.error().text();
  EXPECT_EQ(p->label_sets.size(), 4u) << "each once";
  EXPECT_EQ(label_keys(*p), (std::vector<std::string>{"handler", "region", "comm", "pid", "tid"}));
  const auto handlers = label_shares(*p, {0, true}, "handler");
  ASSERT_EQ(handlers.shares.size(), 2u);
  EXPECT_EQ(handlers.shares[0].text, "/login");
  EXPECT_EQ(handlers.shares[0].weight, 8u);
  EXPECT_EQ(handlers.shares[1].weight, 6u);
  EXPECT_EQ(handlers.without, 5u);
  EXPECT_EQ(label_shares(*p, {0, true}, "comm").shares[0].text, "[unknown]");
  EXPECT_EQ(label_shares(*p, {0, true}, "comm").shares[1].text, "worker");
}

TEST(PprofForeign, ValuesBelowZeroCountAsZero) {
  const auto p = Foreign().type("objects", "count").type("space", "bytes").sample({-3, -100}).sample({1, 7}).read();
  ASSERT_TRUE(p.has_value());
  EXPECT_EQ(sum_of(*p, "objects"), 1u);
  EXPECT_EQ(sum_of(*p, "space"), 7u);
}

// Shares of sums that have wrapped round would be nonsense.
TEST(PprofHostile, SumsOfMoreThan64Bits) {
  const auto with = [](std::size_t samples, std::vector<std::int64_t> values) {
    Foreign file;
    file.type("objects", "count").type("space", "bytes");
    for (std::size_t i = 0; i < samples; ++i) file.sample(values);
    return file.read();
  };
  for (const auto& values : {std::vector<std::int64_t>{1, kMostInt}, std::vector<std::int64_t>{kMostInt, 1}}) {
    EXPECT_TRUE(with(2, values).has_value());
    const auto three = with(3, values);
    ASSERT_FALSE(three.has_value());
    EXPECT_EQ(three.error().code, ErrorCode::kLimit);
    EXPECT_NE(three.error().text().find("64 bits"), std::string::npos) << three.error().text();
  }
  // A count times the period.
  const auto times = Foreign()
                         .type("samples", "count")
                         .type("cpu", "nanoseconds")
                         .period("cpu", "nanoseconds", kMostInt)
                         .sample({kMostInt, 1})
                         .sample({2, 2})
                         .read();
  ASSERT_TRUE(times.has_value());
  EXPECT_LE(sum_of(*times, "cpu"), 3u) << "as the file says";
}

// Each event is looked for in each sample: their number would make a small file take hours.
TEST(PprofHostile, ManySampleTypes) {
  const auto with = [](std::size_t types) {
    Foreign file;
    for (std::size_t i = 0; i < types; ++i) file.type("a", "bytes");
    return file.sample(std::vector<std::int64_t>(types, 1)).read();
  };
  const auto most = with(64);
  ASSERT_TRUE(most.has_value()) << most.error().text();
  EXPECT_EQ(most->samples.size(), 64u);
  const auto more = with(65);
  ASSERT_FALSE(more.has_value());
  EXPECT_EQ(more.error().code, ErrorCode::kLimit);
}

TEST(PprofHostile, ASampleWithManyLabelsAndAPeriodWithoutEnd) {
  profile::Profile p;
  p.label_sets.emplace_back();
  for (std::uint32_t i = 0; i < 200'000; ++i) {
    p.strings.push_back(std::to_string(i));
    p.label_sets[1].push_back({i, i});
  }
  p.events[0].period = std::uint64_t{1} << 63;
  p.events[0].per_time = 1;
  p.times = {{5, 0}, {1'000'000'000, 0}};
  p.samples.push_back({.count = 2, .labels = 1, .times = 2});
  std::string text;
  TextWriter out(&text);
  EXPECT_TRUE(write_json(p, out, {0, true}).has_value());
  text.clear();
  EXPECT_TRUE(write_firefox(p, thread_lines(p, {0, true}), {0, true}, out).has_value());
  const auto samples = nlohmann::json::parse(text)["threads"][0]["samples"]["time"];
  EXPECT_TRUE(std::ranges::is_sorted(samples)) << samples;
}

// A label of its own in each sample: nothing here is quadratic in their number.
TEST(PprofHostile, ManyLabels) {
  profile::Profile p;
  for (std::uint32_t i = 0; i < 200'000; ++i) {
    p.strings.push_back(std::to_string(i));
    p.label_sets.push_back({{i, i}});
    p.samples.push_back({.count = 1, .labels = i + 1});
  }
  EXPECT_EQ(label_shares(p, {0, true}).size(), 200'000u);
  EXPECT_EQ(label_keys(p).size(), 200'003u);
  const std::vector<LabelFilter> filters{{"7", "7"}};
  keep_samples(p, filters);
  EXPECT_EQ(p.samples.size(), 1u);
}

}  // namespace
}  // namespace windlass::exporter
