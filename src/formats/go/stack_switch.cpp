#include "formats/go/stack_switch.h"

#include <Zydis/Zydis.h>

#include <array>

#include "base/registers.h"
#include "base/x86_64_operand.h"

namespace windlass::runtimes::go {
namespace {

constexpr unsigned kRegisters = 16;

struct Instruction {
  ZydisDecodedInstruction info;
  ZydisDecodedOperand operands[ZYDIS_MAX_OPERAND_COUNT];
  std::uint64_t address = 0, next = 0;

  // The 64-bit register that an operand is; kNoDwarfNumber: none.
  [[nodiscard]] unsigned reg(unsigned i) const {
    if (i >= info.operand_count || operands[i].type != ZYDIS_OPERAND_TYPE_REGISTER || operands[i].size != 64)
      return x86_64::kNoDwarfNumber;
    return x86_64::dwarf_number(operands[i].reg.value);
  }
  [[nodiscard]] bool is_move() const { return info.mnemonic == ZYDIS_MNEMONIC_MOV && info.operand_width == 64; }
  [[nodiscard]] const ZydisDecodedOperandMem* memory(unsigned i) const {
    const bool is = operands[i].type == ZYDIS_OPERAND_TYPE_MEMORY && operands[i].mem.index == ZYDIS_REGISTER_NONE;
    return is ? &operands[i].mem : nullptr;
  }
  [[nodiscard]] bool writes(unsigned number) const {
    for (unsigned i = 0; i < info.operand_count; ++i)
      if (operands[i].type == ZYDIS_OPERAND_TYPE_REGISTER &&
          (operands[i].actions & ZYDIS_OPERAND_ACTION_MASK_WRITE) != 0 &&
          x86_64::dwarf_number(operands[i].reg.value) == number)
        return true;
    return false;
  }
  // Where a branch or jump goes; 0: none, or not known.
  [[nodiscard]] std::uint64_t target() const {
    const bool jumps = info.meta.category == ZYDIS_CATEGORY_COND_BR || info.meta.category == ZYDIS_CATEGORY_UNCOND_BR;
    return jumps && operands[0].type == ZYDIS_OPERAND_TYPE_IMMEDIATE ? next + operands[0].imm.value.u : 0;
  }
  [[nodiscard]] bool falls_through() const {
    return info.meta.category != ZYDIS_CATEGORY_UNCOND_BR && info.meta.category != ZYDIS_CATEGORY_RET &&
           info.meta.category != ZYDIS_CATEGORY_INTERRUPT && info.mnemonic != ZYDIS_MNEMONIC_UD2;
  }
};

void for_each_instruction(ByteView code, std::uint64_t address, FunctionRef<void(const Instruction&)> each) {
  ZydisDecoder decoder;
  ZydisDecoderInit(&decoder, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
  Instruction at;
  for (std::uint64_t done = 0; done < code.size(); done += at.info.length) {
    if (!ZYAN_SUCCESS(ZydisDecoderDecodeFull(&decoder, code.data() + done, code.size() - done, &at.info, at.operands)))
      return;
    at.address = address + done, at.next = at.address + at.info.length;
    each(at);
  }
}

// Registers that calls by C's convention preserve. Go keeps its stack pointer in one of these during the call. Go
// preserves the frame pointer, too: cgocallback leaves it in the frame that C called.
bool outlives_calls(unsigned reg) { return reg < kRegisters && is_callee_saved(Architecture::kX86_64, reg); }

class Places {
 public:
  Places(std::uint64_t begin, bool by_thread, const std::optional<dwarf::MovableStack>& kept, DepthAt depth,
         PlaceSink sink)
      : by_thread_(by_thread), kept_(kept), depth_(depth), sink_(sink), first_(begin) {}

  void see(const Instruction& at) {
    enter(at.address);
    const StackPlace before = now_;
    follow(at);
    if (const std::uint64_t target = at.target(); target != 0) remember(target);
    if (!at.falls_through()) now_ = {};
    if (now_ != before) tell(before, at.next);
  }
  void end(std::uint64_t address) { tell(now_, address); }

 private:
  void enter(std::uint64_t address) {
    for (unsigned i = 0; i < remembered_; ++i)
      if (targets_[i].address == address && now_ == StackPlace{} && targets_[i].place != now_) {
        tell(now_, address);
        now_ = targets_[i].place;
      }
  }
  void remember(std::uint64_t target) {
    if (remembered_ < targets_.size()) targets_[remembered_++] = {target, now_};
  }
  void tell(const StackPlace& place, std::uint64_t end) {
    if (end > first_) sink_(first_, end, place);
    first_ = end;
  }
  // On the own stack.
  [[nodiscard]] std::int32_t cfa_offset(std::uint64_t address) const { return depth_(address) + now_.offset + 8; }

  void follow(const Instruction& at) {
    const auto copied = now_.kind == StackPlace::kOwn ? copy_of_sp(at) : std::nullopt;
    const std::int32_t above = copied ? cfa_offset(at.address) - *copied : 0;
    if (now_.kind == StackPlace::kUnknown && at.is_move() && at.memory(0) != nullptr)
      store(at);
    else if (now_.kind == StackPlace::kOther && kept_ && stores_at(at, kept_->depth))
      now_.kind = StackPlace::kKept;
    else if (now_.kind == StackPlace::kCopied && at.writes(now_.reg))
      now_ = {now_.reg == x86_64::kRbp ? StackPlace::kOwn : StackPlace::kUnknown};  // rbp: in the epilogue
    else if (at.writes(x86_64::kRsp))
      set(at);
    for (unsigned reg = 0; reg < kRegisters; ++reg)
      if (at.writes(reg)) copies_[reg].reset();
    if (copied && at.reg(0) < kRegisters) copies_[at.reg(0)] = above;
  }
  // What is added to rsp by mov reg, rsp or lea reg, [rsp + offset].
  [[nodiscard]] static std::optional<std::int32_t> copy_of_sp(const Instruction& at) {
    if (at.is_move() && at.reg(1) == x86_64::kRsp) return 0;
    const bool sum =
        at.info.mnemonic == ZYDIS_MNEMONIC_LEA && at.memory(1) != nullptr && at.memory(1)->base == ZYDIS_REGISTER_RSP;
    return sum ? std::optional(static_cast<std::int32_t>(at.memory(1)->disp.value)) : std::nullopt;
  }
  [[nodiscard]] static bool stores_at(const Instruction& at, std::uint64_t slot) {
    return at.is_move() && at.memory(0) != nullptr && at.memory(0)->base == ZYDIS_REGISTER_RSP &&
           static_cast<std::uint64_t>(at.memory(0)->disp.value) == slot;
  }
  // Of a copy, on a stack that has been aligned.
  void store(const Instruction& at) {
    const ZydisDecodedOperandMem& memory = *at.memory(0);
    const unsigned from = at.reg(1);
    if (memory.base == ZYDIS_REGISTER_RSP && from < kRegisters && copies_[from])
      now_ = {StackPlace::kStored, 0, static_cast<std::int32_t>(memory.disp.value), *copies_[from]};
  }
  // rsp, other than by what the table counts.
  void set(const Instruction& at) {
    const bool moved = at.is_move();
    if (now_.kind == StackPlace::kStored && !moved) {
      now_.slot += depth_(at.next) - depth_(at.address) + uncounted(at);
    } else if (now_.kind == StackPlace::kCopied) {
      if (moved && at.reg(1) == now_.reg) now_ = {};
    } else if (now_.kind != StackPlace::kOwn) {
      if (moved) now_ = {};
    } else if (moved || at.info.mnemonic == ZYDIS_MNEMONIC_AND) {
      leave(at.address, moved);
    } else {
      now_.offset += uncounted(at);
    }
  }
  // Bytes that an addition takes off rsp without being counted in the table: Go's assembler counts those of its own.
  [[nodiscard]] std::int32_t uncounted(const Instruction& at) const {
    const bool adds = at.info.mnemonic == ZYDIS_MNEMONIC_ADD, subtracts = at.info.mnemonic == ZYDIS_MNEMONIC_SUB;
    if ((!adds && !subtracts) || at.operands[1].type != ZYDIS_OPERAND_TYPE_IMMEDIATE ||
        depth_(at.next) != depth_(at.address))
      return 0;
    const auto size = static_cast<std::int32_t>(at.operands[1].imm.value.s);
    return adds ? -size : size;
  }
  void leave(std::uint64_t address, bool moved) {
    const std::int32_t depth = depth_(address) + now_.offset;
    now_ = {StackPlace::kUnknown};
    if (moved && by_thread_) now_ = {StackPlace::kOther, 0, 0, 0, depth};
    for (unsigned reg = 0; reg < kRegisters; ++reg)
      if (copies_[reg] && outlives_calls(reg) && (reg != x86_64::kRbp || !by_thread_))
        now_ = {StackPlace::kCopied, static_cast<RegisterNumber>(reg), 0, *copies_[reg]};
  }

  struct Target {
    std::uint64_t address;
    StackPlace place;
  };
  bool by_thread_;
  std::optional<dwarf::MovableStack> kept_;
  DepthAt depth_;
  PlaceSink sink_;
  StackPlace now_;
  std::uint64_t first_;                                           // that has not been told of
  std::array<std::optional<std::int32_t>, kRegisters> copies_{};  // of rsp: CFA - copy
  std::array<Target, 16> targets_{};
  unsigned remembered_ = 0;
};

// What a register holds: the address that follows from the thread's pointer by loads at these offsets, or a constant,
// or what a variable has. Where the pointer is in a slot of Windows' TEB, it is known without a load.
struct Loads {
  unsigned count = 0;
  std::array<std::int64_t, 4> offsets{};
  std::optional<std::int64_t> constant;
  dwarf::ThreadSlot slot{};
  std::uint64_t variable = 0;  // its address
};

class WayBack {
 public:
  void see(const Instruction& at) {
    Loads value;
    const unsigned to = at.reg(0);
    if (at.is_move()) value = value_of(at);
    if (at.is_move() && to == x86_64::kRsp) {
      if (left_ && value.count == 4) found_ = value;
      left_ = true;  // the way there may be as many loads
    }
    if (at.info.meta.category == ZYDIS_CATEGORY_CALL) known_ = {};
    for (unsigned reg = 0; reg < kRegisters; ++reg)
      if (at.writes(reg)) known_[reg] = {};
    if (at.is_move() && to < kRegisters) known_[to] = value;
  }
  [[nodiscard]] const std::optional<Loads>& found() const { return found_; }

 private:
  [[nodiscard]] Loads value_of(const Instruction& at) const {
    if (at.operands[1].type == ZYDIS_OPERAND_TYPE_IMMEDIATE) return {0, {}, at.operands[1].imm.value.s};
    if (const unsigned from = at.reg(1); from < kRegisters) return known_[from];
    const ZydisDecodedOperandMem* const memory = at.memory(1);
    if (memory == nullptr) return {};
    const unsigned base = x86_64::dwarf_number(memory->base);
    if (memory->segment == ZYDIS_REGISTER_FS) return thread_value(*memory, base);
    if (memory->segment == ZYDIS_REGISTER_GS) return slot_value(*memory, base);
    if (memory->base == ZYDIS_REGISTER_RIP)
      return variable_value(at.next + static_cast<std::uint64_t>(memory->disp.value));
    const bool is_way = base < kRegisters && (known_[base].count != 0 || known_[base].slot.used());
    if (!is_way || known_[base].count == 4) return {};
    Loads value = known_[base];
    value.offsets[value.count++] = memory->disp.value;
    return value;
  }
  [[nodiscard]] Loads thread_value(const ZydisDecodedOperandMem& memory, unsigned base) const {
    if (memory.base == ZYDIS_REGISTER_NONE) return {1, {memory.disp.value}, {}};
    if (base >= kRegisters || !known_[base].constant) return {};
    return {1, {*known_[base].constant + memory.disp.value}, {}};
  }

  static Loads variable_value(std::uint64_t address) {
    Loads value;
    value.variable = address;
    return value;
  }
  // [gs + constant], or [gs + what a variable has].
  [[nodiscard]] Loads slot_value(const ZydisDecodedOperandMem& memory, unsigned base) const {
    Loads value;
    if (memory.base == ZYDIS_REGISTER_NONE)
      value.slot.offset = static_cast<std::uint64_t>(memory.disp.value);
    else if (base < kRegisters && memory.disp.value == 0)
      value.slot.variable = known_[base].variable;
    return value;
  }

  std::array<Loads, kRegisters> known_{};
  bool left_ = false;  // the stack it was called on
  std::optional<Loads> found_;
};

// rsp = [owner + top] - [rsp + depth], where the owner is [rsp + ...].
class KeptStack {
 public:
  void see(const Instruction& at) {
    Value value;
    const unsigned to = at.reg(0);
    const ZydisDecodedOperandMem* const memory = at.memory(1);
    if (at.is_move() && to == x86_64::kRsp && at.reg(1) < kRegisters && values_[at.reg(1)].step == kBack)
      found_ = values_[at.reg(1)].stack;
    if (to < kRegisters && memory != nullptr && memory->disp.value >= 0 && memory->segment != ZYDIS_REGISTER_FS)
      value = value_of(at, x86_64::dwarf_number(memory->base), static_cast<std::uint64_t>(memory->disp.value));
    if (at.info.meta.category == ZYDIS_CATEGORY_CALL) values_ = {};
    for (unsigned reg = 0; reg < kRegisters; ++reg)
      if (at.writes(reg)) values_[reg] = {};
    if (to < kRegisters) values_[to] = value;
  }
  [[nodiscard]] const std::optional<dwarf::MovableStack>& found() const { return found_; }

 private:
  enum Step : std::uint8_t { kNothing, kOwner, kTop, kBack };
  struct Value {
    Step step = kNothing;
    dwarf::MovableStack stack;
  };
  [[nodiscard]] Value value_of(const Instruction& at, unsigned base, std::uint64_t offset) const {
    const Value& before = values_[at.reg(0)];
    if (at.is_move() && base == x86_64::kRsp) return {kOwner, {offset, 0, 0, 0}};
    if (at.is_move() && base < kRegisters && values_[base].step == kOwner)
      return {kTop, {values_[base].stack.owner, offset, 0, 0}};
    if (at.info.mnemonic == ZYDIS_MNEMONIC_SUB && base == x86_64::kRsp && before.step == kTop)
      return {kBack, {before.stack.owner, before.stack.top, offset, 0}};
    return {};
  }

  std::array<Value, kRegisters> values_{};
  std::optional<dwarf::MovableStack> found_;
};

}  // namespace

void for_each_place(ByteView code, std::uint64_t address, bool by_thread, DepthAt depth, PlaceSink place) {
  const auto kept = by_thread ? find_kept_stack(code, address) : std::nullopt;
  Places places(address, by_thread, kept, depth, place);
  const auto see = [&](const Instruction& at) { places.see(at); };
  for_each_instruction(code, address, see);
  places.end(address + code.size());
}

std::optional<dwarf::SwitchedStack> find_way_back(ByteView systemstack, std::uint64_t address) {
  WayBack reader;
  const auto see = [&](const Instruction& at) { reader.see(at); };
  for_each_instruction(systemstack, address, see);
  if (!reader.found()) return std::nullopt;
  const auto& offsets = reader.found()->offsets;
  dwarf::SwitchedStack way{offsets[0], {}, 0};
  way.slot = reader.found()->slot;
  for (unsigned i = 1; i < 4; ++i) {
    if (offsets[i] < 0) return std::nullopt;
    way.offsets[i - 1] = static_cast<std::uint64_t>(offsets[i]);
  }
  return way;
}

std::optional<dwarf::MovableStack> find_kept_stack(ByteView asmcgocall, std::uint64_t address) {
  KeptStack reader;
  const auto see = [&](const Instruction& at) { reader.see(at); };
  for_each_instruction(asmcgocall, address, see);
  return reader.found();
}

}  // namespace windlass::runtimes::go
