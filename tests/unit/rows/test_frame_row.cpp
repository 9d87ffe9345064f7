// The row itself: its size, each form of rule, and what the set of registers holds.
#include "windlass/frame_row.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

namespace windlass {
namespace {

static_assert(sizeof(FrameRow) <= 512 && sizeof(RegisterRule) == 8 && sizeof(CfaRule) == 8);
static_assert(fits_row(INT32_MAX) && fits_row(INT32_MIN));
static_assert(!fits_row(std::int64_t{INT32_MAX} + 1) && !fits_row(std::int64_t{INT32_MIN} - 1));

TEST(RegisterRule, EveryForm) {
  EXPECT_TRUE(RegisterRule::undefined().is(RegisterRule::kUndefined));
  EXPECT_TRUE(RegisterRule::same_value().is(RegisterRule::kSameValue));
  const auto at = RegisterRule::at_cfa(INT32_MIN);
  EXPECT_EQ(at.kind(), RegisterRule::kAtCfa);
  EXPECT_EQ(at.offset(), INT32_MIN);
  const auto value = RegisterRule::cfa_value(INT32_MAX);
  EXPECT_EQ(value.kind(), RegisterRule::kCfaValue);
  EXPECT_EQ(value.offset(), INT32_MAX);
  const auto in = RegisterRule::in_register(kMaxRowRegister);
  EXPECT_EQ(in.kind(), RegisterRule::kInRegister);
  EXPECT_EQ(in.reg(), kMaxRowRegister);
  const auto loaded = RegisterRule::at_register(79, -8);
  EXPECT_EQ(loaded.kind(), RegisterRule::kAtRegister);
  EXPECT_EQ(loaded.reg(), 79);
  EXPECT_EQ(loaded.offset(), -8);
  const auto sum = RegisterRule::register_value(7, 8);
  EXPECT_EQ(sum.kind(), RegisterRule::kRegisterValue);
  EXPECT_EQ(sum.reg(), 7);
  EXPECT_EQ(sum.offset(), 8);
  for (const auto& rule : {RegisterRule::at_expression({UINT32_MAX, UINT16_MAX}),
                           RegisterRule::expression_value({UINT32_MAX, UINT16_MAX})}) {
    EXPECT_TRUE(rule.is_expression());
    EXPECT_EQ(rule.place().offset, UINT32_MAX);
    EXPECT_EQ(rule.place().size, UINT16_MAX);
  }
}

TEST(RegisterRule, AreEqualInAllTheirParts) {
  const std::array<RegisterRule, 9> rules = {
      RegisterRule::undefined(),       RegisterRule::same_value(),      RegisterRule::at_cfa(8),
      RegisterRule::at_cfa(16),        RegisterRule::cfa_value(8),      RegisterRule::in_register(8),
      RegisterRule::at_register(7, 8), RegisterRule::at_register(6, 8), RegisterRule::register_value(7, 8)};
  for (std::size_t i = 0; i < rules.size(); ++i)
    for (std::size_t j = 0; j < rules.size(); ++j) EXPECT_EQ(rules[i] == rules[j], i == j) << i << ' ' << j;
}

TEST(CfaRule, EveryForm) {
  const auto plain = CfaRule::at(7, -16);
  EXPECT_TRUE(plain.is_at(7));
  EXPECT_FALSE(plain.is_at(6));
  EXPECT_EQ(plain.offset(), -16);
  const auto loaded = CfaRule::loaded(7, INT32_MAX, -8);
  EXPECT_EQ(loaded.kind(), CfaRule::kLoaded);
  EXPECT_FALSE(loaded.is_at(7));
  EXPECT_EQ(loaded.reg(), 7);
  EXPECT_EQ(loaded.offset(), INT32_MAX);
  EXPECT_EQ(loaded.addend(), -8);
  EXPECT_FALSE(loaded == CfaRule::loaded(7, INT32_MAX, 8));
  EXPECT_FALSE(CfaRule::at(7, 8) == CfaRule::loaded(7, 8, 0));
  const auto expression = CfaRule::expression({UINT32_MAX, UINT16_MAX});
  EXPECT_EQ(expression.kind(), CfaRule::kExpression);
  EXPECT_EQ(expression.place().offset, UINT32_MAX);
  EXPECT_EQ(expression.place().size, UINT16_MAX);
}

TEST(RegisterRules, AreSortedAndHoldSoMany) {
  RegisterRules rules;
  for (unsigned i = RegisterRules::kCapacity; i-- > 0;)
    ASSERT_TRUE(rules.set(static_cast<RegisterNumber>(2 * i), RegisterRule::at_cfa(static_cast<int>(i))));
  EXPECT_FALSE(rules.set(1, RegisterRule::undefined()));
  EXPECT_TRUE(rules.set(0, RegisterRule::same_value()));  // one that is there
  RegisterNumber expected = 0;
  for (const RegisterEntry entry : rules) {
    EXPECT_EQ(entry.reg, expected);
    EXPECT_TRUE(entry.rule == *rules.find(entry.reg));
    expected = static_cast<RegisterNumber>(expected + 2);
  }
  EXPECT_EQ(expected, 2 * RegisterRules::kCapacity);
  rules.erase(4);
  rules.erase(5);
  EXPECT_EQ(rules.size(), RegisterRules::kCapacity - 1);
  EXPECT_EQ(rules.find(4), nullptr);
  ASSERT_NE(rules.find(6), nullptr);
  EXPECT_EQ(rules.find(6)->offset(), 3);
  EXPECT_TRUE(rules.set(kMaxRowRegister, RegisterRule::undefined()));
  rules.erase(kMaxRowRegister);
  EXPECT_FALSE(rules.set(kMaxRowRegister + 1, RegisterRule::undefined()));
}

TEST(RegisterRules, AreCopiedWhole) {
  for (unsigned count = 0; count <= RegisterRules::kCapacity; ++count) {
    RegisterRules rules;
    for (unsigned i = 0; i < count; ++i)
      rules.append(static_cast<RegisterNumber>(3 * i), RegisterRule::at_cfa(static_cast<int>(i)));
    const RegisterRules copy = rules;
    ASSERT_EQ(copy.size(), count);
    for (unsigned i = 0; i < count; ++i)
      ASSERT_TRUE(*copy.find(static_cast<RegisterNumber>(3 * i)) == RegisterRule::at_cfa(static_cast<int>(i)));
  }
}

TEST(FrameRow, FindsItsExpressions) {
  const std::vector<std::byte> section(0x20000, std::byte{0x30});
  const ByteView bytes(section.data(), section.size(), 0x1000);
  FrameRow row;
  row.expressions = bytes;
  const auto place = row.place_of(*bytes.sub(0x10000, 4));
  ASSERT_TRUE(place);
  const ByteView found = row.expression(RegisterRule::at_expression(*place));
  EXPECT_EQ(found.data(), section.data() + 0x10000);
  EXPECT_EQ(found.size(), 4u);
  EXPECT_EQ(found.origin(), 0x11000u);
  EXPECT_EQ(row.expression(CfaRule::expression(*place)).data(), found.data());
  EXPECT_TRUE(row.place_of(*bytes.sub(1, 0xffff)));
  EXPECT_FALSE(row.place_of(*bytes.sub(1, 0x10000)));
  EXPECT_FALSE(row.place_of(ByteView(section.data() + 0x1fffe, 4)));
  row.expressions = *bytes.sub(8, 8);
  EXPECT_FALSE(row.place_of(*bytes.sub(4, 4)));
  EXPECT_TRUE(row.expression(RegisterRule::at_expression({6, 4})).empty());
}

}  // namespace
}  // namespace windlass
