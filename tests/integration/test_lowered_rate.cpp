// A recorder that gets no CPU time loses no samples: the rate is lowered before the ring is full, and each sample
// counts for those that are left out.
#include <sys/types.h>

#include <cstdio>

#include "integration/recording.h"
#include "os/proc_file.h"

namespace windlass::test {
namespace {

constexpr unsigned kFast = 9'999;  // its ring has half of its room for a second of these stacks

class LoweredRate : public Record {
 protected:
  // The command that this recorder runs; it is given some time to start that.
  static pid_t child_of(pid_t recorder) {
    for (int i = 0; i < 3000; ++i) {
      for (const pid_t one : os::list_ids("/proc")) {
        const std::string status = os::read_proc_file(fmt::format("/proc/{}/status", one));
        if (status.starts_with("Name:\tdistinct_stacks\n") &&
            status.find(fmt::format("\nPPid:\t{}\n", recorder)) != std::string::npos)
          return one;
      }
      std::this_thread::sleep_for(10ms);
    }
    return -1;
  }
};

// At this rate the ring is full after 1.5 s of the program's time.
TEST_F(LoweredRate, AStoppedRecorderLosesNoSamples) {
  constexpr double kSeconds = 4;
  Process recorder({WINDLASS_COMMAND, "record", "-F", std::to_string(kFast), "-v", "-o", profile_path(), "--",
                    WINDLASS_DISTINCT_STACKS, std::to_string(kSeconds)},
                   log());
  const pid_t target = child_of(recorder.pid());
  ASSERT_GT(target, 0) << text(log());
  while (cpu_seconds(target) < 0.3) std::this_thread::sleep_for(10ms);
  recorder.signal(SIGSTOP);
  while (cpu_seconds(target) < 3.7) std::this_thread::sleep_for(10ms);
  recorder.signal(SIGCONT);
  ASSERT_EQ(recorder.wait(), 0) << text(log());
  const Profile profile = read();
  EXPECT_EQ(profile.lost, 0U) << text(log());
  double used = 0;
  const std::string said = text(log());
  const std::size_t at = said.find("used ");
  ASSERT_TRUE(at != std::string::npos && std::sscanf(&said[at], "used %lf", &used) == 1) << said;
  std::uint64_t samples = 0;
  for (const auto& sample : profile.samples) samples += sample.count;
  EXPECT_GT(static_cast<double>(samples), 0.1 * kFast * used) << said;
  EXPECT_LT(static_cast<double>(samples), 1.4 * kFast * used) << "samples count for more than they stand for" << said;
  EXPECT_NE(said.find("the rate was lowered for "), std::string::npos) << said;
  EXPECT_NE(said.find(", as the ring of samples was filling: a sample of that time counts for those left out, too."),
            std::string::npos)
      << said;
  ASSERT_EQ(profile.events.size(), 1U);
  EXPECT_EQ(profile.events[0].period, 1'000'000'000U / kFast) << "what each of them counts for";
  const auto lowered = [](const std::string& comment) { return comment.starts_with("the rate was lowered for "); };
  EXPECT_EQ(std::ranges::count_if(profile.comments, lowered), 1) << said;
}

}  // namespace
}  // namespace windlass::test
