#include "flow/aarch64.h"

#include <algorithm>
#include <iterator>

#include "base/aarch64_signal_frame.h"
#include "base/registers.h"
#include "flow/aarch64_encoding.h"

namespace windlass::flow {

// The linkage table's first entry leaves x16 and x30 on the stack for the resolver it jumps to, which takes them off.
Value AArch64::return_from_entry(SymbolicState<kSlots>& state) {
  const Value link = state[aarch64::kX30];
  if (link.is_initial(aarch64::kX30) && state.load(state[aarch64::kSp].plus(8), 8) == link)
    state[aarch64::kSp] = state[aarch64::kSp].plus(16);
  return link;
}

// A frame record does not record where its frame ends.
Value AArch64::return_from_frame(SymbolicState<kSlots>&) { return {}; }

// [x29] = the caller's x29, [x29 + 8] = the return address (AAPCS64 section 6.4.6); sp is taken to be behind the pair.
void AArch64::frame_pointer_row(std::uint64_t pc, FrameRow& row) {
  lay_out(row, pc, CfaRule::at(aarch64::kX29, 16), RegisterRule::at_cfa(-8));
  row.return_signed = true;  // perhaps: without a code, taking it off changes nothing
  for (std::uint16_t reg = aarch64::kX19; reg < aarch64::kX29; ++reg)
    (void)row.registers.set(reg, RegisterRule::undefined());
  (void)row.registers.set(aarch64::kX29, RegisterRule::at_cfa(-16));
}

// CFA = sp, the return address in x30, no register saved.
bool AArch64::is_entry_row(const FrameRow& row) {
  if (row.cfa != CfaRule::at(aarch64::kSp, 0) || row.return_address != RegisterRule::in_register(aarch64::kX30))
    return false;
  for (const RegisterEntry entry : row.registers)
    if (is_callee_saved(kArchitecture, entry.reg) && !entry.rule.is(RegisterRule::kSameValue)) return false;
  return true;
}

// ret, a load from the stack that moves sp, add sp,sp, mov sp,x29, autiasp.
bool AArch64::may_be_epilogue(const CodeSource& source, std::uint64_t pc) {
  a64::Word word{};
  if (!source.read(pc, &word.bits, sizeof word.bits)) return false;
  if (word.is_ret()) return true;
  if (word.is_pair() || word.is_single()) return word.bit(22) && word.rn() == aarch64::kSp;
  if (word.is_immediate() && word.field(23, 3) == 2)
    return word.rd() == aarch64::kSp && !word.bit(30) && !word.bit(29) && word.wide();
  return word.signs_or_authenticates_link() && word.field(5, 7) >= 28;
}

bool AArch64::behind_call(const CodeSource& source, std::uint64_t address) {
  a64::Word word{};
  return !source.read(address - 4, &word.bits, sizeof word.bits) || word.is_call();
}

std::uint64_t AArch64::direct_call_target(const CodeSource& source, std::uint64_t address) {
  constexpr std::uint32_t kBl = 0x94000000, kOpcode = 0xfc000000;
  a64::Word word{};
  if (!source.read(address - 4, &word.bits, sizeof word.bits) || (word.bits & kOpcode) != kBl) return 0;
  const auto distance = static_cast<std::int32_t>(word.bits << 6) >> 4;
  return address - 4 + static_cast<std::uint64_t>(std::int64_t{distance});
}

// movz x, #imm, up to three movk, and blr x behind them (Arm ARM, C6.2).
std::uint64_t AArch64::constant_call_target(const CodeSource& source, std::uint64_t address) {
  constexpr std::uint32_t kBlr = 0xd63f0000, kMovz = 0xd2800000, kMovk = 0xf2800000, kMove = 0xff800000;
  constexpr std::uint32_t kRegister = 31, kMostMoves = 4;
  std::uint32_t code[kMostMoves + 1] = {};
  if (!source.read(address - 4, &code[0], 4) || (code[0] & ~(kRegister << 5)) != kBlr) return 0;
  const std::uint32_t reg = code[0] >> 5 & kRegister;
  std::uint64_t target = 0;
  for (std::uint64_t i = 1; i <= kMostMoves && source.read(address - 4 - 4 * i, &code[i], 4); ++i) {
    const std::uint32_t move = code[i] & kMove, shift = (code[i] >> 21 & 3) * 16;
    if ((code[i] & kRegister) != reg || (move != kMovz && move != kMovk)) return 0;
    target |= std::uint64_t{code[i] >> 5 & 0xffff} << shift;
    if (move == kMovz) return target;
  }
  return 0;
}

bool AArch64::behind_indirect_call(const CodeSource& source, std::uint64_t address) {
  a64::Word word{};
  return source.read(address - 4, &word.bits, sizeof word.bits) && word.is_call() &&
         direct_call_target(source, address) == 0;
}

bool AArch64::signal_trampoline(const CodeSource& source, std::uint64_t address) {
  std::uint32_t words[2] = {};
  return source.read(address, words, sizeof words) && words[0] == aarch64::kMovRtSigreturn && words[1] == aarch64::kSvc;
}

// In the linkage table's first entry (AAELF64, "PLT sequences"): [bti c;] stp x16,x30,[sp,#-16]!; adrp; ldr; add; br.
bool AArch64::in_first_linkage_entry(CodeReader& code, std::uint64_t pc) {
  constexpr std::uint32_t kPush = 0xa9bf7bf0;
  constexpr unsigned kMost = 4;
  for (unsigned i = 1; i <= kMost; ++i) {
    a64::Word word{};
    if (code.read(pc - std::uint64_t{4} * i, reinterpret_cast<std::uint8_t*>(&word.bits), sizeof word.bits) !=
        sizeof word.bits)
      return false;
    if (word.bits == kPush) return true;
    const bool on_the_way = word.is_immediate() || (word.is_single() && word.rd() == 17);
    if (!on_the_way) return false;
  }
  return false;
}

// Constants made just before the pc, without a jump since: how far an epilogue will move sp, where a jump table is.
void AArch64::look_back(CodeReader& code, Path<AArch64>& path) {
  if (in_first_linkage_entry(code, path.pc))
    path.state.store(path.state[aarch64::kSp].plus(8), 8, path.state[aarch64::kX30]);
  constexpr unsigned kMost = 16;
  unsigned count = 0;
  bool any_constant = false;
  while (count < kMost) {
    a64::Word word{};
    const std::uint64_t at = path.pc - std::uint64_t{4} * (count + 1);
    if (code.read(at, reinterpret_cast<std::uint8_t*>(&word.bits), sizeof word.bits) != sizeof word.bits) break;
    if (word.is_branch_or_system() || !word.is_allocated()) break;
    any_constant |= word.makes_constant();
    ++count;
  }
  if (!any_constant) return;
  Path<AArch64> before;
  before.pc = path.pc - std::uint64_t{4} * count;
  before.state.start();
  AArch64 machine;
  (void)follow_straight(before, path.pc, kMost, [&] { return machine.step(code, before); });
  if (before.pc != path.pc) return;
  for (unsigned i = 0; i < aarch64::kX19; ++i) {
    const Value& value = before.state[i];
    if (value.is_constant() || value.kind == Value::kTableEntry || value.kind == Value::kTableTarget)
      path.state[i] = value;
  }
}

// The beginning of a .plt, which leads into the dynamic linker by a jump, and which no call leads to (AAELF64, "PLT
// sequences"): stp x16, x30, [sp, #-16]!; adrp x16, page; ldr x17, [x16, offset]; add x16, x16, offset; br x17.
bool AArch64::linkage_stub(CodeReader& code, std::uint64_t pc, FrameRow& row) {
  struct Form {
    std::uint32_t mask, bits;
  };
  constexpr Form kForms[] = {{0xffffffff, 0xa9bf7bf0},
                             {0x9f00001f, 0x90000010},
                             {0xffc003ff, 0xf9400211},
                             {0xff8003ff, 0x91000210},
                             {0xffffffff, 0xd61f0220}};
  for (std::uint64_t at = 0; at < std::size(kForms); ++at) {
    std::uint32_t words[std::size(kForms)] = {};
    if (code.read(pc - 4 * at, reinterpret_cast<std::uint8_t*>(words), sizeof words) != sizeof words) continue;
    const auto fits = [](std::uint32_t word, Form form) { return (word & form.mask) == form.bits; };
    if (!std::equal(std::begin(words), std::end(words), std::begin(kForms), fits)) continue;
    if (at == 0)
      entry_row(pc, row);
    else
      lay_out(row, pc, CfaRule::at(aarch64::kSp, 16), RegisterRule::at_cfa(-8));
    return true;
  }
  return false;
}

bool AArch64::loads_table(CodeReader&, std::uint64_t) { return false; }

// Behind ret, b or brk.
bool AArch64::may_start_function(CodeReader& code, std::uint64_t address) {
  std::uint32_t word = 0;
  if (code.read(address - 4, reinterpret_cast<std::uint8_t*>(&word), sizeof word) != sizeof word) return false;
  return word == 0xd65f03c0 || word >> 26 == 5 || (word & 0xffe0001f) == 0xd4200000;
}

void AArch64::entry_row(std::uint64_t pc, FrameRow& row) {
  lay_out(row, pc, CfaRule::at(aarch64::kSp, 0), RegisterRule::in_register(aarch64::kX30));
}

}  // namespace windlass::flow
