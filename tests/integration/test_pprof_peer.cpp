// The profile as other implementations of the format read it: npm's pprof-format, fetched by name, version and hash,
// and pprof itself, which Go has.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>

#include <fmt/format.h>

#include "profiler/export/folded.h"
#include "profiler/export/frames.h"
#include "profiler/export/labels.h"
#include "profiler/export/pprof.h"
#include "support/events_profile.h"
#include "support/synthetic_profile.h"
#include "support/timed_profile.h"

namespace windlass::exporter {
namespace {

std::string output_of(const std::string& command) {
  std::string got;
  std::FILE* pipe = ::popen(command.c_str(), "r");
  char buffer[65536];
  for (std::size_t n; pipe != nullptr && (n = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;) got.append(buffer, n);
  EXPECT_TRUE(pipe != nullptr && ::pclose(pipe) == 0) << command << "\n" << got;
  return got;
}

// What read_pprof.js has to print.
std::string expected(const profile::Profile& p) {
  std::string text = fmt::format(
      "types samples/count cpu/nanoseconds\ndefault cpu\nperiod cpu/nanoseconds {}\n"
      "time {} duration {}\n",
      p.events.front().period, p.start_unix_ns, p.duration_ns);
  for (const auto& comment : p.comments) text += "comment " + comment + "\n";
  text += fmt::format("comment windlass: lost samples {}\n", p.lost);
  for (const auto& m : p.modules)
    text += fmt::format("mapping {} {} {} {} {}\n", m.path, m.build_id, m.begin, m.end, m.file_offset);
  for (const auto& sample : p.samples) {
    text += fmt::format("sample {}/{} pid={} tid={} comm={}", sample.count, sample.count * p.events.front().period,
                        sample.pid, sample.tid, p.strings[sample.comm]);
    if (profile::is_truncated(sample.end))
      text += fmt::format(" truncated={}", profile::end_text(sample.end));
    else if (sample.end != WL_END_COMPLETE)
      text += fmt::format(" end={}", profile::end_text(sample.end));
    if (sample.certainty != WL_DESCRIBED)
      text += fmt::format(" certainty={}", profile::certainty_text(sample.certainty));
    std::string stack;
    for (const auto id : sample.locations) {
      const auto& location = p.locations[id];
      std::string lines;
      for (const auto& line : location.lines)
        lines += fmt::format("{}{}:{}", lines.empty() ? "" : "<", p.functions[line.function].name, line.line);
      if (lines.empty()) lines = unnamed_frame(p, location) + ":0";
      stack += fmt::format("{}{}@{}", stack.empty() ? "" : ";", lines, location.address);
    }
    text += " | " + stack + "\n";
  }
  return text;
}

TEST(PprofPeer, ReadsEveryFact) {
  if (std::system("command -v node >/dev/null && command -v npm >/dev/null") != 0) GTEST_SKIP() << "no node or npm";
  const std::string package = WINDLASS_PEER_DIRECTORY "/pprof-format";
  const int fetched =
      std::system(("test -f " + package +
                   "/.integrity || sh " WINDLASS_FETCH " pprof-format 2.3.2 "
                   "sha512-fcMM+sgKMOveSurz7i0BMHfy1hHNnI9+VWjd4kdclqQjSTuiHWaP69DGwvkw3zcLkM/F76LhVIKvPyrxmp6iiw== " +
                   package)
                      .c_str());
  if (WIFEXITED(fetched) && WEXITSTATUS(fetched) == 1) GTEST_SKIP() << "npm cannot fetch pprof-format";
  ASSERT_EQ(fetched, 0);

  const auto profile = testing::synthetic_profile({.truncated = 0.2});
  const std::string file = WINDLASS_PEER_DIRECTORY "/synthetic.pb.gz";
  ASSERT_TRUE(write_pprof_file(profile, file).has_value());
  std::istringstream a(expected(profile)), b(output_of("node " WINDLASS_READ_PPROF " " + package + " " + file));
  std::size_t number = 0;
  for (std::string want, is; std::getline(a, want); ++number) {
    ASSERT_TRUE(std::getline(b, is)) << "ends after line " << number;
    ASSERT_EQ(is, want) << "line " << number;
  }
  EXPECT_GT(number, 2000u);
}

// pprof itself, as Go has it: each event's values, labels, and what it makes of the file.
TEST(PprofPeer, GoReadsAndRewritesTwoEvents) {
  if (std::system("go tool -n pprof >/dev/null 2>&1") != 0) GTEST_SKIP() << "no go tool pprof";
  const auto profile = testing::events_profile();
  const std::string file = WINDLASS_PEER_DIRECTORY "/events.pb.gz", again = WINDLASS_PEER_DIRECTORY "/again.pb.gz";
  ASSERT_TRUE(write_pprof_file(profile, file).has_value());
  const auto pprof = [&](const std::string& options) {
    return output_of("PPROF_TMPDIR=" WINDLASS_PEER_DIRECTORY " go tool pprof " + options + " " + file + " 2>&1");
  };
  const auto has = [](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  };
  has(pprof("-raw"), "samples/count cpu/nanoseconds[dflt] waits/count off-cpu/nanoseconds\n");
  has(pprof("-top"), "Total samples = 40ms");
  const auto off_cpu = pprof("-top -sample_index=off-cpu");
  has(off_cpu, "Total samples = 4.50ms");
  has(off_cpu, "4.50ms   100%   100%     4.50ms   100%  wait\n");
  has(off_cpu, "1ms 22.22%  run\n");
  has(pprof("-top -sample_index=waits -tagfocus=reason=futex"), "Showing nodes accounting for 2, 25.00% of 8 total");
  has(pprof("-tags -sample_index=waits"), "2.0 (66.67%): futex");
  // Written again by Go.
  has(pprof("-proto -output=" + again), again);
  const auto back = read_pprof_file(again);
  ASSERT_TRUE(back.has_value()) << back.error().text();
  for (const auto type : value_types(profile)) {
    const auto folded = [&](const profile::Profile& p) {
      std::string text;
      TextWriter out(&text);
      EXPECT_TRUE(write_folded(p, out, type).has_value());
      return text;
    };
    EXPECT_EQ(folded(*back), folded(profile));
    const auto ours = label_shares(profile, type), theirs = label_shares(*back, type);
    ASSERT_EQ(theirs.size(), ours.size());
    for (std::size_t i = 0; i < ours.size(); ++i) {
      ASSERT_EQ(theirs[i].shares.size(), ours[i].shares.size());
      for (std::size_t n = 0; n < ours[i].shares.size(); ++n) {
        EXPECT_EQ(theirs[i].shares[n].text, ours[i].shares[n].text);
        EXPECT_EQ(theirs[i].shares[n].weight, ours[i].shares[n].weight);
      }
    }
  }
}

// Fields of our own are skipped: times change no sum.
TEST(PprofPeer, GoReadsAProfileWithTimes) {
  if (std::system("go tool -n pprof >/dev/null 2>&1") != 0) GTEST_SKIP() << "no go tool pprof";
  const auto timed = testing::timed_profile();
  auto without = timed;
  for (auto& sample : without.samples) sample.times = 0;
  for (auto& event : without.events) event.per_time = 0;
  const auto raw_of = [](const profile::Profile& profile) {
    const std::string file = WINDLASS_PEER_DIRECTORY "/times.pb.gz";
    EXPECT_TRUE(write_pprof_file(profile, file).has_value());
    return output_of("PPROF_TMPDIR=" WINDLASS_PEER_DIRECTORY " go tool pprof -raw " + file + " 2>&1");
  };
  const std::string raw = raw_of(timed);
  EXPECT_NE(raw.find("samples/count cpu/nanoseconds[dflt] waits/count off-cpu/nanoseconds\n"), std::string::npos)
      << raw;
  EXPECT_EQ(raw, raw_of(without));
}

}  // namespace
}  // namespace windlass::exporter
