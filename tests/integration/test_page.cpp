// The flame graph page in a real browser: headless Chromium lays it out, runs its scripts, and prints the document.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

#include <fmt/format.h>

#include "export/call_tree.h"
#include "export/html.h"
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

  // The document after the scripts ran, without the scripts themselves.
  std::string shown(const profile::Profile& profile, const std::string& hash = "") {
    std::string page;
    TextWriter out(&page);
    EXPECT_TRUE(write_html(profile, out).has_value());
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

TEST_F(Page, CallersView) {
  const auto profile = testing::synthetic_profile();
  const auto page = shown(profile, "#view=callers");
  EXPECT_NE(page.find("aria-pressed=\"true\""), std::string::npos);
  EXPECT_EQ(count_of(page, "name=\"all\""), 1u);
  EXPECT_GT(count_of(page, "class=\"frame\""), 200u);
}

TEST_F(Page, LargeAndEmptyProfiles) {
  const auto large = testing::synthetic_profile({.samples = 60'000, .functions = 5000, .stacks = 40'000, .depth = 60});
  Frames frames(large);
  EXPECT_GT(CallTree(large, frames).nodes().size(), 100'000u);
  const auto page = shown(large);
  EXPECT_GT(count_of(page, "class=\"frame\""), 500u);
  EXPECT_NE(page.find("are too narrow to draw and left out"), std::string::npos);
  EXPECT_NE(shown({}).find("No samples were recorded."), std::string::npos);
}

}  // namespace
}  // namespace windlass::exporter
