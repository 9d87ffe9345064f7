// Version 3 by bytes laid out by hand from the preview's text: unwound, and lowered to rows. That written information
// unwinds rightly is tested by running the functions (test_write_states).
#include <map>

#include <gtest/gtest.h>

#include "formats/winx64/encode.h"
#include "formats/winx64/exec.h"
#include "formats/winx64/lower.h"
#include "support/pe_builder.h"

namespace windlass::winx64 {
namespace {

constexpr std::uint32_t kBegin = 0x1000, kXdataRva = 0x2000;
constexpr std::uint64_t kStack = 0x7000'0000;

struct Words {
  std::map<std::uint64_t, std::uint64_t> words;
  bool read(std::uint64_t address, void* to, std::size_t size) const {
    const auto found = words.find(address);
    if (found == words.end() || size != 8) return false;
    std::memcpy(to, &found->second, 8);
    return true;
  }
};

class Image {
 public:
  Image(const std::vector<std::uint8_t>& xdata, const std::vector<RuntimeFunction>& entries) {
    test::PeBuilder builder(image::PeMachine::kAmd64);
    builder.add(".text", std::vector<std::uint8_t>(0x1000 - 1, 0x90), true);
    builder.add(".xdata", xdata);
    test::ByteWriter table;
    for (const RuntimeFunction& entry : entries) table.u32(entry.begin), table.u32(entry.end), table.u32(entry.info);
    builder.add_function_table(table.data());
    bytes_ = builder.build();
    image_ = std::make_unique<image::PeImage>(
        std::move(*image::PeImage::parse(ByteView(std::span<const std::uint8_t>(bytes_)))));
    functions_ = std::make_unique<Functions>(*image_);
  }

  Expected<Unwound> unwind(std::uint32_t offset, const Words& memory, std::uint64_t rbp = 0) const {
    Registers frame(Architecture::kX86_64);
    for (unsigned i = 0; i < 16; ++i) frame.set(dwarf_number(i), 0x100 + i);
    frame.set(dwarf_number(kRbp), rbp);
    frame.set_sp(kStack);
    frame.set_pc(CodeAddress::instruction(image_->image_base() + kBegin + offset));
    Unwound unwound;
    const auto done = unwind_by_codes(*functions_, image_->image_base(), memory, frame, unwound);
    if (!done) return Failure(done.error());
    return unwound;
  }
  Expected<FrameRow> row(std::uint32_t offset) const {
    RuntimeFunction entry;
    EXPECT_TRUE(functions_->find(kBegin + offset, entry));
    FrameRow row;
    if (const auto done = row_at(*functions_, entry, kBegin + offset, row); !done) return Failure(done.error());
    return row;
  }

 private:
  std::vector<std::uint8_t> bytes_;
  std::unique_ptr<image::PeImage> image_;
  std::unique_ptr<Functions> functions_;
};

// Header, payload; `operations` of the prologue.
std::vector<std::uint8_t> info_of_payload(unsigned flags, unsigned prolog, unsigned operations,
                                          std::vector<std::uint8_t> payload, unsigned epilogs = 0) {
  if (payload.size() % 2 != 0) payload.push_back(0);
  std::vector<std::uint8_t> info{static_cast<std::uint8_t>(3 | flags << 3), static_cast<std::uint8_t>(prolog),
                                 static_cast<std::uint8_t>(payload.size() / 2),
                                 static_cast<std::uint8_t>(operations | epilogs << 5)};
  info.insert(info.end(), payload.begin(), payload.end());
  info.resize((info.size() + 3) / 4 * 4);
  return info;
}

// ALLOC_SMALL 32 at 4; PUSH2 r15, r16 at 2; PUSH_CONSECUTIVE_2 r12, r13 at 0.
TEST(WinX64V3, PushesOfTwoRegisters) {
  const Image image(info_of_payload(0, 8, 3, {4, 2, 0, 0x38, 0x20 | 3 << 6, 3 | 16 << 3, 7 | 12 << 3}),
                    {{kBegin, kBegin + 40, kXdataRva}});
  const Words memory{{{kStack + 40, 15}, {kStack + 48, 13}, {kStack + 56, 12}, {kStack + 64, 0x9999}}};
  const auto unwound = image.unwind(20, memory);  // r16, at rsp + 32, is not held
  ASSERT_TRUE(unwound) << unwound.error().text();
  EXPECT_EQ(unwound->caller.pc().value(), 0x9999U);
  EXPECT_EQ(unwound->caller.sp(), kStack + 72);
  for (const unsigned reg : {12U, 13U, 15U}) EXPECT_EQ(unwound->caller.get(dwarf_number(reg)), reg);
  const auto row = image.row(20);
  ASSERT_TRUE(row);
  EXPECT_EQ(row->cfa, CfaRule::at(7, 72));
  EXPECT_EQ(*row->registers.find(12), RegisterRule::at_cfa(-16));
  EXPECT_EQ(*row->registers.find(13), RegisterRule::at_cfa(-24));
  EXPECT_EQ(*row->registers.find(15), RegisterRule::at_cfa(-32));
  // Offsets are those of instructions' begins: at 4 the allocation has not run.
  EXPECT_EQ(image.row(4)->cfa, CfaRule::at(7, 40));
  EXPECT_EQ(image.row(0)->cfa, CfaRule::at(7, 8));
}

// Below the frame pointer 32 bytes are allocated, and more in the body: the save counts from the prologue's end.
TEST(WinX64V3, SavesBelowAFramePointer) {
  // SAVE_NONVOL rbx, 8 at 9; ALLOC_SMALL 32 at 5; SET_FPREG rbp, 16 at 1; PUSH rbp at 0.
  const Image image(info_of_payload(0, 14, 4, {9, 5, 1, 0, 6 | 3 << 3, 1, 0, 0x38, 0, 5 | 1 << 4, 4 | 5 << 3}),
                    {{kBegin, kBegin + 40, kXdataRva}});
  const std::uint64_t rbp = kStack + 0x1000;
  const Words memory{{{rbp - 16 - 32 + 8, 0xb}, {rbp - 16, 0xbb}, {rbp - 8, 0x9999}}};
  const auto unwound = image.unwind(20, memory, rbp);
  ASSERT_TRUE(unwound) << unwound.error().text();
  EXPECT_EQ(unwound->caller.sp(), rbp);
  EXPECT_EQ(unwound->caller.get(dwarf_number(3)), 0xbU);
  EXPECT_EQ(unwound->caller.get(dwarf_number(kRbp)), 0xbbU);
  const auto row = image.row(20);
  ASSERT_TRUE(row);
  EXPECT_EQ(row->cfa, CfaRule::at(6, 0));
  EXPECT_EQ(*row->registers.find(3), RegisterRule::at_cfa(-40));
}

TEST(WinX64V3, CanonicalFrames) {
  for (const std::uint8_t type : {0, 1, 2}) {
    const Image image(info_of_payload(0, 0, 1, {0, 3, type}), {{kBegin, kBegin + 40, kXdataRva}});
    const std::uint64_t at = kStack + (type == 1 ? 8 : 0);
    const auto unwound = image.unwind(0, {{{at, 0x9999}, {at + 24, 0x8888}}});
    if (type == 2) {
      ASSERT_FALSE(unwound);
      EXPECT_STREQ(unwound.error().what, "canonical frame of a type that is not known: RVA");
      EXPECT_FALSE(image.row(0));
      continue;
    }
    ASSERT_TRUE(unwound) << unwound.error().text();
    EXPECT_TRUE(unwound->machine_frame);
    EXPECT_EQ(unwound->caller.pc().value(), 0x9999U);
    EXPECT_EQ(unwound->caller.sp(), 0x8888U);
    EXPECT_TRUE(image.row(0)->signal_frame);
  }
}

// A prologue of 300 bytes has offsets of two bytes.
TEST(WinX64V3, LargePrologue) {
  const Image image(info_of_payload(kLarge, 300 & 0xff, 1, {300 >> 8, 290 & 0xff, 290 >> 8, 0x38}),
                    {{kBegin, kBegin + 400, kXdataRva}});
  EXPECT_EQ(image.row(290)->cfa, CfaRule::at(7, 8));
  EXPECT_EQ(image.row(291)->cfa, CfaRule::at(7, 40));
  const auto unwound = image.unwind(295, {{{kStack + 32, 0x9999}}});
  ASSERT_TRUE(unwound);
  EXPECT_EQ(unwound->position, Position::kPrologue);
  EXPECT_EQ(image.unwind(300, {{{kStack + 32, 0x9999}}})->position, Position::kBody);
}

TEST(WinX64V3, WhatIsRefused) {
  // A chain to version 1, and from it.
  std::vector<std::uint8_t> chained = info_of_payload(kChaininfo, 0, 0, {});
  test::ByteWriter tail;
  tail.u32(kBegin), tail.u32(kBegin + 40), tail.u32(kXdataRva + 16);
  chained.insert(chained.end(), tail.data().begin(), tail.data().end());
  chained.insert(chained.end(), {1, 4, 1, 0, 4, 0x32, 0, 0});  // version 1: ALLOC_SMALL 32
  for (const bool back : {false, true}) {
    if (back) chained[0] = 1 | kChaininfo << 3, chained[16] = 3, chained[18] = 0;
    const Image image(chained, {{kBegin + 40, kBegin + 80, kXdataRva}});
    const auto unwound = image.unwind(50, {{{kStack, 1}, {kStack + 32, 1}}});
    ASSERT_FALSE(unwound);
    EXPECT_STREQ(unwound.error().what, "version 3 is chained to another version: RVA");
    EXPECT_STREQ(image.row(50).error().what, "version 3 is chained to another version: RVA");
  }
  // An epilogue that goes on in a parent, without one.
  const Image image(info_of_payload(0, 0, 0, {1 | 1 << 3, 8, 0, 0, 0, 4, 0, 0x38}, 1),
                    {{kBegin, kBegin + 40, kXdataRva}});
  EXPECT_STREQ(image.unwind(8, {}).error().what, "epilogue goes on in a parent that there is not: RVA");
}

// An epilogue of up to 255 bytes has short offsets, a longer one has long offsets; both are read again.
TEST(WinX64V3, LongEpilogues) {
  for (const std::uint16_t last : {1, 254, 255, 256, 257, 1000}) {
    UnwindCode push;
    push.operation = Operation::kPushNonvol;
    InfoContent content{.version = 3};
    content.epilogs_v3 = {{.begin = 16, .last_instruction = last, .codes = {push}}};
    const auto bytes = encode(content);
    ASSERT_TRUE(bytes) << bytes.error().text();
    const auto info = parse_unwind_info(ByteView(bytes->data(), bytes->size()), kXdataRva);
    ASSERT_TRUE(info) << info.error().text();
    const auto payload = read_payload_v3(*info);
    ASSERT_TRUE(payload) << payload.error().text();
    ASSERT_EQ(payload->epilog_count, 1U) << last;
    EXPECT_EQ(payload->epilogs[0].last_instruction, last);
    EXPECT_EQ(payload->epilogs[0].offset, 16);
    EXPECT_EQ(payload->epilogs[0].large, last > 255);
    EXPECT_EQ(payload->epilogs[0].ip_offsets.size(), last > 255 ? 2U : 1U);
  }
}

TEST(WinX64V3, LimitsOfTheBytes) {
  const auto why = [](const InfoContent& content) {
    const auto bytes = encode(content);
    return std::string(bytes ? "" : bytes.error().what);
  };
  UnwindCode push;
  push.operation = Operation::kPushNonvol;
  InfoContent content{.version = 3};
  content.codes = std::vector<UnwindCode>(32, push);
  EXPECT_EQ(why(content), "version 3 has at most 31 operations of a prologue or epilogue");
  content.codes = {push};
  content.codes[0].offset = 256;
  EXPECT_EQ(why(content), "an operation lies more than 255 bytes into its prologue or epilogue");
  content.flags = kLarge;
  EXPECT_EQ(why(content), "");
  EpilogContent epilog{.last_instruction = 3, .codes = {push}};
  content.epilogs_v3 = std::vector<EpilogContent>(8, epilog);
  EXPECT_EQ(why(content), "version 3 describes at most 7 epilogues of an entry");
  content.epilogs_v3 = {epilog, epilog};
  EXPECT_EQ(why(content), "");
  content.epilogs_v3[1].begin = 0x8000;
  EXPECT_EQ(why(content), "an epilogue begins at most 32,767 bytes behind the one before");
  content.epilogs_v3 = {{}};
  EXPECT_EQ(why(content), "an epilogue of version 3 has operations");
  content.epilogs_v3.clear();
  content.codes[0].operation = Operation::kPushMachframe;
  EXPECT_EQ(why(content), "operation is none that version 3 writes");
}

}  // namespace
}  // namespace windlass::winx64
