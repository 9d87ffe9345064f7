// Profiles of several events in every output, their values by name, and what labels choose.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "profiler/export/call_tree.h"
#include "profiler/export/folded.h"
#include "profiler/export/html.h"
#include "profiler/export/labels.h"
#include "profiler/export/numbers.h"
#include "profiler/export/pprof.h"
#include "profiler/export/processes.h"
#include "profiler/export/report.h"
#include "profiler/export/shorten_name.h"
#include "profiler/export/speedscope.h"
#include "profiler/export/values.h"
#include "support/events_profile.h"
#include "support/hostile_text.h"
#include "support/page_data.h"

namespace windlass::exporter {
namespace {

using nlohmann::json;
using profile::ValueType;

constexpr ValueType kSamples{0, true}, kCpu{0, false}, kWaits{1, true}, kOffCpu{1, false};

template <typename Write>
std::string text_of(Write write) {
  std::string text;
  TextWriter out(&text);
  EXPECT_TRUE(write(out).has_value());
  return text;
}
std::string folded(const profile::Profile& p, ValueType type) {
  return text_of([&](TextWriter& out) { return write_folded(p, out, type); });
}
std::string report(const profile::Profile& p, const ReportOptions& options) {
  return text_of([&](TextWriter& out) { return write_report(p, out, options); });
}
json speedscope(const profile::Profile& p, std::optional<ValueType> first = {}) {
  return json::parse(text_of([&](TextWriter& out) { return write_speedscope(p, out, first); }));
}
std::vector<json> json_lines(const profile::Profile& p, ValueType type) {
  std::istringstream in(text_of([&](TextWriter& out) { return write_json(p, out, type); }));
  std::vector<json> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(json::parse(line));
  return lines;
}
test::PageData page_data(const profile::Profile& p, const HtmlOptions& options = {}) {
  return test::page_data(text_of([&](TextWriter& out) { return write_html(p, out, options); }));
}
// What the page adds up, by the names of the values that it offers.
std::vector<std::pair<std::string, std::uint64_t>> page_sums(const test::PageData& data) {
  std::vector<std::pair<std::string, std::uint64_t>> sums;
  for (const json& value : data.names["values"]) {
    std::uint64_t sum = 0;
    for (const auto& sample : data.samples) {
      const json& factors = value["factors"][sample.numbers.at("event")];
      sum += sample.numbers.at("count") * factors[0].get<std::uint64_t>() +
             sample.numbers.at("value") * factors[1].get<std::uint64_t>();
    }
    sums.emplace_back(value["name"], sum);
  }
  return sums;
}

TEST(Events, FoldedHasTheChosenValue) {
  const auto p = testing::events_profile();
  EXPECT_EQ(folded(p, kSamples), "main;main;run 40\n");
  EXPECT_EQ(folded(p, kCpu), "main;main;run 40000000\n");
  EXPECT_EQ(folded(p, kWaits), "main;main;wait 7\nworker;main;run;wait 1\n");
  EXPECT_EQ(folded(p, kOffCpu), "main;main;wait 3500000\nworker;main;run;wait 1000000\n");
}

TEST(Events, ReportHasTheChosenValueAndNamesTheOthers) {
  const auto p = testing::events_profile();
  const auto cpu = report(p, {});
  EXPECT_TRUE(cpu.starts_with("40 samples at 1000 Hz in 1.0 s (0.0 s of CPU); 100.00% of the stacks whole; 0 lost\n"));
  EXPECT_NE(cpu.find("  --value waits shows 8\n  --value off-cpu shows 4.50 ms\n"), std::string::npos) << cpu;
  EXPECT_EQ(cpu.find("--value cpu"), std::string::npos) << "its shares are those of samples";
  EXPECT_EQ(cpu.find("LABEL"), std::string::npos) << "no sample of CPU time has one";
  const auto off_cpu = report(p, {.value = kOffCpu});
  EXPECT_TRUE(off_cpu.starts_with("4.50 ms of off-cpu in 1.0 s; 100.00% of it with whole stacks; 0 lost\n")) << off_cpu;
  EXPECT_NE(off_cpu.find("  --value samples shows 40\n  --value waits shows 8\n"), std::string::npos) << off_cpu;
  EXPECT_NE(off_cpu.find("\nLABEL reason: futex 66.7%, page fault 22.2%, none 11.1%\n"), std::string::npos) << off_cpu;
  EXPECT_NE(off_cpu.find("100.00%  100.00%    4.50 ms  wait"), std::string::npos) << off_cpu;
  EXPECT_NE(off_cpu.find("TIME  FUNCTION"), std::string::npos);
  EXPECT_NE(report(p, {.value = kWaits}).find("COUNT  FUNCTION"), std::string::npos);
}

TEST(Events, SpeedscopeHasAllOfThem) {
  const auto p = testing::events_profile();
  const auto weights = [](const json& file) {
    std::map<std::string, std::uint64_t> sums;
    for (const auto& one : file["profiles"]) sums[one["name"]] = one["endValue"];
    return sums;
  };
  const auto file = speedscope(p);
  EXPECT_EQ(weights(file), (std::map<std::string, std::uint64_t>{{"cpu: all processes", 40'000'000},
                                                                 {"cpu: main (pid 7)", 10'000'000},
                                                                 {"cpu: main (pid 8)", 30'000'000},
                                                                 {"off-cpu: main (pid 7)", 4'500'000},
                                                                 {"wall: all processes", 44'500'000},
                                                                 {"wall: main (pid 7)", 14'500'000},
                                                                 {"wall: main (pid 8)", 30'000'000}}));
  for (const auto& one : file["profiles"]) EXPECT_EQ(one["unit"], "nanoseconds");
  const auto waits = speedscope(p, kWaits)["profiles"];
  EXPECT_EQ(waits[0]["name"], "waits: main (pid 7)");
  EXPECT_EQ(waits[0]["unit"], "none");
  EXPECT_EQ(waits[0]["endValue"], 8);
  EXPECT_EQ(waits[1]["name"], "cpu: all processes");
}

TEST(Events, JsonHasAllOfThem) {
  const auto p = testing::events_profile();
  const auto lines = json_lines(p, kOffCpu);
  const json& head = lines.front();
  EXPECT_EQ(head["value"], "off-cpu");
  EXPECT_EQ(head["unit"], "nanoseconds");
  EXPECT_EQ(head["samples"], 4'500'000);
  EXPECT_EQ(head["events"], json::parse(R"([{"name":"cpu","unit":"nanoseconds","counted":"samples","period":1000000},
                                            {"name":"off-cpu","unit":"nanoseconds","counted":"waits","period":0}])"));
  std::vector<json> samples;
  for (const json& line : lines) {
    if (line["type"] == "sample") samples.push_back(line);
    if (line["type"] == "function" && line["name"] == "wait") {
      EXPECT_EQ(line["self"], 4'500'000);
    }
  }
  ASSERT_EQ(samples.size(), 5u);
  EXPECT_EQ(samples[0]["event"], "cpu");
  EXPECT_EQ(samples[0]["value"], 10'000'000);
  EXPECT_FALSE(samples[0].contains("labels"));
  EXPECT_EQ(samples[1]["event"], "off-cpu");
  EXPECT_EQ(samples[1]["count"], 2);
  EXPECT_EQ(samples[1]["value"], 3'000'000);
  EXPECT_EQ(samples[1]["labels"], json::parse(R"({"reason":["futex"]})"));
}

TEST(Events, PageHasAllOfThem) {
  const auto p = testing::events_profile();
  const auto data = page_data(p);
  using Sums = std::vector<std::pair<std::string, std::uint64_t>>;
  EXPECT_EQ(page_sums(data), (Sums{{"samples", 40}, {"off-cpu", 4'500'000}, {"wall", 44'500'000}, {"waits", 8}}));
  EXPECT_EQ(data.names["values"][1]["event"], "off-cpu");
  EXPECT_EQ(data.names["values"][1]["unit"], "nanoseconds");
  EXPECT_EQ(data.names["values"][0]["hz"], 1000);
  EXPECT_EQ(data.names["labels"], json::parse(R"([[],[["reason","futex"]],[["reason","page fault"]]])"));
  EXPECT_EQ(page_sums(page_data(p, {.first = kWaits})),
            (Sums{{"waits", 8}, {"samples", 40}, {"off-cpu", 4'500'000}, {"wall", 44'500'000}}));
  EXPECT_EQ(page_sums(page_data(p, {.first = kCpu})).front(), std::pair(std::string("cpu"), std::uint64_t{40'000'000}));
}

TEST(Events, ComeBackFromPprof) {
  auto p = testing::events_profile();
  for (const std::uint32_t shown : {0u, 1u}) {
    p.shown_event = shown;
    const auto bytes = text_of([&](TextWriter& out) { return write_pprof(p, out); });
    const auto back = read_pprof({reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()});
    ASSERT_TRUE(back.has_value()) << back.error().text();
    EXPECT_EQ(back->shown_event, shown);
    ASSERT_EQ(back->events.size(), 2u);
    for (std::size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(back->events[i].name, p.events[i].name);
      EXPECT_EQ(back->events[i].unit, p.events[i].unit);
      EXPECT_EQ(back->events[i].counted, p.events[i].counted);
      EXPECT_EQ(back->events[i].period, p.events[i].period);
    }
    for (const ValueType type : value_types(p)) EXPECT_EQ(folded(*back, type), folded(p, type));
    for (const ValueType type : value_types(p)) EXPECT_EQ(json_lines(*back, type), json_lines(p, type));
  }
}

TEST(Events, AnEventWithoutSamples) {
  auto p = testing::events_profile();
  std::erase_if(p.samples, [](const auto& sample) { return sample.event == 1; });
  EXPECT_EQ(folded(p, kOffCpu), "");
  EXPECT_TRUE(report(p, {.value = kOffCpu}).starts_with("no waits; 0 lost\n"));
  EXPECT_EQ(report(p, {}).find("--value off-cpu"), std::string::npos);
  EXPECT_EQ(speedscope(p)["profiles"][3]["name"], "off-cpu: empty");
  EXPECT_EQ(json_lines(p, kOffCpu).front()["samples"], 0);
  EXPECT_EQ(page_sums(page_data(p))[1], std::pair(std::string("off-cpu"), std::uint64_t{0}));
}

TEST(Events, AProcessHasOneName) {
  auto p = testing::events_profile();
  p.samples[1].comm = 1;  // the main thread waits under another name than it mostly has
  p.samples[4].comm = 1;
  for (const ValueType type : {kSamples, kOffCpu}) EXPECT_EQ(processes_of(p, type).back().name, "main (pid 7)");
}

// On and off the CPU together: 40 ms and 4.5 ms.
TEST(Values, WallTime) {
  const auto p = testing::events_profile();
  ASSERT_TRUE(has_wall_time(p));
  const auto wall = values_named(p, "wall");
  ASSERT_EQ(wall.size(), 1u);
  EXPECT_EQ(totals_of(p, wall[0].type).samples, 44'500'000u);
  Frames frames(p);
  EXPECT_EQ(CallTree(p, frames, wall[0].type).nodes()[0].total, 44'500'000u);
  EXPECT_EQ(unit_of(p, wall[0].type), "nanoseconds");
  auto other = p;
  other.events[1].name = "page-faults";
  EXPECT_FALSE(has_wall_time(other));
  EXPECT_TRUE(values_named(other, "wall").empty());
}

TEST(Values, ByName) {
  auto p = testing::events_profile();
  const auto names = [&] {
    std::string all;
    for (const auto& value : named_values(p)) all += value.name + " ";
    return all;
  };
  EXPECT_EQ(names(), "samples cpu waits off-cpu wall ");
  ASSERT_EQ(values_named(p, "waits").size(), 1u);
  EXPECT_EQ(values_named(p, "waits")[0].type.event, 1u);
  EXPECT_TRUE(values_named(p, "waits")[0].type.counts);
  EXPECT_FALSE(values_named(p, "off-cpu")[0].type.counts);
  EXPECT_EQ(values_named(p, "off-cpu/waits").size(), 1u);
  EXPECT_TRUE(values_named(p, "wait").empty());
  EXPECT_TRUE(values_named(p, "").empty());
  // Two counts of one name.
  p.events[1].counted = "samples";
  EXPECT_EQ(names(), "cpu/samples cpu off-cpu/samples off-cpu wall ");
  EXPECT_EQ(values_named(p, "samples").size(), 2u);
  ASSERT_EQ(values_named(p, "off-cpu/samples").size(), 1u);
  EXPECT_EQ(values_named(p, "off-cpu/samples")[0].type.event, 1u);
  // An event that is only counted has one value.
  p.events[1] = {.name = "page-faults", .unit = "count", .counted = "page-faults"};
  EXPECT_EQ(names(), "samples cpu page-faults ");
}

TEST(Values, TheReportNamesSomeOfMany) {
  auto p = testing::events_profile();
  for (std::uint32_t i = 0; i < 20; ++i) {
    p.events.push_back({.name = "e" + std::to_string(i), .unit = "count", .counted = "e" + std::to_string(i)});
    p.samples.push_back({.locations = {0}, .count = 5, .event = i + 2});
  }
  const auto text = report(p, {});
  EXPECT_NE(text.find("  --value e13 shows 5\n  7 more values\n"), std::string::npos) << text;
  EXPECT_EQ(text.find("e14"), std::string::npos);
}

TEST(Values, UnitsAreShown) {
  EXPECT_EQ(amount(1'234'567, "nanoseconds"), "1.23 ms");
  EXPECT_EQ(amount(0, "nanoseconds"), "0 ns");
  EXPECT_EQ(amount(2'500, "microseconds"), "2.50 ms");
  EXPECT_EQ(amount(7, "milliseconds"), "7.00 ms");
  EXPECT_EQ(amount(90, "seconds"), "90.0 s");
  EXPECT_EQ(amount(1'234'567, "bytes"), "1.18 MiB");
  EXPECT_EQ(amount(1'023, "bytes"), "1023 B");
  EXPECT_EQ(amount(1'234'567, "count"), "1,234,567");
  EXPECT_EQ(amount(1'234'567, "cycles"), "1,234,567");
  auto p = testing::events_profile();
  p.events[1].unit = "cycles";
  const auto text = report(p, {.value = kOffCpu});
  EXPECT_TRUE(text.starts_with("4,500,000 cycles of off-cpu in ")) << text;
  EXPECT_NE(text.find("cycles  FUNCTION"), std::string::npos) << text;
}

TEST(Labels, KeysValuesAndShares) {
  const auto p = testing::events_profile();
  EXPECT_EQ(label_keys(p), (std::vector<std::string>{"reason", "comm", "pid", "tid"}));
  EXPECT_EQ(label_values(p, "reason"), (std::vector<std::string>{"futex", "page fault"}));
  EXPECT_EQ(label_values(p, "pid"), (std::vector<std::string>{"7", "8"}));
  EXPECT_EQ(label_values(p, "comm"), (std::vector<std::string>{"main", "worker"}));
  const auto shares = label_shares(p, kWaits, "reason");
  ASSERT_EQ(shares.shares.size(), 2u);
  EXPECT_EQ(shares.shares[0].text, "futex");
  EXPECT_EQ(shares.shares[0].weight, 2u);
  EXPECT_EQ(shares.without, 5u);
  EXPECT_EQ(label_shares(p, kSamples, "reason").without, 40u);
  EXPECT_EQ(label_shares(p, kSamples, "pid").shares[0].text, "main (pid 8)");
  EXPECT_TRUE(label_shares(p, kSamples).empty());
}

TEST(Labels, ASampleWithALabelTwice) {
  auto p = testing::events_profile();
  p.label_sets[1].push_back({2, 4});
  const auto shares = label_shares(p, kOffCpu, "reason");
  EXPECT_EQ(shares.shares[0].text, "page fault");
  EXPECT_EQ(shares.shares[0].weight, 4'000'000u);
  EXPECT_EQ(shares.shares[1].weight, 3'000'000u);
  EXPECT_EQ(shares.without, 500'000u);
  for (const json& line : json_lines(p, kOffCpu))
    if (line["type"] == "sample" && line["value"] == 3'000'000) {
      EXPECT_EQ(line["labels"], json::parse(R"({"reason":["futex","page fault"]})"));
    }
}

TEST(Labels, TheReportPrintsAllOfOne) {
  const auto p = testing::events_profile();
  const auto text = report(p, {.value = kOffCpu, .label = "reason"});
  EXPECT_NE(text.find("  SHARE          TIME  LABEL reason\n"
                      " 66.67%       3.00 ms  futex\n"
                      " 22.22%       1.00 ms  page fault\n"
                      " 11.11%        500 us  (no reason)\n"),
            std::string::npos)
      << text;
  EXPECT_EQ(text.find("CALL TREE"), std::string::npos);
  EXPECT_NE(report(p, {.label = "tid"}).find(" 75.00%            30  tid 8\n"), std::string::npos);
}

TEST(Labels, TheReportCutsTheLineOfShares) {
  auto p = testing::events_profile();
  for (std::uint32_t i = 0; i < 500; ++i) {
    p.strings.push_back("value " + std::to_string(i));
    p.label_sets.push_back({{2, static_cast<std::uint32_t>(p.strings.size() - 1)}});
    p.samples.push_back(p.samples[1]);
    p.samples.back().labels = static_cast<std::uint32_t>(p.label_sets.size() - 1);
  }
  std::istringstream lines(report(p, {.value = kWaits, .width = 80}));
  std::string found;
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with("LABEL")) found = line;
  EXPECT_LE(columns_of(found), 80u) << found;
  EXPECT_TRUE(found.starts_with("LABEL reason: futex 0.2%, value 0 0.2%, ")) << found;
  EXPECT_NE(found.find(" more, none 0.5%"), std::string::npos) << found;
  // All 502 of them.
  const auto all = report(p, {.value = kWaits, .label = "reason"});
  EXPECT_NE(all.find("value 499\n"), std::string::npos);
}

TEST(Labels, OnlySamplesWithThem) {
  const auto only = [](std::vector<LabelFilter> filters, ValueType type) {
    auto p = testing::events_profile();
    keep_samples(p, filters);
    return folded(p, type);
  };
  EXPECT_EQ(only({{"reason", "futex"}}, kOffCpu), "main;main;wait 3000000\n");
  EXPECT_EQ(only({{"reason", "futex"}, {"reason", "page fault"}}, kOffCpu),
            "main;main;wait 3000000\nworker;main;run;wait 1000000\n");
  EXPECT_EQ(only({{"reason", "futex"}, {"comm", "worker"}}, kOffCpu), "");
  EXPECT_EQ(only({{"reason", "futex"}}, kSamples), "") << "of all events";
  EXPECT_EQ(only({{"pid", "7"}}, kSamples), "main;main;run 10\n");
  EXPECT_EQ(only({{"pid", "07x"}}, kSamples), "");
  EXPECT_EQ(only({{"tid", "8"}}, kWaits), "worker;main;run;wait 1\n");
  EXPECT_EQ(only({{"comm", "main"}}, kWaits), "main;main;wait 7\n");
  EXPECT_EQ(only({{"nosuch", "futex"}}, kWaits), "");
}

TEST(Labels, GroupStacksInEveryOutput) {
  const auto by = [](std::string_view key) {
    auto p = testing::events_profile();
    group_samples(p, key);
    return p;
  };
  const auto p = by("reason");
  EXPECT_EQ(folded(p, kOffCpu),
            "futex;main;main;wait 3000000\n"
            "page fault;worker;main;run;wait 1000000\n"
            "(no reason);main;main;wait 500000\n");
  EXPECT_EQ(folded(p, kSamples), "(no reason);main;main;run 40\n");
  EXPECT_NE(report(p, {.value = kOffCpu}).find(" 66.67%  futex\n"), std::string::npos);
  EXPECT_EQ(report(p, {.value = kOffCpu}).find("100.00%    3.00 ms  futex"), std::string::npos) << "no function";
  const auto file = speedscope(p, kOffCpu);
  std::vector<std::string> roots;
  for (const auto& stack : file["profiles"][0]["samples"])
    roots.push_back(file["shared"]["frames"][stack[0].get<std::size_t>()]["name"]);
  EXPECT_EQ(roots, (std::vector<std::string>{"futex", "page fault", "(no reason)"}));
  const auto data = page_data(p);
  EXPECT_EQ(data.names["grouped"], true);
  EXPECT_TRUE(std::ranges::any_of(
      data.samples, [&](const auto& sample) { return data.path(sample.node) == "futex;main;main;wait"; }));
  EXPECT_EQ(folded(by("pid"), kSamples), "main (pid 8);main;main;run 30\nmain (pid 7);main;main;run 10\n");
  EXPECT_EQ(folded(by("tid"), kWaits), "tid 7;main;main;wait 7\ntid 8;worker;main;run;wait 1\n");
  EXPECT_EQ(folded(by("comm"), kWaits), folded(testing::events_profile(), kWaits));
  // Labels stay what they are.
  for (const char* key : {"reason", "pid"}) EXPECT_EQ(json_lines(by(key), kWaits), json_lines(by("comm"), kWaits));
  EXPECT_EQ(folded(by("nosuch"), kSamples), "(no nosuch);main;main;run 40\n");
}

// Names of events, units and labels come from the file.
TEST(Events, NoHostileCharacterInAnyOutput) {
  const auto& names = test::hostile_names();
  for (std::size_t i = 0; i < names.size(); ++i) {
    auto p = testing::events_profile();
    p.strings[2] = names[i];
    p.strings[3] = names[(i + 1) % names.size()];
    p.events[1] = {.name = names[i], .unit = names[(i + 2) % names.size()], .counted = names[(i + 3) % names.size()]};
    for (const bool grouped : {false, true}) {
      if (grouped) group_samples(p, names[i]);
      for (const ValueType type : value_types(p)) {
        const auto stacks = folded(p, type);
        EXPECT_EQ(test::forbidden_in(stacks), "");
        EXPECT_EQ(std::ranges::count(stacks, '\n'), type.event == 0 ? 1 : grouped ? 3 : 2) << stacks;
        EXPECT_EQ(test::forbidden_in(report(p, {.value = type, .width = 200})), "");
        EXPECT_EQ(test::forbidden_in(report(p, {.value = type, .label = names[i], .width = 200})), "");
        EXPECT_EQ(test::forbidden_in(text_of([&](TextWriter& out) { return write_json(p, out, type); })), "");
        EXPECT_EQ(json_lines(p, type).size(), 1u + 1 + 3 + 3 + 5);
      }
      EXPECT_EQ(test::forbidden_in(text_of([&](TextWriter& out) { return write_speedscope(p, out); })), "");
      EXPECT_EQ(speedscope(p)["profiles"].size(), 4u);
      const auto look = [&](const auto& self, const json& at) -> void {
        const std::string text = at.is_string() ? at.get<std::string>() : "";
        EXPECT_EQ(test::forbidden_in(text), "");
        for (const auto& part : at)
          if (at.is_structured()) self(self, part);
      };
      look(look, page_data(p).names);
    }
  }
}

}  // namespace
}  // namespace windlass::exporter
