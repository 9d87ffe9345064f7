// What the page offers besides the flame graph: an image file, source and instructions, the keyboard, and use with a
// screen reader, as axe-core judges it.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include <fmt/format.h>

#include "profiler/export/diff.h"
#include "support/axe.h"
#include "support/page_in_browser.h"
#include "support/run_command.h"
#include "support/synthetic_profile.h"

namespace windlass::exporter {
namespace {

using nlohmann::json;

profile::Profile small_profile() { return testing::synthetic_profile({.samples = 300, .functions = 30, .stacks = 50}); }
// Of 5 s, several processes with threads; every other sample has a label.
profile::Profile with_times_and_labels() {
  auto profile = small_profile();
  const auto text = static_cast<std::uint32_t>(profile.strings.size());
  profile.strings.insert(profile.strings.end(), {"reason", "futex", "page fault"});
  profile.label_sets = {{}, {{text, text + 1}}, {{text, text + 2}}};
  for (profile::Event& event : profile.events) event.per_time = 1;
  std::uint64_t at = 0;
  for (std::size_t i = 0; i < profile.samples.size(); ++i) {
    profile::Sample& sample = profile.samples[i];
    sample.labels = i % 2 == 0 ? 1 : i % 3 == 0 ? 2 : 0;
    sample.first_time = profile.times.size();
    sample.times = static_cast<std::uint32_t>(sample.count);
    for (std::uint64_t n = 0; n < sample.count; ++n) profile.times.push_back({at++ * 1'000'000 % 5'000'000'000, 0});
  }
  return profile;
}

class PageForms : public test::PageInBrowser {
 protected:
  static void write_difference(const profile::Profile& a) {
    auto b = a;
    for (std::size_t i = 0; i < b.samples.size(); i += 3) b.samples[i].count *= 9;
    const auto difference = difference_of(a, shown_by_default(a), b, shown_by_default(b), Normalise::kSamples);
    ASSERT_TRUE(difference.has_value());
    std::string page;
    TextWriter out(&page);
    EXPECT_TRUE(write_diff_html(*difference, a, b, out, {.name_a = "a", .name_b = "b"}).has_value());
    std::ofstream(directory_ + "/page.html") << page;
  }
  // The page as if a server had sent it, which answers with `lines`.
  static void open_served(const std::string& lines, const std::string& theme = "light",
                          const profile::Profile& profile = small_profile()) {
    write(profile);
    open("#view=functions&theme=" + theme);
    browser_->value(
        fmt::format("names.served = true; window.fetch = async (url) => {{ window.asked = url; return new "
                    "Response({}); }}; 0",
                    json(lines).dump()));
    act("choose({ chosen: answer.rows[0][0], code: true })");
    browser_->wait("code.lines !== null && document.querySelector('#code .sides') !== null");
  }
};

constexpr const char* kLines =
    R"({"type":"annotation","function":"f","value":"samples","unit":"count","all":1000,"self":80,"total":200,"more_parts":2,"without_code":10}
{"type":"source_line","file":"/src/<b>f.cpp","line":11,"text":"  <i>one</i>();","self":30,"total":40,"inlined":[]}
{"type":"source_line","file":"/src/<b>f.cpp","line":12,"text":"  two();","self":0,"total":160,"inlined":[{"function":"two","total":150}]}
{"type":"code","module":"/bin/app","function":"f","architecture":"x86-64","self":80,"total":200}
{"type":"instruction","address":4096,"bytes":"90","text":"nop","target":null,"jumps":"╭─","self":30,"total":40,"file":"/src/<b>f.cpp","line":11,"inlined":[]}
{"type":"instruction","address":4097,"bytes":"90","text":"call 0x<x>","target":null,"jumps":"│ ","self":20,"total":150,"file":"/src/<b>f.cpp","line":12,"inlined":["two"]}
{"type":"instruction","address":4098,"bytes":"90","text":"inc rax","target":null,"jumps":"│ ","self":20,"total":20,"file":"/src/<b>f.cpp","line":12,"inlined":["two","three"]}
{"type":"instruction","address":4099,"bytes":"c3","text":"ret","target":null,"jumps":"╰→","self":10,"total":10,"file":null,"line":null,"inlined":[]}
)";

TEST_F(PageForms, SourceAndInstructionsStandSideBySide) {
  open_served(kLines);
  const std::string name = browser_->text("nameOf(state.chosen)");
  EXPECT_TRUE(browser_->text("window.asked").starts_with(browser_->text("location.pathname") + "/annotate?function="));
  EXPECT_EQ(browser_->text("new URLSearchParams(window.asked.split('?')[1]).get('function')"), name);
  EXPECT_EQ(browser_->text("new URLSearchParams(window.asked.split('?')[1]).get('value')"), "samples");
  const auto rows = browser_->value(
      "[...document.querySelectorAll('#code [data-place]')].map((row) => [Number(row.dataset.self), "
      "Number(row.dataset.total), row.hidden])");
  EXPECT_EQ(rows, json::parse("[[30,40,false],[0,160,false],[30,40,false],[20,150,true],[20,20,true],[10,10,false]]"));
  EXPECT_NE(text_of("code").find("3.00%4.00%11  <i>one</i>();"), std::string::npos) << text_of("code");
  EXPECT_NE(text_of("code").find("1 inlined call↳ two 15.00%"), std::string::npos) << text_of("code");
  EXPECT_NE(text_of("code").find("4.00%1001▸ ↳ two2"), std::string::npos) << text_of("code");
  EXPECT_EQ(browser_->value("document.querySelectorAll('#code i, #code b').length"), 0);
  // A line leads to its instructions, also if they are folded.
  browser_->value("document.querySelectorAll('#code button.plain')[1].click()");
  EXPECT_EQ(
      browser_->value("[...document.querySelectorAll('#code .same')].map((row) => [row.dataset.place, row.hidden])"),
      json::parse(R"([["/src/<b>f.cpp:12",false],["/src/<b>f.cpp:12",false],["/src/<b>f.cpp:12",false]])"));
  // The address keeps it, and a button closes it.
  EXPECT_NE(browser_->text("location.hash").find("&code="), std::string::npos);
  act("document.querySelector('#code button').click()");
  EXPECT_EQ(browser_->value("document.getElementById('code').hidden"), true);
}

// The arrows of the terminal as lines: without gaps, and past what is folded.
TEST_F(PageForms, JumpsAreDrawnAcrossRows) {
  open_served(kLines);
  const auto lines = [&] {
    return browser_->value(
        "[...document.querySelectorAll('#code td.jumps')].filter((one) => !one.parentNode.hidden).map((one) => "
        "[...one.children].map((part) => part.className).join())");
  };
  EXPECT_EQ(lines(), json::parse(R"(["down,across corner,across","up,down","up,across corner,tip"])"));
  const auto gaps = [&] {
    return browser_->value(
        "(() => { const ends = [...document.querySelectorAll('#code td.jumps :is(.up, .down)')].filter((one) => "
        "!one.closest('tr').hidden).map((one) => one.getBoundingClientRect());"
        "return ends.slice(1).filter((one, i) => Math.abs(one.top - ends[i].bottom) > 1).length; })()");
  };
  EXPECT_EQ(gaps(), 0);
  browser_->value("document.querySelectorAll('#code tbody button.plain')[2].click()");
  EXPECT_EQ(lines(),
            json::parse(R"(["down,across corner,across","up,down","up,down","up,down","up,across corner,tip"])"));
  EXPECT_EQ(gaps(), 0);
}

TEST_F(PageForms, AFileSaysTheCommand) {
  auto profile = testing::synthetic_profile();
  profile.functions[0].name = "it's(int)";
  std::string page;
  TextWriter out(&page);
  EXPECT_TRUE(write_html(profile, out, {.file = "my profile.pb.gz"}).has_value());
  EXPECT_EQ(page.find("connect-src"), std::string::npos) << "a file asks nobody";
  std::ofstream(directory_ + "/page.html") << page;
  open("#view=functions&function=it's(int)&code=");
  EXPECT_EQ(browser_->text("document.querySelector('#function code').textContent"),
            "windlass report --annotate 'it'\\''s(int)' 'my profile.pb.gz'");
  EXPECT_EQ(browser_->value("document.getElementById('code').hidden"), true);
}

TEST_F(PageForms, TheGraphAsAnImageFile) {
  shown(testing::synthetic_profile({.truncated = 0.05}));
  for (const char* view : {"graph", "callers"}) {
    act(fmt::format("choose({{ view: '{}' }})", view));
    const auto drawn = browser_->value(
        "drawn.boxes.map((box) => box.frame === NARROWER ? `${box.functions} narrower functions` : nameOf(box.frame))");
    const std::string svg = browser_->text("svgText()");
    std::ofstream(directory_ + "/graph.svg") << svg;
    browser_->open(fmt::format("file://{}/graph.svg", directory_));
    EXPECT_EQ(browser_->value("document.documentElement.namespaceURI"), "http://www.w3.org/2000/svg");
    EXPECT_EQ(browser_->value("[...document.querySelectorAll('title')].map((one) => one.textContent.split('\\n')[0])"),
              drawn);
    // Text stays within its box.
    EXPECT_EQ(
        browser_->value("[...document.querySelectorAll('g > title ~ text')].filter((one) => one.getBBox().width > "
                        "one.parentNode.querySelector('rect').getBBox().width).length"),
        0);
    open();
  }
}

// A worker is within (a+)+$ for ages. The page goes on with another worker.
TEST_F(PageForms, AnExpressionThatTakesTooLongIsRefused) {
  auto profile = small_profile();
  profile.functions[0].name = std::string(60, 'a') + "!";
  for (const bool difference : {false, true}) {
    difference ? write_difference(profile) : write(profile);
    open();
    const auto boxes = browser_->value("drawn.boxes.length");
    act("choose({ query: '(a+)+$' })");
    EXPECT_NE(text_of("match").find("takes too long"), std::string::npos) << text_of("match");
    EXPECT_EQ(browser_->value("drawn.boxes.length"), boxes);
    act("choose({ view: 'functions' })");
    EXPECT_GT(browser_->value("document.querySelectorAll('#list tbody tr').length"), 1);
    act("choose({ view: 'graph', query: '^a+!$' })");
    EXPECT_NE(text_of("match").find(" 1 function"), std::string::npos) << text_of("match");
  }
}

TEST_F(PageForms, ArrowsGoToEachSide) {
  shown(testing::synthetic_profile());
  browser_->value("document.querySelector('.frame').focus()");
  const auto focused = [&] { return browser_->text("document.activeElement.dataset.i"); };
  browser_->press("ArrowDown");
  const std::string first = focused();
  browser_->press("ArrowRight");
  const std::string second = focused();
  EXPECT_NE(second, first);
  EXPECT_EQ(browser_->value(fmt::format("drawn.boxes[{}].depth === drawn.boxes[{}].depth", first, second)), true);
  browser_->press("ArrowLeft");
  EXPECT_EQ(focused(), first);
  // A zoom by Enter, and out of it by the frame above.
  browser_->press("Enter");
  browser_->wait("state.zoom !== ''");
  settle();
  browser_->press("ArrowUp");
  browser_->press("Enter");
  browser_->wait("state.zoom === ''");
}

// Judges pages by axe-core.
class PageByAxe : public PageForms {
 protected:
  void SetUp() override {
    PageForms::SetUp();
    if (IsSkipped()) return;
    if (const std::string reason = axe_.fetch(directory_ + "/axe-core"); !reason.empty()) GTEST_SKIP() << reason;
  }
  void TearDown() override {
    if (browser_ != nullptr) browser_->size(1400, 900);
    if (!IsSkipped()) {
      EXPECT_GT(axe_.passed(), 100u);
    }
  }
  void judge(const std::string& what) { axe_.judge(*browser_, what); }

 private:
  test::Axe axe_;
};

TEST_F(PageByAxe, ProfilesDifferencesAndCode) {
  const auto judge_views = [&](const std::string& what) {
    for (const char* theme : {"light", "dark"})
      for (const char* view : {"graph", "callers", "functions"}) {
        open(fmt::format("#view={}&theme={}", view, theme));
        if (view == std::string("functions")) act("choose({ chosen: answer.rows[0][0] })");
        judge(fmt::format("{} {} {}", what, theme, view));
      }
  };
  for (const int width : {1400, 420}) {
    browser_->size(width, 900);
    write(small_profile());
    judge_views(fmt::format("profile {}", width));
    write_difference(small_profile());
    judge_views(fmt::format("difference {}", width));
    for (const char* theme : {"light", "dark"}) {
      open_served(kLines, theme);
      browser_->value("document.querySelectorAll('#code button.plain').forEach((one) => one.click())");
      judge(fmt::format("code {} {}", width, theme));
    }
  }
}

// All at once: a time line with open threads, a range of time, chosen labels, a search, and the code of a function.
TEST_F(PageByAxe, TimeLineFlameChartAndLabels) {
  const auto profile = with_times_and_labels();
  for (const int width : {1400, 420}) {
    browser_->size(width, 900);
    for (const char* theme : {"light", "dark"}) {
      const std::string what = fmt::format("{} {}", width, theme);
      open_served(kLines, theme, profile);
      act("document.querySelector('.lane button.open').click()");
      act("choose({ from: 1e9, to: 4e9, labels: [['reason', 'futex']], query: 'work' })");
      EXPECT_EQ(browser_->value("[$('times').hidden, $('range').hidden, $('code').hidden, answer.summary.samples > 0]"),
                json::parse("[false,false,false,true]"));
      EXPECT_GT(browser_->value("document.querySelectorAll('.lane.thread').length"), 0);
      EXPECT_EQ(browser_->value("document.querySelectorAll('#notes .value[aria-pressed=true]').length"), 1);
      judge(what + " code");
      act("choose({ view: 'chart', lane: 0 })");
      EXPECT_GT(browser_->value("document.querySelectorAll('#chart .frame').length"), 10);
      judge(what + " chart");
      act("choose({ view: 'graph', query: 'no such function' })");
      judge(what + " no match");
    }
  }
}

}  // namespace
}  // namespace windlass::exporter
