#include "formats/dwarf/expression.h"

#include <gtest/gtest.h>

#include <set>

#include "support/cfi_builder.h"

namespace windlass {
namespace {

using test::Bytes;

// Register n is 0x100 * n; memory at a is a + 1 (as many bytes as asked for); address 0xbad is not readable.
Expected<std::uint64_t> eval(const Bytes& expression, std::optional<std::uint64_t> initial = std::nullopt) {
  const auto reg = [](std::uint64_t number) -> Expected<std::uint64_t> {
    if (number > 100) return fail(ErrorCode::kNotFound, "no such register", number);
    return number * 0x100;
  };
  const auto memory = [](std::uint64_t address, unsigned size) -> Expected<std::uint64_t> {
    if (address == 0xbad) return fail(ErrorCode::kUnreadable, "memory", address);
    return size == 8 ? address + 1 : (address + 1) & ((std::uint64_t{1} << (8 * size)) - 1);
  };
  dwarf::ExpressionTarget target{reg, memory, initial};
  target.bias = 0x10000;
  return dwarf::evaluate_expression(expression.view(), target);
}

std::string text(const Bytes& expression) { return dwarf::expression_text(expression.view(), Architecture::kX86_64); }

TEST(Expression, ConstantsOfEverySize) {
  EXPECT_EQ(eval({0x08, 0xff}).value(), 0xffu);
  EXPECT_EQ(eval({0x09, 0xff}).value(), ~0ull);
  EXPECT_EQ(eval(Bytes{0x0a}.u16(0xfffe)).value(), 0xfffeu);
  EXPECT_EQ(eval(Bytes{0x0b}.u16(0xfffe)).value(), ~1ull);
  EXPECT_EQ(eval(Bytes{0x0c}.u32(0xfffffffe)).value(), 0xfffffffeu);
  EXPECT_EQ(eval(Bytes{0x0d}.u32(0xfffffffe)).value(), ~1ull);
  EXPECT_EQ(eval(Bytes{0x0e}.u64(0x123456789abcdef0)).value(), 0x123456789abcdef0u);
  EXPECT_EQ(eval(Bytes{0x0f}.u64(~0ull)).value(), ~0ull);
  EXPECT_EQ(eval(Bytes{0x10}.uleb(1234567)).value(), 1234567u);
  EXPECT_EQ(eval(Bytes{0x11}.sleb(-1234567)).value(), static_cast<std::uint64_t>(-1234567));
  EXPECT_EQ(eval(Bytes{0x03}.u64(0x1234)).value(), 0x11234u);  // moved by the load bias
  EXPECT_EQ(eval({0x30}).value(), 0u);
  EXPECT_EQ(eval({0x4f}).value(), 31u);
}

TEST(Expression, AddressesOfFourBytes) {
  const auto eval = [](const Bytes& expression) {
    const auto reg = [](std::uint64_t) -> Expected<std::uint64_t> { return 0xffff'fff8; };
    const auto memory = [](std::uint64_t address, unsigned size) -> Expected<std::uint64_t> {
      return address * 16 + size;
    };
    dwarf::ExpressionTarget target{reg, memory, std::nullopt};
    target.bias = 0x10000;
    target.address_size = 4;
    return dwarf::evaluate_expression(expression.view(), target);
  };
  EXPECT_EQ(eval(Bytes{0x03}.u32(0x1234)).value(), 0x11234u);    // its operand is as wide
  EXPECT_EQ(eval({0x31, 0x06}).value(), 0x14u);                  // and so is what is loaded
  EXPECT_EQ(eval({0x09, 0xff}).value(), 0xffff'ffffu);           // values wrap
  EXPECT_EQ(eval(Bytes{0x74}.sleb(16)).value(), 8u);             // ebp + 16
  EXPECT_EQ(eval({0x74, 0, 0x31, 0x2d}).value(), 1u);            // lt: -8 < 1
  EXPECT_EQ(eval({0x74, 0, 0x34, 0x26}).value(), 0xffff'ffffu);  // shra: -8 >> 4
  EXPECT_EQ(eval({0x74, 0, 0x34, 0x24}).value(), 0xffff'ff80u);  // shl
  EXPECT_EQ(dwarf::expression_text(Bytes{0x03}.u32(0x1234).view(), Architecture::kI386), "DW_OP_addr: 1234");
}

TEST(Expression, Registers) {
  EXPECT_EQ(eval({0x57}).value(), 0x700u);
  EXPECT_EQ(eval(Bytes{0x77}.sleb(-8)).value(), 0x6f8u);
  EXPECT_EQ(eval({0x90, 40}).value(), 0x2800u);
  EXPECT_EQ(eval(Bytes{0x92, 40}.sleb(300)).value(), 0x2800u + 300);
  EXPECT_EQ(eval({0x90, 0x7f}).error().code, ErrorCode::kNotFound);
}

TEST(Expression, Memory) {
  EXPECT_EQ(eval({0x31, 0x06}).value(), 2u);
  EXPECT_EQ(eval(Bytes{0x10}.uleb(0x1ff).add({0x94, 1})).value(), 0u);
  EXPECT_EQ(eval(Bytes{0x10}.uleb(0xbad).u8(0x06)).error().code, ErrorCode::kUnreadable);
  EXPECT_FALSE(eval({0x31, 0x94, 99}));
  EXPECT_FALSE(eval({0x31, 0x94, 0}));
  EXPECT_FALSE(eval({0x31, 0x94, 9}));
}

TEST(Expression, StackOperations) {
  EXPECT_EQ(eval({0x31, 0x12, 0x22}).value(), 2u);           // dup
  EXPECT_EQ(eval({0x31, 0x32, 0x13}).value(), 1u);           // drop
  EXPECT_EQ(eval({0x35, 0x32, 0x14}).value(), 5u);           // over
  EXPECT_EQ(eval({0x35, 0x32, 0x33, 0x15, 2}).value(), 5u);  // pick
  EXPECT_EQ(eval({0x35, 0x32, 0x15, 0}).value(), 2u);
  EXPECT_EQ(eval({0x35, 0x32, 0x16}).value(), 5u);        // swap
  EXPECT_EQ(eval({0x31, 0x32, 0x33, 0x17}).value(), 2u);  // rot: 3 1 2
  EXPECT_EQ(eval({0x31, 0x32, 0x33, 0x17, 0x13}).value(), 1u);
  EXPECT_EQ(eval({0x31, 0x32, 0x33, 0x17, 0x13, 0x13}).value(), 3u);
}

TEST(Expression, Arithmetic) {
  const auto binary = [](std::int64_t left, int op, std::int64_t right) {
    return static_cast<std::int64_t>(*eval(Bytes{0x11}.sleb(left).u8(0x11).sleb(right).u8(static_cast<unsigned>(op))));
  };
  EXPECT_EQ(binary(12, 0x1a, 10), 8);  // and
  EXPECT_EQ(binary(2, 0x2a, 2), 1);    // ge
  EXPECT_EQ(binary(-7, 0x1b, 2), -3);  // div is signed
  EXPECT_EQ(binary(INT64_MIN, 0x1b, -1), INT64_MIN);
  EXPECT_EQ(binary(7, 0x1c, 9), -2);    // minus
  EXPECT_EQ(binary(-1, 0x1d, 10), 5);   // mod is not: 2^64 - 1
  EXPECT_EQ(binary(-3, 0x1e, 5), -15);  // mul
  EXPECT_EQ(binary(12, 0x21, 3), 15);   // or
  EXPECT_EQ(binary(-1, 0x22, 5), 4);    // plus
  EXPECT_EQ(binary(1, 0x24, 4), 16);    // shl
  EXPECT_EQ(binary(1, 0x24, 64), 0);
  EXPECT_EQ(binary(-1, 0x25, 60), 15);  // shr
  EXPECT_EQ(binary(-1, 0x25, 1000), 0);
  EXPECT_EQ(binary(-16, 0x26, 2), -4);  // shra
  EXPECT_EQ(binary(-16, 0x26, 200), -1);
  EXPECT_EQ(binary(12, 0x27, 10), 6);  // xor
  EXPECT_EQ(binary(-1, 0x2d, 0), 1);   // lt is signed
  EXPECT_EQ(binary(1, 0x29, 1), 1);
  EXPECT_EQ(binary(1, 0x2a, 2), 0);
  EXPECT_EQ(binary(3, 0x2b, 2), 1);
  EXPECT_EQ(binary(2, 0x2c, 2), 1);
  EXPECT_EQ(binary(2, 0x2e, 2), 0);
  EXPECT_EQ(eval(Bytes{0x11}.sleb(-5).u8(0x19)).value(), 5u);  // abs
  EXPECT_EQ(eval({0x35, 0x1f}).value(), static_cast<std::uint64_t>(-5));
  EXPECT_EQ(eval({0x30, 0x20}).value(), ~0ull);
  EXPECT_EQ(eval(Bytes{0x35, 0x23}.uleb(1000)).value(), 1005u);
}

TEST(Expression, ThePltOfEveryProgram) {
  // rsp + 8 + ((rip & 15) >= 11) << 3, with rsp = 0x700 and rip = 0x1000
  const Bytes plt{0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22};
  EXPECT_EQ(eval(plt).value(), 0x708u);
  EXPECT_EQ(text(plt),
            "DW_OP_breg7 (rsp): 8; DW_OP_breg16 (rip): 0; DW_OP_lit15; DW_OP_and; DW_OP_lit11; DW_OP_ge; "
            "DW_OP_lit3; DW_OP_shl; DW_OP_plus");
}

TEST(Expression, InitialValueIsPushedFirst) {
  EXPECT_EQ(eval({0x38, 0x1c}, 0x1000).value(), 0xff8u);
  EXPECT_EQ(eval({}, 0x1000).value(), 0x1000u);
}

TEST(Expression, Branches) {
  EXPECT_EQ(eval(Bytes{0x31, 0x2f}.u16(1).add({0x35, 0x36})).value(), 6u);               // skip over lit5
  EXPECT_EQ(eval(Bytes{0x31, 0x28}.u16(1).add({0x35, 0x36})).value(), 6u);               // taken
  EXPECT_EQ(eval(Bytes{0x37, 0x30, 0x28}.u16(1).add({0x35, 0x36, 0x22})).value(), 11u);  // not taken
  EXPECT_EQ(eval(Bytes{0x31, 0x2f}.u16(0)).value(), 1u);                                 // to exactly the end
  EXPECT_FALSE(eval(Bytes{0x31, 0x2f}.u16(1)));                                          // and past it
}

TEST(HostileExpression, AllFail) {
  struct {
    Bytes expression;
    ErrorCode code;
  } const cases[] = {
      {{}, ErrorCode::kMalformed},                               // nothing on the stack
      {Bytes{0x2f}.u16(0xfffd), ErrorCode::kLimit},              // skip to itself
      {Bytes{0x31, 0x12, 0x28}.u16(0xfffc), ErrorCode::kLimit},  // bra for ever
      {Bytes{0x31, 0x2f}.u16(0xfffc), ErrorCode::kLimit},        // pushes for ever
      {Bytes{0x2f}.u16(0x7fff), ErrorCode::kMalformed},          // out of the expression
      {Bytes{0x2f}.u16(0x8000), ErrorCode::kMalformed},
      {{0x31, 0x30, 0x1b}, ErrorCode::kMalformed},  // division by zero
      {{0x31, 0x30, 0x1d}, ErrorCode::kMalformed},
      {{0x22}, ErrorCode::kMalformed},  // underflows
      {{0x31, 0x22}, ErrorCode::kMalformed},
      {{0x13}, ErrorCode::kMalformed},
      {{0x12}, ErrorCode::kMalformed},
      {{0x31, 0x14}, ErrorCode::kMalformed},
      {{0x31, 0x15, 1}, ErrorCode::kMalformed},
      {{0x31, 0x15, 0xff}, ErrorCode::kMalformed},
      {{0x31, 0x16}, ErrorCode::kMalformed},
      {{0x31, 0x32, 0x17}, ErrorCode::kMalformed},
      {{0x06}, ErrorCode::kMalformed},
      {{0x1f}, ErrorCode::kMalformed},
      {Bytes{0x28}.u16(0), ErrorCode::kMalformed},
      {{0x00}, ErrorCode::kMalformed},  // unknown operations
      {{0xff}, ErrorCode::kMalformed},
      {{0x0e, 1, 2}, ErrorCode::kTruncated},
      {{0x10, 0x80}, ErrorCode::kTruncated},
      {Bytes{0x9e}.uleb(1u << 30), ErrorCode::kOutOfRange},
      {{0x9c}, ErrorCode::kMalformed},  // the CFA within the CFA
      {{0x31, 0x9f}, ErrorCode::kUnsupported},
      {Bytes{0x98}.u16(1), ErrorCode::kUnsupported},
  };
  for (const auto& c : cases) {
    const auto result = eval(c.expression);
    ASSERT_FALSE(result) << text(c.expression);
    EXPECT_EQ(result.error().code, c.code) << text(c.expression) << ": " << result.error().text();
  }
}

TEST(HostileExpression, StackLimit) {
  Bytes pushes;
  for (std::size_t i = 0; i < dwarf::kMaxExpressionStack; ++i) pushes.u8(0x31);
  EXPECT_EQ(eval(pushes).value(), 1u);
  pushes.u8(0x31);
  EXPECT_EQ(eval(pushes).error().code, ErrorCode::kLimit);
}

TEST(HostileExpression, StepLimit) {
  Bytes steps{0x31};
  while (steps.size() < dwarf::kMaxExpressionSteps) steps.u8(0x96);  // nop
  EXPECT_EQ(eval(steps).value(), 1u);
  steps.u8(0x96);
  EXPECT_EQ(eval(steps).error().code, ErrorCode::kLimit);
}

TEST(ExpressionText, EveryNamedOperationDecodes) {
  int named = 0;
  for (int opcode = 0; opcode < 256; ++opcode) {
    if (dwarf::expression_op_name(static_cast<std::uint8_t>(opcode)).empty()) continue;
    ++named;
    const Bytes padded{opcode, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    dwarf::ExpressionReader reader(padded.view());
    EXPECT_TRUE(reader.next()) << opcode;
    const Bytes alone{opcode};
    dwarf::ExpressionReader cut(alone.view());
    (void)cut.next();
  }
  EXPECT_EQ(named, 81 + 96);
}

TEST(ExpressionText, DamageEndsTheText) {
  EXPECT_EQ(text({0x31, 0x02}), "DW_OP_lit1; <error>");
  EXPECT_EQ(text({}), "");
}

TEST(Registers, NamesAndNumbers) {
  using enum Architecture;
  EXPECT_EQ(register_name(kX86_64, 7), "rsp");
  EXPECT_EQ(register_name(kX86_64, 15), "r15");
  EXPECT_EQ(register_name(kX86_64, 17), "xmm0");
  EXPECT_EQ(register_name(kX86_64, 82), "xmm31");
  EXPECT_EQ(register_name(kX86_64, 56), "");
  EXPECT_EQ(register_text(kX86_64, 56), "r56");
  EXPECT_EQ(register_name(kX86_64, ~0ull), "");
  EXPECT_EQ(register_name(kAArch64, 30), "x30");
  EXPECT_EQ(register_name(kAArch64, 31), "sp");
  EXPECT_EQ(register_name(kAArch64, 72), "v8");
  EXPECT_EQ(register_number(kX86_64, "rbp"), 6);
  EXPECT_EQ(register_number(kAArch64, "x29"), 29);
  EXPECT_FALSE(register_number(kX86_64, "x29"));
  std::set<std::string_view> seen;
  for (std::uint64_t number = 0; number < 200; ++number) {
    const auto name = register_name(kX86_64, number);
    if (!name.empty()) {
      EXPECT_TRUE(seen.insert(name).second) << name;
    }
  }
}

}  // namespace
}  // namespace windlass
