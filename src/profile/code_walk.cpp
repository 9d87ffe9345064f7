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
  bool own_fp = false;  // the path has written rbp
  bool called = false;  // the path has come past a call
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
  Walk(ReadTarget read, FindCode find_code) : read_(read), find_code_(find_code) {
    ZydisDecoderInit(&decoder_, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
  }

  int run(FrameRegisters& frame, bool& certain) {
    certain = false;
    Path path;
    path.registers = frame;
    paths_.push_back(std::move(path));
    unsigned budget = kMaxWalkInstructions;
    while (!paths_.empty()) {
      path = std::move(paths_.front());
      paths_.pop_front();
      for (bool on = true; on && budget > 0; --budget) {
        on = step(path);
        if (result_) {
          certain = !path.called;
          if (path.called && frame_base_used_) frame_pointer(frame);
          frame = pointed_ ? *pointed_ : *result_;
          return kCaller;
        }
        if (finished_) return WL_END_COMPLETE;
        on = on && seen_.insert(path.registers.value[kPc]).second;
        if (on && behind_call_) {
          if (paths_.size() < kMaxWalkPaths) paths_.push_back(std::move(path));
          behind_call_ = on = false;
        }
      }
      if (budget == 0) break;
    }
    if (!tail_) tail_ = setup_;
    if (!tail_ && (frame_base_used_ || left_alone(frame))) {
      frame_pointer(frame);
      tail_ = pointed_;
    }
    if (!tail_) return WL_END_BAD_FRAME_POINTER;
    frame = *tail_;
    return kCaller;
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

  // The caller, if `path` returned here.
  std::optional<FrameRegisters> caller(const Path& path, std::uint64_t address, std::uint64_t sp) {
    if (!is_return_address(address, read_, find_code_)) return std::nullopt;
    FrameRegisters caller = path.registers;
    caller.set(kRsp, sp);
    caller.set(kPc, address);
    caller.exact = false;
    caller.valid &= ~((1u << kRax) | (1u << kRdx) | (1u << kRcx) | (1u << kRsi) | (1u << kRdi) | (0xfu << 8));
    return caller;
  }

  bool returns(Path& path, std::uint64_t extra) {
    Value address;
    if (!pop(path, address) || !address) return false;
    if (*address == 0) {
      finished_ = true;
      return true;
    }
    result_ = caller(path, *address, path.registers.value[kRsp] + extra);
    return result_.has_value();
  }

  // A jump to an unknown place.
  void leaves(const Path& path) {
    const Value sp = get(path, kRsp);
    const Value address = sp && !tail_ ? load(path, *sp) : std::nullopt;
    if (address) tail_ = caller(path, *address, *sp + 8);
  }

  void frame_pointer(const FrameRegisters& frame) {
    constexpr std::uint64_t kMaxFrameSize = 1u << 30;
    if (!frame.has(kRbp) || !frame.has(kRsp)) return;
    const std::uint64_t fp = frame.value[kRbp];
    std::uint64_t pair[2];
    if (fp % 8 != 0 || fp < frame.value[kRsp] || fp - frame.value[kRsp] > kMaxFrameSize ||
        !read_(fp, pair, sizeof pair))
      return;
    Path path;
    path.registers.set(kRbp, pair[0]);
    pointed_ = caller(path, pair[1], fp + 16);
  }

  // `mov rbp, rsp` behind `push rbp`, on the way in.
  void sets_frame(const Path& path) {
    const Value sp = get(path, kRsp);
    if (!sp || setup_ || path.own_fp || path.called) return;
    const Value fp = load(path, *sp);
    const Value address = load(path, *sp + 8);
    if (!fp || !address || fp != get(path, kRbp)) return;
    Path entered = path;
    set(entered, kRbp, fp);
    setup_ = caller(entered, *address, *sp + 16);
  }

  // Generated code that neither touches rbp nor returns, and no return address on top.
  bool left_alone(const FrameRegisters& frame) {
    if (frame_base_changed_ || find_code_(frame.lookup_pc()) != CodeKind::kGenerated) return false;
    std::uint64_t top = 0;
    return frame.has(kRsp) && read_(frame.value[kRsp], &top, sizeof top) && !is_return_address(top, read_, find_code_);
  }

  // Does the instruction address its frame by rbp, or make sp of it?
  static bool uses_frame_base(const Instruction& instruction) {
    constexpr std::int64_t kLargestLocal = 1 << 16;
    for (unsigned i = 0; i < instruction.info.operand_count_visible; ++i) {
      const auto& operand = instruction.operands[i];
      if (operand.type == ZYDIS_OPERAND_TYPE_MEMORY && operand.mem.base == ZYDIS_REGISTER_RBP &&
          operand.mem.index == ZYDIS_REGISTER_NONE && operand.mem.disp.has_displacement &&
          operand.mem.disp.value < 256 && operand.mem.disp.value > -kLargestLocal)
        return true;
    }
    return instruction.info.mnemonic == ZYDIS_MNEMONIC_LEAVE ||
           (instruction.info.mnemonic == ZYDIS_MNEMONIC_MOV &&
            instruction.operands[0].type == ZYDIS_OPERAND_TYPE_REGISTER &&
            instruction.operands[0].reg.value == ZYDIS_REGISTER_RSP &&
            instruction.operands[1].type == ZYDIS_OPERAND_TYPE_REGISTER &&
            instruction.operands[1].reg.value == ZYDIS_REGISTER_RBP);
  }
  static bool writes_frame_base(const Instruction& instruction) {
    for (unsigned i = 0; i < instruction.info.operand_count; ++i) {
      const auto& operand = instruction.operands[i];
      if (operand.type == ZYDIS_OPERAND_TYPE_REGISTER && dwarf_number(operand.reg.value) == kRbp &&
          (operand.actions & ZYDIS_OPERAND_ACTION_MASK_WRITE))
        return true;
    }
    return false;
  }

  void branch(const Path& path, std::uint64_t target) {
    if (paths_.size() >= kMaxWalkPaths || !seen_.insert(target).second) return;
    paths_.push_front(path);
    paths_.front().registers.value[kPc] = target;
  }

  bool arithmetic(Path& path, const Instruction& instruction);
  bool jump(Path& path, const Instruction& instruction, bool conditional);
  bool step(Path& path);

  ReadTarget read_;
  FindCode find_code_;

  ZydisDecoder decoder_;
  std::deque<Path> paths_;
  std::unordered_set<std::uint64_t> seen_;
  std::optional<FrameRegisters> result_;   // by a ret
  std::optional<FrameRegisters> tail_;     // second best
  std::optional<FrameRegisters> setup_;    // third
  std::optional<FrameRegisters> pointed_;  // by rbp
  bool frame_base_used_ = false;
  bool frame_base_changed_ = false;
  bool behind_call_ = false;  // the instruction just run was one
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
  if (!target || !(find_code_(*target) != CodeKind::kNoCode)) {
    leaves(path);
    return false;
  }
  path.registers.value[kPc] = *target;
  return true;
}

bool Walk::step(Path& path) {
  Instruction instruction;
  const std::uint64_t pc = path.registers.value[kPc];
  if (find_code_(pc) == CodeKind::kNoCode || !decode(pc, instruction)) return false;
  const auto& operands = instruction.operands;
  const bool first = seen_.empty();
  if (!path.own_fp && uses_frame_base(instruction)) frame_base_used_ = true;
  const bool writes_fp = writes_frame_base(instruction);
  frame_base_changed_ |= writes_fp;
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
    case ZYDIS_MNEMONIC_CALL:
      after_call(path);
      behind_call_ = path.called = true;
      break;
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
    case ZYDIS_MNEMONIC_MOV:
      if (writes_fp && operands[1].type == ZYDIS_OPERAND_TYPE_REGISTER && operands[1].reg.value == ZYDIS_REGISTER_RSP)
        sets_frame(path);
      assign(path, instruction, operands[0], value_of(path, instruction, operands[1]));
      break;
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
  path.own_fp |= writes_fp;
  if (!path.registers.has(kRsp)) return false;
  path.registers.value[kPc] = pc + instruction.info.length;
  return true;
}

}  // namespace

bool is_return_address(std::uint64_t address, ReadTarget read, FindCode find_code) {
  const CodeKind kind = find_code(address - 1);
  if (kind != CodeKind::kFile) return kind == CodeKind::kGenerated;
  std::uint8_t code[7] = {};  // before the address
  if (!read(address - 7, code, sizeof code)) return true;
  if (code[2] == 0xe8) return true;                 // call rel32
  for (unsigned length = 2; length <= 7; ++length)  // ff /2: call r/m
    if (code[7 - length] == 0xff && (code[8 - length] >> 3 & 7) == 2) return true;
  return false;
}

int walk_code(FrameRegisters& frame, ReadTarget read, FindCode find_code, bool* certain) {
  bool unused = false;
  return Walk(read, find_code).run(frame, certain != nullptr ? *certain : unused);
}

}  // namespace windlass::profile
