// x86-64 functions whose call frame information cannot be taken for what it says.
#pragma once

#include <span>

#include "formats/dwarf/cfi.h"
#include "formats/image/elf.h"
#include "lookup/table/builder.h"
#include "lookup/table/trace_row.h"

namespace windlass::table {

// A return address above the CFA, where no callee saves it.
[[nodiscard]] inline bool above_cfa(const TraceRule& rule) {
  return rule.ra_kind == WL_REG_CFA && rule.ra_offset >= 0 && (rule.flags & WL_RULE_SIGNAL) == 0;
}

// There is a row, but it takes the agent to know what to make of it.
[[nodiscard]] inline TraceRule for_the_agent(TraceRule rule) {
  rule.cfa_kind = WL_CFA_UNSUPPORTED, rule.cfa_reg = 0, rule.cfa_offset = 0, rule.cfa_arg = 0;
  rule.proof = WL_PROOF_CALLED;
  return rule;
}

// Gives the rows of a function to `builder`, with what the code says otherwise, if it is one of these. False: it is
// not, and nothing was done.
// - A CFA from a register that calls destroy is no use to a caller's frame. Where the code has put that register's
//   value into rsp (Wine's __wine_unix_call_dispatcher takes over another stack that way, and says rcx throughout), rsp
//   is as good, and preserved.
// - libgcc's functions that go to a landing pad, from where they begin to write over the registers they have saved:
//   flow/eh_return.h.
//   On AArch64 the frames before, between and after those parts are plain.
// - The rows of longjmp and setcontext are about the registers in a jmp_buf or ucontext: they say where the jump will
//   lead, not who called.
// - swapcontext says throughout that the return address is on top of the stack, which it replaces.
// `other_register`: a row takes its CFA from neither rsp nor rbp. Quick where it does not, and the function has more
// than one row.
[[nodiscard]] bool add_unusual_rows(const image::ElfImage& image, const dwarf::Fde& fde,
                                    std::span<const TableBuilder::PendingRow> rows, bool other_register,
                                    TableBuilder& builder);

// Puts right the rows of one function that count from rbp what is rsp's: flow/frame_address.h. Quick where none does.
void correct_frame_addresses(const image::ElfImage& image, std::span<TableBuilder::PendingRow> rows);

// Corrects epilogues of realigned frames on x86-64. GCC says that the caller's rbp is where rbp points, up to the
// function's end. This is wrong where rbp has been popped: `pop rbp; lea rsp, [r10 - 8]; ret`. The agent then looks at
// the code.
void leave_popped_frames(std::span<TableBuilder::PendingRow> rows);

// Does the row say that there is no caller?
[[nodiscard]] inline bool ends_stack(const TableBuilder::PendingRow& row) {
  return (row.low >> PackedRule::kRaKind & 15) == WL_REG_UNDEFINED && (row.low & 0xff) != WL_CFA_UNSUPPORTED;
}

// The rows of a function that ends at `end`, of which one does. What the code refutes (lookup/sources/stack_end.h) is
// for the agent, who asks the code.
void leave_refuted_ends(const image::ElfImage& image, Architecture architecture, std::uint64_t end,
                        std::span<TableBuilder::PendingRow> rows);

}  // namespace windlass::table
