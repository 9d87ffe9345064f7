// The numbers of the page, as a browser shows them, are those of `report --json`.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "profiler/export/labels.h"
#include "profiler/export/report.h"
#include "profiler/export/shorten_name.h"
#include "profiler/export/times.h"
#include "profiler/export/values.h"
#include "support/events_profile.h"
#include "support/page_in_browser.h"
#include "support/synthetic_profile.h"

namespace windlass::exporter {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;
using Numbers = std::map<std::string, std::uint64_t>;

// Functions of two modules stay. A name that both the kernel and a program have would be two functions: the test asks
// by name, so programs lose theirs.
profile::Profile profile_of(const testing::SyntheticShape& shape, std::uint32_t seed = 1) {
  profile::Profile p = testing::synthetic_profile(shape, seed);
  for (profile::Location& location : p.locations)
    if (!p.modules[location.module].is_kernel)
      std::erase_if(location.lines,
                    [&](const auto& line) { return !p.functions[line.function].name.starts_with("work::"); });
    else
      std::erase_if(location.lines,
                    [&](const auto& line) { return p.functions[line.function].name.starts_with("work::"); });
  return p;
}

// What the JSON lines of a profile add up to, by name.
class JsonNumbers {
 public:
  explicit JsonNumbers(const profile::Profile& profile, profile::ValueType type) {
    std::string text;
    TextWriter out(&text);
    EXPECT_TRUE(write_json(profile, out, type).has_value());
    std::istringstream lines(text);
    std::map<std::size_t, std::string> names;
    std::map<std::size_t, std::vector<std::string>> locations;  // outermost first
    std::map<std::size_t, std::string> modules;
    for (std::string line; std::getline(lines, line);) {
      const json one = json::parse(line);
      if (one["type"] == "profile") {
        head = one;
      } else if (one["type"] == "function") {
        names[one["id"]] = one["name"];
        functions[one["name"]] = {one["self"], one["total"]};
      } else if (one["type"] == "location") {
        for (const json& inlined : one["lines"])
          locations[one["id"]].insert(locations[one["id"]].begin(), names.at(inlined["function"]));
        if (!one["module"].is_null()) modules[one["id"]] = profile.modules[one["module"]].path;
      } else if (one["type"] == "sample" && one["event"] == event_of(profile, type).name) {
        std::vector<std::string> path{one["comm"]};
        if (!one["truncated"].is_null())
          path.push_back(fmt::format("[truncated: {}]", one["truncated"].get<std::string>()));
        for (auto location = one["locations"].rbegin(); location != one["locations"].rend(); ++location)
          for (const std::string& name : locations.at(*location)) path.push_back(name);
        if (!one["locations"].empty() && modules.contains(one["locations"][0]))
          of_modules[modules[one["locations"][0]]] += one[type.counts ? "count" : "value"].get<std::uint64_t>();
        stacks.emplace_back(std::move(path), type.counts ? one["count"] : one["value"]);
      }
    }
  }
  // Of the samples that have a function whose name, without parameters, contains the text.
  [[nodiscard]] std::uint64_t matching(const std::string& text) const {
    std::map<std::string, bool> matches;
    std::uint64_t sum = 0;
    for (const auto& [path, n] : stacks)
      for (const std::string& name : path) {
        const auto [known, is_new] = matches.try_emplace(name, false);
        if (is_new) known->second = name.substr(0, length_without_parameters(name)).find(text) != std::string::npos;
        if (!known->second) continue;
        sum += n;
        break;
      }
    return sum;
  }
  // Of the samples in which the function stands: who called it at the outermost place, whom it called anywhere.
  [[nodiscard]] std::pair<Numbers, Numbers> neighbours(const std::string& wanted) const {
    Numbers callers, callees;
    for (const auto& [path, n] : stacks) {
      std::set<std::string> called;
      bool seen = false;
      for (std::size_t i = 1; i < path.size(); ++i) {  // behind the name of the thread
        if (path[i] != wanted) continue;
        if (!std::exchange(seen, true)) callers[path[i - 1]] += n;
        if (i + 1 < path.size() && path[i + 1] != wanted) called.insert(path[i + 1]);
      }
      for (const std::string& name : called) callees[name] += n;
    }
    return {callers, callees};
  }
  // Of the samples whose stacks begin so.
  [[nodiscard]] std::uint64_t below(const std::vector<std::string>& path) const {
    std::uint64_t sum = 0;
    for (const auto& [stack, n] : stacks)
      if (stack.size() >= path.size() && std::equal(path.begin(), path.end(), stack.begin())) sum += n;
    return sum;
  }
  // Of those whose stacks end so, the innermost function first.
  [[nodiscard]] std::uint64_t above(const std::vector<std::string>& path) const {
    std::uint64_t sum = 0;
    for (const auto& [stack, n] : stacks)
      if (stack.size() >= path.size() && std::equal(path.begin(), path.end(), stack.rbegin())) sum += n;
    return sum;
  }

  json head;
  std::map<std::string, std::pair<std::uint64_t, std::uint64_t>> functions;  // self, total
  std::vector<std::pair<std::vector<std::string>, std::uint64_t>> stacks;
  Numbers of_modules;  // by the path: of samples in its own code
};

class PageNumbers : public test::PageInBrowser {
 protected:
  static json facts() {
    return browser_->value(
        "Object.fromEntries([...document.querySelectorAll('#facts div')].map((one) => "
        "[one.children[0].textContent, Number(one.children[1].dataset.n)]))");
  }
  // [name, number...] of a table's rows.
  static json rows(const std::string& table) {
    return browser_->value(fmt::format(
        "[...document.querySelectorAll('{} tbody tr')].map((row) => [row.title || row.lastChild.textContent, "
        "...[...row.children].filter((cell) => cell.dataset.n !== undefined).map((cell) => Number(cell.dataset.n))])",
        table));
  }
  static Numbers numbers(const json& rows) {
    Numbers all;
    for (const json& row : rows) all[row[0]] += row[1].get<std::uint64_t>();
    return all;
  }

  // What the page shows of the samples of `type`, which `hash` chooses. Returns how many numbers were compared.
  static std::size_t compare(const JsonNumbers& truth, const std::string& hash,
                             const std::vector<std::string>& queries) {
    std::size_t compared = 0;
    open(hash);
    const json header = facts();
    EXPECT_EQ(header["truncated"], truth.head["truncated"]);
    EXPECT_EQ(header["lost"], truth.head["lost"]);
    EXPECT_NEAR(header.value("duration", 0.0), truth.head["duration_ns"].get<double>() / 1e9, 1e-6);
    EXPECT_EQ(browser_->value("answer.summary.samples"), truth.head["samples"]);
    EXPECT_EQ(browser_->value("answer.summary.chained"), truth.head["chained"]);
    const json legend = browser_->value(
        "[...document.querySelectorAll('#legend button')].filter((one) => one.title)"
        ".map((one) => [one.title.split(': ')[0], Number(one.querySelector('span').dataset.n)])");
    EXPECT_EQ(numbers(legend), truth.of_modules);
    compared += 4 + legend.size();
    for (const std::string& query : queries) {
      act(fmt::format("search({})", json(query).dump()));
      EXPECT_EQ(browser_->value("Number(document.getElementById('match').dataset.n)"), truth.matching(query)) << query;
      ++compared;
    }
    act("search('')");
    for (const bool callers : {false, true}) {
      if (callers) act("toggle('callers')");
      const json boxes = browser_->value(
          "drawn.boxes.filter((box, i) => box.frame >= 0 && i % Math.ceil(drawn.boxes.length / 20) === 0).map((box) => "
          "{"
          "const path = []; const n = box.n; for (let one = box; one.up >= 0; one = drawn.boxes[one.up]) "
          "path.push(nameOf(one.frame)); return [path.reverse(), n]; })");
      for (const json& box : boxes) {
        EXPECT_EQ(box[1], callers ? truth.above(box[0]) : truth.below(box[0])) << box.dump();
        ++compared;
      }
    }
    act("toggle('functions')");
    const json table = rows("#list");
    std::size_t there = 0;
    for (const auto& [name, counts] : truth.functions) there += counts.second > 0;
    EXPECT_EQ(table.size(), std::min<std::size_t>(there, 200));
    for (const json& row : table) {
      const auto known = truth.functions.find(row[0]);
      if (known == truth.functions.end()) {
        ADD_FAILURE() << row.dump();
        continue;
      }
      EXPECT_EQ(row[1], known->second.first) << row.dump();
      EXPECT_EQ(row[2], known->second.second) << row.dump();
      compared += 2;
    }
    for (std::size_t i = 0; i < table.size(); i += table.size() / 3 + 1) {
      const std::string name = table[i][0];
      act(fmt::format("choose({{ chosen: names.frames.findIndex((one, i) => isCode(i) && one.name === {}) }})",
                      json(name).dump()));
      const auto [callers, callees] = truth.neighbours(name);
      EXPECT_EQ(numbers(rows("#function table:nth-of-type(1)")), callers) << name;
      EXPECT_EQ(numbers(rows("#function table:nth-of-type(2)")), callees) << name;
      compared += callers.size() + callees.size();
    }
    return compared;
  }
};

TEST_F(PageNumbers, AreThoseOfJson) {
  const std::vector<std::string> queries = {
      "parse", "_1", "evaluate_", "work::", "sort", "9", "libstripped", "no such"};
  std::vector<profile::Profile> profiles;
  for (std::uint32_t seed = 1; seed <= 6; ++seed)
    profiles.push_back(profile_of({.samples = 1500 * seed,
                                   .functions = 40 * seed,
                                   .stacks = 900 * seed,
                                   .processes = seed,
                                   .depth = 8 * seed,
                                   .truncated = 0.02 * seed},
                                  seed));
  profiles.push_back(profile_of({.functions = 10, .stacks = 1500, .depth = 60}, 7));  // recursion
  profiles.push_back(profile_of({.samples = 6000, .functions = 3000, .stacks = 6000, .depth = 90}, 8));
  std::size_t compared = 0;
  for (const auto& profile : profiles) {
    write(profile);
    compared += compare(JsonNumbers(profile, shown_by_default(profile)), "", queries);
  }
  // The samples of one process.
  auto one = profiles[4];
  write(one);
  open();
  const std::string process = browser_->text("names.processes[0]");
  const std::string pid = process.substr(process.find("pid ") + 4);
  const LabelFilter filter{"pid", pid.substr(0, pid.size() - 1)};
  keep_samples(one, {&filter, 1});
  compared +=
      compare(JsonNumbers(one, shown_by_default(one)),
              "#process=" + browser_->text(fmt::format("encodeURIComponent({})", json(process).dump())), queries);
  // Each value of several events.
  const auto events = testing::events_profile();
  write(events);
  for (const auto& [name, type] : named_values(events)) {
    if (is_wall_time(type) || name == "cpu") continue;  // sums of several events; the counts times a period
    compared += compare(JsonNumbers(events, type), "#event=" + name, {"wait", "run", "main"});
  }
  EXPECT_GE(compared, 500u);
  RecordProperty("numbers", static_cast<int>(compared));
}

// Times at random within ten seconds; waits share the value of their sample.
profile::Profile with_times(profile::Profile p, std::uint32_t seed) {
  constexpr std::uint64_t kEnd = 10'000'000'000;
  std::mt19937_64 random(seed);
  p.duration_ns = kEnd;
  for (profile::Event& event : p.events) event.per_time = 1;
  for (profile::Sample& sample : p.samples) {
    const std::uint64_t lasted = p.events[sample.event].period != 0 ? 0 : sample.value / sample.count;
    sample.first_time = p.times.size();
    sample.times = static_cast<std::uint32_t>(sample.count);
    for (std::uint64_t i = 0; i < sample.count; ++i) p.times.push_back({random() % kEnd, lasted});
    std::ranges::sort(profile::times_of(p, sample), {}, &profile::SampleTime::begin);
  }
  return p;
}

TEST_F(PageNumbers, OfATimeAreThoseOfFromAndTo) {
  const auto profile = with_times(profile_of({.samples = 6000, .functions = 90, .stacks = 2000, .processes = 4}), 1);
  write(profile);
  std::size_t compared = 0;
  for (const auto& [from, to] : std::vector<std::pair<double, double>>{{2.5, 6}, {0, 0.75}, {9.000001, 10}}) {
    auto part = profile;
    keep_times(part, {static_cast<std::uint64_t>(from * 1e9), static_cast<std::uint64_t>(to * 1e9)});
    compared +=
        compare(JsonNumbers(part, shown_by_default(part)), fmt::format("#from={}&to={}", from, to), {"parse", "_1"});
  }
  const auto events = with_times(testing::events_profile(), 2);
  write(events);
  auto part = events;
  keep_times(part, {1'000'000'000, 8'000'000'000});
  for (const char* name : {"waits", "off-cpu"}) {
    const auto values = named_values(part);
    const auto value = std::ranges::find(values, name, &NamedValue::name);
    ASSERT_NE(value, values.end());
    compared += compare(JsonNumbers(part, value->type), fmt::format("#event={}&from=1&to=8", name), {"wait"});
  }
  EXPECT_GE(compared, 500u);
  open();
  EXPECT_EQ(browser_->value("time.lanes.reduce((sum, lane) => sum + lane.total, 0)"),
            browser_->value("answer.summary.samples"));
  EXPECT_EQ(browser_->value("Math.round(time.lanes.reduce((sum, lane) => lane.bars.reduce((a, b) => a + b, sum), 0))"),
            browser_->value("answer.summary.samples"));
  act("chooseRange(1e9, 2e9)");
  EXPECT_EQ(browser_->text("location.hash"), "#from=1&to=2");
  act("moveRange(1, false)");
  EXPECT_EQ(browser_->text("location.hash"), "#from=1.1&to=2.1");
  // The choice is a part of all samples.
  open("#from=0&to=5");
  const auto of = browser_->value("[answer.summary.samples, answer.summary.whole]");
  EXPECT_EQ(of[1], JsonNumbers(events, shown_by_default(events)).head["samples"]);
  EXPECT_LT(of[0], of[1]);
  const std::string share = browser_->text("share(answer.summary.samples, answer.summary.whole)");
  EXPECT_NE(text_of("notes").find("All numbers are of 0 s to 5 s: " + share + " of "), std::string::npos)
      << text_of("notes");
}

TEST_F(PageNumbers, OfLabelsAreThoseOfOnly) {
  auto profile = testing::events_profile();
  write(profile);
  const LabelFilter filters[] = {{"reason", "futex"}, {"reason", "page fault"}};
  keep_samples(profile, filters);
  const auto values = named_values(profile);
  const auto value = std::ranges::find(values, "off-cpu", &NamedValue::name);
  ASSERT_NE(value, values.end());
  EXPECT_GE(compare(JsonNumbers(profile, value->type), "#event=off-cpu&label=reason%3Dfutex&label=reason%3Dpage+fault",
                    {"wait", "run"}),
            10u);
  act("document.querySelector('#notes button[aria-pressed=\"true\"]').click()");
  EXPECT_EQ(browser_->value("state.labels.length"), 1);
}

// A thread runs 0.1 s in one function, then in another, with a rest between.
TEST_F(PageNumbers, TheFlameChartShowsWhatWasWhen) {
  auto profile = testing::events_profile();
  profile.samples.resize(1);
  profile.samples[0].count = 100;
  profile.samples.push_back(profile.samples[0]);
  profile.samples[1].locations = {2, 0};
  profile.events[0].per_time = 1;
  for (std::uint32_t i = 0; i < 2; ++i) {
    profile.samples[i].times = 100;
    profile.samples[i].first_time = profile.times.size();
    for (std::uint64_t tick = 0; tick < 100; ++tick) profile.times.push_back({(i * 150 + tick) * 1'000'000, 0});
  }
  profile.duration_ns = 250'000'000;
  write(profile);
  open("#view=chart");
  const json boxes = browser_->value(
      "drawn.boxes.map((box) => [nameOf(box.frame), Math.round(box.x / 1e6), Math.round(box.n / 1e6)])");
  EXPECT_EQ(boxes, json::parse(R"([["main", 0, 100], ["main", 0, 100], ["run", 0, 100],
                                   ["main", 150, 100], ["main", 150, 100], ["wait", 150, 100]])"));
  EXPECT_EQ(browser_->text("stackText()"), "");
  act("[...document.querySelectorAll('#chart .frame')].find((one) => one.textContent === 'wait').click()");
  EXPECT_EQ(browser_->value("[state.from > 149e6 && state.from < 151e6, state.to === 250e6]"),
            json::parse("[true, true]"));
}

// A thread that runs for 1 of 20 ms has so much of the chart, though no column is half full.
TEST_F(PageNumbers, TheFlameChartShowsThreadsThatRestMuch) {
  auto profile = testing::events_profile();
  profile.samples.resize(1);
  profile.events[0].per_time = 1;
  profile.samples[0].count = profile.samples[0].times = 5000;
  for (std::uint64_t tick = 0; tick < 5000; ++tick) profile.times.push_back({tick * 20'000'000, 0});
  profile.duration_ns = 100'000'000'000;
  write(profile);
  open("#view=chart");
  EXPECT_NEAR(
      browser_->value("drawn.boxes.filter((box) => box.depth === 0).reduce((sum, box) => sum + box.n, 0) / drawn.whole")
          .get<double>(),
      0.05, 0.005);
  EXPECT_EQ(browser_->value("[...document.querySelectorAll('#chart .frame')].filter((one) => "
                            "parseFloat(getComputedStyle(one).borderLeftWidth) * 2 >= "
                            "one.getBoundingClientRect().width).length"),
            0)
      << "boxes that are all border";
}

// Deep stacks that change with each sample are more boxes than a page can hold. The chart reaches the end nevertheless.
TEST_F(PageNumbers, TheFlameChartIsCoarserThanAPixelBeforeItIsCut) {
  constexpr std::uint32_t kSamples = 2000, kDepth = 60;
  auto profile = testing::events_profile();
  profile.samples.resize(2);
  profile.events[0].per_time = 1;
  profile.samples[1] = profile.samples[0];
  for (std::uint32_t i = 0; i < 2; ++i) {
    profile.samples[i].locations.assign(kDepth, i == 0 ? 0 : 2);
    profile.samples[i].count = profile.samples[i].times = kSamples / 2;
    profile.samples[i].first_time = profile.times.size();
    for (std::uint64_t tick = i; tick < kSamples; tick += 2) profile.times.push_back({tick * 1'000'000, 0});
  }
  profile.duration_ns = std::uint64_t{kSamples} * 1'000'000;
  write(profile);
  open("#view=chart");
  EXPECT_LE(browser_->value("drawn.boxes.length"), 15000);
  EXPECT_NEAR(browser_->value("Math.max(...drawn.boxes.map((box) => box.x + box.n)) / drawn.whole").get<double>(), 1,
              0.01);
  EXPECT_EQ(browser_->text("$('chartAxis').firstChild.textContent"), "0 s");
  EXPECT_NE(browser_->text("svgTitle(drawn.boxes[0])").find("about "), std::string::npos) << "a time, no samples";
}

// As large as profiles come. The times are printed, not asserted.
TEST_F(PageNumbers, OfTwoHundredThousandStacks) {
  const auto profile = profile_of({.samples = 200'000, .functions = 20'000, .stacks = 200'000, .depth = 60});
  write(profile);
  const auto seconds = [](Clock::time_point since) {
    return std::chrono::duration<double>(Clock::now() - since).count();
  };
  auto begin = Clock::now();
  open();
  fmt::print("loaded in {:.2f} s", seconds(begin));
  for (const char* query : {"parse", "_19", "evaluate.*7$"}) {
    begin = Clock::now();
    act(fmt::format("search('{}')", query));
    fmt::print(", '{}' found in {:.2f} s", query, seconds(begin));
  }
  fmt::print("\n");
  const JsonNumbers truth(profile, shown_by_default(profile));
  EXPECT_GE(compare(truth, "", {"parse", "_19", "work::"}), 400u);
}

}  // namespace
}  // namespace windlass::exporter
