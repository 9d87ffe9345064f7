// Stacks of SBCL, from outside. The program sbcl/work.lisp is walked in a recursion of known depth, recorded, and
// single-stepped beside a shadow stack.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "flow/stack_effect.h"
#include "support/module_names.h"
#include "support/privilege.h"
#include "support/runtime_program.h"
#include "support/step_judge.h"
#include "support/tested_version.h"
#include "support/whole.h"

namespace windlass {
namespace {

using nlohmann::json;

const std::string kFolder = WINDLASS_SBCL_DIRECTORY;
const std::string kUsr = WINDLASS_LISP_CORPORA "/sbcl/usr";

class Sbcl : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(kUsr + "/bin/sbcl")) GTEST_SKIP() << "SBCL's package is out of reach";
  }
  static std::vector<std::string> words(const std::string& call) {
    return {kUsr + "/bin/sbcl",
            "--core",
            kUsr + "/lib/sbcl/sbcl.core",
            "--noinform",
            "--no-userinit",
            "--no-sysinit",
            "--disable-debugger",
            "--load",
            WINDLASS_SBCL_SOURCES "/work.lisp",
            "--eval",
            call};
  }
};

TEST_F(Sbcl, ARecursionOfKnownDepth) {
  const test::RuntimeProgram program(words("(deep 20)"), kFolder);
  ASSERT_FALSE(program.printed().empty());
  std::istringstream lines(
      test::run(fmt::format(WINDLASS_COMMAND " walk --json {} 2>/dev/null", program.pid())).output);
  std::string line;
  ASSERT_TRUE(std::getline(lines, line));
  const json thread = json::parse(line);
  EXPECT_EQ(thread["end"], "complete") << line;
  std::vector<std::string> names;
  for (const json& frame : thread["frames"])
    names.push_back(frame["function"].is_string() ? frame["function"].get<std::string>() : "?");
  EXPECT_EQ(std::ranges::count(names, "COMMON-LISP-USER::DEEP"), 21) << line;
  const auto eval = std::ranges::find(names, "EVAL"), main = std::ranges::find(names, "main");
  EXPECT_LT(eval, main) << line;
  EXPECT_LT(main, names.end()) << line;
}

TEST_F(Sbcl, IsRecordedWhole) {
  if (const std::string why = test::no_privilege_to_sample(); !why.empty()) GTEST_SKIP() << why;
  const test::RuntimeProgram program(words("(work)"), kFolder);
  ASSERT_FALSE(program.printed().empty());
  const std::string profile = kFolder + "/work.pb.gz";
  const auto recorded = test::record_process(WINDLASS_COMMAND, program.pid(), profile);
  ASSERT_EQ(recorded.status, 0) << recorded.output;
  const auto stacks = test::folded(WINDLASS_COMMAND, profile);
  const test::WholeShare share = test::whole_share(stacks);
  ::printf("%.2f%% of %lu whole\n", share.percent(), share.all);
  EXPECT_GT(share.all, 20U) << recorded.output;
  EXPECT_GE(share.percent(), 99.0) << recorded.output;
  std::uint64_t in_work = 0, work_not_by_eval = 0;
  for (const auto& stack : stacks) {
    const auto at = std::ranges::find(stack.frames, "COMMON-LISP-USER::WORK");
    if (!stack.whole || at == stack.frames.end()) continue;
    in_work += stack.count;
    if (std::find(stack.frames.begin(), at, "EVAL") == at) work_not_by_eval += stack.count;
  }
  EXPECT_GT(in_work, 0U);
  EXPECT_EQ(work_not_by_eval, 0U);
  test::tested_version("SBCL", test::version_of(kUsr + "/bin/sbcl --version"), "computes", share.all, share.whole);
}

// Every call that is executed, and where it returns. A callee moves its return address into its frame, so the place of
// that address says nothing.
class LispJudge {
 public:
  explicit LispJudge(pid_t pid) : pid_(pid), judge_(pid) {}

  std::size_t judged = 0, wrong = 0;
  std::set<std::uint64_t> instructions;
  std::set<std::string> functions;
  std::string first_wrong;

  bool step() {
    user_regs_struct before{}, after{};
    if (::ptrace(PTRACE_GETREGS, pid_, nullptr, &before) != 0) return false;
    if (!calls_.empty()) judge(before);
    const auto effect = effect_at(before.rip);
    const int signal = std::exchange(signal_, 0);
    int status = 0;
    if (::ptrace(PTRACE_SINGLESTEP, pid_, nullptr, signal) != 0 || ::waitpid(pid_, &status, __WALL) != pid_ ||
        !WIFSTOPPED(status) || ::ptrace(PTRACE_GETREGS, pid_, nullptr, &after) != 0)
      return false;
    if (WSTOPSIG(status) != SIGTRAP) signal_ = WSTOPSIG(status);
    if (signal != 0 && after.rip != before.rip) calls_.clear();  // in a handler
    if (after.rip - before.rip > 15) from_ = before.rip;
    follow(effect, before, after);
    return true;
  }

 private:
  struct Call {
    std::uint64_t pc = 0;     // where it returns
    std::uint64_t slot = 0;   // where the call has left that
    std::uint64_t frame = 0;  // of the callee, once it has moved it there; 0: it has none
    [[nodiscard]] std::uint64_t place() const { return frame != 0 ? frame : slot; }
  };
  using Kind = flow::StackEffect::Kind;

  Kind effect_at(std::uint64_t pc) {
    std::array<std::byte, 16> code{};
    if (!judge_.memory().read(pc, code.data(), code.size())) return Kind::kNone;
    const auto effect = flow::stack_effect(ByteView(code.data(), code.size()), pc);
    return effect ? effect->kind : Kind::kNone;
  }

  bool is_lisp(std::uint64_t pc) {
    const walk::Module* module = judge_.generated(pc);
    return module != nullptr && module->function_at(pc).has_value();
  }
  // pop [rbp + 8]
  bool is_entry(std::uint64_t pc) const {
    std::array<std::uint8_t, 3> code{};
    return judge_.memory().read(pc, code.data(), code.size()) && code == std::array<std::uint8_t, 3>{0x8f, 0x45, 0x08};
  }

  void follow(Kind kind, const user_regs_struct& before, const user_regs_struct& after) {
    std::uint64_t pushed = 0;
    // A way out of several functions at once, to code within a function; or that code is called, to clean up.
    if ((kind == Kind::kCall || kind == Kind::kJump) && !is_lisp(before.rip) && is_lisp(after.rip) &&
        !is_entry(after.rip)) {
      while (!calls_.empty() && calls_.back().place() < after.rbp) calls_.pop_back();
      return;
    }
    if (kind == Kind::kCall && after.rsp + 8 == before.rsp && judge_.memory().read(after.rsp, &pushed, sizeof pushed))
      calls_.push_back({pushed, after.rsp});
    if (!calls_.empty() && is_entry(before.rip)) calls_.back().frame = before.rbp;
    const auto target = std::find_if(calls_.rbegin(), calls_.rend(),
                                     [&](const Call& call) { return call.pc == after.rip && after.rsp > call.slot; });
    if (kind == Kind::kReturn && target != calls_.rend()) {
      calls_.erase(target.base() - 1, calls_.end());
    } else if (kind == Kind::kReturn) {
      calls_.clear();
    }
    // The record of a frame is gone once rsp is above.
    while (!calls_.empty() && after.rsp > calls_.back().place() + (calls_.back().frame != 0 ? 16 : 8))
      calls_.pop_back();
  }

  void judge(const user_regs_struct& now) {
    if (!is_lisp(now.rip)) return;
    const walk::Module* module = judge_.generated(now.rip);
    ++judged;
    instructions.insert(now.rip);
    functions.insert(test::made_name(module, now.rip));
    StackWalker walker(judge_.target().space, test::registers_of(now));
    std::string what;
    // All callers that are known; those within C too.
    for (std::size_t i = calls_.size(); i-- != 0 && what.empty();) {
      if (!walker.step())
        what = walker.error().text();
      else if (walker.frame().pc().value() != calls_[i].pc)
        what = fmt::format("caller {}: {:#x}, not {:#x}", calls_.size() - i, walker.frame().pc().value(), calls_[i].pc);
      if (judged % 64 != 0) break;
    }
    if (what.empty()) return;
    ++wrong;
    if (wrong_at_.insert(now.rip).second && wrong_at_.size() < 32)
      first_wrong += fmt::format("at {:#x} {} rsp {:#x} rbp {:#x}, from {:#x}: {}\n", now.rip,
                                 test::made_name(module, now.rip), now.rsp, now.rbp, from_, what);
  }

  pid_t pid_;
  int signal_ = 0;
  std::uint64_t from_ = 0;  // the last jump, call or return
  test::StepJudge judge_;   // its view of the process
  std::vector<Call> calls_;
  std::set<std::uint64_t> wrong_at_;
};

TEST_F(Sbcl, HasItsCallersAtEveryInstruction) {
  const test::RuntimeProgram program(words("(work)"), kFolder);
  ASSERT_FALSE(program.printed().empty());
  ASSERT_TRUE(test::stop(program.pid()));
  LispJudge judge(program.pid());
  const std::size_t steps = test::whole() ? 3'000'000 : 150'000;
  for (std::size_t i = 0; i < steps && judge.step(); ++i) {}
  ::printf("%zu instructions judged, %zu different ones of %zu functions: %zu wrong\n", judge.judged,
           judge.instructions.size(), judge.functions.size(), judge.wrong);
  EXPECT_EQ(judge.wrong, 0U) << judge.first_wrong;
  EXPECT_GT(judge.judged, 10'000U);
  EXPECT_GT(judge.functions.size(), 10U);
}

}  // namespace
}  // namespace windlass
