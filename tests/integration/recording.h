// A recording of a known program, for test_record.cpp.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "profiler/export/pprof.h"
#include "profiler/profile/profile.h"
#include "support/privilege.h"
#include "support/process_with_output.h"

namespace windlass::test {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using profile::Profile;

class Record : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) / fmt::format("windlass-record-{}", getpid());
    fs::create_directories(folder_);
    if (const std::string reason = no_privilege_to_sample(); !reason.empty()) GTEST_SKIP() << reason;
  }
  void TearDown() override { fs::remove_all(folder_); }

  [[nodiscard]] std::string profile_path() const { return folder_ / "p.pb.gz"; }
  [[nodiscard]] fs::path log() const { return folder_ / "log"; }
  static std::string text(const fs::path& path) {
    std::ifstream file(path);
    std::stringstream all;
    all << file.rdbuf();
    return all.str();
  }
  Arguments record(const Arguments& rest) const {
    Arguments all{WINDLASS_COMMAND, "record", "-F", "997", "-v", "-o", profile_path()};
    all.insert(all.end(), rest.begin(), rest.end());
    return all;
  }
  int run(const Arguments& rest) {
    Process process(record(rest), log());
    const int status = process.wait();
    peak_kib_ = process.peak_kib();
    return status;
  }
  // Waits for it. False: five minutes have gone.
  static bool happens(const std::function<bool()>& it) {
    for (int i = 0; i < 3000 && !it(); ++i) std::this_thread::sleep_for(100ms);
    return it();
  }
  // The first one comes two seconds after sampling began, however long the machine took to get there.
  void wait_for_checkpoint() const {
    EXPECT_TRUE(happens([&] { return fs::exists(profile_path()); })) << "no checkpoint: " << text(log());
  }
  Profile read() const {
    auto profile = exporter::read_pprof_file(profile_path());
    EXPECT_TRUE(profile) << (profile ? "" : profile.error().text()) << text(log());
    return profile ? std::move(*profile) : Profile();
  }

  struct Count {
    std::uint64_t all = 0, complete = 0, inner = 0, chain = 0;
  };
  // "inner;middle;", the innermost function first.
  static std::string names_of(const Profile& profile, const profile::Sample& sample) {
    std::string names;
    for (const auto location : sample.locations)
      for (const auto& line : profile.locations[location].lines)
        names += profile.functions[line.function].system_name + ";";
    return names;
  }
  // `inner`: samples in that function. `chain`: those whose callers are middle, outer and main, next to each other.
  // Samples of a stack that is being copied are not counted: during a fork, a page of the child is in no page table,
  // and cannot be read. Their share depends on the machine.
  static Count count(const Profile& profile) {
    Count count;
    for (const auto& sample : profile.samples) {
      const std::string names = names_of(profile, sample);
      if (sample.end == WL_END_UNREADABLE_STACK && names.find("do_wp_page;") != std::string::npos) continue;
      count.all += sample.count;
      count.complete += profile::is_whole(sample.end) ? sample.count : 0;
      count.inner += is_in_inner(names) ? sample.count : 0;
      count.chain += has_chain(names) ? sample.count : 0;
    }
    return count;
  }
  // At most as many samples as `most` seconds of CPU time give: counting twice would give twice as many. The sampling
  // clock runs on in interrupts and in time that a hypervisor takes, which CPU time leaves out. On a busy machine 10%
  // more were seen. Ticks are also lost if other programs have the CPU. So `least` only shows that it was sampled at
  // all.
  void expect_samples(std::uint64_t samples, double least, double most) const {
    EXPECT_GT(static_cast<double>(samples), 0.1 * kHertz * least) << text(log());
    EXPECT_LT(static_cast<double>(samples), 1.4 * kHertz * most) << text(log());
  }
  // What CPU time the target says that its work took.
  std::pair<double, double> said_work() const {
    const std::string said = text(log());
    const std::size_t at = said.find("work: ");
    std::pair<double, double> seconds;
    EXPECT_TRUE(at != std::string::npos &&
                std::sscanf(&said[at], "work: %lf and %lf seconds", &seconds.first, &seconds.second) == 2)
        << said;
    return seconds;
  }
  // The target computes for `seconds` of CPU time in the chain, however long that lasts: whatever is in `inner` has its
  // callers. How much else there is, the start of processes, depends on the machine.
  void expect_chain(const Count& seen, double seconds) const {
    expect_samples(seen.chain, seconds, seconds);
    EXPECT_GE(static_cast<double>(seen.chain), 0.995 * static_cast<double>(seen.inner)) << text(log());
    expect_complete(seen);
  }
  // But for what a process does before all of it is known.
  void expect_complete(const Count& seen) const {
    EXPECT_GE(static_cast<double>(seen.complete), 0.995 * static_cast<double>(seen.all)) << text(log());
  }
  static double cpu_seconds(pid_t pid) {
    clockid_t clock{};
    timespec used{};
    if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &used) != 0) {
      ADD_FAILURE() << "the target is gone";
      return HUGE_VAL;
    }
    return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) * 1e-9;
  }
  // `command` records `target`, which was in the chain before and is behind it: every sample is. It is ended when the
  // target has used a second of CPU time since samples are known to be taken.
  void expect_chain_of(const Process& target, const Arguments& command) const {
    fs::remove(profile_path());
    const double before = cpu_seconds(target.pid());
    Process recorder(command, log());
    wait_for_checkpoint();
    const double sampling = cpu_seconds(target.pid());
    while (cpu_seconds(target.pid()) < sampling + 1) std::this_thread::sleep_for(10ms);
    recorder.signal(SIGINT);
    ASSERT_EQ(recorder.wait(), 0) << text(log());
    const double most = cpu_seconds(target.pid()) - before;
    const Profile profile = read();
    for (const auto& sample : profile.samples) EXPECT_EQ(sample.pid, static_cast<std::uint32_t>(target.pid()));
    const Count seen = count(profile);
    expect_samples(seen.all, 1, most);
    EXPECT_EQ(seen.chain, seen.all) << text(log());
    EXPECT_EQ(seen.complete, seen.all) << text(log());
  }
  // Its start takes a few milliseconds of CPU time.
  static void wait_for_chain(const Process& target) {
    while (cpu_seconds(target.pid()) < 0.1) std::this_thread::sleep_for(10ms);
  }
  static bool has_chain(const std::string& names) {
    return names.find("_ZN12_GLOBAL__N_15innerEd;_ZN12_GLOBAL__N_16middleEd;_ZN12_GLOBAL__N_15outerEd;main;") !=
           std::string::npos;
  }
  static bool is_in_inner(const std::string& names) {
    return names.find("_ZN12_GLOBAL__N_15innerEd;") != std::string::npos;
  }
  // Those that have been in `inner`: the shell that starts them, and what they are before their exec, has not.
  static std::set<std::uint32_t> processes_in_chain(const Profile& profile) {
    std::set<std::uint32_t> processes;
    for (const auto& sample : profile.samples)
      if (is_in_inner(names_of(profile, sample))) processes.insert(sample.pid);
    return processes;
  }
  static std::uint64_t samples_in(const Profile& profile, const std::string& function) {
    std::uint64_t sum = 0;
    for (const auto& sample : profile.samples) {
      bool found = false;
      for (const auto location : sample.locations)
        for (const auto& line : profile.locations[location].lines)
          found |= profile.functions[line.function].name.find(function) != std::string::npos;
      sum += found ? sample.count : 0;
    }
    return sum;
  }

  static constexpr double kHertz = 997;  // unless told otherwise, too
  fs::path folder_;
  long peak_kib_ = 0;
};

}  // namespace windlass::test
