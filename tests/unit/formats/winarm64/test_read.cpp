#include <gtest/gtest.h>

#include <vector>

#include "formats/winarm64/dump.h"
#include "unit/formats/winarm64/image.h"

namespace windlass::winarm64 {
namespace {

UnwindCode one(const std::vector<std::uint8_t>& bytes) {
  const auto code = code_at(ByteView(std::span<const std::uint8_t>(bytes)), 0);
  EXPECT_TRUE(code);
  EXPECT_EQ(code->size, bytes.size());
  return *code;
}

std::string text(const std::vector<std::uint8_t>& bytes, bool prologue = true) {
  std::string out(operation_name(one(bytes).operation));
  out += ": ";
  append_instruction(out, one(bytes), prologue);
  return out;
}

std::vector<Error> problems(const std::vector<std::uint8_t>& bytes) {
  std::vector<Error> found;
  const auto record = parse_record(ByteView(std::span<const std::uint8_t>(bytes)), 0x5000);
  if (!record) return {record.error()};
  check_record(*record, [&](const Error& error) { found.push_back(error); });
  return found;
}

// The examples beside each code in "Unwind codes", both ends of their ranges.
TEST(WinArm64Codes, WhatTheyStandFor) {
  EXPECT_EQ(text({0x1f}), "alloc_s: sub sp, sp, #496");
  EXPECT_EQ(text({0x3f}), "save_r19r20_x: stp x19, x20, [sp, #-248]!");
  EXPECT_EQ(text({0x7f}), "save_fplr: stp x29, lr, [sp, #504]");
  EXPECT_EQ(text({0xbf}), "save_fplr_x: stp x29, lr, [sp, #-512]!");
  EXPECT_EQ(text({0x80}, false), "save_fplr_x: ldp x29, lr, [sp], #8");
  EXPECT_EQ(text({0xc7, 0xff}), "alloc_m: sub sp, sp, #32752");
  EXPECT_EQ(text({0xca, 0x3f}), "save_regp: stp x27, x28, [sp, #504]");
  EXPECT_EQ(text({0xcc, 0x40}), "save_regp_x: stp x20, x21, [sp, #-8]!");
  EXPECT_EQ(text({0xd2, 0xc1}), "save_reg: str lr, [sp, #8]");
  EXPECT_EQ(text({0xd5, 0x3f}), "save_reg_x: str x28, [sp, #-256]!");
  EXPECT_EQ(text({0xd7, 0x01}), "save_lrpair: stp x27, lr, [sp, #8]");
  EXPECT_EQ(text({0xd9, 0x81}), "save_fregp: stp d14, d15, [sp, #8]");
  EXPECT_EQ(text({0xda, 0x07}, false), "save_fregp_x: ldp d8, d9, [sp], #64");
  EXPECT_EQ(text({0xdd, 0xc1}), "save_freg: str d15, [sp, #8]");
  EXPECT_EQ(text({0xde, 0xff}), "save_freg_x: str d15, [sp, #-256]!");
  EXPECT_EQ(text({0xe0, 0xff, 0xff, 0xff}), "alloc_l: sub sp, sp, #268435440");
  EXPECT_EQ(text({0xe1}, false), "set_fp: mov sp, x29");
  EXPECT_EQ(text({0xe2, 0xff}), "add_fp: add x29, sp, #2040");
  EXPECT_EQ(text({0xfc}), "pac_sign_lr: pacibsp");
}

TEST(WinArm64Codes, SaveAnyReg) {
  EXPECT_EQ(text({0xe7, 0x07, 0x3f}), "save_any_reg: str x7, [sp, #504]");
  EXPECT_EQ(text({0xe7, 0x47, 0x03}), "save_any_reg: stp x7, x8, [sp, #48]");
  EXPECT_EQ(text({0xe7, 0x27, 0x03}), "save_any_reg: str x7, [sp, #-64]!");
  EXPECT_EQ(text({0xe7, 0x66, 0x41}), "save_any_reg: stp d6, d7, [sp, #-32]!");
  EXPECT_EQ(text({0xe7, 0x1f, 0x41}), "save_any_reg: str d31, [sp, #8]");
  EXPECT_EQ(text({0xe7, 0x06, 0x82}, false), "save_any_reg: ldr q6, [sp, #32]");
  EXPECT_EQ(one({0xe7, 0x80, 0x00}).operation, Operation::kReserved);
}

TEST(WinArm64Codes, ScalableVectors) {
  EXPECT_EQ(text({0xdf, 0x07}), "alloc_z: addvl sp, sp, #-7");
  EXPECT_EQ(text({0xe7, 0x6f, 0xff}), "save_zreg: str z23, [sp, #255, mul vl]");
  EXPECT_EQ(text({0xe7, 0x14, 0xc1}, false), "save_preg: ldr p4, [sp, #1, mul vl]");
}

TEST(WinArm64Codes, SizesAndInstructions) {
  for (unsigned first = 0; first < 256; ++first) {
    const unsigned expected = first < 0xc0                    ? 1
                              : first < 0xe0                  ? 2
                              : first == 0xe0                 ? 4
                              : first == 0xe2                 ? 2
                              : first == 0xe7                 ? 3
                              : first >= 0xf8 && first < 0xfc ? first - 0xf8 + 2
                                                              : 1;
    EXPECT_EQ(code_size(static_cast<std::uint8_t>(first)), expected) << first;
    EXPECT_EQ(code_instructions(static_cast<std::uint8_t>(first)), first >= 0xe8 && first < 0xf8 ? 0 : 1) << first;
  }
}

// Both counts in the extension word.
TEST(WinArm64Records, ExtensionWordScopesAndHandler) {
  test::ByteWriter out;
  out.u32(25 | 1U << 20);               // 100 bytes, X
  out.u32(2 | 1U << 16);                // two scopes, one word of codes
  out.u32(5 | 1U << 22);                // +20, code 1
  out.u32(20 | 0x3U << 18 | 2U << 22);  // +80, code 2, reserved bits
  out.bytes({0xe1, 0x81, 0x26, 0xe4});
  out.u32(0x1234);
  const auto record = parse_record(ByteView(std::span<const std::uint8_t>(out.data())), 0x5000);
  ASSERT_TRUE(record);
  EXPECT_EQ(record->length, 100U);
  ASSERT_EQ(record->scope_count(), 2U);
  EXPECT_EQ(record->scope(0).start, 20U);
  EXPECT_EQ(record->scope(0).index, 1U);
  EXPECT_EQ(record->scope(1).start, 80U);
  EXPECT_EQ(record->scope(1).index, 2U);
  EXPECT_EQ(record->scope(1).reserved, 3U);
  EXPECT_EQ(record->codes.size(), 4U);
  EXPECT_EQ(record->handler, 0x1234U);
  EXPECT_EQ(record->handler_data, 0x5000U + out.size());
  std::vector<std::uint64_t> reached;
  CodeSet(*record).each([&](std::uint64_t index, const Expected<UnwindCode>& code) {
    EXPECT_TRUE(code) << index;
    reached.push_back(index);
  });
  EXPECT_EQ(reached, (std::vector<std::uint64_t>{0, 1, 2, 3}));
}

// The scope words in the page's examples 2 and 3, whose comments there say other indexes.
TEST(WinArm64Records, ScopesOfThePagesExamples) {
  UnwindRecord record;
  const std::vector<std::uint8_t> words = {0x38, 0, 0, 1, 0x0f, 0, 0, 2};
  record.scopes = ByteView(std::span<const std::uint8_t>(words));
  EXPECT_EQ(record.scope(0).index, 4U);
  EXPECT_EQ(record.scope(0).start, 0x38U * 4);
  EXPECT_EQ(record.scope(1).index, 8U);
}

TEST(WinArm64Records, MalformedOnesNameTheRva) {
  const auto first = [](const std::vector<std::uint8_t>& bytes) {
    const auto found = problems(bytes);
    return found.empty() ? std::string("fine") : found[0].text();
  };
  EXPECT_EQ(first(xdata(100, {0x81, 0xe4})), "fine");
  EXPECT_EQ(first({1, 0}), "0x5000: unwind record reaches past the image");
  EXPECT_EQ(first({0, 0, 0, 0}), "0x5000: unwind record's extension word is past the image");
  EXPECT_EQ(first({0, 0, 0, 0, 0, 0, 0, 0}), "0x5000: unwind record has no codes");
  EXPECT_EQ(first({1, 0, 4, 8}), "0x5000: unwind record of an unknown version (0x1)");
  EXPECT_EQ(first({1, 0, 0x40, 8}), "0x5000: epilogue scopes reach past the image (0x1)");
  EXPECT_EQ(first({1, 0, 0, 8}), "0x5000: unwind codes reach past the image (0x1)");
  EXPECT_EQ(first({1, 0, 0x10, 8, 0xe4, 0, 0, 0}), "0x5000: unwind record's handler is past the image");
  EXPECT_EQ(first(xdata(100, {0x81, 0x81, 0x81, 0x81})), "0x5008: unwind codes end without an end code");
  EXPECT_EQ(first(xdata(100, {0x81, 0x81, 0xe0, 0x81})), "0x5006: unwind code reaches past the record's codes (0xe0)");
  EXPECT_EQ(first(xdata(100, {0xee, 0xe4})), "0x5004: undefined unwind code (0xee)");
  EXPECT_EQ(first(xdata(100, {0x81, 0xe7, 0x80, 0x00, 0xe4})), "0x5005: undefined unwind code (0xe7)");
  EXPECT_EQ(first(xdata(100, {0xcb, 0x00, 0xe4})), "0x5004: unwind code saves a register that does not exist (0x20)");
  EXPECT_EQ(first(xdata(100, {0x81, 0xe4}, {{40, 4}})), "0x5004: epilogue's codes start past the record's (0x4)");
  EXPECT_EQ(first(xdata(100, {0x81, 0xe4}, {{100, 0}})), "0x5004: epilogue lies outside of its function (0x64)");
  EXPECT_EQ(first(xdata(100, {0x81, 0xe4}, {{40, 0}, {20, 0}})), "0x5008: epilogue scopes are not in order (0x14)");
  EXPECT_EQ(first(xdata(4, {0x81, 0xe4}, {}, 0)), "0x5000: epilogue lies outside of its function");
}

// What was found wrong is reported once, though two epilogues share the codes.
TEST(WinArm64Records, SharedCodesAreCheckedOnce) {
  EXPECT_EQ(problems(xdata(100, {0x81, 0xee, 0xe4}, {{20, 0}, {40, 1}})).size(), 1U);
}

Expected<std::string> expanded(const PackedFields& fields, bool fragment = false) {
  Expansion expansion;
  if (const auto done = expansion.expand(fields, fragment, 0x1000); !done) return Failure(done.error());
  std::string out;
  const ByteView codes = expansion.codes();
  for (std::uint64_t index = 0; index < codes.size();) {
    const auto code = code_at(codes, index);
    if (!code) return Failure(code.error());
    std::string instruction;
    append_instruction(instruction, *code, true);
    out += instruction.empty() ? std::string(operation_name(code->operation)) : instruction;
    out += "; ";
    index += code->size;
  }
  return out + "epilogue " + std::to_string(expansion.epilogue_index());
}

// From "Packed unwind data", last instruction first.
TEST(WinArm64Packed, Expansion) {
  EXPECT_EQ(*expanded({100, 0, 0, false, 0, 0}), "end; epilogue 0");
  EXPECT_EQ(*expanded({100, 0, 2, false, 3, 48}),
            "mov x29, sp; stp x29, lr, [sp, #-32]!; stp x19, x20, [sp, #-16]!; end; epilogue 1");
  EXPECT_EQ(*expanded({100, 0, 1, false, 1, 16}), "stp x19, lr, [sp, #0]; sub sp, sp, #16; end; epilogue 0");
  EXPECT_EQ(*expanded({100, 0, 3, false, 1, 4128}),
            "sub sp, sp, #16; sub sp, sp, #4080; stp x21, lr, [sp, #16]; stp x19, x20, [sp, #-32]!; end; epilogue 0");
  EXPECT_EQ(*expanded({100, 2, 0, false, 2, 560}),
            "mov x29, sp; stp x29, lr, [sp, #0]; sub sp, sp, #528; str d10, [sp, #16]; stp d8, d9, [sp, #-32]!; "
            "pacibsp; end; epilogue 1");
  // What stp with writeback can reach, and the next size.
  EXPECT_EQ(*expanded({100, 0, 0, false, 3, 512}), "mov x29, sp; stp x29, lr, [sp, #-512]!; end; epilogue 1");
  EXPECT_EQ(*expanded({100, 0, 0, false, 3, 528}),
            "mov x29, sp; stp x29, lr, [sp, #0]; sub sp, sp, #528; end; epilogue 1");
  EXPECT_EQ(*expanded({100, 0, 2, false, 0, 32}, true),
            "end_c; sub sp, sp, #16; stp x19, x20, [sp, #-16]!; end; epilogue 255");
}

// Homing: four nops in the prologue, none in the epilogue, whose codes are then its own; with nothing saved it is
// behind the prologue.
TEST(WinArm64Packed, HomedParameters) {
  EXPECT_EQ(*expanded({100, 0, 1, true, 0, 96}),
            "sub sp, sp, #16; nop; nop; nop; nop; str x19, [sp, #-80]!; end; "
            "sub sp, sp, #16; str x19, [sp, #-80]!; end; epilogue 8");
  EXPECT_EQ(*expanded({100, 0, 0, true, 3, 80}), "mov x29, sp; stp x29, lr, [sp, #-80]!; end; epilogue 1");
}

TEST(WinArm64Packed, ImpossibleOnes) {
  EXPECT_EQ(expanded({100, 0, 11, false, 0, 96}).error().code, ErrorCode::kMalformed);
  EXPECT_EQ(expanded({100, 0, 4, false, 0, 16}).error().text(),
            "0x1000: packed entry's frame is smaller than what it saves (0x10)");
  EXPECT_FALSE(expanded({100, 0, 4, false, 3, 32}));  // no room for x29 and lr
  EXPECT_TRUE(expanded({100, 7, 10, true, 2, 8176}));
}

TEST(WinArm64Entries, Parents) {
  const TestImage made(xdata(64, {0x81, 0xe4}), {{kCode, kXdata},
                                                 {kCode + 0x100, kTable | 3},
                                                 {kCode + 0x200, (kTable + 8) | 3},
                                                 {kCode + 0x300, (kTable + 8) | 7},
                                                 {kCode + 0x400, 0x7ffffff8 | 3}});
  const Functions functions = made.functions();
  ASSERT_EQ(functions.size(), 5U);
  const auto parent = [&](std::size_t i) { return parent_of(made.image(), functions.stored(i)); };
  EXPECT_EQ(parent(1)->begin, kCode);
  EXPECT_EQ(parent(4).error().code, ErrorCode::kOutOfRange);
  EXPECT_EQ(parent_of(made.image(), {kCode, (kTable + 8) | 3}).error().code, ErrorCode::kMalformed);  // in a circle
  EXPECT_EQ(parent_of(made.image(), {kCode, (kTable + 8) | 7}).error().code, ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace windlass::winarm64
