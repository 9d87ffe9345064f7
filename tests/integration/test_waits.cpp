// `windlass record --off-cpu` of programs that measure their own waits.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "profiler/export/pprof.h"
#include "profiler/profile/profile.h"
#include "support/emulated.h"
#include "support/privilege.h"
#include "support/profile_frames.h"
#include "support/run_command.h"
#include "support/stolen_time.h"
#include "windlass_ends.h"

namespace windlass::test {
namespace {

using profile::Profile;
using profile::Sample;

// What a thread of the workload says of itself, in ns.
struct Thread {
  std::uint32_t tid = 0;
  std::string name;  // of its outermost function, too
  double wall = 0, cpu = 0, sleep = 0, lock = 0, read = 0;
  double disturbed = 0;  // of these waits, what may have passed beside them
};

std::vector<Thread> threads_in(const std::string& output) {
  std::vector<Thread> threads;
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);) {
    Thread thread;
    std::istringstream words(line);
    if (words >> thread.tid >> thread.name >> thread.wall >> thread.cpu >> thread.sleep >> thread.lock >> thread.read >>
        thread.disturbed)
      threads.push_back(thread);
  }
  return threads;
}

std::string reason_of(const Profile& profile, const Sample& sample) { return label_of(profile, sample, "reason"); }

class Waits : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = no_privilege_to_sample(); !reason.empty()) GTEST_SKIP() << reason;
    folder_ = testing::TempDir() + fmt::format("windlass-waits-{}", getpid());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  // The profile, and what the shell command printed. WINDLASS is `windlass record` with its output.
  Profile record(const std::string& script) {
    const std::string path = folder_ + "/p.pb.gz";
    const double stolen_before = stolen_ns();
    const CommandResult done =
        run(fmt::format("WINDLASS='{} record {} -o {}'; {} 2>&1", WINDLASS_COMMAND, rate_option(), path, script));
    stolen_ = stolen_ns() - stolen_before;
    output_ = done.output;
    auto read = exporter::read_pprof_file(path);
    EXPECT_TRUE(read.has_value()) << output_;
    if (!read) return {};
    Profile profile = std::move(*read);
    EXPECT_EQ(profile.events.size(), events_);
    EXPECT_TRUE(profile.lost == 0 || events_ > 2) << output_;
    for (const Sample& sample : profile.samples) {
      EXPECT_EQ(sample.event == 1, !reason_of(profile, sample).empty());
      EXPECT_TRUE(sample.event == 0 || !has_frame(profile, sample, "__schedule"));
    }
    return profile;
  }

  // Of a thread's waits, those with this function; all, if it is empty.
  static double waited(const Profile& profile, std::uint32_t tid, std::string_view function = {},
                       std::string_view reason = {}) {
    double sum = 0;
    for (const Sample& sample : profile.samples) {
      if (sample.event != 1 || sample.tid != tid) continue;
      if (!function.empty() && !has_frame(profile, sample, function)) continue;
      if (!reason.empty() && reason_of(profile, sample) != reason) continue;
      sum += static_cast<double>(sample.value);
    }
    return sum;
  }

  // One in a hundred, and what passes at each wait between the clocks that are compared.
  static double tolerance(double ns, double waits) {
    return emulated() ? 0.03 * ns + 1e6 * waits : 0.01 * ns + 6e4 * waits;
  }

  std::string folder_, output_;
  double stolen_ = 0;       // ns, while the workload ran
  std::size_t events_ = 2;  // of the recording
};

TEST_F(Waits, AddUpToTheWallClock) {
  const Profile profile = record("$WINDLASS --off-cpu -- " WINDLASS_WAITS " 60");
  const std::vector<Thread> threads = threads_in(output_);
  ASSERT_EQ(threads.size(), 3u) << output_;
  for (const Thread& thread : threads) {
    SCOPED_TRACE(thread.name);
    const double beside = thread.disturbed + stolen_;
    EXPECT_NEAR(waited(profile, thread.tid, thread.name), thread.wall - thread.cpu,
                tolerance(thread.wall, 120) + stolen_);
    EXPECT_NEAR(waited(profile, thread.tid, "wait_sleep"), thread.sleep, tolerance(thread.sleep, 120) + beside);
    EXPECT_NEAR(waited(profile, thread.tid, "wait_lock"), thread.lock, tolerance(thread.lock, 60) + beside);
    EXPECT_NEAR(waited(profile, thread.tid, "wait_read"), thread.read, tolerance(thread.read, 60) + beside);
    // For another reason a thread may lose its CPU at any time.
    const double idle = thread.sleep + thread.lock + thread.read;
    const double by_reason = waited(profile, thread.tid, "wait_sleep", "clock_nanosleep") +
                             waited(profile, thread.tid, "wait_lock", "futex") +
                             waited(profile, thread.tid, "wait_read", "read");
    EXPECT_LE(by_reason, idle + tolerance(idle, 120));
    EXPECT_GE(by_reason + beside, 0.5 * idle);
  }
  std::uint64_t whole = 0, all = 0;
  for (const Sample& sample : profile.samples) {
    if (sample.event != 1) continue;
    all += sample.count;
    whole += profile::is_whole(sample.end) ? sample.count : 0;
  }
  EXPECT_GT(all, 200u);
  EXPECT_GE(whole, emulated() ? all - all / 50 : all) << output_;
}

// These have left their CPU before anybody looked. Their stacks are read while they wait.
TEST_F(Waits, ThreadsThatWaitAlreadyAreFound) {
  const std::string log = folder_ + "/log";
  // To start a recording takes seconds on some machines, so the program waits until it has begun.
  const Profile profile =
      record(fmt::format(WINDLASS_WAITS " 3 600000 & child=$!; sleep 0.3; $WINDLASS --off-cpu -p $child > {} 2>&1 & "
                                        "for i in $(seq 3000); do grep -q ' samples' {} && break; sleep 0.1; done; "
                                        "sleep 0.5; kill -USR1 $child; wait; cat {}",
                         log, log, log));
  const std::vector<Thread> threads = threads_in(output_);
  ASSERT_EQ(threads.size(), 3u) << output_;
  for (const Thread& thread : threads) {
    SCOPED_TRACE(thread.name);
    EXPECT_GT(waited(profile, thread.tid, "wait_begin", "clock_nanosleep"), 1e8) << output_;
  }
  // A signal wakes them. A thread that loses the CPU while the kernel writes its registers has nothing to walk by.
  // On an emulated machine a walk takes longer than a tick, so there is no time left for each.
  std::size_t without = 0;
  for (const Sample& sample : profile.samples) {
    if (sample.event != 1) continue;
    const bool is_late = emulated() && sample.end == WL_END_NO_TIME;
    EXPECT_TRUE(profile::is_whole(sample.end) || sample.end == WL_END_REGISTER_LOST || is_late)
        << profile::end_text(sample.end);
    without += profile::is_whole(sample.end) ? 0 : 1;
  }
  EXPECT_LE(without, 3u) << output_;
}

// A thread that waits when the recording ends has waited until then.
TEST_F(Waits, GoOnUntilTheRecordingEnds) {
  const Profile profile =
      record(WINDLASS_WAITS " 1 60000 & child=$!; sleep 0.3; $WINDLASS --off-cpu --duration 1 -p $child; kill $child");
  std::map<std::uint32_t, double> by_thread;
  for (const Sample& sample : profile.samples)
    if (sample.event == 1) by_thread[sample.tid] += static_cast<double>(sample.value);
  ASSERT_EQ(by_thread.size(), 3u) << output_;
  // A busy machine may stop the recorder for a while between its first clock and its first look at the threads.
  for (const auto& [tid, ns] : by_thread) {
    EXPECT_LE(ns, 1.2 * static_cast<double>(profile.duration_ns)) << tid;
    EXPECT_GE(ns, 0.5 * static_cast<double>(profile.duration_ns)) << tid;
  }
}

TEST_F(Waits, ShortOnesAreLeftOutIfAskedFor) {
  const Profile profile = record("$WINDLASS --off-cpu=100ms -- " WINDLASS_WAITS " 3 300");
  for (const Sample& sample : profile.samples) {
    if (sample.event != 1) continue;
    EXPECT_GE(sample.value, sample.count * 100'000'000);
    EXPECT_FALSE(has_frame(profile, sample, "wait_sleep") && sample.count > 0 && sample.value < 100'000'000);
  }
  const std::vector<Thread> threads = threads_in(output_);
  EXPECT_EQ(threads.size(), 3u) << output_;
  // A sleep of 300 ms is never shorter, and on a busy machine longer. A thread that loses the CPU between the begin of
  // the sleep and the switch waits less than that from the switch on.
  for (const Thread& thread : threads) {
    EXPECT_GE(waited(profile, thread.tid, "wait_begin"), 1.5e8) << thread.name;
    EXPECT_LE(waited(profile, thread.tid, "wait_begin"), thread.wall + tolerance(thread.wall, 1)) << thread.name;
  }
}

TEST_F(Waits, AStoppedThreadIsSaidToBe) {
  const Profile profile =
      record(WINDLASS_WAITS
             " 1 60000 & child=$!; sleep 0.3; kill -STOP $child; $WINDLASS --off-cpu --duration 1 -p "
             "$child; kill -KILL $child");
  std::set<std::string> reasons;
  for (const Sample& sample : profile.samples)
    if (sample.event == 1) reasons.insert(reason_of(profile, sample));
  EXPECT_EQ(reasons, std::set<std::string>{"stopped"}) << output_;
}

// A tracepoint that lies in the work of the program of waits itself does not mix the samples up.
TEST_F(Waits, AreThemselvesBesideATracepointInTheirWork) {
#ifndef __x86_64__
  GTEST_SKIP() << "the tracepoint is one of x86-64";
#endif
  events_ = 3;
  const Profile profile =
      record("$WINDLASS -e cpu -e off-cpu -e exceptions:page_fault_kernel -- " WINDLASS_WAITS " 60");
  for (const Thread& thread : threads_in(output_)) {
    SCOPED_TRACE(thread.name);
    const double beside = thread.disturbed + stolen_;
    EXPECT_NEAR(waited(profile, thread.tid, "wait_sleep"), thread.sleep, tolerance(thread.sleep, 120) + beside);
    EXPECT_NEAR(waited(profile, thread.tid, "wait_read"), thread.read, tolerance(thread.read, 60) + beside);
  }
}

// However many there are: the time stays, stacks are walked up to a bound.
TEST_F(Waits, ManySwitchesKeepTheirTime) {
  const Profile profile = record("$WINDLASS --off-cpu -- " WINDLASS_SWITCHES " 2");
  std::size_t threads = 0;
  std::istringstream lines(output_);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::uint32_t tid = 0;
    double wall = 0, cpu = 0;
    if (!(words >> tid >> wall >> cpu)) continue;
    ++threads;
    EXPECT_NEAR(waited(profile, tid), wall - cpu, (emulated() ? 0.4 : 0.1) * wall + stolen_) << tid;
  }
  EXPECT_EQ(threads, 2u) << output_;
  double sum = 0, bounded = 0;
  for (const Sample& sample : profile.samples) {
    if (sample.event != 1) continue;
    sum += static_cast<double>(sample.value);
    if (sample.end == WL_END_NO_TIME) bounded += static_cast<double>(sample.value);
  }
  fmt::print("{:.2f}% of {:.2f} s without a stack; {}", 100 * bounded / sum, sum / 1e9, output_);
}

}  // namespace
}  // namespace windlass::test
