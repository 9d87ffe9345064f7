// `windlass record --lock` of a program that knows how often its threads wait for a lock, and who ends each wait.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <sstream>
#include <string>
#include <string_view>
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

constexpr std::uint64_t kThreads = 3, kRounds = 10;  // of the workload

// What a thread of the workload says of itself, in ns.
struct Thread {
  std::uint32_t tid = 0;
  double mutex = 0, read_lock = 0;
  double disturbed = 0;  // of these, what may have passed beside the wait
  double on_cpu = 0;     // beside these, in the functions that wait
};

// A number of waits, and their time.
struct Sum {
  std::uint64_t count = 0;
  double ns = 0;
};

// Of the sample's frames the waker's, and the one that names it, alone; and all others.
struct Parts {
  Sample waker, wait;
  std::string name;  // "[held by locks]"; empty: there is no waker
};

class Locks : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = no_privilege_to_sample(); !reason.empty()) GTEST_SKIP() << reason;
    folder_ = testing::TempDir() + fmt::format("windlass-locks-{}", getpid());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  Profile record(const std::string& options, const std::string& command) {
    const std::string path = folder_ + "/p.pb.gz";
    const double stolen_before = stolen_ns();
    const CommandResult done =
        run(fmt::format("{} record {} {} -o {} -- {} 2>&1", WINDLASS_COMMAND, rate_option(), options, path, command));
    stolen_ = stolen_ns() - stolen_before;
    output_ = done.output;
    auto read = exporter::read_pprof_file(path);
    EXPECT_TRUE(read.has_value()) << output_;
    if (!read) return {};
    EXPECT_EQ(read->lost, 0u) << output_;
    std::istringstream lines(output_);
    for (std::string line; std::getline(lines, line);) {
      Thread thread;
      std::istringstream words(line);
      if (words >> thread.tid >> thread.mutex >> thread.read_lock >> thread.disturbed >> thread.on_cpu)
        threads_.push_back(thread);
    }
    return std::move(*read);
  }

  static std::string workload(std::uint64_t rounds = kRounds, int hold_ms = 30) {
    return fmt::format("{} {} {} {}", WINDLASS_LOCKS, kThreads, rounds, hold_ms);
  }

  static Parts parts_of(const Profile& profile, const Sample& sample) {
    Parts parts{sample, sample, ""};
    for (std::size_t i = 0; i < sample.locations.size(); ++i) {
      const auto& location = profile.locations[sample.locations[i]];
      if (location.module >= profile.modules.size() || profile.modules[location.module].path != "[waker]") continue;
      parts.name = profile.functions[location.lines.front().function].name;
      const auto after = std::next(sample.locations.begin(), static_cast<std::ptrdiff_t>(i) + 1);
      parts.waker.locations.assign(sample.locations.begin(), after);
      parts.wait.locations.assign(after, sample.locations.end());
      return parts;
    }
    parts.waker.locations.clear();
    return parts;
  }

  // The waits of an event in `function`; with `waker`: those that this function of another thread ended.
  static Sum sum_of(const Profile& profile, std::string_view event, std::string_view function,
                    std::string_view waker = {}, std::uint32_t tid = 0) {
    Sum sum;
    for (const Sample& sample : profile.samples) {
      if (profile.events[sample.event].name != event || (tid != 0 && sample.tid != tid)) continue;
      const Parts parts = parts_of(profile, sample);
      if (!function.empty() && !has_frame(profile, parts.wait, function)) continue;
      if (!waker.empty() && !has_frame(profile, parts.waker, waker)) continue;
      sum.count += sample.count;
      sum.ns += static_cast<double>(sample.value);
    }
    return sum;
  }

  // An emulated machine has no time for every walk: of one wait in ten at most the stack is missing, or the waker's.
  static bool is_late(const Sample& sample) { return emulated() && sample.end == WL_END_NO_TIME; }
  static bool is_waker_late(const Parts& parts) { return emulated() && parts.waker.locations.size() == 1; }
  static std::uint64_t untold(const Profile& profile, std::string_view event) {
    std::uint64_t late = 0, all = 0;
    for (const Sample& sample : profile.samples) {
      if (profile.events[sample.event].name != event) continue;
      all += sample.count;
      if (is_late(sample) || is_waker_late(parts_of(profile, sample))) late += sample.count;
    }
    EXPECT_LE(late, all / 10);
    return late;
  }
  // All are there but those that may be among the `untold`.
  static void expect_count(const Sum& sum, std::uint64_t count, std::uint64_t untold) {
    EXPECT_LE(sum.count, count);
    EXPECT_GE(sum.count + untold, count);
  }

  // One in a hundred, and what passes at each wait between the clocks that are compared.
  static double tolerance(double ns, double waits) {
    return emulated() ? 0.03 * ns + 1e6 * waits : 0.01 * ns + 6e4 * waits;
  }

  std::string folder_, output_;
  double stolen_ = 0;  // ns, while the workload ran
  std::vector<Thread> threads_;
};

// Waits on condition variables, for semaphores, at barriers and for the end of threads are no contentions.
TEST_F(Locks, AreCountedAndNothingElse) {
  const Profile profile = record("-e lock", workload());
  ASSERT_EQ(threads_.size(), kThreads) << output_;
  ASSERT_EQ(profile.events.size(), 1u);
  EXPECT_EQ(profile.events[0].counted, "contentions");
  SCOPED_TRACE(output_);
  const std::uint64_t late = untold(profile, "lock");
  expect_count(sum_of(profile, "lock", "wait_mutex"), kThreads * kRounds, late);
  expect_count(sum_of(profile, "lock", "wait_read_lock"), kThreads * kRounds, late);
  for (const char* other : {"wait_condition", "wait_semaphore", "wait_barrier"})
    EXPECT_EQ(sum_of(profile, "lock", other).count, 0u) << other << output_;
  for (const Thread& thread : threads_) {
    const Sum mutex = sum_of(profile, "lock", "wait_mutex", {}, thread.tid);
    const Sum read_lock = sum_of(profile, "lock", "wait_read_lock", {}, thread.tid);
    expect_count(mutex, kRounds, late);
    expect_count(read_lock, kRounds, late);
    // No more than passed on the wall clock. Meanwhile the thread may have lost its CPU, too.
    EXPECT_LE(mutex.ns, thread.mutex + thread.on_cpu);
    EXPECT_LE(read_lock.ns, thread.read_lock + thread.on_cpu);
    if (late != 0) continue;
    EXPECT_GE(mutex.ns + thread.disturbed, 0.5 * thread.mutex);
    EXPECT_GE(read_lock.ns + thread.disturbed, 0.5 * thread.read_lock);
  }
  for (const Sample& sample : profile.samples) {
    EXPECT_TRUE(profile::is_whole(sample.end) || is_late(sample)) << profile::end_text(sample.end);
    EXPECT_EQ(parts_of(profile, sample).name, "");
    EXPECT_FALSE(has_frame(profile, sample, "__schedule"));
  }
}

// The main thread passes the mutex to one thread in each round, and that one to the next.
TEST_F(Locks, HaveTheirHolders) {
  const Profile profile = record("--lock --lock-holders", workload());
  SCOPED_TRACE(output_);
  const std::uint64_t late = untold(profile, "lock");
  expect_count(sum_of(profile, "lock", "wait_mutex"), kThreads * kRounds, late);
  expect_count(sum_of(profile, "lock", "wait_mutex", "release_mutex"), kRounds, late);
  expect_count(sum_of(profile, "lock", "wait_mutex", "pass_mutex"), (kThreads - 1) * kRounds, late);
  expect_count(sum_of(profile, "lock", "wait_read_lock", "release_write_lock"), kThreads * kRounds, late);
  for (const Sample& sample : profile.samples) {
    if (profile.events[sample.event].name != "lock") continue;
    const Parts parts = parts_of(profile, sample);
    if (!has_frame(profile, parts.wait, "wait_mutex") || is_waker_late(parts)) continue;
    EXPECT_EQ(parts.name, "[held by locks]");
    EXPECT_EQ(has_frame(profile, parts.waker, "release_mutex"), has_frame(profile, parts.waker, "main"));
    EXPECT_EQ(has_frame(profile, parts.waker, "pass_mutex"), has_frame(profile, parts.waker, "worker"));
    EXPECT_FALSE(has_frame(profile, parts.waker, "try_to_wake_up"));
  }
}

// All waits, and those of locks beside them. Each can have its wakers or not.
TEST_F(Locks, AreAlsoTimeOffTheCpu) {
  for (const bool wakers : {false, true}) {
    SCOPED_TRACE(wakers);
    threads_.clear();
    const Profile profile =
        record(wakers ? "--off-cpu --wakers --lock" : "--off-cpu --lock --lock-holders", workload());
    const std::uint64_t late = untold(profile, "lock");
    for (const char* function : {"wait_mutex", "wait_read_lock"}) {
      const Sum lock = sum_of(profile, "lock", function);
      SCOPED_TRACE(function + output_);
      expect_count(lock, kThreads * kRounds, late);
      EXPECT_GE(sum_of(profile, "off-cpu", function).ns, lock.ns) << function << output_;
    }
    for (const Thread& thread : threads_) {
      if (late != 0) break;
      EXPECT_NEAR(sum_of(profile, "off-cpu", "wait_mutex", {}, thread.tid).ns, thread.mutex,
                  tolerance(thread.mutex, kRounds) + thread.disturbed + stolen_);
    }
    EXPECT_GE(sum_of(profile, "off-cpu", "wait_condition").count + untold(profile, "off-cpu"), kThreads * kRounds)
        << output_;
    EXPECT_EQ(sum_of(profile, "lock", "wait_condition").count, 0u) << output_;
    const char* with_wakers = wakers ? "off-cpu" : "lock";
    expect_count(sum_of(profile, with_wakers, "wait_mutex", "release_mutex"), kRounds, untold(profile, with_wakers));
    EXPECT_EQ(sum_of(profile, wakers ? "lock" : "off-cpu", "wait_mutex", "release_mutex").count, 0u) << output_;
  }
}

// A wait for the time to pass is ended by the clock's interrupt, whatever runs then.
TEST_F(Locks, WakersOfOtherWaitsAreNamed) {
  const Profile profile = record("--off-cpu --wakers", fmt::format("{} 60", WINDLASS_WAITS));
  // A thread that only loses its CPU is woken by nobody.
  Sum read, woken, slept, by_interrupt;
  for (const Sample& sample : profile.samples) {
    const std::string reason = label_of(profile, sample, "reason");
    const Parts parts = parts_of(profile, sample);
    if (reason == "read" && has_frame(profile, parts.wait, "wait_read")) {
      read.ns += static_cast<double>(sample.value);
      if (has_frame(profile, parts.waker, "main")) woken.ns += static_cast<double>(sample.value);
    }
    if (reason != "clock_nanosleep" || !has_frame(profile, sample, "wait_sleep")) continue;
    slept.ns += static_cast<double>(sample.value);
    if (parts.name == "[woken by an interrupt]") by_interrupt.ns += static_cast<double>(sample.value);
    EXPECT_FALSE(parts.name == "[woken by an interrupt]" && has_frame(profile, parts.waker, "spin"));
  }
  EXPECT_GT(woken.ns, 0) << output_;
  EXPECT_GE(woken.ns, 0.9 * read.ns) << output_;
  EXPECT_GT(by_interrupt.ns, 0) << output_;
  EXPECT_GE(by_interrupt.ns, 0.9 * slept.ns) << output_;
}

// A second and more for the mutex, 100 ms and somewhat more to read.
TEST_F(Locks, ShortWaitsAreLeftOutIfAskedFor) {
  const Profile profile = record("--lock=900ms --lock-holders", workload(2, 1000));
  EXPECT_EQ(sum_of(profile, "lock", "wait_mutex", "release_mutex").count, 2u) << output_;
  EXPECT_EQ(sum_of(profile, "lock", "wait_mutex").count, 2 * kThreads) << output_;
  EXPECT_EQ(sum_of(profile, "lock", "wait_read_lock").count, 0u) << output_;
}

TEST_F(Locks, OfTheKernelAreLocks) {
  const Profile profile = record("--lock --lock-holders", fmt::format("{} kernel", WINDLASS_LOCKS));
  EXPECT_GE(sum_of(profile, "lock", "append_byte", "write_much").count, 1u) << output_;
  // Others may be for the memory map, which the recorder reads.
  for (const Sample& sample : profile.samples) {
    if (profile.events[sample.event].name != "lock" || !has_frame(profile, sample, "append_byte")) continue;
    EXPECT_TRUE(has_frame(profile, sample, "rwsem_down_write_slowpath"));
  }
}

TEST_F(Locks, OptionsThatContradict) {
  const auto says = [](const std::string& options, std::string_view text) {
    const CommandResult done = run(fmt::format("{} record {} -- /bin/true 2>&1", WINDLASS_COMMAND, options));
    EXPECT_NE(done.output.find(text), std::string::npos) << done.output;
    EXPECT_NE(done.status, 0);
  };
  says("--wakers", "--wakers needs the event off-cpu. Way out: --off-cpu, too");
  says("--lock-holders", "--lock-holders needs the event lock. Way out: --lock, too");
  says("--off-cpu=1ms --lock", "--off-cpu and --lock have different times");
  says("--lock --no-symbols", "locks are told by the names of functions");
}

}  // namespace
}  // namespace windlass::test
