// Single-steps programs with frames of every kind. At every instruction the walker must name the caller's pc and sp and
// all its preserved registers. It must never name a wrong one.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <vector>

#include "exactness/judge.h"

namespace windlass::exactness {
namespace {

constexpr long kMarker = 110;  // getppid

struct Expectation {
  double pc_sp = 100;            // percent of all judged instructions, at least
  double all_registers = 100;    // less where registers are lost by design: see README.md
  std::uint64_t judged = 2500;   // at least so many, or the test tests nothing
  std::uint64_t bad_stacks = 0;  // of the whole stacks, at most
  bool every_stack = false;      // is walked from every instruction, and whole
};

void hold(std::vector<std::string> command, const JudgeOptions& options, const Expectation& expected) {
  std::vector<char*> argv;
  for (std::string& word : command) argv.push_back(word.data());
  argv.push_back(nullptr);
  std::deque<JudgedPeer> peers;
  peers.push_back({uj_unwind, Tally("windlass")});
  const JudgeReport report = judge(options, argv.data(), peers, stdout);
  if (!report.error.empty()) GTEST_SKIP() << report.error << " (is ptrace allowed here?)";
  const Tally& tally = peers[0].tally;
  std::printf("%s: %s\n", command[0].c_str(), tally.summary().c_str());
  EXPECT_GE(report.judged, expected.judged);
  EXPECT_EQ(tally.count(Verdict::kWrong), 0u);
  EXPECT_EQ(tally.count(Verdict::kEnds), 0u);
  EXPECT_LE(tally.whole.bad, expected.bad_stacks);
  if (expected.every_stack) {
    EXPECT_EQ(tally.whole.right, report.judged);
  }
  EXPECT_GE(tally.pc_sp_share(), expected.pc_sp);
  EXPECT_GE(tally.exact_share(), expected.all_registers);
}

JudgeOptions from_marker(std::uint64_t instructions) {
  JudgeOptions options;
  options.instructions = instructions;
  options.begin_at_system_call = kMarker;
  options.run_to_system_call = true;
  options.whole_stacks = 100;
  options.most_steps = 4 * instructions;
  return options;
}

void hold_program(const std::string& name, const Expectation& expected = {}) {
  JudgeOptions options = from_marker(60'000);
  if (expected.every_stack) options.whole_stacks = 1;
  hold({WINDLASS_EXACTNESS_PROGRAMS "/exactness_" + name}, options, expected);
}

TEST(Exactness, LazyBinding) { hold_program("lazy"); }
TEST(Exactness, Exceptions) { hold_program("exceptions"); }
TEST(Exactness, Frames) { hold_program("frames", {100, 99.7}); }  // longjmp
TEST(Exactness, FramesOfO3) { hold_program("frames_o3", {100, 99.7}); }
TEST(Exactness, FramesRealigned) { hold_program("frames_realigned", {100, 99.7}); }
TEST(Exactness, FramesWithoutUnwindInformation) { hold_program("frames_bare", {100, 99.7}); }
TEST(Exactness, Signals) { hold_program("signals", {100, 99.6}); }    // longjmp
TEST(Exactness, Contexts) { hold_program("contexts", {100, 96.3}); }  // swapcontext takes r12 for itself
TEST(Exactness, HandWrittenAssembly) { hold_program("assembly", {.every_stack = true}); }
// What the code does not keep is not known.
TEST(Exactness, GeneratedCodeThatKeepsNoRegisters) { hold_program("no_registers", {100, 92}); }
TEST(Exactness, StaticMusl) {
#ifdef WINDLASS_HAS_MUSL
  hold_program("signals_musl", {100, 99});  // longjmp
#else
  GTEST_SKIP() << "musl-gcc is not installed (package musl-tools)";
#endif
}

// The dynamic linker from the process's very first instruction.
TEST(Exactness, FromTheFirstInstruction) {
  JudgeOptions options;
  options.instructions = 25'000;
  options.whole_stacks = 100;
  hold({WINDLASS_EXACTNESS_PROGRAMS "/exactness_lazy"}, options, {});
}

TEST(Exactness, Python) {
  const std::string python = "/usr/bin/python3";  // one in PATH may be a script that starts another
  if (::access(python.c_str(), X_OK) != 0) GTEST_SKIP() << "there is no " << python;
  hold({python, "-c",
        "import os, json, re\nos.getppid()\nprint(json.dumps({'a': [1, 2.5, 'x']}), re.match('(a|b)*c', 'abac'), "
        "3**200)"},
       from_marker(60'000), {99.999, 99.99});
}

TEST(Exactness, Bash) {
  const std::string bash = "/bin/bash";
  if (::access(bash.c_str(), X_OK) != 0) GTEST_SKIP() << "there is no " << bash;
  hold({bash, "-c", "for i in 1 2 3; do x=$x.$i; done; echo ${x//./-}"}, from_marker(50'000), {99.999, 99.99});
}

// A judge that does not find a wrong answer is worth nothing: an unwinder that is wrong in known ways.
int always_skips_a_frame(const uj_request* request, uj_frame* out, int max) {
  uj_frame frames[2];
  const int found = uj_unwind(request, frames, 2);
  if (found != 2 || max < 1) return 0;
  out[0] = frames[1];
  return 1;
}
int forgets_rbx(const uj_request* request, uj_frame* out, int max) {
  const int found = uj_unwind(request, out, max);
  for (int i = 0; i < found; ++i) out[i].known &= ~(1u << kPreserved[0]);
  return found;
}
int gives_up(const uj_request*, uj_frame*, int) { return -1; }

TEST(Judge, SeesWrongAnswers) {
  std::deque<JudgedPeer> peers;
  peers.push_back({always_skips_a_frame, Tally("skips")});
  peers.push_back({forgets_rbx, Tally("forgets")});
  peers.push_back({gives_up, Tally("gives up")});
  std::string program = WINDLASS_EXACTNESS_PROGRAMS "/exactness_lazy";
  char* argv[] = {program.data(), nullptr};
  const JudgeReport report = judge(from_marker(3000), argv, peers);
  if (!report.error.empty()) GTEST_SKIP() << report.error;
  const auto judged = static_cast<std::int64_t>(report.judged);
  const auto count = [&](int peer, Verdict verdict) {
    return static_cast<std::int64_t>(peers[static_cast<std::size_t>(peer)].tally.count(verdict));
  };
  EXPECT_EQ(judged, 3000);
  EXPECT_GT(count(0, Verdict::kWrong), judged * 9 / 10);
  EXPECT_EQ(count(0, Verdict::kExact), 0);
  EXPECT_EQ(count(1, Verdict::kPcSp), judged);
  EXPECT_EQ(count(2, Verdict::kRefused), judged);
}

}  // namespace
}  // namespace windlass::exactness
