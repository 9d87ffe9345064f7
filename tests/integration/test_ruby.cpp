// Stacks of Ruby, from outside, against what Ruby itself says of them: Ruby of our own (ruby/) on the system's Ruby.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/registers.h"
#include "profiler/export/pprof.h"
#include "runtimes/dynamic_symbol.h"
#include "runtimes/ruby/find.h"
#include "support/core_of.h"
#include "support/find_in_images.h"
#include "support/flipping_memory.h"
#include "support/interpreter_stacks.h"
#include "support/privilege.h"
#include "support/run_command.h"
#include "support/runtime_program.h"
#include "support/tested_version.h"
#include "windlass/target.h"

namespace windlass {
namespace {

using test::Call;
using test::run;
using test::Stacks;

const std::string kFolder = WINDLASS_RUBY_DIRECTORY;  // NOLINT
const std::string kSources = WINDLASS_RUBY_SOURCES;   // NOLINT

// Methods written in C have no file of their own: Ruby's backtraces have their caller's.
void take_callers_files(std::vector<Call>& stack) {
  for (std::size_t i = stack.size(); i-- > 1;)
    if (stack[i - 1].file == "<cfunc>") stack[i - 1].file = stack[i].file, stack[i - 1].line = stack[i].line;
}

Expected<std::uint64_t> find_base(const Memory& memory, std::uint64_t base) {
  const auto version = runtimes::ruby::find_version(memory, base);
  return version ? Expected<std::uint64_t>(base) : version;
}

// The machine's, or what WINDLASS_RUBY names.
std::string ruby() {
  const char* given = std::getenv("WINDLASS_RUBY");
  return given != nullptr ? given : "ruby";
}

std::string version_of_ruby() {
  const auto version = run(ruby() + " -e 'print RUBY_VERSION' 2>/dev/null");
  return version.status == 0 ? version.output : "";
}

class RubyStacks : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string version = version_of_ruby();
    if (version.empty()) GTEST_SKIP() << "no ruby";
    if (version < "3.1." || version >= "3.4") GTEST_SKIP() << "another Ruby than 3.1 to 3.3: " << version;
  }
};

Stacks walk(const std::string& what, std::set<std::string>& ends) {
  return test::walk_interpreted(what, ends, [](std::vector<Call>& calls) { take_callers_files(calls); });
}

// Methods that C has called with nothing of Ruby around them have no file, and are not shown: an enumerator's fiber.
Stacks said_by(const std::vector<std::string>& printed) {
  Stacks stacks;
  for (const std::string& line : printed)
    if (!line.ends_with("  0")) stacks[line.substr(0, line.find(' '))].push_back(line.substr(line.find(' ') + 1));
  return stacks;
}

void expect_equal(const Stacks& said, const Stacks& walked) {
  constexpr std::size_t kThreads = 16;
  ASSERT_EQ(said.size(), kThreads);
  std::size_t frames = 0;
  for (const auto& [thread, stack] : said) {
    ASSERT_TRUE(walked.contains(thread));
    EXPECT_EQ(walked.at(thread), stack);
    frames += stack.size();
  }
  ::printf("%zu frames of %zu threads\n", frames, said.size());
}

// With its compiler nothing is shown of a thread that has such code on its stack.
const std::string kInterpreted = "--disable-yjit", kCompiled = "--yjit --yjit-call-threshold=2";  // NOLINT

test::RuntimeProgram start(const std::string& program, const std::string& options = kInterpreted) {
  return test::RuntimeProgram({"/bin/sh", "-c", "exec " + ruby() + " " + options + " " + kSources + "/" + program},
                              kFolder);
}

TEST_F(RubyStacks, AreWhatItSaysOfThem) {
  const auto program = start("stacks.rb");
  const Stacks said = said_by(program.printed());
  std::set<std::string> ends;
  expect_equal(said, walk("-p " + std::to_string(program.pid()), ends));
  EXPECT_EQ(ends, std::set<std::string>{"complete"});
}

TEST_F(RubyStacks, ThroughCompiledCodeAreNotGuessedAt) {
  if (run(ruby() + " --yjit -e '' 2>&1").output.find("without YJIT") != std::string::npos) GTEST_SKIP() << "no YJIT";
  const auto program = start("stacks.rb", kCompiled);
  const Stacks said = said_by(program.printed());
  std::set<std::string> ends;
  const Stacks walked = walk("-p " + std::to_string(program.pid()), ends);
  std::size_t none = 0;
  for (const auto& [thread, stack] : said) {
    const bool shown = walked.contains(thread) && !walked.at(thread).empty();
    none += shown ? 0 : 1;
    if (shown) {
      EXPECT_EQ(walked.at(thread), stack);
    }
  }
  ::printf("%zu of %zu threads with compiled code\n", none, said.size());
  EXPECT_GT(none, 0U);
}

TEST_F(RubyStacks, OfACoreAreTheSame) {
  const auto program = start("stacks.rb");
  const Stacks said = said_by(program.printed());
  const test::CoreOf core(program.pid(), kFolder + "/core");
  if (!core.why_not().empty()) GTEST_SKIP() << core.why_not();
  std::set<std::string> ends;
  expect_equal(said, walk("--core " + core.path(), ends));
}

// Where some bits of what is read are others than there are, reading ends all the same.
TEST_F(RubyStacks, BearMemoryThatLies) {
  const auto program = start("stacks.rb");
  ASSERT_FALSE(program.printed().empty());
  const auto target = open_process(static_cast<std::uint64_t>(program.pid()));
  ASSERT_TRUE(target) << target.error().text();
  const test::FlippingMemory truth(program.pid(), 0);
  const auto at = test::find_in_images(truth, test::maps_of(program.pid()), find_base);
  ASSERT_TRUE(at);
  for (const unsigned odds : {0U, 200U, 50U, 5U}) {
    const test::FlippingMemory memory(program.pid(), odds);
    std::size_t frames = 0, named = 0;
    for (int attempt = 0; attempt < 10; ++attempt) {
      const auto ruby = runtimes::ruby::open(memory, *at);
      if (!ruby) continue;
      for (const Thread& thread : target->threads) {
        const auto list = (*ruby)->frames_of(memory, {thread.registers.get(x86_64::kFsBase), thread.registers.sp()});
        if (!list) continue;
        frames += list->size();
        for (const auto& frame : *list) named += (*ruby)->name_of(memory, frame).has_value() ? 1 : 0;
      }
    }
    ::printf("one read in %u lies: %zu frames, %zu named\n", odds, frames, named);
    EXPECT_TRUE(odds != 0 || (frames >= 6400 && named == frames));
  }
}

// A process as it is, but for some bytes.
class ChangedMemory final : public Memory {
 public:
  ChangedMemory(const Memory& memory, std::uint64_t at, std::string bytes)
      : memory_(memory), at_(at), bytes_(std::move(bytes)) {}
  bool read(std::uint64_t address, void* to, std::size_t size) const override {
    if (!memory_.read(address, to, size)) return false;
    for (std::size_t i = 0; i < bytes_.size(); ++i)
      if (at_ + i >= address && at_ + i - address < size) static_cast<char*>(to)[at_ + i - address] = bytes_[i];
    return true;
  }

 private:
  const Memory& memory_;
  std::uint64_t at_;
  std::string bytes_;
};

TEST_F(RubyStacks, OfAnotherVersionAreNotGuessedAt) {
  const auto program = start("stacks.rb");
  ASSERT_FALSE(program.printed().empty());
  const test::FlippingMemory truth(program.pid(), 0);
  const auto at = test::find_in_images(truth, test::maps_of(program.pid()), find_base);
  ASSERT_TRUE(at);
  const auto version = runtimes::ruby::find_version(truth, *at);
  const auto symbols = runtimes::find_dynamic_symbol(truth, *at, "rb_sym_immortal_count");
  ASSERT_TRUE(version && symbols);
  const auto why_not = [&](std::uint64_t where, const std::string& bytes) {
    const auto ruby = runtimes::ruby::open(ChangedMemory(truth, where, bytes), *at);
    return ruby ? "" : ruby.error().text();
  };
  EXPECT_EQ(why_not(*version, std::string("\3")), "");
  EXPECT_NE(why_not(*version + 4, std::string("\4")).find("another Ruby than 3.1 to 3.3"), std::string::npos);
  EXPECT_NE(why_not(*version, std::string("\4")).find("another Ruby than 3.1 to 3.3"), std::string::npos);
  char first = 0;
  ASSERT_TRUE(truth.read(*symbols, &first, 1));
  const std::uint64_t behind_mark = *symbols + (first == '\xf3' ? 4 : 0);
  EXPECT_NE(why_not(behind_mark, std::string("\x55")).find("other code than is known"), std::string::npos);
}

// ---- samples --------------------------------------------------------------------------------------------------------

// What chains.rb says of itself: which functions are called from each line.
std::map<std::size_t, std::set<std::string>> calls_of_lines() {
  std::map<std::size_t, std::set<std::string>> calls;
  std::ifstream file(kSources + "/chains.rb");
  std::size_t number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    const std::size_t at = line.find("# -> ");
    if (at == std::string::npos || line.find("LABEL") != std::string::npos) continue;
    std::string rest = line.substr(at + 5);
    for (std::size_t bar = 0; bar != std::string::npos;) {
      bar = rest.find(" | ");
      calls[number].insert(rest.substr(0, bar));
      if (bar != std::string::npos) rest.erase(0, bar + 3);
    }
  }
  return calls;
}

class ChainJudge {
 public:
  // Why a chain of Ruby's, innermost first, cannot be; empty: it can.
  [[nodiscard]] std::string fault_of(std::vector<Call> chain) const {
    if (chain.empty()) return "";
    take_callers_files(chain);
    if (chain.back().function != "<main>" && chain.back().function != "block in <main>" &&
        chain.back().function != "block (2 levels) in <main>")
      return "begins in " + chain.back().function;
    for (std::size_t i = 0; i + 1 < chain.size(); ++i) {
      const Call &callee = chain[i], &caller = chain[i + 1];
      if (!caller.file.ends_with("/chains.rb")) {
        // Made by make(), whose letter is its callee's, too.
        if (callee.function != "call" && callee.function != "lambda" && !is_made(callee, caller))
          return fmt::format("{} below {} of {}", callee.function, caller.function, caller.file);
        continue;
      }
      const auto calls = calls_.find(caller.line);
      if (calls == calls_.end() || !calls->second.contains(callee.function))
        return fmt::format("{} below {}:{}", callee.function, caller.function, caller.line);
    }
    return "";
  }

 private:
  static bool is_made(const Call& callee, const Call& caller) {
    const std::size_t at = caller.file.find("made_");
    if (at == std::string::npos) return false;
    return callee.function == "made_spin_" + caller.file.substr(at + 5) || callee.file == caller.file;
  }
  std::map<std::size_t, std::set<std::string>> calls_ = calls_of_lines();
};

TEST(RubyJudge, FindsFaults) {
  const ChainJudge judge;
  const auto at = [&](const std::string& name, std::size_t line) { return Call{name, kSources + "/chains.rb", line}; };
  std::map<std::string, std::size_t> line_of;  // that calls, by the first callee
  for (const auto& [line, names] : calls_of_lines()) line_of.emplace(*names.begin(), line);
  const std::size_t work = line_of["even"];
  EXPECT_EQ(judge.fault_of({at("even", 99), at("work", work), at("<main>", line_of["work"])}), "") << "the last line";
  EXPECT_NE(judge.fault_of({at("even", 99), at("<main>", line_of["work"])}), "") << "work is missing";
  EXPECT_NE(judge.fault_of({at("spin", 14), at("work", work), at("<main>", line_of["work"])}), "");
  EXPECT_NE(judge.fault_of({at("even", 99), at("work", work)}), "") << "no beginning";
  EXPECT_EQ(judge.fault_of({at("made_spin_a", 99), {"block in work", "made_a", 1}, {"<main>", "made_a", 1}}), "");
  EXPECT_NE(judge.fault_of({at("made_spin_b", 99), {"block in work", "made_a", 1}, {"<main>", "made_a", 1}}), "");
}

// Of its own: libraries are loaded before.
constexpr auto kIsKnown = [](const std::vector<Call>& chain) {
  return std::ranges::any_of(chain, [](const Call& call) { return call.function == "work"; });
};

TEST_F(RubyStacks, SamplesAreWhatThereCanBe) {
  if (const std::string reason = test::no_privilege_to_sample(); !reason.empty()) GTEST_SKIP() << reason;
  const ChainJudge judge;
  for (const std::string& way : {kInterpreted, kCompiled}) {
    const std::string file = kFolder + "/chains.pb.gz";
    const auto recorded = run(WINDLASS_COMMAND " record -F 1999 -o " + file + " -- " + ruby() + " " + way + " " +
                              kSources + "/chains.rb 2 2>&1");
    ASSERT_EQ(recorded.status, 0) << recorded.output;
    const auto profile = exporter::read_pprof_file(file);
    ASSERT_TRUE(profile) << profile.error().text();
    // From 3.3 on it is not exported, so a stripped library does not name it.
    const bool named =
        std::ranges::find(profile->functions, "rb_vm_exec", &profile::Function::name) != profile->functions.end();
    const std::string evaluator = named ? "rb_vm_exec" : "";
    const auto samples = test::judge_samples(*profile, evaluator, kIsKnown,
                                             [&](const std::vector<Call>& chain) { return judge.fault_of(chain); });
    samples.print(way);
    if (way == kInterpreted) {
      test::expect_right(samples);
      test::tested_version("Ruby", version_of_ruby(), way, samples.all, samples.whole, samples.wrong);
    }
    EXPECT_EQ(samples.wrong, 0U) << samples.first_wrong;
  }
}

}  // namespace
}  // namespace windlass
