// Ground truth for written information. Made-up functions run in an emulator. At every instruction, in prologues,
// bodies, parts and epilogues, the caller must come out exactly of the information that was written for them.
#include <gtest/gtest.h>

#include "support/pe_emulator.h"
#include "support/written_function.h"
#include "support/written_program.h"

namespace windlass {
namespace {

using test::MachineState;
using test::MadeFunction;
using test::PeEmulator;

struct Tally {
  std::size_t functions = 0, parts = 0, epilogues = 0, states = 0, wrong = 0, not_run = 0;
};

class Runner {
 public:
  Runner(const image::PeImage& image, Tally& tally)
      : base_(image.image_base()), functions_(image), emulator_(image), tally_(tally) {}

  [[nodiscard]] bool ok() const { return emulator_.ok(); }

  void function(const MadeFunction& made, std::uint32_t rva) {
    ++tally_.functions;
    tally_.parts += made.prologue.parts.size();
    call_ = emulator_.call(rva);
    caller_ = state_of(call_);
    caller_.integer[winx64::kRsp] += 8;
    std::vector<MachineState> ends;
    for (const MadeFunction::Stretch& stretch : made.stretches) {
      MachineState state = stretch.after ? ends[*stretch.after] : call_;
      state.rip = base_ + rva + stretch.begin;
      ends.push_back(run(state, base_ + rva + stretch.begin, base_ + rva + stretch.end));
    }
  }

 private:
  static test::X64State state_of(const MachineState& state) { return {state.integer, state.xmm}; }

  MachineState run(const MachineState& from, std::uint64_t begin, std::uint64_t end) {
    bool clean = false;
    const auto visit = [&](const MachineState& at) {
      if (at.rip < begin || at.rip >= end) return false;
      check(at);
      return true;
    };
    const MachineState last = emulator_.run(from, end, 4096, visit, clean);
    if (last.rip == end) return last;
    // It left the function: the machine itself says whether the code is what it is taken for.
    ++tally_.epilogues;
    const std::uint64_t rsp = last.rip == PeEmulator::kReturn ? caller_.rsp() : call_.rsp();
    bool restored = last.rsp() == rsp;
    for (unsigned i = 0; i < 16; ++i) restored &= !winx64::is_preserved(i) || last.integer[i] == call_.integer[i];
    for (unsigned i = 6; i < 16; ++i) restored &= last.xmm[i] == call_.xmm[i];
    tally_.not_run += restored ? 0 : 1;
    return last;
  }

  void check(const MachineState& at) {
    ++tally_.states;
    const auto rva = static_cast<std::uint32_t>(at.rip - base_);
    std::string wrong =
        test::wrong_exec(functions_, rva, state_of(at), emulator_.stack(), caller_, PeEmulator::kReturn);
    if (const auto entry = functions_.find(rva)) {
      FrameRow row;
      const auto ok = winx64::row_at(functions_, *entry, rva, row);
      wrong += ok ? test::wrong_row("row", row, state_of(at), emulator_.stack(), caller_, PeEmulator::kReturn)
                  : ok.error().text();
    }
    if (!wrong.empty() && ++tally_.wrong <= 5) ADD_FAILURE() << std::hex << rva << ":" << wrong;
  }

  std::uint64_t base_;
  winx64::Functions functions_;
  PeEmulator emulator_;
  Tally& tally_;
  MachineState call_;
  test::X64State caller_;
};

TEST(WinX64WriteTruth, CallerRecoveredAtEveryInstruction) {
  for (const std::uint8_t version : {1, 2}) {
    for (const bool saves_can_wait : {false, true}) {
      const test::WrittenProgram program(version, saves_can_wait, 3000);
      const auto image = image::PeImage::parse(program.file());
      ASSERT_TRUE(program.ok() && image);
      Tally tally;
      Runner runner(*image, tally);
      if (!runner.ok()) GTEST_SKIP() << "Unicorn does not start";
      for (std::size_t i = 0; i < program.functions().size(); ++i)
        runner.function(program.functions()[i], program.begin(i));
      std::printf(
          "version %d%s: %zu functions, %zu parts, %zu epilogues; %zu states, %zu wrong; %zu epilogues that do not "
          "restore\n",
          version, saves_can_wait ? ", saves may wait" : "", tally.functions, tally.parts, tally.epilogues,
          tally.states, tally.wrong, tally.not_run);
      EXPECT_EQ(tally.wrong, 0U);
      EXPECT_EQ(tally.not_run, 0U);
      EXPECT_GT(tally.parts, 500U);
      EXPECT_GT(tally.epilogues, 2000U);
    }
  }
}

}  // namespace
}  // namespace windlass
