// Records tests/workloads/truth.cpp, whose true stacks are known, with the real kernel side, and counts wrong frames.
#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "integration/truth_check.h"
#include "profiler/export/pprof.h"
#include "support/privilege.h"
#include "windlass_ends.h"

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

profile::Profile record(const std::string& program, int seconds, int frequency) {
  const std::string folder = testing::TempDir() + "windlass-truth";
  std::filesystem::create_directories(folder);
  const std::string file = folder + "/truth.pb.gz";
  const int status = run(fmt::format("{} record -F {} -o {} -- {} {} > {}/out 2>&1", WINDLASS_COMMAND, frequency, file,
                                     program, seconds, folder));
  EXPECT_EQ(status, 0) << folder << "/out says why";
  auto profile = exporter::read_pprof_file(file);
  EXPECT_TRUE(profile) << profile.error().text();
  return profile ? std::move(*profile) : profile::Profile();
}

TruthVerdict judge(const profile::Profile& profile, const std::string& program, const TruthRules& rules) {
  TruthVerdict verdict = check_truth(profile, std::filesystem::canonical(program), rules);
  fmt::print("{} samples, {} complete, {} through the levels, {} wrong, {} call sites read\n", verdict.samples,
             verdict.complete, verdict.in_levels, verdict.wrong, verdict.call_sites);
  for (const auto& text : verdict.truncated) fmt::print("truncated, {}\n", text);
  for (const auto& text : verdict.examples) ADD_FAILURE() << text;
  EXPECT_EQ(verdict.wrong, 0u);
  EXPECT_GT(verdict.in_levels, 1000u);
  // Nothing proves where a context made by makecontext() begins once its function has returned.
  EXPECT_GE(static_cast<double>(verdict.complete), 0.998 * static_cast<double>(verdict.samples));
  return verdict;
}

TEST(Truth, NoWrongFrame) {
  if (const std::string reason = no_privilege_to_sample(); !reason.empty()) GTEST_SKIP() << reason;
  profile::Profile profile = record(WINDLASS_TRUTH_PROGRAM, 4, 4999);
  const TruthVerdict verdict = judge(profile, WINDLASS_TRUTH_PROGRAM, linux_truth());
  EXPECT_GT(verdict.call_sites, verdict.in_levels);

  // Tests the checker itself. One level is taken out of every stack that has three, as a blind frame-pointer step would
  // do. The checker must find each of these wrong.
  std::uint64_t mutilated = 0;
  for (auto& sample : profile.samples)
    if (sample.end == WL_END_COMPLETE && erase_second_level(profile, sample)) mutilated += sample.count;
  EXPECT_GT(mutilated, 1000u);
  EXPECT_EQ(check_truth(profile, std::filesystem::canonical(WINDLASS_TRUTH_PROGRAM)).wrong, mutilated);
}

TEST(Truth, I386) {
  if (::access(WINDLASS_TRUTH_I386_PROGRAM, X_OK) != 0) GTEST_SKIP() << "SKIPPED: no libraries of i386 to link with";
  if (const std::string reason = no_privilege_to_sample(); !reason.empty()) GTEST_SKIP() << reason;
  const profile::Profile profile = record(WINDLASS_TRUTH_I386_PROGRAM, 4, 4999);
  const TruthVerdict verdict = judge(profile, WINDLASS_TRUTH_I386_PROGRAM, linux_truth('y'));
  EXPECT_GT(verdict.call_sites, verdict.in_levels);
}

// Samples in the middle of libgcc's way to a landing pad are several percent of these programs'.
void hold_throws(const std::string& program, char word = 'm') {
  if (const std::string reason = no_privilege_to_sample(); !reason.empty()) GTEST_SKIP() << reason;
  profile::Profile profile = record(program, 6, 9999);
  (void)judge(profile, program, throwing_truth(word));
  std::uint64_t mutilated = 0;
  for (auto& sample : profile.samples)
    if (sample.end == WL_END_COMPLETE && erase_second_level(profile, sample)) mutilated += sample.count;
  EXPECT_GT(mutilated, 1000u);
  EXPECT_EQ(check_truth(profile, std::filesystem::canonical(program), throwing_truth(word)).wrong, mutilated);
}
TEST(Truth, Throws) { hold_throws(WINDLASS_TRUTH_THROWS_PROGRAM); }
// A register that libgcc has written over is where the frames that throw have theirs.
TEST(Truth, ThrowsWithFramePointers) { hold_throws(WINDLASS_TRUTH_THROWS_PROGRAM "_fp"); }
TEST(Truth, I386Throws) {
  if (::access(WINDLASS_TRUTH_I386_PROGRAM "_throws", X_OK) != 0)
    GTEST_SKIP() << "SKIPPED: no libraries of i386 to link with";
  hold_throws(WINDLASS_TRUTH_I386_PROGRAM "_throws", 'y');
}

}  // namespace
}  // namespace windlass::test
