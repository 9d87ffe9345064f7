// The walker's tests under valgrind: no byte is used that is not there or was never written.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <string>

namespace {

class Valgrind : public ::testing::TestWithParam<const char*> {};

TEST_P(Valgrind, FindsNothing) {
  if (std::string(WINDLASS_VALGRIND).find("NOTFOUND") != std::string::npos) GTEST_SKIP() << "valgrind is not installed";
  const std::string command = std::string(WINDLASS_VALGRIND) +
                              " -q --error-exitcode=99 --suppressions=" WINDLASS_SUPPRESSIONS " " + GetParam() +
                              " 2>&1";
  std::FILE* pipe = ::popen(command.c_str(), "r");
  ASSERT_NE(pipe, nullptr);
  std::string text;
  char line[4096];
  while (std::fgets(line, sizeof line, pipe) != nullptr)
    if (std::string(line).rfind("--", 0) != 0) text += line;  // remarks of its own, not findings
  const int status = ::pclose(pipe);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0) << text;
}

INSTANTIATE_TEST_SUITE_P(Programs, Valgrind, ::testing::Values(WINDLASS_PROGRAMS));

}  // namespace
