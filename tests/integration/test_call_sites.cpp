// Records real programs and compares every pair of neighbouring frames with the call instruction between them.
#include <gtest/gtest.h>

#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include <fmt/format.h>

#include "integration/call_site_check.h"
#include "profiler/export/pprof.h"
#include "support/privilege.h"

namespace windlass::test {
namespace {

struct Program {
  const char* name;
  const char* tool;     // must be there
  const char* command;  // run by sh with $SOURCES set
};

class CallSites : public testing::TestWithParam<Program> {};

TEST_P(CallSites, NoneContradicted) {
  if (const std::string reason = no_privilege_to_sample(); !reason.empty()) GTEST_SKIP() << reason;
  const Program& program = GetParam();
  if (std::system(fmt::format("command -v {} >/dev/null", program.tool).c_str()) != 0)
    GTEST_SKIP() << program.tool << " is not installed";
  const std::string folder = testing::TempDir() + "windlass-calls";
  std::filesystem::create_directories(folder);
  const std::string file = fmt::format("{}/{}.pb.gz", folder, program.name);
  const int status = std::system(fmt::format("cd {} && {} record -F 1999 -o {} -- {} > {}/out 2>&1", WINDLASS_SOURCES,
                                             WINDLASS_COMMAND, file, program.command, folder)
                                     .c_str());
  ASSERT_EQ(status, 0) << folder << "/out says why";
  auto profile = exporter::read_pprof_file(file);
  ASSERT_TRUE(profile) << profile.error().text();
  const CallSiteVerdict verdict = check_call_sites(*profile);
  fmt::print("{}: {} call sites agree, {} contradicted, {} unknown\n", program.name, verdict.agree,
             verdict.contradicted, verdict.untellable);
  for (const auto& text : verdict.examples) fmt::print("  {}\n", text);
  EXPECT_GT(verdict.agree, 1000u);
  // Self-modifying or hand-written assembly may contradict; compilers' code must not.
  EXPECT_LE(static_cast<double>(verdict.contradicted), 0.0001 * static_cast<double>(verdict.agree));

  // The checker itself: with the innermost caller taken out of every stack, as a blind frame-pointer step does, it must
  // find many of them impossible.
  for (auto& sample : profile->samples)
    if (sample.locations.size() > 4) sample.locations.erase(sample.locations.begin() + 1);
  const CallSiteVerdict skipped = check_call_sites(*profile);
  fmt::print("  with a caller taken out: {} contradicted\n", skipped.contradicted);
  EXPECT_GT(skipped.contradicted, 10 * verdict.contradicted + 10);
}

INSTANTIATE_TEST_SUITE_P(
    Real, CallSites,
    testing::Values(Program{"cc1plus", "g++", "g++ -std=c++20 -O2 -c tests/workloads/truth.cpp -o /dev/null"},
                    Program{"clang", "clang", "clang -std=c++20 -O2 -c tests/workloads/truth.cpp -o /dev/null"},
                    Program{"python3", "python3", "python3 bench/workloads/work.py 2"},
                    Program{"perl", "perl", "perl bench/workloads/work.pl 2"},
                    Program{"node", "node", "node bench/workloads/work.js 2"}),
    [](const auto& program) { return std::string(program.param.name); });

}  // namespace
}  // namespace windlass::test
