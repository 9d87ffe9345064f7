// Arguments of static probes, as the notes have them.
#include <gtest/gtest.h>

#include "profiler/kernel/usdt_operand.h"

namespace windlass::test {
namespace {

using profiler::parse_operands;

#if defined(__x86_64__)
constexpr const char* kThree = "8@%rdi -4@-20(%rbp) 2@$-5";
constexpr const char* kDamaged[] = {"8@%xyz",      "8@",  "@%rdi",  "3@%rdi", "8@16(%rbp,%rax,8)",
                                    "8@sym(%rip)", "8@$", "8@(%rdi"};
constexpr unsigned kFirst = 112, kSecond = 32;
#else
constexpr const char* kThree = "8@x0 -4@[x29, -20] 2@-5";
constexpr const char* kDamaged[] = {"8@y1", "8@", "@x0", "3@x0", "8@[x0, x1]", "8@x31", "8@[x0", "8@x0,4"};
constexpr unsigned kFirst = 0, kSecond = 29 * 8;
#endif

TEST(Operands, AreRegistersMemoryAndConstants) {
  const auto operands = parse_operands(kThree);
  ASSERT_EQ(operands.size(), 3u);
  for (const auto& operand : operands) ASSERT_TRUE(operand);
  EXPECT_EQ(operands[0]->kind, WL_OPERAND_REGISTER);
  EXPECT_EQ(operands[0]->registers_at, kFirst);
  EXPECT_EQ(operands[0]->bits, 64);
  EXPECT_EQ(operands[0]->is_signed, 0);
  EXPECT_EQ(operands[1]->kind, WL_OPERAND_MEMORY);
  EXPECT_EQ(operands[1]->registers_at, kSecond);
  EXPECT_EQ(operands[1]->offset, -20);
  EXPECT_EQ(operands[1]->bits, 32);
  EXPECT_EQ(operands[1]->is_signed, 1);
  EXPECT_EQ(operands[2]->kind, WL_OPERAND_CONSTANT);
  EXPECT_EQ(operands[2]->offset, -5);
  EXPECT_EQ(operands[2]->bits, 16);
}

TEST(Operands, OfOtherFormsAreNone) {
  for (const char* text : kDamaged) {
    SCOPED_TRACE(text);
    const auto operands = parse_operands(text);
    ASSERT_EQ(operands.size(), 1u);
    EXPECT_FALSE(operands[0]);
  }
  EXPECT_TRUE(parse_operands("").empty());
  EXPECT_TRUE(parse_operands("  ").empty());
}

}  // namespace
}  // namespace windlass::test
