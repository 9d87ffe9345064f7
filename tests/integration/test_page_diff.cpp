// The page of a difference in a real browser: its numbers are those of `report --diff --json`.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "profiler/export/diff.h"
#include "support/page_in_browser.h"
#include "support/synthetic_profile.h"

namespace windlass::exporter {
namespace {

using nlohmann::json;

class PageDiff : public test::PageInBrowser {
 protected:
  // Writes the page. Returns the objects of the JSON.
  static std::vector<json> write_difference(const profile::Profile& a, const profile::Profile& b, Normalise normalise) {
    const auto difference = difference_of(a, shown_by_default(a), b, shown_by_default(b), normalise);
    EXPECT_TRUE(difference.has_value());
    std::string page, text;
    TextWriter out(&page), lines(&text);
    EXPECT_TRUE(write_diff_html(*difference, a, b, out, {.name_a = "a.pb.gz", .name_b = "b.pb.gz"}).has_value());
    std::ofstream(directory_ + "/page.html") << page;
    EXPECT_TRUE(write_diff_json(*difference, a, b, lines).has_value());
    std::vector<json> objects;
    std::istringstream all(text);
    for (std::string line; std::getline(all, line);) objects.push_back(json::parse(line));
    return objects;
  }
};

// The same program twice. In the second run "hot" has grown, "old" is gone, and "fresh" is new.
profile::Profile run(bool second, const std::string& comm = "app") {
  profile::Profile p;
  p.events.front().period = 1'000'000;
  p.duration_ns = second ? 2'000'000'000 : 1'000'000'000;
  p.strings = {comm};
  p.modules.push_back({.path = "/usr/bin/app", .begin = 0, .end = 0x10000});
  const char* names[] = {"main", "hot", "same", "old", "fresh"};
  for (std::uint32_t i = 0; i < 5; ++i) {
    p.functions.push_back({.name = names[i], .system_name = names[i]});
    p.locations.push_back({.module = 0, .address = 0x100 * (i + 1), .lines = {{i, 1}}});
  }
  const auto add = [&](std::uint32_t function, std::uint64_t count) {
    if (count != 0) p.samples.push_back({.locations = {function, 0}, .count = count, .pid = 1, .tid = 1, .comm = 0});
  };
  add(1, second ? 6000 : 1000);
  add(2, second ? 3000 : 3000);
  add(3, second ? 0 : 2000);
  add(4, second ? 3000 : 0);
  return p;
}

TEST_F(PageDiff, NumbersAreThoseOfJson) {
  std::size_t compared = 0;
  for (const Normalise normalise : {Normalise::kSamples, Normalise::kTime, Normalise::kNothing}) {
    const auto a = testing::synthetic_profile({.samples = 4000, .functions = 150, .stacks = 800}, 1);
    auto b = testing::synthetic_profile({.samples = 5000, .functions = 150, .stacks = 800}, 1);
    for (std::size_t i = 0; i < b.samples.size(); i += 3) b.samples[i].count *= 7;
    b.duration_ns *= 2;
    const auto objects = write_difference(a, b, normalise);
    open("#view=functions");
    EXPECT_EQ(browser_->value("Number(document.querySelector('#facts dd').dataset.n)"), objects[0]["differing"]);
    // [name, [number, class]...]
    const json rows = browser_->value(
        "[...document.querySelectorAll('#list tbody tr')].map((row) => [row.title, ...[...row.children].filter((cell) "
        "=> cell.dataset.n !== undefined).map((cell) => [Number(cell.dataset.n), cell.classList.contains('noise')])])");
    ASSERT_EQ(rows.size(), std::min<std::size_t>(200, objects.size() - 1));
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const json& truth = objects[i + 1];
      EXPECT_EQ(rows[i][0], truth["name"]) << "the same order";
      std::size_t at = 1;
      for (const char* which : {"self", "total"}) {
        const json& numbers = truth[which];
        EXPECT_EQ(rows[i][at++][0], numbers["a"]) << truth;
        EXPECT_EQ(rows[i][at++][0], numbers["b"]) << truth;
        EXPECT_NEAR(rows[i][at][0].get<double>(), numbers["difference"].get<double>(), 1e-6) << truth;
        EXPECT_NE(rows[i][at++][1].get<bool>(), numbers["differs"].get<bool>()) << truth;
        compared += 4;
      }
    }
    // No box of the graph has more than its function.
    open();
    const json boxes = browser_->value(
        "drawn.boxes.filter((box) => isCode(box.frame)).map((box) => [nameOf(box.frame), box.a, box.b])");
    EXPECT_GT(boxes.size(), 100u);
    std::map<std::string, std::pair<std::uint64_t, std::uint64_t>> totals;
    for (std::size_t i = 1; i < objects.size(); ++i) {  // a function of the kernel and one of a program share a name
      auto& [of_a, of_b] = totals[objects[i]["name"]];
      of_a += objects[i]["total"]["a"].get<std::uint64_t>();
      of_b += objects[i]["total"]["b"].get<std::uint64_t>();
    }
    for (const json& box : boxes) {
      EXPECT_LE(box[1], totals.at(box[0]).first);
      EXPECT_LE(box[2], totals.at(box[0]).second);
    }
    EXPECT_EQ(browser_->value("drawn.boxes[0].a"), objects[0]["a"]["samples"]);
    EXPECT_EQ(browser_->value("drawn.boxes[0].b"), objects[0]["b"]["samples"]);
  }
  EXPECT_GE(compared, 1000u);
}

TEST_F(PageDiff, ColoursAndWidthsSayWhatChanged) {
  write_difference(run(false), run(true), Normalise::kSamples);
  open();
  const auto of = [&](const std::string& name, const std::string& what) {
    return browser_->value(fmt::format(
        "(() => {{ const box = drawn.boxes.find((one) => nameOf(one.frame) === '{}'); return box && {}; }})()", name,
        what));
  };
  // Both sides are there, whichever function they lack.
  EXPECT_EQ(of("old", "[box.a, box.b]"), json::parse("[2000, 0]"));
  EXPECT_EQ(of("fresh", "[box.a, box.b]"), json::parse("[0, 3000]"));
  EXPECT_EQ(of("old", "box.element.className"), "frame gone");
  EXPECT_EQ(of("fresh", "box.element.className"), "frame new");
  const auto is_more =
      "(() => { const [r, g, b] = getComputedStyle(box.element).backgroundColor.match(/\\d+/g).map(Number); "
      "return Math.abs(r - b) < 25 ? 'grey' : r > b ? 'more' : 'less'; })()";
  EXPECT_EQ(of("hot", is_more), "more");
  EXPECT_EQ(of("fresh", is_more), "more");
  EXPECT_EQ(of("old", is_more), "less");
  EXPECT_EQ(of("main", is_more), "grey") << "100% on both sides";
  const auto width = [&](const std::string& name) { return of(name, "box.n").get<double>(); };
  EXPECT_NEAR(width("hot"), 0.5, 1e-9);
  EXPECT_NEAR(width("same"), 0.5, 1e-9) << "3000 of 6000, of 12000 after";
  act("choose({ size: 'before' })");
  EXPECT_NEAR(width("hot"), 1.0 / 6, 1e-9);
  EXPECT_EQ(boxes("fresh"), 0u);
  act("choose({ size: 'after' })");
  EXPECT_NEAR(width("fresh"), 0.25, 1e-9);
  EXPECT_EQ(boxes("old"), 0u);
  act("choose({ size: 'difference' })");
  EXPECT_NEAR(width("hot"), 1.0 / 3, 1e-9);
  EXPECT_NEAR(width("main"), 1.0 / 3 + 0.25 + 1.0 / 3 + 0.25, 1e-9);
  EXPECT_EQ(browser_->value("location.hash"), "#size=difference");
  // Turned over, with a search.
  act("choose({ view: 'callers', size: 'larger', query: 'fresh' })");
  EXPECT_EQ(of("fresh", "[box.a, box.b, box.match]"), json::parse("[0, 3000, true]"));
  EXPECT_EQ(text_of("match"), "0.00% before, 25.00% after, 1 function");
  // Callers and callees of both sides.
  act("choose({ view: 'functions', query: '', chosen: names.frames.findIndex((one) => one.name === 'main') })");
  EXPECT_NE(text_of("function").find("33.33%0.00%−33.33%old"), std::string::npos) << text_of("function");
  EXPECT_NE(text_of("function").find("total: 100.00% before, 100.00% after"), std::string::npos);
}

TEST_F(PageDiff, RenamedProgramsAreComparedAllTheSame) {
  write_difference(run(false, "app"), run(true, "app-new"), Normalise::kSamples);
  open();
  EXPECT_EQ(boxes("main"), 1u);
  EXPECT_EQ(boxes("threads of any name"), 1u);
  write_difference(run(false, "app"), run(true, "app"), Normalise::kSamples);
  open();
  EXPECT_EQ(boxes("app"), 1u);
}

TEST_F(PageDiff, HostileNamesAreText) {
  for (const std::string name : {"<script>window.hit = 1</script>", "</script><script>window.hit = 1</script>",
                                 "<img src=x onerror='window.hit = 1'>", "__proto__", "@PROFILE@ @CONNECT@",
                                 "]]><script>window.hit=1</script>", "a\x01 b\xff\xef\xbf\xbe"}) {
    auto a = run(false, name), b = run(true, name);
    for (auto* p : {&a, &b}) {
      for (auto& function : p->functions) function.name += name;
      p->modules[0].path = "/" + name;
      p->comments = {name};
      p->events[0].counted = name;
    }
    write_difference(a, b, Normalise::kSamples);
    for (const char* hash : {"", "#view=callers", "#view=functions"}) {
      open(hash);
      act("choose({ chosen: names.frames.findIndex((frame, i) => isCode(i)) })");
      browser_->value("drawn && drawn.boxes.forEach((box) => showTip(box, 1, 1))");
      EXPECT_EQ(browser_->value("typeof window.hit"), "undefined") << name;
      EXPECT_EQ(browser_->value("document.querySelectorAll('script, img, svg').length"), 2) << name;
    }
    // As an image file, too.
    open();
    const std::string svg = browser_->text("svgText()");
    std::ofstream(directory_ + "/graph.svg") << svg;
    browser_->open(fmt::format("file://{}/graph.svg", directory_));
    EXPECT_EQ(browser_->value(
                  "document.documentElement.tagName + document.querySelectorAll('parsererror, script, img').length"),
              "svg0")
        << name;
    EXPECT_EQ(browser_->value("typeof window.hit"), "undefined") << name;
    EXPECT_GT(browser_->value(
                  "[...document.querySelectorAll('title')].filter((one) => one.textContent.startsWith('main')).length"),
              0)
        << name;
  }
  for (const std::string& url : browser_->requests())
    EXPECT_TRUE(url.starts_with("file:///") || url.starts_with("blob:") || url == "about:blank") << url;
}

}  // namespace
}  // namespace windlass::exporter
