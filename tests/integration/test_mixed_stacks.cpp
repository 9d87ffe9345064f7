// Stacks through several languages, whose true chains are known: a runtime's code that calls C, which calls back, which
// calls C. Each is recorded, and walked, whole and named.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "integration/coreclr/program.h"
#include "integration/go/program.h"
#include "integration/hotspot/program.h"
#include "profiler/export/pprof.h"
#include "support/child_program.h"
#include "support/privilege.h"
#include "support/run_command.h"
#include "windlass/function_ref.h"
#include "windlass/unwind_info.h"

namespace windlass {
namespace {

using profile::Profile;
using profile::Sample;
using Names = std::vector<std::string>;

const std::string kFolder = WINDLASS_MIXED_DIRECTORY;
const std::string kSources = WINDLASS_MIXED_SOURCES;

std::string without_offset(const std::string& name) { return name.substr(0, name.find("+0x")); }

// Outermost last; without the kernel's. Code without names has its file's.
Names names_of(const Profile& profile, const Sample& sample) {
  Names names;
  for (const auto number : sample.locations) {
    const auto& location = profile.locations[number];
    for (const auto& line : location.lines) names.push_back(without_offset(profile.functions[line.function].name));
    if (location.lines.empty() && location.module < profile.modules.size())
      names.push_back(std::filesystem::path(profile.modules[location.module].path).filename());
  }
  return names;
}

// Of a walk's text: those of the first thread that is in a function.
Names names_of(const std::string& walked, const std::string& innermost) {
  Names names;
  std::istringstream lines(walked);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("TID") && std::ranges::find(names, innermost) != names.end()) return names;
    if (line.starts_with("TID")) names.clear();
    const std::size_t at = line.find(" 0x");
    if (!line.starts_with('#') || at == std::string::npos) continue;
    std::string name = line.substr(line.find(' ', at + 1) + 1);
    for (const char* behind : {" (interpreted)", " (inlined)", " at "}) name = name.substr(0, name.find(behind));
    name = without_offset(name);
    names.push_back(name.starts_with('/') ? std::filesystem::path(name).filename().string() : name);
  }
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

using Chains = std::vector<Names>;

// Which of the chains is exactly what the names are that are in them at all? Files' count once, however many of their
// functions follow each other.
Chains::const_iterator exactly(const Names& names, const Chains& chains) {
  Names own;
  for (const std::string& name : names) {
    const bool again = name.find(".so") != std::string::npos && !own.empty() && own.back() == name;
    const bool is_ours =
        std::ranges::any_of(chains, [&](const Names& chain) { return std::ranges::find(chain, name) != chain.end(); });
    if (!again && is_ours) own.push_back(name);
  }
  return std::ranges::find(chains, own);
}

std::string text_of(const Names& names) {
  std::string text;
  for (const std::string& name : names) text += "  " + name + "\n";
  return text;
}

// Records the command, and asks of each sample in C's innermost function that it is whole and right.
void expect_recorded(const std::string& command, const std::string& innermost,
                     FunctionRef<bool(const Names& names, std::uint64_t count)> is_right) {
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
    if (std::ranges::find(names, innermost) == names.end()) continue;
    all += sample.count;
    if (!profile::is_whole(sample.end)) {
      truncated += sample.count;
    } else if (!is_right(names, sample.count)) {
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

void expect_recorded(const std::string& command, const Names& chain) {
  expect_recorded(command, chain.front(), [&](const Names& names, std::uint64_t) { return has_chain(names, chain); });
}

// Each sample has exactly one of the chains, and each chain has samples. The first ones of a process are from before
// the agent knew its runtime, and have none of its functions, the outermost neither.
void expect_recorded_exactly(const std::string& command, const Chains& chains) {
  std::set<Chains::const_iterator> seen;
  std::uint64_t all = 0, early = 0;
  expect_recorded(command, chains.front().front(), [&](const Names& names, std::uint64_t count) {
    all += count;
    if (std::ranges::find(names, chains.front().back()) == names.end()) {
      early += count;
      return true;
    }
    const auto found = exactly(names, chains);
    if (found != chains.end()) seen.insert(found);
    return found != chains.end();
  });
  if (!test::no_privilege_to_sample().empty()) return;
  ::printf("from before the runtime was known: %llu\n", static_cast<unsigned long long>(early));
  EXPECT_LT(early, all);  // how soon it is known depends on what else the machine does
  EXPECT_EQ(seen.size(), chains.size());
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

// Likewise, and it has exactly one of the chains.
void expect_walked_exactly(pid_t pid, const Chains& chains) {
  const std::string& innermost = chains.front().front();
  std::string output;
  for (unsigned attempt = 0; attempt < 100; ++attempt) {
    output = test::run(std::string(WINDLASS_COMMAND) + " walk -i -p " + std::to_string(pid) + " 2>&1").output;
    const Names names = names_of(output, innermost);
    if (std::ranges::find(names, innermost) != names.end()) {
      EXPECT_NE(exactly(names, chains), chains.end()) << output;
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

TEST(MixedStack, GoCallsCCallsGoCallsC) {
  ASSERT_EQ(make_c_library("libmixed.so", ""), "");
  const std::string flags = "-L" + kFolder + " -Wl,-rpath," + kFolder;
  if (const std::string why = test::make_go_program("mixed", "", flags); !why.empty()) GTEST_SKIP() << why;
  const Names chain = {"mixed_spin",           "runtime.asmcgocall",  "runtime.cgocall", "main.inner", "mixedBack",
                       "runtime.cgocallbackg", "runtime.cgocallback", "crosscall2",      "mixedBack",  "mixed_enter",
                       "runtime.asmcgocall",   "runtime.cgocall",     "main.outer",      "main.outer", "main.outer",
                       "main.outer",           "main.main.func1",     "runtime.goexit"};
  const std::string program = test::kGoFolder + "/mixed";
  expect_recorded(program + " 2", chain);
  const test::ChildProgram running({program, "60"}, kFolder + "/go.out", STDOUT_FILENO);
  expect_walked(running.pid(), chain);
}

// Go that the system's linker has made a part of, stripped of symbols and DWARF.
const std::string kStripped = " '-ldflags=-s -w' ";
const Names kInLibrary = {"mixed_spin", "runtime.asmcgocall", "runtime.cgocall", "inner"};

Names followed_by(Names chain, const Names& rest) {
  chain.insert(chain.end(), rest.begin(), rest.end());
  return chain;
}

TEST(MixedStack, CCallsGoOfALibraryCallsC) {
  ASSERT_EQ(make_c_library("libmixed.so", ""), "");
  const std::string paths = "-L" + kFolder + " -Wl,-rpath," + kFolder;
  if (const std::string why = test::make_go_program("library", "-buildmode=c-shared" + kStripped, paths); !why.empty())
    GTEST_SKIP() << why;
  const std::string program = kFolder + "/mixed_host", library = kFolder + "/libgo_library.so";
  const auto made = test::run("cp " + test::kGoFolder + "/library " + library + " && cc -O2 -g -o " + program + " " +
                              kSources + "/mixed_host.c " + library + " -lpthread " + paths + " 2>&1");
  ASSERT_EQ(made.status, 0) << made.output;
  const Names chain = followed_by(kInLibrary, {"libraryEnter", "runtime.cgocallbackg", "runtime.cgocallback",
                                               "crosscall2", "libraryEnter", "host_enter", "host_thread"});
  expect_recorded(program + " 3", chain);
  const test::ChildProgram running({program, "60"}, kFolder + "/host.out", STDOUT_FILENO);
  expect_walked(running.pid(), chain);
}

TEST(MixedStack, GoCallsGoOfAPluginCallsC) {
  ASSERT_EQ(make_c_library("libmixed.so", ""), "");
  const std::string paths = "-L" + kFolder + " -Wl,-rpath," + kFolder;
  for (const auto& [name, mode] : {std::pair{"library", "-buildmode=plugin"}, {"opener", ""}})
    if (const std::string why = test::make_go_program(name, mode + kStripped, paths); !why.empty()) GTEST_SKIP() << why;
  const std::string program = test::kGoFolder + "/opener", plugin = kFolder + "/library.so";
  ASSERT_EQ(test::run("cp " + test::kGoFolder + "/library " + plugin).status, 0);
  const auto reader = open_unwind_info(plugin);
  ASSERT_TRUE(reader) << reader.error().text();
  EXPECT_EQ((*reader)->format(), UnwindFormat::kGo);
  const Names chain = followed_by(kInLibrary, {"Enter", "main.main", "runtime.main", "runtime.goexit"});
  expect_recorded(program + " " + plugin + " 2", chain);
  const test::ChildProgram running({program, plugin, "60"}, kFolder + "/plugin.out", STDOUT_FILENO);
  expect_walked(running.pid(), chain);
}

TEST(MixedStack, PythonCallsNumpyCallsPythonCallsC) {
  const std::string python = "/usr/bin/python3";
  ASSERT_EQ(test::run(python + " -c 'import numpy'").status, 0) << "packages.txt brings it";
  ASSERT_EQ(make_c_library("libmixed.so", ""), "");
  const auto numpy = test::run(python + " -c 'import numpy.core._multiarray_umath as m; print(m.__file__, end=\"\")'");
  const std::string file = std::filesystem::path(numpy.output).filename();
  const Names chain = {"mixed_spin", "inner", file,    "middle", "apply_along_axis", file, "key", "Row.__array__", file,
                       "outer",      "outer", "outer", "outer",  "<module>"};
  const std::string program = kSources + "/mixed_numpy.py", library = kFolder + "/libmixed.so";
  expect_recorded_exactly(python + " " + program + " " + library + " 3", {chain});
  const test::ChildProgram running({python, program, library, "60"}, kFolder + "/numpy.out", STDOUT_FILENO);
  expect_walked_exactly(running.pid(), {chain});
}

// The node of this machine, whose headers are beside it.
class MixedNode : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto found = test::run("readlink -f \"$(command -v node)\"");
    if (found.status != 0) GTEST_SKIP() << "no node";
    node = found.output.substr(0, found.output.find('\n'));
    const auto headers = std::filesystem::path(node).parent_path().parent_path() / "include/node";
    if (!std::filesystem::exists(headers / "node_api.h")) GTEST_SKIP() << "no headers of node";
    ASSERT_EQ(make_c_library("mixed.node", "-I" + headers.string() + " " + kSources + "/mixed_node.c"), "");
  }
  void expect(const Chains& chains, const std::string& way) const {
    const std::string program = kSources + "/mixed_node.js", addon = kFolder + "/mixed.node";
    expect_recorded_exactly(node + " " + program + " " + addon + " 3 " + way, chains);
    const test::ChildProgram running({node, program, addon, "60", way}, kFolder + "/node.out", STDOUT_FILENO);
    expect_walked_exactly(running.pid(), chains);
  }
  std::string node;
};

TEST_F(MixedNode, CallsCCallsNodeCallsC) {
  expect({{"mixed_spin", "addon_spin", "inner", "napi_call_function", "mixed_back", "mixed_enter", "addon_enter",
           "outer", "outer", "outer", "outer", "main"}},
         "");
}

// Before the throw, while the exception goes through C and JavaScript, and behind the catch.
TEST_F(MixedNode, CThrowsThroughNodeAndC) {
  expect({{"mixed_spin", "addon_fail", "failing", "napi_call_function", "mixed_back", "mixed_enter", "addon_enter",
           "outer", "outer", "outer", "outer", "main"},
          {"mixed_spin", "addon_spin", "cleanup", "failing", "napi_call_function", "mixed_back", "mixed_enter",
           "addon_enter", "outer", "outer", "outer", "outer", "main"},
          {"mixed_spin", "addon_spin", "caught", "main"}},
         "throws");
}

}  // namespace
}  // namespace windlass
