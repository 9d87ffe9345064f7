// The walker at every instruction of AArch64 programs, against a shadow stack.
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <string_view>

#include "aarch64/judge.h"

namespace windlass::aarch64_judge {
namespace {

struct Case {
  const char* program;
  std::uint64_t most;
  bool is_signed;              // compiled with return-address signing
  bool has_signals;            // and must have had some
  std::uint64_t every = 1;     // instructions from one walk of the profiler's unwinder to the next
  std::uint64_t landings = 0;  // callers that must at least have been judged while libgcc went to a landing pad
};

std::string find_program(const char* name) {
  const std::string path = std::string(WINDLASS_AARCH64_PROGRAMS) + "/" + name;
  return access(path.c_str(), R_OK) == 0 ? path : "";
}

class AArch64Exactness : public testing::TestWithParam<Case> {};

// The kernel leaves libgcc's installation of a landing pad's context to the agent.
std::uint64_t left_at_a_landing(const Report& report) {
  std::uint64_t left = 0;
  for (const auto& [where, times] : report.kernel_ends)
    left += where.starts_with("libgcc_s") && where.ends_with("unsupported expression") ? times : 0;
  return left;
}

TEST_P(AArch64Exactness, EveryInstruction) {
  const Case& test = GetParam();
  if (access(WINDLASS_AARCH64_SYSROOT "/complete", R_OK) != 0)
    GTEST_SKIP() << "no arm64 libraries: run cmake/aarch64_sysroot.sh " WINDLASS_AARCH64_SYSROOT;
  if (std::system("command -v qemu-aarch64 >/dev/null 2>&1") != 0) GTEST_SKIP() << "no qemu-aarch64 on this machine";
  const std::string program = find_program(test.program);
  if (program.empty()) GTEST_SKIP() << test.program << " was not built: no arm64 musl when this was configured";

  Options options;
  options.sysroot = WINDLASS_AARCH64_SYSROOT;
  options.command = {program};
  options.most = test.most;
  options.kernel_stack = test.every;
  options.bind_now = test.landings != 0;  // the first landing comes sooner
  const Report report = judge(options);
  fmt::print("{}", report.text(20));
  ASSERT_TRUE(report.problem.empty()) << report.problem;
  ASSERT_GT(report.judged, test.most * 2 / 3);
  EXPECT_EQ(report.count[static_cast<unsigned>(Verdict::kWrong)], 0u);
  EXPECT_EQ(report.count[static_cast<unsigned>(Verdict::kEnds)], 0u);
  EXPECT_EQ(report.stacks_wrong + report.stacks_short, 0u);
  EXPECT_EQ(report.landings_wrong + report.landings_refused, 0u);
  // musl's start routine and qsort leave frames by a jump through a register. Where the frame record is not yet made,
  // and where a call through a register led there, nothing proves them. A few in a hundred of the stacks: they are
  // taken a fixed number of instructions apart, which may fall in step with a loop.
  const bool is_described = !std::string_view(test.program).ends_with("_musl");
  EXPECT_GE(report.share(Verdict::kExact) + report.share(Verdict::kPcSp), is_described ? 99.999 : 99.98);
  EXPECT_GE(report.share(Verdict::kExact), is_described ? 99.99 : 99.98);
  EXPECT_LE(report.stacks_unproven * 20, is_described ? 0 : report.stacks);
  EXPECT_EQ(report.strange, 0u);
  // The profiler's unwinder: never a wrong caller; where there is unwind information, nearly always the whole stack.
  EXPECT_TRUE(report.kernel_problems.empty()) << report.kernel_problems.front();
  EXPECT_GT(report.kernel_stacks, test.most / test.every / 3 * 2);
  EXPECT_EQ(report.kernel_wrong, 0u);
  EXPECT_EQ(report.kernel_memo_differences, 0u);
  if (is_described) {
    EXPECT_GT(report.kernel_plain, report.kernel_stacks);
    const std::uint64_t left = left_at_a_landing(report);
    EXPECT_GE((report.kernel_complete + left) * 100, report.kernel_stacks * 99);
    EXPECT_LE(left * 20, report.kernel_stacks) << "the part is the installation of the context, not the whole function";
  }
  EXPECT_GE(report.landings, test.landings);
  EXPECT_EQ(report.signed_links > 0, test.is_signed);
  EXPECT_EQ(report.signals > 0, test.has_signals);
}

INSTANTIATE_TEST_SUITE_P(
    Programs, AArch64Exactness,
    testing::Values(Case{"plain", 15000, false, false}, Case{"plain_framed", 8000, false, false},
                    Case{"plain_signed", 15000, true, false}, Case{"throwing_signed", 40000, true, false, 20, 60},
                    Case{"signals_signed", 10000, true, true}, Case{"deep", 20000, false, true, 20},
                    Case{"deep_signed", 20000, true, true, 20}, Case{"plain_musl", 15000, false, false, 4},
                    Case{"signals_musl", 10000, false, true}),
    [](const auto& test) { return std::string(test.param.program); });

}  // namespace
}  // namespace windlass::aarch64_judge
