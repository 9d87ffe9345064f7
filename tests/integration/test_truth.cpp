// Records tests/workloads/truth.cpp, whose true stacks are known, with the real kernel side, and counts wrong frames.
#include <gtest/gtest.h>

#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "export/pprof.h"
#include "integration/truth_check.h"
#include "support/privilege.h"
#include "windlass_layout.h"

namespace windlass::test {
namespace {

int run(const std::string& command) {
  const int status = std::system(command.c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

// Takes the second level from the outside out of a stack of at least three.
bool erase_second_level(const profile::Profile& profile, profile::Sample& sample) {
  std::vector<std::size_t> levels;
  for (std::size_t i = sample.locations.size(); i-- > 0;) {
    const auto& lines = profile.locations[sample.locations[i]].lines;
    if (!lines.empty() && profile.functions[lines.back().function].system_name.starts_with("_Z5level"))
      levels.push_back(i);
  }
  if (levels.size() < 3) return false;
  sample.locations.erase(sample.locations.begin() + static_cast<std::ptrdiff_t>(levels[1]));
  return true;
}

TEST(Truth, NoWrongFrame) {
  if (const std::string reason = no_privilege_to_sample(); !reason.empty()) GTEST_SKIP() << reason;
  const std::string folder = testing::TempDir() + "windlass-truth";
  std::filesystem::create_directories(folder);
  const std::string file = folder + "/truth.pb.gz";
  const int status = run(fmt::format("{} record -F 4999 -o {} -- {} 4 > {}/out 2>&1", WINDLASS_COMMAND, file,
                                     WINDLASS_TRUTH_PROGRAM, folder));
  ASSERT_EQ(status, 0) << folder << "/out says why";
  auto profile = exporter::read_pprof_file(file);
  ASSERT_TRUE(profile) << profile.error().text();

  const TruthVerdict verdict = check_truth(*profile, std::filesystem::canonical(WINDLASS_TRUTH_PROGRAM));
  fmt::print(
      "{} samples, {} complete, {} through the levels, {} wrong, {} while a context is installed, {} call sites read\n",
      verdict.samples, verdict.complete, verdict.in_levels, verdict.wrong, verdict.installing, verdict.call_sites);
  for (const auto& text : verdict.truncated) fmt::print("truncated, {}\n", text);
  for (const auto& text : verdict.examples) ADD_FAILURE() << text;
  EXPECT_EQ(verdict.wrong, 0u);
  EXPECT_LE(verdict.installing, verdict.samples / 2000);
  EXPECT_GT(verdict.in_levels, 1000u);
  EXPECT_GT(verdict.call_sites, verdict.in_levels);
  EXPECT_GE(static_cast<double>(verdict.complete), 0.999 * static_cast<double>(verdict.samples));

  // The checker itself: with one level taken out of every stack that has three, as a blind frame-pointer step does,
  // it must find each of them wrong.
  std::uint64_t mutilated = 0;
  for (auto& sample : profile->samples)
    if (sample.end == WL_END_COMPLETE && erase_second_level(*profile, sample)) mutilated += sample.count;
  EXPECT_GT(mutilated, 1000u);
  EXPECT_EQ(check_truth(*profile, std::filesystem::canonical(WINDLASS_TRUTH_PROGRAM)).wrong, mutilated);
}

}  // namespace
}  // namespace windlass::test
