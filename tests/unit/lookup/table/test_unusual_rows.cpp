// Functions that take the agent to unwind: from where on, and up to where.
#include "lookup/table/unusual_rows.h"

#include <gtest/gtest.h>

#include "base/registers.h"
#include "formats/dwarf/constants.h"
#include "lookup/table/compile.h"
#include "support/walk_target.h"

namespace windlass::table {
namespace {

using test::Bytes;
using test::WalkTarget;

constexpr std::uint8_t kRcx = 2;

// Of a function at WalkTarget::kCode.
UnwindTable table_of(const std::vector<std::uint8_t>& code, const Bytes& instructions,
                     Architecture architecture = Architecture::kX86_64) {
  test::CfiBuilder cfi;
  cfi.fde(cfi.cie(WalkTarget(architecture).cie_spec()), WalkTarget::kCode, code.size(), instructions);
  const auto file = test::elf_with_eh_frame(architecture, code, WalkTarget::kCode, cfi.raw().data(), 0x2000);
  const auto image = image::ElfImage::parse(ByteView(file.data(), file.size()));
  EXPECT_TRUE(image);
  auto table = compile_elf(*image, [](const Error& error) { ADD_FAILURE() << error.text(); });
  EXPECT_TRUE(table);
  return std::move(*table);
}

std::uint8_t cfa_kind(const UnwindTable& table, std::uint64_t offset) {
  return table.find(WalkTarget::kCode + offset).cfa_kind;
}

// Behind rows that could be read, a function whose description goes wrong has none.
TEST(Compile, AFunctionEndsWhereItsDescriptionCannotBeRead) {
  using namespace dwarf;
  constexpr std::uint8_t kReserved = 0x3f;
  const Bytes good{DW_CFA_advance_loc | 4, DW_CFA_def_cfa_offset, 24, DW_CFA_advance_loc | 4, DW_CFA_def_cfa_offset, 32,
                   DW_CFA_advance_loc | 4, DW_CFA_def_cfa_offset, 40};
  for (std::size_t rows = 0; rows <= 3; ++rows) {  // in front of what is wrong
    Bytes instructions;
    instructions.data().assign(good.data().begin(), good.data().begin() + static_cast<long>(3 * rows));
    instructions.u8(kReserved);
    test::CfiBuilder cfi;
    const auto cie = cfi.cie(WalkTarget().cie_spec());
    cfi.fde(cie, WalkTarget::kCode, 0x20, instructions);
    cfi.fde(cie, WalkTarget::kCode + 0x20, 0x20, good);
    const auto file = test::elf_with_eh_frame(Architecture::kX86_64, std::vector<std::uint8_t>(0x40, 0x90),
                                              WalkTarget::kCode, cfi.raw().data(), 0x2000);
    const auto image = image::ElfImage::parse(ByteView(file.data(), file.size()));
    ASSERT_TRUE(image);
    std::size_t errors = 0;
    const auto table = compile_elf(*image, [&](const Error&) { ++errors; });
    ASSERT_TRUE(table);
    EXPECT_EQ(errors, 1u);
    for (std::uint64_t at = 0; at < 0x20; ++at) {
      EXPECT_EQ(cfa_kind(*table, at), at < 4 * rows ? WL_CFA_REG : WL_CFA_NONE) << rows << ": " << at;
      EXPECT_EQ(cfa_kind(*table, at + 0x20), WL_CFA_REG);
    }
  }
}

TEST(UnusualRows, BehindASwitchTheStackIsTheAgents) {
  const UnwindTable table = table_of({0x90, 0x48, 0x89, 0xf4, 0x90, 0xc3}, {});  // nop; mov rsp, rsi; nop; ret
  EXPECT_EQ(cfa_kind(table, 1), WL_CFA_REG);
  EXPECT_EQ(cfa_kind(table, 4), WL_CFA_UNSUPPORTED);
  EXPECT_EQ(cfa_kind(table, 5), WL_CFA_UNSUPPORTED);
}

// From where libgcc writes over what it has saved up to its jump to the landing pad.
TEST(UnusualRows, BehindALandingTheRowsAreTheKernelsAgain) {
  using namespace dwarf;
  const std::vector<std::uint8_t> code{0x55, 0x48, 0x89, 0xe5,     // 0: push rbp; mov rbp, rsp
                                       0xe8, 0,    0,    0,    0,  // 4: call uw_install_context_1
                                       0x48, 0x89, 0xc1,           // 9: mov rcx, rax
                                       0x48, 0x89, 0xcc,           // 12: mov rsp, rcx
                                       0x59, 0xff, 0xe1,           // 15: pop rcx; jmp rcx
                                       0x90, 0x90, 0xc9, 0xc3};    // 18: nop; nop; leave; ret
  const UnwindTable table = table_of(code, {DW_CFA_advance_loc | 4, DW_CFA_def_cfa, 6, 16, DW_CFA_advance_loc | 11,
                                            DW_CFA_def_cfa, kRcx, 8, DW_CFA_advance_loc | 3, DW_CFA_def_cfa, 6, 16});
  EXPECT_EQ(cfa_kind(table, 0), WL_CFA_REG);
  EXPECT_EQ(cfa_kind(table, 4), WL_CFA_UNSUPPORTED);
  EXPECT_EQ(cfa_kind(table, 17), WL_CFA_UNSUPPORTED);
  EXPECT_EQ(cfa_kind(table, 18), WL_CFA_REG);
  EXPECT_EQ(table.find(WalkTarget::kCode + 20).cfa_reg, x86_64::kRbp);
}

// GCC's realigned frames: up to the end of the function the caller's rbp is said to be where rbp points.
TEST(UnusualRows, WhereARealignedFrameIsPoppedTheRowsAreTheAgents) {
  using namespace dwarf;
  constexpr std::uint8_t kR10 = 10, kRbp = 6, kRsp = 7, kBreg6 = 0x76, kDeref = 0x06;
  const std::vector<std::uint8_t> code{0x4c, 0x8d, 0x54, 0x24, 0x08,        // 0: lea r10, [rsp + 8]
                                       0x48, 0x83, 0xe4, 0xe0,              // 5: and rsp, -32
                                       0x41, 0xff, 0x72, 0xf8,              // 9: push [r10 - 8]
                                       0x55, 0x48, 0x89, 0xe5, 0x41, 0x52,  // 13: push rbp; mov rbp, rsp; push r10
                                       0x90, 0x41, 0x5a, 0x5d,              // 19: nop; pop r10; pop rbp
                                       0x49, 0x8d, 0x62, 0xf8, 0xc3};       // 23: lea rsp, [r10 - 8]; ret
  const UnwindTable table = table_of(code, {DW_CFA_advance_loc | 5,
                                            DW_CFA_def_cfa,
                                            kR10,
                                            0,
                                            DW_CFA_advance_loc | 12,
                                            DW_CFA_expression,
                                            kRbp,
                                            2,
                                            kBreg6,
                                            0,
                                            DW_CFA_advance_loc | 2,
                                            DW_CFA_def_cfa_expression,
                                            3,
                                            kBreg6,
                                            0x78,
                                            kDeref,
                                            DW_CFA_advance_loc | 3,
                                            DW_CFA_def_cfa,
                                            kR10,
                                            0,
                                            DW_CFA_advance_loc | 5,
                                            DW_CFA_def_cfa,
                                            kRsp,
                                            8});
  EXPECT_EQ(cfa_kind(table, 17), WL_CFA_REG) << "before the frame is there";
  EXPECT_EQ(cfa_kind(table, 19), WL_CFA_MEM);
  EXPECT_EQ(cfa_kind(table, 23), WL_CFA_UNSUPPORTED);
  EXPECT_EQ(cfa_kind(table, 27), WL_CFA_UNSUPPORTED);
}

// Rows that say that there is no caller, of code that returns to one: the agent asks the code.
TEST(UnusualRows, AnEndThatTheCodeRefutesIsTheAgents) {
  using namespace dwarf;
  constexpr std::uint8_t kRip = 16;
  const Bytes no_caller{DW_CFA_advance_loc | 1, DW_CFA_undefined, kRip};
  const UnwindTable start = table_of({0x90, 0xe8, 0, 0, 0, 0, 0xf4}, no_caller);  // nop; call; hlt
  EXPECT_EQ(start.find(WalkTarget::kCode + 1).ra_kind, WL_REG_UNDEFINED);
  EXPECT_EQ(cfa_kind(start, 1), WL_CFA_REG);
  const UnwindTable liar = table_of({0x90, 0xe8, 0, 0, 0, 0, 0xc3}, no_caller);  // nop; call; ret
  EXPECT_EQ(cfa_kind(liar, 0), WL_CFA_REG);
  EXPECT_EQ(cfa_kind(liar, 1), WL_CFA_UNSUPPORTED);
}

TEST(UnusualRows, OnAArch64ALandingHasTheSameRowsAsTheFrameBeforeIt) {
  using namespace dwarf;
  std::vector<std::uint8_t> code;
  for (const std::uint32_t word : {0xa9be7bfdu,   // 0: stp x29, x30, [sp, #-32]!
                                   0xa90107e0u,   // 4: stp x0, x1, [sp, #16]
                                   0x94000010u,   // 8: bl _Unwind_RaiseException_Phase2
                                   0x540000e1u,   // 12: b.ne 40
                                   0x94000010u,   // 16: bl uw_install_context_1
                                   0xaa0003e4u,   // 20: mov x4, x0
                                   0xa94107e0u,   // 24: ldp x0, x1, [sp, #16]
                                   0xa8c27bfdu,   // 28: ldp x29, x30, [sp], #32
                                   0x8b2463ffu,   // 32: add sp, sp, x4
                                   0xd65f03c0u,   // 36: ret
                                   0x94000010u})  // 40: bl abort
    for (unsigned shift = 0; shift < 32; shift += 8) code.push_back(static_cast<std::uint8_t>(word >> shift));
  const UnwindTable table =
      table_of(code,
               {DW_CFA_advance_loc | 4, DW_CFA_def_cfa_offset, 32, DW_CFA_offset | 29, 4, DW_CFA_offset | 30, 3,
                DW_CFA_advance_loc | 4, DW_CFA_offset | 0, 2, DW_CFA_offset | 1, 1},
               Architecture::kAArch64);
  for (const std::uint64_t own : {4, 8, 11, 40}) EXPECT_EQ(cfa_kind(table, own), WL_CFA_REG) << own;
  for (const std::uint64_t agent : {16, 19, 20, 28, 32, 36})
    EXPECT_EQ(cfa_kind(table, agent), WL_CFA_UNSUPPORTED) << agent;
}

}  // namespace
}  // namespace windlass::table
