// A source that no format stands behind: what a table, a walk and a listing ask of it is all there is to a source.
#include <gtest/gtest.h>

#include "cli/rows.h"
#include "lookup/sources/rows_source.h"
#include "lookup/sources/stack_end.h"
#include "lookup/table/compile.h"
#include "support/walk_target.h"
#include "walk/unwinders.h"

namespace windlass::sources {
namespace {

constexpr std::uint64_t kCode = 0x1000, kRsp = 0x7fff'0000'1000;
constexpr RegisterNumber kRbx = 3, kRbp = 6;

FrameRow row(std::uint64_t begin, std::uint64_t end, std::int32_t cfa_offset) {
  FrameRow made;
  made.begin = begin;
  made.end = end;
  made.cfa = CfaRule::at(x86_64::kRsp, cfa_offset);
  made.return_address = RegisterRule::at_cfa(-8);
  return made;
}

// push rbx; sub rsp, 32; ... ; then a hole that nothing is known of.
GivenFunction pushing() {
  GivenFunction given;
  given.function.begin = kCode;
  given.function.end = kCode + 0x40;
  given.rows = {row(kCode, kCode + 1, 8), row(kCode + 1, kCode + 5, 16), row(kCode + 5, kCode + 0x30, 48)};
  for (std::size_t i = 1; i < given.rows.size(); ++i)
    (void)given.rows[i].registers.set(kRbx, RegisterRule::at_cfa(-16));
  return given;
}

GivenFunction leaf(std::uint64_t begin) {
  GivenFunction given;
  given.function.begin = begin;
  given.function.end = begin + 0x10;
  given.rows = {row(begin, begin + 0x10, 8)};
  return given;
}

RowsSource two_functions() {
  auto source = RowsSource::make(Architecture::kX86_64, {leaf(kCode + 0x100), pushing()});
  EXPECT_TRUE(source) << source.error().text();
  return std::move(*source);
}

const auto kNoProblem = [](const Error& error) { ADD_FAILURE() << error.text(); };

TEST(RowsSource, AnswersForAddresses) {
  const RowsSource source = two_functions();
  FrameRow found;
  ASSERT_TRUE(source.row_at(kCode + 4, found));
  EXPECT_EQ(found.begin, kCode + 1);
  EXPECT_EQ(found.cfa.offset(), 16);
  for (const std::uint64_t outside : {kCode - 1, kCode + 0x30, kCode + 0x3f, kCode + 0x40, kCode + 0x110}) {
    const auto none = source.row_at(outside, found);
    ASSERT_FALSE(none) << outside;
    EXPECT_EQ(none.error().code, ErrorCode::kNotFound) << outside;
  }
  ASSERT_TRUE(source.function_at(kCode + 0x3f));
  EXPECT_EQ(source.function_at(kCode + 0x3f)->begin, kCode);
  EXPECT_EQ(source.function_start(kCode + 0x10f), kCode + 0x100);
  EXPECT_FALSE(source.function_at(kCode + 0x40));
  EXPECT_EQ(source.entry_point(), 0u) << "no program begins in it";
  std::vector<std::uint64_t> begins;
  const auto add = [&](const Function& function) {
    begins.push_back(function.begin);
    return true;
  };
  source.for_each_function(add, kNoProblem);
  EXPECT_EQ(begins, (std::vector<std::uint64_t>{kCode, kCode + 0x100}));
}

TEST(RowsSource, IsCompiled) {
  const auto table = table::compile(two_functions(), kNoProblem);
  ASSERT_TRUE(table) << table.error().text();
  EXPECT_EQ(table->find(kCode).cfa_offset, 8);
  EXPECT_EQ(table->find(kCode + 4).cfa_offset, 16);
  EXPECT_EQ(table->find(kCode + 0x2f).cfa_offset, 48);
  EXPECT_EQ(table->find(kCode + 0x2f).ra_kind, WL_REG_CFA);
  EXPECT_EQ(table->find(kCode + 0x30).cfa_kind, WL_CFA_UNSUPPORTED);  // in the function, without a row
  EXPECT_EQ(table->find(kCode + 0x80).cfa_kind, WL_CFA_NONE);
  EXPECT_EQ(table->find(kCode + 0x10f).cfa_offset, 8);
}

TEST(RowsSource, TablesFollowTheRegisterThatRowsNeed) {
  GivenFunction by_rbx = pushing();
  by_rbx.rows[2].cfa = CfaRule::at(kRbx, 64);
  const auto source = RowsSource::make(Architecture::kX86_64, {by_rbx});
  ASSERT_TRUE(source);
  const auto table = table::compile(*source, kNoProblem);
  ASSERT_TRUE(table);
  EXPECT_EQ(table->x_reg(), kRbx);
  EXPECT_EQ(table->find(kCode + 4).x_offset, -16);
}

TEST(RowsSource, IsWalked) {
  const RowsSource source = two_functions();
  constexpr std::uint64_t kBias = 0x7000'0000'0000, kCaller = kBias + kCode + 0x105;
  auto memory = std::make_unique<test::WordMemory>();
  memory->set(kRsp + 32, 0x1234);   // rbx
  memory->set(kRsp + 40, kCaller);  // the return address of the first function
  AddressSpace space(Architecture::kX86_64, std::move(memory));
  ASSERT_TRUE(space.add({.begin = kBias + kCode, .end = kBias + kCode + 0x200}));  // what a caller's pc may be in
  const walk::Module module({kBias + kCode, kBias + kCode + 0x200, kBias, "data", {}}, source, kBias);
  Frame frame;
  frame.registers = Registers(Architecture::kX86_64);
  frame.registers.set_pc(CodeAddress::return_address(kBias + kCode + 0x21));
  frame.registers.set_sp(kRsp);
  frame.registers.set(kRbp, 7);
  walk::Scratch scratch;
  walk::Step step;
  walk::find_caller(space, frame, &module, {100, false}, scratch, step);
  ASSERT_TRUE(step.status.ok()) << step.status.error.text();
  EXPECT_EQ(step.origin, FrameOrigin::kCfi);
  EXPECT_EQ(step.caller.pc(), CodeAddress::return_address(kCaller));
  EXPECT_EQ(step.caller.sp(), kRsp + 48);
  EXPECT_EQ(step.caller.get(kRbx), 0x1234u);
  EXPECT_EQ(step.caller.get(kRbp), 7u);
}

// A return address of 0 in code whose rows begin with a frame already there, as an interpreter's do, may be anything.
TEST(RowsSource, ZeroEndsStacksOfFunctionsThatAreCalled) {
  GivenFunction interpreter = leaf(kCode + 0x200);
  interpreter.rows[0].cfa = CfaRule::at(x86_64::kRsp, 80);
  GivenFunction start = interpreter;  // says itself that nobody called it
  start.function.begin = start.rows[0].begin = kCode + 0x300;
  start.function.end = start.rows[0].end = kCode + 0x310;
  start.rows[0].return_address = RegisterRule::undefined();
  const auto source = RowsSource::make(Architecture::kX86_64, {pushing(), interpreter, start});
  ASSERT_TRUE(source) << source.error().text();
  const auto proof = [&](std::uint64_t at) { return end_proof(*source, CodeAddress::instruction(kCode + at)); };
  EXPECT_EQ(proof(0x20), EndProof::kProven) << "behind its prologue";
  EXPECT_EQ(proof(0x208), EndProof::kNone);
  EXPECT_EQ(proof(0x308), EndProof::kProven);
  EXPECT_EQ(proof(0x38), EndProof::kProven) << "no row: somebody else's to prove";
}

TEST(RowsSource, IsPrinted) {
  std::string text;
  {
    TextWriter out(&text);
    EXPECT_TRUE(cli::list_rows(two_functions(), out, kNoProblem, false));
    EXPECT_TRUE(cli::list_rows(two_functions(), out, kNoProblem, true));
  }
  EXPECT_EQ(text,
            "rows:\n"
            "  0x1000..0x1001  cfa=rsp+8  ra=[cfa-8]\n"
            "  0x1001..0x1005  cfa=rsp+16  ra=[cfa-8]  rbx=[cfa-16]\n"
            "  0x1005..0x1030  cfa=rsp+48  ra=[cfa-8]  rbx=[cfa-16]\n"
            "  0x1100..0x1110  cfa=rsp+8  ra=[cfa-8]\n"
            R"({"begin":4096,"end":4097,"cfa":{"reg":"rsp","offset":8},"ra":{"cfa":-8},"regs":{}})"
            "\n"
            R"({"begin":4097,"end":4101,"cfa":{"reg":"rsp","offset":16},"ra":{"cfa":-8},"regs":{"rbx":{"cfa":-16}}})"
            "\n"
            R"({"begin":4101,"end":4144,"cfa":{"reg":"rsp","offset":48},"ra":{"cfa":-8},"regs":{"rbx":{"cfa":-16}}})"
            "\n"
            R"({"begin":4352,"end":4368,"cfa":{"reg":"rsp","offset":8},"ra":{"cfa":-8},"regs":{}})"
            "\n");
}

TEST(RowsSource, RefusesWhatContradictsItself) {
  const auto refused = [](std::vector<GivenFunction> functions) {
    const auto source = RowsSource::make(Architecture::kX86_64, std::move(functions));
    EXPECT_FALSE(source);
    return source ? Error{} : source.error();
  };
  GivenFunction empty = leaf(kCode);
  empty.function.end = kCode;
  EXPECT_EQ(refused({empty}).where, kCode);
  EXPECT_EQ(refused({leaf(kCode), leaf(kCode + 0xf)}).where, kCode + 0xf);
  GivenFunction outside = leaf(kCode);
  outside.rows[0].end += 1;
  EXPECT_EQ(refused({outside}).code, ErrorCode::kMalformed);
  GivenFunction over = pushing();
  over.rows[2].begin -= 1;
  EXPECT_EQ(refused({over}).where, kCode + 4);
  GivenFunction inverted = pushing();
  inverted.rows[1].end = inverted.rows[1].begin;
  EXPECT_EQ(refused({inverted}).where, kCode + 1);
}

}  // namespace
}  // namespace windlass::sources
