// What the own process keeps of following code is what was found, whole.
#include "walk/code_answers.h"

#include <gtest/gtest.h>

#include <random>

#include "base/registers.h"

namespace windlass::walk {
namespace {

constexpr std::uint64_t kPc = 0x1234;

RegisterRule rule_by(std::mt19937& chance) {
  switch (chance() % 4) {
    case 0: return RegisterRule::undefined();
    case 1: return RegisterRule::at_cfa(-8 * static_cast<std::int32_t>(chance() % 100));
    case 2: return RegisterRule::in_register(static_cast<RegisterNumber>(chance() % 16));
    default: return RegisterRule::cfa_value(static_cast<std::int32_t>(chance() % 100));
  }
}

flow::Synthesis synthesis_by(std::mt19937& chance, unsigned registers) {
  static constexpr std::uint8_t kExpression[] = {0x77, 0x08};
  flow::Synthesis made;
  made.row.begin = kPc;
  made.row.end = kPc + 1;
  made.row.cfa = CfaRule::at(static_cast<RegisterNumber>(chance() % 16), static_cast<std::int32_t>(chance() % 1000));
  made.row.return_address = rule_by(chance);
  if (chance() % 2 != 0) made.row.expressions = ByteView(kExpression, sizeof kExpression);
  for (unsigned i = 0; i < registers; ++i) made.row.registers.append(static_cast<RegisterNumber>(i), rule_by(chance));
  made.certainty = static_cast<flow::Certainty>(chance() % 3);
  made.start = static_cast<flow::Start>(chance() % 4);
  for (bool* flag : {&made.row.signal_frame, &made.row.return_signed, &made.by_jump, &made.addresses_frame,
                     &made.behind_padding, &made.keeps_frame_record})
    *flag = chance() % 2 != 0;
  return made;
}

TEST(KeptAnswer, IsWhatWasFound) {
  std::mt19937 chance(7);
  for (unsigned round = 0; round < 500; ++round) {
    const flow::Synthesis made = synthesis_by(chance, round % 13);
    const auto kept = KeptAnswer::of(made);
    ASSERT_TRUE(kept);
    const auto found = kept->at(CodeAddress::instruction(kPc));
    ASSERT_TRUE(found);
    EXPECT_EQ(found->row.begin, made.row.begin);
    EXPECT_EQ(found->row.end, made.row.end);
    EXPECT_EQ(found->row.cfa, made.row.cfa);
    EXPECT_EQ(found->row.return_address, made.row.return_address);
    EXPECT_EQ(found->row.expressions.data(), made.row.expressions.data());
    EXPECT_EQ(found->row.expressions.size(), made.row.expressions.size());
    EXPECT_EQ(found->row.signal_frame, made.row.signal_frame);
    EXPECT_EQ(found->row.return_signed, made.row.return_signed);
    ASSERT_EQ(found->row.registers.size(), made.row.registers.size());
    for (unsigned i = 0; i < round % 13; ++i) {
      const auto reg = static_cast<RegisterNumber>(i);
      ASSERT_NE(found->row.registers.find(reg), nullptr) << i;
      EXPECT_EQ(*found->row.registers.find(reg), *made.row.registers.find(reg)) << i;
    }
    EXPECT_EQ(found->certainty, made.certainty);
    EXPECT_EQ(found->start, made.start);
    EXPECT_EQ(found->by_jump, made.by_jump);
    EXPECT_EQ(found->addresses_frame, made.addresses_frame);
    EXPECT_EQ(found->behind_padding, made.behind_padding);
    EXPECT_EQ(found->keeps_frame_record, made.keeps_frame_record);
  }
}

TEST(KeptAnswer, ARowWithManyRegistersIsNotKept) {
  std::mt19937 chance(7);
  EXPECT_TRUE(KeptAnswer::of(synthesis_by(chance, 12)));
  EXPECT_FALSE(KeptAnswer::of(synthesis_by(chance, 13)));
}

TEST(KeptAnswer, ARefusalKeepsItsReasonAndNamesThePc) {
  for (const ErrorCode code : {ErrorCode::kNotFound, ErrorCode::kLimit, ErrorCode::kUnsupported}) {
    const auto kept = KeptAnswer::of(fail(code, "why", 1));
    ASSERT_TRUE(kept);
    const auto refused = kept->at(CodeAddress::instruction(kPc));
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, code);
    EXPECT_EQ(refused.error().where, kPc);
  }
}

}  // namespace
}  // namespace windlass::walk
