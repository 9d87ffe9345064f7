// The command `windlass report`: forms, standard input, exit statuses.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "profiler/export/html.h"
#include "profiler/export/pprof.h"
#include "support/synthetic_profile.h"

namespace windlass {
namespace {

struct Result {
  int status;
  std::string output;  // both streams
};

Result run(const std::string& arguments) {
  Result result{-1, {}};
  std::FILE* pipe = ::popen((arguments + " 2>&1").c_str(), "r");
  char buffer[65536];
  for (std::size_t got; pipe != nullptr && (got = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;)
    result.output.append(buffer, got);
  const int status = ::pclose(pipe);
  result.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128;
  return result;
}

class ReportCommand : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/windlass-report-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    directory_ = name;
    file_ = directory_ + "/p.pb.gz";
    ASSERT_TRUE(exporter::write_pprof_file(testing::synthetic_profile(), file_).has_value());
  }
  void TearDown() override { EXPECT_EQ(run("rm -r " + directory_).status, 0); }

  const std::string report_ = WINDLASS_COMMAND " report ";
  std::string directory_, file_;
};

TEST_F(ReportCommand, EveryForm) {
  const auto text = run("COLUMNS=80 " + report_ + file_);
  EXPECT_EQ(text.status, 0);
  EXPECT_NE(text.output.find("CALL TREE"), std::string::npos);
  EXPECT_EQ(text.output.find('\x1b'), std::string::npos) << "colours only on a terminal";
  const auto folded = run(report_ + "--folded " + file_);
  EXPECT_EQ(folded.status, 0);
  EXPECT_TRUE(folded.output.starts_with("main;"));
  EXPECT_TRUE(nlohmann::json::accept(run(report_ + "--speedscope " + file_).output));
  std::istringstream lines(run(report_ + "--json " + file_).output);
  for (std::string line; std::getline(lines, line);) ASSERT_TRUE(nlohmann::json::accept(line));
  const auto html = run(report_ + "--html " + file_);
  EXPECT_EQ(html.status, exporter::html_available() ? 0 : 3);
  EXPECT_NE(html.output.find(exporter::html_available() ? "<!DOCTYPE html>" : "npm"), std::string::npos);
}

TEST_F(ReportCommand, StandardInputAndAClosedPipe) {
  EXPECT_EQ(run(report_ + "--folded - < " + file_).output, run(report_ + "--folded " + file_).output);
  EXPECT_EQ(run("bash -c 'set -o pipefail; " + report_ + "--json " + file_ + " | head -n 1'").status, 0);
}

TEST_F(ReportCommand, WhatIsWrongAndWhoseFaultItIs) {
  EXPECT_EQ(run(report_ + directory_ + "/none").status, 3);
  EXPECT_EQ(run(report_ + "--html --json " + file_).status, 2);
  EXPECT_EQ(run(report_).status, 2);
  EXPECT_EQ(run(report_ + "--functions -1 " + file_).status, 2);
  const auto cut = run("head -c 3000 " + file_ + " | " + report_ + "-");
  EXPECT_EQ(cut.status, 1);
  EXPECT_NE(cut.output.find("ends early"), std::string::npos) << cut.output;
  std::ofstream(directory_ + "/text") << "main;f 12\n";
  EXPECT_EQ(run(report_ + directory_ + "/text").status, 1);
  EXPECT_EQ(run(report_ + "--folded " + file_ + " > /dev/full").status, 3);
}

}  // namespace
}  // namespace windlass
