// `windlass record` of programs that set labels for their threads, and say how long each thread ran with which: the
// samples of each value are as many as its CPU time has ticks.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "integration/go/program.h"
#include "profiler/export/pprof.h"
#include "profiler/profile/profile.h"
#include "support/emulated.h"
#include "support/privilege.h"
#include "support/run_command.h"

namespace windlass::test {
namespace {

using profile::Profile;
using profile::Sample;

constexpr double kRate = 997;

// By value: the program's own CPU time, in ns. "-" is that without labels.
std::map<std::string, double> times_in(const std::string& output) {
  std::map<std::string, double> times;
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string value;
    double ns = 0;
    if (words >> value >> ns && words.eof()) times[value] += ns;
  }
  return times;
}

// In s: how much more samples may say than the program, whose clock it is. The sampling clock runs on in interrupts and
// in time that a hypervisor takes, which CPU time leaves out.
double tolerance(double seconds) { return 0.4 * seconds + 0.05; }
// How little they may. A busy machine loses ticks, and so does one whose host takes its processors. A recorder that is
// late does not know the program yet. Emulated, both are the rule.
double least_of(double seconds) { return emulated() ? 1e-3 : 0.1 * seconds; }

class ThreadLabels : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = no_privilege_to_sample(); !reason.empty()) GTEST_SKIP() << reason;
    path_ = testing::TempDir() + fmt::format("windlass-thread-labels-{}.pb.gz", getpid());
  }
  void TearDown() override { std::filesystem::remove(path_); }

  void record(const std::string& program, const std::string& options = "") {
    const CommandResult done =
        run(fmt::format("{} record -F {} -o {} {} -- {} 2>&1", WINDLASS_COMMAND, kRate, path_, options, program));
    ASSERT_EQ(done.status, 0) << done.output;
    auto read = exporter::read_pprof_file(path_);
    ASSERT_TRUE(read.has_value()) << done.output;
    profile_ = std::move(*read);
    output_ = done.output;
    times_ = times_in(output_);
  }
  // A recorder that is late on a busy machine may know the program's labels only when all is over. Then once more, with
  // a program that takes twice the time.
  void record_known(const std::string& program, unsigned ms, const std::string& options = "") {
    for (; ms <= 12800; ms *= 2) {
      ASSERT_NO_FATAL_FAILURE(record(fmt::format("{} {}", program, ms), options));
      if (seconds_by("route").contains("/a") && seconds_by("route").contains("/b")) return;
    }
  }
  [[nodiscard]] std::string label(const Sample& sample, std::string_view key) const {
    for (const profile::Label& one : profile_.label_sets[sample.labels])
      if (profile_.strings[one.key] == key) return profile_.strings[one.value];
    return "";
  }
  [[nodiscard]] std::map<std::string, double> seconds_by(std::string_view key) const {
    std::map<std::string, double> sums;
    for (const Sample& sample : profile_.samples) sums[label(sample, key)] += static_cast<double>(sample.count) / kRate;
    return sums;
  }
  // The values that the program names, and no others.
  void expect_times(std::string_view key, const std::vector<std::string>& values) {
    std::map<std::string, double> found = seconds_by(key);
    for (const std::string& value : values) {
      ASSERT_TRUE(times_.contains(value)) << output_;
      const double expected = times_[value] * 1e-9;
      EXPECT_LE(found[value], expected + tolerance(expected)) << key << "=" << value;
      EXPECT_GE(found[value], least_of(expected)) << key << "=" << value;
      found.erase(value);
    }
    found.erase("");
    EXPECT_TRUE(found.empty()) << key << "=" << found.begin()->first;
  }
  void expect_all() {
    expect_times("route", {"/a", "/b"});
    expect_times("user", {"ann", "bob"});
  }

  std::string path_, output_;
  Profile profile_;
  std::map<std::string, double> times_;
};

TEST_F(ThreadLabels, SetByTheInterfaceInAProgram) {
  record_known(WINDLASS_LABELS, 300);
  expect_times("route", {"/a", "/b", "/child"});
  expect_times("user", {"ann", "bob"});
}

TEST_F(ThreadLabels, SetByTheInterfaceInALibrary) {
  if (!std::filesystem::exists(WINDLASS_LABELS_SHARED)) GTEST_SKIP() << "libwindlass.so is not here";
  record_known(WINDLASS_LABELS_SHARED, 300);
  expect_times("route", {"/a", "/b", "/child"});
  expect_times("user", {"ann", "bob"});
}

// The program itself has the variable, or a library that is opened late.
TEST_F(ThreadLabels, SetByHandInAProgram) {
  record_known(WINDLASS_WORKLOADS "/labels_by_hand_own -", 200);
  expect_all();
}

class VariableOf : public ThreadLabels, public testing::WithParamInterface<const char*> {};
TEST_P(VariableOf, ALibrary) {
  const std::string how = GetParam();
  const std::string library = fmt::format("{}/labels_variable_{}.so", WINDLASS_WORKLOADS, how);
  if (!std::filesystem::exists(library)) GTEST_SKIP() << "no " << library << ": the compiler cannot";
  record_known(fmt::format("{}/labels_by_hand{} {}", WINDLASS_WORKLOADS, how == "musl" ? "_musl" : "", library), 200);
  expect_all();
  EXPECT_TRUE(seconds_by("trace_id").contains(""));
  EXPECT_EQ(seconds_by("trace_id").size(), 1u);  // new with each request
}
INSTANTIATE_TEST_SUITE_P(Models, VariableOf, testing::Values("usual", "initial_exec", "descriptor", "musl"),
                         [](const auto& made) { return std::string(made.param); });

TEST_F(ThreadLabels, WithIds) {
  record_known(WINDLASS_WORKLOADS "/labels_by_hand_own -", 200, "--thread-labels=all");
  expect_all();
  std::map<std::string, double> traces = seconds_by("trace_id"), spans = seconds_by("span_id");
  const double expected = (times_["/a"] + times_["/b"]) * 1e-9;
  EXPECT_LE(traces["ab000000000000000000000000000000"], expected + tolerance(expected));
  EXPECT_GE(traces["ab000000000000000000000000000000"], least_of(expected));
  EXPECT_EQ(spans["cd00000000000000"], traces["ab000000000000000000000000000000"]);
}

TEST_F(ThreadLabels, NoneIfNotWanted) {
  record(WINDLASS_WORKLOADS "/labels_by_hand_own - 100", "--thread-labels=none");
  EXPECT_EQ(seconds_by("route").size(), 1u);
}

// With off-CPU time the clock's ticks have the same labels, and a wait has those that its thread left the CPU with.
TEST_F(ThreadLabels, OfWaits) {
  record_known(WINDLASS_WORKLOADS "/labels_by_hand_own -", 200, "-e cpu -e off-cpu");
  bool waits = false, labelled = false;
  for (const Sample& sample : profile_.samples) {
    if (profile_.events[sample.event].name != "off-cpu") continue;
    waits = true;
    labelled |= !label(sample, "route").empty();  // two threads and the recorder share the CPUs
  }
  EXPECT_TRUE(waits);
  EXPECT_TRUE(labelled);
}

constexpr std::array kLinks{"Plain", "Stripped", "Pie", "WithC"};

class GoLabels : public ThreadLabels, public testing::WithParamInterface<std::pair<const char*, const char*>> {};
TEST_P(GoLabels, OfGoroutines) {
#ifndef __x86_64__
  GTEST_SKIP() << "labels of goroutines are read on x86-64";
#endif
  const auto [options, linker] = GetParam();
  const std::string problem = make_go_program("labels", options, linker);
  if (problem == "no go") GTEST_SKIP() << problem;
  ASSERT_TRUE(problem.empty()) << problem;
  record_known(kGoFolder + "/labels", 300);
  expect_all();
}
INSTANTIATE_TEST_SUITE_P(Links, GoLabels,
                         testing::Values(std::pair("", ""), std::pair("-ldflags='-s -w'", ""),
                                         std::pair("-buildmode=pie", ""),
                                         std::pair("-ldflags=-linkmode=external", "-lm")),
                         [](const auto& made) { return std::string(kLinks.at(made.index)); });

}  // namespace
}  // namespace windlass::test
