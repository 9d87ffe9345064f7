// Folded stacks, speedscope, JSON lines, the terminal report and the page's data.
#include <gtest/gtest.h>

#include <fmt/format.h>
#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <tuple>

#include "base/shown.h"
#include "profiler/export/call_tree.h"
#include "profiler/export/folded.h"
#include "profiler/export/html.h"
#include "profiler/export/numbers.h"
#include "profiler/export/report.h"
#include "profiler/export/shorten_name.h"
#include "profiler/export/speedscope.h"
#include "support/hostile_text.h"
#include "support/page_data.h"
#include "support/synthetic_profile.h"
#include "support/timed_profile.h"

namespace windlass::exporter {
namespace {

using nlohmann::json;

template <typename Write>
std::string text_of(Write write) {
  std::string text;
  TextWriter out(&text);
  const auto done = write(out);
  EXPECT_TRUE(done.has_value());
  return text;
}
std::string folded(const profile::Profile& p) {
  return text_of([&](TextWriter& out) { return write_folded(p, out); });
}
std::string report(const profile::Profile& p, const ReportOptions& options) {
  return text_of([&](TextWriter& out) { return write_report(p, out, options); });
}
std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// main -> f (g inlined into it) -> kernel; a truncated one; an unnamed one; recursion.
profile::Profile small() {
  profile::Profile p;
  p.strings = {"prog", "odd;name\n"};
  p.modules = {{.path = "/bin/prog"}, {.path = "[kernel]", .is_kernel = true}, {.path = "/lib/libs.so.2"}};
  p.functions = {{.name = "main", .system_name = "main", .file = "/src/m.c", .start_line = 3},
                 {.name = "f(int)", .system_name = "_Z1fi", .file = "/src/f.cc", .start_line = 0},
                 {.name = "g<a;b>", .system_name = "_Z1g", .file = "", .start_line = 0},
                 {.name = "sys_read", .system_name = "sys_read", .file = "", .start_line = 0}};
  p.locations = {{0, 0x10, {{0, 4}}}, {0, 0x20, {{2, 0}, {1, 8}}}, {1, 0xffffffff81000000, {{3, 0}}},
                 {2, 0x1234, {}},     {profile::kNone, 0x99, {}},  {0, 0x14, {{0, 5}}}};
  p.samples = {{{2, 1, 0}, 5, 1, 1, 0, WL_END_COMPLETE}, {{1, 0}, 2, 1, 2, 0, WL_END_COMPLETE},
               {{3, 1}, 3, 1, 1, 0, WL_END_NO_ROW},      {{4}, 1, 2, 2, 1, WL_END_COMPLETE},
               {{2, 1, 5}, 4, 1, 1, 0, WL_END_COMPLETE}, {{0, 0, 0}, 6, 1, 1, 0, WL_END_COMPLETE},
               {{2}, 7, 9, 9, 0, WL_END_KERNEL_ONLY},    {{}, 8, 1, 1, 0, WL_END_NO_PROCESS}};
  p.events.front().period = 1000;
  return p;
}

TEST(Folded, IsExactlyThis) {
  EXPECT_EQ(folded(small()),
            "prog;main;f(int);g<a:b> 2\n"
            "prog;main;f(int);g<a:b>;sys_read 9\n"  // two lines of main: one function
            "prog;main;main;main 6\n"
            "prog;[truncated: process not yet known] 8\n"
            "prog;sys_read 7\n"
            "prog;[truncated: no row];f(int);g<a:b>;libs.so.2+0x1234 3\n"
            "odd:name\\x0a;0x99 1\n");
}

TEST(Folded, GeneratedCodeWithoutNames) {
  profile::Profile p = small();
  p.modules.push_back({.path = "[anon]", .pid = 1});
  p.locations.push_back({3, 0x7f00'0000'1234, {}});
  p.locations.push_back({3, 0x7f00'0000'5678, {}});
  p.samples = {{{6, 0}, 2, 1, 1, 0, WL_END_COMPLETE}, {{7, 0}, 3, 1, 1, 0, WL_END_COMPLETE}};
  EXPECT_EQ(folded(p), "prog;main;[jit] 5\n");
}

TEST(Folded, NoSampleIsLost) {
  const auto p = testing::synthetic_profile({.samples = 5000, .stacks = 4000, .depth = 60, .truncated = 0.2});
  std::uint64_t sum = 0, truncated = 0;
  for (const auto& line : lines_of(folded(p))) {
    const std::uint64_t count = std::stoull(line.substr(line.rfind(' ')));
    sum += count;
    if (line.find(";[truncated: ") != std::string::npos) truncated += count;
  }
  EXPECT_EQ(sum, totals_of(p).samples);
  EXPECT_EQ(truncated, totals_of(p).truncated);
}

TEST(CallTree, CountsRecursionOnce) {
  const auto p = small();
  Frames frames(p);
  const CallTree tree(p, frames);
  std::map<std::string, FunctionCount> counts;
  for (std::uint32_t id = 0; id < frames.size(); ++id) counts[frames[id].name] = tree.functions()[id];
  EXPECT_EQ(counts["main"].self, 6u);
  EXPECT_EQ(counts["main"].total, 5u + 2 + 4 + 6);
  EXPECT_EQ(counts["g<a;b>"].self, 2u);
  EXPECT_EQ(counts["f(int)"].total, 5u + 2 + 3 + 4);
  EXPECT_EQ(tree.nodes()[0].total, totals_of(p).samples);
  EXPECT_EQ(CallTree(p, frames, 2).nodes()[0].total, 1u) << "a process's has its samples alone";
}

TEST(Speedscope, IsWhatTheSchemaAsks) {
  const auto p = testing::synthetic_profile();
  const auto file = json::parse(text_of([&](TextWriter& out) { return write_speedscope(p, out); }));
  EXPECT_EQ(file["$schema"], "https://www.speedscope.app/file-format-schema.json");
  EXPECT_TRUE(file["exporter"].get<std::string>().starts_with("windlass ")) << "the exporter and its version";
  const auto& frames = file["shared"]["frames"];
  for (const auto& frame : frames) ASSERT_TRUE(frame["name"].is_string());
  std::map<std::string, std::uint64_t> sums;
  for (const auto& profile : file["profiles"]) {
    EXPECT_EQ(profile["type"], "sampled");
    EXPECT_EQ(profile["unit"], "nanoseconds");
    EXPECT_EQ(profile["startValue"], 0);
    ASSERT_EQ(profile["samples"].size(), profile["weights"].size());
    std::uint64_t sum = 0;
    for (const auto& weight : profile["weights"]) sum += weight.get<std::uint64_t>();
    EXPECT_EQ(profile["endValue"], sum);
    sums[profile["name"]] = sum;
    for (const auto& stack : profile["samples"])
      for (const auto& frame : stack) ASSERT_LT(frame.get<std::size_t>(), frames.size());
  }
  const std::uint64_t all = sums["all processes"];
  EXPECT_EQ(all, totals_of(p).samples * p.events.front().period);
  std::uint64_t processes = 0;
  for (const auto& [name, sum] : sums) processes += sum;
  EXPECT_EQ(processes, 2 * all);
  EXPECT_EQ(file["profiles"].size(), 5u);  // three processes, the kernel thread, everything
}

TEST(Json, EveryLineIsAnObjectAndTheSumsAgree) {
  const auto p = testing::synthetic_profile();
  std::uint64_t self = 0, samples = 0, truncated = 0, locations = 0;
  std::set<std::string> certainties;
  std::set<std::uint64_t> functions;
  for (const auto& line : lines_of(text_of([&](TextWriter& out) { return write_json(p, out); }))) {
    const auto object = json::parse(line);
    if (object["type"] == "function") {
      self += object["self"].get<std::uint64_t>();
      EXPECT_LE(object["self"], object["total"]);
      functions.insert(object["id"].get<std::uint64_t>());
    }
    if (object["type"] == "location") {
      ++locations;
      ASSERT_FALSE(object["lines"].empty());
      for (const auto& at : object["lines"]) EXPECT_TRUE(functions.contains(at["function"].get<std::uint64_t>()));
    }
    if (object["type"] != "sample") continue;
    samples += object["count"].get<std::uint64_t>();
    if (!object["truncated"].is_null()) truncated += object["count"].get<std::uint64_t>();
    certainties.insert(object["certainty"]);
  }
  EXPECT_EQ(truncated, totals_of(p).truncated);
  EXPECT_EQ(certainties.size(), std::size_t{WL_CERTAINTY_COUNT});
  EXPECT_EQ(samples, totals_of(p).samples);
  EXPECT_EQ(self, totals_of(p).samples);  // every synthetic stack has at least one frame
  EXPECT_EQ(locations, p.locations.size());
}

TEST(Json, BytesThatAreNotUtf8AreReplaced) {
  auto p = small();
  p.functions[0].name = "bad\xff\xc0\x80\"\\\x01</script>";
  std::size_t found = 0;
  for (const auto& line : lines_of(text_of([&](TextWriter& out) { return write_json(p, out); }))) {
    ASSERT_TRUE(json::accept(line)) << line;
    EXPECT_EQ(line.find('<'), line.find("<a;b>")) << "a page's data may not end its script";
    const auto object = json::parse(line);
    found += object["type"] == "function" && object["name"] == "bad\ufffd\ufffd\ufffd\"\\\x01</script>" ? 1 : 0;
  }
  EXPECT_EQ(found, 1u);
}

TEST(Report, FitsTheWidth) {
  auto p = testing::synthetic_profile({.samples = 3000, .stacks = 2000, .depth = 80});
  for (auto& function : p.functions) function.name += std::string(300, 'x');
  for (const unsigned width : {60u, 100u, 200u})
    for (const auto& line : lines_of(report(p, {.width = width}))) {
      const bool is_sentence = line.starts_with("   …") || line.find("subtrees below") != std::string::npos ||
                               line.find("stacks whole") != std::string::npos;
      EXPECT_TRUE(is_sentence || columns_of(line) <= width) << line;
    }
}

// A terminal of 50 columns shows names, and not only their ends.
TEST(Report, LeavesOutOtherColumnsBeforeNames) {
  auto p = testing::synthetic_profile();
  const std::string name = "Parser<int>::find_next_token";
  for (auto& function : p.functions) function.name = name;
  for (const unsigned width : {50u, 70u}) {
    const auto lines = lines_of(report(p, {.width = width}));
    const auto head = std::ranges::find_if(lines, [](const auto& line) { return line.starts_with("   SELF"); });
    ASSERT_LT(std::next(head), lines.end());
    EXPECT_EQ(head->ends_with("MODULE"), width == 70) << *head;
    if (width == 50) {
      EXPECT_TRUE(std::next(head)->ends_with("  " + name)) << *std::next(head);
    }
  }
}

TEST(Report, SaysWhatWasTruncatedAndUsesColourOnlyIfAsked) {
  const auto p = testing::synthetic_profile({.truncated = 0.1});
  const auto plain = report(p, {.width = 100});
  EXPECT_EQ(plain.find('\x1b'), std::string::npos);
  EXPECT_NE(plain.find("truncated no row"), std::string::npos);
  EXPECT_NE(plain.find("7 lost"), std::string::npos);
  EXPECT_NE(report(p, {.width = 100, .colour = true}).find("\x1b["), std::string::npos);
}

TEST(Report, NeverClaimsWholenessByRounding) {
  auto p = testing::synthetic_profile({.truncated = 0});
  for (auto& sample : p.samples) sample.count = 100;
  EXPECT_NE(report(p, {}).find("100.00% of the stacks whole"), std::string::npos);
  p.samples[9].end = WL_END_NO_ROW;
  p.samples[9].count = 1;
  EXPECT_NE(report(p, {}).find("99.99% of the stacks whole"), std::string::npos);
  // As the summary of `record` says.
  EXPECT_EQ(fmt::format("{:.2f}", exporter::percent(38, 117)), "32.48");
  EXPECT_EQ(exporter::percent(99'999, 100'000), 99.99);
  EXPECT_EQ(exporter::percent(7, 7), 100);
}

TEST(Report, NamesCannotDriveTheTerminal) {
  auto p = small();
  p.functions[0].name =
      "evil\x1b]0;title\x07\r\n\xc2\x9b"
      "31m";
  p.strings[0] = "\x1b[2J";
  p.comments = {"\x1b[31mred"};
  const auto text = report(p, {});
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_EQ(text.find("\xc2\x9b"), std::string::npos);
}

// Whatever a profile calls things: threads, functions, files, and what it says of itself.
profile::Profile hostile_profile() {
  auto p = small();
  const auto& names = test::hostile_names();
  p.modules.clear();
  p.functions.clear();
  p.locations.clear();
  p.samples.clear();
  p.strings = names;
  p.comments = names;
  for (std::uint32_t i = 0; i < names.size(); ++i) {
    p.modules.push_back({.path = "/" + names[i]});
    p.functions.push_back({.name = names[i], .system_name = names[i], .file = names[i], .start_line = 3});
    p.locations.push_back({i, 0x10, {{i, 4}}});
    p.locations.push_back({i, 0x20, {}});
    p.samples.push_back({{2 * i, 2 * i + 1}, 5, i + 1, i + 1, i, WL_END_COMPLETE});
  }
  return p;
}

TEST(AnyOutput, HasNoHostileCharacter) {
  const auto p = hostile_profile();
  const auto stacks = folded(p);
  EXPECT_EQ(test::forbidden_in(stacks), "");
  EXPECT_EQ(lines_of(stacks).size(), p.samples.size()) << stacks;
  for (const auto& line : lines_of(stacks)) EXPECT_EQ(std::ranges::count(line, ';'), 2) << line;
  EXPECT_EQ(test::forbidden_in(report(p, {.width = 200})), "");
  EXPECT_EQ(test::forbidden_in(text_of([&](TextWriter& out) { return write_json(p, out); })), "");
  const auto speedscope = text_of([&](TextWriter& out) { return write_speedscope(p, out); });
  EXPECT_EQ(test::forbidden_in(speedscope), "");
  EXPECT_TRUE(json::accept(speedscope));
}

TEST(Report, EmptyProfile) { EXPECT_NE(report({}, {}).find("no samples"), std::string::npos); }

TEST(ShortenName, KeepsWhatTellsFunctionsApart) {
  EXPECT_EQ(shorten_name("short", 10), "short");
  EXPECT_EQ(shorten_name("a::f(int, std::vector<int> const&) const", 10), "a::f");
  EXPECT_EQ(shorten_name("a::S::operator()(int) const [clone .cold]", 20), "a::S::operator()");
  EXPECT_EQ(shorten_name("(anonymous namespace)::f(long long, long long)", 30), "(anonymous namespace)::f");
  EXPECT_EQ(shorten_name("std::map<int, std::vector<std::pair<int, int>>>::find(int const&)", 20), "std::map<…>::find");
  EXPECT_EQ(columns_of(shorten_name(std::string(100, 'q'), 20)), 20u);
  EXPECT_EQ(shorten_name("abcdefghijklmnop", 3), "abc");
  EXPECT_EQ(shorten_name("main.(*Server).ServeHTTPRequests", 40), "main.(*Server).ServeHTTPRequests");
  const std::pair<std::string_view, std::string_view> names[] = {
      {"a::f(parse::T, int) const", "a::f"},
      {"main.(*T).run", "main.(*T).run"},
      {"f(int)::{lambda(int)#1}::operator()", "f(int)::{lambda(int)#1}::operator()"},
      {"operator()(int) &&", "operator()"},
      {"f(int)[abi:cxx11]", "f"},
      {"plain", "plain"},
      {"(anonymous namespace)::f", "(anonymous namespace)::f"},
      {"f(void (*)(int))", "f"},
      {"f)", "f)"}};
  for (const auto& [name, short_name] : names)
    EXPECT_EQ(name.substr(0, length_without_parameters(name)), short_name) << name;
  EXPECT_EQ(columns_of(shorten_name("operator<<<char, int>(std::ostream&, char)", 12)), 12u);
}

std::string page_of(const profile::Profile& p) {
  return text_of([&](TextWriter& out) { return write_html(p, out); });
}

TEST(Html, LoadsNothing) {
  auto page = page_of(small());
  // The name of a namespace, which nobody loads.
  const std::string svg = "\"http://www.w3.org/2000/svg\"";
  ASSERT_NE(page.find(svg), std::string::npos);
  page.erase(page.find(svg), svg.size());
  for (const char* mark :
       {"@PROFILE@", "@CALCULATOR@", "@SCRIPTS@", "@CONNECT@", "connect-src", "src=", "<link", "http:", "https:"})
    EXPECT_EQ(page.find(mark), std::string::npos) << mark;
  EXPECT_NE(page.find("default-src 'none'"), std::string::npos);
}

TEST(Html, NoNameTurnsAPageAround) {
  const auto data = test::page_data(page_of(hostile_profile()));
  std::size_t texts = 0;
  const auto look = [&](const auto& self, const json& at) -> void {
    if (at.is_string()) {
      ++texts;
      EXPECT_EQ(test::forbidden_in(at.get<std::string>()), "");
      EXPECT_EQ(at.get<std::string>().find('\n'), std::string::npos);
    }
    for (const auto& part : at)
      if (at.is_structured()) self(self, part);
  };
  look(look, data.names);
  EXPECT_GT(texts, 5 * test::hostile_names().size());
}

// The table has every stack with its count: the folded stacks can be made of it.
TEST(Html, HasAllStacks) {
  for (const auto& p : {small(), testing::synthetic_profile({.samples = 4000, .stacks = 3000, .depth = 40})}) {
    const auto data = test::page_data(page_of(p));
    std::map<std::string, std::uint64_t> expected, found;
    Frames frames(p);
    std::vector<std::uint32_t> path;
    for (const profile::Sample& sample : p.samples) {
      frames.path_of(sample, path);
      std::string text;
      for (const std::uint32_t frame : path) text += (text.empty() ? "" : ";") + shown(frames[frame].name);
      expected[text] += sample.count;
    }
    for (const auto& sample : data.samples) found[data.path(sample.node)] += sample.numbers.at("count");
    EXPECT_EQ(found, expected);
    EXPECT_EQ(data.names["lost"], p.lost);
  }
}

TEST(Html, ThreadsHaveTheirProcessIdAndName) {
  const auto p = testing::timed_profile();
  std::set<std::string> expected;
  for (const profile::Sample& sample : p.samples)
    if (sample.times != 0) expected.insert(nlohmann::json({sample.tid, p.strings[sample.comm]}).dump());
  const auto data = test::page_data(page_of(p));
  std::set<std::string> found;
  for (const auto& thread : data.names["threads"]) {
    ASSERT_EQ(thread.size(), 3u) << thread;
    const std::string process = data.names["processes"].at(thread[0].get<std::size_t>());
    const auto of_process = [&](const profile::Sample& sample) {
      return sample.tid == thread[1] && process.find(fmt::format("pid {})", sample.pid)) != std::string::npos;
    };
    EXPECT_TRUE(std::ranges::any_of(p.samples, of_process)) << thread << " of " << process;
    found.insert(nlohmann::json({thread[1], thread[2]}).dump());
  }
  EXPECT_EQ(found, expected);
  ASSERT_EQ(data.times.size(), p.times.size());
  std::multiset<std::tuple<std::uint32_t, std::uint64_t, std::uint64_t>> given, read;  // thread, begin, lasted
  for (const profile::Sample& sample : p.samples)
    for (const profile::SampleTime& time : times_of(p, sample)) given.insert({sample.tid, time.begin, time.lasted});
  for (const test::PageTime& time : data.times) {
    read.insert({data.names["threads"].at(time.thread)[1].get<std::uint32_t>(), time.begin, time.lasted});
    EXPECT_LT(time.sample, data.samples.size());
  }
  EXPECT_EQ(read, given);
}

TEST(Html, SamplesKnowProcessLineModuleAndEnd) {
  const auto p = testing::synthetic_profile({.samples = 500, .truncated = 0.2});
  const auto data = test::page_data(page_of(p));
  std::map<std::string, std::uint64_t> expected, found;
  for (const auto& sample : p.samples) {
    const auto& innermost = p.locations[sample.locations.front()];
    expected["pid " + std::to_string(sample.pid)] += sample.count;
    expected[p.modules[innermost.module].path] += sample.count;
    expected["line " + std::to_string(innermost.lines.empty() ? 0 : innermost.lines.front().line)] += sample.count;
    expected[profile::end_text(sample.end)] += sample.count;
    expected[profile::certainty_text(sample.certainty)] += sample.count;
  }
  for (const auto& sample : data.samples) {
    const auto number = [&](const char* column) { return sample.numbers.at(column); };
    const std::string process = data.names["processes"][number("process")];
    found[process.substr(process.find("pid "), process.size() - process.find("pid ") - 1)] += number("count");
    found[data.names["modules"][number("module") - 1]["path"]] += number("count");
    found["line " + std::to_string(number("line"))] += number("count");
    found[data.names["ends"][number("end")][0]] += number("count");
    found[data.names["certainties"][number("certainty")]] += number("count");
  }
  EXPECT_EQ(found, expected);
}

// Nothing is lost in a profile as large as they come.
TEST(Outputs, AMillionSamplesAddUp) {
  const auto p = testing::synthetic_profile({.samples = 1'000'000, .functions = 20'000, .stacks = 50'000, .depth = 60});
  std::istringstream lines(folded(p));
  std::uint64_t sum = 0;
  for (std::string line; std::getline(lines, line);) sum += std::stoull(line.substr(line.rfind(' ') + 1));
  std::uint64_t expected = 0;
  for (const profile::Sample& sample : p.samples) expected += sample.count;
  EXPECT_EQ(sum, expected);
}

}  // namespace
}  // namespace windlass::exporter
