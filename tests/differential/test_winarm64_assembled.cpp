// Functions that LLVM's assembler gives their unwind information, run by the emulator: at every instruction the caller
// by the unwind codes, by rows and by the unwinder's C. They have what no compiler's output in the corpora has.
#include <gtest/gtest.h>

#include "differential/arm64_steps.h"
#include "differential/arm64_truth.h"
#include "support/seh_assembly.h"
#include "walk/apply.h"

namespace windlass {
namespace {

using test::SehAssembly;
using test::SehStep;

// The caller by the row of one address.
class RowSteps {
 public:
  RowSteps(const winarm64::Functions& functions, const test::Arm64Emulator& emulator)
      : evaluator_(functions, emulator.base()), emulator_(emulator) {}
  winarm64::RuntimeFunction function;
  std::size_t taken = 0, wrong = 0, without = 0;
  std::string first;

  void operator()(const Registers& state, const Registers& caller) {
    ++taken;
    FrameRow row;
    const auto rva = static_cast<std::uint32_t>(state.pc().value() - emulator_.base());
    if (const auto found = evaluator_.row_at(function, rva, row); !found) {
      ++without;
      if (first.empty()) first = found.error().text();
      return;
    }
    walk::ApplyContext context;
    context.pac_mask = winarm64::ExecContext().pac_mask;
    context.slots_below_sp_are_dead = false;
    Registers got(Architecture::kAArch64);
    const auto status = walk::apply(row, emulator_, context, state, got, nullptr);
    bool same = status.ok() && got.pc().value() == caller.get(30) && got.sp() == caller.sp();
    for (RegisterNumber reg = 19; same && reg < 30; ++reg) same = got.has(reg) && got.get(reg) == caller.get(reg);
    for (RegisterNumber reg = 72; same && reg < 80; ++reg) same = got.has(reg) && got.get(reg) == caller.get(reg);
    if (!same && ++wrong == 1) first = fmt::format("row at {:#x}", rva);
  }

 private:
  winarm64::RowEvaluator evaluator_;
  const test::Arm64Emulator& emulator_;
};

struct Found {
  std::size_t entries = 0, packed = 0, homed = 0, extended = 0, most_scopes = 0, behind_end_c = 0;
  test::Truth truth;
};

// Every function is run to its end, and right at every instruction; by rows and the table, too, unless not `has_rows`:
// then there may be none.
Found run_all(const std::string& name, const SehAssembly& source, bool has_rows = true) {
  Found found;
  std::string problem;
  const std::vector<std::uint8_t> bytes = source.build(problem);
  EXPECT_TRUE(problem.empty()) << problem;
  const auto image = image::PeImage::parse(ByteView(bytes));
  EXPECT_TRUE(image);
  if (!image) return found;
  const winarm64::Functions functions(*image);
  test::Arm64Emulator emulator(*image);
  EXPECT_TRUE(emulator.ok());
  RowSteps rows(functions, emulator);
  test::KernelSteps steps(*image, emulator);
  test::TruthChecker checker(functions, emulator, found.truth, [&](const Registers& state, const Registers& caller) {
    rows(state, caller);
    steps(state, caller);
  });
  found.entries = functions.size();
  EXPECT_GE(found.entries, source.functions());
  for (std::size_t i = 0; i < functions.size(); ++i) {
    rows.function = functions.stored(i);
    winarm64::Expansion storage;
    const auto record = winarm64::read_record(*image, rows.function, storage);
    EXPECT_TRUE(record);
    if (!record) continue;
    found.packed += rows.function.packed() ? 1 : 0;
    found.homed += rows.function.packed() && winarm64::packed_fields(rows.function).h ? 1 : 0;
    found.most_scopes = std::max<std::size_t>(found.most_scopes, record->scope_count());
    found.extended += record->scope_count() > 31 || record->codes.size() > 31 * 4 ? 1 : 0;
    checker.check(rows.function);
  }
  const test::Truth& truth = found.truth;
  std::printf(
      "%-12s %zu functions, %zu entries (%zu packed, %zu homed), %zu states; wrong: codes %zu, rows %zu, table %zu; "
      "without a row %zu\n",
      name.c_str(), std::size_t{source.functions()}, found.entries, found.packed, found.homed, truth.states,
      truth.wrong, rows.wrong, steps.wrong, rows.without);
  for (const auto& [why, count] : truth.causes)
    std::printf("    %zu %s (first: %s)\n", count, why.c_str(), truth.example.at(why).c_str());
  EXPECT_EQ(truth.wrong, 0U) << truth.first_wrong;
  EXPECT_EQ(truth.complete, truth.functions);
  EXPECT_EQ(rows.wrong, 0U) << rows.first;
  EXPECT_EQ(steps.wrong, 0U) << steps.first;
  if (has_rows) {
    EXPECT_EQ(rows.without, 0U) << rows.first;
    EXPECT_TRUE(steps.refused.empty()) << steps.refused.begin()->first;
  }
  return found;
}

class WinArm64Assembled : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string missing = SehAssembly::missing(); !missing.empty()) GTEST_SKIP() << missing;
  }
};

// Every CR, RegI, RegF and H, the locals of each way to allocate them.
TEST_F(WinArm64Assembled, CanonicalPrologues) {
  SehAssembly source;
  for (unsigned cr = 0; cr < 4; ++cr)
    for (unsigned reg_i = 0; reg_i <= 10; ++reg_i)
      for (unsigned reg_f = 0; reg_f < 8; reg_f += 1 + reg_f / 3)
        for (const bool homes : {false, true})
          for (const unsigned locals : {0U, 16U, 496U, 512U, 528U, 4080U, 4096U, 6144U}) {
            if (cr >= 2 && (locals == 0 || locals == 512)) continue;  // no ldp undoes stp x29,lr,[sp,#-512]!
            if (homes && reg_i == 0 && reg_f == 0 && cr != 1) continue;
            if (reg_i == 0 && reg_f == 0 && cr == 0 && locals == 0) continue;
            source.add(test::seh_canonical(reg_f, reg_i, homes, cr, locals));
          }
  const Found found = run_all("canonical", source);
  EXPECT_GT(found.packed, found.entries / 3);
}

// The forms of save_any_reg: x, d and q; one register or two; at an offset or moving sp.
TEST_F(WinArm64Assembled, SaveAnyReg) {
  SehAssembly source;
  for (const char file : {'x', 'd', 'q'})
    for (const unsigned reg : {0U, 7U, 9U, 19U, 26U})
      for (const bool pair : {false, true})
        for (const bool pre : {false, true})
          for (const unsigned unit : {1U, 2U, 7U, 14U}) {
            const std::string one = fmt::format("{}{}", file, reg), two = fmt::format("{}{}", file, reg + 1);
            const std::string directive = fmt::format(".seh_save_any_reg{}{} {},", pair || pre ? "_" : "",
                                                      std::string(pair ? "p" : "") + (pre ? "x" : ""), one);
            const unsigned bytes = unit * (pair || pre || file == 'q' ? 16 : 8);
            source.add({test::seh_pair("x29", "x30", 16, ".seh_save_fplr_x", true), test::seh_alloc(256),
                        pair ? test::seh_pair(one, two, bytes, directive, pre)
                             : test::seh_single(one, bytes, directive, pre)});
          }
  EXPECT_EQ(run_all("save_any_reg", source).packed, 0U);
}

TEST_F(WinArm64Assembled, SaveNextAndSignedReturnAddress) {
  SehAssembly source;
  const auto next = [](const char* one, const char* two, unsigned at) {
    SehStep step = test::seh_pair(one, two, at, "", false);
    step.directive = ".seh_save_next";
    return step;
  };
  const SehStep first = test::seh_pair("x19", "x20", 96, ".seh_save_regp_x x19,", true);
  source.add({first, next("x21", "x22", 16), next("x23", "x24", 32),
              test::seh_pair("x29", "x30", 80, ".seh_save_fplr", false)},
             {3, 4, 2, 1});
  source.add({test::seh_sign(),
              first,
              next("x21", "x22", 16),
              test::seh_pair("x29", "x30", 80, ".seh_save_fplr", false),
              {"add x29, sp, #80", ".seh_add_fp 80", "sub sp, x29, #80"}});
  source.add({test::seh_sign(), test::seh_pair("x29", "x30", 32, ".seh_save_fplr_x", true), test::seh_set_fp(true),
              test::seh_alloc(4080), test::seh_alloc(65536)},
             {2, 6, 0, 3});
  run_all("save_next", source);
}

// More epilogues than the header's five bits count, and more than the ten bits of an old reader.
TEST_F(WinArm64Assembled, ManyEpilogues) {
  SehAssembly source;
  const std::vector<SehStep> steps = {test::seh_pair("x19", "x20", 32, ".seh_save_regp_x x19,", true),
                                      test::seh_pair("x29", "x30", 16, ".seh_save_fplr", false)};
  source.add(steps, {31, 4, 1, 1});
  source.add(steps, {32, 4, 1, 1});
  source.add(steps, {1500, 4, 2, 5});
  const Found found = run_all("epilogues", source);
  EXPECT_EQ(found.most_scopes, 1500U);
  EXPECT_EQ(found.extended, 2U);
}

// Over 1 MiB the assembler splits a function into fragments, each with its own entry.
TEST_F(WinArm64Assembled, LargeFunctions) {
  SehAssembly source;
  const std::vector<SehStep> steps = {test::seh_pair("x19", "x20", 32, ".seh_save_regp_x x19,", true),
                                      test::seh_pair("x29", "x30", 16, ".seh_save_fplr", false)};
  source.add(steps, {1, 0x3fff0, 0, 0});            // just under
  source.add(steps, {1, 0x50000, 0, 0});            // two
  source.add(steps, {5, 0x50000, 0x28000, 0x100});  // several, with epilogues in some
  const Found found = run_all("large", source);
  EXPECT_GT(found.entries, 3U + 3U);
  EXPECT_GT(found.truth.simulated, 2U);
}

// Only execution can undo all of these: no row knows the vector length.
TEST_F(WinArm64Assembled, ScalableVectors) {
  SehAssembly source;
  const auto addvl = [](unsigned lengths) {
    return SehStep{fmt::format("addvl sp, sp, #-{}", lengths), fmt::format(".seh_allocz {}", lengths),
                   fmt::format("addvl sp, sp, #{}", lengths)};
  };
  const auto save = [](const char* directive, const std::string& reg, unsigned at) {
    return SehStep{fmt::format("str {}, [sp, #{}, mul vl]", reg, at),
                   fmt::format(".seh_save_{} {}, {}", directive, reg, at),
                   fmt::format("ldr {}, [sp, #{}, mul vl]", reg, at)};
  };
  const SehStep chain = test::seh_pair("x29", "x30", 32, ".seh_save_fplr_x", true);
  for (unsigned lengths = 1; lengths <= 31; lengths += 3) source.add({chain, addvl(lengths)});
  for (unsigned reg = 8; reg < 24; ++reg)
    source.add({chain, addvl(18), save("zreg", fmt::format("z{}", reg), reg - 8), save("preg", "p4", 130)});
  source.add({chain, addvl(4), save("zreg", "z8", 0), save("zreg", "z15", 3), test::seh_alloc(512)}, {2, 5, 1, 2});
  run_all("scalable", source, false);
}

// What the system puts on the stack before it goes on elsewhere: a copy of registers, which the function's codes say is
// at its sp. Offsets: ARM64_NT_CONTEXT and ARM64EC_NT_CONTEXT of winnt.h, KTRAP_FRAME of ntosp.h as .NET's unwinder has
// them.
struct SystemFrame {
  const char* directive;
  std::uint64_t pc, sp, lr, fp, x19, d8;  // offsets of these from sp, or 0: the register is kept
  bool jumps;                             // the caller was interrupted, not called from
};

TEST_F(WinArm64Assembled, SystemFrames) {
  const SystemFrame kinds[] = {
      {".seh_context", 0x108, 0x100, 0xf8, 0xf0, 0x8 + 19 * 8, 0x110 + 8 * 16, true},
      {".seh_ec_context", 0xf8, 0x98, 0x120, 0xa0, 0, 0, true},
      {".seh_pushframe", 0x8, 0, 0, 0, 0, 0, true},
      {".seh_trap_frame", 0x148, 0x98, 0x138, 0x140, 0, 0, true},
  };
  SehAssembly source;
  for (const SystemFrame& kind : kinds) {
    source.add_raw({kind.directive}, 3);
    source.add_raw(
        {kind.directive, "sub sp, sp, #64", ".seh_stackalloc 64", "str x20, [sp, #16]", ".seh_save_reg x20, 16"}, 2);
  }
  std::string problem;
  const std::vector<std::uint8_t> bytes = source.build(problem);
  ASSERT_TRUE(problem.empty()) << problem;
  const auto image = image::PeImage::parse(ByteView(bytes));
  ASSERT_TRUE(image);
  const winarm64::Functions functions(*image);
  ASSERT_EQ(functions.size(), std::size(kinds) * 2);
  test::Arm64Emulator emulator(*image);
  winarm64::ExecContext context;
  context.image_base = emulator.base();
  std::size_t states = 0;
  for (std::size_t i = 0; i < functions.size(); ++i) {
    const SystemFrame& kind = kinds[i / 2];
    SCOPED_TRACE(kind.directive);
    Registers state = emulator.call(emulator.base() + functions.stored(i).begin);
    const std::uint64_t frame = test::Arm64Emulator::kTop - 0x1000;
    state.set_sp(frame);
    std::map<std::uint64_t, std::uint64_t> words;
    for (std::uint64_t at = 0; at < 0x400; at += 8)
      emulator.write(frame + at, words[at] = emulator.random() >> 8 & ~15ULL);
    const auto flags = [&](std::uint64_t at, std::uint64_t value) { emulator.write(frame + at, words[at] = value); };
    if (i / 2 == 0) flags(0, 0x400007);     // CONTEXT_FULL of ARM64
    if (i / 2 == 1) flags(0x30, 0x10000b);  // of AMD64, as ARM64EC code sees it
    if (i / 2 == 3) flags(0x10, 0);         // VfpState: no vector registers
    const Registers entered = state;
    for (;; ++states) {
      Registers caller(Architecture::kAArch64);
      const auto unwound = winarm64::virtual_unwind(functions, context, emulator, state, caller);
      ASSERT_TRUE(unwound) << unwound.error().text();
      EXPECT_EQ(caller.pc().value(), words[kind.pc]);
      EXPECT_EQ(caller.sp(), words[kind.sp]);
      EXPECT_EQ(!caller.pc().is_return_address(), kind.jumps);
      EXPECT_EQ(caller.get(30), kind.lr != 0 ? words[kind.lr] : entered.get(30));
      EXPECT_EQ(caller.get(29), kind.fp != 0 ? words[kind.fp] : entered.get(29));
      if (i / 2 == 0) {
        for (RegisterNumber reg = 0; reg < 29; ++reg) EXPECT_EQ(caller.get(reg), words[8 + reg * 8U]) << reg;
        for (RegisterNumber reg = 0; reg < 8; ++reg)
          EXPECT_EQ(caller.get(static_cast<RegisterNumber>(72 + reg)), words[kind.d8 + reg * 16U]);
      } else if (i / 2 != 1) {
        for (RegisterNumber reg = 19; reg < 29; ++reg) EXPECT_EQ(caller.get(reg), entered.get(reg)) << reg;
      }
      if (emulator.instruction(state.pc().value()) == 0xd43e'0000) break;  // brk #0xf000
      ASSERT_TRUE(emulator.step(state));
    }
  }
  std::printf("%zu states\n", states);
  EXPECT_GE(states, 28U);
}

}  // namespace
}  // namespace windlass
