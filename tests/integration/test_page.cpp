// The flame graph page in a real browser: headless Chromium lays it out and runs its scripts.
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "profiler/export/call_tree.h"
#include "profiler/export/labels.h"
#include "profiler/export/numbers.h"
#include "support/events_profile.h"
#include "support/page_in_browser.h"
#include "support/synthetic_profile.h"

namespace windlass::exporter {
namespace {

using Page = test::PageInBrowser;

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++count;
  return count;
}

TEST_F(Page, ShowsTheProfile) {
  const auto profile = testing::synthetic_profile({.truncated = 0.05});
  const auto totals = totals_of(profile);
  const auto page = shown(profile);
  EXPECT_EQ(boxes("all"), 1u) << "the root frame";
  for (const char* comm : {"main", "worker", "io thread"}) EXPECT_EQ(boxes(comm), 1u);
  EXPECT_GT(count_of(page, "class=\"frame"), 300u);
  // Truncated stacks: in the header with their reasons, hatched in the graph, in the legend.
  const double whole = percent(totals.samples - totals.truncated, totals.samples);
  EXPECT_NE(page.find(fmt::format("<dd>{:.2f}%</dd>", whole)), std::string::npos);
  EXPECT_NE(page.find("Truncated (no row)"), std::string::npos);
  EXPECT_GE(boxes("[truncated: no row]"), 3u);
  EXPECT_GT(count_of(page, "class=\"frame truncated"), 10u);
  EXPECT_NE(page.find("truncated stacks"), std::string::npos);
  EXPECT_NE(page.find("[kernel]"), std::string::npos);
  // A comment is text, never markup.
  EXPECT_NE(page.find("synthetic &lt;profile&gt; &amp; \"quotes\""), std::string::npos);
  EXPECT_EQ(count_of(page, "class=\"frame match"), 0u) << "nothing is highlighted without a search";
}

TEST_F(Page, SearchHighlightsAndCounts) {
  shown(testing::synthetic_profile(), "#q=parse");
  const auto matches = "document.querySelectorAll('.frame.match').length";
  EXPECT_GT(browser_->value(matches), 5);
  EXPECT_NE(text_of("match").find("% of samples ("), std::string::npos);  // the numbers: test_page_numbers
  EXPECT_NE(text_of("match").find(" functions"), std::string::npos);
  act("search('surely-not-there')");
  EXPECT_EQ(text_of("match"), "no match");
  EXPECT_EQ(browser_->value(matches), 0);
  act("search('parse_[')");  // an unfinished expression is text
  EXPECT_EQ(text_of("match"), "no match");
}

// Two difficult functions: one is named like the end of a script, the other has a parameter of a type with a function's
// name.
profile::Profile tricky_profile() {
  profile::Profile p;
  p.events.front().period = 1'000'000;
  p.strings = {"main", "worker"};
  p.modules.push_back({.path = "/usr/bin/tricky", .begin = 0, .end = 0x10000});
  const char* names[] = {"main", "</script><!--<script>", "evaluate(parse::Node const&)", "parse::run(int)"};
  for (std::uint32_t i = 0; i < 4; ++i) {
    p.functions.push_back({.name = names[i], .system_name = names[i], .file = "/src/tricky.cpp", .start_line = 10 * i});
    p.locations.push_back({.module = 0, .address = 0x100 * i, .lines = {{i, 10 * i + 1}}});
  }
  const auto add = [&](std::vector<std::uint32_t> locations, std::uint64_t count, std::uint32_t pid,
                       std::uint32_t comm) {
    p.samples.push_back(
        {.locations = std::move(locations), .count = count, .pid = pid, .tid = pid + comm, .comm = comm});
  };
  add({1, 0}, 10, 7, 0);
  add({2, 1, 0}, 20, 7, 0);
  add({2, 3, 0}, 30, 7, 1);
  add({3, 0}, 9940, 8, 0);
  return p;
}

TEST_F(Page, NamesAreTextAndSearchGoesByThem) {
  const auto profile = tricky_profile();
  shown(profile);
  EXPECT_EQ(boxes("</script><!--<script>"), 1u);
  EXPECT_GE(count_of(shown(profile, "#view=functions"), "<td>&lt;/script&gt;&lt;!--&lt;script&gt;</td>"), 1u);
  // Not evaluate(parse::Node const&), which has 50 samples.
  const auto found = shown(profile, "#q=parse");
  EXPECT_NE(found.find("99.70% of samples (9,970)"), std::string::npos)
      << found.substr(found.find("id=\"match\""), 120);
}

TEST_F(Page, OneTruncatedStackInTenThousandIsNotRed) {
  auto profile = tricky_profile();
  profile.samples.push_back({.locations = {0}, .count = 1, .pid = 8, .tid = 8, .comm = 0, .end = WL_END_NO_ROW});
  const auto page = shown(profile);
  EXPECT_NE(page.find("<div class=\"good\"><dt>stacks complete</dt><dd>99.99%</dd>"), std::string::npos);
  EXPECT_EQ(count_of(page, "<div class=\"bad\">"), 0u);
  profile.samples.back().count = 5000;
  EXPECT_EQ(count_of(shown(profile), "<div class=\"bad\">"), 2u) << "a third of the stacks";
}

TEST_F(Page, FunctionsWithCallersAndCallees) {
  const auto profile = tricky_profile();
  const auto page = shown(profile, "#view=functions&function=parse%3A%3Arun(int)");
  const auto row = [&](const std::string& text) { return count_of(page, text); };
  // The table: self, total. Then who calls it and whom it calls, in shares of it, and its lines.
  EXPECT_EQ(row("<td class=\"number\">99.40%</td><td class=\"number\">99.70%</td><td>parse::run(int)</td>"), 1u);
  EXPECT_EQ(
      row("<td class=\"number\">0.50%</td><td class=\"number\">0.50%</td><td>evaluate(parse::Node const&amp;)</td>"),
      1u);
  EXPECT_EQ(row("<td class=\"number\">100.00%</td><td class=\"number\">9,970</td><td>main</td>"), 1u);
  EXPECT_EQ(row("<td class=\"number\">0.30%</td><td class=\"number\">30</td><td>evaluate(parse::Node const&amp;)</td>"),
            1u);
  EXPECT_EQ(row("<td class=\"number\">100.00%</td><td class=\"number\">9,940</td><td>/src/tricky.cpp:31</td>"), 1u);
  // A search narrows the table.
  const auto narrowed = shown(profile, "#view=functions&q=parse");
  EXPECT_NE(narrowed.find("<td>parse::run(int)</td>"), std::string::npos);
  EXPECT_EQ(narrowed.find("<td>evaluate(parse::Node const&amp;)</td>"), std::string::npos);
}

TEST_F(Page, OneProcessAndOneThread) {
  const auto profile = tricky_profile();
  const auto all = shown(profile, "#view=functions");
  EXPECT_NE(all.find("main (pid 7): 0.60%"), std::string::npos);
  EXPECT_NE(all.find("main (pid 8): 99.40%"), std::string::npos);
  const auto process = shown(profile, "#view=functions&process=main+(pid+7)");
  EXPECT_NE(process.find("worker: 50.00%"), std::string::npos);
  EXPECT_NE(process.find("<td class=\"number\">83.33%</td><td class=\"number\">83.33%</td><td>evaluate(parse::Node"),
            std::string::npos);
  EXPECT_NE(process.find("<dt>samples</dt><dd>60</dd>"), std::string::npos) << "the header is of the process";
  EXPECT_NE(process.find("All numbers are of main (pid 7): 0.60% of 10,000 samples."), std::string::npos);
  const auto thread = shown(profile, "#view=functions&process=main+(pid+7)&thread=worker");
  EXPECT_NE(thread.find("<td class=\"number\">100.00%</td><td class=\"number\">100.00%</td><td>evaluate(parse::Node"),
            std::string::npos);
  EXPECT_NE(thread.find("main (pid 7), thread worker: 0.30% of 10,000 samples."), std::string::npos);
  EXPECT_EQ(thread.find("&lt;/script&gt;"), std::string::npos) << "a function of the other thread";
  shown(profile, "#process=main+(pid+8)");
  EXPECT_EQ(boxes("parse::run(int)"), 1u);
  EXPECT_EQ(boxes("evaluate(parse::Node const&)"), 0u);
}

TEST_F(Page, CallersView) {
  const auto profile = testing::synthetic_profile();
  const auto page = shown(profile, "#view=callers");
  EXPECT_NE(page.find("aria-pressed=\"true\""), std::string::npos);
  EXPECT_EQ(boxes("all"), 1u);
  EXPECT_GT(count_of(page, "class=\"frame"), 200u);
}

TEST_F(Page, OneOfTwoEvents) {
  const auto profile = testing::events_profile();
  const auto cpu = shown(profile);
  EXPECT_NE(cpu.find("<dt>samples</dt><dd>40</dd>"), std::string::npos);
  EXPECT_NE(cpu.find("<dt>CPU time</dt>"), std::string::npos);
  EXPECT_NE(cpu.find("main (pid 8): 75.00%"), std::string::npos);
  EXPECT_EQ(boxes("wait"), 0u);
  EXPECT_EQ(cpu.find("Label reason"), std::string::npos);
  const auto off_cpu = shown(profile, "#event=off-cpu");
  EXPECT_NE(off_cpu.find("<dt>off-cpu</dt><dd>4.50 ms</dd>"), std::string::npos);
  EXPECT_EQ(off_cpu.find("<dt>CPU time</dt>"), std::string::npos);
  EXPECT_EQ(boxes("wait"), 2u);
  EXPECT_NE(text_of("notes").find("Label reason: futex 66.67% page fault 22.22% none 11.11%"), std::string::npos);
  EXPECT_EQ(off_cpu.find("pid 8"), std::string::npos) << "this process did not wait";
  // Units in a search and in the table.
  const auto found = shown(profile, "#event=off-cpu&q=run");
  EXPECT_NE(found.find("22.22% of off-cpu (1.00 ms)"), std::string::npos)
      << found.substr(found.find("id=\"match\""), 120);
  const auto table = shown(profile, "#event=off-cpu&view=functions&function=wait");
  EXPECT_NE(table.find("4.50 ms (100.00%), self 4.50 ms (100.00%)"), std::string::npos);
  EXPECT_EQ(count_of(table, "<td class=\"number\">77.78%</td><td class=\"number\">3.50 ms</td><td>main</td>"), 1u);
  EXPECT_NE(shown(profile, "#event=nosuch").find("<dt>samples</dt><dd>40</dd>"), std::string::npos);
}

TEST_F(Page, TheAddressKeepsWhatIsChosenAndBackUndoesIt) {
  const std::string choose =
      "const menu = document.getElementById('event'); menu.value = 1;"
      "menu.dispatchEvent(new Event('change'));";
  shown(testing::events_profile(), "#q=wait");
  act("{" + choose + "}");
  EXPECT_EQ(browser_->value("location.hash"), "#q=wait&event=off-cpu");
  EXPECT_NE(document().find("<dt>off-cpu</dt><dd>4.50 ms</dd>"), std::string::npos);
  EXPECT_EQ(text_of("match"), "100.00% of off-cpu (4.50 ms), 1 function");
  act("toggle('callers')");
  act("[...document.querySelectorAll('.frame')].find((one) => one.textContent === 'wait').click()");
  EXPECT_EQ(text_of("chart").substr(0, 7), "allwait");
  const auto zoomed = browser_->value("location.hash");
  EXPECT_NE(zoomed.get<std::string>().find("&zoom="), std::string::npos);
  act("new Promise((done) => { addEventListener('popstate', done, { once: true }); history.back(); })");
  EXPECT_EQ(browser_->value("location.hash"), "#q=wait&view=callers&event=off-cpu");
  act("new Promise((done) => { addEventListener('popstate', done, { once: true }); history.go(-2); })");
  EXPECT_EQ(browser_->value("location.hash"), "#q=wait");
  EXPECT_EQ(text_of("match"), "no match");
  EXPECT_NE(document().find("<dt>samples</dt><dd>40</dd>"), std::string::npos);
  open(zoomed);
  EXPECT_EQ(text_of("chart").substr(0, 7), "allwait");
  // The letters of a search are one step.
  open();
  for (const char* letters : {"w", "wa", "wai"}) act(fmt::format("choose({{ query: '{}' }})", letters));
  act("new Promise((done) => { addEventListener('popstate', done, { once: true }); history.back(); })");
  EXPECT_EQ(browser_->value("location.hash"), "");
}

TEST_F(Page, AProcessStaysChosen) {
  const auto page = shown(testing::events_profile(), "#event=off-cpu&process=main+(pid+8)");
  EXPECT_NE(page.find("No waits were recorded."), std::string::npos) << "of this process";
  EXPECT_NE(page.find("All numbers are of main (pid 8): 0.00% of 4.50 ms."), std::string::npos);
  open("#event=off-cpu&process=main+(pid+7)");
  EXPECT_NE(text_of("notes").find("Label reason: futex 66.67%"), std::string::npos);
}

TEST_F(Page, TheKeyboardWalksAndZooms) {
  shown(tricky_profile());
  browser_->value("document.querySelector('.frame').focus()");
  const auto focused = [&] { return browser_->text("document.activeElement.textContent"); };
  EXPECT_EQ(focused(), "all");
  browser_->press("ArrowDown");
  browser_->press("ArrowDown");
  EXPECT_EQ(focused(), "main");
  browser_->press("ArrowDown");
  EXPECT_EQ(focused(), "parse::run(int)");
  browser_->press("ArrowUp");
  browser_->press("Enter");
  browser_->wait("location.hash.startsWith('#zoom=')");
  settle();
  EXPECT_EQ(focused(), "main") << "the frame stays chosen";
  const auto copied = browser_->text(
      "(() => { let text = ''; const event = new ClipboardEvent('copy', { clipboardData: new DataTransfer(), bubbles: "
      "true,"
      "cancelable: true }); document.activeElement.dispatchEvent(event); return "
      "event.clipboardData.getData('text/plain'); })()");
  EXPECT_EQ(copied, "main\nmain");
  browser_->press("Escape");
  browser_->wait("location.hash === ''");
}

// The half of a C++ name that tells it apart is the end.
TEST_F(Page, TheMiddleOfALongNameIsLeftOut) {
  auto profile = tricky_profile();
  profile.functions[3].name =
      "company::project::component::detail::" + std::string(150, 'x') + "::Parser<int, std::less<>>::run_fast(int)";
  shown(profile, "#view=functions");
  const auto cell = browser_->text("document.querySelector('#list td:nth-child(3)').textContent");
  EXPECT_TRUE(cell.starts_with("company::proj") && cell.ends_with("::Parser<…>::run_fast")) << cell;
  EXPECT_NE(cell.find("…"), std::string::npos);
  act("toggle('graph')");
  browser_->size(500, 900);
  act("ask()");
  const auto label =
      browser_->text("drawn.boxes.findLast((box) => nameOf(box.frame).startsWith('company')).element.textContent");
  browser_->size(1400, 900);
  EXPECT_TRUE(label.starts_with("company::") && label.ends_with("::Parser<…>::run_fast")) << label;
}

// No cell of the tables cuts the end of a name, whatever the width.
TEST_F(Page, CellsLeaveOutTheMiddleOfNames) {
  auto profile = tricky_profile();
  profile.functions[2].name = "std::_Hash_bytes(void const*, unsigned long, unsigned long, WWWWWWWW, WWWWWWWWWWWW)";
  profile.functions[3].name =
      "company::project::component::detail::Parser<int, std::less<>>::WWWWWWWWWW::run_fast(int)";
  shown(profile, "#view=functions");
  for (const int width : {1900, 1400, 1000, 500}) {
    browser_->size(width, 900);
    act("ask()");
    const auto cells = [&](const std::string& what) {
      return "[...document.querySelectorAll('#functions td')].filter((cell) => cell.frame >= 0)" + what;
    };
    EXPECT_GT(browser_->value(cells(".length")), 2);
    EXPECT_EQ(browser_->text(cells(".filter((cell) => cell.scrollWidth > cell.clientWidth).map((cell) => "
                                   "cell.textContent).join()")),
              "")
        << width;
    const auto names = browser_->text(cells(".map((cell) => cell.textContent).join('|')"));
    EXPECT_NE(names.find("run_fast"), std::string::npos) << width << names;
  }
  browser_->size(1400, 900);
}

// A narrow box has room for the function alone.
TEST_F(Page, ANarrowBoxShowsTheFunction) {
  shown(tricky_profile());
  const auto name = [&](const std::string& full, int width) {
    return browser_->text(fmt::format("shortened({}, {})", nlohmann::json(full).dump(), width));
  };
  EXPECT_EQ(name("windlass::exporter::Frames::path_of", 8), "path_of");
  EXPECT_EQ(name("windlass::exporter::Frames::path_of", 16), "Frames::path_of");
  EXPECT_EQ(name("void std::__introsort_loop<long, int>", 18), "__introsort_loop");
  EXPECT_EQ(name("std::vector<int, std::allocator<int>>::size", 12), "vector::size");
  EXPECT_EQ(name("int* std::copy<int>::operator()", 11), "operator()");
  EXPECT_EQ(name("(anonymous namespace)::sorted", 9), "sorted");
  EXPECT_EQ(name("v8::internal::compiler::ReduceTopOfAll", 8), "Re…OfAll");
  EXPECT_EQ(name("<alloc::Vec as Drop>::drop", 7), "drop");
  EXPECT_EQ(name("<module>", 6), "<…>");
  EXPECT_EQ(name("(12 narrower functions)", 12), "(12…nctions)");
}

TEST_F(Page, TimesHaveThreeDigitsAndTheirSize) {
  write(testing::synthetic_profile());
  open();
  EXPECT_EQ(
      browser_->value("[1, 100, 1e8, 2e8, 1.2e8, 9.996e8, 1e11, 1.2e11, 1.234e12, 3.6e12, 1.5e9].map(duration).join()"),
      "1 ns,100 ns,100 ms,200 ms,120 ms,1000 ms,100 s,120 s,1230 s,3600 s,1.5 s");
}

TEST_F(Page, ColoursHaveALegend) {
  auto profile = testing::synthetic_profile();
  for (const char* colour : {"module", "kind", "certainty"}) {
    shown(profile, fmt::format("#colour={}", colour));
    // Each colour that is drawn for code has the hue of an entry of the legend.
    EXPECT_EQ(browser_->text("(() => { const hue = (one) => { const [r, g, b] = "
                             "getComputedStyle(one).backgroundColor.match(/\\d+/g).map(Number), most = Math.max(r, g, "
                             "b), least = Math.min(r, g, b),"
                             "d = most - least; return d < 24 ? -1 : Math.round(((most === r ? (g - b) / d : most === "
                             "g ? 2 + (b - r) / d : 4 + (r - g) / d) * 60 + 360) % 360 / 6); };"
                             "const known = new Set([...document.querySelectorAll('#legend i')].map(hue));"
                             "const near = (h) => h < 0 || [h - 1, h, h + 1].some((one) => known.has((one + 60) % 60));"
                             "return drawn.boxes.filter((box) => isCode(box.frame) && "
                             "!near(hue(box.element))).map((box) => nameOf(box.frame)).join(); })()"),
              "")
        << colour;
  }
  EXPECT_EQ(browser_->text(
                "[...document.querySelectorAll('#legend button')].slice(0, 5).map((one) => one.textContent).join()"),
            "described,proved,checked,chained,guessed");
  for (const char* theme : {"dark", "light"}) {
    open(fmt::format("#theme={}", theme));
    EXPECT_EQ(browser_->text("getComputedStyle(document.documentElement).colorScheme"), theme);
  }
}

TEST_F(Page, GroupsAndEventsWithoutSamples) {
  auto profile = testing::events_profile();
  group_samples(profile, "reason");
  const auto page = shown(profile, "#event=off-cpu&thread=futex");
  EXPECT_EQ(boxes("futex"), 1u);
  EXPECT_NE(page.find("All groups"), std::string::npos);
  EXPECT_NE(page.find("page fault: 22.22%"), std::string::npos);
  std::erase_if(profile.samples, [](const auto& sample) { return sample.event == 1; });
  EXPECT_NE(shown(profile, "#event=off-cpu").find("No waits were recorded."), std::string::npos);
}

TEST_F(Page, LargeAndEmptyProfiles) {
  const auto large = testing::synthetic_profile({.samples = 60'000, .functions = 5000, .stacks = 40'000, .depth = 60});
  const auto page = shown(large);
  EXPECT_GT(count_of(page, "class=\"frame"), 500u);
  EXPECT_NE(page.find("are not drawn until you zoom in"), std::string::npos);
  // Each of its 5000 functions is narrower than a pixel.
  act("toggle('callers')");
  EXPECT_EQ(boxes("(narrower functions)"), 1u);
  act("drawn.boxes.find((box) => box.frame === NARROWER).element.click()");
  EXPECT_EQ(browser_->value("document.querySelectorAll('#list tbody tr').length"), 200);
  EXPECT_NE(shown({}).find("No samples were recorded."), std::string::npos);
}

// Each would set `hit`, load something, or break the page if it were taken for more than text.
TEST_F(Page, HostileNamesAreText) {
  const std::vector<std::string> names = {"<script>window.hit = 1</script>",
                                          "</script><script>window.hit = 1</script>",
                                          "<img src=x onerror='window.hit = 1'>",
                                          "\"><svg onload=\"window.hit = 1\">",
                                          "' onmouseover='window.hit = 1",
                                          "<!--<script>",
                                          "${window.hit = 1}",
                                          "');window.hit = 1;//",
                                          "javascript:window.hit=1",
                                          "<iframe srcdoc='<script>parent.hit = 1</script>'></iframe>",
                                          "<style>*{background:url(http://127.0.0.1:9/hit)}</style>",
                                          "</style><link rel=stylesheet href=http://127.0.0.1:9/hit>",
                                          "<meta http-equiv=refresh content='0;url=http://127.0.0.1:9/hit'>",
                                          "&lt;b&gt;&amp;#60;",
                                          "__proto__",
                                          "constructor",
                                          "@PROFILE@ @SCRIPTS@ @CALCULATOR@",
                                          "a\x01 b\nc\u2028window.hit = 1",
                                          "\xff\xc0</textarea><base href=http://127.0.0.1:9/>"};
  ASSERT_EQ(names.size(), 19u);
  for (const std::string& name : names) {
    auto p = testing::events_profile();
    for (auto& function : p.functions) function.name = function.file = name;
    for (auto& text : p.strings) text = name;
    p.modules[0].path = "/" + name;
    p.comments = {name};
    for (auto& event : p.events) event.name = event.counted = event.unit = name;
    p.samples[0].end = WL_END_NO_ROW;
    write(p);
    for (const char* hash : {"", "#event=1&view=callers", "#view=functions"}) {
      open(hash);
      act("choose({ value: names.values.length - 1 })");
      act("choose({ view: 'functions', chosen: names.frames.findIndex((frame, i) => isCode(i)) })");
      act("choose({ view: 'graph' })");
      browser_->value("drawn.boxes.forEach((box) => showTip(box, 1, 1))");
      EXPECT_EQ(browser_->value("typeof window.hit"), "undefined") << name;
      EXPECT_EQ(
          browser_->value(
              "document.querySelectorAll('script, img, svg, iframe, link, base, meta[http-equiv=refresh]').length"),
          2)
          << name << ": more than the page's own two scripts";
    }
  }
  for (const std::string& url : browser_->requests())
    EXPECT_TRUE(url.starts_with("file:///") || url.starts_with("blob:") || url == "about:blank") << url;
}

}  // namespace
}  // namespace windlass::exporter
