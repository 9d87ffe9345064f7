#include "lookup/table/trace_state.h"

#include <gtest/gtest.h>

#include <vector>

#include "formats/dwarf/interpreter.h"
#include "lookup/table/trace_expression.h"

namespace windlass::table {
namespace {

using Bytes = std::vector<std::uint8_t>;
using Kind = SimpleExpression::Kind;

ByteView view(const Bytes& bytes) { return ByteView(std::span<const std::uint8_t>(bytes)); }

TEST(TraceExpression, WhatCompilersEmit) {
  const auto reg = recognise(view({0x77, 0x10}));  // breg7 16
  EXPECT_EQ(reg.kind, Kind::kRegister);
  EXPECT_EQ(reg.reg, 7u);
  EXPECT_EQ(reg.offset, 16);

  const auto drap = recognise(view({0x76, 0x78, 0x06}));  // breg6 -8; deref
  EXPECT_EQ(drap.kind, Kind::kLoad);
  EXPECT_EQ(drap.reg, 6u);
  EXPECT_EQ(drap.offset, -8);
  EXPECT_EQ(drap.argument, 0);

  const auto restorer = recognise(view({0x77, 0xa0, 0x01, 0x06}));  // breg7 160; deref
  EXPECT_EQ(restorer.kind, Kind::kLoad);
  EXPECT_EQ(restorer.offset, 160);

  const auto openssl = recognise(view({0x77, 0x28, 0x06, 0x23, 0x08}));  // breg7 40; deref; plus_uconst 8
  EXPECT_EQ(openssl.kind, Kind::kLoad);
  EXPECT_EQ(openssl.offset, 40);
  EXPECT_EQ(openssl.argument, 8);

  const auto sbcl = recognise(view({0x76, 0x00, 0x06, 0x40, 0x22}));  // breg6 0; deref; lit16; plus
  EXPECT_EQ(sbcl.kind, Kind::kLoad);
  EXPECT_EQ(sbcl.reg, 6u);
  EXPECT_EQ(sbcl.offset, 0);
  EXPECT_EQ(sbcl.argument, 16);
  EXPECT_EQ(recognise(view({0x76, 0x00, 0x06, 0x40})).kind, Kind::kOther);        // nothing is added
  EXPECT_EQ(recognise(view({0x76, 0x00, 0x06, 0x40, 0x1c})).kind, Kind::kOther);  // it is subtracted

  const auto sum = recognise(view({0x92, 0x0c, 0x10, 0x23, 0x08}));  // bregx 12 16; plus_uconst 8
  EXPECT_EQ(sum.kind, Kind::kRegister);
  EXPECT_EQ(sum.reg, 12u);
  EXPECT_EQ(sum.offset, 24);
}

TEST(TraceExpression, LazyPlt) {
  Bytes plt{0x77, 0x08, 0x80, 0x00, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22};
  const auto usual = recognise(view(plt));
  EXPECT_EQ(usual.kind, Kind::kPlt);
  EXPECT_EQ(usual.reg, 7u);
  EXPECT_EQ(usual.offset, 8);
  EXPECT_EQ(usual.argument, 11);
  plt[6] = 0x30 + 9;  // with IBT the push stands elsewhere
  EXPECT_EQ(recognise(view(plt)).argument, 9);
  for (std::size_t i = 2; i < plt.size(); ++i) {
    Bytes changed = plt;
    changed[i] = 0x96;  // nop
    EXPECT_EQ(recognise(view(changed)).kind, Kind::kOther) << i;
    EXPECT_EQ(recognise(view(Bytes(plt.begin(), plt.begin() + static_cast<std::ptrdiff_t>(i)))).kind,
              i == 2 ? Kind::kRegister : Kind::kOther);
  }
}

TEST(TraceExpression, EverythingElseIsLeftAlone) {
  for (const Bytes& bytes :
       {Bytes{}, Bytes{0x06}, Bytes{0x77}, Bytes{0x92, 0x80}, Bytes{0x77, 0x08, 0x06, 0x06},
        Bytes{0x77, 0x08, 0x06, 0x23}, Bytes{0x77, 0x08, 0x06, 0x23, 0x80, 0x04}, Bytes{0x77, 0x08, 0x12}})
    EXPECT_EQ(recognise(view(bytes)).kind, Kind::kOther);
}

struct Row {
  std::uint64_t begin;
  TraceRule rule;
};

// Runs a program at [0x1000, 0x1100) under a CIE as GCC writes it: CFA = rsp+8, return address at CFA-8.
std::vector<Row> rows_of(const Bytes& program, std::uint8_t x_reg = WL_NO_XREG) {
  const Bytes initial{0x0c, 7, 8, 0x90, 1};
  dwarf::Cie cie;
  cie.data_alignment = -8;
  cie.return_address_register = 16;
  cie.instructions = view(initial);
  dwarf::Fde fde;
  fde.cie = &cie;
  fde.begin = 0x1000;
  fde.end = 0x1100;
  fde.instructions = view(program);
  dwarf::CfiSection section;
  using State = TraceState<X64Registers>;
  dwarf::CfaInterpreter<State> interpreter(section, State(x_reg));
  std::vector<Row> rows;
  const auto done = interpreter.run(fde, [&](std::uint64_t begin, std::uint64_t, const State& state) {
    rows.push_back({begin, state.rule().rule()});
  });
  EXPECT_TRUE(done) << done.error().text();
  return rows;
}

TEST(TraceState, PushesOfACompiledFunction) {
  const auto rows = rows_of({0x41, 0x0e, 16, 0x83, 2, 0x41, 0x0e, 24, 0x86, 3});  // push rbx; push rbp
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0].rule.cfa_kind, WL_CFA_REG);
  EXPECT_EQ(rows[0].rule.cfa_reg, 7);
  EXPECT_EQ(rows[0].rule.cfa_offset, 8);
  EXPECT_EQ(rows[0].rule.ra_kind, WL_REG_CFA);
  EXPECT_EQ(rows[0].rule.ra_offset, -8);
  EXPECT_EQ(rows[1].rule.fp_kind, WL_REG_SAME);
  EXPECT_EQ(rows[2].rule.cfa_offset, 24);
  EXPECT_EQ(rows[2].rule.fp_kind, WL_REG_CFA);
  EXPECT_EQ(rows[2].rule.fp_offset, -24);
}

TEST(TraceState, ExtraRegisterIsTrackedOnlyOnRequest) {
  const Bytes program{0x41, 0x0e, 16, 0x83, 2};
  EXPECT_EQ(rows_of(program)[1].rule.x_kind, WL_REG_SAME);
  const auto with_rbx = rows_of(program, 3);
  EXPECT_EQ(with_rbx[1].rule.x_kind, WL_REG_CFA);
  EXPECT_EQ(with_rbx[1].rule.x_offset, -16);
}

TEST(TraceState, RememberRestore) {
  const auto rows = rows_of({0x41, 0x0e, 16, 0x86, 2, 0x0a, 0x41, 0xc6, 0x0e, 8, 0x41, 0x0b});
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows[2].rule.fp_kind, WL_REG_SAME);
  EXPECT_EQ(rows[2].rule.cfa_offset, 8);
  EXPECT_EQ(rows[3].rule.fp_kind, WL_REG_CFA);
  EXPECT_EQ(rows[3].rule.cfa_offset, 16);
}

// GCC's stack realignment: r10 first, then rbp saved relative to itself, then the CFA loaded through rbp.
TEST(TraceState, Drap) {
  const auto rows = rows_of({0x45, 0x0c, 10, 0,               // def_cfa r10 0
                             0x49, 0x10, 6, 2, 0x76, 0,       // expression rbp: breg6 0
                             0x45, 0x0f, 3, 0x76, 0x78, 6});  // def_cfa_expression breg6 -8; deref
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows[1].rule.cfa_reg, 10);
  EXPECT_EQ(rows[2].rule.cfa_reg, 10);
  EXPECT_EQ(rows[2].rule.fp_kind, WL_REG_FP);
  EXPECT_EQ(rows[3].rule.cfa_kind, WL_CFA_MEM);
  EXPECT_EQ(rows[3].rule.cfa_reg, 6);
  EXPECT_EQ(rows[3].rule.cfa_offset, -8);
  EXPECT_EQ(rows[3].rule.fp_kind, WL_REG_BASE);
}

// rbp's value is another register's, by a rule or by an expression. Other values have no rule.
TEST(TraceState, ValuesOfOtherRegisters) {
  const auto rbp_by = [](const Bytes& program) { return rows_of(program).back().rule; };
  for (const Bytes& program : {Bytes{0x41, 0x09, 6, 3},              // register rbp: rbx
                               Bytes{0x41, 0x16, 6, 2, 0x73, 0}}) {  // val_expression rbp: breg3 0
    EXPECT_EQ(rbp_by(program).fp_kind, WL_REG_IN_REG);
    EXPECT_EQ(rbp_by(program).fp_offset, 3);
  }
  for (const Bytes& program : {Bytes{0x41, 0x09, 6, 40},                 // no register of the machine
                               Bytes{0x41, 0x16, 6, 2, 0x73, 8},         // breg3 8
                               Bytes{0x41, 0x16, 6, 3, 0x73, 0, 6},      // breg3 0; deref
                               Bytes{0x41, 0x16, 6, 3, 0x92, 40, 0}}) {  // bregx 40 0
    EXPECT_EQ(rbp_by(program).fp_kind, WL_REG_UNDEFINED) << ::testing::PrintToString(program);
    EXPECT_EQ(rbp_by(program).fp_offset, 0) << ::testing::PrintToString(program);
  }
}

TEST(TraceState, UnknownExpressions) {
  const auto rows = rows_of({
      0x41, 0x10, 6, 1, 0x9c,              // rbp at call_frame_cfa
      0x41, 0x0f, 1, 0x9c,                 // def_cfa_expression call_frame_cfa
      0x41, 0x0c, 7, 8, 0x10, 16, 1, 0x30  // return address at a literal
  });
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows[1].rule.fp_kind, WL_REG_UNDEFINED);
  EXPECT_EQ(rows[1].rule.cfa_kind, WL_CFA_REG);
  EXPECT_EQ(rows[2].rule.cfa_kind, WL_CFA_UNSUPPORTED);
  EXPECT_EQ(rows[3].rule.cfa_kind, WL_CFA_UNSUPPORTED);
}

// Wine's system calls: rcx points to a frame with the caller's registers. First only the return address counts from it,
// then all registers, then the stack pointer, too.
TEST(TraceState, RulesRelativeToAnotherRegister) {
  const auto rows = rows_of({0x41, 0x0e, 0, 0x10, 16,   3,    0x72, 0xf0, 0,  // return address: breg2 112
                             0x41, 0x10, 3, 2,    0x72, 8,                    // rbx: breg2 8
                             0x41, 0x10, 6, 2,    0x73, 0,                    // rbp: breg3 0, too many
                             0x41, 0x10, 6, 3,    0x72, 0x98, 1,              // rbp: breg2 152
                             0x41, 0x0f, 4, 0x72, 0x88, 1,    6},             // CFA: breg2 136; deref
                            3);
  ASSERT_EQ(rows.size(), 6u);
  for (std::size_t i = 1; i < 5; ++i) {
    EXPECT_EQ(rows[i].rule.cfa_kind, WL_CFA_REG);
    EXPECT_EQ(rows[i].rule.cfa_reg, 7);
    EXPECT_EQ(rows[i].rule.cfa_arg, 2);
    EXPECT_EQ(rows[i].rule.ra_kind, WL_REG_ARG);
    EXPECT_EQ(rows[i].rule.ra_offset, 112);
  }
  EXPECT_EQ(rows[2].rule.x_kind, WL_REG_ARG);
  EXPECT_EQ(rows[2].rule.x_offset, 8);
  EXPECT_EQ(rows[3].rule.fp_kind, WL_REG_UNDEFINED);
  EXPECT_EQ(rows[4].rule.fp_kind, WL_REG_ARG);
  EXPECT_EQ(rows[4].rule.fp_offset, 152);
  EXPECT_EQ(rows[5].rule.cfa_kind, WL_CFA_MEM);
  EXPECT_EQ(rows[5].rule.cfa_reg, 2);
  EXPECT_EQ(rows[5].rule.cfa_arg, 0);
  EXPECT_EQ(rows[5].rule.ra_kind, WL_REG_BASE);
  EXPECT_EQ(rows[5].rule.fp_kind, WL_REG_BASE);
  EXPECT_EQ(rows[5].rule.x_kind, WL_REG_BASE);
}

// DW_CFA_val_offset says what the register is, not where it was saved.
TEST(TraceState, AValueByTheCfa) {
  const auto rows = rows_of({0x14, 6, 2});
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].rule.fp_kind, WL_REG_CFA_VALUE);
  EXPECT_EQ(rows[0].rule.fp_offset, -16);
}

// A CFA by a register that no table has is user space's business, until another rule comes.
TEST(TraceState, ACfaByARegisterBeyondTheTable) {
  const auto rows = rows_of({0x0c, 17, 8, 0x41, 0x0d, 7});
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].rule.cfa_kind, WL_CFA_UNSUPPORTED);
  EXPECT_EQ(rows[1].rule.cfa_kind, WL_CFA_REG);
  EXPECT_EQ(rows[1].rule.cfa_reg, 7);
}

TEST(TraceState, UndefinedReturnAddressEndsTheStack) {
  const auto rows = rows_of({0x07, 16});
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].rule.ra_kind, WL_REG_UNDEFINED);
  EXPECT_EQ(rows[0].rule.cfa_kind, WL_CFA_REG);
}

TEST(TraceState, OffsetsThatDoNotFit) {
  // def_cfa_offset 2^32, then back in range; rbp saved at CFA-40000.
  const auto rows = rows_of({0x41, 0x0e, 0x80, 0x80, 0x80, 0x80, 0x10, 0x41, 0x0e, 16, 0x86, 0x88, 0x27});
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[1].rule.cfa_kind, WL_CFA_UNSUPPORTED);
  EXPECT_EQ(rows[2].rule.cfa_kind, WL_CFA_REG);
  EXPECT_EQ(rows[2].rule.cfa_offset, 16);
  EXPECT_EQ(rows[2].rule.fp_kind, WL_REG_UNDEFINED);
}

TEST(PackedRule, IsTheRuleInMemory) {
  PackedRule packed;
  PackedRule::put(packed.low, PackedRule::kCfaReg, 0xff, 7);
  PackedRule::put(packed.low, PackedRule::kFpKind, 15, 1);
  PackedRule::put(packed.low, PackedRule::kRaKind, 15, 2);
  PackedRule::put(packed.low, PackedRule::kXKind, 15, 3);
  PackedRule::put(packed.low, PackedRule::kFlags, 15, 2);
  packed.low |= std::uint64_t{static_cast<std::uint32_t>(-5)} << PackedRule::kCfaOffset;
  PackedRule::put(packed.high, PackedRule::kFpOffset, 0xffff, static_cast<std::uint64_t>(-16));
  PackedRule::put(packed.high, PackedRule::kRaOffset, 0xffff, static_cast<std::uint64_t>(-8));
  PackedRule::put(packed.high, PackedRule::kXOffset, 0xffff, static_cast<std::uint64_t>(-24));
  PackedRule::put(packed.high, PackedRule::kCfaArg, 0xff, 11);
  const TraceRule rule = packed.rule();
  EXPECT_EQ(rule.cfa_reg, 7);
  EXPECT_EQ(rule.fp_kind, 1);
  EXPECT_EQ(rule.ra_kind, 2);
  EXPECT_EQ(rule.x_kind, 3);
  EXPECT_EQ(rule.flags, 2);
  EXPECT_EQ(rule.cfa_offset, -5);
  EXPECT_EQ(rule.fp_offset, -16);
  EXPECT_EQ(rule.ra_offset, -8);
  EXPECT_EQ(rule.x_offset, -24);
  EXPECT_EQ(rule.arg_reg, 11);
  EXPECT_EQ(rule.proof, WL_PROOF_CALLED);
}

}  // namespace
}  // namespace windlass::table
