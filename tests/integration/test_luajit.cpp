// Stacks of LuaJIT's traces, from outside: a program is recorded and single-stepped.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "support/find_in_images.h"
#include "support/judged.h"
#include "support/privilege.h"
#include "support/runtime_program.h"
#include "support/tested_version.h"

namespace windlass {
namespace {

const std::string kFolder = WINDLASS_LUAJIT_DIRECTORY, kCommand = "/usr/bin/luajit";

class LuaJit : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(kCommand)) GTEST_SKIP() << "SKIPPED: there is no LuaJIT (package luajit)";
  }
  // The size of what each round does: small ones call more often.
  static std::vector<std::string> words(const std::string& scale) {
    return {kCommand, WINDLASS_LUAJIT_SOURCES "/work.lua", scale};
  }
};

// Where the program's file has its code.
std::uint64_t entry_of(pid_t pid) {
  for (const auto& map : test::maps_of(pid))
    if (map.executable && map.path.ends_with("/luajit")) return map.begin;
  return 0;
}

TEST_F(LuaJit, StacksAreWhole) {
  if (const std::string why = test::no_privilege_to_sample(); !why.empty()) GTEST_SKIP() << why;
  const test::RuntimeProgram program(words("64"), kFolder);
  ASSERT_FALSE(program.printed().empty());
  const auto found = test::record_generated(WINDLASS_COMMAND, program.pid(), kFolder + "/work.pb.gz");
  ASSERT_EQ(found.recorded.status, 0) << found.recorded.output;
  const test::WholeShare& share = found.share;
  ::printf("%.2f%% of %lu whole, %lu with a trace\n", share.percent(), share.all, found.generated);
  EXPECT_GT(found.generated, 20U) << found.recorded.output;
  EXPECT_GE(share.percent(), 99.0) << found.recorded.output;
  EXPECT_EQ(found.wrong, 0U);
  test::tested_version("LuaJIT", test::version_of("luajit -v"), "traces", share.all, share.whole);
}

// In a trace, and in the interpreter, the caller is the C function that has called the interpreter.
TEST_F(LuaJit, HasItsCallersAtEveryInstruction) {
  const test::RuntimeProgram program(words("0.25"), kFolder);
  ASSERT_FALSE(program.printed().empty());
  ASSERT_TRUE(test::stop(program.pid()));
  test::StepJudge judge(program.pid());
  judge.ways.preserved = {x86_64::kRbx, x86_64::kRbp, 14, 15};  // the entry to a trace keeps r12 and r13 elsewhere
  const walk::Module* image = walk::module_at(judge.target().space, entry_of(program.pid()));
  ASSERT_NE(image, nullptr);
  judge.ways.judges = [&](std::uint64_t pc) {
    if (judge.generated(pc) != nullptr) return true;
    FrameRow row;
    const auto function = image->function_at(pc);
    return function && function->begin <= pc && pc < function->end && image->row_at(function->begin, row) &&
           row.cfa.is_at(x86_64::kRsp) && row.cfa.offset() > 32;
  };
  const std::size_t steps = test::whole() ? 3'000'000 : 150'000;
  judge.run(steps, [] { return false; });
  test::expect_right(judge, 10'000, 500);
}

}  // namespace
}  // namespace windlass
