#include "winx64/lower.h"

#include <gtest/gtest.h>

#include "support/pe_image_builder.h"
#include "winx64/registers.h"

namespace windlass {
namespace {

using test::Bytes;
using test::PeImageBuilder;
using test::UnwindInfoBytes;

constexpr auto slot = &UnwindInfoBytes::slot;
constexpr RegisterNumber kRbx = 3, kRsi = 4, kRbp = 6, kRsp = 7;

struct Lowered {
  std::vector<FrameRow> rows;
  std::vector<Error> problems;
  [[nodiscard]] const FrameRow& at(std::uint32_t rva) const {
    for (const FrameRow& row : rows) {
      if (rva >= row.begin && rva < row.end) return row;
    }
    static const FrameRow none;
    return none;
  }
};

Lowered lower(PeImageBuilder& builder) {
  const auto file = builder.build();
  const auto image = image::PeImage::parse(ByteView(std::span<const std::uint8_t>(file)));
  const winx64::Functions functions(*image);
  Lowered result;
  for (std::size_t i = 0; i < functions.size(); ++i) {
    winx64::lower(
        functions, functions.stored(i), [&](const FrameRow& row) { result.rows.push_back(row); },
        [&](const Error& error) { result.problems.push_back(error); });
  }
  return result;
}

void expect_cfa(const FrameRow& row, RegisterNumber reg, std::int64_t offset) {
  EXPECT_EQ(std::get<CfaRegister>(row.cfa).reg, reg);
  EXPECT_EQ(std::get<CfaRegister>(row.cfa).offset, offset);
}

TEST(WinX64Lower, PrologueBodyAndEpilogue) {
  PeImageBuilder builder;
  // push rbx; sub rsp, 0x40; mov eax, 0xc3; add rsp, 0x40; pop rbx; ret; int3
  const auto code =
      builder.text({0x53, 0x48, 0x83, 0xec, 0x40, 0xb8, 0xc3, 0, 0, 0, 0x48, 0x83, 0xc4, 0x40, 0x5b, 0xc3, 0xcc});
  UnwindInfoBytes info;
  info.prolog_size = 5;
  info.slots = {slot(5, 2, 7), slot(1, 0, 3)};
  builder.entry(code, builder.next_text(), builder.data(info.bytes()));
  const Lowered lowered = lower(builder);
  EXPECT_TRUE(lowered.problems.empty());
  ASSERT_EQ(lowered.rows.size(), 6U);
  expect_cfa(lowered.at(code), kRsp, 8);
  EXPECT_TRUE(std::holds_alternative<SameValue>(*lowered.at(code).registers.find(kRsi)));
  EXPECT_EQ(lowered.at(code).registers.find(kRbx), nullptr);
  expect_cfa(lowered.at(code + 1), kRsp, 16);
  EXPECT_EQ(std::get<AtCfa>(*lowered.at(code + 1).registers.find(kRbx)).offset, -16);
  expect_cfa(lowered.at(code + 5), kRsp, 80);
  EXPECT_EQ(lowered.at(code + 5).end, code + 14U);  // the release says what the body says; the 0xc3 is a number
  expect_cfa(lowered.at(code + 14), kRsp, 16);      // whose 0x40 is no REX prefix of the pop
  EXPECT_EQ(std::get<AtCfa>(*lowered.at(code + 14).registers.find(kRbx)).offset, -16);
  expect_cfa(lowered.at(code + 15), kRsp, 8);
  expect_cfa(lowered.at(code + 16), kRsp, 80);
}

TEST(WinX64Lower, FrameRegisterAndXmm) {
  PeImageBuilder builder;
  const auto code = builder.text({0x90, 0x90, 0x90, 0x90});
  UnwindInfoBytes info;
  info.prolog_size = 3;
  info.frame_register = 5;
  info.frame_offset = 2;
  info.slots = {slot(3, 8, 6), 1, slot(2, 3, 0), slot(2, 2, 7), slot(1, 0, 5)};
  builder.entry(code, code + 4, builder.data(info.bytes()));
  const Lowered lowered = lower(builder);
  // rsp = rbp - 32, 64 bytes, rbp, return address
  expect_cfa(lowered.at(code + 3), kRbp, -32 + 64 + 16);
  EXPECT_EQ(std::get<AtCfa>(*lowered.at(code + 3).registers.find(23)).offset, -64);
  EXPECT_EQ(lowered.at(code + 2).registers.find(23), nullptr);
}

TEST(WinX64Lower, SaysWhatItCannotSay) {
  PeImageBuilder builder;
  const auto code = builder.text({0x90, 0x90, 0x90, 0x90, 0x90, 0x90});
  UnwindInfoBytes machine;
  machine.slots = {slot(0, 10, 0)};
  builder.entry(code, code + 1, builder.data(machine.bytes()));
  UnwindInfoBytes pushes;  // behind the frame register
  pushes.prolog_size = 0;
  pushes.frame_register = 5;
  pushes.slots = {slot(0, 0, 6), slot(0, 3, 0), slot(0, 0, 5)};
  builder.entry(code + 1, code + 2, builder.data(pushes.bytes()));
  UnwindInfoBytes third;
  third.version = 3;
  builder.entry(code + 2, code + 3, builder.data(third.bytes()));
  UnwindInfoBytes loop;
  loop.flags = winx64::kChaininfo;
  const auto at = builder.next_data();
  builder.data(loop.bytes().u32(code + 3).u32(code + 4).u32(at));
  builder.entry(code + 3, code + 4, at);
  builder.entry(code + 4, code + 4, at);
  const Lowered lowered = lower(builder);
  EXPECT_TRUE(lowered.rows.empty());
  ASSERT_EQ(lowered.problems.size(), 5U);
  EXPECT_EQ(lowered.problems[0].where, code);
  EXPECT_EQ(lowered.problems[3].code, ErrorCode::kLimit);
  EXPECT_EQ(lowered.problems[4].code, ErrorCode::kMalformed);
}

}  // namespace
}  // namespace windlass
