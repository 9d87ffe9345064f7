// The text formats of other tools.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "profiler/import/import.h"
#include "profiler/import/json_text.h"
#include "windlass_ends.h"

namespace windlass::importer {
namespace {

// "comm;root;...;leaf" of a sample.
std::string path_of(const profile::Profile& profile, const profile::Sample& sample) {
  std::string path = sample.comm == profile::kNone ? "?" : profile.strings[sample.comm];
  const std::vector<std::uint32_t> stack = sample.locations;
  for (auto location = stack.rbegin(); location != stack.rend(); ++location) {
    const auto& lines = profile.locations[*location].lines;
    for (auto line = lines.rbegin(); line != lines.rend(); ++line) path += ";" + profile.functions[line->function].name;
    if (lines.empty()) path += ";?";
  }
  return path;
}
std::vector<std::string> paths_of(const profile::Profile& profile) {
  std::vector<std::string> paths;
  for (const auto& sample : profile.samples)
    paths.push_back(path_of(profile, sample) + " " + std::to_string(sample.count) + " " + std::to_string(sample.value));
  return paths;
}
using Paths = std::vector<std::string>;

TEST(Folded, LinesBecomeSamplesAndEqualOnesAreOne) {
  const auto read = read_folded("# made by hand\napp;main;f 3\napp;main;g(int, long) 4\r\n\napp;main;f 5\n");
  ASSERT_TRUE(read) << read.error().text();
  EXPECT_EQ(paths_of(*read), (Paths{"app;main;f 8 8", "app;main;g(int, long) 4 4"}));
  EXPECT_EQ(read->events[0].unit, "count");
  EXPECT_EQ(read->functions.size(), 3u);
}

TEST(Folded, AUnitIsTheEvents) {
  const auto read = read_folded("app;f 30 [milliseconds]\n");
  ASSERT_TRUE(read) << read.error().text();
  EXPECT_EQ(read->events[0].unit, "milliseconds");
  EXPECT_EQ(paths_of(*read), (Paths{"app;f 1 30"}));
  const auto mixed = read_folded("app;f 30 [ms]\napp;f 30\n");
  ASSERT_FALSE(mixed);
  EXPECT_EQ(mixed.error().where, 14u);
}

TEST(Folded, TruncatedStacksOfWindlassAreTruncatedAgain) {
  const auto read = read_folded("app;[truncated: no row];f 2\napp;[truncated: other];f 2\n");
  ASSERT_TRUE(read);
  EXPECT_EQ(read->samples[0].end, WL_END_NO_ROW);
  EXPECT_EQ(paths_of(*read), (Paths{"app;f 2 2", "app;[truncated: other];f 2 2"}));
}

TEST(Folded, ALineWithoutANumberNamesItsPlace) {
  const auto read = read_folded("app;f 1\napp;g x\n");
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().where, 8u);
  EXPECT_FALSE(read_folded(""));
  EXPECT_FALSE(read_folded("a;b 99999999999999999999999\n"));
}

TEST(Folded, SumsOver64BitsAndTooManyItemsAreErrors) {
  const auto sum = read_folded("a;b 18446744073709551615\na;b 1\n");
  ASSERT_FALSE(sum);
  EXPECT_EQ(sum.error().code, ErrorCode::kLimit);
  const auto many = read_folded("a;b;c;d 1\n", {.max_items = 3});
  ASSERT_FALSE(many);
  EXPECT_EQ(many.error().code, ErrorCode::kLimit);
}

constexpr const char* kScript =
    "# captured on: somewhere\n"
    "my app  1081/1082 [000] 38095.476317:    1001001 cpu-clock:u: \n"
    "\t            1d29 spin+0x39 (/usr/bin/my app)\n"
    "\t            1686 inner (inlined)\n"
    "  app.c:12\n"
    "\t            1686 main+0x4d6 (/usr/bin/my app)\n"
    "\tffffffff81000c82 [unknown] ([kernel.kallsyms])\n"
    "\n"
    "my app  1081/1082 [000] 38095.477317:          3 page-faults: \n"
    "\t            1d29 operator new(unsigned long)+0x39 (/lib/x.so (deleted))\n"
    "\n";

TEST(PerfScript, FramesAreInnermostFirstAndInlinedOnesShareALocation) {
  const auto read = read_perf_script(kScript);
  ASSERT_TRUE(read) << read.error().text();
  EXPECT_EQ(paths_of(*read), (Paths{"my app;?;main;inner;spin 1 1001001", "my app;operator new(unsigned long) 3 3"}));
  EXPECT_EQ(read->events[0].name, "cpu-clock:u");
  EXPECT_EQ(read->events[0].unit, "nanoseconds");
  EXPECT_EQ(read->events[1].unit, "count");
  EXPECT_EQ(read->samples[0].pid, 1081u);
  EXPECT_EQ(read->samples[0].tid, 1082u);
  const auto& inlined = read->locations[read->samples[0].locations[1]];
  ASSERT_EQ(inlined.lines.size(), 2u);
  EXPECT_EQ(inlined.lines[0].line, 12u);
  EXPECT_EQ(read->functions[inlined.lines[0].function].file, "app.c");
  EXPECT_EQ(read->modules[inlined.module].path, "/usr/bin/my app");
  EXPECT_TRUE(read->modules[read->locations[read->samples[0].locations[2]].module].is_kernel);
  EXPECT_EQ(read->modules[read->locations[read->samples[1].locations[0]].module].path, "/lib/x.so (deleted)");
}

TEST(PerfScript, TimesAreKeptIfEachStandsForAsMuch) {
  const auto equal =
      read_perf_script("app 1 2.5: 7 cpu-clock: \n\t12 f (x)\n\napp 1 2.500000003: 7 cpu-clock: \n\t12 f (x)\n");
  ASSERT_TRUE(equal) << equal.error().text();
  EXPECT_EQ(equal->times, (std::vector<profile::SampleTime>{{0, 0}, {3, 0}}));
  EXPECT_EQ(equal->samples[0].times, 2u);
  EXPECT_EQ(equal->events[0].period, 7u);
  EXPECT_FALSE(equal->ends_known);
  const auto others =
      read_perf_script("app 1 2.5: 7 cpu-clock: \n\t12 f (x)\n\napp 1 2.6: 8 cpu-clock: \n\t12 f (x)\n");
  ASSERT_TRUE(others) << others.error().text();
  EXPECT_TRUE(others->times.empty());
  EXPECT_EQ(others->events[0].per_time, 0u);
}

TEST(PerfScript, AFrameMayStandBehindTheEvent) {
  const auto read = read_perf_script(
      "            spin 22604 71889.181786:    5025125 cpu-clock:      558d0fd8e141 leaf+0x18 (/tmp/spin)\n"
      "            dead 22604 71889.186860:    5025125 cpu-clock:      558d0fd8e141 leaf+0x18 (/tmp/spin)\n"
      "            spin 22604 71889.191886:          1 page-faults:      7ffe1234 558d0fd8e14a f(int)+0x21 "
      "(/tmp/spin)\n"
      "            spin 22604 71889.191887:          1 page-faults:      558d0fd8e14a add (/tmp/spin)\n"
      "            spin 22604 71889.191888:          1 sched:sched_switch: prev_comm=spin prio=120 (x)\n");
  ASSERT_TRUE(read) << read.error().text();
  EXPECT_EQ(paths_of(*read),
            (Paths{"spin;leaf 1 5025125", "dead;leaf 1 5025125", "spin;f(int) 1 1", "spin;add 1 1", "spin 1 1"}));
  EXPECT_EQ(read->modules[read->locations[0].module].path, "/tmp/spin");
}

TEST(PerfScript, LettersBeforeTheTimeAreSkipped) {
  for (const char* head : {"spin 22613 U     71890.5: ", "spin 22613/22613 [003] KS 71890.5: "}) {
    const auto read = read_perf_script(head + std::string("5025125 cpu-clock: \n\t 114a leaf+0x21 (/tmp/spin)\n\n"));
    ASSERT_TRUE(read) << read.error().text();
    EXPECT_EQ(paths_of(*read), (Paths{"spin;leaf 1 5025125"}));
  }
}

TEST(PerfScript, LinesAboutRecordsAreNoSamples) {
  const auto read = read_perf_script(
      "swapper     0     0.000000: PERF_RECORD_MMAP -1/0: [0xffffffff81000000(0x120bb08) @ 0]: x "
      "[kernel.kallsyms]_text\n"
      "spin 1 71890.497383: PERF_RECORD_NAMESPACES 1/1 - nr_namespaces: 7\n\t\t[0/net: 4/0xf0000098, 1/uts: "
      "4/0xeffffffe]\n"
      "spin 1 71890.502431: 7 cpu-clock: \n\t 114a leaf (/tmp/spin)\n\n"
      "spin 1 71890.720941: PERF_RECORD_EXIT(22613:22613):(22611:22611)\n"
      "spin 1 71890.502433: 7 cpu-clock: \n\t 114a leaf (/tmp/spin)\n\n");
  ASSERT_TRUE(read) << read.error().text();
  EXPECT_EQ(paths_of(*read), (Paths{"spin;leaf 2 14"}));
  ASSERT_EQ(read->events.size(), 1u);
  EXPECT_EQ(read->duration_ns, 2000u);
}

TEST(PerfScript, TheEventOfMostSamplesComesFirst) {
  const auto read = read_perf_script(
      "a 1 1.5: 9 page-faults: \n\t1 f (x)\n\na 1 1.6: 7 cycles: \n\t1 f (x)\n\na 1 1.7: 7 cycles: \n\t1 g (x)\n\n");
  ASSERT_TRUE(read) << read.error().text();
  EXPECT_EQ(read->events[0].name, "cycles");
  EXPECT_EQ(read->samples[0].event, 1u);
  EXPECT_EQ(read->samples[1].event, 0u);
}

TEST(PerfScript, OtherLinesNameTheirPlace) {
  const auto read = read_perf_script("app 1 2.5: 7 cycles: \n\t12 f (x)\n\nnonsense\n");
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().where, 33u);
}

TEST(Json, DamagedTextsNameTheirPlace) {
  for (const char* text : {"", "{", "[1,]", "{\"a\":1,}", "{\"a\"}", "\"abc", "[1 2]", "nul", "01x", "[1]x", "{1:2}"})
    EXPECT_FALSE(JsonValue::parse(text)) << text;
  const auto error = JsonValue::parse("[1, x]");
  ASSERT_FALSE(error);
  EXPECT_EQ(error.error().where, 4u);
  EXPECT_FALSE(JsonValue::parse(std::string(100000, '[')));
}

TEST(Json, ValuesAreReadInPlace) {
  const auto root =
      JsonValue::parse(R"( { "a" : [ 1 , -2.5e1 , null ] , "b" : "x\"\u00e9\ud83d\ude00\n" , "c":{}, "a": 7 } )");
  ASSERT_TRUE(root);
  std::vector<double> numbers;
  (*root)["a"].for_each([&](const JsonValue& value) {
    numbers.push_back(value.number().value_or(-1));
    return true;
  });
  EXPECT_EQ(numbers, (std::vector<double>{1, -25, -1}));
  EXPECT_EQ((*root)["b"].string(), "x\"\u00e9\U0001F600\n");
  EXPECT_FALSE((*root)["d"]);
  EXPECT_FALSE((*root)["b"].index());
}

constexpr const char* kSpeedscope = R"({"$schema":"https://www.speedscope.app/file-format-schema.json",
 "profiles":[
  {"type":"sampled","name":"worker","unit":"milliseconds","startValue":0,"endValue":3,"samples":[[0,1],[0]],"weights":[1.5,1]},
  {"type":"evented","name":"main","unit":"milliseconds","startValue":0,"endValue":9,"events":[
   {"type":"O","frame":0,"at":0},{"type":"O","frame":1,"at":2},{"type":"C","frame":1,"at":5},{"type":"C","frame":0,"at":9}]}],
 "shared":{"frames":[{"name":"a","file":"a.c","line":3},{"name":"b"}]}})";

TEST(Speedscope, SampledAndEventedProfilesAreThreads) {
  const auto read = read_speedscope(kSpeedscope);
  ASSERT_TRUE(read) << read.error().text();
  EXPECT_EQ(paths_of(*read),
            (Paths{"worker;a;b 1 1500000", "worker;a 1 1000000", "main;a 2 6000000", "main;a;b 1 3000000"}));
  EXPECT_EQ(read->functions[0].file, "a.c");
}

TEST(Speedscope, FramesThatAreNotThereNameTheirPlace) {
  std::string text = kSpeedscope;
  text.replace(text.find("[[0,1]"), 6, "[[0,9]");
  const auto read = read_speedscope(text);
  ASSERT_FALSE(read);
  EXPECT_EQ(text[read.error().where], '9');
  text = kSpeedscope;
  text.replace(text.find("{\"type\":\"C\",\"frame\":1"), 21, "{\"type\":\"C\",\"frame\":0");
  EXPECT_FALSE(read_speedscope(text));
}

constexpr const char* kFirefox = R"({"meta":{"interval":2,"preprocessedProfileVersion":47,"product":"app"},
 "libs":[{"name":"app","path":"/bin/app","codeId":"ABCD"}],
 "threads":[{"name":"worker","pid":"12","tid":13,
  "samples":{"length":3,"stack":[1,1,null],"time":[0,2,4],"weight":null,"weightType":"samples"},
  "stackTable":{"length":3,"frame":[0,2,1],"prefix":[null,2,0]},
  "frameTable":{"length":3,"address":[16,32,32],"inlineDepth":[0,0,1],"func":[0,1,2],"line":[null,5,6]},
  "funcTable":{"length":3,"name":[0,1,2],"resource":[0,0,0],"fileName":[null,3,null],"lineNumber":[null,4,null]},
  "resourceTable":{"length":1,"lib":[0]},
  "stringArray":["main","f","inlined","f.c"]}]})";

TEST(Firefox, TablesOfAThreadBecomeStacks) {
  std::string text = kFirefox;
  text.replace(text.find("\"stack\":[1,1,null]"), 18, "\"stack\":[2,2,null]");
  text.replace(text.find("\"frame\":[0,2,1]"), 15, "\"frame\":[0,1,2]");
  text.replace(text.find("\"prefix\":[null,2,0]"), 19, "\"prefix\":[null,0,1]");
  const auto read = read_firefox(text);
  ASSERT_TRUE(read) << read.error().text();
  EXPECT_EQ(paths_of(*read), (Paths{"worker;main;f;inlined 2 2"}));
  EXPECT_EQ(weight_of(*read, read->samples[0], {0, false}), 4000000u);  // two of 2 ms
  EXPECT_EQ(read->times, (std::vector<profile::SampleTime>{{0, 0}, {2'000'000, 0}}));
  EXPECT_EQ(read->events[0].per_time, 1u);
  EXPECT_EQ(read->duration_ns, 2'000'000u);
  EXPECT_FALSE(read->ends_known);
  EXPECT_EQ(read->samples[0].pid, 12u);
  EXPECT_EQ(read->samples[0].tid, 13u);
  const auto& location = read->locations[read->samples[0].locations[0]];
  EXPECT_EQ(location.address, 32u);
  EXPECT_EQ(location.lines.size(), 2u);
  EXPECT_EQ(read->modules[location.module].build_id, "abcd");
}

TEST(Firefox, TablesMayBeShared) {
  const auto read = read_firefox(
      R"({"meta":{"preprocessedProfileVersion":60},"shared":{"stringArray":["f","f.c"],"stackTable":{"frame":[0],"prefix":[null]},
      "frameTable":{"func":[0]},"funcTable":{"name":[0],"source":[0]},"sources":{"filename":[1]}},
      "threads":[{"name":"a","samples":{"stack":[0]}},{"name":"b","samples":{"stack":[0],"weight":[3]}}]})");
  ASSERT_TRUE(read) << read.error().text();
  EXPECT_EQ(paths_of(*read), (Paths{"a;f 1 1", "b;f 3 3"}));
  EXPECT_EQ(read->functions[0].file, "f.c");
}

std::string list_of(int from, int to, const std::string& before = "") {
  std::string list = "[" + before;
  for (int i = from; i < to; ++i) list += (list.size() > 1 ? "," : "") + std::to_string(i);
  return list + "]";
}
std::string repeated(const std::string& text, int times) {
  std::string list = "[" + text;
  for (int i = 1; i < times; ++i) list += "," + text;
  return list + "]";
}
// A thread with a stack of 100 frames, and 99 others that are equal to it.
std::string firefox_with(const std::string& depths, const std::string& samples, const std::string& name = "f") {
  std::string prefixes = list_of(0, 99, "null");
  for (int i = 0; i < 99; ++i) prefixes.insert(prefixes.size() - 1, ",98");
  return R"({"meta":{"preprocessedProfileVersion":60},"threads":[{"name":"a","samples":{"stack":)" + samples +
         R"(},"stackTable":{"frame":)" + repeated("0", 199) + R"(,"prefix":)" + prefixes +
         R"(},"frameTable":{"func":[0],"inlineDepth":[)" + depths + R"(]},"funcTable":{"name":[0]},"stringArray":[")" +
         name + R"("]}]})";
}
ErrorCode limit_of(const std::string& text, std::uint64_t max_items) {
  const auto read = read_firefox(text, {.max_items = max_items});
  return read ? ErrorCode{} : read.error().code;
}

// Each thread that lacks a table asks for the shared one: a look at all of "shared" would take minutes here.
TEST(Firefox, SharedTablesAreFoundOnce) {
  const auto read = read_firefox(R"({"meta":{"preprocessedProfileVersion":60},"shared":{"x":")" +
                                 std::string(std::size_t{4} << 20, 'x') + R"("},"threads":)" +
                                 repeated(R"({"samples":{"stack":[]}})", 20'000) + "}");
  ASSERT_TRUE(read) << read.error().text();
  EXPECT_TRUE(read->samples.empty());
}

TEST(Firefox, WorkThatTablesAskForIsBounded) {
  constexpr std::uint64_t kMost = 1000;
  EXPECT_TRUE(read_firefox(firefox_with("0", repeated("99", 5000)), {.max_items = kMost})) << "one stack, often";
  EXPECT_EQ(limit_of(firefox_with("0", list_of(99, 199)), kMost), ErrorCode::kLimit) << "equal stacks";
  EXPECT_EQ(limit_of(firefox_with("1", list_of(99, 199)), kMost), ErrorCode::kLimit) << "inlined frames";
  EXPECT_EQ(limit_of(firefox_with("0", "[99]", std::string(5000, 'f')), kMost), ErrorCode::kLimit) << "a long name";
  const auto shared =
      read_firefox(R"({"meta":{"preprocessedProfileVersion":60},"shared":{"stringArray":)" + repeated("\"f\"", 100) +
                       R"(},"threads":)" + repeated(R"({"stackTable":{},"samples":{"stack":[]}})", 100) + "}",
                   {.max_items = kMost});
  ASSERT_FALSE(shared) << "shared tables read by each thread";
  EXPECT_EQ(shared.error().code, ErrorCode::kLimit);
}

TEST(Speedscope, WorkThatEventsAskForIsBounded) {
  std::string events;
  for (int i = 0; i < 100; ++i) events += R"({"type":"O","frame":0,"at":0},)";
  for (int i = 1; i < 500; ++i)
    events +=
        fmt::format(R"({{"type":"O","frame":{0},"at":{1}}},{{"type":"C","frame":{0},"at":{2}}},)", i, 2 * i, 2 * i + 1);
  events.pop_back();
  const auto read = [&](const std::string& frames) {
    return read_speedscope(R"({"$schema":"https://www.speedscope.app/file-format-schema.json","shared":{"frames":)" +
                               frames + R"(},"profiles":[{"type":"evented","name":"a","unit":"none","events":[)" +
                               events + "]}]}",
                           {.max_items = 1000});
  };
  const auto one = read(repeated(R"({"name":"f"})", 500));  // frames of one name: equal stacks
  ASSERT_FALSE(one);
  EXPECT_EQ(one.error().code, ErrorCode::kLimit);
  events.clear();
  for (int i = 0; i < 100; ++i) events += R"({"type":"O","frame":0,"at":0},)";
  for (int i = 1; i < 500; ++i)
    events += fmt::format(R"({{"type":"O","frame":1,"at":{}}},{{"type":"C","frame":1,"at":{}}},)", 2 * i, 2 * i + 1);
  events.pop_back();
  const auto again = read(R"([{"name":"f"},{"name":"g"}])");
  ASSERT_TRUE(again) << again.error().text();
  ASSERT_EQ(again->samples.size(), 2u);
  EXPECT_EQ(again->samples[0].value + again->samples[1].value, 999u);
  EXPECT_EQ(again->samples[1].value, 499u);
  EXPECT_EQ(again->samples[1].locations.size(), 101u);
}

TEST(Firefox, CirclesAndRawProfilesAreErrors) {
  const auto circle = read_firefox(kFirefox);  // stack 1 is called by stack 2
  ASSERT_FALSE(circle);
  EXPECT_EQ(circle.error().code, ErrorCode::kOutOfRange);
  const auto raw = read_firefox(R"({"meta":{"version":30},"threads":[]})");
  ASSERT_FALSE(raw);
  EXPECT_EQ(raw.error().code, ErrorCode::kUnsupported);
}

// As `jfr print --json` writes it.
std::string jfr_sample(const std::string& type, const std::string& time, const std::string& more = "") {
  return fmt::format(R"({{"type":"{}","values":{{"startTime":"{}",{}"sampledThread":{{"javaName":"t","osThreadId":7}},)"
                     R"("stackTrace":{{"truncated":false,"frames":[{{"method":{{"type":{{"name":"a/B"}},"name":"f",)"
                     R"("hidden":false}},"lineNumber":3}}]}}}}}})",
                     type, time, more);
}
Expected<profile::Profile> read_jfr_events(const std::string& events) {
  return read_jfr_text(R"({"recording":{"events":[)" + events + "]}}");
}

TEST(Jfr, CountsSamplesUnlessTheySayWhatTimeTheyStandFor) {
  const auto counted = read_jfr_events(jfr_sample("jdk.ExecutionSample", "2026-11-28T01:09:32Z"));
  ASSERT_TRUE(counted) << counted.error().text();
  EXPECT_EQ(counted->events[0].name, "ExecutionSample");
  EXPECT_EQ(counted->events[0].unit, "count");
  EXPECT_EQ(paths_of(*counted), (Paths{"t;a.B.f 1 1"}));
  const auto timed =
      read_jfr_events(jfr_sample("jdk.CPUTimeSample", "2026-11-28T01:09:32Z", R"("samplingPeriod":"PT0.01S",)"));
  ASSERT_TRUE(timed) << timed.error().text();
  EXPECT_EQ(timed->events[0].name, "cpu");
  EXPECT_EQ(timed->events[0].unit, profile::Event{}.unit);
  EXPECT_EQ(timed->events[0].counted, "CPUTimeSample");
  EXPECT_EQ(paths_of(*timed), (Paths{"t;a.B.f 1 10000000"}));
}

// `date -d TEXT +%s.%N` gives the same.
TEST(Jfr, TimesMayHaveAZone) {
  const std::pair<const char*, std::uint64_t> times[] = {{"1970-01-01T00:00:00Z", 0},
                                                         {"2026-11-28T01:09:32.629850537Z", 1'795'828'172'629'850'537},
                                                         {"2026-11-28T01:09:32.5+01:00", 1'795'824'572'500'000'000},
                                                         {"2026-11-28T01:09:32-03:30", 1'795'840'772'000'000'000},
                                                         {"2026-11-28T01:09Z", 1'795'828'140'000'000'000},
                                                         {"2026-11-28T01:09:32+01", 0},  // the rest are no times
                                                         {"2026-11-28T01:09:32+", 0},
                                                         {"2026-11-28", 0},
                                                         {"1969-12-31T23:59:59Z", 0},
                                                         {"9999-01-01T00:00:00Z", 0},
                                                         {"2200-01-01T00:00:-1Z", 0},
                                                         {"2026-11-28T-1:09:32Z", 0},
                                                         {"", 0}};
  for (const auto& [text, ns] : times) {
    const auto read = read_jfr_events(jfr_sample("jdk.ExecutionSample", text));
    ASSERT_TRUE(read) << read.error().text();
    EXPECT_EQ(read->start_unix_ns, ns) << text;
  }
}

TEST(Formats, AreToldApart) {
  const auto format = [](std::string_view text) {
    return format_of(ByteView(reinterpret_cast<const std::byte*>(text.data()), text.size()));
  };
  EXPECT_EQ(format("PERFILE2"), FileFormat::kPerfData);
  EXPECT_EQ(format(kScript), FileFormat::kPerfScript);
  EXPECT_EQ(format("app;main;f 3\n"), FileFormat::kFolded);
  EXPECT_EQ(format("app;main;f 3 [ms]\n"), FileFormat::kFolded);
  EXPECT_EQ(format(kSpeedscope), FileFormat::kSpeedscope);
  EXPECT_EQ(format(kFirefox), FileFormat::kFirefox);
  EXPECT_EQ(format("some text\n"), FileFormat::kPprof);
  EXPECT_EQ(format(""), FileFormat::kPprof);
}

}  // namespace
}  // namespace windlass::importer
