// Generated code in a live Wine process that has registered it with the system: each stack as the system itself unwinds
// it, from outside and from a dump.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <set>

#include "support/wine_program.h"
#include "windlass/target.h"

namespace windlass {
namespace {

using test::WineProgram;

class WineTables : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (test::find_wine().empty() || ::access(kProgram, R_OK) != 0) return;
    program_ = new WineProgram(WINDLASS_WINE_PREFIX, {kProgram});
    published_ = test::read_stacks(*program_, kLines);
  }
  static void TearDownTestSuite() {
    delete program_;
    program_ = nullptr;
  }
  void SetUp() override {
    if (test::find_wine().empty()) GTEST_SKIP() << "there is no Wine (package wine64)";
    if (program_ == nullptr)
      GTEST_SKIP() << "the program was not built: there is no MinGW (package g++-mingw-w64-x86-64)";
    ASSERT_EQ(published_.size(), kLines) << "the program did not start its threads";
  }

  struct Stack {
    std::vector<std::uint64_t> pcs;
    std::vector<FrameCertainty> certainties;
    WalkEnd end = WalkEnd::kRunning;
  };
  static Stack walk(const Target& target, const Thread& thread) {
    Stack stack;
    StackWalker walker(target.space, thread.registers);
    do {
      stack.pcs.push_back(walker.frame().pc().value());
      stack.certainties.push_back(walker.frame().certainty);
    } while (walker.step());
    stack.end = walker.end_reason();
    return stack;
  }
  // The stack with the frames that were printed, from the first in generated code on.
  static void expect_published(const Target& target, const std::string& name) {
    const std::vector<std::uint64_t>& printed = published_[name];
    ASSERT_GT(printed.size(), kFunctions + 3) << name;
    const std::vector<std::uint64_t> wanted(printed.begin() + 1, printed.end());
    for (const Thread& thread : target.threads) {
      const Stack stack = walk(target, thread);
      const auto found = std::ranges::find(stack.pcs, wanted.front());
      if (found == stack.pcs.end()) continue;
      EXPECT_EQ(std::vector(found, stack.pcs.end()), wanted) << name;
      EXPECT_EQ(stack.end, WalkEnd::kComplete) << name << ": " << end_name(stack.end);
      const auto first = static_cast<std::size_t>(found - stack.pcs.begin());
      for (std::size_t i = 0; i <= kFunctions; ++i)
        EXPECT_EQ(stack.certainties.at(first + i), FrameCertainty::kDescribed) << name << ' ' << i;
      return;
    }
    ADD_FAILURE() << name << " is in no stack";
  }
  static bool names_callback(const std::vector<std::string>& texts) {
    return std::ranges::any_of(texts, [](const std::string& text) { return text.find("a callback") != text.npos; });
  }
  static std::vector<std::string> texts_of(const Target& target) {
    std::vector<std::string> texts = target.notes;
    for (const Error& problem : target.problems) texts.push_back(problem.text());
    return texts;
  }

  static constexpr std::size_t kLines = 7, kFunctions = 10;
  static constexpr const char* kProgram = WINDLASS_WINE_WORKLOADS "/wine_tables.exe";
  static inline WineProgram* program_ = nullptr;
  static inline std::map<std::string, std::vector<std::uint64_t>> published_;
};

TEST_F(WineTables, StacksAreWhatTheProgramSays) {
  const auto target = open_process(static_cast<std::uint64_t>(program_->pid()));
  ASSERT_TRUE(target) << target.error().text();
  for (const char* name : {"table", "growable", "front"}) expect_published(*target, name);
  // Nobody but the process can say what is behind this code.
  EXPECT_TRUE(names_callback(texts_of(*target)));
}

// Wherever it is interrupted: pushes, pops, the call, both functions. One thread spins, one is suspended.
TEST_F(WineTables, LoopsAreWalkedWhereverTheyAre) {
  constexpr std::uint64_t kCode = 0x200;  // of both functions
  const std::uint64_t begin = published_["spin"].at(0);
  const auto is_loop = [&](std::uint64_t pc) { return pc >= begin && pc < begin + kCode; };
  // The thread's start calls it as it calls the others.
  const std::vector<std::uint64_t> below(published_["table"].end() - 3, published_["table"].end());
  // A loaded machine may run the spinning thread seldom: it is read until it was seen at so many places.
  constexpr std::size_t kPlaces = 4;
  constexpr int kRounds = 60;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(2);
  std::set<std::uint64_t> interrupted;
  for (int round = 0; round < kRounds || interrupted.size() < kPlaces; ++round) {
    ASSERT_LT(std::chrono::steady_clock::now(), deadline) << "seen at " << interrupted.size() << " places";
    const auto target = open_process(static_cast<std::uint64_t>(program_->pid()));
    ASSERT_TRUE(target) << target.error().text();
    unsigned loops = 0;
    for (const Thread& thread : target->threads) {
      const Stack stack = walk(*target, thread);
      const auto last = std::ranges::find_if(stack.pcs.rbegin(), stack.pcs.rend(), is_loop).base();
      if (last == stack.pcs.begin()) continue;
      ++loops;
      EXPECT_EQ(std::vector(last, stack.pcs.end()), below);
      EXPECT_EQ(stack.end, WalkEnd::kComplete) << end_name(stack.end);
      if (is_loop(stack.pcs.front())) interrupted.insert(stack.pcs.front());
    }
    EXPECT_EQ(loops, 2U);
  }
}

TEST_F(WineTables, MinidumpsHaveTheSameStacks) {
  const std::string small = WINDLASS_WINE_WORKLOADS "/tables_small.dmp", full = WINDLASS_WINE_WORKLOADS "/tables.dmp";
  WineProgram writer(WINDLASS_WINE_PREFIX, {WINDLASS_WINE_WORKLOADS "/wine_dump.exe",
                                            std::to_string(published_["process"].at(0)), "Z:" + small, "Z:" + full});
  ASSERT_EQ(writer.wait(), 0) << "the dumps could not be written";
  const auto dump = open_minidump(full, DumpOptions());
  ASSERT_TRUE(dump) << dump.error().text();
  for (const char* name : {"table", "growable", "front"}) expect_published(*dump, name);
  EXPECT_TRUE(names_callback(texts_of(*dump)));
  ::unlink(small.c_str());
  ::unlink(full.c_str());
}

}  // namespace
}  // namespace windlass
