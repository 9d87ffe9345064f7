// pprof: a written profile comes back the same; damaged or absurd input gives an error and nothing else.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <protozero/pbf_reader.hpp>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "profiler/export/gzip.h"
#include "profiler/export/pprof.h"
#include "profiler/export/pprof_fields.h"
#include "support/synthetic_profile.h"

namespace windlass::exporter {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kSlowDown = 10;  // exceptions and large blocks are slow there
#else
constexpr int kSlowDown = 1;
#endif

ByteView view_of(const std::string& text) { return {reinterpret_cast<const std::byte*>(text.data()), text.size()}; }

std::string written(const profile::Profile& profile) {
  std::string text;
  TextWriter out(&text);
  EXPECT_TRUE(write_pprof(profile, out).has_value());
  return text;
}

void expect_same(const profile::Profile& a, const profile::Profile& b) {
  ASSERT_EQ(a.modules.size(), b.modules.size());
  for (std::size_t i = 0; i < a.modules.size(); ++i) {
    EXPECT_EQ(a.modules[i].path, b.modules[i].path);
    EXPECT_EQ(a.modules[i].build_id, b.modules[i].build_id);
    EXPECT_EQ(a.modules[i].begin, b.modules[i].begin);
    EXPECT_EQ(a.modules[i].end, b.modules[i].end);
    EXPECT_EQ(a.modules[i].file_offset, b.modules[i].file_offset);
    EXPECT_EQ(a.modules[i].is_kernel, b.modules[i].is_kernel);
  }
  ASSERT_EQ(a.locations.size(), b.locations.size());
  const auto name = [](const profile::Profile& p, const profile::Line& line) {
    const auto& f = p.functions.at(line.function);
    return f.name + '|' + f.system_name + '|' + f.file + ':' + std::to_string(f.start_line) + ':' +
           std::to_string(line.line);
  };
  for (std::size_t i = 0; i < a.locations.size(); ++i) {
    EXPECT_EQ(a.locations[i].module, b.locations[i].module);
    EXPECT_EQ(a.locations[i].address, b.locations[i].address);
    ASSERT_EQ(a.locations[i].lines.size(), b.locations[i].lines.size()) << i;
    for (std::size_t n = 0; n < a.locations[i].lines.size(); ++n)
      EXPECT_EQ(name(a, a.locations[i].lines[n]), name(b, b.locations[i].lines[n]));
  }
  ASSERT_EQ(a.samples.size(), b.samples.size());
  const auto comm = [](const profile::Profile& p, std::uint32_t i) {
    return i == profile::kNone ? "(none)" : p.strings.at(i);
  };
  for (std::size_t i = 0; i < a.samples.size(); ++i) {
    const auto &x = a.samples[i], &y = b.samples[i];
    EXPECT_EQ(x.locations, y.locations);
    EXPECT_EQ(x.count, y.count);
    EXPECT_EQ(x.pid, y.pid);
    EXPECT_EQ(x.tid, y.tid);
    EXPECT_EQ(x.end, y.end) << i;
    EXPECT_EQ(x.certainty, y.certainty) << i;
    EXPECT_EQ(comm(a, x.comm), comm(b, y.comm));
  }
  EXPECT_EQ(a.events.front().period, b.events.front().period);
  EXPECT_EQ(a.start_unix_ns, b.start_unix_ns);
  EXPECT_EQ(a.duration_ns, b.duration_ns);
  EXPECT_EQ(a.lost, b.lost);
  EXPECT_EQ(a.comments, b.comments);
}

TEST(Pprof, ComesBackAsItWasWritten) {
  for (std::uint32_t seed = 1; seed <= 5; ++seed) {
    const auto profile = testing::synthetic_profile({.truncated = 0.3}, seed);
    const auto back = read_pprof(view_of(written(profile)));
    ASSERT_TRUE(back.has_value()) << back.error().text();
    expect_same(profile, *back);
  }
}

// A function stands in for the unnamed addresses of one module. In another module, the same function is a name.
TEST(Pprof, AStandInIsOfOneModule) {
  profile::Profile profile;
  profile.modules = {{.path = "/a/lib.so"}, {.path = "/b/other.so"}};
  profile.functions = {{.name = "lib.so+0x10"}, {.name = "lib.so+0x200"}};
  const std::vector<profile::Line> line = {{.function = 0, .line = 0}}, other = {{.function = 1, .line = 0}};
  profile.locations = {{1, 0x14, line}, {0, 0x14, line},   {0, 0x18, line},
                       {1, 0x14, line}, {0, 0x200, other}, {1, 0x200, other}};
  profile.samples = {{{0, 1, 2, 3, 4, 5}, 1, 1, 1}};
  const auto back = read_pprof(view_of(written(profile)));
  ASSERT_TRUE(back.has_value()) << back.error().text();
  ASSERT_EQ(back->locations.size(), profile.locations.size());
  std::vector<std::pair<std::size_t, std::uint64_t>> found;
  for (const auto& location : back->locations) found.emplace_back(location.lines.size(), location.function_begin);
  const decltype(found) expected = {{1, 0}, {0, 0x10}, {0, 0x10}, {1, 0}, {0, 0x200}, {1, 0}};
  EXPECT_EQ(found, expected);
}

TEST(Profile, NumbersOfOtherVersionsAreUnknown) {
  EXPECT_STREQ(profile::end_text(WL_END_COUNT), "unknown");
  EXPECT_STREQ(profile::certainty_text(WL_CERTAINTY_COUNT), "unknown");
  EXPECT_STRNE(profile::end_text(WL_END_COUNT - 1), "unknown");
  EXPECT_STRNE(profile::certainty_text(WL_CERTAINTY_COUNT - 1), "unknown");
}

TEST(Pprof, EveryEndOfAStackSurvives) {
  profile::Profile profile = testing::synthetic_profile({.samples = 1});
  const auto sample = profile.samples[0];
  profile.samples.clear();
  for (std::uint8_t end = 0; end < WL_END_COUNT; ++end) {
    profile.samples.push_back(sample);
    profile.samples.back().end = end;
  }
  profile.samples.back().comm = profile::kNone;
  profile.samples.back().locations.clear();
  const auto back = read_pprof(view_of(written(profile)));
  ASSERT_TRUE(back.has_value());
  expect_same(profile, *back);
}

// As other programs read it: each sample's time, that and why a stack is truncated, and a function for each address
// without a name, which is of its module.
TEST(Pprof, IsWholeForOtherReaders) {
  profile::Profile profile;
  profile.events.front().period = 1'000'000;
  profile.modules = {{.path = "/a/lib.so"}, {.path = "/b/lib.so"}};
  profile.locations = {{0, 0x1234, {}}, {1, 0x1234, {}}};
  profile.samples = {{{0, 1}, 3, 1, 1, profile::kNone, WL_END_NO_ROW}};
  const auto message = gunzip(view_of(written(profile)), 1 << 20);
  ASSERT_TRUE(message.has_value());
  const std::string text(reinterpret_cast<const char*>(message->data()), message->size());
  std::vector<std::string> strings;
  std::vector<std::int64_t> values;
  std::set<std::string> labels;
  std::set<std::uint64_t> functions;
  const auto each = [](protozero::pbf_reader reader, auto&& use) {
    while (reader.next()) use(reader);
  };
  std::vector<std::pair<std::int64_t, std::int64_t>> keys;
  each(protozero::pbf_reader(text), [&](protozero::pbf_reader& field) {
    switch (field.tag()) {
      case pprof::kStringTable: strings.push_back(field.get_string()); break;
      case pprof::kFunction:
        each(field.get_message(), [&](protozero::pbf_reader& inner) {
          if (inner.tag() == pprof::kFunctionId)
            functions.insert(inner.get_uint64());
          else
            inner.skip();
        });
        break;
      case pprof::kSample:
        each(field.get_message(), [&](protozero::pbf_reader& inner) {
          if (inner.tag() == pprof::kSampleValue) {
            for (const std::int64_t value : inner.get_packed_int64()) values.push_back(value);
          } else if (inner.tag() == pprof::kSampleLabel) {
            keys.emplace_back();
            each(inner.get_message(), [&](protozero::pbf_reader& part) {
              const bool key = part.tag() == pprof::kLabelKey;
              (key ? keys.back().first : keys.back().second) = part.get_int64();
            });
          } else {
            inner.skip();
          }
        });
        break;
      default: field.skip(); break;
    }
  });
  for (const auto& [key, value] : keys)
    if (strings.at(static_cast<std::size_t>(key)) == pprof::kTruncatedLabel)
      labels.insert(strings.at(static_cast<std::size_t>(value)));
  EXPECT_EQ(values, (std::vector<std::int64_t>{3, 3'000'000}));
  EXPECT_EQ(labels, std::set<std::string>{"no row"});
  EXPECT_EQ(functions.size(), 2u);
}

TEST(Pprof, AnEmptyProfileIsOne) {
  const auto back = read_pprof(view_of(written({})));
  ASSERT_TRUE(back.has_value());
  EXPECT_TRUE(back->samples.empty());
}

TEST(Pprof, FileIsReplacedOnlyWhenWhole) {
  char directory[] = "/tmp/windlass-pprof-XXXXXX";
  ASSERT_NE(::mkdtemp(directory), nullptr);
  const std::string path = std::string(directory) + "/p.pb.gz";
  const auto profile = testing::synthetic_profile();
  ASSERT_TRUE(write_pprof_file(profile, path).has_value());
  const auto back = read_pprof_file(path);
  ASSERT_TRUE(back.has_value());
  expect_same(profile, *back);
  const auto full = write_pprof_file(profile, "/dev/full");
  ASSERT_FALSE(full.has_value());
  EXPECT_EQ(full.error().code, ErrorCode::kSystem);
  EXPECT_EQ(full.error().detail, static_cast<std::uint64_t>(ENOSPC));
  EXPECT_FALSE(write_pprof_file(profile, std::string(directory) + "/no/such/place").has_value());
  EXPECT_EQ(std::system(("ls " + std::string(directory) + " | wc -l | grep -qx 1").c_str()), 0)
      << "a temporary file stayed";
  std::system(("rm -r " + std::string(directory)).c_str());
}

// pprof's own encodings that ours does not use: not compressed, not packed, packed comments, ids in any order.
TEST(Pprof, AFileThatIsGivenUpLeavesTheOneBefore) {
  char directory[] = "/tmp/windlass-pprof-XXXXXX";
  ASSERT_NE(::mkdtemp(directory), nullptr);
  const std::string path = std::string(directory) + "/p.pb.gz";
  const auto profile = testing::synthetic_profile();
  std::atomic<bool> given_up = false;
  ASSERT_TRUE(write_pprof_file(profile, path, &given_up).has_value());
  given_up = true;
  EXPECT_FALSE(write_pprof_file({}, path, &given_up).has_value());
  const auto back = read_pprof_file(path);
  ASSERT_TRUE(back.has_value());
  expect_same(profile, *back);
  EXPECT_EQ(std::system(("ls " + std::string(directory) + " | wc -l | grep -qx 1").c_str()), 0)
      << "a temporary file stayed";
  std::system(("rm -r " + std::string(directory)).c_str());
}

TEST(Pprof, ReadsOtherWritersForms) {
  std::string m;
  const auto bytes = [&](std::initializer_list<int> list) {
    for (int b : list) m += static_cast<char>(b);
  };
  bytes({0x0a, 4, 0x08, 1, 0x10, 2});            // sample_type {type 1 "cpu", unit 2 "nanoseconds"}
  bytes({0x12, 6, 0x08, 9, 0x08, 7, 0x10, 30});  // sample {location_id 9, location_id 7, value 30}: not packed
  bytes({0x22, 8, 0x08, 9, 0x18, 0x40, 0x22, 2, 0x08, 5});  // location 9 at 0x40, line of function 5
  bytes({0x22, 4, 0x08, 7, 0x18, 0x41});                    // location 7 at 0x41
  bytes({0x2a, 4, 0x08, 5, 0x10, 3});                       // function 5 named 3 "f"
  bytes({0x32, 0});
  m += "\x32\x03"
       "cpu";
  m += "\x32\x0b"
       "nanoseconds";
  m += "\x32\x01"
       "f";
  m += "\x32\x02"
       "hi";
  bytes({0x60, 10});    // period 10
  bytes({0x6a, 1, 4});  // comment 4, packed
  const auto back = read_pprof(view_of(m));
  ASSERT_TRUE(back.has_value()) << back.error().text();
  ASSERT_EQ(back->samples.size(), 1u);
  EXPECT_EQ(back->samples[0].count, 3u);  // 30 ns at one sample every 10 ns
  EXPECT_EQ(back->samples[0].locations, (std::vector<std::uint32_t>{0, 1}));
  EXPECT_EQ(back->functions[back->locations[0].lines[0].function].name, "f");
  EXPECT_TRUE(back->locations[1].lines.empty());
  EXPECT_EQ(back->comments, std::vector<std::string>{"hi"});
}

TEST(PprofHostile, EveryTruncationIsAnError) {
  const std::string whole = written(testing::synthetic_profile({.samples = 20, .stacks = 10}));
  for (std::size_t size = 0; size < whole.size(); size += kSlowDown)
    ASSERT_FALSE(read_pprof(view_of(whole.substr(0, size))).has_value()) << size;
}

TEST(PprofHostile, DamagedBytesNeverCrash) {
  const std::string packed = written(testing::synthetic_profile({.samples = 50, .stacks = 20}));
  const auto message = gunzip(view_of(packed), 1 << 20);
  ASSERT_TRUE(message.has_value());
  std::mt19937 random(3);
  std::size_t errors = 0;
  for (int i = 0; i < 10'000 / kSlowDown; ++i) {
    std::vector<std::byte> bytes(message->data(), message->data() + message->size());
    for (int n = 0; n < 3; ++n) bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    const auto back = read_pprof(ByteView(bytes.data(), bytes.size()));
    errors += !back.has_value();
    if (back.has_value()) {  // what is accepted is consistent
      for (const auto& sample : back->samples)
        for (const auto location : sample.locations) ASSERT_LT(location, back->locations.size());
      for (const auto& location : back->locations)
        for (const auto& line : location.lines) ASSERT_LT(line.function, back->functions.size());
    }
  }
  EXPECT_GT(errors, 1000u / kSlowDown);
}

TEST(PprofHostile, AbsurdIndexesAreNamed) {
  const auto error_of = [](std::initializer_list<int> list) {
    std::string m = {0x32, 0, 0x0a, 4, 0x08, 0, 0x10, 0};
    for (int b : list) m += static_cast<char>(b);
    const auto back = read_pprof(view_of(m));
    return back.has_value() ? std::string() : back.error().text();
  };
  EXPECT_NE(error_of({0x12, 2, 0x08, 1}).find("location"), std::string::npos);          // sample of location 1
  EXPECT_NE(error_of({0x22, 4, 0x08, 1, 0x10, 9}).find("mapping"), std::string::npos);  // location in mapping 9
  EXPECT_NE(error_of({0x22, 6, 0x08, 1, 0x22, 2, 0x08, 3}).find("function"), std::string::npos);
  EXPECT_NE(error_of({0x2a, 4, 0x08, 1, 0x10, 77}).find("string"), std::string::npos);         // name 77
  EXPECT_NE(error_of({0x2a, 2, 0x08, 1, 0x2a, 2, 0x08, 1}).find("twice"), std::string::npos);  // function 1 again
  EXPECT_NE(
      error_of({0x2a, 13, 0x08, 1, 0x10, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01}).find("string"),
      std::string::npos);                 // name -1
  EXPECT_NE(error_of({0x08, 1}), "");     // a sample type as a number
  EXPECT_NE(error_of({0x4a, 1, 0}), "");  // a time as a string
  EXPECT_NE(error_of({0x12, 0x7f}), "");  // longer than the file
}

TEST(PprofHostile, LimitsHold) {
  const std::string packed = written(testing::synthetic_profile());
  const auto small = read_pprof(view_of(packed), {.max_bytes = 10'000});
  ASSERT_FALSE(small.has_value());
  EXPECT_EQ(small.error().code, ErrorCode::kLimit);
  const auto few = read_pprof(view_of(packed), {.max_items = 100});
  ASSERT_FALSE(few.has_value());
  EXPECT_EQ(few.error().code, ErrorCode::kLimit);
  // A location with many inlined calls, many times in a stack: a small file, and a large stack.
  profile::Profile inlined;
  inlined.functions.push_back({.name = "f"});
  inlined.locations.push_back({.address = 1, .lines = std::vector<profile::Line>(1000, {0, 1})});
  inlined.samples.push_back({.locations = std::vector<std::uint32_t>(1000, 0), .count = 1});
  const std::string bomb = written(inlined);
  EXPECT_TRUE(read_pprof(view_of(bomb), {.max_frames = 1'000'000}).has_value());
  const auto frames = read_pprof(view_of(bomb), {.max_frames = 999'999});
  ASSERT_FALSE(frames.has_value());
  EXPECT_EQ(frames.error().code, ErrorCode::kLimit);
  // An empty sample is two bytes of a file, and many of memory.
  profile::Profile empty;
  empty.samples.resize(1000);
  EXPECT_FALSE(read_pprof(view_of(written(empty)), {.max_items = 10'000}).has_value());
}

TEST(PprofHostile, SomethingElseIsNotAProfile) {
  EXPECT_FALSE(read_pprof({}).has_value());
  EXPECT_FALSE(read_pprof(view_of("main;f 12\nmain;g 3\n")).has_value());
  EXPECT_FALSE(read_pprof(view_of(std::string(100'000, '\0'))).has_value());
  EXPECT_FALSE(read_pprof_file("/no/such/file").has_value());
  EXPECT_FALSE(read_pprof_file("/proc/self").has_value());
}

}  // namespace
}  // namespace windlass::exporter
