// Records tests/workloads/truth_mapped.cpp, which maps the code of two libraries over each other: every stack has to be
// that of the one that is mapped. Where the kernel can be hooked (`windlass doctor`) this holds from the first moment
// on, so it runs in the virtual machine, too.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "profiler/export/pprof.h"
#include "profiler/profile/profile.h"
#include "support/privilege.h"

namespace windlass::test {
namespace {

int run(const std::string& command) {
  const int status = std::system(command.c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

struct Mapped {
  std::uint64_t samples = 0;  // with code of the libraries, complete
  std::uint64_t wrong = 0;
  std::vector<std::string> examples;
};

// From main inwards, as far as it is the program's and its libraries': use_X, and what use_X calls.
bool is_of_one_library(const std::vector<std::string_view>& inwards) {
  static constexpr std::string_view kChain[] = {"use_", "work", "work_", "deeper_", "spin_"};
  const char which = inwards.empty() || inwards[0].empty() ? 0 : inwards[0].back();
  for (std::size_t i = 0; i < inwards.size(); ++i) {
    if (i == std::size(kChain)) return false;
    const bool clock = inwards[i] == "now" && (i == 1 || i == 4);
    const std::string wanted = std::string(kChain[i]) + (i == 1 ? "" : std::string(1, which));
    if (!clock && inwards[i] != wanted) return false;
    // The program calls the C library's clock through its linkage table.
    if (clock) return i + 1 == inwards.size() || (i + 2 == inwards.size() && inwards[i + 1] == "clock_gettime@plt");
  }
  return which == 'a' || which == 'b';
}

Mapped judge_mapped(const profile::Profile& profile) {
  Mapped verdict;
  for (const auto& sample : profile.samples) {
    std::vector<std::string_view> names;  // innermost first
    bool library = false;
    for (const auto at : sample.locations) {
      const profile::Location& location = profile.locations[at];
      if (location.module >= profile.modules.size()) continue;
      const std::string& path = profile.modules[location.module].path;
      if (path.find("truth_mapped") == std::string::npos) continue;
      library |= path.ends_with(".so");
      names.emplace_back("?");
      if (!location.lines.empty()) names.back() = profile.functions[location.lines.back().function].system_name;
    }
    if (!library || profile::is_truncated(sample.end)) continue;
    verdict.samples += sample.count;
    const auto main = std::ranges::find(names, "main");
    const std::vector<std::string_view> inwards(std::make_reverse_iterator(main), names.rend());
    if (main != names.end() && is_of_one_library(inwards)) continue;
    verdict.wrong += sample.count;
    if (verdict.examples.size() < 10) verdict.examples.push_back(fmt::format("{}", fmt::join(names, " <- ")));
  }
  return verdict;
}

class TruthMapped : public testing::TestWithParam<const char*> {};

// Every 2 ms the code of one library takes the place of the other's. If the kernel cannot report that at once
// (`windlass doctor`), the first library that does so is known by perf's event. Until then its stacks may be wrong.
TEST_P(TruthMapped, NoStackIsTheOtherLibrarys) {
  if (const std::string reason = no_privilege_to_sample(); !reason.empty()) GTEST_SKIP() << reason;
  const std::string program = WINDLASS_TRUTH_MAPPED_PROGRAM;
  const bool hooked =
      run(fmt::format("{} doctor -v 2>&1 | grep -q 'perf_event_mmap.*can be hooked'", WINDLASS_COMMAND)) == 0;
  constexpr int kHertz = 997;
  const std::string file = testing::TempDir() + fmt::format("windlass-truth-mapped-{}.pb.gz", ::getpid());
  constexpr std::uint64_t kMostWithoutHook = kHertz / 25;  // of 40 ms, while the first events come
  Mapped verdict;
  // On a busy machine the agent may take longer to come to the first events. Then the test records once more.
  for (int tries = 0; tries == 0 || (!hooked && tries < 6 && verdict.wrong > kMostWithoutHook); ++tries) {
    ASSERT_EQ(run(fmt::format("{0} record -F {1} -o {2} -- {3} 3 {4} {3}_a.so {3}_b.so 2>&1", WINDLASS_COMMAND, kHertz,
                              file, program, GetParam())),
              0);
    const auto read = exporter::read_pprof_file(file);
    std::filesystem::remove(file);
    ASSERT_TRUE(read) << read.error().text();
    verdict = judge_mapped(*read);
    fmt::print("{} samples in the libraries, {} wrong, {}\n", verdict.samples, verdict.wrong,
               hooked ? "hooked" : "without a hook");
  }
  EXPECT_GT(verdict.samples, 300u) << "an emulated machine is slow";
  EXPECT_LE(verdict.wrong, hooked ? 0u : kMostWithoutHook);
  if (hooked || verdict.wrong > kMostWithoutHook)
    for (const std::string& text : verdict.examples) ADD_FAILURE() << text;
}
INSTANTIATE_TEST_SUITE_P(By, TruthMapped, testing::Values("fixed", "protect"),
                         [](const auto& way) { return std::string(way.param); });

}  // namespace
}  // namespace windlass::test
