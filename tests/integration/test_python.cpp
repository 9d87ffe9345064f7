// Stacks of CPython, from outside, against what Python itself says of them: Python of our own (python/) on the versions
// of this machine.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "profiler/export/pprof.h"
#include "support/core_of.h"
#include "support/interpreter_stacks.h"
#include "support/privilege.h"
#include "support/run_command.h"
#include "support/runtime_program.h"
#include "support/tested_version.h"

namespace windlass {
namespace {

using test::Call;
using test::run;
using test::Stacks;

const std::string kFolder = WINDLASS_PYTHON_DIRECTORY;  // NOLINT
const std::string kSources = WINDLASS_PYTHON_SOURCES;   // NOLINT

// Every CPython that there is: "3.11" and its program; the system's, which is linked in one piece, and others.
std::vector<std::pair<std::string, std::string>> pythons() {
  std::vector<std::pair<std::string, std::string>> found;
  std::istringstream list(
      run("for p in /usr/bin/python3 $(command -v python3) ~/.pyenv/versions/3.*/bin/python3; do test -x $p && "
          "$p -c 'import os, sys; print(os.path.realpath(sys.executable))'; done | awk '!s[$0]++'")
          .output);
  for (std::string path; std::getline(list, path);) {
    const auto version = run(path + " -c 'import sys; print(\"%d.%d\" % sys.version_info[:2], end=\"\")' 2>/dev/null");
    if (version.status == 0) found.emplace_back(version.output, path);
  }
  return found;
}

bool is_known(const std::string& version) {
  return std::set<std::string>{"3.9", "3.10", "3.11", "3.12", "3.13", "3.14"}.contains(version);
}

class Program : public test::RuntimeProgram {
 public:
  Program(const std::string& python, const std::vector<std::string>& arguments)
      : RuntimeProgram(words(python, arguments), kFolder) {}

 private:
  static std::vector<std::string> words(const std::string& python, const std::vector<std::string>& arguments) {
    std::vector<std::string> all = {python};
    all.insert(all.end(), arguments.begin(), arguments.end());
    return all;
  }
};

Stacks walk(const std::string& what, std::set<std::string>& ends) {
  return test::walk_interpreted(what, ends, [](std::vector<Call>& calls) {
    for (Call& call : calls) call.file = std::filesystem::absolute(call.file).string();
  });
}

Stacks said_by(const std::vector<std::string>& printed) {
  Stacks stacks;
  for (const std::string& line : printed)
    stacks[line.substr(0, line.find(' '))].push_back(line.substr(line.find(' ') + 1));
  return stacks;
}

TEST(Python, StacksAreWhatItSaysOfThem) {
  std::size_t versions = 0;
  for (const auto& [version, python] : pythons()) {
    SCOPED_TRACE(python);
    if (!is_known(version)) continue;
    ++versions;
    const Program program(python, {kSources + "/stacks.py"});
    const Stacks said = said_by(program.printed());
    ASSERT_EQ(said.size(), 10U);
    std::set<std::string> ends;
    const Stacks walked = walk("-p " + std::to_string(program.pid()), ends);
    EXPECT_EQ(ends, std::set<std::string>{"complete"});
    std::size_t frames = 0;
    for (const auto& [thread, stack] : said) {
      ASSERT_TRUE(walked.contains(thread));
      EXPECT_EQ(walked.at(thread), stack);
      frames += stack.size();
    }
    ::printf("%s: %zu frames of %zu threads\n", python.c_str(), frames, said.size());
  }
  for (const char* version : {"3.9", "3.10", "3.11", "3.12", "3.13", "3.14"})
    if (std::ranges::none_of(pythons(), [&](const auto& it) { return it.first == version; }))
      ::printf("not on this machine: CPython %s\n", version);
  EXPECT_GE(versions, 1U) << "packages.txt brings one";
}

TEST(Python, ACoreHasTheSameStacks) {
  const Program program("/usr/bin/python3", {kSources + "/stacks.py"});
  const Stacks said = said_by(program.printed());
  ASSERT_EQ(said.size(), 10U);
  const test::CoreOf core(program.pid(), kFolder + "/core");
  if (!core.why_not().empty()) GTEST_SKIP() << core.why_not();
  std::set<std::string> ends;
  const Stacks dead = walk("--core " + core.path(), ends);
  for (const auto& [thread, stack] : said) EXPECT_EQ(dead.at(thread), stack);
}

TEST(Python, AVersionThatIsNotKnownIsSaid) {
  for (const auto& [version, python] : pythons()) {
    if (is_known(version) || version == "3.6") continue;  // which says nothing of itself at all
    const Program program(python, {"-c", "print('READY', flush=True); import time; time.sleep(1000)"});
    (void)program.printed();
    const auto walked = run(fmt::format(WINDLASS_COMMAND " walk -p {} 2>&1", program.pid()));
    EXPECT_EQ(walked.status, 0);
    EXPECT_NE(walked.output.find("CPython"), std::string::npos) << walked.output;
    EXPECT_EQ(walked.output.find("(interpreted)"), std::string::npos) << walked.output;
    return;
  }
  ::printf("no other version here\n");
}

// ---- samples --------------------------------------------------------------------------------------------------------

// What chains.py says of itself: which functions each line calls.
std::map<std::size_t, std::set<std::string>> calls_of_lines() {
  std::map<std::size_t, std::set<std::string>> calls;
  std::ifstream file(kSources + "/chains.py");
  std::size_t number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    const std::size_t at = line.find("# -> ");
    if (at == std::string::npos || line.find("CALLEE") != std::string::npos) continue;
    std::istringstream names(line.substr(at + 5));
    for (std::string name; names >> name;) calls[number].insert(name);
  }
  return calls;
}

// Without what it is defined in: CPython names functions so before 3.11.
std::string bare(const std::string& name) { return name.substr(name.rfind('.') + 1); }

class ChainJudge {
 public:
  // Why a chain of Python functions, innermost first, cannot be; empty: it can.
  [[nodiscard]] std::string fault_of(const std::vector<Call>& chain) const {
    if (chain.empty()) return "";
    if (chain.back().function != "<module>" || !is_chains(chain.back())) return "does not begin in <module>";
    for (std::size_t i = 0; i + 1 < chain.size(); ++i) {
      const Call &callee = chain[i], &caller = chain[i + 1];
      if (!is_chains(caller)) {
        // Made by make(), whose letter is its callee's, too.
        const std::string expected = caller.function == "<module>" ? "made_" : "made_spin_" + caller.function.substr(5);
        if (!callee.function.starts_with(expected)) return callee.function + " below " + caller.function;
        continue;
      }
      const auto calls = calls_.find(caller.line);
      if (calls == calls_.end() || std::ranges::none_of(calls->second, [&](const std::string& name) {
            return bare(name) == bare(callee.function);
          }))
        return fmt::format("{} below {}:{}", callee.function, caller.function, caller.line);
    }
    return "";
  }

 private:
  static bool is_chains(const Call& call) { return call.file.ends_with("/chains.py"); }
  std::map<std::size_t, std::set<std::string>> calls_ = calls_of_lines();
};

TEST(Python, TheJudgeFindsFaults) {
  const ChainJudge judge;
  const auto at = [&](const std::string& name, std::size_t line) { return Call{name, kSources + "/chains.py", line}; };
  std::map<std::string, std::size_t> line_of;  // that calls, by the first callee
  for (const auto& [line, names] : calls_of_lines()) line_of.emplace(*names.begin(), line);
  const std::vector<Call> right = {at("spin", 14), at("add", line_of["spin"]), at("<module>", line_of["work"])};
  EXPECT_NE(judge.fault_of(right), "") << "work is missing";
  EXPECT_EQ(judge.fault_of({at("work", 99), at("<module>", line_of["work"])}), "");
  EXPECT_NE(judge.fault_of({at("spin", 14), at("work", line_of["even"]), at("<module>", line_of["work"])}), "");
  EXPECT_NE(judge.fault_of({{"made_spin_a", kSources + "/chains.py", 1}, {"made_b", "<string>", 2}}), "");
}

// Of its own, from work() on: modules are imported before.
constexpr auto kIsKnown = [](const std::vector<Call>& chain) {
  return chain.size() >= 2 && chain[chain.size() - 2].function == "work";
};

TEST(Python, SamplesHaveTheStacksThatThereCanBe) {
  if (const std::string reason = test::no_privilege_to_sample(); !reason.empty()) GTEST_SKIP() << reason;
  const ChainJudge judge;
  for (const auto& [version, python] : pythons()) {
    if (!is_known(version)) continue;
    SCOPED_TRACE(python);
    const std::string file = kFolder + "/chains.pb.gz";
    const auto recorded =
        run(WINDLASS_COMMAND " record -F 1999 -o " + file + " -- " + python + " " + kSources + "/chains.py 2 2>&1");
    ASSERT_EQ(recorded.status, 0) << recorded.output;
    const auto profile = exporter::read_pprof_file(file);
    ASSERT_TRUE(profile) << profile.error().text();
    const auto samples = test::judge_samples(*profile, "_PyEval_EvalFrameDefault", kIsKnown,
                                             [&](const std::vector<Call>& chain) { return judge.fault_of(chain); });
    samples.print(python);
    test::tested_version("CPython", test::version_of(python + " --version"), python, samples.all, samples.whole,
                         samples.wrong);
    test::expect_right(samples);
  }
}

}  // namespace
}  // namespace windlass
