#include "code/aarch64.h"

#include "arch/registers.h"

namespace windlass::code {

// Not decoded yet: no path goes anywhere.
Flow AArch64::step(CodeReader&, Path<AArch64>&) { return {.kind = Flow::kStop}; }

Value AArch64::return_from_entry(SymbolicState<kSlots>& state) { return state[aarch64::kX30]; }

Value AArch64::return_from_frame(SymbolicState<kSlots>&) { return {}; }

// [x29] = the caller's x29, [x29 + 8] = the return address (AAPCS64 section 6.4.6); sp is taken to be behind the pair.
void AArch64::frame_pointer_row(std::uint64_t pc, FrameRow& row) {
  row.begin = pc;
  row.end = pc + 1;
  row.cfa = CfaRegister{aarch64::kX29, 16};
  row.return_address = AtCfa{-8};
  row.registers.clear();
  (void)row.registers.set(aarch64::kX29, AtCfa{-16});
}

bool AArch64::is_entry_row(const FrameRow&) { return false; }

bool AArch64::may_be_epilogue(const CodeSource&, std::uint64_t) { return false; }

// BL or BLR and its authenticating forms before it.
bool AArch64::behind_call(const CodeSource& source, std::uint64_t address) {
  std::uint32_t word = 0;
  if (!source.read(address - 4, &word, sizeof word)) return true;
  return word >> 26 == 0x25 || (word & 0xfffffc1f) == 0xd63f0000 || (word & 0xfefff800) == 0xd63f0800;
}

// mov x8, #139 (rt_sigreturn); svc #0: arch/arm64/kernel/vdso/sigreturn.S, musl's restore.s.
bool AArch64::signal_trampoline(const CodeSource& source, std::uint64_t address) {
  std::uint32_t words[2] = {};
  return source.read(address, words, sizeof words) && words[0] == 0xd2801168 && words[1] == 0xd4000001;
}

void AArch64::look_back(CodeReader&, Path<AArch64>&) {}

}  // namespace windlass::code
