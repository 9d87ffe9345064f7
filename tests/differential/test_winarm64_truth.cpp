// Windows ARM64 unwinding compared with the processor: Unicorn runs real functions.
#include <cstdlib>

#include <gtest/gtest.h>

#include "differential/arm64_truth.h"
#include "support/arm64_functions.h"
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

// Ordinary runs take every other function of the large files: over 28,000 in all.
TEST(WinArm64Truth, Corpora) {
  const auto corpora = test::pe_corpora(WINDLASS_PE_CORPORA, 1, image::PeMachine::kArm64);
  if (corpora.empty()) GTEST_SKIP() << test::missing_corpora(WINDLASS_PE_CORPORA);
  for (const test::PeCorpus& corpus : corpora) {
    for (const std::string& path : corpus.files) {
      const auto opened = test::open_pe(path);
      ASSERT_TRUE(opened) << path;
      const image::PeImage& image = opened->image;
      const winarm64::Functions functions(image);
      test::Arm64Emulator emulator(image);
      ASSERT_TRUE(emulator.ok());
      test::Truth truth;
      test::TruthChecker checker(functions, emulator, truth);
      const std::size_t stride = test::whole() || functions.size() < 4000 ? 1 : 2;
      for (std::size_t i = 0; i < functions.size(); i += stride) checker.check(functions.stored(i));
      print(corpus.name, truth);
      EXPECT_EQ(truth.wrong, 0U) << path << ": " << truth.first_wrong;
      EXPECT_GT(truth.states, truth.functions);
    }
  }
}

// Every function made is run, and must be right to its end.
test::Truth check_all(const std::string& name, const test::Arm64Functions& made) {
  const std::vector<std::uint8_t> bytes = made.build();
  test::Truth truth;
  const auto image = image::PeImage::parse(ByteView(bytes));
  EXPECT_TRUE(image && image->problems().empty());
  if (!image) return truth;
  const winarm64::Functions functions(*image);
  test::Arm64Emulator emulator(*image);
  EXPECT_TRUE(emulator.ok());
  test::TruthChecker checker(functions, emulator, truth);
  for (std::size_t i = 0; i < functions.size(); ++i) checker.check(functions.stored(i));
  print(name, truth);
  EXPECT_EQ(truth.wrong, 0U) << truth.first_wrong;
  EXPECT_EQ(truth.complete, truth.functions);
  EXPECT_GT(truth.functions, 0U);
  return truth;
}

// Both flags, every CR, RegI and H, most RegF, frames of each way to allocate what is left. Not 512 bytes of it with a
// frame chain: no instruction undoes stp x29,lr,[sp,#-512]!.
TEST(WinArm64Truth, PackedEntries) {
  test::Arm64Functions made;
  for (std::uint32_t flag = 1; flag <= 2; ++flag)
    for (std::uint32_t cr = 0; cr < 4; ++cr)
      for (std::uint32_t h = 0; h < 2; ++h)
        for (std::uint32_t reg_i = 0; reg_i <= 10; ++reg_i)
          for (std::uint32_t reg_f = 0; reg_f < 8; reg_f += 1 + reg_f / 3) {
            const bool saves = reg_i > 0 || reg_f > 0 || cr == 1;
            const std::uint32_t registers = reg_i + (cr == 1 ? 1 : 0) + (reg_f > 0 ? reg_f + 1 : 0);
            const std::uint32_t saved = (registers + (saves && h != 0 ? 8 : 0) + 1) / 2 * 16;
            for (const std::uint32_t more : {0, 16, 496, 528, 4080, 4096, 6144}) {
              if (flag == 2 && more > 528) continue;
              if (saved + more == 0 || (cr >= 2 && more == 0)) continue;
              if (saved + more < 8176) made.add_packed(flag, reg_f, reg_i, h, cr, saved + more);
            }
          }
  EXPECT_GT(check_all("packed", made).states, 50000U);
}

// Each form of E7, and what the tables of compilers lack.
TEST(WinArm64Truth, SaveAnyReg) {
  test::Arm64Functions made;
  for (unsigned file = 0; file < 3; ++file)
    for (const unsigned pair : {0U, 0x40U})
      for (const unsigned writeback : {0U, 0x20U})
        for (const unsigned reg : {0U, 8U, 10U, 19U, 25U})
          for (const unsigned offset : {0U, 1U, 5U, 14U}) {
            const std::uint8_t first = static_cast<std::uint8_t>(pair | writeback | reg);
            const std::uint8_t second = static_cast<std::uint8_t>(file << 6 | offset);
            // A store needs its space, and lr goes below it.
            made.add({0x83, 0xe7, first, second, 0x1f, 0xe4});
            made.add({0x83, 0xe7, first, second, 0x1f, 0xe4}, 2, 0, 3);
          }
  check_all("save_any_reg", made);
}

TEST(WinArm64Truth, SaveNext) {
  test::Arm64Functions made;
  made.add({0xe1, 0x81, 0xe6, 0xcc, 0x07, 0xe4}, 1, 1);                          // x19-x22
  made.add({0x81, 0xe6, 0xe6, 0xe6, 0xe6, 0xcc, 0x0b, 0xe4}, 1, 0);              // x19-x28, [sp,#-96]!
  made.add({0x81, 0xe6, 0x28, 0xe4}, 3, 0, 2);                                   // save_r19r20_x
  made.add({0xe6, 0xe6, 0xc8, 0x82, 0x83, 0x09, 0xe4}, 1, 0);                    // x21-x26 at [sp,#16]
  made.add({0x81, 0xe6, 0xe6, 0xd8, 0x00, 0x06, 0xe4}, 1, 0);                    // d8-d13
  made.add({0x81, 0xe6, 0xda, 0x07, 0xe4}, 1, 0);                                // d8-d11, written back
  made.add({0xe1, 0x40, 0xe0, 0x01, 0x00, 0x00, 0xe6, 0x24, 0xfc, 0xe4}, 1, 1);  // alloc_l of 1 MiB, lr signed
  check_all("save_next", made);
}

// More epilogues and codes than the header's five bits count; padding codes; a long body.
TEST(WinArm64Truth, LargeRecords) {
  test::Arm64Functions made;
  made.add({0xe1, 0x81, 0x24, 0xe4}, 200, 1);
  made.add({0x81, 0x24, 0xe4}, 32, 0, 1);
  std::vector<std::uint8_t> nops(200, 0xe3);
  nops.insert(nops.begin(), 0x81);
  nops.insert(nops.end(), {0x24, 0xe4});
  made.add(nops);
  made.add(nops, 40);
  made.add({0xe1, 0x81, 0xc1, 0x00, 0xc8, 0x82, 0x26, 0xe4}, 1, 1, 0, 0x3ff00);
  check_all("large", made);
}

// Parts of a function: with the prologue and no epilogue; without either (end_c first); with a save of its own; with
// the epilogue. The first is as long as a record can say (1 MiB - 4), as where a compiler splits a larger one.
TEST(WinArm64Truth, Fragments) {
  test::Arm64Functions made;
  made.add({0xe1, 0x81, 0xc8, 0x82, 0x26, 0xe4}, 0, 0, 0, 0x3ffff - 4);
  made.add({0xe5, 0xe1, 0x81, 0xc8, 0x82, 0x26, 0xe4}, 0);
  made.add({0xd2, 0x46, 0xe5, 0xe1, 0x81, 0xc8, 0x82, 0x28, 0xe4}, 0);
  made.add({0xe5, 0xe1, 0x81, 0xc8, 0x82, 0x26, 0xe4}, 1, 2);
  made.add({0xe5, 0xe1, 0x81, 0xc8, 0x82, 0x26, 0xe4}, 2, 2, 5);
  made.add({0xe5, 0x81, 0xfc, 0xe4}, 1, 1);
  EXPECT_GT(check_all("fragments", made).simulated, 4U);
}

}  // namespace
}  // namespace windlass
