// Processes that have registered their code with GDB: LLVM's lli with either of its JIT compilers, and QEMU, which runs
// a program for another machine.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "support/module_names.h"
#include "support/privilege.h"
#include "support/runtime_program.h"
#include "support/step_judge.h"
#include "support/tested_version.h"
#include "support/whole.h"

namespace windlass {
namespace {

using nlohmann::json;
using Names = std::vector<std::string>;

const std::string kFolder = WINDLASS_GDB_DIRECTORY;

// main calls middle, and that leaf, for ever.
constexpr const char* kProgram = R"(
declare i32 @puts(ptr)
declare i32 @fflush(ptr)
@ready = private constant [6 x i8] c"READY\00"
define i64 @leaf(i64 %n) noinline {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %x = phi i64 [ %n, %entry ], [ %y, %loop ]
  %m = mul i64 %x, 6364136223846793005
  %y = add i64 %m, 1442695040888963407
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, 2000
  br i1 %more, label %loop, label %end
end:
  ret i64 %y
}
define i64 @middle(i64 %n) noinline {
  %a = call i64 @leaf(i64 %n)
  %b = call i64 @leaf(i64 %a)
  %c = xor i64 %a, %b
  ret i64 %c
}
define i32 @main() {
entry:
  %p = call i32 @puts(ptr @ready)
  %f = call i32 @fflush(ptr null)
  br label %loop
loop:
  %x = phi i64 [ 1, %entry ], [ %y, %loop ]
  %y = call i64 @middle(i64 %x)
  br label %loop
}
)";

std::vector<test::FoldedStack> recorded(pid_t pid, unsigned seconds) {
  const std::string profile = kFolder + "/profile.pb.gz";
  const auto record = test::record_process(WINDLASS_COMMAND, pid, profile, seconds);
  EXPECT_EQ(record.status, 0) << record.output;
  return test::folded(WINDLASS_COMMAND, profile);
}

// Whatever stands between them.
bool has_in_order(const Names& frames, const Names& names) {
  auto at = frames.begin();
  for (const std::string& name : names) {
    at = std::find(at, frames.end(), name);
    if (at == frames.end()) return false;
  }
  return true;
}

class Llvm : public testing::TestWithParam<std::string> {
 protected:
  static std::string lli(const std::string& version) { return "/usr/lib/llvm-" + version + "/bin/lli"; }
  static Names words(const std::string& version, const std::string& compiler) {
    const std::string program = kFolder + "/program.ll";
    std::ofstream(program) << kProgram;
    Names made = {lli(version), "--jit-kind=" + compiler, program};
    if (version == "14") made.insert(made.begin() + 1, "--opaque-pointers");
    return made;
  }
};

TEST_P(Llvm, CodeHasItsNamesAndCallers) {
  if (const std::string why = test::no_privilege_to_sample(); !why.empty()) GTEST_SKIP() << why;
  for (const char* compiler : {"mcjit", "orc"}) {
    SCOPED_TRACE(compiler);
    const test::RuntimeProgram program(words(GetParam(), compiler), kFolder);
    ASSERT_FALSE(program.printed().empty());
    const auto stacks = recorded(program.pid(), 2);
    const test::WholeShare share = test::whole_share(stacks);
    EXPECT_GT(share.all, 100U);
    EXPECT_GE(share.percent(), 99.5);
    test::tested_version("LLVM (lli)", test::version_of(lli(GetParam()) + " --version"), compiler, share.all,
                         share.whole);
    // A tick may come in the program's main() itself, below lli's, and with an interrupt of the kernel above.
    for (const test::FoldedStack& stack : stacks)
      EXPECT_TRUE(has_in_order(stack.frames, {"_start", "__libc_start_main", "main", "middle"}) ||
                  std::ranges::count(stack.frames, "main") == 2)
          << fmt::format("{}", fmt::join(stack.frames, ";"));
    std::istringstream lines(test::run(fmt::format(WINDLASS_COMMAND " walk --json {}", program.pid())).output);
    for (std::string line; std::getline(lines, line);) {
      const json thread = json::parse(line);
      EXPECT_EQ(thread["end"], "complete");
    }
  }
}

// What registered code is called by, at every instruction of it. (QEMU's way into what it translates is not
// registered.)
void step(pid_t pid, std::size_t steps) {
  ASSERT_TRUE(test::stop(pid));
  test::StepJudge judge(pid);
  judge.ways.judges = [&](std::uint64_t pc) { return !test::made_name(judge.generated(pc), pc).empty(); };
  judge.run(test::whole() ? 5 * steps : steps, [&] { return judge.judged > 10'000; });
  ::printf("%zu instructions judged, %zu different ones: %zu wrong\n", judge.judged, judge.instructions.size(),
           judge.wrong);
  EXPECT_EQ(judge.wrong, 0U) << judge.first_wrong;
  EXPECT_GT(judge.judged, 2'000U);  // QEMU is mostly in its own code
}

TEST_P(Llvm, CodeHasItsCallersAtEveryInstruction) {
  const test::RuntimeProgram program(words(GetParam(), "orc"), kFolder);
  ASSERT_FALSE(program.printed().empty());
  step(program.pid(), 40'000);
}

INSTANTIATE_TEST_SUITE_P(Of, Llvm, testing::Values("14", "19", "22"),
                         [](const auto& version) { return version.param; });

class Qemu : public testing::Test {
 protected:
  // `depth`: how much the guest computes between two system calls, by which it leaves the translated code.
  static Names words(const std::string& depth) {
    const std::string source = kFolder + "/guest.c", guest = kFolder + "/guest";
    std::ofstream(source) << kGuest;
    const auto made = test::run(fmt::format("aarch64-linux-gnu-gcc -O2 -static -o {} {} 2>&1", guest, source));
    EXPECT_EQ(made.status, 0) << made.output;
    return {"/usr/bin/qemu-aarch64", guest, depth};
  }
  static constexpr const char* kGuest = R"(
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
__attribute__((noinline)) static long fib(long n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
int main(int count, char** words) {
  volatile long sum = 0;
  double number = 1;
  char text[64];
  puts("READY"), fflush(stdout);
  const int depth = atoi(words[1]);
  for (;;) sum += fib(getppid() % 4 + depth), snprintf(text, sizeof text, "%f", number += sum / 3.0);
}
)";
};

TEST_F(Qemu, TranslatedCodeHasItsCallersAtEveryInstruction) {
  const test::RuntimeProgram program(words("8"), kFolder);
  ASSERT_FALSE(program.printed().empty());
  step(program.pid(), 100'000);
}

TEST_F(Qemu, TranslatedCodeIsCalledByItsLoop) {
  if (const std::string why = test::no_privilege_to_sample(); !why.empty()) GTEST_SKIP() << why;
  const test::RuntimeProgram program(words("20"), kFolder);
  ASSERT_FALSE(program.printed().empty());
  const auto stacks = recorded(program.pid(), 3);
  const test::WholeShare share = test::whole_share(stacks);
  ::printf("%.2f%% of %lu whole\n", share.percent(), share.all);
  EXPECT_GT(share.all, 500U);
  EXPECT_GE(share.percent(), 99.5);  // one or two of a thousand: where QEMU enters what it has translated
  std::uint64_t translated = 0;
  for (const test::FoldedStack& stack : stacks) {
    if (!stack.whole || std::ranges::find(stack.frames, "code_gen_buffer") == stack.frames.end()) continue;
    translated += stack.count;
    EXPECT_TRUE(has_in_order(stack.frames, {"_start", "main", "cpu_loop", "cpu_exec", "code_gen_buffer"}))
        << fmt::format("{}", fmt::join(stack.frames, ";"));
  }
  EXPECT_GT(translated * 2, share.all);
  test::tested_version("QEMU (user mode)", test::version_of("qemu-aarch64 --version"), "work", share.all, share.whole);
}

}  // namespace
}  // namespace windlass
