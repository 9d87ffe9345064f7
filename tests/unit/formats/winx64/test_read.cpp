#include "formats/winx64/read.h"

#include <gtest/gtest.h>

#include "formats/winx64/handlers.h"
#include "support/pe_image_builder.h"

namespace windlass {
namespace {

using test::Bytes;
using test::PeImageBuilder;
using test::UnwindInfoBytes;
using winx64::Operation;
using winx64::UnwindCode;

constexpr auto slot = &UnwindInfoBytes::slot;

std::vector<UnwindCode> codes(const winx64::UnwindInfo& info) {
  std::vector<UnwindCode> all;
  EXPECT_TRUE(winx64::each_code(info, [&](const UnwindCode& code) { all.push_back(code); }));
  return all;
}

TEST(WinX64Read, EveryOperation) {
  UnwindInfoBytes info;
  info.flags = winx64::kUhandler;
  info.frame_register = 5;
  info.frame_offset = 15;
  info.slots = {slot(60, 10, 1),
                slot(50, 9, 15),
                0x5678,
                0x1234,
                slot(45, 8, 6),
                3,
                slot(40, 5, 14),
                0x0010,
                1,
                slot(35, 4, 3),
                9,
                slot(30, 3, 0),
                slot(25, 2, 15),
                slot(20, 1, 1),
                0x0004,
                0x0002,
                slot(15, 1, 0),
                0xffff,
                slot(1, 0, 12),
                slot(0, 11, 0),
                2,
                0};
  Bytes bytes = info.bytes();
  bytes.u32(0xcafe);
  const auto parsed = winx64::parse_unwind_info(bytes.view(), 0x11000);
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->handler, 0xcafeU);
  EXPECT_EQ(parsed->handler_data, 0x11000U + bytes.size());
  const auto all = codes(*parsed);
  ASSERT_EQ(all.size(), 11U);
  const auto expect = [&](unsigned i, Operation operation, unsigned offset, unsigned number, unsigned value) {
    EXPECT_EQ(all[i].operation, operation) << i;
    EXPECT_EQ(all[i].offset, offset) << i;
    EXPECT_EQ(all[i].info, number) << i;
    EXPECT_EQ(all[i].value, value) << i;
  };
  expect(0, Operation::kPushMachframe, 60, 1, 0);
  expect(1, Operation::kSaveXmm128Far, 50, 15, 0x12345678);
  expect(2, Operation::kSaveXmm128, 45, 6, 48);
  expect(3, Operation::kSaveNonvolFar, 40, 14, 0x10010);
  expect(4, Operation::kSaveNonvol, 35, 3, 72);
  expect(5, Operation::kSetFpreg, 30, 0, 240);
  expect(6, Operation::kAllocSmall, 25, 15, 128);
  expect(7, Operation::kAllocLarge, 20, 1, 0x20004);
  expect(8, Operation::kAllocLarge, 15, 0, 0xffff * 8);
  expect(9, Operation::kPushNonvol, 1, 12, 0);
  expect(10, Operation::kSetFpregLarge, 0, 0, 32);
}

TEST(WinX64Read, SetFpregLarge) {
  UnwindInfoBytes info;
  info.frame_register = 5;
  info.frame_offset = 15;
  info.slots = {slot(9, 11, 0), 0x0100, 0x0001};
  const Bytes bytes = info.bytes();
  EXPECT_EQ(codes(*winx64::parse_unwind_info(bytes.view(), 0)).at(0).value, 0x10100U * 16);
}

TEST(WinX64Read, EpiloguesOfVersion2) {
  UnwindInfoBytes info;
  info.version = 2;
  info.slots = {slot(3, 6, 1), slot(0x10, 6, 2), slot(0x20, 6, 0), slot(0, 6, 0), slot(1, 0, 3)};
  const Bytes bytes = info.bytes();
  const auto parsed = winx64::parse_unwind_info(bytes.view(), 0);
  std::vector<std::uint32_t> begins;
  winx64::each_epilog(*parsed, 0x3000, [&](const winx64::Epilog& epilog) {
    begins.push_back(epilog.begin);
    EXPECT_EQ(epilog.size, 3U);
  });
  EXPECT_EQ(begins, (std::vector<std::uint32_t>{0x3000 - 3, 0x3000 - 0x210, 0x3000 - 0x20}));
  EXPECT_EQ(codes(*parsed).size(), 5U);
}

TEST(WinX64Read, HostileInformation) {
  const auto error = [](const Bytes& bytes) { return winx64::parse_unwind_info(bytes.view(), 0x77).error(); };
  EXPECT_EQ(error(Bytes{1, 0}).code, ErrorCode::kTruncated);
  EXPECT_EQ(error(Bytes{1, 0, 255, 0, 1, 2}).code, ErrorCode::kTruncated);
  EXPECT_EQ(error(Bytes{7, 0, 0, 0}).code, ErrorCode::kUnsupported);
  EXPECT_EQ(error(Bytes{0x21, 0, 0, 0, 1, 2, 3, 4}).where, 0x77U);  // chained, cut off
  UnwindInfoBytes info;
  info.slots = {slot(1, 1, 1), 0};  // needs three slots
  Bytes bytes = info.bytes();
  EXPECT_EQ(winx64::each_code(*winx64::parse_unwind_info(bytes.view(), 0), [](const UnwindCode&) {}).error().code,
            ErrorCode::kTruncated);
  info.slots = {slot(1, 13, 1)};
  bytes = info.bytes();
  EXPECT_EQ(winx64::each_code(*winx64::parse_unwind_info(bytes.view(), 0), [](const UnwindCode&) {}).error().detail,
            13U);
}

// Laid out by hand from the preview's text, section by section.
TEST(WinX64Read, Version3) {
  Bytes bytes;
  bytes.u8(3).u8(9).u8(0).u8(4 | 2 << 5);                 // 4 operations, 2 epilogues
  Bytes payload{9, 5, 2, 1};                              // prologue offsets
  payload.u8(2 << 3).u16(0x10).u16(1).u8(7).u8(0).u8(4);  // 2 operations from byte 1 of the pool on, at +0x10
  payload.u8(1).u16(0x20);                                // the same, 0x20 further
  payload.u8(0x28);                                       // ALLOC_SMALL 24
  payload.u8(0x20 | 3 << 6).u8(4 | 17 << 3);              // PUSH2 r19, r17
  payload.u8(7 | 14 << 3);                                // PUSH_CONSECUTIVE_2 r14, r15
  payload.u8(0).u8(5 | 2 << 4);                           // SET_FPREG rbp, 32
  if (payload.size() % 2 != 0) payload.u8(0);
  bytes.data()[2] = static_cast<std::uint8_t>(payload.size() / 2);
  bytes.add(payload);
  const auto info = winx64::parse_unwind_info(bytes.view(), 0);
  ASSERT_TRUE(info);
  const auto parsed = winx64::read_payload_v3(*info);
  ASSERT_TRUE(parsed) << parsed.error().text();
  ASSERT_EQ(parsed->epilog_count, 2U);
  EXPECT_EQ(parsed->epilogs[0].offset, 0x10);
  EXPECT_EQ(parsed->epilogs[0].last_instruction, 7);
  EXPECT_EQ(parsed->epilogs[1].offset, 0x30);
  EXPECT_TRUE(parsed->epilogs[1].inherited);
  EXPECT_EQ(parsed->epilogs[1].operation_count, 2);
  std::vector<UnwindCode> all;
  ASSERT_TRUE(winx64::each_descriptor(parsed->pool, 0, 4, parsed->ip_offsets, false,
                                      [&](const UnwindCode& code) { all.push_back(code); }));
  EXPECT_EQ(all[0].operation, Operation::kAllocSmall);
  EXPECT_EQ(all[0].value, 24U);
  EXPECT_EQ(all[0].offset, 9);
  EXPECT_EQ(all[1].operation, Operation::kPush2);
  EXPECT_EQ(all[1].info, 19);
  EXPECT_EQ(all[1].second, 17);
  EXPECT_EQ(all[2].operation, Operation::kPushConsecutive2);
  EXPECT_EQ(all[2].second, 15);
  EXPECT_EQ(all[3].operation, Operation::kSetFpreg);
  EXPECT_EQ(all[3].value, 32U);
  EXPECT_FALSE(winx64::descriptor_at(parsed->pool, 99));
}

TEST(WinX64Read, ScopeTableByShapeAndByName) {
  PeImageBuilder builder;
  const auto code = builder.text({0x90, 0x90, 0x90, 0xc3});
  UnwindInfoBytes info;
  info.flags = winx64::kEhandler;
  Bytes bytes = info.bytes();
  bytes.u32(code).u32(2).u32(code).u32(code + 2).u32(1).u32(code + 3).u32(code + 1).u32(code + 2).u32(1).u32(code + 2);
  const auto at = builder.data(bytes);
  builder.entry(code, code + 4, at);
  const auto file = builder.build();
  const auto image = image::PeImage::parse(ByteView(std::span<const std::uint8_t>(file)));
  const auto parsed = winx64::read_unwind_info(*image, at);
  for (const std::string_view name : {"", "__C_specific_handler"}) {
    const auto handler = winx64::read_handler(*image, name, {code, code + 4, at}, *parsed);
    ASSERT_TRUE(handler);
    EXPECT_EQ(handler->kind, winx64::HandlerKind::kCSpecific);
    EXPECT_EQ(handler->by_shape, name.empty());
    ASSERT_EQ(handler->scope_count, 2U);
    EXPECT_EQ(handler->scope(0).target, code + 3);
    EXPECT_EQ(handler->scope(1).begin, code + 1);
    EXPECT_EQ(handler->scope(1).target, code + 2);
  }
  EXPECT_EQ(winx64::read_handler(*image, "mine", {code, code + 4, at}, *parsed)->kind, winx64::HandlerKind::kUnknown);
  // The same data cannot be a C++ function's.
  EXPECT_FALSE(winx64::read_handler(*image, "__CxxFrameHandler3", {code, code + 4, at}, *parsed));
}

}  // namespace
}  // namespace windlass
