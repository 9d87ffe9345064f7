// `windlass record --timeline` of a program whose phases are known: busy, asleep, busy.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "profiler/export/pprof.h"
#include "profiler/export/times.h"
#include "profiler/profile/profile.h"
#include "support/emulated.h"
#include "support/privilege.h"
#include "support/profile_frames.h"
#include "support/run_command.h"

namespace windlass::test {
namespace {

using profile::Profile;
using profile::Sample;

constexpr double kMs = 1e6;
// What passes between a reading of the program's clock, or its sleep's, and one of the recorder's.
const double kClocksApart = (emulated() ? 100 : 5) * kMs;

class Timeline : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = no_privilege_to_sample(); !reason.empty()) GTEST_SKIP() << reason;
    folder_ = testing::TempDir() + fmt::format("windlass-timeline-{}", getpid());
    std::filesystem::create_directories(folder_);
    path_ = folder_ + "/p.pb.gz";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  Profile record(const std::string& options, const std::string& command) {
    const CommandResult done =
        run(fmt::format("{} record -F {} -o {} {} -- {} 2>&1", WINDLASS_COMMAND, frequency_, path_, options, command));
    output_ = done.output;
    auto read = exporter::read_pprof_file(path_);
    EXPECT_TRUE(read.has_value()) << output_;
    return read ? std::move(*read) : Profile{};
  }
  // Where the phases of the workload begin, and where the last one ends, in ns since the recording's start.
  [[nodiscard]] std::vector<double> phases(const Profile& profile) const {
    std::vector<double> found;
    std::istringstream lines(output_);
    for (std::string line; std::getline(lines, line);)
      if (line.size() == 19 && line.find_first_not_of("0123456789") == std::string::npos)
        found.push_back(static_cast<double>(std::stoull(line) - profile.start_unix_ns));
    return found;
  }
  static std::string report(const std::string& options) {
    return run(fmt::format("{} report {} 2>&1", WINDLASS_COMMAND, options)).output;
  }

  std::string folder_, path_, output_;
  unsigned frequency_ = 997;
};

std::uint64_t counted(const Profile& profile, std::uint32_t event) {
  std::uint64_t sum = 0;
  for (const Sample& sample : profile.samples)
    if (sample.event == event) sum += sample.count;
  return sum;
}

TEST_F(Timeline, TellsWhenEachPhaseWas) {
  const Profile profile = record("--timeline --off-cpu", WINDLASS_PHASES " 500");
  const std::vector<double> begins = phases(profile);
  ASSERT_EQ(begins.size(), 4u) << output_;
  EXPECT_EQ(profile.times.size(), counted(profile, 0) + counted(profile, 1)) << "each sample has its time\n" << output_;
  std::size_t one = 0, two = 0;
  double slept = 0;
  for (const Sample& sample : profile.samples) {
    for (const profile::SampleTime& time : times_of(profile, sample)) {
      const auto begin = static_cast<double>(time.begin), end = begin + static_cast<double>(time.lasted);
      const auto within = [&](std::size_t phase) {
        return begin >= begins[phase] - kMs && end <= begins[phase + 1] + kMs;
      };
      if (has_frame(profile, sample, "phase_one")) {
        EXPECT_TRUE(within(0)) << begin << " " << end;
        one += sample.event == 0 ? 1 : 0;
      }
      if (has_frame(profile, sample, "phase_two")) {
        EXPECT_TRUE(within(2)) << begin << " " << end;
        two += sample.event == 0 ? 1 : 0;
      }
      if (!has_frame(profile, sample, "phase_rest")) continue;
      EXPECT_TRUE(within(1)) << begin << " " << end;
      if (sample.event == 1) slept += end - begin;
    }
  }
  // The machine may be busy, but not only with others. The program may lose its CPU before and after its sleep.
  EXPECT_GT(one, 0u) << output_;
  EXPECT_GT(two, 0u) << output_;
  EXPECT_GE(slept, 500 * kMs - kClocksApart);
  EXPECT_LE(slept, begins[2] - begins[1] + kClocksApart);
  for (const Sample& sample : profile.samples) {
    double sum = 0;
    for (const profile::SampleTime& time : times_of(profile, sample)) sum += static_cast<double>(time.lasted);
    if (sample.event == 1) {
      EXPECT_EQ(sum, static_cast<double>(sample.value));
    }
  }
}

TEST_F(Timeline, ReportShowsAPartOfTheTime) {
  const Profile profile = record("--timeline --off-cpu", WINDLASS_PHASES " 500");
  const std::vector<double> begins = phases(profile);
  ASSERT_EQ(begins.size(), 4u) << output_;
  // A phase without its first and last 20 ms.
  const auto part = [&](std::size_t phase, const std::string& form) {
    return report(fmt::format("{} --from {:.6f} --to {:.6f} {}", form, (begins[phase] + 20 * kMs) * 1e-9,
                              (begins[phase + 1] - 20 * kMs) * 1e-9, path_));
  };
  const std::string first = part(0, "--folded"), rest = part(1, "--folded --value off-cpu"), last = part(2, "--folded");
  EXPECT_NE(first.find("phase_one"), std::string::npos) << first;
  EXPECT_EQ(first.find("phase_two"), std::string::npos) << first;
  EXPECT_EQ(last.find("phase_one"), std::string::npos) << last;
  EXPECT_NE(last.find("phase_two"), std::string::npos) << last;
  // The sleep, cut to the part.
  double slept = 0;
  std::istringstream lines(rest);
  for (std::string line; std::getline(lines, line);) {
    EXPECT_EQ(line.find("be_busy"), std::string::npos) << rest;
    if (line.find("phase_rest") != std::string::npos) slept += std::stod(line.substr(line.rfind(' ')));
  }
  EXPECT_GE(slept, 500 * kMs - 40 * kMs - kClocksApart) << rest;
  EXPECT_LE(slept, begins[2] - begins[1] - 40 * kMs + 1e3) << rest;
  const std::string text = part(1, "");
  EXPECT_NE(text.find("left out: "), std::string::npos) << text;
  EXPECT_EQ(nlohmann::json::parse(report("--firefox --from 0.1 " + path_))["threads"].size(), 1u);
  EXPECT_TRUE(nlohmann::json::accept(report("--chrome --from 0.1 " + path_)));
}

TEST_F(Timeline, IsSaidWhereThereIsNone) {
  const Profile profile = record("", "/bin/true");
  EXPECT_EQ(profile.times.size(), 0u);
  EXPECT_EQ(report("--from 1 " + path_),
            fmt::format("windlass: {}: its samples have no times. Way out: record with --timeline\n", path_));
  const std::string made_up = run(fmt::format("{} report --chrome {} 2>&1 >/dev/null", WINDLASS_COMMAND, path_)).output;
  EXPECT_NE(made_up.find("Way out: record with --timeline"), std::string::npos) << made_up;
}

TEST_F(Timeline, OldTimesAreGivenUpAndThatIsSaid) {
  frequency_ = 49999;                         // a chunk of times is 16 KiB, at least one of which is kept
  constexpr std::uint64_t kInChunks = 16384;  // more than are kept
  Profile profile;
  std::uint64_t samples = 0;
  for (int ms = 1000; samples < kInChunks && ms <= (emulated() ? 1000 : 64000); ms *= 2) {  // a busy machine takes few
    profile = record("--timeline=4K", fmt::format("{} {}", WINDLASS_PHASES, ms));
    samples = counted(profile, 0);
  }
  if (emulated() && samples < 8192) GTEST_SKIP() << "an emulated machine takes too few samples";
  ASSERT_LT(profile.times.size(), samples) << output_;
  EXPECT_GT(profile.times.size(), 0u);
  EXPECT_NE(output_.find("samples have no time: those before "), std::string::npos) << output_;
  Profile all = profile;
  EXPECT_EQ(exporter::keep_times(all, {}).without_time, samples - profile.times.size());
}

// A time stands for as many as the event's samples do.
TEST_F(Timeline, AlsoOfOtherEvents) {
  const Profile profile = record("--timeline -e page-faults@10 -e context-switches", WINDLASS_PHASES " 100");
  ASSERT_EQ(profile.events.size(), 2u);
  EXPECT_EQ(profile.events[0].per_time, 10u);
  EXPECT_EQ(profile.events[1].per_time, 1u);
  for (const Sample& sample : profile.samples)
    EXPECT_EQ(sample.times * profile.events[sample.event].per_time, sample.count);
}

// The Firefox Profiler's own command opens the file and counts the same.
TEST_F(Timeline, FirefoxReadsIt) {
  if (std::system("command -v node >/dev/null && command -v npm >/dev/null") != 0) GTEST_SKIP() << "no node or npm";
  const std::string package = WINDLASS_PEER_DIRECTORY "/profiler-cli";
  const int fetched =
      std::system(("test -f " + package +
                   "/.integrity || sh " WINDLASS_FETCH " @firefox-devtools/profiler-cli 0.10.0 "
                   "sha512-f9fqdHh7B6ddQIYrwrEs4FE5D8BMOsXSorYF4NRFfwPaGikVBlhorBxHT7zrb6WMgJgKQYHC9kazkRjbItLx8Q== " +
                   package)
                      .c_str());
  if (WIFEXITED(fetched) && WEXITSTATUS(fetched) == 1)
    GTEST_SKIP() << "npm cannot fetch @firefox-devtools/profiler-cli";
  ASSERT_EQ(fetched, 0);
  const Profile profile = record("--timeline --off-cpu", WINDLASS_PHASES " 300");
  const std::vector<double> begins = phases(profile);
  ASSERT_EQ(begins.size(), 4u) << output_;
  const std::string file = folder_ + "/p.json";
  std::ofstream(file) << report("--firefox " + path_);
  const auto cli = [&](const std::string& arguments) {
    return run(fmt::format("HOME={} node {}/dist/profiler-cli.js {} 2>&1", folder_, package, arguments)).output;
  };
  const auto count = [&](const std::string& text, const std::string& name) {
    const auto at = text.find("!" + name + " - self:");
    const auto total = at == std::string::npos ? at : text.find("total: ", at);
    return total == std::string::npos ? 0UL : std::stoul(text.substr(total + 7));
  };
  const auto in_function = [&](const char* name, double from, double to) {
    Profile part = profile;
    exporter::keep_times(part, {static_cast<std::uint64_t>(from), static_cast<std::uint64_t>(to)});
    std::uint64_t sum = 0;
    for (const Sample& sample : part.samples)
      if (sample.event == 0 && has_frame(part, sample, name)) sum += sample.count;
    return sum;
  };
  // Its daemon has half a second to start, which is too little on a busy machine.
  std::string loaded;
  for (int tries = 0; tries < 60 && loaded.find("Session started") == std::string::npos; ++tries) {
    if (tries != 0) cli("stop --all");
    loaded = cli("load " + file);
  }
  EXPECT_NE(loaded.find("Session started"), std::string::npos) << loaded;
  const std::string all = cli("thread functions");
  const double whole = static_cast<double>(profile.duration_ns) + 1e9;
  for (const char* name : {"main", "phase_one", "phase_two"})
    EXPECT_EQ(count(all, name), in_function(name, 0, whole)) << all;
  EXPECT_NE(cli("thread markers").find(fmt::format("{} markers", counted(profile, 1))), std::string::npos);
  // The middle of the first phase.
  const double from = begins[0] + 50 * kMs, to = begins[1] - 50 * kMs;
  cli(fmt::format("zoom push {:.6f},{:.6f}", from * 1e-9, to * 1e-9));
  const std::string part = cli("thread functions");
  EXPECT_NEAR(static_cast<double>(count(part, "phase_one")), static_cast<double>(in_function("phase_one", from, to)), 1)
      << part;
  EXPECT_EQ(count(part, "phase_two"), 0u) << part;
  EXPECT_NE(cli("stop --all").find("stopped"), std::string::npos);
}

}  // namespace
}  // namespace windlass::test
