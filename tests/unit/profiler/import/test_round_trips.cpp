// pprof to another format and back: nothing is lost that the other format can say.
#include <gtest/gtest.h>

#include <string>

#include "profiler/export/folded.h"
#include "profiler/export/pprof.h"
#include "profiler/export/speedscope.h"
#include "profiler/import/import.h"
#include "windlass_ends.h"

namespace windlass::importer {
namespace {

// Two events, three threads of two processes, inlined calls, a truncated stack, names with ';'.
profile::Profile made_up() {
  profile::Profile profile;
  profile.strings = {"app", "worker", "other"};
  profile.modules = {{.path = "/bin/app", .build_id = "ab"}};
  profile.functions = {{.name = "main", .system_name = "main", .file = "main.c", .start_line = 3},
                       {.name = "a;b", .system_name = "a;b"},
                       {.name = "leaf(int)", .system_name = "_Z4leafi", .file = "leaf.cpp", .start_line = 9}};
  profile.locations = {{.module = 0, .address = 16, .lines = {{0, 4}}},
                       {.module = 0, .address = 32, .lines = {{2, 10}, {1, 0}}},
                       {.module = 0, .address = 48, .lines = {{1, 0}}}};
  profile.events = {{.name = "cpu", .period = 1000}, {.name = "off-cpu", .counted = "waits"}};
  profile.samples = {{.locations = {1, 0}, .count = 7, .pid = 1, .tid = 1, .comm = 0},
                     {.locations = {2, 0}, .count = 2, .pid = 1, .tid = 2, .comm = 1},
                     {.locations = {2}, .count = 5, .pid = 3, .tid = 3, .comm = 2, .end = WL_END_NO_ROW},
                     {.locations = {0}, .count = 3, .pid = 1, .tid = 1, .comm = 0, .value = 12345, .event = 1}};
  return profile;
}

profile::Profile through_pprof(const profile::Profile& profile) {
  std::string bytes;
  TextWriter out(&bytes);
  EXPECT_TRUE(exporter::write_pprof(profile, out));
  auto read = exporter::read_pprof(ByteView(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()));
  EXPECT_TRUE(read);
  return read ? *std::move(read) : profile::Profile();
}
std::string folded(const profile::Profile& profile, profile::ValueType type) {
  std::string text;
  TextWriter out(&text);
  EXPECT_TRUE(exporter::write_folded(profile, out, type));
  return text;
}
std::string speedscope(const profile::Profile& profile) {
  std::string text;
  TextWriter out(&text);
  EXPECT_TRUE(exporter::write_speedscope(profile, out));
  return text;
}

TEST(RoundTrip, FoldedStacksStayTheSame) {
  const profile::Profile first = through_pprof(made_up());
  for (std::uint32_t event = 0; event < first.events.size(); ++event) {
    const std::string text = folded(first, {event, false});
    ASSERT_FALSE(text.empty());
    const auto read = read_folded(text);
    ASSERT_TRUE(read) << read.error().text();
    EXPECT_EQ(folded(through_pprof(*read), {0, true}), text);
  }
}

TEST(RoundTrip, SpeedscopeKeepsEventsProcessesThreadsAndValues) {
  const profile::Profile first = through_pprof(made_up());
  const auto read = read_speedscope(speedscope(first));
  ASSERT_TRUE(read) << read.error().text();
  const profile::Profile second = through_pprof(*read);
  ASSERT_EQ(second.events.size(), 2u);
  for (std::uint32_t event = 0; event < 2; ++event) {
    EXPECT_EQ(second.events[event].name, first.events[event].name);
    EXPECT_EQ(second.events[event].unit, first.events[event].unit);
    EXPECT_EQ(folded(second, {event, false}), folded(first, {event, false}));
  }
  std::uint64_t of_third = 0;
  for (const auto& sample : second.samples)
    if (sample.pid == 3) {
      of_third += weight_of(second, sample, {0, false});
      EXPECT_EQ(sample.end, WL_END_NO_ROW);
      EXPECT_EQ(second.strings[sample.comm], "other");
    }
  EXPECT_EQ(of_third, 5000u);
  const auto found = [&](const std::string& name) {
    for (const auto& function : second.functions)
      if (function.name == name) return function;
    return profile::Function();
  };
  EXPECT_EQ(found("leaf(int)").file, "leaf.cpp");
  EXPECT_EQ(found("leaf(int)").start_line, 9u);
  bool has_module = false;
  for (const auto& module : second.modules) has_module |= module.path == "/bin/app";
  EXPECT_TRUE(has_module);
}

}  // namespace
}  // namespace windlass::importer
