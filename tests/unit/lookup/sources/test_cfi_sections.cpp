// Call frame information that has one row by the frame pointer for all functions, as Dart's compiler writes it.
#include "lookup/sources/cfi_sections.h"

#include <gtest/gtest.h>

#include "formats/dwarf/constants.h"
#include "lookup/sources/unwind_source.h"
#include "lookup/table/compile.h"
#include "support/walk_target.h"

namespace windlass::sources {
namespace {

using namespace dwarf;
using test::Bytes;
using test::WalkTarget;

constexpr std::uint64_t kCode = WalkTarget::kCode, kMany = 0x8000, kFew = 0x200;
const Bytes kNothing;

const Bytes kRecord{DW_CFA_def_cfa, 6, 16, DW_CFA_offset | 6, 2, DW_CFA_offset | 16, 1};

struct Part {
  std::uint64_t begin, size;
  Bytes instructions;
};

std::vector<std::byte> file_with(Architecture architecture, const std::vector<Part>& parts) {
  test::CfiBuilder cfi;
  for (const Part& part : parts)
    cfi.fde(cfi.cie(WalkTarget(architecture).cie_spec()), kCode + part.begin, part.size, part.instructions);
  const Bytes end{0, 0, 0, 0};
  cfi.raw().add(end);
  return test::elf_with_eh_frame(architecture, {0xc3}, kCode, cfi.raw().data(), kCode + kMany);
}

// Whether a file's .eh_frame is used, by all that asks for its rows alike.
void expect_used(Architecture architecture, const std::vector<Part>& parts, bool used) {
  const auto file = file_with(architecture, parts);
  const auto source = make_source(ByteView(file.data(), file.size()), image::PeLayout::kFile);
  FrameRow row;
  std::vector<Error> problems;
  const auto report = [&](const Error& error) { problems.push_back(error); };
  EXPECT_EQ(source->row_at(kCode + 8, row).has_value(), used);
  EXPECT_EQ(source->function_at(kCode + 8).has_value(), used);
  std::size_t functions = 0;
  const auto count = [&](const Function&) { return ++functions != 0; };
  source->for_each_function(count, report);
  EXPECT_EQ(functions, used ? parts.size() : 0);
  const auto table = table::compile(*source, report);
  ASSERT_TRUE(table);
  EXPECT_EQ(table->empty(), !used);
  ASSERT_EQ(problems.size(), used ? 0U : 1U);
  if (!used) {
    EXPECT_EQ(problems[0].code, ErrorCode::kUnsupported);
  }
}

TEST(CfiSections, OneFrameRecordForAllFunctionsDescribesNone) {
  constexpr Architecture kHere = Architecture::kX86_64;
  const auto with = [](const Bytes& more) { return Bytes(kRecord).add(more); };
  expect_used(kHere, {{0, kMany, kRecord}}, false);
  expect_used(kHere, {{0, kMany / 2, kRecord}, {kMany / 2, kMany / 2, kRecord}}, false);
  expect_used(kHere, {{0, kFew, kRecord}}, true);                             // a part of one function
  expect_used(kHere, {{0, kMany, kRecord}, {0x7000, kFew, kNothing}}, true);  // beside a function
  expect_used(kHere, {{0, kMany, kNothing}}, true);
  expect_used(kHere, {{0, kMany, with({DW_CFA_advance_loc | 4, DW_CFA_def_cfa_offset, 32})}}, true);
  expect_used(kHere, {{0, kMany, with({DW_CFA_def_cfa_offset, 32})}}, true);
  const Bytes arm{DW_CFA_def_cfa, 29, 16, DW_CFA_offset | 29, 2, DW_CFA_offset | 30, 1};
  expect_used(Architecture::kAArch64, {{0, kMany, arm}}, true);
}

// Where the one row is wrong, the code is right.
TEST(CfiSections, CallersOfSuchCodeAreFoundByTheCode) {
  constexpr std::uint64_t kStack = 0x7fff'0000, kLeaf = 0x40, kFrame = kStack + 0x100;
  WalkTarget target;
  target.function(0, kMany, kRecord);
  std::vector<std::uint8_t> code(0x80, 0xcc);
  const auto put = [&](std::size_t at, const std::vector<std::uint8_t>& bytes) {
    std::ranges::copy(bytes, code.begin() + static_cast<std::ptrdiff_t>(at));
  };
  // push rbp; mov rbp,rsp; call kLeaf; mov rsp,rbp; pop rbp; ret
  put(0x10, {0x55, 0x48, 0x89, 0xe5, 0xe8, 0x27, 0, 0, 0, 0x48, 0x89, 0xec, 0x5d, 0xc3});
  put(kLeaf, {0x48, 0x8d, 0x07, 0xc3});       // lea rax,[rdi]; ret
  put(0x60, {0xe8, 0xab, 0xff, 0xff, 0xff});  // call 0x10
  target.start(code);
  target.memory().set(kStack, target.pc(0x19));
  target.memory().set(kFrame, 0);
  target.memory().set(kFrame + 8, target.pc(0x65));
  struct Place {
    std::uint64_t at, sp, caller, callers_sp;
  };
  for (const Place& place : {Place{kLeaf, kStack, 0x19, kStack + 8},
                             {kLeaf + 3, kStack, 0x19, kStack + 8},
                             {0x14, kFrame, 0x65, kFrame + 16},
                             {0x10, kFrame + 8, 0x65, kFrame + 16},
                             {0x1d, kFrame + 8, 0x65, kFrame + 16}}) {
    Registers registers = target.at(CodeAddress::instruction(target.pc(place.at)), place.sp);
    registers.set(x86_64::kRbp, kFrame);
    StackWalker walker(target.space(), registers);
    ASSERT_TRUE(walker.step()) << std::hex << place.at << walker.error().text();
    EXPECT_EQ(walker.frame().pc(), CodeAddress::return_address(target.pc(place.caller))) << std::hex << place.at;
    EXPECT_EQ(walker.frame().sp(), place.callers_sp) << std::hex << place.at;
    EXPECT_LE(walker.frame().certainty, FrameCertainty::kChecked) << std::hex << place.at;
    EXPECT_NE(walker.frame().certainty, FrameCertainty::kDescribed) << std::hex << place.at;
  }
}

}  // namespace
}  // namespace windlass::sources
