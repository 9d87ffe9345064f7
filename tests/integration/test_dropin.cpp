// Programs that know nothing of Windlass, with libwindlass-unwind.so preloaded and without: what they print must be the
// same, so every frame, every name of theirs, every exception.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <sstream>
#include <string>
#include <vector>

namespace {

struct Outcome {
  int status = -1;
  std::vector<std::string> lines;
};

Outcome run(const std::string& command) {
  Outcome run;
  std::FILE* pipe = ::popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return run;
  char line[4096];
  while (std::fgets(line, sizeof line, pipe) != nullptr) run.lines.emplace_back(line);
  const int status = ::pclose(pipe);
  run.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return run;
}

Outcome preloaded(const std::string& command) { return run("env LD_PRELOAD=" WINDLASS_DROPIN " " + command); }

// The same lines, with the first difference named.
void expect_same(const Outcome& with, const Outcome& without) {
  EXPECT_EQ(with.status, without.status);
  ASSERT_EQ(with.lines.size(), without.lines.size());
  for (std::size_t i = 0; i < with.lines.size(); ++i) ASSERT_EQ(with.lines[i], without.lines[i]) << "line " << i;
}

TEST(Dropin, ExceptionsStayLibgccs) {
  const Outcome without = run(WINDLASS_DROPIN_PROGRAMS "/dropin_exceptions");
  EXPECT_EQ(without.status, 3);
  EXPECT_GT(without.lines.size(), 15u);
  expect_same(preloaded(WINDLASS_DROPIN_PROGRAMS "/dropin_exceptions"), without);
}

TEST(Dropin, BacktraceAndItaniumAbi) {
  const Outcome without = run(WINDLASS_DROPIN_PROGRAMS "/dropin_stacks");
  EXPECT_EQ(without.status, 0);
  EXPECT_GT(without.lines.size(), 40u);
  expect_same(preloaded(WINDLASS_DROPIN_PROGRAMS "/dropin_stacks"), without);
}

#if defined(WINDLASS_HAS_LIBUNWIND)
// libunwind names a function by the closest exported symbol before it, if it has no other: names of ours may be absent
// where those are wrong, and are left out of the comparison.
Outcome without_names(Outcome run) {
  for (std::string& line : run.lines) {
    std::istringstream words(line);
    std::string kept;
    for (std::string word; words >> word;)
      if (word.find('+') == std::string::npos || word.find("+0x") != std::string::npos) kept += word + ' ';
    line = kept;
  }
  return run;
}

TEST(Dropin, LibunwindsOwnInterface) {
  const Outcome without = run(WINDLASS_DROPIN_PROGRAMS "/dropin_unw");
  EXPECT_EQ(without.status, 0);
  EXPECT_GT(without.lines.size(), 30u);
  const Outcome with = preloaded(WINDLASS_DROPIN_PROGRAMS "/dropin_unw");
  expect_same(without_names(with), without_names(without));
  // main has the same name in both.
  bool named = false;
  for (const std::string& line : with.lines) named |= line.find(" main+") != std::string::npos;
  EXPECT_TRUE(named);
}

// The same source against windlass/libunwind.h, linked.
TEST(Dropin, LibunwindsSourcesCompile) {
  const Outcome other = run(WINDLASS_DROPIN_PROGRAMS "/dropin_unw");
  Outcome own = run(WINDLASS_DROPIN_PROGRAMS "/dropin_unw_windlass");
  EXPECT_EQ(own.status, 0);
  ASSERT_EQ(own.lines.size(), other.lines.size());
}
#else
TEST(Dropin, LibunwindsOwnInterface) { GTEST_SKIP() << "libunwind-dev is not installed"; }
#endif

}  // namespace
