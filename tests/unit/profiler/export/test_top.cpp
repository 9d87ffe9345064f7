// What `windlass top` shows: seconds by hand, and what is on the screen after them and after keys.
#include "profiler/export/top_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "profiler/export/shorten_name.h"
#include "support/hostile_text.h"
#include "support/synthetic_profile.h"

namespace windlass::exporter {
namespace {

using windlass::testing::synthetic_profile;

using Kind = TopKey::Kind;

// A second: stacks as "comm;outer;inner", root first.
class Second {
 public:
  Second() {
    profile_.events = {{.name = "cpu", .period = 1000}, {.name = "off-cpu"}};
    profile_.modules = {{.path = "/usr/bin/app"}, {.path = "[kernel]", .is_kernel = true}};
    profile_.duration_ns = 1'000'000'000;
  }
  Second& add(const std::vector<std::string>& stack, std::uint64_t count, std::uint32_t pid = 7,
              std::uint32_t event = 0) {
    profile::Sample sample{.count = count, .pid = pid, .tid = pid, .comm = text(stack.front()), .event = event};
    sample.value = count * 1000;
    for (std::size_t i = stack.size(); i-- > 1;) sample.locations.push_back(location(stack[i]));
    profile_.samples.push_back(std::move(sample));
    return *this;
  }
  Second& with_label(const std::string& key, const std::string& value) {
    profile_.samples.back().labels = static_cast<std::uint32_t>(profile_.label_sets.size());
    profile_.label_sets.push_back({{text(key), text(value)}});
    return *this;
  }
  Second& lost(std::uint64_t number) {
    profile_.lost = number;
    return *this;
  }
  Second& truncated() {
    profile_.samples.back().end = WL_END_COMPLETE + 1;
    while (!profile::is_truncated(profile_.samples.back().end)) ++profile_.samples.back().end;
    return *this;
  }
  operator const profile::Profile&() const { return profile_; }

 private:
  std::uint32_t text(const std::string& text) {
    profile_.strings.push_back(text);
    return static_cast<std::uint32_t>(profile_.strings.size() - 1);
  }
  std::uint32_t location(const std::string& function) {
    profile_.functions.push_back({.name = function, .system_name = function});
    const auto number = static_cast<std::uint32_t>(profile_.functions.size() - 1);
    profile_.locations.push_back(
        {.module = function.starts_with("sys_") ? 1u : 0u, .address = 0x100 + number, .lines = {{.function = number}}});
    return static_cast<std::uint32_t>(profile_.locations.size() - 1);
  }

  profile::Profile profile_;
};

std::vector<std::string> names(const TopModel& model) {
  std::vector<std::string> names;
  for (const TopRow& row : model.rows()) names.push_back(row.name);
  return names;
}

const TopRow& row_of(const TopModel& model, const std::string& name) {
  return *std::ranges::find(model.rows(), name, &TopRow::name);
}

std::string text_of(const std::vector<TopLine>& lines) {
  std::string text;
  for (const TopLine& line : lines) text += text_of(line) + "\n";
  return text;
}

void type(TopModel& model, const std::string& text) {
  for (const char c : text) model.press({Kind::kText, std::string(1, c)});
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(Top, FunctionsHaveSelfAndTotalAndARecursiveOneCountsOnce) {
  TopModel model("app", 10);
  model.add(Second().add({"app", "main", "f", "f", "leaf"}, 3).add({"app", "main", "f"}, 1));
  EXPECT_EQ(names(model), (std::vector<std::string>{"leaf", "f", "main"}));
  EXPECT_EQ(model.weight(), 4u);
  EXPECT_EQ(row_of(model, "leaf").self, 3u);
  EXPECT_EQ(row_of(model, "f").self, 1u);
  EXPECT_EQ(row_of(model, "f").total, 4u);
  EXPECT_EQ(row_of(model, "main").self, 0u);
  EXPECT_EQ(row_of(model, "main").detail, "app");
}

TEST(Top, SecondsLeaveTheWindowAndStayInTheSum) {
  TopModel model("app", 2);
  for (const char* function : {"first", "second", "third"}) model.add(Second().add({"app", function}, 1).lost(1));
  EXPECT_EQ(names(model), (std::vector<std::string>{"second", "third"}));
  EXPECT_TRUE(has(text_of(model.page(100, 5)), "2 s  2 lost"));
  type(model, "t");
  EXPECT_EQ(names(model), (std::vector<std::string>{"first", "second", "third"}));
  EXPECT_TRUE(has(text_of(model.page(100, 5)), "3 s since start  3 lost"));
  type(model, "t");
  EXPECT_EQ(model.rows().size(), 2u);
}

// Against sums made in the simplest way, of random seconds.
TEST(Top, TheWindowIsTheSumOfItsSeconds) {
  std::mt19937 random(3);
  std::vector<std::map<std::string, std::uint64_t>> seconds;
  TopModel model("app", 5);
  for (int i = 0; i < 20; ++i) {
    Second second;
    auto& sums = seconds.emplace_back();
    for (int k = 0; k < 30; ++k) {
      const std::string leaf = "f" + std::to_string(random() % 9);
      const std::uint64_t count = 1 + random() % 4;
      second.add({"app", "main", leaf}, count);
      sums[leaf] += count;
    }
    model.add(second);
    std::map<std::string, std::uint64_t> expected, found;
    for (std::size_t k = seconds.size() > 5 ? seconds.size() - 5 : 0; k < seconds.size(); ++k)
      for (const auto& [name, count] : seconds[k]) expected[name] += count;
    for (const TopRow& row : model.rows())
      if (row.self != 0) found[row.name] = row.self;
    ASSERT_EQ(found, expected) << "second " << i;
  }
}

TEST(Top, ProcessesAreNamedByTheirMainThreadAndHaveAContainer) {
  TopModel model("all", 10);
  Second second;
  second.add({"small", "f"}, 1, 9).add({"large", "f"}, 5, 8).with_label("container.name", "web");
  model.add(second);
  type(model, "2");
  ASSERT_EQ(names(model), (std::vector<std::string>{"large", "small"}));
  EXPECT_EQ(model.rows()[0].pid, 8u);
  EXPECT_EQ(model.rows()[0].detail, "web");
  EXPECT_EQ(model.rows()[1].detail, "");
  type(model, "/WEB");
  EXPECT_EQ(names(model), (std::vector<std::string>{"large"}));
}

TEST(Top, TheTreeOpensAndCloses) {
  TopModel model("app", 10);
  Second second;
  second.add({"app", "main", "hot", "leaf"}, 95).add({"app", "main", "cold", "rare"}, 5);
  model.add(second);
  type(model, "3");
  EXPECT_EQ(names(model), (std::vector<std::string>{"app", "main", "hot", "leaf", "cold"}));
  model.press({Kind::kEnd});
  model.press({Kind::kEnter});
  EXPECT_EQ(names(model), (std::vector<std::string>{"app", "main", "hot", "leaf", "cold", "rare"}));
  model.add(second);  // what is open stays open
  EXPECT_EQ(model.rows().size(), 6u);
  model.press({Kind::kLeft});  // closes it
  EXPECT_EQ(model.rows().size(), 5u);
  model.press({Kind::kLeft});  // goes to its caller
  EXPECT_EQ(model.rows()[model.selected()].name, "main");
  model.press({Kind::kEnter});
  EXPECT_EQ(names(model), (std::vector<std::string>{"app", "main"}));
  model.press({Kind::kRight});
  EXPECT_EQ(model.rows().size(), 5u);
}

TEST(Top, AFilterOfTheTreeKeepsCallersAndCallees) {
  TopModel model("app", 10);
  model.add(Second().add({"app", "main", "hot", "leaf"}, 95).add({"app", "main", "cold", "rare"}, 5));
  type(model, "3/Cold");
  model.press({Kind::kEnter});
  EXPECT_EQ(names(model), (std::vector<std::string>{"app", "main", "cold", "rare"}));
  model.press({Kind::kEscape});
  EXPECT_EQ(model.rows().size(), 5u);
}

TEST(Top, LabelsHaveTheirShares) {
  TopModel model("app", 10);
  Second second;
  second.add({"app", "f"}, 3).with_label("route", "/a").add({"app", "f"}, 1).with_label("route", "/b");
  model.add(second);
  model.press({Kind::kTab});
  model.press({Kind::kTab});
  model.press({Kind::kTab});
  ASSERT_EQ(model.rows().size(), 2u);
  EXPECT_EQ(model.rows()[0].detail, "/a");
  EXPECT_EQ(model.rows()[0].total, 3u);
  EXPECT_TRUE(has(text_of(model.page(60, 5)), " 75.00%  route"));
}

TEST(Top, SortGoesRound) {
  TopModel model("app", 10);
  model.add(Second().add({"app", "z", "b"}, 2).add({"app", "z", "a"}, 1));
  EXPECT_EQ(names(model), (std::vector<std::string>{"b", "a", "z"}));
  type(model, "s");
  EXPECT_EQ(names(model), (std::vector<std::string>{"z", "b", "a"}));
  type(model, "s");
  EXPECT_EQ(names(model), (std::vector<std::string>{"a", "b", "z"}));
  type(model, "s");
  EXPECT_EQ(names(model), (std::vector<std::string>{"b", "a", "z"}));
}

TEST(Top, PauseKeepsWhatIsShown) {
  TopModel model("app", 10);
  model.add(Second().add({"app", "before"}, 1));
  type(model, "p");
  model.add(Second().add({"app", "behind"}, 1));
  EXPECT_TRUE(model.paused());
  EXPECT_EQ(names(model), (std::vector<std::string>{"before"}));
  EXPECT_TRUE(has(text_of(model.screen(80, 10)), "PAUSED"));
  type(model, " ");
  EXPECT_EQ(model.rows().size(), 2u);
}

// Keys lead to other views of the same time.
TEST(Top, PauseHoldsForEachEventAndSinceTheStart) {
  TopModel model("app", 10);
  model.add(Second().add({"app", "works"}, 5).add({"app", "waits"}, 2, 7, 1));
  type(model, "p");
  model.add(Second().add({"app", "works"}, 5).add({"app", "later"}, 2, 7, 1));
  type(model, "e");
  EXPECT_EQ(names(model), (std::vector<std::string>{"waits"}));
  type(model, "t");
  EXPECT_EQ(names(model), (std::vector<std::string>{"waits"}));
  type(model, "e");
  EXPECT_EQ(model.weight(), 5u);
  EXPECT_TRUE(has(text_of(model.page(100, 5)), "1 s since start"));
  type(model, "p");
  EXPECT_EQ(model.weight(), 10u);
}

// A service may give each request a label of its own, and a machine may start processes all the time.
TEST(Top, MemoryIsBoundedAndNothingIsLost) {
  TopSums sums;
  TopSample sample{.path = {1, 2}, .weight = 1, .count = 1, .is_main_thread = true, .labels = {{5, 0}}};
  constexpr std::uint32_t kSamples = 3 * TopSums::kMostProcesses;
  for (std::uint32_t i = 0; i < kSamples; ++i) {
    sample.pid = i + 1;
    sample.thread_name = i;
    sample.labels[0].second = i + 10;
    sums.add(sample);
  }
  EXPECT_EQ(sums.processes().size(), TopSums::kMostProcesses + 1);
  EXPECT_EQ(sums.processes().at(TopSums::kOtherProcesses).weight, kSamples - TopSums::kMostProcesses);
  EXPECT_EQ(sums.labels().size(), TopSums::kMostLabels + 1);
  EXPECT_EQ(sums.labels().at({5, TopNames::kOthers}), kSamples - TopSums::kMostLabels);
  for (std::uint32_t i = 0; i < kSamples; ++i) {
    sample.pid = 1;
    sample.labels[0].first = 100 + i;
    sums.add(sample);
  }
  EXPECT_LE(sums.labels().size(), 2 * TopSums::kMostLabels + 1);
  EXPECT_LE(sums.processes().at(1).names.size(), TopSums::kMostNames);
  for (std::uint32_t i = 0; i < 2 * TopSums::kMostNodes; ++i) {
    sample.path = {3, i};
    sums.add(sample);
  }
  EXPECT_EQ(sums.nodes().size(), TopSums::kMostNodes);
  EXPECT_EQ(sums.weight(), 2 * kSamples + 2 * TopSums::kMostNodes);
}

TEST(Top, EachEventHasItsSums) {
  TopModel model("app", 10);
  model.add(Second().add({"app", "works"}, 5).add({"app", "waits"}, 2, 7, 1));
  EXPECT_EQ(names(model), (std::vector<std::string>{"works"}));
  type(model, "e");
  EXPECT_EQ(names(model), (std::vector<std::string>{"waits"}));
  EXPECT_EQ(model.weight(), 2000u);  // of time, since this event has no period
  type(model, "t");
  EXPECT_EQ(model.weight(), 2000u);
  type(model, "e");
  EXPECT_EQ(names(model), (std::vector<std::string>{"works"}));
}

TEST(Top, TheSelectedRowIsFollowed) {
  TopModel model("app", 1);
  model.add(Second().add({"app", "a"}, 3).add({"app", "b"}, 2).add({"app", "c"}, 1));
  model.press({Kind::kDown});
  EXPECT_EQ(model.rows()[model.selected()].name, "b");
  model.add(Second().add({"app", "a"}, 3).add({"app", "b"}, 1).add({"app", "c"}, 2));
  EXPECT_EQ(model.selected(), 2u);
  EXPECT_EQ(model.rows()[model.selected()].name, "b");
  model.add(Second().add({"app", "a"}, 1));
  EXPECT_EQ(model.selected(), 0u);
  model.add(Second());
  EXPECT_EQ(model.selected(), 0u);
  EXPECT_TRUE(has(text_of(model.screen(80, 10)), "no samples"));
}

TEST(Top, AFileIsAskedFor) {
  TopModel model("app", 1);
  EXPECT_EQ(model.press({Kind::kText, "w"}), TopWish::kNone);
  for (int i = 0; i < 40; ++i) model.press({Kind::kBackspace});
  EXPECT_EQ(model.press({Kind::kEnter}), TopWish::kNone);  // no name
  type(model, "w");
  for (int i = 0; i < 40; ++i) model.press({Kind::kBackspace});
  type(model, "q.pb");
  model.press({Kind::kText, "ä"});
  model.press({Kind::kBackspace});
  EXPECT_TRUE(has(text_of(model.screen(80, 10)), "write the profile into: q.pb_"));
  EXPECT_EQ(model.press({Kind::kEnter}), TopWish::kWrite);
  EXPECT_EQ(model.file(), "q.pb");
  model.tell("wrote q.pb");
  EXPECT_TRUE(has(text_of(model.screen(80, 10)), "wrote q.pb"));
  EXPECT_EQ(model.press({Kind::kText, "q"}), TopWish::kQuit);
}

TEST(Top, HelpIsAPage) {
  TopModel model("app", 1);
  type(model, "?");
  EXPECT_TRUE(has(text_of(model.screen(80, 20)), "open or close a row"));
  type(model, "q");  // leaves the help only
  EXPECT_FALSE(has(text_of(model.screen(80, 20)), "open or close a row"));
}

TEST(Top, StacksThatAreNotWholeAreCounted) {
  TopModel model("app", 10);
  model.add(Second().add({"app", "f"}, 3).add({"app", "g"}, 1).truncated());
  EXPECT_TRUE(has(text_of(model.page(100, 5)), "75.0% whole"));
  type(model, "3");
  EXPECT_TRUE(has(text_of(model.page(100, 9)), "[truncated"));
}

// Whatever the size, no line is longer than the screen, and the selected row is on it.
TEST(Top, FitsEachScreen) {
  TopModel model("a program with a long name", 10);
  model.add(synthetic_profile());
  for (std::size_t height = 1; height < 30; ++height) {
    for (std::size_t width = 50; width < 130; width += 9) {
      model.press({height % 2 == 0 ? Kind::kPageDown : Kind::kUp});
      if (width == 50) model.press({Kind::kTab});
      const auto lines = model.screen(width, height);
      ASSERT_EQ(lines.size(), height);
      for (const TopLine& line : lines) ASSERT_LE(columns_of(text_of(line)), width) << text_of(line);
      if (height > 4 && !model.rows().empty()) {
        ASSERT_TRUE(std::ranges::any_of(lines, &TopLine::is_selected)) << width << 'x' << height;
      }
    }
  }
  for (std::size_t width = 1; width < 50; ++width) (void)model.screen(width, 10);  // cut by the terminal
}

// 50 columns have the event, the rate and all that is worth an alarm.
TEST(Top, FiftyColumnsAreEnough) {
  TopModel model("a program with a long name", 10);
  model.add(Second().add({"app", "a_function_with_a_long_name(int, char const*, std::string)"}, 40));
  const std::string text = text_of(model.screen(50, 10));
  EXPECT_TRUE(has(text, "cpu  40 samples/s  100% whole  1 s  0 lost")) << text;
  EXPECT_TRUE(has(text, "[functions]  processes  tree  labels  by self")) << text;
  EXPECT_TRUE(has(text, "long_name")) << text;  // the middle is cut, not the end
}

TEST(Top, NoNameDrivesTheTerminal) {
  TopModel model("evil \x1b]0;title\x07", 10);
  Second second;
  for (const std::string& name : test::hostile_names()) second.add({name, name, "plain"}, 1).with_label(name, name);
  model.add(second);
  for (const char* view : {"1", "2", "3", "4"}) {
    type(model, view);
    for (const TopLine& line : model.page(70, 100)) EXPECT_EQ(test::forbidden_in(text_of(line)), "");
  }
  type(model, "w");
  model.tell("cannot write \x1b[31m: no such file");
  for (const TopLine& line : model.screen(70, 20)) EXPECT_EQ(test::forbidden_in(text_of(line)), "");
}

}  // namespace
}  // namespace windlass::exporter
