// Differences of two profiles, and which of them are noise.
#include "profiler/export/diff.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include "profiler/export/shorten_name.h"
#include "profiler/export/significance.h"

namespace windlass::exporter {
namespace {

using nlohmann::json;
using profile::Profile;

constexpr profile::ValueType kCounted{0, true};

// main calls each function, and is itself on the CPU in none of the samples.
Profile profile_of(const std::vector<std::pair<std::string, std::uint64_t>>& functions) {
  Profile p;
  p.strings = {"prog"};
  p.events.front().period = 1'000'000;
  p.duration_ns = 10'000'000'000;
  p.modules = {{.path = "/bin/prog"}};
  p.functions = {{.name = "main"}};
  p.locations = {{.module = 0, .address = 1, .lines = {{0, 1}}}};
  for (const auto& [name, count] : functions) {
    const auto id = static_cast<std::uint32_t>(p.functions.size());
    p.functions.push_back({.name = name});
    p.locations.push_back({.module = 0, .address = id + 1, .lines = {{id, 1}}});
    p.samples.push_back({.locations = {id, 0}, .count = count, .pid = 1, .tid = 1, .comm = 0});
  }
  return p;
}

ProfileDifference difference(const Profile& a, const Profile& b, Normalise how = Normalise::kSamples) {
  auto found = difference_of(a, kCounted, b, kCounted, how);
  EXPECT_TRUE(found.has_value());
  return std::move(*found);
}
const FunctionDifference& function(const ProfileDifference& all, const std::string& name) {
  for (const FunctionDifference& one : all.functions)
    if (one.name == name) return one;
  ADD_FAILURE() << "no function " << name;
  return all.functions.front();
}

TEST(Diff, NewOnesGoneOnesAndNoise) {
  const auto a = profile_of({{"old", 200}, {"same", 1000}, {"rare", 1}, {"more", 1000}});
  const auto b = profile_of({{"fresh", 200}, {"same", 1010}, {"more", 1500}, {"seldom", 2}});
  const auto found = difference(a, b);
  EXPECT_TRUE(function(found, "old").in_a && !function(found, "old").in_b);
  EXPECT_TRUE(!function(found, "fresh").in_a && function(found, "fresh").in_b);
  for (const char* name : {"old", "fresh", "more"}) EXPECT_TRUE(function(found, name).self.differs) << name;
  for (const char* name : {"rare", "seldom", "main"}) EXPECT_FALSE(function(found, name).self.differs) << name;
  EXPECT_FALSE(function(found, "main").total.differs) << "which is in all samples";
  EXPECT_DOUBLE_EQ(function(found, "more").self.difference, 1500. / 2712 - 1000. / 2201);
  EXPECT_TRUE(found.functions.front().self.differs) << "what differs comes first";
}

TEST(Diff, OfAProfileAndItself) {
  const auto p = profile_of({{"f", 700}, {"g", 10'000}, {"h", 3}});
  for (const Normalise how : {Normalise::kSamples, Normalise::kTime, Normalise::kNothing}) {
    const auto found = difference(p, p, how);
    EXPECT_EQ(found.differing, 0u);
    EXPECT_EQ(found.noise, 0);
    for (const FunctionDifference& one : found.functions) EXPECT_EQ(one.self.difference, 0) << one.name;
  }
}

TEST(Diff, NormalisedByTimeOrNothing) {
  const auto a = profile_of({{"f", 1000}, {"g", 1000}});
  auto b = profile_of({{"f", 2000}, {"g", 2000}});
  EXPECT_EQ(difference(a, b).differing, 0u) << "the shares are equal";
  EXPECT_DOUBLE_EQ(function(difference(a, b, Normalise::kTime), "f").self.difference, 100) << "samples a second";
  EXPECT_TRUE(function(difference(a, b, Normalise::kNothing), "f").self.differs);
  b.duration_ns *= 2;
  EXPECT_EQ(difference(a, b, Normalise::kTime).differing, 0u) << "as many a second";
  EXPECT_DOUBLE_EQ(function(difference(a, b, Normalise::kNothing), "f").self.difference, 1000);
}

// Samples of the kernel below `entry`, which main or an interrupt leads to.
Profile with_kernel(Profile p, const std::string& entry, const std::string& name, std::uint64_t count) {
  const auto first = static_cast<std::uint32_t>(p.functions.size());
  p.modules.push_back({.path = "[kernel]", .is_kernel = true});
  for (const std::string& one : {entry, name}) {
    const auto id = static_cast<std::uint32_t>(p.functions.size());
    p.functions.push_back({.name = one});
    p.locations.push_back({.module = 1, .address = id + 1, .lines = {{id, 0}}});
  }
  p.samples.push_back({.locations = {first + 1, first, 1, 0}, .count = count, .pid = 1, .tid = 1, .comm = 0});
  return p;
}

TEST(Diff, InterruptsAreNotTheProgram) {
  const auto of = [](const char* entry, std::uint64_t count) {
    return with_kernel(profile_of({{"f", 2000}, {"g", 2000}}), entry, "work", count);
  };
  for (const char* entry : {"asm_sysvec_apic_timer_interrupt", "asm_common_interrupt", "el0_interrupt"}) {
    const auto found = difference(of(entry, 5), of(entry, 80));
    EXPECT_EQ(found.differing, 0u) << entry;
    EXPECT_EQ(function(found, "work").self.b, 80u);
    EXPECT_DOUBLE_EQ(function(found, "work").self.difference, 80. / 4080 - 5. / 4005);
  }
  const auto found = difference(of("do_syscall_64", 5), of("do_syscall_64", 80));
  EXPECT_TRUE(function(found, "work").self.differs);
  // A program's function of such a name is no interrupt.
  auto a = of("common_interrupt", 5), b = of("common_interrupt", 80);
  a.modules[1].is_kernel = b.modules[1].is_kernel = false;
  EXPECT_TRUE(function(difference(a, b), "work").self.differs);
}

// Code that a runtime made, and nothing named: its stack ends there.
Profile with_unnamed(Profile p, std::uint64_t count) {
  p.modules.push_back({.path = "[anon]", .pid = 1});
  const auto location = static_cast<std::uint32_t>(p.locations.size());
  p.locations.push_back({.module = 1, .address = 0x7f00});
  p.samples.push_back(
      {.locations = {location}, .count = count, .pid = 1, .tid = 1, .comm = 0, .end = WL_END_NO_MAPPING});
  return p;
}

TEST(Diff, WhatHasNoNameMayBeAnyFunction) {
  const auto a = with_unnamed(profile_of({{"late", 300}, {"f", 2000}, {"g", 2000}}), 5);
  const auto b = with_unnamed(profile_of({{"f", 2000}, {"g", 2000}}), 305);
  for (const auto& [from, to] : {std::pair(a, b), std::pair(b, a)}) {
    const auto found = difference(from, to);
    EXPECT_EQ(found.differing, 0u);
    EXPECT_NE(function(found, "[jit]").self.difference, 0) << "which is shown";
  }
  // What both have alike, or too little of, explains nothing.
  EXPECT_TRUE(function(difference(a, with_unnamed(profile_of({{"f", 2000}, {"g", 2000}}), 5)), "late").self.differs);
  EXPECT_TRUE(function(difference(a, with_unnamed(profile_of({{"f", 2000}, {"g", 2000}}), 80)), "late").self.differs);
  // Nor is more of a function explained by what has no name.
  const auto more = with_unnamed(profile_of({{"late", 300}, {"f", 2000}, {"g", 2000}, {"new", 100}}), 305);
  EXPECT_TRUE(function(difference(a, more), "new").self.differs);
  // A file's code without a symbol is itself.
  auto of_file = a, of_file_too = b;
  of_file.modules[1].path = of_file_too.modules[1].path = "/lib/libz.so";
  EXPECT_TRUE(function(difference(of_file, of_file_too), "libz.so+0x7f00").self.differs);
}

TEST(Diff, WhatCannotBeCompared) {
  auto p = profile_of({{"f", 10}});
  EXPECT_FALSE(difference_of(p, kCounted, profile_of({}), kCounted, Normalise::kSamples).has_value());
  auto q = p;
  q.duration_ns = 0;
  EXPECT_FALSE(difference_of(p, kCounted, q, kCounted, Normalise::kTime).has_value());
  EXPECT_TRUE(difference_of(p, kCounted, q, kCounted, Normalise::kSamples).has_value());
}

// A wait of a second that occurred once says less than a thousand of a millisecond.
TEST(Diff, FewLargeValuesAreNoise) {
  const auto waits = [](std::uint64_t count) {
    auto p = profile_of({{"f", 1000}, {"g", 1000}, {"wait", count}});
    p.events.front() = {.name = "off-cpu", .counted = "waits"};
    for (auto& sample : p.samples) sample.value = 1'000'000 * sample.count;
    p.samples.back().value = 1'000'000'000;
    return p;
  };
  const auto likelihood = [&](std::uint64_t count) {
    auto with = waits(count), without = waits(count);
    without.samples.pop_back();
    const auto found = difference_of(with, {0, false}, without, {0, false}, Normalise::kSamples);
    return found.has_value() ? function(*found, "wait").self.p : 0;
  };
  EXPECT_LT(likelihood(1000), 1e-6);
  EXPECT_GT(likelihood(10), 1e-3) << "the sum is the same";
}

// Resampled from one profile of 60 functions, whose samples come in bursts of up to three.
class Resampled : public ::testing::Test {
 protected:
  Profile resample(std::uint32_t seed, unsigned samples, double slower = 0) {
    std::mt19937 random(seed);
    std::vector<double> weights;
    for (unsigned i = 0; i < 60; ++i) weights.push_back(1. / (1 + i));
    weights[3] *= 1 + slower;
    std::discrete_distribution<std::size_t> pick(weights.begin(), weights.end());
    std::vector<std::pair<std::string, std::uint64_t>> functions;
    for (unsigned i = 0; i < 60; ++i) functions.emplace_back("f" + std::to_string(i), 0);
    for (unsigned n = 0; n < samples;) {
      const unsigned burst = 1 + static_cast<unsigned>(random() % 3);
      functions[pick(random)].second += burst;
      n += burst;
    }
    std::erase_if(functions, [](const auto& one) { return one.second == 0; });
    return profile_of(functions);
  }
};

TEST_F(Resampled, NoiseIsSilent) {
  unsigned loud = 0;
  constexpr unsigned kPairs = 200;
  for (unsigned pair = 0; pair < kPairs; ++pair)
    loud += difference(resample(2 * pair, 5000), resample(2 * pair + 1, 5000)).differing != 0;
  EXPECT_LE(loud, kPairs / 20);
}

TEST_F(Resampled, TenPercentOfATwentieth) {
  unsigned seen_of_many = 0, seen_of_few = 0;
  for (unsigned pair = 0; pair < 20; ++pair) {
    const auto seen = [&](unsigned samples) {
      const auto found = difference(resample(2 * pair, samples), resample(2 * pair + 1, samples, 0.1));
      return function(found, "f3").self.differs;
    };
    seen_of_many += seen(800'000);
    seen_of_few += seen(2000);
  }
  EXPECT_GT(seen_of_many, 10u);
  EXPECT_LE(seen_of_few, 2u);
}

// Recordings of one program in which each function takes up to 10% more or less: the noise is found, and nothing else.
TEST(Significance, TimesThatVaryFromRunToRun) {
  std::mt19937 random(7);
  std::normal_distribution<double> vary(1, 0.05);
  unsigned loud = 0;
  double noise = 0;
  for (unsigned pair = 0; pair < 40; ++pair) {
    std::vector<TwoSums> sums;
    Divisors divisors{0, 0, true};
    for (int i = 0; i < 40; ++i) {
      const double a = std::round(10'000 * vary(random)), b = std::round(10'000 * vary(random));
      sums.push_back({a, b, a, b, static_cast<std::uint64_t>(a + b)});
      divisors.a += a;
      divisors.b += b;
    }
    const auto found = significance_of(sums, divisors);
    loud += std::ranges::count(found.differs, true) != 0;
    noise += found.noise / 40;
  }
  EXPECT_LE(loud, 2u);
  EXPECT_NEAR(noise, 0.05, 0.02);
}

// A sample of an allocation counts as many: it is one draw for all that.
TEST(Diff, EstimatedCountsAreFewDraws) {
  auto a = profile_of({{"f", 50'000}, {"g", 1'000'000}}), b = profile_of({{"f", 20'000}, {"g", 1'000'000}});
  for (Profile* p : {&a, &b}) {
    p->events = {{.name = "alloc_space", .unit = "bytes", .counted = "alloc_objects"}};
    for (profile::Sample& sample : p->samples) sample.value = sample.count * 16;
  }
  EXPECT_EQ(difference(a, b).differing, 0u);
  auto found = difference_of(a, {0, false}, b, {0, false}, Normalise::kSamples);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->differing, 0u);
}

// One long wait elsewhere makes every other share smaller.
TEST(Diff, AHeavySampleMovesEveryShare) {
  const auto waits = [](std::uint64_t heavy) {
    auto p = profile_of({{"f", 1000}, {"g", 1000}, {"h", 1}});
    p.events = {{.name = "off-cpu", .counted = "waits"}};
    for (profile::Sample& sample : p.samples) sample.value = sample.count * 1'000'000;
    p.samples[2].value = heavy;
    return p;
  };
  auto found = difference_of(waits(1'000'000), {0, false}, waits(20'000'000'000), {0, false}, Normalise::kSamples);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->differing, 0u);
}

// How long each wait was is known by its times.
TEST(Diff, WaitsAreAsLongAsTheirTimesSay) {
  const auto waits = [](std::uint64_t longest) {
    auto p = profile_of({{"f", 1000}, {"g", 1000}});
    p.events = {{.name = "off-cpu", .counted = "waits", .per_time = 1}};
    for (profile::Sample& sample : p.samples) {
      sample.first_time = p.times.size();
      sample.times = 1000;
      for (int i = 0; i < 1000; ++i) p.times.push_back({0, 1'000'000});
      sample.value = 1'000'000'000;
    }
    p.times[0].lasted = longest;
    p.samples[0].value += longest - 1'000'000;
    return p;
  };
  auto found = difference_of(waits(1'000'000), {0, false}, waits(1'000'000'000), {0, false}, Normalise::kSamples);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->differing, 0u);
}

TEST(Diff, EqualOffsetsOfTwoFilesAreTwoFunctions) {
  Profile p;
  p.strings = {"prog"};
  p.events.front().period = 1;
  p.modules = {{.path = "/a/l.so"}, {.path = "/b/l.so"}};
  p.locations = {{.module = 0, .address = 16}, {.module = 1, .address = 16}};
  p.samples = {{.locations = {0, 1}, .count = 100, .pid = 1, .tid = 1, .comm = 0}};
  const auto found = difference(p, p);
  ASSERT_EQ(found.functions.size(), 2u);
  for (const auto& one : found.functions) EXPECT_EQ(one.total.a, 100u);
}

TEST(Diff, HugeSumsStayPositive) {
  auto p = profile_of({{"f", 10}});
  p.samples[0].count = ~std::uint64_t{0} - 5;
  const auto found = difference(p, p, Normalise::kNothing);
  std::string text;
  TextWriter out(&text);
  ASSERT_TRUE(write_diff_folded(found, p, p, out).has_value());
  EXPECT_EQ(text.find('-'), std::string::npos) << text;
}

TEST(Diff, SumsAsTheyAreKeepEachDigit) {
  constexpr std::uint64_t kSum = (std::uint64_t{1} << 53) + 1;  // which is no double
  const auto a = profile_of({{"f", kSum}}), b = profile_of({{"f", kSum + 1}});
  const auto found = difference(a, b, Normalise::kNothing);
  EXPECT_EQ(function(found, "f").self.difference, 1);
  std::string folded, report;
  TextWriter to_folded(&folded), to_report(&report);
  ASSERT_TRUE(write_diff_folded(found, a, b, to_folded).has_value());
  EXPECT_EQ(folded, "prog;main;f 9007199254740993 9007199254740994\n");
  ASSERT_TRUE(write_diff_report(found, a, b, to_report, {.name_a = "a", .name_b = "b"}).has_value());
  EXPECT_NE(report.find("9,007,199,254,740,993"), std::string::npos) << report;
}

TEST(Significance, OfNothing) {
  EXPECT_EQ(significance_of({}, {}).tests, 0u);
  const auto found = significance_of({{5, 0, 5, 0, 5}, {1000, 0, 1000, 0, 1000}}, {0, 0, true});
  EXPECT_EQ(found.tests, 0u);
  EXPECT_EQ(found.p, (std::vector<double>{1, 1}));
}

class DiffOutputs : public ::testing::Test {
 protected:
  template <typename Write>
  static std::string text_of(Write write) {
    std::string text;
    TextWriter out(&text);
    EXPECT_TRUE(write(out).has_value());
    return text;
  }
  const Profile a_ = profile_of({{"old\x1b", 200}, {"same", 1000}, {"=more", 1000}});
  const Profile b_ = profile_of({{"fresh,\"x\"", 200}, {"same", 1010}, {"=more", 1500}});
  const ProfileDifference found_ = difference(a_, b_);
};

TEST_F(DiffOutputs, Report) {
  const std::string text = text_of([&](TextWriter& out) {
    return write_diff_report(found_, a_, b_, out, {.name_a = "one", .name_b = "two", .functions = 4});
  });
  EXPECT_NE(text.find("A: one\n  2,200 samples at 1000 Hz in 10.0 s"), std::string::npos) << text;
  EXPECT_NE(text.find("  45.45%   55.35%    +9.90%   45.45%   55.35%    +9.90%       =more\n"), std::string::npos)
      << text;
  EXPECT_NE(text.find("    9.09%    0.00%    -9.09%    9.09%    0.00%    -9.09%  gone old\\x1b\n"), std::string::npos)
      << text;
  EXPECT_NE(text.find("+7.38%  new  fresh,\"x\"\n"), std::string::npos) << text;
  EXPECT_NE(text.find("… 1 more functions\n"), std::string::npos) << text;
}

TEST_F(DiffOutputs, ReportFillsTheWidth) {
  const auto a = profile_of({{std::string(300, 'x'), 100}}), b = profile_of({{std::string(300, 'x'), 200}});
  for (const unsigned width : {80u, 100u, 120u}) {
    std::istringstream lines(text_of([&](TextWriter& out) {
      return write_diff_report(difference(a, b), a, b, out, {.name_a = "a", .name_b = "b", .width = width});
    }));
    std::size_t found = 0;
    for (std::string line; std::getline(lines, line);) {
      if (line.find("xxx") == std::string::npos) continue;
      EXPECT_EQ(columns_of(line), width) << line;
      ++found;
    }
    EXPECT_EQ(found, 1u);
  }
}

TEST_F(DiffOutputs, Json) {
  std::istringstream lines(text_of([&](TextWriter& out) { return write_diff_json(found_, a_, b_, out); }));
  std::vector<json> all;
  for (std::string line; std::getline(lines, line);) all.push_back(json::parse(line));
  ASSERT_EQ(all.size(), 6u);
  EXPECT_EQ(all[0]["a"]["samples"], 2200);
  EXPECT_EQ(all[0]["b"]["samples"], 2710);
  EXPECT_EQ(all[0]["differing"], 4) << "the share of `same` went down, too";
  EXPECT_EQ(all[1]["name"], "=more");
  EXPECT_EQ(all[1]["self"]["a"], 1000);
  EXPECT_NEAR(all[1]["self"]["difference"].get<double>(), 1500. / 2710 - 1000. / 2200, 1e-6);
  EXPECT_EQ(all[1]["in"], "both");
  for (std::size_t at = 1; at < all.size(); ++at) EXPECT_EQ(all[at]["modules"], json::array({"/bin/prog"})) << all[at];
}

TEST_F(DiffOutputs, Csv) {
  const std::string text = text_of([&](TextWriter& out) { return write_diff_csv(found_, out); });
  EXPECT_NE(text.find(",total_differs,value\n"), std::string::npos) << text;
  EXPECT_NE(text.find(",1,samples\n"), std::string::npos) << text;
  EXPECT_NE(text.find("\n'=more,/bin/prog,both,count,1000,1500,0.098960,0.000"), std::string::npos) << text;
  EXPECT_NE(text.find("\n\"fresh,\"\"x\"\"\",/bin/prog,b,count,0,200,"), std::string::npos) << text;
}

TEST_F(DiffOutputs, Folded) {
  EXPECT_EQ(text_of([&](TextWriter& out) { return write_diff_folded(found_, a_, b_, out); }),
            "prog;main;=more 1232 1500\n"
            "prog;main;fresh,\"x\" 0 200\n"
            "prog;main;old\\x1b 246 0\n"
            "prog;main;same 1232 1010\n");
}

}  // namespace
}  // namespace windlass::exporter
