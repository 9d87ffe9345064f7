// Information written from a Prologue is read back, and agrees with the model at every instruction.
#include <algorithm>
#include <random>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "formats/dwarf/eh_frame_hdr.h"
#include "formats/dwarf/encode.h"
#include "support/random_arm64_prologue.h"
#include "support/x64_functions.h"
#include "unit/formats/dwarf/collect.h"
#include "windlass/format/dwarf.h"

namespace windlass {
namespace {

using namespace prologue;
using dwarf::Writer;
using dwarf::Written;

constexpr std::uint64_t kCode = 0x7f00'0000'0000, kFrames = kCode + 0x100000;

ByteView view(const std::vector<std::byte>& bytes) { return {bytes.data(), bytes.size()}; }

dwarf::CfiSection section_of(const Written& written, Architecture architecture) {
  dwarf::CfiSection section;
  section.bytes = view(written.bytes);
  section.address = written.address;
  section.architecture = architecture;
  section.stop_at_terminator = true;
  return section;
}

// One rule or CFA as text; "" for registers that are as on entry.
std::string text(const FrameRow& row, const RegisterRule& rule) {
  if (!rule.is_expression()) return fmt::format("{} {} {}", int{rule.kind()}, rule.offset(), rule.reg());
  return fmt::format("{} {} bytes", int{rule.kind()}, row.expression(rule).size());
}
std::string text(const FrameRow& row) {
  const std::string cfa = row.cfa.is(CfaRule::kExpression)
                              ? fmt::format("{} bytes", row.expression(row.cfa).size())
                              : fmt::format("{} {} {}", int{row.cfa.kind()}, row.cfa.reg(), row.cfa.offset());
  std::string out = fmt::format("cfa {}; ra {}; {}{}", cfa, text(row, row.return_address),
                                row.signal_frame ? "signal " : "", row.return_signed ? "signed " : "");
  for (const RegisterEntry entry : row.registers) out += fmt::format("; {}: {}", entry.reg, text(row, entry.rule));
  return out;
}

// The rows of all functions, one map of text an instruction would be too much: rows that say the same are one.
std::vector<std::pair<std::uint64_t, std::string>> merged(std::span<const FrameRow> rows, std::uint64_t base) {
  std::vector<std::pair<std::uint64_t, std::string>> out;
  for (const FrameRow& row : rows)
    if (std::string says = text(row); out.empty() || out.back().second != says)
      out.emplace_back(base + row.begin, says);
  return out;
}

void expect_same(const Prologue& prologue, const dwarf::WriteOptions& options) {
  Writer writer(options);
  const auto done = writer.add(prologue, {.address = kCode, .personality = prologue.handler ? kCode - 16 : 0});
  ASSERT_TRUE(done) << done.error().text();
  const Written written = std::move(writer).take();
  const test::Listing listing = test::list(section_of(written, prologue.architecture));
  ASSERT_TRUE(listing.errors.empty()) << listing.errors[0].text();
  ASSERT_EQ(listing.fdes.size(), 1u);
  EXPECT_EQ(listing.fdes[0].begin, kCode);
  EXPECT_EQ(listing.fdes[0].end, kCode + prologue.code_size);
  EXPECT_EQ(merged(listing.rows, 0), merged(*rows_of(prologue), kCode));
}

TEST(DwarfWrite, TheCommonestPrologue) {
  Prologue f{.architecture = Architecture::kX86_64, .code_size = 40};
  f.ops = {{1, push(6)}, {4, SetFramePointer{6}}, {5, push(3)}, {9, Allocate{24}}};
  f.epilogues = {mirrored(f, 30)};
  Writer writer({.address = kFrames});
  ASSERT_TRUE(writer.add(f, {.address = kCode}));
  const Written written = std::move(writer).take();
  const std::vector<int> cie = {0x14, 0,    0,  0, 0,    0,    0, 0, 1,    'z', 'R', 0,
                                1,    0x78, 16, 1, 0x1b, 0x0c, 7, 8, 0x90, 1,   0,   0};
  const std::vector<int> head = {0x24, 0, 0, 0, 0x1c, 0, 0, 0, 0xe0, 0xff, 0xef, 0xff, 40, 0, 0, 0, 0};
  const std::vector<int> prologue = {0x41, 0x0e, 16, 0x86, 2,  // push rbp
                                     0x43, 0x0d, 6,            // mov rbp, rsp
                                     0x41, 0x83, 3};           // push rbx
  std::vector<int> expected = cie;
  expected.insert(expected.end(), head.begin(), head.end());
  expected.insert(expected.end(), prologue.begin(), prologue.end());
  ASSERT_GT(written.bytes.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(std::to_integer<int>(written.bytes[i]), expected[i]) << i;
  EXPECT_EQ(written.bytes.size() % 4, 0u);
  EXPECT_EQ(written.functions.size(), 1u);
  EXPECT_EQ(written.functions[0].fde, 24u);
}

TEST(DwarfWrite, RowsOfX64AreThoseOfTheModel) {
  std::mt19937_64 random(7);
  std::size_t with_parts = 0, handled = 0;
  for (unsigned i = 0; i < 3000 && !HasFailure(); ++i) {
    test::X64FunctionMaker maker([&](std::uint32_t bound) { return static_cast<std::uint32_t>(random() % bound); });
    const test::MadeFunction made = maker.make();
    if (!rows_of(made.prologue)) continue;  // of 2 GiB
    with_parts += made.prologue.parts.empty() ? 0 : 1;
    if (made.prologue.handler) ++handled;
    const auto pointers = i % 2 == 0 ? dwarf::Pointers::kRelative : dwarf::Pointers::kAbsolute;
    SCOPED_TRACE(i);
    expect_same(made.prologue, {.address = kFrames, .pointers = pointers});
  }
  EXPECT_GT(with_parts, 500u);
  EXPECT_GT(handled, 100u);
}

TEST(DwarfWrite, RowsOfArm64AreThoseOfTheModel) {
  std::size_t is_signed = 0;
  for (std::uint64_t i = 0; i < 3000 && !HasFailure(); ++i) {
    const Prologue f = test::RandomArm64Prologue(i).make();
    const auto rows = rows_of(f);
    ASSERT_TRUE(rows) << rows.error().text();
    is_signed += std::ranges::any_of(*rows, [](const FrameRow& row) { return row.return_signed; }) ? 1 : 0;
    SCOPED_TRACE(i);
    expect_same(f, {.architecture = Architecture::kAArch64,
                    .address = kFrames,
                    .factors = i % 3 == 0 ? dwarf::Factors::kLlvm : dwarf::Factors::kBinutils,
                    .b_key = i % 2 == 0});
  }
  EXPECT_GT(is_signed, 100u);
}

// A state that comes back takes an instruction of a byte, however much it says.
TEST(DwarfWrite, AnEpilogueInTheMiddleIsRemembered) {
  Prologue f{.architecture = Architecture::kX86_64, .code_size = 100};
  f.ops = {{1, push(6)}, {2, push(3)}, {4, push(12)}, {6, push(13)}};
  f.epilogues = {mirrored(f, 20), mirrored(f, 60)};
  const auto program = dwarf::program_of(*rows_of(f), f.architecture);
  ASSERT_TRUE(program);
  const auto count = [&](dwarf::FrameInstruction::Kind kind) {
    return std::ranges::count_if(*program, [&](const auto& instruction) { return instruction.kind == kind; });
  };
  EXPECT_EQ(count(dwarf::FrameInstruction::kRememberState), 2);
  EXPECT_EQ(count(dwarf::FrameInstruction::kRestoreState), 2);
  EXPECT_EQ(count(dwarf::FrameInstruction::kOffset), 4) << "no register is said to be saved again";
  expect_same(f, {.address = kFrames});
}

TEST(DwarfWrite, AMachineFrame) {
  Prologue f{.architecture = Architecture::kX86_64, .code_size = 20};
  f.ops = {{0, MachineFrame{true}}, {1, push(3)}};
  Writer writer({.address = kFrames});
  ASSERT_TRUE(writer.add(f, {.address = kCode}));
  const Written written = std::move(writer).take();
  const test::Listing listing = test::list(section_of(written, f.architecture));
  ASSERT_TRUE(listing.errors.empty()) << listing.errors[0].text();
  ASSERT_EQ(listing.rows.size(), 2u);
  const FrameRow& row = listing.rows[1];
  EXPECT_TRUE(row.signal_frame);
  const auto bytes = [](ByteView expression) {
    std::vector<int> out;
    for (std::size_t i = 0; i < expression.size(); ++i) out.push_back(std::to_integer<int>(expression.data()[i]));
    return out;
  };
  // Behind rbx and the error code: rip, cs, rflags, rsp.
  EXPECT_EQ(bytes(row.expression(row.cfa)), (std::vector<int>{0x77, 40, 0x06}));
  ASSERT_TRUE(row.return_address.is(RegisterRule::kAtExpression));
  EXPECT_EQ(bytes(row.expression(row.return_address)), (std::vector<int>{0x77, 16}));
  const RegisterRule* rbx = row.registers.find(3);
  ASSERT_NE(rbx, nullptr);
  EXPECT_EQ(bytes(row.expression(*rbx)), (std::vector<int>{0x77, 0}));
}

// Rows of any origin: every kind of rule.
TEST(DwarfWrite, EveryKindOfRule) {
  const std::vector<std::uint8_t> expressions = {0x77, 8, 0x06, 0x76, 16};
  FrameRow row;
  row.begin = 0x1000, row.end = 0x1010;
  row.cfa = CfaRule::at(7, 8);
  row.return_address = RegisterRule::at_cfa(-8);
  FrameRow second = row;
  second.begin = 0x1010, second.end = 0x1400;
  second.expressions = ByteView(std::span<const std::uint8_t>(expressions));
  second.cfa = CfaRule::expression({0, 3});
  ASSERT_TRUE(second.registers.set(0, RegisterRule::undefined()));
  ASSERT_TRUE(second.registers.set(3, RegisterRule::same_value()));
  ASSERT_TRUE(second.registers.set(6, RegisterRule::at_cfa(-24)));
  ASSERT_TRUE(second.registers.set(12, RegisterRule::cfa_value(-16)));
  ASSERT_TRUE(second.registers.set(13, RegisterRule::in_register(1)));
  ASSERT_TRUE(second.registers.set(14, RegisterRule::at_expression({3, 2})));
  ASSERT_TRUE(second.registers.set(15, RegisterRule::expression_value({3, 2})));
  ASSERT_TRUE(second.registers.set(20, RegisterRule::at_cfa(32)));
  ASSERT_TRUE(second.registers.set(70, RegisterRule::at_cfa(-32)));
  FrameRow third = row;
  third.begin = 0x1400, third.end = 0x30000;
  third.cfa = CfaRule::at(6, 8);
  FrameRow fourth = second;
  fourth.begin = 0x30000, fourth.end = 0x30001;
  fourth.cfa = CfaRule::at(6, -16);
  const std::vector<FrameRow> rows = {row, second, third, fourth};
  Writer writer({.address = kFrames, .pointers = dwarf::Pointers::kAbsolute});
  const auto done = writer.add(rows, {.address = 0x1000});
  ASSERT_TRUE(done) << done.error().text();
  const Written written = std::move(writer).take();
  const test::Listing listing = test::list(section_of(written, Architecture::kX86_64));
  ASSERT_TRUE(listing.errors.empty()) << listing.errors[0].text();
  EXPECT_EQ(merged(listing.rows, 0), merged(rows, 0));
}

// What no CFA instruction of its own says becomes an expression.
TEST(DwarfWrite, RulesThatBecomeExpressions) {
  FrameRow row;
  row.begin = 0, row.end = 4;
  row.cfa = CfaRule::loaded(6, 16, -8);
  row.return_address = RegisterRule::at_register(7, 24);
  ASSERT_TRUE(row.registers.set(3, RegisterRule::at_cfa(-12)));
  ASSERT_TRUE(row.registers.set(40, RegisterRule::register_value(33, -1)));
  const auto program = dwarf::program_of({&row, 1}, Architecture::kX86_64);
  ASSERT_TRUE(program);
  std::vector<std::vector<std::uint8_t>> blocks;
  for (const auto& instruction : *program) blocks.push_back(instruction.block);
  EXPECT_EQ(blocks, (std::vector<std::vector<std::uint8_t>>{
                        {0x76, 16, 0x06, 0x11, 0x78, 0x22}, {0x77, 24}, {0x11, 0x74, 0x22}, {0x92, 33, 0x7f}}));
}

TEST(DwarfWrite, CiesAreShared) {
  Prologue f{.architecture = Architecture::kX86_64, .code_size = 8};
  f.ops = {{1, push(3)}};
  Prologue handled = f;
  handled.handler = Handler{};
  Writer writer({.address = kFrames});
  ASSERT_TRUE(writer.add(f, {.address = kCode}));
  ASSERT_TRUE(writer.add(f, {.address = kCode + 0x10}));
  ASSERT_TRUE(writer.add(handled, {.address = kCode + 0x20, .personality = kCode + 0x1000}));
  ASSERT_TRUE(writer.add(handled, {.address = kCode + 0x30, .personality = kCode + 0x1000, .language_data = kCode}));
  ASSERT_TRUE(
      writer.add(handled, {.address = kCode + 0x40, .personality = kCode + 0x1000, .language_data = kCode + 4}));
  const Written written = std::move(writer).take();
  const auto section = section_of(written, Architecture::kX86_64);
  const auto report = [](const Error& error) { ADD_FAILURE() << error.text(); };
  dwarf::CfiReader reader(section, report);
  dwarf::CfiReader::Entry entry;
  unsigned cies = 0, functions = 0;
  while (reader.next(entry)) {
    if (entry.cie != nullptr) {
      ++cies;
      continue;
    }
    const std::uint64_t data[] = {0, 0, 0, kCode, kCode + 4};
    EXPECT_EQ(entry.fde.begin, kCode + 0x10 * functions);
    EXPECT_EQ(entry.fde.lsda ? entry.fde.lsda->value : 0, data[functions]) << functions;
    EXPECT_EQ(entry.fde.cie->personality ? entry.fde.cie->personality->value : 0, functions < 2 ? 0 : kCode + 0x1000);
    ++functions;
  }
  EXPECT_EQ(cies, 3u);
  EXPECT_EQ(functions, 5u);
}

TEST(DwarfWrite, TheSortedTable) {
  Prologue f{.architecture = Architecture::kX86_64, .code_size = 8};
  f.ops = {{1, push(3)}};
  Writer writer({.address = kFrames});
  for (const unsigned i : {3u, 1u, 2u, 0u}) ASSERT_TRUE(writer.add(f, {.address = kCode + 0x10 * i}));
  const Written written = std::move(writer).take();
  const std::uint64_t at = kFrames - 0x1000;
  const auto bytes = dwarf::eh_frame_hdr(written, at);
  ASSERT_TRUE(bytes);
  const auto header = dwarf::EhFrameHdr::parse(view(*bytes), at);
  ASSERT_TRUE(header) << header.error().text();
  EXPECT_EQ(header->eh_frame_address, kFrames);
  EXPECT_EQ(header->fde_count, 4u);
  for (unsigned i = 0; i < 4; ++i) {
    dwarf::LocatedFde found;
    const auto ok = header->find(section_of(written, f.architecture), kCode + 0x10 * i + 7, found);
    ASSERT_TRUE(ok) << ok.error().text();
    EXPECT_EQ(found.fde.begin, kCode + 0x10 * i);
  }
  EXPECT_EQ(dwarf::eh_frame_hdr(written, at + (std::uint64_t{1} << 40)).error().code, ErrorCode::kOutOfRange);
}

// Instructions of x86-64 end anywhere, those of AArch64 at multiples of 4.
TEST(DwarfAssembly, RowsBeginWithInstructions) {
  Prologue f{.architecture = Architecture::kX86_64, .code_size = 7};
  f.ops = {{1, push(3)}};
  const std::vector<std::byte> code(8, std::byte{0x90});
  const auto text = dwarf::assembly_of(f, std::span(code).first(7), {.name = "f"});
  ASSERT_TRUE(text) << text.error().text();
  EXPECT_NE(text->find(".byte 144\n.cfi_def_cfa_offset 16\n"), std::string::npos) << *text;
  EXPECT_NE(text->find(".byte 144, 144, 144, 144, 144, 144\n.cfi_endproc\n"), std::string::npos) << *text;
  const auto short_code = dwarf::assembly_of(f, std::span(code).first(6), {.name = "f"});
  ASSERT_FALSE(short_code);
  EXPECT_EQ(short_code.error().code, ErrorCode::kMalformed);

  f.architecture = Architecture::kAArch64;
  f.ops.clear();
  ASSERT_FALSE(dwarf::assembly_of(f, std::span(code).first(7), {.name = "f"}));
  f.code_size = 8;
  EXPECT_TRUE(dwarf::assembly_of(f, code, {.name = "f"}));
}

TEST(DwarfWrite, RefusalsLeaveNothingBehind) {
  Prologue f{.architecture = Architecture::kX86_64, .code_size = 8};
  f.ops = {{1, push(3)}};
  Writer writer({.address = kFrames});
  const auto refused = [&](const Expected<void>& done, ErrorCode code) {
    ASSERT_FALSE(done);
    EXPECT_EQ(done.error().code, code) << done.error().text();
  };
  refused(writer.add(f, {.address = kFrames + (std::uint64_t{1} << 33)}), ErrorCode::kOutOfRange);
  refused(writer.add(std::span<const FrameRow>(), {.address = kCode}), ErrorCode::kMalformed);
  Prologue other = f;
  other.architecture = Architecture::kAArch64;
  refused(writer.add(other, {.address = kCode}), ErrorCode::kUnsupported);
  Prologue handled = f;
  handled.handler = Handler{};
  refused(writer.add(handled, {.address = kCode}), ErrorCode::kMalformed);
  refused(writer.add(handled, {.address = kCode, .personality = 1}), ErrorCode::kOutOfRange);
  FrameRow rows[2] = {dwarf::entry_row(Architecture::kX86_64), dwarf::entry_row(Architecture::kX86_64)};
  rows[0].end = 8, rows[1].begin = 9, rows[1].end = 12;
  refused(writer.add(rows, {.address = kCode}), ErrorCode::kMalformed);
  rows[1].begin = 8, rows[1].signal_frame = true;
  refused(writer.add(rows, {.address = kCode}), ErrorCode::kUnsupported);
  ASSERT_TRUE(writer.add(f, {.address = kCode}));
  const Written written = std::move(writer).take();
  Writer fresh({.address = kFrames});
  ASSERT_TRUE(fresh.add(f, {.address = kCode}));
  EXPECT_EQ(written.bytes, std::move(fresh).take().bytes);

  Writer arm({.architecture = Architecture::kAArch64, .address = kFrames});
  FrameRow uneven[2] = {dwarf::entry_row(Architecture::kAArch64), dwarf::entry_row(Architecture::kAArch64)};
  uneven[0].end = uneven[1].begin = 6, uneven[1].end = 8, uneven[1].cfa = CfaRule::at(31, 16);
  refused(arm.add(uneven, {.address = kCode}), ErrorCode::kUnsupported);
  Writer none({.architecture = Architecture::kI386});
  refused(none.add(std::span<const FrameRow>(rows, 1), {.address = kCode}), ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace windlass
