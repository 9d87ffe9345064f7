#include "formats/dwarf/interpreter.h"

#include <gtest/gtest.h>

#include "collect.h"

namespace windlass {
namespace {

using test::Bytes;
using test::CfiBuilder;
using test::CieSpec;
using test::list;
using test::Listing;

// The rows of one FDE at 0x1000..0x1100 with these instructions.
Listing run(const Bytes& instructions, const CieSpec& spec = {}, Architecture architecture = Architecture::kX86_64) {
  static CfiBuilder builder;  // expressions in the rows point into it
  builder = CfiBuilder();
  const auto cie = builder.cie(spec);
  builder.fde(cie, 0x1000, 0x100, instructions);
  auto section = builder.section();
  section.architecture = architecture;
  return list(section);
}

CfaRule cfa(const FrameRow& row) {
  EXPECT_TRUE(row.cfa.is(CfaRule::kRegister));
  return row.cfa;
}

RegisterRule rule(const FrameRow& row, RegisterNumber reg, RegisterRule::Kind kind) {
  const RegisterRule* found = row.registers.find(reg);
  if (found == nullptr || !found->is(kind)) {
    ADD_FAILURE() << "register " << reg << " has no such rule";
    return RegisterRule::undefined();
  }
  return *found;
}

TEST(Interpreter, PrologueAndEpilogue) {
  // push rbp; mov rbp, rsp; ...; leave
  const auto listing = run({0x41, 0x0e, 16, 0x86, 2, 0x43, 0x0d, 6, 0x02, 0x80, 0x0c, 7, 8, 0xc6});
  ASSERT_EQ(listing.rows.size(), 4u);
  EXPECT_EQ(listing.rows[0].begin, 0x1000u);
  EXPECT_EQ(listing.rows[0].end, 0x1001u);
  EXPECT_EQ(cfa(listing.rows[0]).reg(), 7);
  EXPECT_EQ(cfa(listing.rows[0]).offset(), 8);
  EXPECT_EQ(listing.rows[0].registers.size(), 0u);
  EXPECT_EQ(listing.rows[0].return_address.offset(), -8);
  EXPECT_EQ(rule(listing.rows[1], 6, RegisterRule::kAtCfa).offset(), -16);
  EXPECT_EQ(cfa(listing.rows[2]).reg(), 6);
  EXPECT_EQ(listing.rows[2].begin, 0x1004u);
  EXPECT_EQ(listing.rows[3].begin, 0x1084u);
  EXPECT_EQ(listing.rows[3].end, 0x1100u);
  EXPECT_EQ(listing.rows[3].registers.find(6), nullptr);  // restored to what the CIE says: nothing
}

TEST(Interpreter, EveryAdvance) {
  const auto listing = run(Bytes{0x41, 0x0e, 16, 0x02, 2, 0x0e, 24, 0x03}
                               .u16(4)
                               .add({0x0e, 32, 0x04})
                               .u32(8)
                               .add({0x0e, 40, 0x1d})
                               .u64(16)
                               .add({0x0e, 48, 0x01})
                               .u64(0x1080)
                               .add({0x0e, 56}));
  ASSERT_TRUE(listing.errors.empty()) << listing.errors[0].text();
  const std::vector<std::uint64_t> expected{0x1000, 0x1001, 0x1003, 0x1007, 0x100f, 0x101f, 0x1080};
  ASSERT_EQ(listing.rows.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(listing.rows[i].begin, expected[i]);
    EXPECT_EQ(cfa(listing.rows[i]).offset(), static_cast<std::int64_t>(8 + 8 * i));
  }
}

TEST(Interpreter, CodeAlignmentMultipliesAdvances) {
  CieSpec spec;
  spec.code_alignment = 4;
  const auto listing = run({0x41, 0x0e, 16, 0x02, 2, 0x0e, 24}, spec);
  ASSERT_EQ(listing.rows.size(), 3u);
  EXPECT_EQ(listing.rows[1].begin, 0x1004u);
  EXPECT_EQ(listing.rows[2].begin, 0x100cu);
}

TEST(Interpreter, EveryRegisterRule) {
  const auto listing = run(Bytes{}
                               .add({0x05, 3, 2})  // offset_extended rbx cfa-16
                               .add({0x11, 12})
                               .sleb(-3)            // offset_extended_sf r12 cfa+24
                               .add({0x2f, 13, 4})  // GNU_negative_offset_extended r13 cfa+32
                               .add({0x14, 14, 5})  // val_offset r14 = cfa-40
                               .add({0x15, 15})
                               .sleb(-6)                       // val_offset_sf r15 = cfa+48
                               .add({0x09, 0, 1})              // register rax in rdx
                               .add({0x08, 2})                 // same_value rcx
                               .add({0x07, 4})                 // undefined rsi
                               .add({0x10, 5, 2, 0x77, 8})     // expression rdi at [rsp + 8]
                               .add({0x16, 6, 2, 0x77, 0x10})  // val_expression rbp = rsp + 16
                               .add({0x2e, 0x20}));            // GNU_args_size
  ASSERT_TRUE(listing.errors.empty()) << listing.errors[0].text();
  ASSERT_EQ(listing.rows.size(), 1u);
  const FrameRow& row = listing.rows[0];
  EXPECT_EQ(rule(row, 3, RegisterRule::kAtCfa).offset(), -16);
  EXPECT_EQ(rule(row, 12, RegisterRule::kAtCfa).offset(), 24);
  EXPECT_EQ(rule(row, 13, RegisterRule::kAtCfa).offset(), 32);
  EXPECT_EQ(rule(row, 14, RegisterRule::kCfaValue).offset(), -40);
  EXPECT_EQ(rule(row, 15, RegisterRule::kCfaValue).offset(), 48);
  EXPECT_EQ(rule(row, 0, RegisterRule::kInRegister).reg(), 1);
  rule(row, 2, RegisterRule::kSameValue);
  rule(row, 4, RegisterRule::kUndefined);
  EXPECT_EQ(row.expression(rule(row, 5, RegisterRule::kAtExpression)).size(), 2u);
  EXPECT_EQ(row.expression(rule(row, 6, RegisterRule::kExpressionValue)).u8()[1], 0x10);
  EXPECT_TRUE(std::is_sorted(row.registers.begin(), row.registers.end(),
                             [](const RegisterEntry& a, const RegisterEntry& b) { return a.reg < b.reg; }));
}

TEST(Interpreter, AnExpressionAloneSaysWhereTheCfaIs) {
  CieSpec nothing;
  nothing.instructions = {0x90, 1};                                // offset rip at cfa-8
  const auto listing = run({0x0f, 3, 0x76, 0x78, 0x06}, nothing);  // def_cfa_expression [rbp - 8]
  ASSERT_TRUE(listing.errors.empty()) << listing.errors[0].text();
  ASSERT_EQ(listing.rows.size(), 1u);
  EXPECT_TRUE(listing.rows[0].cfa.is(CfaRule::kExpression));
  EXPECT_EQ(listing.rows[0].return_address.offset(), -8);
}

TEST(Interpreter, EveryCfaRule) {
  const auto listing = run(Bytes{0x0c, 6, 16}  // def_cfa rbp+16
                               .add({0x41, 0x12, 7})
                               .sleb(-4)  // def_cfa_sf rsp+32
                               .add({0x41, 0x13})
                               .sleb(-5)                                // def_cfa_offset_sf 40
                               .add({0x41, 0x0f, 3, 0x76, 0x78, 0x06})  // def_cfa_expression [rbp - 8]
                               .add({0x41, 0x0d, 10})                   // def_cfa_register r10, the offset from before
                               .add({0x41, 0x0e, 0x80, 0x01}));         // def_cfa_offset 128
  ASSERT_TRUE(listing.errors.empty()) << listing.errors[0].text();
  ASSERT_EQ(listing.rows.size(), 6u);
  EXPECT_EQ(cfa(listing.rows[0]).reg(), 6);
  EXPECT_EQ(cfa(listing.rows[0]).offset(), 16);
  EXPECT_EQ(cfa(listing.rows[1]).reg(), 7);
  EXPECT_EQ(cfa(listing.rows[1]).offset(), 32);
  EXPECT_EQ(cfa(listing.rows[2]).offset(), 40);
  EXPECT_EQ(listing.rows[3].expression(listing.rows[3].cfa).size(), 3u);
  EXPECT_EQ(cfa(listing.rows[4]).reg(), 10);
  EXPECT_EQ(cfa(listing.rows[4]).offset(), 40);
  EXPECT_EQ(cfa(listing.rows[5]).offset(), 128);
}

TEST(Interpreter, RememberAndRestoreIncludeTheCfa) {
  const auto listing = run({0x0a, 0x41, 0x0e, 16, 0x86, 2, 0x0a, 0x41, 0x0e, 24, 0x41, 0x0b, 0x41, 0x0b});
  ASSERT_EQ(listing.rows.size(), 5u);
  EXPECT_EQ(cfa(listing.rows[2]).offset(), 24);
  EXPECT_EQ(cfa(listing.rows[3]).offset(), 16);
  EXPECT_EQ(rule(listing.rows[3], 6, RegisterRule::kAtCfa).offset(), -16);
  EXPECT_EQ(cfa(listing.rows[4]).offset(), 8);
  EXPECT_EQ(listing.rows[4].registers.size(), 0u);
}

TEST(Interpreter, RestoreTakesTheRuleOfTheCie) {
  CieSpec spec;
  spec.instructions = {0x0c, 7, 8, 0x90, 1, 0x83, 2};  // rbx at cfa-16 from the start
  // Both forms; between them it is given away again.
  const auto listing = run({0x08, 3, 0x41, 0xc3, 0x41, 0x08, 3, 0x41, 0x06, 3, 0x06, 40}, spec);
  ASSERT_EQ(listing.rows.size(), 4u);
  rule(listing.rows[0], 3, RegisterRule::kSameValue);
  EXPECT_EQ(rule(listing.rows[1], 3, RegisterRule::kAtCfa).offset(), -16);
  rule(listing.rows[2], 3, RegisterRule::kSameValue);
  EXPECT_EQ(rule(listing.rows[3], 3, RegisterRule::kAtCfa).offset(), -16);
}

TEST(Interpreter, RestoreInACieRestoresNothing) {
  CieSpec spec;
  spec.instructions = {0x0c, 7, 8, 0x90, 1, 0x83, 2, 0xc3};
  const auto listing = run({}, spec);
  ASSERT_EQ(listing.rows.size(), 1u);
  EXPECT_EQ(listing.rows[0].registers.size(), 0u);
}

TEST(Interpreter, UndefinedReturnAddressEndsTheStack) {
  const auto listing = run({0x07, 16});
  ASSERT_EQ(listing.rows.size(), 1u);
  EXPECT_TRUE(listing.rows[0].return_address.is(RegisterRule::kUndefined));
}

TEST(Interpreter, AArch64ReturnAddress) {
  CieSpec spec;
  spec.return_register = 30;
  spec.data_alignment = -8;
  spec.instructions = {0x0c, 31, 0};
  // A leaf; then signed (negate_ra_state), then saved, then authenticated again.
  const auto listing = run({0x44, 0x2d, 0x44, 0x0e, 16, 0x9e, 1, 0x44, 0x2c}, spec, Architecture::kAArch64);
  ASSERT_TRUE(listing.errors.empty()) << listing.errors[0].text();
  ASSERT_EQ(listing.rows.size(), 4u);
  EXPECT_EQ(listing.rows[0].return_address.reg(), 30);
  EXPECT_FALSE(listing.rows[0].return_signed);
  EXPECT_TRUE(listing.rows[1].return_signed);
  EXPECT_EQ(listing.rows[2].return_address.offset(), -8);
  EXPECT_FALSE(listing.rows[3].return_signed);
}

TEST(Interpreter, SparcAndAArch64OpcodesAreErrorsOnX86) {
  EXPECT_EQ(run({0x2d}).errors.at(0).code, ErrorCode::kUnsupported);
  EXPECT_EQ(run({0x2c}).errors.at(0).code, ErrorCode::kMalformed);
}

TEST(Interpreter, SignalFrame) {
  CieSpec spec;
  spec.augmentation = "zRS";
  EXPECT_TRUE(run({}, spec).rows.at(0).signal_frame);
}

TEST(Interpreter, RowsStopAtTheEndOfTheFunction) {
  // To exactly the end and past it: what comes after holds nowhere.
  EXPECT_EQ(run({0x41, 0x0e, 16, 0x02, 0xff, 0x0e, 24}).rows.size(), 2u);
  const auto past = run({0x41, 0x0e, 16, 0x03, 0xff, 0xff, 0x0e, 24});
  ASSERT_EQ(past.rows.size(), 2u);
  EXPECT_EQ(past.rows[1].end, 0x1100u);
  EXPECT_TRUE(past.errors.empty());
}

// Each way to get there: the program ends there, and what is behind is not even read.
TEST(Interpreter, NothingIsReadBehindAnAdvanceToTheVeryEnd) {
  for (const Bytes& advance : {Bytes{0x02, 0xff}, Bytes{0x03}.u16(0xff), Bytes{0x03}.u16(0x100), Bytes{0x04}.u32(0xff),
                               Bytes{0x1d}.u64(0xff), Bytes{0x01}.u64(0x1100)}) {
    const auto listing = run(Bytes{0x41, 0x0e, 16}.add(advance).add({0x3f}));  // an unknown opcode
    EXPECT_TRUE(listing.errors.empty()) << listing.errors[0].text();
    ASSERT_EQ(listing.rows.size(), 2u) << unsigned{advance.data()[0]};
    EXPECT_EQ(listing.rows[1].begin, 0x1001u);
    EXPECT_EQ(listing.rows[1].end, 0x1100u);
  }
}

// More CIEs than their states are kept of, so that each place is taken twice.
TEST(Interpreter, EachCieHasItsOwnInitialState) {
  constexpr std::uint64_t kCies = 80;
  CfiBuilder builder;
  for (std::uint64_t i = 0; i < kCies; ++i) {
    CieSpec spec;
    spec.instructions = Bytes{0x0c, 7}.uleb(8 + 8 * i).add({0x90, 1});
    const auto cie = builder.cie(spec);
    builder.fde(cie, 0x1000 + 0x100 * i, 0x100, {});
  }
  const auto listing = list(builder.section());
  EXPECT_TRUE(listing.errors.empty());
  ASSERT_EQ(listing.rows.size(), kCies);
  for (std::size_t i = 0; i < kCies; ++i)
    EXPECT_EQ(cfa(listing.rows[i]).offset(), static_cast<std::int64_t>(8 + 8 * i));
}

TEST(Interpreter, RowAtFindsTheRowInForce) {
  CfiBuilder builder;
  const auto cie = builder.cie();
  const auto at = builder.fde(cie, 0x1000, 0x100, {0x41, 0x0e, 16, 0x43, 0x0e, 24, 0x3f});  // ends in a bad opcode
  const auto section = builder.section();
  const auto report = [](const Error&) {};
  dwarf::CfiReader reader(section, report);
  dwarf::RowEvaluator evaluator(section);
  const auto fde = reader.fde_at(at);
  ASSERT_TRUE(fde);
  FrameRow row;
  const auto check = [&](const auto& row_at) {
    ASSERT_TRUE(row_at(0x1000));
    EXPECT_EQ(cfa(row).offset(), 8);
    ASSERT_TRUE(row_at(0x1003));
    EXPECT_EQ(cfa(row).offset(), 16);
    EXPECT_EQ(row.begin, 0x1001u);
    EXPECT_EQ(row_at(0x1004).error().code, ErrorCode::kMalformed);
  };
  check([&](std::uint64_t pc) { return evaluator.row_at(*fde, pc, row); });
  check([&](std::uint64_t pc) { return dwarf::row_at(section, *fde, pc, row); });
}

// ---- hostile
// ------------------------------------------------------------------------------------------------------------

struct BadProgram {
  const char* name;
  Bytes instructions;
  ErrorCode code;
  std::uint64_t instruction;  // offset of the bad one within the program
};

TEST(HostileProgram, EachIsReportedWhereItStands) {
  const Bytes leb20 = Bytes{0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80,
                            0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01};
  const BadProgram cases[] = {
      {"restore_state alone", {0x41, 0x0b}, ErrorCode::kMalformed, 1},
      {"unknown opcode", {0x41, 0x3f}, ErrorCode::kMalformed, 1},
      {"20-byte LEB128", Bytes{0x0e}.add(leb20), ErrorCode::kTruncated, 0},
      {"20-byte signed LEB128", Bytes{0x13}.add(leb20), ErrorCode::kTruncated, 0},
      {"register 2^63", Bytes{0x05}.uleb(std::uint64_t{1} << 63).u8(1), ErrorCode::kLimit, 0},
      {"CFA register 2^63", Bytes{0x0d}.uleb(std::uint64_t{1} << 63), ErrorCode::kLimit, 0},
      {"source register 2^63", Bytes{0x09, 3}.uleb(std::uint64_t{1} << 63), ErrorCode::kLimit, 0},
      {"def_cfa cut off", {0x41, 0x0c, 7}, ErrorCode::kTruncated, 1},
      {"offset cut off", {0x41, 0x86}, ErrorCode::kTruncated, 1},
      {"def_cfa_offset cut off in its number", {0x41, 0x0e, 0x90}, ErrorCode::kTruncated, 1},
      {"def_cfa_offset_sf cut off in its number", {0x41, 0x13, 0xf0}, ErrorCode::kTruncated, 1},
      {"an expression's size cut off", {0x41, 0x0f, 0x81}, ErrorCode::kTruncated, 1},
      {"advance_loc1 cut off", {0x02}, ErrorCode::kTruncated, 0},
      {"advance_loc2 cut off", {0x03, 1}, ErrorCode::kTruncated, 0},
      {"advance_loc4 cut off", {0x04, 1, 2, 3}, ErrorCode::kTruncated, 0},
      {"advance_loc8 cut off", {0x1d, 1, 2, 3}, ErrorCode::kTruncated, 0},
      {"advance_loc8 overflows", Bytes{0x41, 0x1d}.u64(~0ull), ErrorCode::kMalformed, 1},
      {"set_loc backwards", Bytes{0x44, 0x01}.u64(0x1001), ErrorCode::kMalformed, 1},
      {"set_loc cut off", {0x01, 0, 0}, ErrorCode::kMalformed, 0},
      {"expression past the end", {0x0f, 0x7f, 0x77}, ErrorCode::kTruncated, 0},
      {"expression one byte past the end", {0x0f, 0x02, 0x77}, ErrorCode::kTruncated, 0},
      {"expression of 2^64", Bytes{0x10, 3}.uleb(~0ull), ErrorCode::kTruncated, 0},
  };
  for (const BadProgram& c : cases) {
    const auto listing = run(c.instructions);
    ASSERT_EQ(listing.errors.size(), 1u) << c.name;
    EXPECT_EQ(listing.errors[0].code, c.code) << c.name;
    // CIE: 4 + 4 + 14; FDE: 4 + 4 + 16 + 1
    EXPECT_EQ(listing.errors[0].where, 22 + 25 + c.instruction) << c.name << ": " << listing.errors[0].text();
  }
}

TEST(HostileProgram, RememberingWithoutEnd) {
  Bytes instructions;
  for (int i = 0; i < 200'000; ++i) instructions.u8(0x0a);
  const auto listing = run(instructions);
  ASSERT_EQ(listing.errors.size(), 1u);
  EXPECT_EQ(listing.errors[0].code, ErrorCode::kLimit);
}

TEST(HostileProgram, AsManyRegistersAsARowHolds) {
  Bytes instructions;
  for (unsigned reg = RegisterRules::kCapacity; reg-- > 0;) instructions.u8(0x05).uleb(reg + 17).uleb(reg);
  const auto listing = run(instructions);
  EXPECT_TRUE(listing.errors.empty());
  ASSERT_EQ(listing.rows.size(), 1u);
  ASSERT_EQ(listing.rows[0].registers.size(), RegisterRules::kCapacity);
  for (const RegisterEntry entry : listing.rows[0].registers)
    EXPECT_TRUE(entry.rule == RegisterRule::at_cfa(-8 * (entry.reg - 17)));
}

TEST(HostileProgram, MoreRegistersThanARowHolds) {
  Bytes instructions;
  for (std::uint64_t reg = 0; reg < 1000; ++reg) instructions.u8(0x05).uleb(reg).uleb(1);
  const auto listing = run(instructions);
  ASSERT_EQ(listing.errors.size(), 1u);
  EXPECT_EQ(listing.errors[0].code, ErrorCode::kLimit);
}

TEST(HostileProgram, ZeroFactors) {
  CieSpec spec;
  spec.code_alignment = 0;
  spec.data_alignment = 0;
  const auto listing = run({0x41, 0x0e, 16, 0x86, 2, 0x41, 0x0e, 24}, spec);
  ASSERT_EQ(listing.rows.size(), 1u);  // no advance moves
  EXPECT_EQ(rule(listing.rows[0], 6, RegisterRule::kAtCfa).offset(), 0);
}

TEST(HostileProgram, HugeFactorsWrap) {
  CieSpec spec;
  spec.code_alignment = ~0ull;
  spec.data_alignment = INT64_MIN;
  EXPECT_EQ(run({0x42}, spec).errors.size(), 1u);
  spec.code_alignment = 1;
  spec.instructions = {0x0c, 7, 8};
  EXPECT_EQ(run({0x86, 3}, spec).errors.at(0).code, ErrorCode::kLimit);  // 3 * -2^63 = -2^63
  EXPECT_EQ(rule(run({0x86, 2}, spec).rows.at(0), 6, RegisterRule::kAtCfa).offset(), 0);
}

// What a row has no room for is an error at its instruction, never another value.
TEST(HostileProgram, WhatARowHasNoRoomFor) {
  constexpr std::int64_t kMost = INT32_MAX, kLeast = INT32_MIN;
  CieSpec bytes;
  bytes.data_alignment = 1;
  const auto fits = [&](const Bytes& program) {
    const Listing listing = run(program, bytes);
    if (listing.errors.empty()) return true;
    EXPECT_EQ(listing.errors[0].code, ErrorCode::kLimit);
    EXPECT_EQ(listing.errors[0].where, 22u + 25u);
    return false;
  };
  for (const std::uint8_t with_register : {0x11, 0x15, 0x12}) {  // offset_extended_sf, val_offset_sf, def_cfa_sf
    EXPECT_TRUE(fits(Bytes{with_register, 6}.sleb(kMost)));
    EXPECT_TRUE(fits(Bytes{with_register, 6}.sleb(kLeast)));
    EXPECT_FALSE(fits(Bytes{with_register, 6}.sleb(kMost + 1)));
    EXPECT_FALSE(fits(Bytes{with_register, 6}.sleb(kLeast - 1)));
  }
  EXPECT_TRUE(fits(Bytes{0x0e}.uleb(static_cast<std::uint64_t>(kMost))));
  EXPECT_FALSE(fits(Bytes{0x0e}.uleb(static_cast<std::uint64_t>(kMost) + 1)));
  EXPECT_TRUE(fits(Bytes{0x05}.uleb(255).u8(1)));
  EXPECT_FALSE(fits(Bytes{0x05}.uleb(256).u8(1)));
  EXPECT_TRUE(fits(Bytes{0x09, 3}.uleb(255)));
  EXPECT_FALSE(fits(Bytes{0x09, 3}.uleb(256)));
  EXPECT_TRUE(fits(Bytes{0x0d}.uleb(255)));
  EXPECT_FALSE(fits(Bytes{0x0d}.uleb(256)));
  const auto expression_of = [](std::size_t size) {
    Bytes program = Bytes{0x10, 3}.uleb(size);
    for (std::size_t i = 0; i < size; ++i) program.u8(0x30);
    return program;
  };
  EXPECT_TRUE(fits(expression_of(0xffff)));
  EXPECT_FALSE(fits(expression_of(0x10000)));
}

TEST(HostileProgram, AReturnAddressRegisterThatNoRuleCanName) {
  CieSpec spec;
  spec.version = 3;  // where it is a LEB128
  spec.return_register = 256;
  const auto listing = run({}, spec);
  EXPECT_TRUE(listing.rows.empty());
  EXPECT_EQ(listing.errors.at(0).code, ErrorCode::kLimit);
}

TEST(HostileProgram, BadCieIsReportedForEachFde) {
  CieSpec spec;
  spec.instructions = {0x0c, 7, 8, 0x0b};
  const auto listing = run({}, spec);
  EXPECT_EQ(listing.errors.size(), 1u);
  EXPECT_TRUE(listing.rows.empty());
}

TEST(HostileProgram, NoCfaIsAnError) {
  CieSpec spec;
  spec.instructions = {};
  const auto listing = run({0x41, 0x0c, 7, 8}, spec);
  EXPECT_EQ(listing.rows.size(), 1u);
  EXPECT_EQ(listing.errors.size(), 1u);
}

TEST(HostileProgram, ErrorKeepsTheRowsBeforeIt) {
  const auto listing = run({0x41, 0x0e, 16, 0x41, 0x3f});
  ASSERT_EQ(listing.rows.size(), 2u);
  EXPECT_EQ(listing.rows[1].end, 0x1002u);
}

}  // namespace
}  // namespace windlass
