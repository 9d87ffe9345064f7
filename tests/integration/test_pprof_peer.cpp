// The profile as another implementation of the format reads it: npm's pprof-format, fetched by name, version and hash.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>

#include <fmt/format.h>

#include "profiler/export/frames.h"
#include "profiler/export/pprof.h"
#include "support/synthetic_profile.h"

namespace windlass::exporter {
namespace {

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
  std::FILE* pipe = ::popen(("node " WINDLASS_READ_PPROF " " + package + " " + file).c_str(), "r");
  ASSERT_NE(pipe, nullptr);
  std::string got;
  char buffer[65536];
  for (std::size_t n; (n = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;) got.append(buffer, n);
  EXPECT_EQ(::pclose(pipe), 0);

  std::istringstream a(expected(profile)), b(got);
  std::size_t number = 0;
  for (std::string want, is; std::getline(a, want); ++number) {
    ASSERT_TRUE(std::getline(b, is)) << "ends after line " << number;
    ASSERT_EQ(is, want) << "line " << number;
  }
  EXPECT_GT(number, 2000u);
}

}  // namespace
}  // namespace windlass::exporter
