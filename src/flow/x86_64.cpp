#include "flow/x86_64.h"

#include <cstring>
#include <utility>

#include "base/registers.h"
#include "base/x86_64_call.h"
#include "base/x86_64_operand.h"
#include "base/x86_64_signal_frame.h"
#include "base/x86_signal_return.h"
#include "flow/callee_record.h"

namespace windlass::flow {

namespace {

using x86_64::dwarf_number;
using x86_64::kRbp;
using x86_64::kRsp;
constexpr std::uint64_t kLargestTable = 1 << 16;
constexpr unsigned kRax = 0, kRdx = 1, kRcx = 2, kRsi = 4, kRdi = 5, kR11 = 11, kNoRegister = x86_64::kNoDwarfNumber;

bool is_register(const X86Operand& operand, ZydisRegister reg) {
  return operand.type == ZYDIS_OPERAND_TYPE_REGISTER && operand.reg.value == reg;
}

// One instruction being executed on a path.
class X86Execution {
 public:
  X86Execution(const X86Instruction& instruction, CodeReader& code, Path<X86_64>& path)
      : code_(code), path_(path), state_(path.state), info_(instruction), operands_(instruction.operands) {}

  Flow run();

 private:
  using State = SymbolicState<X86_64::kSlots>;

  [[nodiscard]] Value address_of(const X86Operand& operand) const;
  [[nodiscard]] Value table_at(const X86Operand& operand) const;
  [[nodiscard]] Value value_of(const X86Operand& operand) const;
  [[nodiscard]] Value load_now(const Value& address) const;
  void assign(const X86Operand& to, const Value& value);
  void forget_writes();
  void push(const Value& value);
  Value pop();

  Flow execute();
  void arithmetic();
  void move();
  void exchange();
  void enter();
  Flow call();
  Flow jump();
  Flow branch();
  Flow return_to(std::uint64_t extra);
  Flow system_call();
  void note_frame_pointer(Flow& flow) const;

  CodeReader& code_;
  Path<X86_64>& path_;
  State& state_;
  const X86Instruction& info_;
  const X86Operand (&operands_)[ZYDIS_MAX_OPERAND_COUNT];
};

// ---- operands -----------------------------------------------------------------------------------------------------

Value X86Execution::address_of(const X86Operand& operand) const {
  const auto& memory = operand.mem;
  if (memory.segment == ZYDIS_REGISTER_FS || memory.segment == ZYDIS_REGISTER_GS || info_.address_width != 64)
    return {};
  const std::int64_t displacement = memory.disp.has_displacement ? memory.disp.value : 0;
  Value address = Value::constant(0);
  if (memory.base == ZYDIS_REGISTER_RIP)
    address = Value::constant(path_.pc);  // already that of the next instruction
  else if (memory.base != ZYDIS_REGISTER_NONE)
    address = state_[dwarf_number(memory.base)];
  if (memory.index != ZYDIS_REGISTER_NONE) {
    const Value& index = state_[dwarf_number(memory.index)];
    if (!index.is_constant()) return {};
    // Addresses wrap around, and constants may be anything.
    address = address.plus(static_cast<std::int64_t>(static_cast<std::uint64_t>(index.addend) * memory.scale));
  }
  return address.plus(displacement);
}

// The constant part of an address with an index: where a table starts. Unknown if there is no index.
Value X86Execution::table_at(const X86Operand& operand) const {
  const auto& memory = operand.mem;
  if (operand.type != ZYDIS_OPERAND_TYPE_MEMORY || memory.index == ZYDIS_REGISTER_NONE || info_.address_width != 64 ||
      memory.segment == ZYDIS_REGISTER_FS || memory.segment == ZYDIS_REGISTER_GS)
    return {};
  const std::int64_t displacement = memory.disp.has_displacement ? memory.disp.value : 0;
  const Value base = memory.base == ZYDIS_REGISTER_NONE ? Value::constant(0) : state_[dwarf_number(memory.base)];
  const Value table = base.plus(displacement);
  return table.is_constant() && table.addend != 0 ? table : Value();
}

Value X86Execution::value_of(const X86Operand& operand) const {
  if (operand.type == ZYDIS_OPERAND_TYPE_IMMEDIATE)
    return Value::constant(operand.imm.is_signed ? static_cast<std::uint64_t>(operand.imm.value.s)
                                                 : operand.imm.value.u);
  if (operand.type == ZYDIS_OPERAND_TYPE_REGISTER) {
    const unsigned reg = dwarf_number(operand.reg.value);
    if (reg == kNoRegister) return {};
    const Value& value = state_[reg];
    if (operand.size == 64) return value;
    return value.is_constant() && operand.size == 32 ? Value::constant(static_cast<std::uint32_t>(value.addend))
                                                     : Value();
  }
  if (operand.type != ZYDIS_OPERAND_TYPE_MEMORY) return {};
  if (const Value table = table_at(operand); table.known() && operand.size == 64)
    return {Value::kTableTarget, 0, 8, 0, table.addend};
  const Value address = address_of(operand);
  const bool can_be_written = address.is_address() && (address.is_symbol() || address.loaded().known());
  return operand.size == 64 && !can_be_written ? load_now(address) : state_.load(address, operand.size / 8u);
}

// What is in memory as it is. That no value can say what code loads is usual in generated code: by way of pointers that
// are constants, or by three of them.
Value X86Execution::load_now(const Value& address) const {
  const CodeSource& source = code_.source();
  std::uint64_t place = static_cast<std::uint64_t>(address.addend), loaded = 0, sp = 0;
  if (!address.is_constant()) {
    const auto value = present_value(address, source);
    if (!value) return {};
    place = *value;
  }
  if (!source.register_value(kRsp, sp) || !source.read(place, &loaded, sizeof loaded)) return {};
  return Value::constant(loaded);
}

void X86Execution::assign(const X86Operand& to, const Value& value) {
  if (to.type == ZYDIS_OPERAND_TYPE_MEMORY) {
    state_.store(address_of(to), to.size / 8u, value);
    return;
  }
  if (to.type != ZYDIS_OPERAND_TYPE_REGISTER) return;
  const unsigned reg = dwarf_number(to.reg.value);
  if (reg == kNoRegister) return;
  if (to.size == 64)
    state_[reg] = value;
  else if (to.size == 32 && value.is_constant())  // the upper half becomes 0
    state_[reg] = Value::constant(static_cast<std::uint32_t>(value.addend));
  else
    state_[reg] = {};
}

// Everything an instruction not modelled writes becomes unknown.
void X86Execution::forget_writes() {
  for (unsigned i = 0; i < info_.operand_count; ++i)
    if ((operands_[i].actions & ZYDIS_OPERAND_ACTION_MASK_WRITE) != 0) assign(operands_[i], {});
}

void X86Execution::push(const Value& value) {
  state_[kRsp] = state_[kRsp].plus(-8);
  state_.store(state_[kRsp], 8, value);
}

Value X86Execution::pop() {
  const Value value = state_.load(state_[kRsp], 8);
  state_[kRsp] = state_[kRsp].plus(8);
  return value;
}

// ---- instructions that compute ------------------------------------------------------------------------------------

void X86Execution::arithmetic() {
  const auto& to = operands_[0];
  const Value left = value_of(to);
  const Value right = value_of(operands_[1]);
  const bool whole = to.size == 64;
  Value value;
  switch (info_.mnemonic) {
    case ZYDIS_MNEMONIC_ADD:
      if (right.is_constant())
        value = left.plus(right.addend);
      else if (left.is_constant())
        value = right.plus(left.addend);
      // table + entry
      for (const auto& [entry, base] : {std::pair(left, right), std::pair(right, left)}) {
        const std::int64_t distance = base.minus(entry);
        if (whole && entry.kind == Value::kTableEntry && base.is_constant() &&
            distance == static_cast<std::int32_t>(distance))
          value = {Value::kTableTarget, 0, entry.slot2, static_cast<std::int32_t>(distance), entry.addend};
      }
      break;
    case ZYDIS_MNEMONIC_SUB:
      if (right.is_constant()) value = left.plus(-right.addend);
      break;
    case ZYDIS_MNEMONIC_INC: value = left.plus(1); break;
    case ZYDIS_MNEMONIC_DEC: value = left.plus(-1); break;
    case ZYDIS_MNEMONIC_AND:
      if (left.is_constant() && right.is_constant())
        value = Value::constant(static_cast<std::uint64_t>(left.addend & right.addend));
      else if (whole && left.is_address() && right.is_constant() && right.addend < 0)
        value = state_.fresh();  // aligned down
      break;
    default:  // XOR of a register with itself
      if (to.type == ZYDIS_OPERAND_TYPE_REGISTER && is_register(operands_[1], to.reg.value)) value = Value::constant(0);
      break;
  }
  assign(to, value);
}

void X86Execution::move() {
  switch (info_.mnemonic) {
    case ZYDIS_MNEMONIC_LEA: assign(operands_[0], address_of(operands_[1])); return;
    case ZYDIS_MNEMONIC_MOVSXD: {
      const Value table = table_at(operands_[1]);
      const bool entry = table.known() && operands_[0].size == 64;
      assign(operands_[0], entry ? Value{Value::kTableEntry, 0, -4, 0, table.addend} : Value());
      return;
    }
    default: assign(operands_[0], value_of(operands_[1])); return;
  }
}

void X86Execution::exchange() {
  const Value left = value_of(operands_[0]);
  const Value right = value_of(operands_[1]);
  assign(operands_[0], right);
  assign(operands_[1], left);
}

void X86Execution::enter() {
  push(state_[kRbp]);
  const Value frame = state_[kRsp];
  state_[kRbp] = frame;
  state_[kRsp] = operands_[1].imm.value.u == 0 ? frame.plus(-static_cast<std::int64_t>(operands_[0].imm.value.u))
                                               : state_.fresh();  // nested: displays follow
}

// ---- instructions that go elsewhere -------------------------------------------------------------------------------

// Does the code at `target` take the return address off the stack, or put another in its place? To get hold of the pc,
// or as retpolines do.
bool takes_return_address(CodeReader& code, std::uint64_t target) {
  std::uint8_t b[5] = {};
  if (code.read(target, b, sizeof b) != sizeof b) return false;
  const bool wide = (b[0] & 0xf0) == 0x40;
  const std::uint8_t opcode = wide ? b[1] : b[0];
  if (opcode >= 0x58 && opcode <= 0x5f) return true;                                                // pop reg
  if ((b[0] & 0xfb) == 0x48 && b[1] == 0x89 && (b[2] & 0xc7) == 0x04 && b[3] == 0x24) return true;  // mov [rsp], reg
  return b[0] == 0x48 && b[1] == 0x8d && b[2] == 0x64 && b[3] == 0x24 && b[4] == 0x08;              // lea rsp, [rsp+8]
}

Flow X86Execution::call() {
  const std::uint64_t next = path_.pc;
  Flow flow{.kind = Flow::kCall};
  if (operands_[0].type == ZYDIS_OPERAND_TYPE_IMMEDIATE) {
    flow.target = next + operands_[0].imm.value.u;
    if (flow.target == next || takes_return_address(code_, flow.target)) {
      push(Value::constant(next));
      flow.kind = Flow::kJump;
      flow.is_call = true;
      return flow;
    }
  }
  return flow;
}

Flow X86Execution::jump() {
  const auto& to = operands_[0];
  if (to.type == ZYDIS_OPERAND_TYPE_IMMEDIATE) return {.kind = Flow::kJump, .target = path_.pc + to.imm.value.u};
  const Value target = value_of(to);
  if (to.type == ZYDIS_OPERAND_TYPE_MEMORY) {
    if (to.size != 64) return {.kind = Flow::kStop};
    if (const Value place = address_of(to); place.is_constant()) {  // a linkage table's slot
      Flow flow{.kind = Flow::kLeave};
      if (!code_.source().read(static_cast<std::uint64_t>(place.addend), &flow.target, sizeof flow.target))
        flow.target = 0;
      return flow;
    }
  }
  const Value& sp = state_[kRsp];
  // The return address, just popped.
  if (target.kind == Value::kMemory && target.addend == 0 && target.reg == kRsp && sp.kind == Value::kRegister &&
      sp.reg == kRsp && target.slot + 8 == sp.addend)
    return {.kind = Flow::kReturn, .value = target};
  return {.kind = Flow::kJumpTo, .value = target};
}

Flow X86Execution::branch() {
  const auto& to = operands_[0];
  if (to.type != ZYDIS_OPERAND_TYPE_IMMEDIATE) return {.kind = Flow::kStop};
  Flow flow{.kind = Flow::kBranch, .target = path_.pc + to.imm.value.u};
  if (info_.mnemonic == ZYDIS_MNEMONIC_JNZ) flow.value = path_.sp_if_equal;
  if (path_.compared == 0) return flow;
  switch (info_.mnemonic) {
    case ZYDIS_MNEMONIC_JNBE: path_.limit = path_.compared; break;
    case ZYDIS_MNEMONIC_JNB: path_.limit = path_.compared - 1; break;
    case ZYDIS_MNEMONIC_JBE: flow.limit = path_.compared; break;
    case ZYDIS_MNEMONIC_JB: flow.limit = path_.compared - 1; break;
    default: break;
  }
  return flow;
}

Flow X86Execution::return_to(std::uint64_t extra) {
  const Value address = pop();
  state_[kRsp] = state_[kRsp].plus(static_cast<std::int64_t>(extra));
  // What was pushed here is jumped to; but the return address itself may have been popped before and pushed again.
  const Value& sp = state_[kRsp];
  bool from_stack = false;
  if (address.kind == Value::kMemory)
    from_stack =
        Value::initial(address.reg).same_base(sp) || (sp.is_symbol() && (address.reg == kRsp || address.reg == kRbp));
  else if (address.kind == Value::kMemory2)
    from_stack = sp.kind == Value::kMemory && sp.reg == address.reg && sp.slot == address.slot;
  return {.kind = from_stack && address.addend == 0 ? Flow::kReturn : Flow::kJumpTo, .value = address};
}

// rt_sigreturn takes everything from the frame the kernel has made.
Flow X86Execution::system_call() {
  constexpr std::int64_t kSigreturn = 15;
  if (state_[kRax].is_constant() && state_[kRax].addend == kSigreturn) {
    const Value frame = state_[kRsp];
    Flow flow{.kind = Flow::kSignalReturn, .value = state_.load(frame.plus(x86_64::kSignalPc), 8)};
    std::int64_t at = x86_64::kSignalRegisters;
    for (const std::uint8_t reg : x86_64::kSignalOrder) state_[reg] = state_.load(frame.plus(at), 8), at += 8;
    return flow;
  }
  for (const unsigned reg : {kRax, kRcx, kR11}) state_[reg] = {};
  return {};
}

void X86Execution::note_frame_pointer(Flow& flow) const {
  constexpr std::int64_t kLargestLocal = 1 << 16, kLargestArgument = 256;
  for (unsigned i = 0; i < info_.operand_count; ++i) {
    const auto& operand = operands_[i];
    if (operand.type == ZYDIS_OPERAND_TYPE_MEMORY && operand.mem.base == ZYDIS_REGISTER_RBP &&
        operand.mem.index == ZYDIS_REGISTER_NONE && operand.mem.disp.has_displacement &&
        operand.mem.disp.value < kLargestArgument && operand.mem.disp.value > -kLargestLocal) {
      flow.uses_frame_pointer = true;
      flow.addresses_frame |= operand.mem.disp.value < 0;
    }
    if (operand.type == ZYDIS_OPERAND_TYPE_REGISTER && (operand.actions & ZYDIS_OPERAND_ACTION_MASK_WRITE) != 0 &&
        dwarf_number(operand.reg.value) == kRbp)
      flow.writes_frame_pointer = true;
  }
  if (info_.mnemonic == ZYDIS_MNEMONIC_LEAVE) flow.uses_frame_pointer = flow.addresses_frame = true;
  if (info_.mnemonic == ZYDIS_MNEMONIC_MOV) {
    if (is_register(operands_[0], ZYDIS_REGISTER_RSP) && is_register(operands_[1], ZYDIS_REGISTER_RBP))
      flow.uses_frame_pointer = flow.addresses_frame = true;
    if (is_register(operands_[0], ZYDIS_REGISTER_RBP) && is_register(operands_[1], ZYDIS_REGISTER_RSP))
      flow.sets_frame_pointer = true;
  }
}

// ---- one instruction ----------------------------------------------------------------------------------------------

Flow X86Execution::execute() {
  const auto& first = operands_[0];
  switch (info_.mnemonic) {
    case ZYDIS_MNEMONIC_RET: return return_to(first.type == ZYDIS_OPERAND_TYPE_IMMEDIATE ? first.imm.value.u : 0);
    case ZYDIS_MNEMONIC_JMP: return jump();
    case ZYDIS_MNEMONIC_CALL: return call();
    case ZYDIS_MNEMONIC_SYSCALL: return system_call();
    case ZYDIS_MNEMONIC_HLT: return {.kind = Flow::kHalt};
    case ZYDIS_MNEMONIC_UD0:
    case ZYDIS_MNEMONIC_UD1:
    case ZYDIS_MNEMONIC_UD2:
    case ZYDIS_MNEMONIC_INT3:
    case ZYDIS_MNEMONIC_IRET:
    case ZYDIS_MNEMONIC_IRETD:
    case ZYDIS_MNEMONIC_IRETQ:
    case ZYDIS_MNEMONIC_SYSEXIT:
    case ZYDIS_MNEMONIC_SYSRET: return {.kind = Flow::kStop};
    case ZYDIS_MNEMONIC_PUSH:
      if (info_.operand_width == 16) return {.kind = Flow::kStop};
      push(first.size == 64 || first.type == ZYDIS_OPERAND_TYPE_IMMEDIATE ? value_of(first) : Value());
      break;
    case ZYDIS_MNEMONIC_PUSHFQ: push({}); break;
    case ZYDIS_MNEMONIC_POP:
      if (info_.operand_width == 16) return {.kind = Flow::kStop};
      assign(first, pop());
      break;
    case ZYDIS_MNEMONIC_POPFQ: (void)pop(); break;
    case ZYDIS_MNEMONIC_ENTER: enter(); break;
    case ZYDIS_MNEMONIC_LEAVE:
      state_[kRsp] = state_[kRbp].known() ? state_[kRbp] : state_.fresh();
      state_[kRbp] = pop();
      break;
    case ZYDIS_MNEMONIC_MOV:
    case ZYDIS_MNEMONIC_LEA:
    case ZYDIS_MNEMONIC_MOVSXD: move(); break;
    case ZYDIS_MNEMONIC_XCHG: exchange(); break;
    case ZYDIS_MNEMONIC_ADD:
    case ZYDIS_MNEMONIC_SUB:
    case ZYDIS_MNEMONIC_INC:
    case ZYDIS_MNEMONIC_DEC:
    case ZYDIS_MNEMONIC_AND:
    case ZYDIS_MNEMONIC_XOR: arithmetic(); break;
    default:
      if (info_.category == ZYDIS_CATEGORY_COND_BR) return branch();
      forget_writes();
      break;
  }
  return {};
}

Flow X86Execution::run() {
  path_.pc += info_.length;
  Flow flow = execute();
  note_frame_pointer(flow);
  flow.padding = info_.mnemonic == ZYDIS_MNEMONIC_NOP;
  if (!state_[kRsp].known()) state_[kRsp] = state_.fresh();  // what is stored relative to it is still found again
  // Stack probes: `cmp rsp, r11` before `jne`; behind the loop they are equal.
  path_.sp_if_equal = {};
  if (info_.mnemonic == ZYDIS_MNEMONIC_CMP) {
    for (unsigned i = 0; i < 2; ++i)
      if (is_register(operands_[i], ZYDIS_REGISTER_RSP)) path_.sp_if_equal = value_of(operands_[1 - i]);
    const bool small = operands_[1].type == ZYDIS_OPERAND_TYPE_IMMEDIATE && operands_[1].imm.value.u < kLargestTable;
    path_.compared = small ? static_cast<std::uint32_t>(operands_[1].imm.value.u) + 1 : 0;
  }
  return flow;
}

}  // namespace

Flow X86_64::step(CodeReader& code, Path<X86_64>& path) {
  const X86Instruction* const instruction = decoder_.decode(code, path.pc);
  return instruction != nullptr ? X86Execution(*instruction, code, path).run() : Flow{.kind = Flow::kStop};
}

void X86_64::forget_by_call(SymbolicState<kSlots>& state, std::uint64_t kept) {
  take_back_record(state);
  for (const unsigned reg : {kRax, kRdx, kRcx, kRsi, kRdi, 8u, 9u, 10u, kR11})
    if ((kept >> reg & 1) == 0) state[reg] = {};
}

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
  if (!pushed.is_initial(x86_64::kRbp) && pushed.kind != Value::kMemory) return {};
  state[x86_64::kRbp] = pushed;
  sp = sp.plus(16);
  return return_address;
}

void X86_64::frame_pointer_row(std::uint64_t pc, FrameRow& row) {
  lay_out(row, pc, CfaRule::at(x86_64::kRbp, 16), RegisterRule::at_cfa(-8));
  for (const std::uint16_t reg : {3, 12, 13, 14, 15}) (void)row.registers.set(reg, RegisterRule::undefined());
  (void)row.registers.set(x86_64::kRbp, RegisterRule::at_cfa(-16));
}

bool X86_64::is_entry_row(const FrameRow& row) {
  if (row.cfa != CfaRule::at(x86_64::kRsp, 8)) return false;
  for (const RegisterEntry entry : row.registers)
    if (is_callee_saved(kArchitecture, entry.reg) && !entry.rule.is(RegisterRule::kSameValue)) return false;
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

bool X86_64::signal_trampoline(const CodeSource& source, std::uint64_t address) {
  return x86::at_signal_return(source.read, Architecture::kX86_64, address);
}

// Recognises, by the bytes before the pc:
// - a `syscall` with the number of rt_sigreturn just loaded;
// - a `ret` to an address just put on the stack, `mov [rsp], reg` (retpolines);
// - the end of a loop that probes the stack;
// - a record for the callee.
void X86_64::look_back(CodeReader& code, Path<X86_64>& path) {
  std::uint8_t bytes[4] = {};
  note_record_before(code, path);
  if (code.read(path.pc, bytes, 2) < 1) return;
  if (bytes[0] == 0xc3) {
    constexpr std::size_t kStore = 4;
    if (code.read(path.pc - kStore, bytes, kStore) == kStore && (bytes[0] & 0xfb) == 0x48 && bytes[1] == 0x89 &&
        (bytes[2] & 0xc7) == 0x04 && bytes[3] == 0x24)
      path.state.store(path.state[kRsp], 8, {});
    return;
  }
  if (bytes[0] == 0x75) {  // jne behind `cmp rsp, reg`, either way round
    constexpr std::size_t kCompare = 3;
    if (code.read(path.pc - kCompare, bytes, kCompare) != kCompare) return;
    const unsigned reg = (bytes[2] >> 3 & 7) | (bytes[0] & 4) << 1, rm = (bytes[2] & 7) | (bytes[0] & 1) << 3;
    if ((bytes[0] & 0xfa) == 0x48 && (bytes[1] == 0x39 || bytes[1] == 0x3b) && bytes[2] >> 6 == 3 &&
        (reg == 4) != (rm == 4))
      path.sp_if_equal = path.state[x86_64::kDwarfNumbers[reg == 4 ? rm : reg]];
    return;
  }
  if (!x86::is_syscall(bytes)) return;
  const auto read = [&](std::uint64_t address, std::uint8_t* to, std::size_t size) {
    return code.read(address, to, size) == size;
  };
  if (x86::behind_signal_return(read, Architecture::kX86_64, path.pc + x86::kSystemCallSize))
    path.state[kRax] = Value::constant(15);
}

namespace {

// push [rip + x]; jmp [rip + y]: what all stubs for lazy binding go through (psABI figure 5.2). `bnd` may stand before.
bool is_resolver_stub(CodeReader& code, std::uint64_t address) {
  std::uint8_t b[9] = {};
  if (code.read(address, b, sizeof b) != sizeof b || b[0] != 0xff || b[1] != 0x35) return false;
  return (b[6] == 0xff && b[7] == 0x25) || (b[6] == 0xf2 && b[7] == 0xff && b[8] == 0x25);
}

// jmp rel32 to the resolver stub, at `address`.
bool jumps_to_resolver(CodeReader& code, std::uint64_t address) {
  std::uint8_t b[6] = {};
  if (code.read(address, b, sizeof b) != sizeof b) return false;
  const unsigned prefix = b[0] == 0xf2 ? 1 : 0;
  if (b[prefix] != 0xe9) return false;
  std::int32_t distance = 0;
  std::memcpy(&distance, b + prefix + 1, sizeof distance);
  return is_resolver_stub(code, address + prefix + 5 + static_cast<std::uint64_t>(std::int64_t{distance}));
}

}  // namespace

// push index; jmp resolver stub; there: push link map; jmp resolver. The resolver takes both off again.
bool X86_64::linkage_stub(CodeReader& code, std::uint64_t pc, FrameRow& row) {
  constexpr std::uint64_t kPushIndex = 5, kPushMap = 6;
  std::uint8_t b[6] = {};
  if (code.read(pc, b, sizeof b) != sizeof b) return false;
  int words = -1;
  if (b[0] == 0x68 && jumps_to_resolver(code, pc + kPushIndex))
    words = 0;
  else if ((b[0] == 0xe9 || b[0] == 0xf2) && jumps_to_resolver(code, pc))
    words = 1;
  else if (b[0] == 0xff && b[1] == 0x35 && is_resolver_stub(code, pc))
    words = 1;
  else if ((b[0] == 0xff || b[0] == 0xf2) && is_resolver_stub(code, pc - kPushMap))
    words = 2;
  if (words < 0) return false;
  lay_out(row, pc, CfaRule::at(kRsp, 8 + 8 * words), RegisterRule::at_cfa(-8));
  return true;
}

void X86_64::entry_row(std::uint64_t pc, FrameRow& row) {
  lay_out(row, pc, CfaRule::at(kRsp, 8), RegisterRule::at_cfa(-8));
}

}  // namespace windlass::flow
