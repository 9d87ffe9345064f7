// UNWIND_INFO from decoded operations: bytes, what comes back from them, and every limit of the format.
#include <gtest/gtest.h>

#include "formats/winx64/encode.h"

namespace windlass {
namespace {

using winx64::InfoContent;
using winx64::Operation;
using winx64::UnwindCode;
using Text = std::string;

UnwindCode code(unsigned offset, Operation operation, unsigned info = 0, std::uint32_t value = 0) {
  return {static_cast<std::uint16_t>(offset), operation, static_cast<std::uint8_t>(info), 0, 1, value};
}

// As hexadecimal, or the error's sentence.
Text hex(const InfoContent& content) {
  const auto bytes = winx64::encode(content);
  if (!bytes) return bytes.error().what;
  Text out;
  for (const std::byte value : *bytes) {
    constexpr const char* kDigits = "0123456789abcdef";
    out += kDigits[std::to_integer<unsigned>(value) >> 4];
    out += kDigits[std::to_integer<unsigned>(value) & 15];
  }
  return out;
}
Text hex(std::vector<UnwindCode> codes) { return hex(InfoContent{.prolog_size = 255, .codes = std::move(codes)}); }

// encode -> read -> decode -> encode.
void expect_round_trip(const InfoContent& content) {
  const auto bytes = winx64::encode(content);
  ASSERT_TRUE(bytes) << bytes.error().text();
  const auto info = winx64::parse_unwind_info(ByteView(bytes->data(), bytes->size()), 0x2000);
  ASSERT_TRUE(info);
  auto back = winx64::decode(*info);
  ASSERT_TRUE(back);
  back->handler_data = content.handler_data;
  ASSERT_EQ(back->codes.size(), content.codes.size());
  for (std::size_t i = 0; i < back->codes.size(); ++i) {
    EXPECT_EQ(back->codes[i].offset, content.codes[i].offset);
    EXPECT_EQ(back->codes[i].value, content.codes[i].value);
    EXPECT_EQ(back->codes[i].slots, winx64::slots_of(content.codes[i]));
  }
  EXPECT_EQ(hex(*back), hex(content));
}

TEST(WinX64Encode, ShortestForms) {
  using enum Operation;
  const auto size = [](Operation operation, std::uint32_t value) { return hex({code(9, operation, 6, value)}); };
  EXPECT_EQ(size(kAllocSmall, 8), "01ff010009020000");
  EXPECT_EQ(size(kAllocLarge, 128), "01ff010009f20000");
  EXPECT_EQ(size(kAllocSmall, 136), "01ff020009011100");
  EXPECT_EQ(size(kAllocSmall, 524280), "01ff02000901ffff");
  EXPECT_EQ(size(kAllocSmall, 524288), "01ff03000911000008000000");
  EXPECT_EQ(size(kAllocSmall, 0xffff'fff8), "01ff03000911f8ffffff0000");
  EXPECT_EQ(size(kSaveNonvolFar, 524280), "01ff02000964ffff");
  EXPECT_EQ(size(kSaveNonvol, 524288), "01ff03000965000008000000");
  EXPECT_EQ(size(kSaveXmm128Far, 1048560), "01ff02000968ffff");
  EXPECT_EQ(size(kSaveXmm128, 1048576), "01ff03000969000010000000");
  EXPECT_EQ(size(kPushNonvol, 0), "01ff010009600000");
  EXPECT_EQ(hex({code(0, kPushMachframe, 1)}), "01ff0100001a0000");
}

TEST(WinX64Encode, TailsAndEpilogues) {
  InfoContent content{.flags = winx64::kEhandler | winx64::kUhandler, .prolog_size = 4, .frame_register = 5};
  content.codes = {code(4, Operation::kSetFpreg), code(1, Operation::kPushNonvol, 5)};
  content.handler = 0x1234;
  content.handler_data = {std::byte{7}, std::byte{8}};
  EXPECT_EQ(hex(content),
            "1904020504030150"
            "34120000"
            "07080000");
  expect_round_trip(content);

  InfoContent chained{.flags = winx64::kChaininfo, .codes = {}};
  chained.chained = winx64::RuntimeFunction{0x1000, 0x1020, 0x2000};
  EXPECT_EQ(hex(chained),
            "21000000"
            "00100000"
            "20100000"
            "00200000");
  expect_round_trip(chained);

  InfoContent second{.version = 2, .prolog_size = 1, .codes = {code(1, Operation::kPushNonvol, 3)}};
  second.epilog_size = 2;
  second.epilog_at_end = true;
  EXPECT_EQ(hex(second),
            "02010300"
            "0216"
            "0006"
            "0130"
            "0000");
  expect_round_trip(second);
  second.epilog_offsets = {0x123, 0xfff};
  EXPECT_EQ(hex(second),
            "02010500"
            "0216"
            "2316"
            "fff6"
            "0006"
            "0130"
            "0000");
  expect_round_trip(second);
  second.epilog_at_end = false;
  EXPECT_EQ(hex(second),
            "02010500"
            "0206"
            "2316"
            "fff6"
            "0006"
            "0130"
            "0000");
  expect_round_trip(second);
}

TEST(WinX64Encode, EveryLimitIsAnError) {
  using enum Operation;
  EXPECT_EQ(hex({code(9, kAllocSmall, 0, 0)}), "an allocation is a multiple of 8, from 8 to 4G - 8 bytes");
  EXPECT_EQ(hex({code(9, kAllocLarge, 0, 12)}), "an allocation is a multiple of 8, from 8 to 4G - 8 bytes");
  EXPECT_EQ(hex({code(9, kSaveNonvol, 3, 12)}), "a register is saved at a multiple of 8 from the frame");
  EXPECT_EQ(hex({code(9, kSaveXmm128, 6, 24)}), "an xmm register is saved at a multiple of 16 from the frame");
  EXPECT_EQ(hex({code(9, kPushNonvol, 16)}), "operation info has 4 bits");
  EXPECT_EQ(hex({code(0, kPushMachframe, 2)}), "a machine frame has an error code or not");
  EXPECT_EQ(hex({code(9, kSpare, 3)}), "operation is none of a prologue that Windows knows");
  EXPECT_EQ(hex({code(9, kEpilog, 3)}), "operation is none of a prologue that Windows knows");
  EXPECT_EQ(hex({code(9, kSetFpregLarge, 3)}), "operation is none of a prologue that Windows knows");
  EXPECT_EQ(hex({code(9, kPush2, 3)}), "operation is none of a prologue that Windows knows");
  EXPECT_EQ(hex({code(256, kPushNonvol, 3)}), "an operation of the prologue ends behind it");
  EXPECT_EQ(hex({code(1, kPushNonvol, 3), code(2, kPushNonvol, 5)}),
            "operations are stored by descending offset, the prologue's last first");
  EXPECT_EQ(hex({code(0, kPushMachframe), code(0, kPushNonvol, 3)}),
            "a machine frame comes before every other operation");
  EXPECT_EQ(hex({code(4, kSetFpreg)}), "SET_FPREG needs a frame register; rax, number 0, cannot be one");
  EXPECT_EQ(hex(std::vector<UnwindCode>(255, code(9, kAllocSmall, 0, 8))).substr(0, 8), "01ffff00");
  EXPECT_EQ(hex(std::vector<UnwindCode>(256, code(9, kAllocSmall, 0, 8))),
            "operations and epilogues fill at most 255 slots");

  InfoContent content;
  const auto why = [&] { return hex(content); };
  content.version = 4;
  EXPECT_EQ(why(), "versions 1, 2 and 3 are written");
  content = {.flags = winx64::kLarge};
  EXPECT_EQ(why(), "flags are EHANDLER, UHANDLER and CHAININFO");
  content = {.prolog_size = 256};
  EXPECT_EQ(why(), "a prologue has at most 255 bytes");
  content = {.frame_register = 16};
  EXPECT_EQ(why(), "the frame register has 4 bits");
  content = {.frame_register = 5, .frame_offset = 256};
  EXPECT_EQ(why(), "the frame register's offset is a multiple of 16, at most 240");
  content = {.frame_register = 5, .frame_offset = 8};
  EXPECT_EQ(why(), "the frame register's offset is a multiple of 16, at most 240");
  content = {.frame_offset = 16};
  EXPECT_EQ(why(), "an offset needs a frame register");
  content = {.prolog_size = 9, .frame_register = 5, .codes = {code(9, kSetFpreg), code(4, kSetFpreg)}};
  EXPECT_EQ(why(), "SET_FPREG stands twice");
  content = {.flags = winx64::kEhandler | winx64::kChaininfo};
  content.chained = winx64::RuntimeFunction{};
  EXPECT_EQ(why(), "chained information has no handler: the first entry's holds");
  content = {.flags = winx64::kChaininfo};
  EXPECT_EQ(why(), "CHAININFO and a chained entry come together");
  content = {};
  content.handler = 0x1000;
  EXPECT_EQ(why(), "a handler needs EHANDLER or UHANDLER");
  content = {};
  content.epilog_size = 2;
  EXPECT_EQ(why(), "version 1 does not describe epilogues");
  content.version = 2;
  content.epilog_size = 256;
  EXPECT_EQ(why(), "an epilogue has 1 to 255 bytes");
  content.epilog_size = 0;
  content.epilog_at_end = true;
  EXPECT_EQ(why(), "an epilogue has 1 to 255 bytes");
  content.epilog_size = 1;
  content.epilog_offsets = {0x1000};
  EXPECT_EQ(why(), "an epilogue begins at most 4095 bytes before the function's end");
  content.epilog_offsets = std::vector<std::uint32_t>(255, 9);
  EXPECT_EQ(why(), "operations and epilogues fill at most 255 slots");
}

}  // namespace
}  // namespace windlass
