// The flame graph page in a real browser: headless Chromium lays it out, runs its scripts, and prints the document.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

#include <fmt/format.h>

#include "profiler/export/call_tree.h"
#include "profiler/export/html.h"
#include "profiler/export/labels.h"
#include "support/events_profile.h"
#include "support/synthetic_profile.h"

namespace windlass::exporter {
namespace {

std::string output_of(const std::string& command) {
  std::string text;
  std::FILE* pipe = ::popen(command.c_str(), "r");
  char buffer[65536];
  for (std::size_t got; pipe != nullptr && (got = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;)
    text.append(buffer, got);
  if (pipe != nullptr) ::pclose(pipe);
  return text;
}

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++count;
  return count;
}

// Samples under the outermost frames whose name contains `part`: what a search on the page has to find.
std::uint64_t samples_matching(const profile::Profile& profile, const std::string& part) {
  Frames frames(profile);
  const CallTree tree(profile, frames);
  const auto& nodes = tree.nodes();
  std::vector<bool> inside(nodes.size());
  std::uint64_t sum = 0;
  for (std::size_t i = 1; i < nodes.size(); ++i) {  // parents come before their children
    const bool matches = frames[nodes[i].frame].name.find(part) != std::string::npos;
    inside[i] = matches || inside[nodes[i].parent];
    if (matches && !inside[nodes[i].parent]) sum += nodes[i].total;
  }
  return sum;
}

class Page : public ::testing::Test {
 protected:
  void SetUp() override {
    browser_ = output_of("command -v chromium || command -v chromium-browser || command -v google-chrome");
    while (!browser_.empty() && browser_.back() == '\n') browser_.pop_back();
    if (browser_.empty()) GTEST_SKIP() << "no chromium on this machine";
    if (!html_available()) GTEST_SKIP() << "this build could not fetch the page's scripts from npm";
    char name[] = "/tmp/windlass-page-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    directory_ = name;
  }
  void TearDown() override {
    if (!directory_.empty() && std::system(("rm -rf " + directory_).c_str()) != 0) std::perror("rm");
  }

  // The document after the scripts ran, `last` behind the page's own, without the scripts themselves.
  std::string shown(const profile::Profile& profile, const std::string& hash = "", const std::string& last = "") {
    std::string page;
    TextWriter out(&page);
    EXPECT_TRUE(write_html(profile, out).has_value());
    if (!last.empty()) page.insert(page.rfind("</body>"), "<script>" + last + "</script>");
    std::ofstream(directory_ + "/page.html") << page;
    const auto document = output_of(fmt::format(
        "timeout 90 '{}' --headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-sync "
        "--disable-background-networking --disable-component-update --user-data-dir={}/profile --window-size=1400,900 "
        "--virtual-time-budget=4000 --dump-dom 'file://{}/page.html{}' 2>/dev/null",
        browser_, directory_, directory_, hash));
    std::string visible;
    for (std::size_t at = 0; at < document.size();) {
      const auto script = document.find("<script", at);
      visible += document.substr(at, script - at);
      const auto end = script == std::string::npos ? script : document.find("</script>", script);
      if (end == std::string::npos) break;
      at = end + 9;
    }
    return visible;
  }

  std::string browser_, directory_;
};

TEST_F(Page, ShowsTheProfile) {
  const auto profile = testing::synthetic_profile({.truncated = 0.05});
  const auto totals = totals_of(profile);
  const auto page = shown(profile);
  EXPECT_EQ(count_of(page, "name=\"all\""), 1u) << "the root frame";
  for (const char* comm : {"name=\"main\"", "name=\"worker\"", "name=\"io thread\""})
    EXPECT_EQ(count_of(page, comm), 1u);
  EXPECT_GT(count_of(page, "class=\"frame\""), 300u);
  // Truncated stacks: in the header with their reasons, hatched in the graph, in the legend.
  EXPECT_NE(
      page.find(fmt::format("<dd>{:.2f}%</dd>",
                            static_cast<double>((totals.samples - totals.truncated) * 10000 / totals.samples) / 100)),
      std::string::npos);
  EXPECT_NE(page.find("Truncated (no row)"), std::string::npos);
  EXPECT_GE(count_of(page, "name=\"[truncated: no row]\""), 3u);
  EXPECT_GT(count_of(page, "fill=\"url(#truncated-"), 10u);
  EXPECT_GE(count_of(page, "<pattern"), 2u);
  EXPECT_NE(page.find("truncated stacks"), std::string::npos);
  EXPECT_NE(page.find("[kernel]"), std::string::npos);
  // A comment is text, never markup.
  EXPECT_NE(page.find("synthetic &lt;profile&gt; &amp; \"quotes\""), std::string::npos);
  EXPECT_EQ(count_of(page, "#e879f9"), 0u) << "nothing is highlighted without a search";
}

TEST_F(Page, SearchHighlightsAndCountsTheShare) {
  const auto profile = testing::synthetic_profile();
  const auto page = shown(profile, "#q=parse");
  EXPECT_GT(count_of(page, "fill=\"#e879f9\""), 5u);
  const std::uint64_t expected = samples_matching(profile, "parse");
  const double share = 100.0 * static_cast<double>(expected) / static_cast<double>(totals_of(profile).samples);
  EXPECT_NE(page.find(fmt::format("{:.2f}% of samples", share)), std::string::npos)
      << page.substr(page.find("id=\"match\""), 120);
  const auto nothing = shown(profile, "#q=surely-not-there");
  EXPECT_NE(nothing.find("no match"), std::string::npos);
  EXPECT_EQ(count_of(nothing, "fill=\"#e879f9\""), 0u);
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
  const auto page = shown(profile);
  EXPECT_GE(count_of(page, "&lt;/script&gt;&lt;!--&lt;script&gt;"), 1u);
  EXPECT_EQ(count_of(page, "name=\"all\""), 1u);
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
  const auto thread = shown(profile, "#view=functions&process=main+(pid+7)&thread=worker");
  EXPECT_NE(thread.find("<td class=\"number\">50.00%</td><td class=\"number\">50.00%</td><td>evaluate(parse::Node"),
            std::string::npos);
  EXPECT_EQ(thread.find("&lt;/script&gt;"), std::string::npos) << "a function of the other thread";
  EXPECT_EQ(count_of(shown(profile, "#process=main+(pid+8)"), "name=\"parse::run(int)\""), 1u);
}

TEST_F(Page, CallersView) {
  const auto profile = testing::synthetic_profile();
  const auto page = shown(profile, "#view=callers");
  EXPECT_NE(page.find("aria-pressed=\"true\""), std::string::npos);
  EXPECT_EQ(count_of(page, "name=\"all\""), 1u);
  EXPECT_GT(count_of(page, "class=\"frame\""), 200u);
}

TEST_F(Page, OneOfTwoEvents) {
  const auto profile = testing::events_profile();
  const auto cpu = shown(profile);
  EXPECT_NE(cpu.find("<dt>samples</dt><dd>40</dd>"), std::string::npos);
  EXPECT_NE(cpu.find("<dt>CPU time</dt>"), std::string::npos);
  EXPECT_NE(cpu.find("main (pid 8): 75.00%"), std::string::npos);
  EXPECT_EQ(count_of(cpu, "name=\"wait\""), 0u);
  EXPECT_EQ(cpu.find("Label reason"), std::string::npos);
  const auto off_cpu = shown(profile, "#event=off-cpu");
  EXPECT_NE(off_cpu.find("<dt>off-cpu</dt><dd>4.50 ms</dd>"), std::string::npos);
  EXPECT_EQ(off_cpu.find("<dt>CPU time</dt>"), std::string::npos);
  EXPECT_EQ(count_of(off_cpu, "name=\"wait\""), 2u);
  EXPECT_NE(off_cpu.find("<li>Label reason: futex 66.67%, page fault 22.22%, none 11.11%</li>"), std::string::npos);
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

TEST_F(Page, AnEventIsChosenAndTheAddressKeepsIt) {
  const std::string choose =
      "const menu = document.getElementById('event'); menu.value = 'off-cpu'; menu.dispatchEvent(new Event('change'));"
      "const at = document.createElement('p'); at.textContent = 'at ' + location.hash; document.body.append(at);";
  const auto profile = testing::events_profile();
  const auto page = shown(profile, "#q=wait", choose);
  EXPECT_NE(page.find("<p>at #q=wait&amp;event=off-cpu</p>"), std::string::npos) << page.substr(page.size() - 300);
  EXPECT_NE(page.find("<dt>off-cpu</dt><dd>4.50 ms</dd>"), std::string::npos);
  EXPECT_NE(page.find("100.00% of off-cpu (4.50 ms)"), std::string::npos);
  // A process without samples of the event cannot stay chosen. One that has some does, if there is a choice.
  EXPECT_NE(shown(profile, "#process=main+(pid+8)", choose).find("<p>at #event=off-cpu</p>"), std::string::npos);
  auto both = profile;
  both.samples.push_back(both.samples[1]);
  both.samples.back().pid = both.samples.back().tid = 8;
  const auto kept = shown(both, "#process=main+(pid+8)", choose);
  EXPECT_NE(kept.find("<p>at #event=off-cpu&amp;process=main+%28pid+8%29</p>"), std::string::npos)
      << kept.substr(kept.size() - 300);
  EXPECT_NE(kept.find("Label reason: futex 80.00%"), std::string::npos) << "of all processes";
}

TEST_F(Page, GroupsAndEventsWithoutSamples) {
  auto profile = testing::events_profile();
  group_samples(profile, "reason");
  const auto page = shown(profile, "#event=off-cpu&thread=futex");
  EXPECT_EQ(count_of(page, "name=\"futex\""), 1u);
  EXPECT_NE(page.find("All groups"), std::string::npos);
  EXPECT_NE(page.find("page fault: 22.22%"), std::string::npos);
  std::erase_if(profile.samples, [](const auto& sample) { return sample.event == 1; });
  EXPECT_NE(shown(profile, "#event=off-cpu").find("No waits were recorded."), std::string::npos);
}

TEST_F(Page, LargeAndEmptyProfiles) {
  const auto large = testing::synthetic_profile({.samples = 60'000, .functions = 5000, .stacks = 40'000, .depth = 60});
  Frames frames(large);
  EXPECT_GT(CallTree(large, frames).nodes().size(), 100'000u);
  const auto page = shown(large);
  EXPECT_GT(count_of(page, "class=\"frame\""), 500u);
  EXPECT_NE(page.find("are too narrow to draw and left out"), std::string::npos);
  // Each of its 5000 functions is narrower than a pixel.
  EXPECT_EQ(count_of(shown(large, "#view=callers"), "name=\"(narrower functions)\""), 1u);
  EXPECT_GT(count_of(shown(large, "#view=functions"), "<tr title="), 199u);
  EXPECT_NE(shown({}).find("No samples were recorded."), std::string::npos);
}

}  // namespace
}  // namespace windlass::exporter
