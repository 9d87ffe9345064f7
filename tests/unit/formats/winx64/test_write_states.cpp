// Made-up functions are written, and run without a processor: in every state the caller must come out exactly.
#include <map>
#include <random>

#include <gtest/gtest.h>

#include "support/written_function.h"

namespace windlass {
namespace {

using namespace prologue;

using test::MadeFunction;
using test::MadeRun;
using test::WrittenFunction;

constexpr std::uint64_t kTop = 0x7fff'0000'0000, kReturn = 0x1122'3344'5566;

MadeRun call(std::mt19937_64& random) {
  MadeRun run;
  for (auto& value : run.state.integer) value = random();
  for (auto& value : run.state.xmm) value = {random(), random()};
  run.state.integer[winx64::kRsp] = kTop;
  run.stack.write(kTop, kReturn);
  return run;
}

struct Tally {
  std::size_t written = 0, refused = 0, states = 0, wrong = 0, entries = 0, with_parts = 0, without_rows = 0;
  std::map<std::string, std::size_t> reasons;
};

// One line an instruction, for failures.
std::string text(const MadeFunction& made) {
  constexpr const char* kKinds[] = {"nop",  "push", "pop",     "add rsp", "store",
                                    "load", "lea",  "clobber", "leave",   "exit"};
  std::string out;
  for (const test::X64Instruction& i : made.code.instructions())
    out += fmt::format("\n  {}: {} {}{} base {} {}", i.begin, kKinds[static_cast<std::size_t>(i.kind)],
                       i.xmm ? "xmm" : "r", i.reg, i.base, i.disp);
  for (const prologue::Part& part : made.prologue.parts) out += fmt::format("\n  part {}..{}", part.begin, part.end);
  return out;
}

void hold(const MadeFunction& made, std::uint8_t version, bool saves_can_wait, std::mt19937_64& random, Tally& tally) {
  const auto function = WrittenFunction::make(made.prologue, made.code.bytes(), version, saves_can_wait);
  if (!function) {
    ++tally.refused;
    ++tally.reasons[function.error().what];
    return;
  }
  ++tally.written;
  tally.entries += (*function)->written().entries.size();
  tally.with_parts += made.prologue.parts.empty() ? 0 : 1;
  tally.without_rows += (*function)->problems().empty() ? 0 : 1;
  const MadeRun entered = call(random);
  test::X64State caller = entered.state;
  caller.integer[winx64::kRsp] += 8;
  run_made(made, entered, [&](std::uint32_t offset, const MadeRun& run) {
    ++tally.states;
    const std::string wrong = (*function)->wrong_at(offset, run.state, run.stack, caller, kReturn);
    if (!wrong.empty() && ++tally.wrong <= 5)
      ADD_FAILURE() << "version " << int{version} << ", function " << tally.written + tally.refused << " at " << offset
                    << ":" << wrong << (tally.wrong < 3 ? text(made) : "");
  });
}

TEST(WinX64Write, CallerRecoveredAtEveryState) {
  for (const std::uint8_t version : {1, 2, 3}) {
    for (const bool saves_can_wait : {false, true}) {
      std::mt19937_64 random(20 + version);
      Tally tally;
      for (unsigned i = 0; i < 3000; ++i) {
        test::X64FunctionMaker maker([&](std::uint32_t bound) { return static_cast<std::uint32_t>(random() % bound); },
                                     true);
        const MadeFunction made = maker.make();
        ASSERT_TRUE(check(made.prologue)) << i << ": " << check(made.prologue).error().text();
        hold(made, version, saves_can_wait, random, tally);
      }
      std::printf(
          "version %d%s: %zu written (%zu with parts, %zu entries, %zu with gaps in their rows), %zu refused; "
          "%zu states, %zu wrong\n",
          version, saves_can_wait ? ", saves may wait" : "", tally.written, tally.with_parts, tally.entries,
          tally.without_rows, tally.refused, tally.states, tally.wrong);
      for (const auto& [reason, count] : tally.reasons) std::printf("  %5zu %s\n", count, reason.c_str());
      EXPECT_EQ(tally.wrong, 0U);
      EXPECT_GT(tally.written, 1500U);
      EXPECT_GT(tally.with_parts, 100U);
    }
  }
}

TEST(WinX64Write, MachineFramesLeadToWhatWasInterrupted) {
  for (const bool error_code : {false, true}) {
    test::X64Code code;
    code.push(3);
    code.add_rsp(-32);
    code.nop();
    Prologue f{.architecture = Architecture::kX86_64, .code_size = code.at()};
    f.ops = {{0, MachineFrame{error_code}}, {1, push(3)}, {5, Allocate{32}}};
    const auto function = WrittenFunction::make(f, code.bytes(), 1);
    ASSERT_TRUE(function) << function.error().text();
    std::mt19937_64 random(7);
    MadeRun run = call(random);
    test::X64State caller = run.state;
    const std::uint64_t at = kTop - 0x100;
    caller.integer[winx64::kRsp] = kTop + 0x40;
    run.state.integer[winx64::kRsp] = error_code ? at - 8 : at;
    const std::uint64_t pushed[] = {kReturn, 0x33, 0x202, kTop + 0x40, 0x2b};
    for (unsigned i = 0; i < 5; ++i) run.stack.write(at + 8 * i, pushed[i]);
    for (const test::X64Instruction& instruction : code.instructions()) {
      EXPECT_EQ(wrong_exec((*function)->functions(), WrittenFunction::kFunction + instruction.begin, run.state,
                           run.stack, caller, kReturn),
                "")
          << instruction.begin;
      run.step(instruction);
    }
  }
}

}  // namespace
}  // namespace windlass
