// Records tests/workloads/truth.cpp, whose true stacks are known, with the real kernel side, and counts wrong frames.
#include <gtest/gtest.h>

#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include <fmt/format.h>

#include "export/pprof.h"
#include "integration/truth_check.h"

namespace windlass::test {
namespace {

int run(const std::string& command) {
  const int status = std::system(command.c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

TEST(Truth, NoWrongFrame) {
  const std::string folder = testing::TempDir() + "windlass-truth";
  std::filesystem::create_directories(folder);
  const std::string file = folder + "/truth.pb.gz";
  const int status = run(fmt::format("{} record -F 4999 -o {} -- {} 4 > {}/out 2>&1", WINDLASS_COMMAND, file,
                                     WINDLASS_TRUTH_PROGRAM, folder));
  if (status == 3) GTEST_SKIP() << "the system refused: " << folder << "/out says why";
  ASSERT_EQ(status, 0);
  auto profile = exporter::read_pprof_file(file);
  ASSERT_TRUE(profile) << profile.error().text();

  const TruthVerdict verdict = check_truth(*profile, std::filesystem::canonical(WINDLASS_TRUTH_PROGRAM));
  fmt::print("{} samples, {} complete, {} through the levels, {} wrong, {} call sites read\n", verdict.samples,
             verdict.complete, verdict.in_levels, verdict.wrong, verdict.call_sites);
  for (const auto& text : verdict.truncated) fmt::print("truncated, {}\n", text);
  for (const auto& text : verdict.examples) ADD_FAILURE() << text;
  EXPECT_EQ(verdict.wrong, 0u);
  EXPECT_GT(verdict.in_levels, 1000u);
  EXPECT_GT(verdict.call_sites, verdict.in_levels);
  EXPECT_GE(static_cast<double>(verdict.complete), 0.999 * static_cast<double>(verdict.samples));

  // The checker itself: a profile in which every stack lacks one caller, as after a blind frame-pointer step, must be
  // found wrong wherever a level is concerned.
  for (auto& sample : profile->samples)
    if (sample.locations.size() > 8) sample.locations.erase(sample.locations.end() - 7);
  const TruthVerdict skipped = check_truth(*profile, std::filesystem::canonical(WINDLASS_TRUTH_PROGRAM));
  EXPECT_GT(skipped.wrong, verdict.in_levels / 2);
}

}  // namespace
}  // namespace windlass::test
