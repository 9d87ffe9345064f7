// What a table says of the proof of its rules: code that is jumped into, and code in small gaps between functions.
#include <gtest/gtest.h>

#include "formats/dwarf/constants.h"
#include "lookup/table/compile.h"
#include "support/walk_target.h"

namespace windlass::table {
namespace {

using namespace dwarf;
using test::Bytes;
using test::WalkTarget;
using Code = std::vector<std::uint8_t>;

constexpr std::uint64_t kCode = WalkTarget::kCode;
constexpr std::uint8_t kRip = 16;

// Functions at offsets of kCode.
struct Described {
  std::uint64_t begin, end;
  Bytes instructions;
};
UnwindTable table_of(const Code& code, const std::vector<Described>& functions,
                     Architecture architecture = Architecture::kX86_64) {
  test::CfiBuilder cfi;
  const auto cie = cfi.cie(WalkTarget(architecture).cie_spec());
  for (const Described& function : functions)
    cfi.fde(cie, kCode + function.begin, function.end - function.begin, function.instructions);
  const auto file = test::elf_with_eh_frame(architecture, code, kCode, cfi.raw().data(), 0x2000);
  const auto image = image::ElfImage::parse(ByteView(file.data(), file.size()));
  EXPECT_TRUE(image);
  auto table = compile_elf(*image, [](const Error& error) { ADD_FAILURE() << error.text(); });
  EXPECT_TRUE(table);
  return std::move(*table);
}

bool equal_but_for_proof(TraceRule a, const TraceRule& b) {
  a.proof = b.proof;
  return PackedRule::of(a) == PackedRule::of(b);
}

TEST(Proof, AFunctionThatBeginsWithAFrameIsJumpedInto) {
  const Code code(32, 0x90);
  const UnwindTable table =
      table_of(code, {{0, 16, {DW_CFA_advance_loc | 1, DW_CFA_def_cfa_offset, 16}},
                      {16, 32, {DW_CFA_def_cfa_offset, 64, DW_CFA_advance_loc | 4, DW_CFA_def_cfa_offset, 16}}});
  EXPECT_EQ(table.find(kCode).proof, WL_PROOF_CALLED);
  EXPECT_EQ(table.find(kCode + 8).proof, WL_PROOF_CALLED);
  EXPECT_EQ(table.find(kCode + 16).proof, WL_PROOF_NO_END);
  EXPECT_EQ(table.find(kCode + 20).proof, WL_PROOF_NO_END);
  EXPECT_TRUE(equal_but_for_proof(table.find(kCode + 20), table.find(kCode + 8)));
}

TEST(Proof, ARowThatSaysThatThereIsNoCallerNeedsNoOther) {
  const Code code{0x31, 0xed, 0xe8, 0, 0, 0, 0, 0xf4};  // xor ebp, ebp; call; hlt
  const UnwindTable table = table_of(code, {{0, 8, {DW_CFA_def_cfa_offset, 64, DW_CFA_undefined, kRip}}});
  EXPECT_EQ(table.find(kCode + 2).ra_kind, WL_REG_UNDEFINED);
  EXPECT_EQ(table.find(kCode + 2).proof, WL_PROOF_CALLED);
}

TEST(Proof, OfAArch64AFunctionThatBeginsWithAFrameIsJumpedInto) {
  const Code nops{0x1f, 0x20, 0x03, 0xd5, 0x1f, 0x20, 0x03, 0xd5, 0x1f, 0x20, 0x03, 0xd5, 0x1f, 0x20, 0x03, 0xd5};
  const UnwindTable table = table_of(nops, {{0, 8, {}}, {8, 16, {DW_CFA_def_cfa_offset, 16}}}, Architecture::kAArch64);
  EXPECT_EQ(table.find(kCode).proof, WL_PROOF_CALLED);
  EXPECT_EQ(table.find(kCode + 8).proof, WL_PROOF_NO_END);
}

// As glibc's clone3: mov eax, 435 | syscall; test rax, rax; jz to the thread's start; ret | xor ebp, ebp; hlt
const Code kClone{0xb8, 0xb3, 0x01, 0, 0, 0x0f, 0x05, 0x48, 0x85, 0xc0, 0x74, 0x01, 0xc3, 0x31, 0xed, 0xf4};

TEST(Proof, CodeInASmallGapIsProvenByItsReturn) {
  const UnwindTable table = table_of(kClone, {{0, 5, {}}, {13, 16, {DW_CFA_undefined, kRip}}});
  EXPECT_EQ(table.find(kCode + 4).proof, WL_PROOF_CALLED);
  for (std::uint64_t at = 5; at < 13; ++at) {
    EXPECT_EQ(table.find(kCode + at).proof, WL_PROOF_CODE) << at;
    EXPECT_TRUE(equal_but_for_proof(table.find(kCode + at), table.find(kCode)));
  }
  EXPECT_EQ(table.find(kCode + 13).ra_kind, WL_REG_UNDEFINED);
}

TEST(Proof, CodeInASmallGapThatReturnsElsewhereHasNoRule) {
  Code code = kClone;
  code[12] = 0x58;  // pop rax for ret
  const UnwindTable popped = table_of(code, {{0, 5, {}}, {13, 16, {DW_CFA_undefined, kRip}}});
  EXPECT_EQ(popped.find(kCode + 7).cfa_kind, WL_CFA_NONE);
  // The function before says of its end what is not so.
  const UnwindTable wrong = table_of(kClone, {{0, 5, {DW_CFA_def_cfa_offset, 16}}, {13, 16, {DW_CFA_undefined, kRip}}});
  EXPECT_EQ(wrong.find(kCode + 4).cfa_offset, 16);
  EXPECT_EQ(wrong.find(kCode + 7).cfa_kind, WL_CFA_NONE);
}

TEST(Proof, PaddingBetweenFunctionsIsTheOneBefores) {
  const Code code{0xc3, 0x0f, 0x1f, 0x00, 0xcc, 0x90, 0, 0xc3};  // ret; nop; int3; nop; 0; ret
  const UnwindTable unaligned = table_of(code, {{0, 1, {}}, {7, 8, {}}});
  const UnwindTable aligned = table_of(kClone, {{0, 12, {}}, {16, 17, {}}});
  for (const UnwindTable* table : {&unaligned, &aligned})
    EXPECT_TRUE(PackedRule::of(table->find(kCode + (table == &aligned ? 13 : 3))) ==
                PackedRule::of(table->find(kCode)));
}

}  // namespace
}  // namespace windlass::table
