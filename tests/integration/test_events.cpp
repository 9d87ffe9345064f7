// `windlass record -e ...` of a program that does known things in known functions.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "profiler/export/pprof.h"
#include "profiler/profile/profile.h"
#include "support/emulated.h"
#include "support/privilege.h"
#include "support/profile_frames.h"
#include "support/run_command.h"

namespace windlass::test {
namespace {

using profile::Profile;
using profile::Sample;

constexpr unsigned kPages = 1500, kCalls = 4000, kForks = 7;
const std::string kProgram = fmt::format(" -- {} {} {} {}", WINDLASS_EVENTS, kPages, kCalls, kForks);

class Events : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = no_privilege_to_sample(); !reason.empty()) GTEST_SKIP() << reason;
    path_ = testing::TempDir() + fmt::format("windlass-events-{}.pb.gz", getpid());
  }
  void TearDown() override { std::filesystem::remove(path_); }

  void record(const std::string& options) {
    done_ = run(fmt::format("{} record -o {} {} 2>&1", WINDLASS_COMMAND, path_, options + kProgram));
    auto read = exporter::read_pprof_file(path_);
    ASSERT_TRUE(read.has_value()) << done_.output;
    profile_ = std::move(*read);
    EXPECT_EQ(done_.status, 0) << done_.output;
  }
  // Of the event of this name, the samples with this function; all, if it is empty.
  [[nodiscard]] std::uint64_t count(std::string_view event, std::string_view function = {}) const {
    std::uint64_t sum = 0;
    for (const Sample& sample : profile_.samples)
      if (profile_.events[sample.event].name == event && (function.empty() || has_frame(profile_, sample, function)))
        sum += sample.count;
    return sum;
  }
  [[nodiscard]] double whole(std::string_view event) const {
    std::uint64_t all = 0, whole = 0;
    for (const Sample& sample : profile_.samples) {
      if (profile_.events[sample.event].name != event) continue;
      all += sample.count;
      whole += profile::is_whole(sample.end) ? sample.count : 0;
    }
    return all == 0 ? 0 : static_cast<double>(whole) / static_cast<double>(all);
  }

  std::string path_;
  CommandResult done_;
  Profile profile_;
};

TEST_F(Events, EveryPageFaultOfAFunctionIsThere) {
  record("-e page-faults");
  EXPECT_EQ(profile_.events.size(), 1u);
  EXPECT_GE(count("page-faults", "touch_pages"), kPages);
  EXPECT_LE(count("page-faults", "touch_pages"), kPages + 10);  // its own code's
  EXPECT_GT(count("page-faults"), count("page-faults", "touch_pages"));
  EXPECT_EQ(whole("page-faults"), 1) << done_.output;
}

// One in 50, each of which stands for 50.
TEST_F(Events, APeriodIsMultipliedBack) {
  record("-e page-faults@50");
  const double counted = static_cast<double>(count("page-faults", "touch_pages"));
  EXPECT_NEAR(counted, kPages, 150);
  EXPECT_EQ(count("page-faults") % 50, 0u);
}

TEST_F(Events, EveryCallOfAProbedFunctionIsThere) {
  const std::string probe = fmt::format("uprobe:{}:probed", WINDLASS_EVENTS);
  const std::string returns = fmt::format("uretprobe:{}:probed", WINDLASS_EVENTS);
  record(fmt::format("-e {} -e {}", probe, returns));
  EXPECT_EQ(profile_.lost, 0u);
  for (const std::string& event : {probe, returns}) {
    SCOPED_TRACE(event + done_.output);
    EXPECT_EQ(count(event), 2 * kCalls);
    EXPECT_EQ(count(event, "call_probed"), 2 * kCalls);
    EXPECT_EQ(count(event, "main"), kCalls);
    EXPECT_EQ(whole(event), 1);
  }
}

// The kernel has put its own address in place of these functions' return addresses.
TEST_F(Events, StacksGoOnBelowFunctionsWhoseReturnsAreProbed) {
  const std::string probe = fmt::format("uprobe:{}:probed", WINDLASS_EVENTS);
  const std::string inner = fmt::format("uretprobe:{}:call_probed", WINDLASS_EVENTS);
  record(fmt::format("-e {} -e {} -e uretprobe:{}:main", probe, inner, WINDLASS_EVENTS));
  SCOPED_TRACE(done_.output);
  EXPECT_EQ(count(probe), 2 * kCalls);
  EXPECT_EQ(count(probe, "call_probed"), 2 * kCalls);
  EXPECT_EQ(count(probe, "main"), kCalls);
  EXPECT_EQ(whole(probe), 1);
  EXPECT_EQ(count(inner, "main"), 1u);
  EXPECT_EQ(whole(inner), 1) << "older kernels list a return while it is sampled";
}

// Both threads call it with each number below kCalls, once.
TEST_F(Events, AnArgumentOfAProbedFunctionIsSummed) {
  const std::string probe = fmt::format("uprobe:{}:probed", WINDLASS_EVENTS), argument = probe + ":arg1";
  record(fmt::format("-e {} -e {} -e cpu", probe, argument));
  std::uint64_t value = 0, of_main = 0;
  for (const Sample& sample : profile_.samples) {
    if (profile_.events[sample.event].name != argument) continue;
    value += sample.value;
    if (has_frame(profile_, sample, "main")) of_main += sample.value;
  }
  const std::uint64_t sum = std::uint64_t{kCalls} * (kCalls - 1) / 2;
  EXPECT_EQ(count(argument), 2 * kCalls) << done_.output;
  EXPECT_EQ(value, 2 * sum) << done_.output;
  EXPECT_EQ(of_main, sum);
  EXPECT_EQ(count(probe), 2 * kCalls) << "the place has two probes";
  EXPECT_EQ(whole(argument), 1);
}

TEST_F(Events, SeveralAtOnce) {
  record("-e cpu -e sched:sched_process_fork -e context-switches -e off-cpu -e page-faults");
  ASSERT_EQ(profile_.events.size(), 5u);
  EXPECT_EQ(count("sched:sched_process_fork", "make_children"), kForks);
  EXPECT_EQ(count("sched:sched_process_fork", "main"), kForks + 1) << "and a thread";
  EXPECT_EQ(count("sched:sched_process_fork"), kForks + 1);
  EXPECT_GE(count("context-switches", "make_children"), 1u);
  EXPECT_GE(count("off-cpu", "make_children"), count("context-switches", "make_children") / 2);
  EXPECT_GE(count("page-faults", "touch_pages"), kPages);
  EXPECT_GT(whole("off-cpu"), emulated() ? 0.95 : 0.999);
  EXPECT_NE(done_.output.find("sched:sched_process_fork"), std::string::npos) << done_.output;
}

// The kernel's function behind fork() and pthread_create().
TEST_F(Events, EveryCallOfAProbedKernelFunctionIsThere) {
  if (access("/sys/bus/event_source/devices/kprobe", F_OK) != 0) GTEST_SKIP() << "this kernel has no kprobes";
  record("-e kprobe:kernel_clone -e kretprobe:kernel_clone");
  for (const char* event : {"kprobe:kernel_clone", "kretprobe:kernel_clone"}) {
    EXPECT_EQ(count(event, "make_children"), kForks) << event << done_.output;
    EXPECT_EQ(count(event), kForks + 1) << event << ": and a thread";
    EXPECT_EQ(whole(event), 1) << event;
  }
  EXPECT_GE(count("kretprobe:kernel_clone", "[kernel]") + count("kprobe:kernel_clone", "kernel_clone"), 1u)
      << "the stack begins in the kernel";
}

// The filter is the kernel side's. What it leaves out is no sample, and what it takes is all there.
TEST_F(Events, AFilterTakesWhatItSays) {
  const auto with = [](const char* point, const char* filter) { return fmt::format("{}/{}/", point, filter); };
  const char* const fork = "sched:sched_process_fork";
#if defined(__x86_64__)
  const char* const fault = "exceptions:page_fault_user";
  const std::string writes = with(fault, "error_code & 2"), reads = with(fault, "error_code & 4 && !(error_code & 2)");
#else  // which has no such tracepoint
  const std::string writes = "page-faults", reads = writes;
#endif
  const std::string own = with(fork, R"(parent_comm == "events")");
  record(fmt::format("-e '{}' -e '{}'", own, writes));
  EXPECT_EQ(count(own, "make_children"), kForks);
  EXPECT_EQ(count(own), kForks + 1) << "and a thread";
  EXPECT_EQ(whole(own), 1);
  const std::string numbers = with(fork, R"(parent_pid > 0 && !(child_pid < 2 || parent_comm == "even"))");
#if defined(__x86_64__)  // error_code is the processor's
  EXPECT_GE(count(writes, "touch_pages"), kPages);
  EXPECT_LE(count(writes, "touch_pages"), kPages + 10) << "its own code's";
#endif
  record(fmt::format("-e '{}' -e '{}'", numbers, reads));
  EXPECT_EQ(count(numbers), kForks + 1);
#if defined(__x86_64__)
  EXPECT_LE(count(reads, "touch_pages"), 10u) << "its own code's";
  EXPECT_GT(count(reads), 0u);
#endif
  const std::string others = with(fork, R"(parent_comm != "events")");
  record(fmt::format("-e cpu -e '{}'", others));
  EXPECT_EQ(count(others), 0u) << done_.output;
}

TEST_F(Events, WhatCannotBeRecordedIsSaid) {
  const auto said = [&](const std::string& options) {
    return run(fmt::format("{} record -o {} {} -- true 2>&1", WINDLASS_COMMAND, path_, options)).output;
  };
  const auto has = [](const std::string& text, std::string_view part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  has(said("-e nonsense"), "there is no event nonsense. Way out: one of cpu, off-cpu, lock, page-faults");
  has(said("-e page-faults@0"), "page-faults@0 has no period");
  has(said("-e sched:no_such_point"), "the event sched:no_such_point cannot be recorded");
  has(said("-e 'sched:../../x'"), "is no tracepoint");
  has(said("-e 'sched:sched_switch/prio < 5/'"), "a filter needs one of the fields prev_comm, prev_pid, prev_prio,");
  has(said("-e 'sched:sched_switch/prio < 5/'"), "/ [usage]\n");
  has(said("-e 'sched:sched_switch/prev_prio < ten/'"), "is needed at \"ten\". Way out: a filter as /");
  has(said("-e kprobe:no_such_function_of_the_kernel"), "cannot be recorded: ");
  has(said("-e uprobe:/bin/true"), "names no function");
  has(said("-e uretprobe:/bin/true:main:arg1"), "the arguments are gone");
  has(said("-e uprobe:/bin/no-such-file:main"), "the file, or the function in its symbols, is not there");
  has(said("-e cpu -e cpu"), "the event cpu is chosen twice");
  has(said("-e 'sched:sched_switch/prev_prio < 5/' -e sched:sched_switch"),
      "the tracepoint sched:sched_switch is chosen twice. Way out: once, with the filters joined by ||");
  has(said("-e off-cpu -e cpu -e off-cpu"), "the event off-cpu is chosen twice");
  has(said("--off-cpu=soon"), "soon is no number of seconds above 0");
}

// Each passing of a static probe is a sample, at each of its places. A probe with a semaphore is passed once somebody
// listens, and not before.
TEST_F(Events, EveryPassingOfAStaticProbeIsThere) {
  done_ = run(fmt::format("{} record -o {} -e usdt:{}:test:always -e usdt:{}:test:guarded -- {} 3001 2>&1",
                          WINDLASS_COMMAND, path_, WINDLASS_USDT, WINDLASS_USDT, WINDLASS_USDT));
  EXPECT_EQ(done_.status, 0) << done_.output;
  EXPECT_NE(done_.output.find("guarded 3001"), std::string::npos) << done_.output;
  auto read = exporter::read_pprof_file(path_);
  ASSERT_TRUE(read.has_value()) << done_.output;
  profile_ = std::move(*read);
  const std::string always = "usdt:" WINDLASS_USDT ":test:always", guarded = "usdt:" WINDLASS_USDT ":test:guarded";
  EXPECT_EQ(count(always), 3001u);
  EXPECT_EQ(count(always, "probe_even"), 1501u);
  EXPECT_EQ(count(always, "probe_odd"), 1500u);
  EXPECT_EQ(count(guarded, "probe_guarded"), 3001u);
  EXPECT_EQ(whole(always), 1);
  EXPECT_NE(run(WINDLASS_USDT " 5").output.find("guarded 0"), std::string::npos);
}

TEST_F(Events, AStaticProbeThatIsNotThereIsRefused) {
  done_ =
      run(fmt::format("{} record -o {} -e usdt:{}:test:nobody -- true 2>&1", WINDLASS_COMMAND, path_, WINDLASS_USDT));
  EXPECT_NE(done_.status, 0);
  EXPECT_NE(done_.output.find("the static probe in its notes, is not there"), std::string::npos) << done_.output;
}

// As an ordinary user, who may not load BPF programs: by perf events. CAP_PERFMON alone opens the kernel's events as
// kernel.perf_event_paranoid=1 does.
class EventsWithoutBpf : public Events {
 protected:
  void SetUp() override {
    if (run("setpriv --reuid=65534 --regid=65534 --clear-groups true 2>&1").status != 0)
      GTEST_SKIP() << "no privilege to become somebody else";
    folder_ =
        testing::TempDir() + fmt::format("windlass-plain-events-{}", getpid());  // the build's may be out of reach
    std::filesystem::create_directory(folder_);
    std::filesystem::permissions(folder_, std::filesystem::perms::all);
    std::filesystem::copy_file(WINDLASS_COMMAND, folder_ + "/windlass");
    std::filesystem::copy_file(WINDLASS_EVENTS, folder_ + "/events");
    path_ = folder_ + "/a.pb.gz";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void record_as_nobody(std::string_view capabilities, const std::string& options, const std::string& command) {
    done_ =
        run(fmt::format("setpriv --reuid=65534 --regid=65534 --clear-groups {} {}/windlass record -o {} {} -- {} 2>&1",
                        capabilities, folder_, path_, options, command));
  }
  void read() {
    auto read = exporter::read_pprof_file(path_);
    ASSERT_TRUE(read.has_value()) << done_.output;
    profile_ = std::move(*read);
  }

  static constexpr const char* kNone = "--bounding-set -all";
  static constexpr const char* kPerfmon =
      "--inh-caps -all,+perfmon --ambient-caps -all,+perfmon --bounding-set -all,+perfmon";
  std::string folder_;
};

TEST_F(EventsWithoutBpf, ABurstOfPageFaultsIsNotLost) {
  constexpr unsigned kMany = 60'000;
  record_as_nobody(kNone, "-e page-faults", fmt::format("{}/events {} 1 1", folder_, kMany));
  if (done_.output.find("perf_event_paranoid is 3") != std::string::npos) GTEST_SKIP() << done_.output;
  ASSERT_EQ(done_.status, 0) << done_.output;
  read();
  EXPECT_NEAR(count("page-faults", "touch_pages"), kMany, kMany / 10.0) << done_.output;
  EXPECT_LT(profile_.samples.size(), kMany / 10) << "stacks are copied for a part of the faults";
}

TEST_F(EventsWithoutBpf, PageFaultsAreCountedOrLost) {
  record_as_nobody(kNone, "-e cpu -e page-faults@1", fmt::format("{}/events {} 1 1", folder_, kPages));
  if (done_.output.find("perf_event_paranoid is 3") != std::string::npos) GTEST_SKIP() << done_.output;
  ASSERT_EQ(done_.status, 0) << done_.output;
  read();
  ASSERT_EQ(profile_.events.size(), 2u);
  EXPECT_GT(count("page-faults", "touch_pages"), 0u);
  EXPECT_LE(count("page-faults", "touch_pages"), kPages + 10);
  EXPECT_GE(count("page-faults", "touch_pages") + profile_.lost, kPages) << done_.output;
  EXPECT_EQ(done_.output.find("Way out: a lower -F, EVENT@N") != std::string::npos, profile_.lost != 0) << done_.output;
}

// Nothing runs on the last CPU behind the faults, so no record tells there how many were lost.
TEST_F(EventsWithoutBpf, WhatIsLostLastIsCounted) {
  const long last = sysconf(_SC_NPROCESSORS_ONLN) - 1;
  record_as_nobody(
      kNone, "-e page-faults@1",
      fmt::format("taskset -c 0 sh -c 'kill -STOP $PPID; taskset -c {} {}/events {} 0 0 0; kill -CONT $PPID'", last,
                  folder_, kPages));
  if (done_.output.find("perf_event_paranoid is 3") != std::string::npos) GTEST_SKIP() << done_.output;
  ASSERT_EQ(done_.status, 0) << done_.output;
  read();
  EXPECT_LT(count("page-faults", "touch_pages"), kPages / 2) << "nobody emptied the ring";
  EXPECT_GE(count("page-faults", "touch_pages") + profile_.lost, kPages) << done_.output;
}

TEST_F(EventsWithoutBpf, WaitsLastAsLongAsTheyDo) {
  record_as_nobody(kPerfmon, "--off-cpu -e cpu", "sh -c 'sleep 0.5; sleep 0.5'");
  ASSERT_EQ(done_.status, 0) << done_.output;
  read();
  std::uint64_t longest = 0;
  for (const Sample& sample : profile_.samples)
    if (profile_.events[sample.event].name == "off-cpu" && has_frame(profile_, sample, "clock_nanosleep"))
      longest += sample.value;
  EXPECT_GE(longest, 1'000'000'000u) << done_.output;
  EXPECT_GE(count("off-cpu", "clock_nanosleep"), 2u);
  record_as_nobody(kPerfmon, "-e context-switches@1 -e cpu-migrations@1", "sh -c 'sleep 0.1; sleep 0.1'");
  ASSERT_EQ(done_.status, 0) << done_.output;
  read();
  EXPECT_GE(count("context-switches", "clock_nanosleep"), 2u) << done_.output;
}

TEST_F(EventsWithoutBpf, WhatNeedsProgramsIsRefused) {
  for (const auto& [options, said] :
       {std::pair{"--lock", "the event lock can only be recorded with BPF"},
        {"-e sched:sched_switch", "the event sched:sched_switch can only be recorded"},
        {"-e uprobe:/bin/true:main", "the event uprobe:/bin/true:main can only be"},
        {"--off-cpu --wakers", "--wakers can only be recorded with BPF"},
        {"--off-cpu -e context-switches", "off-cpu together with context-switches can only be"},
        {"--comm true", "a choice of threads can only be recorded with BPF"}}) {
    record_as_nobody(kNone, options, "true");
    EXPECT_EQ(done_.status, 3) << done_.output;
    EXPECT_NE(done_.output.find(said), std::string::npos) << done_.output;
    EXPECT_NE(done_.output.find("Way out: "), std::string::npos) << done_.output;
  }
}

}  // namespace
}  // namespace windlass::test
