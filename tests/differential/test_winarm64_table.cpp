// Windows ARM64 unwind information in the dense table, stepped over by the unwinder's C: at every instruction of real
// functions that the emulator runs, the caller's pc and sp.
#include <gtest/gtest.h>

#include "differential/arm64_steps.h"
#include "differential/arm64_truth.h"
#include "support/arm64_functions.h"
#include "support/pe_corpora.h"

namespace windlass {
namespace {

void step_through(const std::string& name, ByteView bytes, std::size_t stride, std::size_t most_refused) {
  const auto image = image::PeImage::parse(bytes);
  ASSERT_TRUE(image);
  const winarm64::Functions functions(*image);
  test::Arm64Emulator emulator(*image);
  ASSERT_TRUE(emulator.ok());
  test::Truth truth;
  test::KernelSteps steps(*image, emulator);
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
      const auto file = MappedFile::open(path);
      ASSERT_TRUE(file);
      step_through(corpus.name, file->bytes(), test::whole() ? 1 : 8, 0);
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
