// Programs whose allocations are known, recorded.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <map>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "profiler/export/pprof.h"
#include "profiler/profile/profile.h"
#include "support/privilege.h"
#include "support/profile_frames.h"
#include "support/run_command.h"

namespace windlass::test {

using profile::Profile;
using profile::Sample;

struct Sums {
  double count = 0, bytes = 0;
};

// Blocks of one size.
struct Blocks {
  double size = 0, allocated = 0, in_use = 0;
};

// What the program says, by function.
inline std::map<std::string, std::vector<Blocks>> known_in(const std::string& output) {
  std::map<std::string, std::vector<Blocks>> known;
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string function;
    Blocks blocks;
    if (line.starts_with("known_") && words >> function >> blocks.size >> blocks.allocated >> blocks.in_use)
      known[function].push_back(blocks);
  }
  return known;
}

// What a program of mappings says, by function.
struct KnownMappings {
  double allocations = 0, bytes = 0, in_use = 0;
};
inline std::map<std::string, KnownMappings> mappings_in(const std::string& output) {
  std::map<std::string, KnownMappings> known;
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string function;
    KnownMappings mappings;
    if (line.starts_with("known_") && words >> function >> mappings.allocations >> mappings.bytes >> mappings.in_use)
      known[function] = mappings;
  }
  return known;
}

inline std::uint32_t event_named(const Profile& profile, std::string_view name) {
  for (std::uint32_t event = 0; event < profile.events.size(); ++event)
    if (profile.events[event].name == name) return event;
  ADD_FAILURE() << "no event " << name;
  return 0;
}

inline Sums sums_of(const Profile& profile, std::string_view event, std::string_view function) {
  const std::uint32_t number = event_named(profile, event);
  Sums sums;
  for (const Sample& sample : profile.samples) {
    if (sample.event != number || !has_frame(profile, sample, function)) continue;
    sums.count += static_cast<double>(sample.count);
    sums.bytes += static_cast<double>(sample.value);
  }
  return sums;
}

// What is expected of blocks, and the standard deviations. Of a block that is sampled with chance p, 1/p counts: the
// variance is (1 - p) / p. Rounding to a whole number adds at most 1/4 where it is a sample.
struct Expected {
  Sums mean, deviation;
};
inline Expected expected_of(const std::vector<Blocks>& all, double Blocks::*number, double period) {
  Expected expected;
  for (const Blocks& blocks : all) {
    const double n = blocks.*number, p = period <= 1 ? 1 : 1 - std::exp(-blocks.size / period);
    expected.mean.count += n;
    expected.mean.bytes += n * blocks.size;
    if (period <= 1) continue;
    expected.deviation.count += n * ((1 - p) / p + p / 4);
    expected.deviation.bytes += n * (blocks.size * blocks.size * (1 - p) / p + p / 4);
  }
  expected.deviation = {std::sqrt(expected.deviation.count), std::sqrt(expected.deviation.bytes)};
  return expected;
}

class Allocations : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = no_privilege_to_sample(); !reason.empty()) GTEST_SKIP() << reason;
    folder_ = testing::TempDir() + fmt::format("windlass-allocations-{}", getpid());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  Profile record(const std::string& options, const std::string& command, const std::string& environment = {}) {
    const std::string path = folder_ + "/p.pb.gz";
    output_ =
        run(fmt::format("{} {} record {} -o {} -- {} 2>&1", environment, WINDLASS_COMMAND, options, path, command))
            .output;
    auto read = exporter::read_pprof_file(path);
    EXPECT_TRUE(read.has_value()) << output_;
    return read ? std::move(*read) : Profile{};
  }

  // The same of a program that runs already. It begins once the recording has.
  Profile record_running(const std::string& options, const std::string& rounds, const std::string& environment = {}) {
    return record_process(options, fmt::format("{} {} {} 0 {}", environment, WINDLASS_ALLOCATIONS, rounds, gate()));
  }
  // Of a program that a shell starts which runs already. It begins once its functions are probed.
  Profile record_child(const std::string& options, const std::string& rounds) {
    return record_process(options, fmt::format("sh -c 'until [ -e {} ]; do sleep 0.1; done; {} {} 0 probed; true'",
                                               gate(), WINDLASS_ALLOCATIONS, rounds));
  }
  [[nodiscard]] std::string gate() const { return folder_ + "/gate"; }
  Profile record_process(const std::string& options, const std::string& process) {
    const std::string path = folder_ + "/p.pb.gz", log = folder_ + "/log";
    std::filesystem::remove(gate());
    output_ =
        run(fmt::format("{0} & program=$!; {2} record {3} -o {4} -p $program >{5} 2>&1 & recorder=$!; "
                        "for i in $(seq 600); do grep -q complete {5} && break; kill -0 $recorder || break; sleep 0.1; "
                        "done; touch {1}; wait; cat {5}",
                        process, gate(), WINDLASS_COMMAND, options, path, log))
            .output;
    auto read = exporter::read_pprof_file(path);
    EXPECT_TRUE(read.has_value()) << output_;
    return read ? std::move(*read) : Profile{};
  }

  // Each function has what the program says, within five standard deviations, which are none with a period of 1.
  void expect_known(const Profile& profile, double period, std::size_t functions = 13) {
    const auto known = known_in(output_);
    ASSERT_EQ(known.size(), functions) << output_;
    expect_all(profile, period, known,
               {std::pair{"alloc_space", &Blocks::allocated}, std::pair{"inuse_space", &Blocks::in_use}});
  }
  // Of a program that was probed from outside. Its child may have begun before it was probed, too.
  void expect_known_outside(const Profile& profile, double period, bool in_use) {
    auto known = known_in(output_);
    ASSERT_EQ(known.size(), 13u) << output_;
    const std::vector<Blocks> child = known["known_child"];
    known.erase("known_child");
    std::erase_if(known["known_forks"], [](const Blocks& blocks) { return blocks.size == 400; });
    EXPECT_LE(sums_of(profile, "alloc_space", "known_child").count,
              expected_of(child, &Blocks::allocated, period).mean.count * (period <= 1 ? 1 : 2));
    expect_all(without_child(profile), period, known, {std::pair{"alloc_space", &Blocks::allocated}});
    if (in_use) expect_all(without_child(profile), period, known, {std::pair{"inuse_space", &Blocks::in_use}});
    EXPECT_EQ(profile.events.size(), in_use ? 3u : 2u);
  }
  static Profile without_child(Profile profile) {
    std::vector<Sample> rest;
    for (const Sample& sample : profile.samples)
      if (!has_frame(profile, sample, "known_child")) rest.push_back(sample);
    profile.samples = std::move(rest);
    return profile;
  }
  void expect_all(const Profile& profile, double period, const std::map<std::string, std::vector<Blocks>>& known,
                  std::initializer_list<std::pair<const char*, double Blocks::*>> events) {
    for (const auto& [function, blocks] : known) {
      SCOPED_TRACE(function);
      for (const auto& [event, number] : events) {
        SCOPED_TRACE(event);
        const Sums found = sums_of(profile, event, function);
        const Expected expected = expected_of(blocks, number, period);
        EXPECT_NEAR(found.count, expected.mean.count, 5 * expected.deviation.count);
        EXPECT_NEAR(found.bytes, expected.mean.bytes, 5 * expected.deviation.bytes);
      }
    }
  }

  std::string folder_, output_;
};

}  // namespace windlass::test
