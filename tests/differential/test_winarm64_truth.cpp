// Windows ARM64 unwinding held against the processor: Unicorn runs real functions.
#include <cstdlib>

#include <gtest/gtest.h>

#include "differential/arm64_truth.h"
#include "support/pe_corpora.h"

namespace windlass {
namespace {

void print(const std::string& name, const test::Truth& truth) {
  std::printf(
      "%-14s %zu functions (%zu packed), %zu complete, %zu states, %zu wrong; %zu epilogues run; %zu frames made from "
      "codes\n",
      name.c_str(), truth.functions, truth.packed, truth.complete, truth.states, truth.wrong, truth.epilogues,
      truth.simulated);
  for (const auto& [why, count] : truth.causes)
    std::printf("    %zu %s (first: %s)\n", count, why.c_str(), truth.example.at(why).c_str());
}

// Ordinary runs take every fourth function of the large files.
TEST(WinArm64Truth, Corpora) {
  const auto corpora = test::pe_corpora(WINDLASS_PE_CORPORA, 1, image::PeMachine::kArm64);
  if (corpora.empty()) GTEST_SKIP() << test::missing_corpora(WINDLASS_PE_CORPORA);
  for (const test::PeCorpus& corpus : corpora) {
    for (const std::string& path : corpus.files) {
      const auto file = image::MappedFile::open(path);
      ASSERT_TRUE(file);
      const auto image = image::PeImage::parse(file->bytes());
      ASSERT_TRUE(image) << path;
      const winarm64::Functions functions(*image);
      test::Arm64Emulator emulator(*image);
      ASSERT_TRUE(emulator.ok());
      test::Truth truth;
      test::TruthChecker checker(functions, emulator, truth);
      const std::size_t stride = test::whole_corpora() || functions.size() < 4000 ? 1 : 4;
      for (std::size_t i = 0; i < functions.size(); i += stride) checker.check(functions.stored(i));
      print(corpus.name, truth);
      EXPECT_EQ(truth.wrong, 0U) << path << ": " << truth.first_wrong;
      EXPECT_GT(truth.states, truth.functions);
    }
  }
}

}  // namespace
}  // namespace windlass
