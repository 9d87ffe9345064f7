// Stacks through several languages, whose true chains are known: a runtime's code that calls C, which calls back, which
// calls C. Each is recorded, and walked, whole and named.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "export/pprof.h"
#include "integration/coreclr/program.h"
#include "integration/go/program.h"
#include "integration/hotspot/program.h"
#include "support/child_program.h"
#include "support/privilege.h"
#include "support/run_command.h"

namespace windlass {
namespace {

using profile::Profile;
using profile::Sample;
using Names = std::vector<std::string>;

const std::string kFolder = WINDLASS_MIXED_DIRECTORY;
const std::string kSources = WINDLASS_MIXED_SOURCES;

// Outermost last; without the kernel's.
Names names_of(const Profile& profile, const Sample& sample) {
  Names names;
  for (const auto location : sample.locations)
    for (const auto& line : profile.locations[location].lines) names.push_back(profile.functions[line.function].name);
  return names;
}

// Are all of `chain` among the names, in this order?
bool has_chain(const Names& names, const Names& chain) {
  auto at = names.begin();
  for (const std::string& wanted : chain) {
    at = std::find_if(at, names.end(), [&](const std::string& name) { return name.find(wanted) != std::string::npos; });
    if (at == names.end()) return false;
    ++at;
  }
  return true;
}

std::string text_of(const Names& names) {
  std::string text;
  for (const std::string& name : names) text += "  " + name + "\n";
  return text;
}

// Records the command, and asks of each sample in C's innermost function that it is whole and has the chain.
void expect_recorded(const std::string& command, const Names& chain) {
  if (const std::string reason = test::no_privilege_to_sample(); !reason.empty()) GTEST_SKIP() << reason;
  const std::string profile = kFolder + "/profile.pb.gz";
  const auto recorded =
      test::run(std::string(WINDLASS_COMMAND) + " record -v -F 997 -o " + profile + " -- " + command + " 2>&1");
  ASSERT_EQ(recorded.status, 0) << recorded.output;
  const auto read = exporter::read_pprof_file(profile);
  ASSERT_TRUE(read) << read.error().text();
  std::uint64_t all = 0, truncated = 0, wrong = 0;
  std::string example;
  for (const Sample& sample : read->samples) {
    const Names names = names_of(*read, sample);
    if (std::ranges::find(names, chain.front()) == names.end()) continue;
    all += sample.count;
    if (profile::is_truncated(sample.end)) {
      truncated += sample.count;
    } else if (!has_chain(names, chain)) {
      wrong += sample.count;
      example = text_of(names);
    }
  }
  ::printf("%llu samples, truncated: %llu, of another chain: %llu\n", static_cast<unsigned long long>(all),
           static_cast<unsigned long long>(truncated), static_cast<unsigned long long>(wrong));
  EXPECT_GE(all, 20U) << recorded.output;
  EXPECT_LE(truncated, 1 + all / 100) << recorded.output;
  EXPECT_EQ(wrong, 0U) << example;
}

// Walks the running program until a thread is in C's innermost function.
void expect_walked(pid_t pid, const Names& chain) {
  std::string output;
  for (unsigned attempt = 0; attempt < 100; ++attempt) {
    output = test::run(std::string(WINDLASS_COMMAND) + " walk -p " + std::to_string(pid) + " 2>&1").output;
    const std::size_t at = output.find(" " + chain.front() + "+");
    if (at != std::string::npos) {
      std::size_t found = at;
      for (const std::string& wanted : chain) {
        found = output.find(wanted, found);
        ASSERT_NE(found, std::string::npos) << "no " << wanted << " in\n" << output;
      }
      return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  FAIL() << output;
}

std::string make_c_library(const std::string& name, const std::string& arguments) {
  const auto made = test::run("cc -O2 -fomit-frame-pointer -fPIC -shared -o " + kFolder + "/" + name + " " + arguments +
                              " " + kSources + "/mixed.c 2>&1");
  return made.status == 0 ? "" : made.output;
}

// The interpreter names its frames of native methods by its own entry point; the compilers' wrappers have the method.
TEST(MixedStack, JavaCallsCCallsJavaCallsC) {
  if (test::run("command -v java javac").status != 0) GTEST_SKIP() << "no java or javac";
  const std::string home = std::filesystem::path(test::java_launchers().front()).parent_path().parent_path();
  ASSERT_EQ(make_c_library("libmixedjni.so",
                           "-I" + home + "/include -I" + home + "/include/linux " + kSources + "/mixed_jni.c"),
            "");
  const auto made = test::run("javac --release 17 -d " + kFolder + " " + kSources + "/Mixed.java 2>&1");
  ASSERT_EQ(made.status, 0) << made.output;
  const Names chain = {"mixed_spin",       "Java_Mixed_spin", "Mixed.inner", "mixed_enter",
                       "Java_Mixed_enter", "Mixed.outer",     "Mixed.outer", "Mixed.outer",
                       "Mixed.outer",      "Mixed.main",      "JavaMain",    "start_thread"};
  const Names words = {test::java_launchers().front(), "-cp", kFolder, "Mixed", kFolder + "/libmixedjni.so"};
  std::string command;
  for (const std::string& word : words) command += word + " ";
  expect_recorded(command + "2", chain);
  Names longer = words;
  longer.push_back("60");
  const test::ChildProgram program(longer, kFolder + "/java.out", STDOUT_FILENO);
  expect_walked(program.pid(), chain);
}

TEST(MixedStack, CoreClrCallsCCallsCoreClrCallsC) {
  if (const std::string why = test::make_coreclr_program("mixed", kSources); !why.empty()) GTEST_SKIP() << why;
  ASSERT_EQ(make_c_library("libmixed.so", ""), "");
  const Names chain = {"mixed_spin",
                       "Chains.Mixed.Inner()",
                       "mixed_enter",
                       "Chains.Mixed.Outer(Int32)",
                       "Chains.Mixed.Outer(Int32)",
                       "Chains.Mixed.Outer(Int32)",
                       "Chains.Mixed.Outer(Int32)",
                       "Chains.Mixed.Main(String[])"};
  const std::string program = test::kCoreClrFolder + "/mixed";
  expect_recorded("env LD_LIBRARY_PATH=" + kFolder + " MIXED_SECONDS=3 " + program, chain);
  const test::ChildProgram running({program}, kFolder + "/coreclr.out", STDOUT_FILENO,
                                   {{"LD_LIBRARY_PATH", kFolder}, {"MIXED_SECONDS", "60"}});
  expect_walked(running.pid(), chain);
}

// The C frames between the callback and the goroutine that called C are not shown.
TEST(MixedStack, GoCallsCCallsGoCallsC) {
  ASSERT_EQ(make_c_library("libmixed.so", ""), "");
  const std::string flags = "-L" + kFolder + " -Wl,-rpath," + kFolder;
  if (const std::string why = test::make_go_program("mixed", "", flags); !why.empty()) GTEST_SKIP() << why;
  const Names chain = {"mixed_spin",          "runtime.asmcgocall",
                       "runtime.cgocall",     "main.inner",
                       "mixedBack",           "runtime.cgocallbackg",
                       "runtime.cgocallback", "runtime.systemstack_switch",
                       "runtime.cgocall",     "main.outer",
                       "main.outer",          "main.outer",
                       "main.outer",          "main.main",
                       "runtime.main",        "runtime.goexit"};
  const std::string program = test::kGoFolder + "/mixed";
  expect_recorded(program + " 2", chain);
  const test::ChildProgram running({program, "60"}, kFolder + "/go.out", STDOUT_FILENO);
  expect_walked(running.pid(), chain);
}

}  // namespace
}  // namespace windlass
