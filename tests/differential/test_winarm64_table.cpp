// Windows ARM64 unwind information in the dense table, stepped over by the unwinder's C: at every instruction of real
// functions that the emulator runs, the caller's pc and sp.
#include <gtest/gtest.h>

#include "differential/arm64_truth.h"
#include "support/a64_unwinder.h"
#include "support/arm64_functions.h"
#include "support/pe_corpora.h"
#include "table/builder.h"
#include "table/project.h"
#include "winarm64/lower.h"

namespace windlass {
namespace {

Expected<table::UnwindTable> table_of(const winarm64::Functions& functions) {
  table::TableBuilder builder;
  winarm64::RowEvaluator rows(functions);
  for (std::size_t i = 0; i < functions.size(); ++i) {
    const winarm64::RuntimeFunction function = functions.stored(i);
    winarm64::Expansion storage;
    const auto record = winarm64::read_record(functions.image(), function, storage);
    if (!record) continue;
    builder.begin_function(function.begin, std::uint64_t{function.begin} + record->length);
    (void)rows.for_each_row(
        function,
        [&](const FrameRow& row) { builder.row(row.begin, table::project(row, Architecture::kAArch64, WL_NO_XREG)); },
        [](const Error&) {});
    builder.end_function();
  }
  return builder.finish();
}

class Steps {
 public:
  Steps(const image::PeImage& image, const test::Arm64Emulator& emulator)
      : unwinder_([&](std::uint64_t address, void* to, std::size_t size) { return emulator.read(address, to, size); }) {
    const auto table = table_of(winarm64::Functions(image));
    EXPECT_TRUE(table);
    const auto module = table ? unwinder_.add_module(*table) : 0;
    EXPECT_TRUE(module);
    if (!module) return;
    // The emulator's return addresses lie in no module, which a step does not ask.
    unwinder_.set_mappings(
        {{image.image_base(), image.image_base() + image.image_size(), image.image_base(), *module, 0}});
  }

  std::size_t taken = 0, wrong = 0;
  std::map<std::string, std::size_t> refused;
  std::string first;

  void operator()(const Registers& state, const Registers& caller) {
    std::uint64_t x[31];
    for (RegisterNumber i = 0; i < 31; ++i) x[i] = state.get(i);
    wl_cursor cursor = test::A64Unwinder::cursor(x, state.sp(), state.pc().value());
    const int status = unwinder_.step(cursor);
    ++taken;
    if (status != WL_CONTINUE) {
      ++refused[kEnds[status]];
      return;
    }
    if (cursor.regs[WL_PC] == caller.get(30) && cursor.regs[WL_SP] == caller.sp() &&
        (!WL_VALID(&cursor, WL_FP) || cursor.regs[WL_FP] == caller.get(29)))
      return;
    if (++wrong == 1)
      first = fmt::format("at {:#x}: pc {:#x} sp {:#x} x29 {:#x}, not {:#x} {:#x} {:#x}", state.pc().value(),
                          cursor.regs[WL_PC], cursor.regs[WL_SP], cursor.regs[WL_FP], caller.get(30), caller.sp(),
                          caller.get(29));
  }
  void expect_right(const std::string& name) const {
    std::printf("%-14s %zu states, %zu steps by the memo, %zu wrong\n", name.c_str(), taken,
                static_cast<std::size_t>(unwinder_.plain_steps()), wrong);
    for (const auto& [why, count] : refused) std::printf("    %zu %s\n", count, why.c_str());
    EXPECT_EQ(wrong, 0U) << first;
    EXPECT_EQ(unwinder_.memo_differences(), 0U);
    EXPECT_GT(unwinder_.plain_steps(), taken / 20);
  }

 private:
  static constexpr const char* kEnds[] = {
#define WINDLASS_END_TEXT(name, text) text,
      WL_ENDS(WINDLASS_END_TEXT)
#undef WINDLASS_END_TEXT
  };

  test::A64Unwinder unwinder_;
};

void step_through(const std::string& name, ByteView bytes, std::size_t stride, std::size_t most_refused) {
  const auto image = image::PeImage::parse(bytes);
  ASSERT_TRUE(image);
  const winarm64::Functions functions(*image);
  test::Arm64Emulator emulator(*image);
  ASSERT_TRUE(emulator.ok());
  test::Truth truth;
  Steps steps(*image, emulator);
  test::TruthChecker checker(functions, emulator, truth, std::ref(steps));
  for (std::size_t i = 0; i < functions.size(); i += stride) checker.check(functions.stored(i));
  steps.expect_right(name);
  EXPECT_GT(steps.taken, functions.size() / stride);
  std::size_t refused = 0;
  for (const auto& [why, count] : steps.refused) refused += count;
  EXPECT_LE(refused, most_refused);
}

TEST(WinArm64Table, Corpora) {
  const auto corpora = test::pe_corpora(WINDLASS_PE_CORPORA, 1, image::PeMachine::kArm64);
  if (corpora.empty()) GTEST_SKIP() << test::missing_corpora(WINDLASS_PE_CORPORA);
  for (const test::PeCorpus& corpus : corpora)
    for (const std::string& path : corpus.files) {
      const auto file = image::MappedFile::open(path);
      ASSERT_TRUE(file);
      step_through(corpus.name, file->bytes(), test::whole_corpora() ? 1 : 8, 0);
    }
}

TEST(WinArm64Table, Packed) {
  test::Arm64Functions made;
  for (std::uint32_t flag = 1; flag <= 2; ++flag)
    for (std::uint32_t cr = 0; cr < 4; ++cr)
      for (std::uint32_t h = 0; h < 2; ++h)
        for (std::uint32_t reg_i = 0; reg_i <= 10; reg_i += 3)
          for (std::uint32_t reg_f = 0; reg_f < 8; reg_f += 3)
            made.add_packed(flag, reg_f, reg_i, h, cr, 512 - 16 * cr);
  const std::vector<std::uint8_t> bytes = made.build();
  step_through("packed", ByteView(bytes), 1, 0);
}

}  // namespace
}  // namespace windlass
