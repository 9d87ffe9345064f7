// Programs of npm recorded under Wine.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <fmt/format.h>

#include "profiler/export/pprof.h"
#include "support/npm_package.h"
#include "support/privilege.h"
#include "support/wine_program.h"

namespace windlass::test {

// The package's folder; empty: it cannot be fetched.
inline std::string fetched(const char* package, const char* version, const char* integrity) {
  std::string name = fmt::format("{}-{}", package, version);
  std::ranges::replace(name, '/', '-');
  const std::string folder = fmt::format("{}/{}", WINDLASS_NODE_FOLDER, name);
  return fetch_package(folder, package, version, integrity) ? folder : std::string();
}

inline void record(const std::string& command_line, profile::Profile& profile) {
  const std::string file = testing::TempDir() + fmt::format("windlass-wine-node-{}.pb.gz", getpid());
  const std::string command = fmt::format(
      "WINEPREFIX={} WINEDEBUG=-all WINEDLLOVERRIDES='mscoree=;mshtml=;winemenubuilder.exe=' DISPLAY= "
      "NODE_SKIP_PLATFORM_CHECK=1 {} record -F 999 --timeline -o {} -- {} {} > {}.log 2>&1",
      WINDLASS_WINE_PREFIX, WINDLASS_COMMAND, file, find_wine(), command_line, file);
  const int status = std::system(command.c_str());
  ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << std::ifstream(file + ".log").rdbuf();
  auto read = exporter::read_pprof_file(file);
  ASSERT_TRUE(read) << read.error().text();
  profile = std::move(*read);
  std::filesystem::remove(file);
}

class WineRecording : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = no_privilege_to_sample(); !reason.empty()) GTEST_SKIP() << reason;
    if (find_wine().empty()) GTEST_SKIP() << "SKIPPED: there is no Wine (package wine64)";
  }
};

}  // namespace windlass::test
