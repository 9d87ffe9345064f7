#include "code/x86_64.h"

#include "arch/registers.h"

namespace windlass::code {

X86_64::X86_64() { ZydisDecoderInit(&decoder_, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64); }

Flow X86_64::step(CodeReader&, Path<X86_64>&) { return {.kind = Flow::kStop}; }

Value X86_64::return_from_entry(SymbolicState<kSlots>& state) {
  Value& sp = state[x86_64::kRsp];
  const Value return_address = state.load(sp, 8);
  sp = sp.plus(8);
  return return_address;
}

// sp points at the pushed frame pointer.
Value X86_64::return_from_frame(SymbolicState<kSlots>& state) {
  Value& sp = state[x86_64::kRsp];
  const Value pushed = state.load(sp, 8);
  const Value return_address = state.load(sp.plus(8), 8);
  if (!pushed.known() || pushed != state[x86_64::kRbp]) {
    if (pushed.kind != Value::kMemory) return {};
  }
  state[x86_64::kRbp] = pushed;
  sp = sp.plus(16);
  return return_address;
}

void X86_64::frame_pointer_row(std::uint64_t pc, FrameRow& row) {
  row.begin = pc;
  row.end = pc + 1;
  row.cfa = CfaRegister{x86_64::kRbp, 16};
  row.return_address = AtCfa{-8};
  row.signal_frame = row.return_signed = false;
  row.registers.clear();
  for (const std::uint16_t reg : {3, 12, 13, 14, 15}) (void)row.registers.set(reg, Undefined{});
  (void)row.registers.set(x86_64::kRbp, AtCfa{-16});
}

bool X86_64::is_entry_row(const FrameRow& row) {
  const auto* cfa = std::get_if<CfaRegister>(&row.cfa);
  if (cfa == nullptr || cfa->reg != x86_64::kRsp || cfa->offset != 8) return false;
  for (const RegisterEntry& entry : row.registers)
    if (is_callee_saved(kArchitecture, entry.reg) && !std::holds_alternative<SameValue>(entry.rule)) return false;
  return true;
}

// The first opcodes of what epilogues are made of: pop, ret, leave, add/lea/mov to rsp.
bool X86_64::may_be_epilogue(const CodeSource& source, std::uint64_t pc) {
  std::uint8_t code[3] = {};
  if (!source.read(pc, code, sizeof code) && !source.read(pc, code, 1)) return false;
  const std::uint8_t opcode = code[0] >= 0x40 && code[0] <= 0x4f ? code[1] : code[0];
  if (opcode >= 0x58 && opcode <= 0x5f) return true;                    // pop
  if (opcode == 0xc3 || opcode == 0xc2 || opcode == 0xc9) return true;  // ret, leave
  if (code[0] == 0xf3 || code[0] == 0xf2) return code[1] == 0xc3;       // rep ret, bnd ret
  const unsigned modrm = code[2];
  if (opcode == 0x83 || opcode == 0x81) return (modrm & 0xf8) == 0xc0 && (modrm & 7) == 4;  // add rsp, n
  if (opcode == 0x8d || opcode == 0x8b) return (modrm >> 3 & 7) == 4;                       // lea rsp, mov rsp
  if (opcode == 0x89) return (modrm & 0xc7) == 0xc4;                                        // mov rsp, reg
  return false;
}

}  // namespace windlass::code
