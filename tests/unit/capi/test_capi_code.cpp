// Code ranges through the C interface.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "capi_stack.h"
#include "windlass/c/windlass.h"

namespace {

constexpr std::uint64_t kBegin = 0x4000, kEnd = 0x5000;

windlass_code code(const std::vector<windlass_row>& rows) {
  windlass_code code{};
  code.size = sizeof code;
  code.begin = kBegin;
  code.end = kEnd;
  code.name = "[rows]";
  code.rows = rows.empty() ? nullptr : rows.data();
  code.row_count = rows.size();
  return code;
}

windlass_row row(std::uint64_t begin, std::uint64_t end, std::int32_t cfa_offset) {
  windlass_row row{};
  row.begin = begin;
  row.end = end;
  row.cfa_register = 7;
  row.cfa_offset = cfa_offset;
  row.return_offset = -8;
  return row;
}

// One step from an instruction in the range, with sp at the stack's words.
struct Step {
  windlass_status status;
  windlass_registers registers;
  windlass_frame frame;
  std::uint32_t end = 0;
  explicit Step(const CapiStack& stack) : registers(stack.registers()), frame{} {
    frame.size = sizeof frame;
    windlass_set(&registers, 16, kBegin + 0x10);
    registers.flags = WINDLASS_RETURN_ADDRESS;
    status = windlass_step_registers(stack.space, &registers, &frame, &end, nullptr);
  }
};

TEST(CApiCode, IsLeftByItsRows) {
  CapiStack stack;
  const windlass_saved_register saved[] = {{3, -16}, {6, -48}};
  std::vector<windlass_row> rows{row(kBegin, kBegin + 8, 8), row(kBegin + 8, kEnd, 48)};
  rows[1].saved = saved;
  rows[1].saved_count = 2;
  windlass_code given = code(rows);
  std::uint64_t id = 0;
  ASSERT_EQ(windlass_add_code(stack.space, &given, &id, nullptr), WINDLASS_OK);
  rows.clear();  // it was copied
  const Step step(stack);
  ASSERT_EQ(step.status, WINDLASS_OK);
  EXPECT_EQ(step.frame.pc, stack.words[5]);
  EXPECT_EQ(step.frame.sp, CapiStack::kBase + 48);
  EXPECT_EQ(step.frame.origin, std::uint32_t{WINDLASS_ORIGIN_CFI});
  std::uint64_t value = 0;
  EXPECT_EQ(windlass_get(&step.registers, 3, &value), WINDLASS_OK);
  EXPECT_EQ(value, stack.words[4]);
  EXPECT_EQ(windlass_get(&step.registers, 6, &value), WINDLASS_OK);
  EXPECT_EQ(value, stack.words[0]);

  EXPECT_EQ(windlass_retire_code(stack.space, id, nullptr), WINDLASS_OK);
  windlass_error error{};
  error.size = sizeof error;
  EXPECT_EQ(windlass_retire_code(stack.space, id, &error), WINDLASS_NOT_FOUND);
  EXPECT_EQ(error.where, id);
  windlass_module module;
  module.size = sizeof module;
  EXPECT_EQ(windlass_find_module(stack.space, kBegin, &module), WINDLASS_NOT_FOUND);

  // Other code at the same place, the pc the same.
  rows = {row(kBegin, kEnd, 16)};
  given = code(rows);
  std::uint64_t other = 0;
  ASSERT_EQ(windlass_add_code(stack.space, &given, &other, nullptr), WINDLASS_OK);
  EXPECT_NE(other, id);
  const Step again(stack);
  ASSERT_EQ(again.status, WINDLASS_OK);
  EXPECT_EQ(again.frame.pc, stack.words[1]);
}

TEST(CApiCode, ThatIsWrongIsRefused) {
  CapiStack stack;
  windlass_error error{};
  error.size = sizeof error;
  const auto status = [&](const windlass_code& given) {
    return windlass_add_code(stack.space, &given, nullptr, &error);
  };
  std::vector<windlass_row> rows{row(kBegin, kBegin + 8, 8), row(kBegin + 4, kEnd, 48)};
  EXPECT_EQ(status(code(rows)), WINDLASS_MALFORMED);
  EXPECT_EQ(error.where, kBegin + 4);
  windlass_code given = code({});
  given.row_count = 1;
  EXPECT_EQ(status(given), WINDLASS_INVALID);
  given = code({});
  given.eh_frame = &given;
  EXPECT_EQ(status(given), WINDLASS_INVALID);
  given.eh_frame_size = 5;  // no record
  EXPECT_EQ(status(given), WINDLASS_TRUNCATED) << error.text;
  rows = {row(kBegin, kEnd, 8)};
  rows[0].return_offset = 0;
  EXPECT_EQ(status(code(rows)), WINDLASS_INVALID);
  rows = {row(kBegin, kEnd, 8)};
  rows[0].saved_count = 1;
  EXPECT_EQ(status(code(rows)), WINDLASS_INVALID);
  given = code({});
  given.begin = CapiStack::kCode;
  EXPECT_EQ(status(given), WINDLASS_MALFORMED);
  EXPECT_EQ(error.where, CapiStack::kCode);
  // The struct as it was first published.
  given = code({});
  given.size = 32;
  given.row_count = 1;  // beyond it
  EXPECT_EQ(status(given), WINDLASS_OK);
  EXPECT_EQ(windlass_retire_own_code(0, &error), WINDLASS_NOT_FOUND);
}

}  // namespace
