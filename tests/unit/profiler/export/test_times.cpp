// Times of samples: in the file, in a part of a profile, and in the outputs that show time.
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "profiler/export/call_tree.h"
#include "profiler/export/chrome.h"
#include "profiler/export/firefox.h"
#include "profiler/export/pprof.h"
#include "profiler/export/report.h"
#include "profiler/export/thread_lines.h"
#include "profiler/export/times.h"
#include "support/events_profile.h"
#include "support/hostile_text.h"
#include "support/timed_profile.h"

namespace windlass::exporter {
namespace {

using nlohmann::json;
using testing::kMs;
using testing::timed_profile;

constexpr profile::ValueType kSamples{0, true}, kOffCpu{1, false};

template <typename Write>
std::string text_of(Write write) {
  std::string text;
  TextWriter out(&text);
  EXPECT_TRUE(write(out).has_value());
  return text;
}
json firefox(const profile::Profile& p, profile::ValueType type = kSamples) {
  return json::parse(text_of([&](TextWriter& out) { return write_firefox(p, thread_lines(p, type), type, out); }));
}
json chrome(const profile::Profile& p, profile::ValueType type = kSamples) {
  return json::parse(text_of([&](TextWriter& out) { return write_chrome(p, thread_lines(p, type), type, out); }));
}
Expected<profile::Profile> reread(const profile::Profile& p) {
  const std::string text = text_of([&](TextWriter& out) { return write_pprof(p, out); });
  return read_pprof(ByteView(reinterpret_cast<const std::byte*>(text.data()), text.size()));
}
std::uint64_t sum(const profile::Profile& p, profile::ValueType type) { return totals_of(p, type).samples; }

TEST(Times, ComeBackFromPprof) {
  const auto p = timed_profile();
  const auto back = reread(p);
  ASSERT_TRUE(back.has_value()) << back.error().text();
  ASSERT_EQ(back->samples.size(), p.samples.size());
  for (std::size_t event = 0; event < 2; ++event) EXPECT_EQ(back->events[event].per_time, 1u);
  for (std::size_t i = 0; i < p.samples.size(); ++i) {
    const auto is = times_of(*back, back->samples[i]), want = times_of(p, p.samples[i]);
    EXPECT_EQ(std::vector(is.begin(), is.end()), std::vector(want.begin(), want.end())) << i;
  }
}

TEST(Times, CostNothingWhereThereAreNone) {
  auto without = timed_profile();
  for (auto& sample : without.samples) sample.times = 0;
  for (auto& event : without.events) event.per_time = 0;
  const auto never = testing::events_profile();
  EXPECT_FALSE(has_times(without));
  EXPECT_FALSE(has_times(*reread(without)));
  EXPECT_FALSE(has_times(*reread(never)));
  const std::string text = text_of([&](TextWriter& out) { return write_json(never, out); });
  EXPECT_EQ(text.find("time\":"), std::string::npos);
}

TEST(Times, MoreThanTheCountAreAnError) {
  auto p = timed_profile();
  p.samples[0].count = 3;
  const auto back = reread(p);
  ASSERT_FALSE(back.has_value());
  EXPECT_NE(back.error().text().find("another number of times"), std::string::npos) << back.error().text();
}

TEST(Times, OverflowsAreAnError) {
  auto p = timed_profile();
  p.times[4] = {~std::uint64_t{0} - 5, 6};  // the wait
  const auto back = reread(p);
  ASSERT_FALSE(back.has_value());
  EXPECT_NE(back.error().text().find("64 bits"), std::string::npos) << back.error().text();
}

TEST(Times, JsonHasThem) {
  const std::string text = text_of([&](TextWriter& out) { return write_json(timed_profile(), out); });
  EXPECT_NE(text.find(R"("times":[{"begin":4000000,"lasted":6000000}])"), std::string::npos);
  EXPECT_NE(text.find(R"("period":1000000,"per_time":1})"), std::string::npos);
}

// ---- a part of the time
// -----------------------------------------------------------------------------------------------

TEST(KeepTimes, LeavesThePartOfWaits) {
  auto p = timed_profile();
  const TimeRange range{3 * kMs, 6 * kMs};
  const LeftOut left_out = keep_times(p, range);
  EXPECT_EQ(sum(p, kSamples), 2u) << "at 3 ms and at 5 ms: the end is not within";
  EXPECT_EQ(sum(p, {1, true}), 1u);
  EXPECT_EQ(sum(p, kOffCpu), 2 * kMs) << "from 4 ms to 6 ms";
  EXPECT_EQ(p.duration_ns, 3 * kMs);
  EXPECT_EQ(left_out.before, 3u);
  EXPECT_EQ(left_out.behind, 4u);
  EXPECT_EQ(left_out.without_time, 1u);
  EXPECT_EQ(text_of(range, left_out), "from 0.003 s to 0.006 s; left out: 3 before, 4 behind, 1 without a time");
}

TEST(KeepTimes, PartsAddUpToTheWhole) {
  const auto whole = timed_profile();
  for (std::uint64_t middle = 0; middle <= 12 * kMs; middle += kMs / 2) {
    auto first = whole, second = whole;
    keep_times(first, {.begin = 0, .end = middle});
    keep_times(second, {.begin = middle});
    EXPECT_EQ(sum(first, kSamples) + sum(second, kSamples) + 1, sum(whole, kSamples)) << "one has no time";
    EXPECT_EQ(sum(first, kOffCpu) + sum(second, kOffCpu), sum(whole, kOffCpu)) << middle;
  }
}

TEST(KeepTimes, ATimeOfOneInManyStandsForMany) {
  auto p = timed_profile();
  p.events[0] = {.name = "page-faults", .unit = "count", .counted = "page-faults", .per_time = 100};
  for (auto& sample : p.samples)
    if (sample.event == 0) sample.count *= 100;
  keep_times(p, {.begin = 0, .end = 2 * kMs});
  EXPECT_EQ(sum(p, {0, true}), 200u);
}

// ---- lines of threads
// -------------------------------------------------------------------------------------------------

TEST(ThreadLines, HaveTheMomentsInOrder) {
  const auto p = timed_profile();
  const ThreadLines lines = thread_lines(p, kSamples);
  ASSERT_EQ(lines.threads.size(), 2u);
  EXPECT_FALSE(lines.made_up);
  EXPECT_EQ(lines.left_out, 1u);
  EXPECT_EQ(note_of(lines), "1 samples without a time are left out");
  EXPECT_EQ(lines.threads[0].name, "main");
  EXPECT_EQ(lines.threads[1].name, "worker");
  EXPECT_EQ(lines.threads[1].process, "main");
  std::vector<std::uint64_t> begins, weights;
  for (const Moment& moment : lines.threads[0].moments) {
    begins.push_back(moment.begin / kMs);
    weights.push_back(moment.weight);
  }
  EXPECT_EQ(begins, (std::vector<std::uint64_t>{0, 1, 2, 3, 4, 10, 11}));
  EXPECT_EQ(weights, (std::vector<std::uint64_t>{1, 1, 1, 1, 0, 1, 1})) << "the wait is no sample";
}

// By time, a sample weighs what it stands for. A wait of another event weighs nothing, however it is asked for.
TEST(ThreadLines, WeightsAreOfTheChosenValueAlone) {
  const auto p = timed_profile();
  const auto weights_of = [&](profile::ValueType type) {
    std::vector<std::uint64_t> weights;
    for (const Moment& moment : thread_lines(p, type).threads.at(0).moments) weights.push_back(moment.weight);
    return weights;
  };
  EXPECT_EQ(weights_of({0, false}), (std::vector<std::uint64_t>{kMs, kMs, kMs, kMs, 0, kMs, kMs}));
  EXPECT_EQ(weights_of({1, false}), std::vector<std::uint64_t>{6 * kMs});
  EXPECT_EQ(weights_of({1, true}), std::vector<std::uint64_t>{1});
}

TEST(ThreadLines, AreMadeUpWithoutTimes) {
  const auto p = testing::events_profile();
  const ThreadLines lines = thread_lines(p, kSamples);
  EXPECT_TRUE(lines.made_up);
  EXPECT_NE(note_of(lines).find("--timeline"), std::string::npos);
  ASSERT_EQ(lines.threads.size(), 2u);
  EXPECT_EQ(lines.threads[0].pid, 8u) << "the busiest process first";
  EXPECT_EQ(lines.threads[0].moments.at(0).lasted, 30 * kMs);
  const ThreadLines waits = thread_lines(p, kOffCpu);
  std::uint64_t end = 0, sum_of = 0;
  for (const Moment& moment : waits.threads[0].moments) {
    EXPECT_EQ(moment.begin, end);
    end += moment.lasted;
  }
  for (const ThreadLine& thread : waits.threads)
    for (const Moment& moment : thread.moments) sum_of += moment.weight;
  EXPECT_EQ(sum_of, sum(p, kOffCpu));
}

// ---- Firefox
// ----------------------------------------------------------------------------------------------------------

// "main;one", root first.
std::string stack_text(const json& shared, json stack) {
  std::string text;
  while (!stack.is_null()) {
    const auto& frame = shared["stackTable"]["frame"][stack.get<std::size_t>()];
    const auto function = shared["frameTable"]["func"][frame.get<std::size_t>()].get<std::size_t>();
    const auto name = shared["funcTable"]["name"][function].get<std::size_t>();
    text = shared["stringArray"][name].get<std::string>() + (text.empty() ? "" : ";" + text);
    stack = shared["stackTable"]["prefix"][stack.get<std::size_t>()];
  }
  return text;
}

// Columns of a table that has not as many values as it says.
void expect_table(const json& table, const std::string& name) {
  for (const auto& [key, values] : table.items())
    if (values.is_array()) {
      EXPECT_EQ(values.size(), table["length"].get<std::size_t>()) << name << "." << key;
    }
}

TEST(Firefox, SamplesHaveTheirTimesAndStacks) {
  const json file = firefox(timed_profile());
  const json &shared = file["shared"], &thread = file["threads"][0], &samples = thread["samples"];
  EXPECT_EQ(file["meta"]["preprocessedProfileVersion"], 61);
  EXPECT_EQ(file["meta"]["interval"], 1.0);
  EXPECT_EQ(file["meta"]["startTime"], 1'700'000'000'000.0);
  EXPECT_EQ(file["meta"]["profilingEndTime"], 12.0);
  EXPECT_EQ(thread["name"], "main");
  EXPECT_EQ(thread["pid"], "7");
  EXPECT_EQ(thread["isMainThread"], true);
  EXPECT_EQ(file["threads"][1]["isMainThread"], false);
  std::string seen;
  for (std::size_t i = 0; i < samples["length"]; ++i)
    seen += std::to_string(samples["time"][i].get<int>()) + " " + stack_text(shared, samples["stack"][i]) + " " +
            std::to_string(samples["weight"][i].get<int>()) + " " +
            std::to_string(samples["threadCPUDelta"][i].get<int>()) + "\n";
  EXPECT_EQ(seen,
            "0 main;one 1 1000\n1 main;one 1 1000\n2 main;one 1 1000\n3 main;one 1 1000\n"
            "4  0 0\n9  0 0\n"  // at rest
            "10 main;two 1 1000\n11 main;two 1 1000\n");
  EXPECT_EQ(stack_text(shared, file["threads"][1]["samples"]["stack"][2]),
            "[truncated: " + std::string(profile::end_text(WL_END_NO_ROW)) + "];one");
}

TEST(Firefox, TablesAreWhole) {
  const json file = firefox(timed_profile());
  for (const char* name : {"stackTable", "frameTable", "funcTable", "resourceTable", "nativeSymbols", "sources"})
    expect_table(file["shared"][name], name);
  for (const auto& thread : file["threads"]) {
    expect_table(thread["samples"], "samples");
    expect_table(thread["markers"], "markers");
  }
  const json& frames = file["shared"]["frameTable"];
  std::set<std::string> categories;
  std::map<std::string, int> depths;
  for (std::size_t i = 0; i < frames["length"]; ++i) {
    const auto function = frames["func"][i].get<std::size_t>();
    const auto name = file["shared"]["funcTable"]["name"][function].get<std::size_t>();
    const std::string text = file["shared"]["stringArray"][name];
    categories.insert(text + " " +
                      file["meta"]["categories"][frames["category"][i].get<std::size_t>()]["name"].get<std::string>());
    depths[text] = std::max(depths[text], frames["inlineDepth"][i].get<int>());
    EXPECT_EQ(frames["address"][i] == -1, text.starts_with('['));
  }
  EXPECT_EQ(depths["two"], 1) << "inlined";
  EXPECT_EQ(depths["one"], 0);
  EXPECT_TRUE(categories.contains("one User"));
  EXPECT_TRUE(categories.contains("vfs_read Kernel"));
  EXPECT_TRUE(categories.contains("jitted Generated code"));
  ASSERT_EQ(file["libs"].size(), 2u) << "generated code is in none";
  EXPECT_EQ(file["libs"][0]["codeId"], "0123456789abcdef0123456789abcdef01234567");
  EXPECT_EQ(file["libs"][0]["breakpadId"], "67452301AB89EFCD0123456789ABCDEF0");
  EXPECT_EQ(file["libs"][1]["name"], "[kernel]");
}

TEST(Firefox, WaitsAreMarkers) {
  const json file = firefox(timed_profile());
  const json& markers = file["threads"][0]["markers"];
  ASSERT_EQ(markers["length"], 1);
  EXPECT_EQ(markers["startTime"][0], 4.0);
  EXPECT_EQ(markers["endTime"][0], 10.0);
  EXPECT_EQ(markers["data"][0]["type"], file["meta"]["markerSchema"][0]["name"]);
  EXPECT_EQ(markers["data"][0]["reason"], "futex");
  EXPECT_EQ(stack_text(file["shared"], markers["data"][0]["cause"]["stack"]), "main;rest");
  EXPECT_EQ(file["shared"]["stringArray"][markers["name"][0].get<std::size_t>()], "off-cpu");
  EXPECT_EQ(file["threads"][1]["markers"]["length"], 0);
}

TEST(Firefox, TimeIsTheWeightOfWaits) {
  const json file = firefox(timed_profile(), kOffCpu);
  const json& samples = file["threads"][0]["samples"];
  EXPECT_EQ(samples["weightType"], "tracing-ms");
  EXPECT_EQ(samples["weight"], json::parse("[6.0]"));
  EXPECT_EQ(samples["threadCPUDelta"], json::parse("[0.0]"));
}

// ---- Chrome
// -----------------------------------------------------------------------------------------------------------

TEST(Chrome, FramesAreSlices) {
  const json file = chrome(timed_profile());
  EXPECT_EQ(file["otherData"]["value"], "samples");
  EXPECT_EQ(file["otherData"]["unit"], "count");
  std::multiset<std::string> slices, names;
  for (const json& event : file["traceEvents"]) {
    if (event["ph"] == "M") {
      names.insert(event["name"].get<std::string>() + " " + event["args"]["name"].get<std::string>());
      continue;
    }
    ASSERT_EQ(event["ph"], "X");
    if (event["tid"] != 7) continue;
    slices.insert(event["name"].get<std::string>() + " " + event["cat"].get<std::string>() + " " +
                  std::to_string(event["ts"].get<int>()) + " " + std::to_string(event["dur"].get<int>()));
  }
  EXPECT_EQ(names, (std::multiset<std::string>{"process_name main", "thread_name main", "thread_name worker"}));
  EXPECT_EQ(slices, (std::multiset<std::string>{"main user,samples 0 12000", "one user,samples 0 4000",
                                                "rest user,samples 4000 6000", "futex wait 4000 6000",
                                                "two user,samples 10000 2000"}));
}

TEST(Chrome, ASliceEndsWhereTheThreadRests) {
  auto p = timed_profile();
  std::erase_if(p.samples, [](const auto& sample) { return sample.event == 1; });
  std::multiset<std::string> slices;
  const json file = chrome(p);
  for (const json& event : file["traceEvents"])
    if (event["ph"] == "X" && event["tid"] == 7 && event["name"] == "main")
      slices.insert(std::to_string(event["ts"].get<int>()) + " " + std::to_string(event["dur"].get<int>()));
  EXPECT_EQ(slices, (std::multiset<std::string>{"0 4000", "10000 2000"}));
}

// A thread runs before it waits: what it did there shortly before goes on until then.
TEST(Chrome, ASliceGoesOnUntilAWaitShortlyBehindIt) {
  for (const bool shortly : {true, false}) {
    auto p = timed_profile();
    const std::uint64_t begin = shortly ? 5 * kMs : 5 * kMs + 1;  // the last sample stands for 3 ms to 4 ms
    p.times[4] = {begin, 10 * kMs - begin};
    std::size_t slices = 0;
    const json file = chrome(p);
    for (const json& event : file["traceEvents"])
      slices += event["ph"] == "X" && event["tid"] == 7 && event["name"] == "main" ? 1 : 0;
    EXPECT_EQ(slices, shortly ? 1u : 2u);
  }
}

// Slices of a thread lie in each other or beside each other: never across.
TEST(Chrome, SlicesNest) {
  auto p = timed_profile();
  p.times[4] = {3 * kMs + kMs / 2, 7 * kMs};  // the wait overlaps the samples around it
  std::vector<std::pair<std::int64_t, std::int64_t>> slices;
  const json file = chrome(p);
  for (const json& event : file["traceEvents"]) {
    if (event["ph"] != "X" || event["tid"] != 7) continue;
    const auto begin = static_cast<std::int64_t>(event["ts"].get<double>());
    slices.emplace_back(begin, begin + static_cast<std::int64_t>(event["dur"].get<double>()));
  }
  EXPECT_GE(slices.size(), 5u);
  for (const auto& [begin, end] : slices) {
    EXPECT_LE(begin, end);
    for (const auto& [other_begin, other_end] : slices)
      EXPECT_FALSE(begin < other_begin && other_begin < end && end < other_end) << begin << " " << other_begin;
  }
}

TEST(Lines, NoHostileCharacterInAnyOutput) {
  auto p = timed_profile();
  for (auto& text : p.strings) text += test::hostile_names().front();
  for (auto& function : p.functions) function.name += test::hostile_names().front();
  p.comments.push_back(test::hostile_names().front());
  const ThreadLines lines = thread_lines(p, kSamples);
  for (const std::string& text : {text_of([&](TextWriter& out) { return write_firefox(p, lines, kSamples, out); }),
                                  text_of([&](TextWriter& out) { return write_chrome(p, lines, kSamples, out); })}) {
    EXPECT_EQ(test::forbidden_in(text), "");
    EXPECT_TRUE(json::accept(text));
  }
}

}  // namespace
}  // namespace windlass::exporter
