// Records tests/workloads/signal_storm.cpp, whose every possible stack is known, with the real kernel side. Most of its
// samples are taken while the kernel calls a signal handler, or returns from one.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "profiler/export/pprof.h"
#include "support/privilege.h"
#include "support/run_command.h"
#include "windlass_ends.h"

namespace windlass::test {
namespace {

using Names = std::vector<std::string>;

// Functions of the program and the way back from its handler, from main on, the outermost first; the C library's code
// that is called is left out.
Names names_of(const profile::Profile& profile, const profile::Sample& sample) {
  Names names;
  for (const std::uint32_t index : sample.locations) {
    const auto& location = profile.locations[index];
    if (location.module == profile::kNone || profile.modules[location.module].is_kernel) continue;
    const std::string& path = profile.modules[location.module].path;
    const std::string name =
        location.lines.empty() ? "" : profile.functions[location.lines.back().function].system_name;
    const bool is_own = path.find("signal_storm") != std::string::npos && !name.ends_with("@plt");
    if (is_own || path == "[vdso]")
      names.push_back(path == "[vdso]" ? path : name);
    else
      names.push_back("libc");
  }
  std::reverse(names.begin(), names.end());
  const auto main = std::ranges::find(names, "main");
  names.erase(names.begin(), main);
  return names;
}

// `names`: from main on. `back`: the way back from a handler is the C library's, or the kernel's vdso.
bool is_possible(const Names& names) {
  for (const char* back : {"libc", "[vdso]"}) {
    const Names whole = {"main", "storm", "interrupted", back, "handler"};
    if (names.size() <= whole.size() && std::equal(names.begin(), names.end(), whole.begin())) return true;
  }
  // main calls time(), and the linker for it.
  return std::all_of(names.begin() + 1, names.end(),
                     [](const auto& name) { return name == "libc" || name == "[vdso]"; });
}

TEST(SignalStorm, NoStackOfHalfWrittenRegisters) {
  if (const std::string reason = no_privilege_to_sample(); !reason.empty()) GTEST_SKIP() << reason;
  const std::string file = testing::TempDir() + "windlass-signal-storm.pb.gz";
  const auto recorded =
      run(fmt::format("{} record -F 19999 -o {} -- {} 8 2>&1", WINDLASS_COMMAND, file, WINDLASS_SIGNAL_STORM));
  ASSERT_EQ(recorded.status, 0) << recorded.output;
  const auto profile = exporter::read_pprof_file(file);
  ASSERT_TRUE(profile) << profile.error().text();
  std::uint64_t whole = 0, wrong = 0, handled = 0, half_written = 0;
  for (const profile::Sample& sample : profile->samples) {
    if (sample.end == WL_END_REGISTER_LOST) half_written += sample.count;
    if (sample.end != WL_END_COMPLETE || profile->strings[sample.comm] != "signal_storm") continue;
    const Names names = names_of(*profile, sample);
    if (names.empty()) continue;  // before main and after it
    whole += sample.count;
    if (names.back() == "handler") handled += sample.count;
    if (is_possible(names)) continue;
    wrong += sample.count;
    if (wrong == sample.count) ADD_FAILURE() << fmt::format("{}", fmt::join(names, " > "));
  }
  fmt::print("{} samples whole, {} of them in the handler, {} wrong; {} of half-written registers\n", whole, handled,
             wrong, half_written);
  EXPECT_GT(whole, 1000u);
  EXPECT_GT(handled, 20u);
  EXPECT_GT(half_written, 0u) << "none was sampled: the test shows nothing";
  EXPECT_EQ(wrong, 0u);
}

// The judge itself.
TEST(SignalStorm, WhatIsImpossibleIsFound) {
  EXPECT_TRUE(is_possible({"main", "storm", "interrupted", "libc", "handler"}));
  EXPECT_TRUE(is_possible({"main", "storm"}));
  EXPECT_FALSE(is_possible({"main", "storm", "interrupted", "libc", "interrupted"}));
  EXPECT_FALSE(is_possible({"main", "storm", "handler"}));
  EXPECT_FALSE(is_possible({"main", "interrupted"}));
  EXPECT_FALSE(is_possible({"main", "libc", "storm"}));
}

}  // namespace
}  // namespace windlass::test
