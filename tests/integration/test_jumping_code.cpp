// Stacks of generated code that is left by jumps alone, from outside: PHP's functions, which run in the frame of its
// interpreter, and Ruby's methods. And PyPy's loops with the helpers that they call. Programs are recorded and
// single-stepped.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "support/privilege.h"
#include "support/run_command.h"
#include "support/runtime_program.h"
#include "support/step_judge.h"
#include "support/tested_version.h"

namespace windlass {
namespace {

const std::string kFolder = WINDLASS_JUMPING_DIRECTORY, kSources = WINDLASS_JUMPING_SOURCES;
const std::string kPhp = WINDLASS_PHP_CORPORA "/php/usr/bin/php8.2";
const std::string kOpcache = WINDLASS_PHP_CORPORA "/opcache/usr/lib/php/20220829/opcache.so";

const std::string kPyPyRoot = WINDLASS_PHP_CORPORA "/pypy/usr";
const std::string kPyPy = kPyPyRoot + "/bin/pypy3.9", kPyPyLibraries = kPyPyRoot + "/lib/x86_64-linux-gnu";

struct Runtime {
  const char* name;
  std::vector<std::string> words;  // the program and its options
  std::string version;             // the command that says it
  std::string source;
  double least;                  // of its samples are whole
  std::size_t steps;             // a part of them is in generated code
  std::string start = "_start";  // of the name of the outermost frame
};
void PrintTo(const Runtime& runtime, std::ostream* out) { *out << runtime.name; }

Runtime php(const char* name, const std::string& jit, double least) {
  return {name,
          {kPhp, "-n", "-d", "zend_extension=" + kOpcache, "-d", "opcache.enable_cli=1", "-d",
           "opcache.jit_buffer_size=64M", "-d", "opcache.jit=" + jit},
          kPhp + " -n --version",
          "/php/work.php",
          least,
          40'000};
}

class JumpingCode : public ::testing::TestWithParam<Runtime> {
 protected:
  void SetUp() override {
    const std::string version = test::run(GetParam().version + " 2>&1").output;
    const auto is = [&version](const char* text) { return version.find(text) != std::string::npos; };
    if (!is("8.2.") && !is("ruby 3.1.") && !is("PyPy 7.3."))
      GTEST_SKIP() << "SKIPPED: the runtime is not here: " << version;
  }
  static std::vector<std::string> words(const std::string& scale) {
    std::vector<std::string> words = GetParam().words;
    words.push_back(kSources + GetParam().source);
    words.push_back(scale);
    return words;
  }
};

TEST_P(JumpingCode, StacksAreWhole) {
  if (const std::string why = test::no_privilege_to_sample(); !why.empty()) GTEST_SKIP() << why;
  const test::RuntimeProgram program(words("16"), kFolder);
  ASSERT_FALSE(program.printed().empty());
  const std::string profile = kFolder + "/" + GetParam().name + ".pb.gz";
  const auto found = test::record_generated(WINDLASS_COMMAND, program.pid(), profile, GetParam().start);
  ASSERT_EQ(found.recorded.status, 0) << found.recorded.output;
  const test::WholeShare& share = found.share;
  ::printf("%s: %.2f%% of %lu whole, %lu with generated code\n", GetParam().name, share.percent(), share.all,
           found.generated);
  EXPECT_GT(found.generated, 20U) << found.recorded.output;
  EXPECT_GE(share.percent(), GetParam().least) << found.recorded.output;
  EXPECT_EQ(found.wrong, 0U);
  const std::string& source = GetParam().source;
  test::tested_version(source == "/php/work.php"   ? "PHP"
                       : source == "/ruby/work.rb" ? "Ruby"
                                                   : "PyPy",
                       test::version_of(GetParam().version), GetParam().name, share.all, share.whole);
}

// What calls of functions that are written in C call back is judged: there the return address is known.
TEST_P(JumpingCode, HasItsCallersAtEveryInstruction) {
  const test::RuntimeProgram program(words("2"), kFolder);
  ASSERT_FALSE(program.printed().empty());
  ASSERT_TRUE(test::stop(program.pid()));
  test::StepJudge judge(program.pid());
  judge.ways.may_refuse = true;
  judge.ways.takes_arguments = GetParam().source == "/python/work.py";  // a helper of PyPy's returns by `ret 8`
  const std::size_t steps = test::whole() ? 20 * GetParam().steps : GetParam().steps;
  judge.run(steps, [] { return false; });
  ::printf("%s: %zu instructions judged, %zu different ones: %zu wrong, %zu different ones refused\n", GetParam().name,
           judge.judged, judge.instructions.size(), judge.wrong, judge.refused.size());
  EXPECT_EQ(judge.wrong, 0U) << judge.first_wrong;
  EXPECT_GT(judge.judged, 1'000U);
  EXPECT_LE(judge.refused.size(), judge.instructions.size() / 50);
}

INSTANTIATE_TEST_SUITE_P(Of, JumpingCode,
                         ::testing::Values(php("php_function", "function", 98.5), php("php_tracing", "tracing", 99),
                                           Runtime{"pypy",
                                                   // little memory, so that loops call for more
                                                   {"/usr/bin/env", "LD_LIBRARY_PATH=" + kPyPyLibraries,
                                                    "PYPY_GC_NURSERY=64k", kPyPy},
                                                   "LD_LIBRARY_PATH=" + kPyPyLibraries + " " + kPyPy + " --version",
                                                   "/python/work.py",
                                                   98.5,
                                                   120'000,
                                                   "pypy3.9+"},
                                           Runtime{"ruby_yjit",
                                                   {"/usr/bin/ruby", "--yjit", "--yjit-call-threshold=5"},
                                                   "/usr/bin/ruby --version",
                                                   "/ruby/work.rb",
                                                   90,  // by an address in memory: the agent may be late
                                                   100'000}),
                         [](const auto& tested) { return std::string(tested.param.name); });

}  // namespace
}  // namespace windlass
