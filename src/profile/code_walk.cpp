#include "profile/code_walk.h"

#include <Zydis/Zydis.h>

#include <algorithm>
#include <deque>
#include <optional>
#include <unordered_set>
#include <vector>

namespace windlass::profile {
namespace {

constexpr int kCaller = -1;
constexpr unsigned kRax = 0, kRdx = 1, kRcx = 2, kRsi = 4, kRdi = 5, kRbp = 6, kRsp = 7, kR11 = 11, kPc = 16;

// One way through the code: registers, and what it has pushed on top of the target's memory.
struct Path {
  FrameRegisters registers;
  struct Store {
    std::uint64_t address, value;
    bool known;
  };
  std::vector<Store> stores;
};

// DWARF number of the 64-bit register that contains `reg`; 17 for anything else.
unsigned dwarf_number(ZydisRegister reg) {
  static constexpr unsigned char kByEncoding[16] = {0, 2, 1, 3, 7, 6, 4, 5, 8, 9, 10, 11, 12, 13, 14, 15};
  const ZydisRegister whole = ZydisRegisterGetLargestEnclosing(ZYDIS_MACHINE_MODE_LONG_64, reg);
  if (whole < ZYDIS_REGISTER_RAX || whole > ZYDIS_REGISTER_R15) return 17;
  return kByEncoding[whole - ZYDIS_REGISTER_RAX];
}

struct Instruction {
  ZydisDecodedInstruction info;
  ZydisDecodedOperand operands[ZYDIS_MAX_OPERAND_COUNT];
};

class Walk {
 public:
  Walk(ReadTarget read, IsCode is_code) : read_(read), is_code_(is_code) {
    ZydisDecoderInit(&decoder_, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
  }

  int run(FrameRegisters& frame) {
    Path first;
    first.registers = frame;
    paths_.push_back(std::move(first));
    for (unsigned budget = kMaxWalkInstructions; budget > 0 && !paths_.empty(); --budget) {
      Path path = std::move(paths_.front());
      paths_.pop_front();
      if (!step(path)) continue;
      if (result_) {
        frame = *result_;
        return kCaller;
      }
      if (finished_) return WL_END_COMPLETE;
      if (paths_.size() < kMaxWalkPaths && seen_.insert(path.registers.value[kPc]).second)
        paths_.push_back(std::move(path));
    }
    return WL_END_BAD_FRAME_POINTER;
  }

 private:
  using Value = std::optional<std::uint64_t>;

  bool decode(std::uint64_t pc, Instruction& instruction) {
    std::uint8_t bytes[ZYDIS_MAX_INSTRUCTION_LENGTH] = {};
    std::size_t size = sizeof bytes;
    while (size > 0 && !read_(pc, bytes, size)) --size;  // the mapping may end within these bytes
    return size > 0 &&
           ZYAN_SUCCESS(ZydisDecoderDecodeFull(&decoder_, bytes, size, &instruction.info, instruction.operands));
  }

  static Value get(const Path& path, unsigned reg) {
    return path.registers.has(reg) ? Value(path.registers.value[reg]) : std::nullopt;
  }
  static void set(Path& path, unsigned reg, Value value) {
    if (reg > 16) return;
    if (value)
      path.registers.set(reg, *value);
    else
      path.registers.valid &= ~(1u << reg);
  }

  Value load(const Path& path, std::uint64_t address) {
    for (auto store = path.stores.rbegin(); store != path.stores.rend(); ++store)
      if (store->address == address) return store->known ? Value(store->value) : std::nullopt;
    std::uint64_t value = 0;
    return read_(address, &value, sizeof value) ? Value(value) : std::nullopt;
  }
  static void store(Path& path, std::uint64_t address, Value value) {
    constexpr std::size_t kMaxStores = 256;
    if (path.stores.size() < kMaxStores) path.stores.push_back({address, value.value_or(0), value.has_value()});
  }

  static Value address_of(const Path& path, const Instruction& instruction, const ZydisDecodedOperand& operand) {
    const auto& memory = operand.mem;
    if (memory.segment == ZYDIS_REGISTER_FS || memory.segment == ZYDIS_REGISTER_GS) return std::nullopt;
    std::uint64_t address = memory.disp.has_displacement ? static_cast<std::uint64_t>(memory.disp.value) : 0;
    if (memory.base == ZYDIS_REGISTER_RIP) {
      address += path.registers.value[kPc] + instruction.info.length;
    } else if (memory.base != ZYDIS_REGISTER_NONE) {
      const Value base = get(path, dwarf_number(memory.base));
      if (!base) return std::nullopt;
      address += *base;
    }
    if (memory.index != ZYDIS_REGISTER_NONE) {
      const Value index = get(path, dwarf_number(memory.index));
      if (!index) return std::nullopt;
      address += *index * memory.scale;
    }
    return address;
  }

  // The operand's value where it is 64 bits wide.
  Value value_of(const Path& path, const Instruction& instruction, const ZydisDecodedOperand& operand) {
    if (operand.type == ZYDIS_OPERAND_TYPE_IMMEDIATE) return static_cast<std::uint64_t>(operand.imm.value.s);
    if (operand.size != 64) return std::nullopt;
    if (operand.type == ZYDIS_OPERAND_TYPE_REGISTER) return get(path, dwarf_number(operand.reg.value));
    if (operand.type != ZYDIS_OPERAND_TYPE_MEMORY) return std::nullopt;
    const Value address = address_of(path, instruction, operand);
    return address ? load(path, *address) : std::nullopt;
  }

  void assign(Path& path, const Instruction& instruction, const ZydisDecodedOperand& to, Value value) {
    if (to.type == ZYDIS_OPERAND_TYPE_REGISTER) {
      set(path, dwarf_number(to.reg.value), to.size == 64 ? value : std::nullopt);
    } else if (to.type == ZYDIS_OPERAND_TYPE_MEMORY) {
      if (const Value address = address_of(path, instruction, to))
        store(path, *address, to.size == 64 ? value : std::nullopt);
    }
  }

  // Everything an instruction not modelled writes becomes unknown.
  void forget_writes(Path& path, const Instruction& instruction) {
    for (unsigned i = 0; i < instruction.info.operand_count; ++i) {
      const auto& operand = instruction.operands[i];
      if (operand.actions & ZYDIS_OPERAND_ACTION_MASK_WRITE) assign(path, instruction, operand, std::nullopt);
    }
  }

  static void after_call(Path& path) {
    for (const unsigned reg : {kRax, kRdx, kRcx, kRsi, kRdi, 8u, 9u, 10u, kR11}) set(path, reg, std::nullopt);
  }

  bool push(Path& path, Value value) {
    const Value sp = get(path, kRsp);
    if (!sp) return false;
    store(path, *sp - 8, value);
    set(path, kRsp, *sp - 8);
    return true;
  }
  bool pop(Path& path, Value& value) {
    const Value sp = get(path, kRsp);
    if (!sp) return false;
    value = load(path, *sp);
    set(path, kRsp, *sp + 8);
    return true;
  }

  bool returns(Path& path, std::uint64_t extra) {
    Value address;
    if (!pop(path, address) || !address) return false;
    if (*address == 0) {
      finished_ = true;
      return true;
    }
    // What the path itself pushed is a target computed on the way (a retpoline), not the caller.
    if (!is_return_address(*address, read_, is_code_)) return false;
    result_ = path.registers;
    result_->value[kRsp] += extra;
    result_->set(kPc, *address);
    result_->exact = false;
    result_->valid &= ~((1u << kRax) | (1u << kRdx) | (1u << kRcx) | (1u << kRsi) | (1u << kRdi) | (0xfu << 8));
    return true;
  }

  void branch(const Path& path, std::uint64_t target) {
    if (paths_.size() >= kMaxWalkPaths || !seen_.insert(target).second) return;
    paths_.push_back(path);
    paths_.back().registers.value[kPc] = target;
  }

  bool arithmetic(Path& path, const Instruction& instruction);
  bool jump(Path& path, const Instruction& instruction, bool conditional);
  bool step(Path& path);

  ReadTarget read_;
  IsCode is_code_;
  ZydisDecoder decoder_;
  std::deque<Path> paths_;
  std::unordered_set<std::uint64_t> seen_;
  std::optional<FrameRegisters> result_;
  bool finished_ = false;
};

bool Walk::arithmetic(Path& path, const Instruction& instruction) {
  const auto& to = instruction.operands[0];
  const Value left = value_of(path, instruction, to);
  const Value right = value_of(path, instruction, instruction.operands[1]);
  Value value;
  const bool same = to.type == ZYDIS_OPERAND_TYPE_REGISTER &&
                    instruction.operands[1].type == ZYDIS_OPERAND_TYPE_REGISTER &&
                    to.reg.value == instruction.operands[1].reg.value;
  switch (instruction.info.mnemonic) {
    case ZYDIS_MNEMONIC_ADD:
      if (left && right) value = *left + *right;
      break;
    case ZYDIS_MNEMONIC_SUB:
      if (left && right) value = *left - *right;
      break;
    case ZYDIS_MNEMONIC_AND:
      if (left && right) value = *left & *right;
      break;
    default:  // XOR
      if (same) value = 0;
      break;
  }
  if (same && instruction.info.mnemonic == ZYDIS_MNEMONIC_XOR)
    set(path, dwarf_number(to.reg.value), value);  // xor ebp, ebp clears all 64 bits
  else
    assign(path, instruction, to, value);
  return true;
}

bool Walk::jump(Path& path, const Instruction& instruction, bool conditional) {
  const std::uint64_t next = path.registers.value[kPc] + instruction.info.length;
  const auto& to = instruction.operands[0];
  if (to.type == ZYDIS_OPERAND_TYPE_IMMEDIATE) {
    const std::uint64_t target = next + static_cast<std::uint64_t>(to.imm.value.s);
    if (conditional) branch(path, target);
    path.registers.value[kPc] = conditional ? next : target;
    return true;
  }
  const Value target = value_of(path, instruction, to);  // through a linkage table, say
  if (!target || !is_code_(*target)) return false;
  path.registers.value[kPc] = *target;
  return true;
}

bool Walk::step(Path& path) {
  Instruction instruction;
  const std::uint64_t pc = path.registers.value[kPc];
  if (!is_code_(pc) || !decode(pc, instruction)) return false;
  const auto& operands = instruction.operands;
  const bool first = seen_.empty();
  switch (instruction.info.mnemonic) {
    case ZYDIS_MNEMONIC_RET:
      return returns(path, operands[0].type == ZYDIS_OPERAND_TYPE_IMMEDIATE ? operands[0].imm.value.u : 0);
    case ZYDIS_MNEMONIC_HLT:
      // Behind the call of a frame that must not return: _start.
      finished_ = first && !path.registers.exact;
      return finished_;
    case ZYDIS_MNEMONIC_UD0:
    case ZYDIS_MNEMONIC_UD1:
    case ZYDIS_MNEMONIC_UD2:
    case ZYDIS_MNEMONIC_INT3:
    case ZYDIS_MNEMONIC_IRETQ:
    case ZYDIS_MNEMONIC_ENTER: return false;
    case ZYDIS_MNEMONIC_JMP: return jump(path, instruction, false);
    case ZYDIS_MNEMONIC_CALL: after_call(path); break;
    case ZYDIS_MNEMONIC_SYSCALL:
      for (const unsigned reg : {kRax, kRcx, kR11}) set(path, reg, std::nullopt);
      break;
    case ZYDIS_MNEMONIC_PUSH:
      if (operands[0].size != 64 && operands[0].type != ZYDIS_OPERAND_TYPE_IMMEDIATE) return false;
      if (!push(path, value_of(path, instruction, operands[0]))) return false;
      break;
    case ZYDIS_MNEMONIC_PUSHFQ:
      if (!push(path, std::nullopt)) return false;
      break;
    case ZYDIS_MNEMONIC_POP:
    case ZYDIS_MNEMONIC_POPFQ: {
      Value value;
      if (!pop(path, value)) return false;
      if (instruction.info.mnemonic == ZYDIS_MNEMONIC_POP) assign(path, instruction, operands[0], value);
      break;
    }
    case ZYDIS_MNEMONIC_LEAVE: {
      Value value;
      set(path, kRsp, get(path, kRbp));
      if (!pop(path, value)) return false;
      set(path, kRbp, value);
      break;
    }
    case ZYDIS_MNEMONIC_MOV: assign(path, instruction, operands[0], value_of(path, instruction, operands[1])); break;
    case ZYDIS_MNEMONIC_LEA: assign(path, instruction, operands[0], address_of(path, instruction, operands[1])); break;
    case ZYDIS_MNEMONIC_ADD:
    case ZYDIS_MNEMONIC_SUB:
    case ZYDIS_MNEMONIC_AND:
    case ZYDIS_MNEMONIC_XOR: arithmetic(path, instruction); break;
    default:
      if (instruction.info.meta.category == ZYDIS_CATEGORY_COND_BR) return jump(path, instruction, true);
      forget_writes(path, instruction);
      break;
  }
  if (!path.registers.has(kRsp)) return false;
  path.registers.value[kPc] = pc + instruction.info.length;
  return true;
}

}  // namespace

bool is_return_address(std::uint64_t address, ReadTarget read, IsCode is_code) {
  if (!is_code(address - 1)) return false;
  std::uint8_t code[7] = {};  // before the address
  if (!read(address - 7, code, sizeof code)) return true;
  if (code[2] == 0xe8) return true;                 // call rel32
  for (unsigned length = 2; length <= 7; ++length)  // ff /2: call r/m
    if (code[7 - length] == 0xff && (code[8 - length] >> 3 & 7) == 2) return true;
  return false;
}

int walk_code(FrameRegisters& frame, ReadTarget read, IsCode is_code) { return Walk(read, is_code).run(frame); }

}  // namespace windlass::profile
