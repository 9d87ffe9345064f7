#include <gtest/gtest.h>

#include "formats/winarm64/known_codes.h"
#include "formats/winarm64/lower.h"
#include "support/same_rows.h"
#include "unit/formats/winarm64/image.h"

namespace windlass::winarm64 {
namespace {

struct Rows {
  std::vector<FrameRow> rows;
  std::vector<Error> errors;
};

Rows lower(const TestImage& made, std::size_t index = 0) {
  const Functions functions = made.functions();
  RowEvaluator evaluator(functions);
  Rows result;
  std::vector<std::size_t> rows_before;  // each error
  const auto done = evaluator.for_each_row(
      functions.stored(index), [&](const FrameRow& row) { result.rows.push_back(row); },
      [&](const Error& error) {
        result.errors.push_back(error);
        rows_before.push_back(result.rows.size());
      });
  EXPECT_TRUE(done);
  // With rows kept from function to function: at first they are learned, then recalled.
  RowEvaluator keeper(functions);
  keeper.keep_rows();
  test::RowNumbers numbers;
  for (int round = 0; round < 2; ++round) {
    Rows again;
    const auto keep = [&](const FrameRow& row) {
      EXPECT_TRUE(numbers.fits(row, keeper.number()));
      again.rows.push_back(row);
    };
    EXPECT_TRUE(
        keeper.for_each_row(functions.stored(index), keep, [&](const Error& error) { again.errors.push_back(error); }));
    EXPECT_TRUE(test::are_same(again.rows, result.rows)) << round;
    EXPECT_EQ(again.errors.size(), result.errors.size()) << round;
    std::vector<FrameRow> together;
    std::vector<std::size_t> before;
    const auto keep_all = [&](std::span<const NumberedRow> rows) {
      for (const NumberedRow& each : rows) together.push_back(keeper.rows().row_of(each));
    };
    EXPECT_TRUE(keeper.for_each_row(
        functions.stored(index), keep_all, [&](const FrameRow& row) { together.push_back(row); },
        [&](const Error&) { before.push_back(together.size()); }));
    EXPECT_TRUE(test::are_same(together, result.rows)) << round;
    EXPECT_EQ(before, rows_before) << round;
  }
  return result;
}

std::string text(const FrameRow& row) {
  std::string out = std::to_string(row.begin - kCode) + ".." + std::to_string(row.end - kCode) + " cfa r" +
                    std::to_string(row.cfa.reg()) + "+" + std::to_string(row.cfa.offset()) + " ra ";
  const RegisterRule& from = row.return_address;
  out += from.is(RegisterRule::kAtCfa) ? std::to_string(from.offset()) : "lr";
  for (const RegisterEntry entry : row.registers) out += " " + std::to_string(entry.reg);
  return out;
}

// Codes whose rows are kept are told from all others, whichever byte differs.
TEST(WinArm64Lower, KeptCodesAreKnownByEachByte) {
  for (std::size_t size = 1; size <= KnownCodes::kMost; ++size) {
    std::vector<std::uint8_t> codes(size, 0xe3);  // nop
    const auto view = [&] { return ByteView(std::span<const std::uint8_t>(codes)); };
    KnownCodes kept;
    kept.assign(view());
    EXPECT_TRUE(kept.is_of(view())) << size;
    EXPECT_FALSE(kept.is_of(*view().sub(0, size - 1))) << size;
    for (std::uint8_t& code : codes) {
      code = 0xe1;  // set_fp
      EXPECT_FALSE(kept.is_of(view())) << size << " " << (&code - codes.data());
      code = 0xe3;
    }
  }
}

TEST(WinArm64Lower, RowsOfAFunction) {
  const TestImage made(xdata(0x40, {0xe1, 0x81, 0x24, 0xe4}, {{0x20, 1}}), {{kCode, kXdata}});
  const Rows got = lower(made);
  EXPECT_TRUE(got.errors.empty());
  ASSERT_EQ(got.rows.size(), 8U);
  EXPECT_EQ(text(got.rows[0]), "0..4 cfa r31+0 ra lr");
  EXPECT_EQ(text(got.rows[1]), "4..8 cfa r31+32 ra lr 19 20");
  EXPECT_EQ(text(got.rows[2]), "8..12 cfa r31+48 ra -40 19 20 29");
  EXPECT_EQ(text(got.rows[3]), "12..32 cfa r29+48 ra -40 19 20 29");
  EXPECT_EQ(text(got.rows[4]), "32..36 cfa r31+48 ra -40 19 20 29");
  EXPECT_EQ(text(got.rows[5]), "36..40 cfa r31+32 ra lr 19 20");
  EXPECT_EQ(text(got.rows[6]), "40..44 cfa r31+0 ra lr");
  EXPECT_EQ(text(got.rows[7]), "44..64 cfa r29+48 ra -40 19 20 29");
}

// A register stored behind `mov x29,sp`: its address counts from sp, the CFA from x29.
TEST(WinArm64Lower, SavesBehindTheFramePointer) {
  const TestImage made(xdata(0x40, {0xd0, 0x02, 0xe1, 0x83, 0xe4}), {{kCode, kXdata}});
  const Rows got = lower(made);
  ASSERT_FALSE(got.rows.empty());
  const RegisterRule* rule = got.rows.back().registers.find(19);
  ASSERT_NE(rule, nullptr);
  EXPECT_TRUE(*rule == RegisterRule::at_register(31, 16));
}

// A parent's entry (Flag 3): as at the parent's start, up to the next entry.
TEST(WinArm64Lower, Parents) {
  const TestImage made(xdata(0x40, {0xe1, 0x81, 0x24, 0xe4}),
                       {{kCode, kXdata}, {kCode + 0x100, kTable | 3}, {kCode + 0x140, kXdata}});
  const Rows got = lower(made, 1);
  EXPECT_TRUE(got.errors.empty());
  ASSERT_EQ(got.rows.size(), 1U);
  EXPECT_EQ(text(got.rows[0]), "256..320 cfa r31+0 ra lr");
  const Rows last = lower(TestImage(xdata(0x40, {0x81, 0xe4}), {{kCode, kXdata}, {kCode + 0x100, kTable | 3}}), 1);
  ASSERT_EQ(last.rows.size(), 1U);
  EXPECT_EQ(text(last.rows[0]), "256..260 cfa r31+0 ra lr");  // nothing says how far it reaches
}

TEST(WinArm64Lower, ScalableVectors) {
  // z8 at [sp], z9 at [sp + 1 vl], p4; 16 bytes; x29, lr
  const TestImage saves(xdata(0x40, {0xe7, 0x00, 0xc0, 0xe7, 0x01, 0xc1, 0xe7, 0x14, 0xc2, 0x01, 0x81, 0xe4}),
                        {{kCode, kXdata}});
  const Rows saved = lower(saves);
  EXPECT_TRUE(saved.errors.empty());
  const FrameRow& body = saved.rows.back();
  EXPECT_EQ(text(body), "20..64 cfa r31+32 ra -8 29 72 73");
  EXPECT_TRUE(*body.registers.find(72) == RegisterRule::at_cfa(-32));
  EXPECT_TRUE(*body.registers.find(73) == RegisterRule::undefined());
  // 2 vl with x19 above them; mov x29, sp; x29, lr: the frame pointer leads on.
  const Rows led = lower(TestImage(xdata(0x40, {0xdf, 0x02, 0xd0, 0x01, 0xe1, 0x81, 0xe4}), {{kCode, kXdata}}));
  EXPECT_TRUE(led.errors.empty());
  EXPECT_EQ(text(led.rows.back()), "16..64 cfa r29+16 ra -8 19 29");
  EXPECT_TRUE(*led.rows.back().registers.find(19) == RegisterRule::undefined());
  // libvips: x19, lr saved first, 2 vl last. Before they are allocated and behind `addvl sp, sp, #2` there are rows.
  const Rows last = lower(TestImage(xdata(0x40, {0xdf, 0x02, 0xd6, 0x00, 0x02, 0xe4}, {{0x30, 0}}), {{kCode, kXdata}}));
  ASSERT_EQ(last.rows.size(), 6U);
  EXPECT_EQ(text(last.rows[2]), "8..12 cfa r31+32 ra -24 19");
  EXPECT_EQ(text(last.rows[3]), "52..56 cfa r31+32 ra -24 19");
  EXPECT_EQ(text(last.rows[4]), "56..60 cfa r31+32 ra lr");
  EXPECT_EQ(text(last.rows[5]), "60..64 cfa r31+0 ra lr");
  ASSERT_FALSE(last.errors.empty());
  EXPECT_EQ(last.errors[0].code, ErrorCode::kUnsupported);
}

TEST(WinArm64Lower, SaysWhereThereIsNoRow) {
  const TestImage made(xdata(0x40, {0x81, 0xea, 0xe4}, {{0x20, 2}}), {{kCode, kXdata}});
  const Rows got = lower(made);
  ASSERT_EQ(got.rows.size(), 1U);  // the epilogue's return
  EXPECT_EQ(text(got.rows[0]), "32..36 cfa r31+0 ra lr");
  ASSERT_FALSE(got.errors.empty());
  EXPECT_EQ(got.errors[0].where, kXdata + 4 + 4 + 1);
}

}  // namespace
}  // namespace windlass::winarm64
