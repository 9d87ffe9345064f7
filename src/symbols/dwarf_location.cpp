#include "symbols/dwarf_location.h"

#include <dwarf.h>

#include <algorithm>
#include <cstring>
#include <span>

#include "formats/dwarf/operand_stack.h"

namespace windlass::symbols {
namespace {

// elfutils' budgets, which no real expression comes near.
constexpr std::size_t kMostSteps = 4096, kMostPieces = 64;

// A part of a value.
struct Piece {
  enum Kind : std::uint8_t { kNothing, kUnknown, kMemory, kRegister, kValue, kBytes };
  Kind kind = kNothing;
  std::uint64_t number = 0;  // an address, a register or the value
  const unsigned char* bytes = nullptr;
  std::size_t available = 0;  // of `bytes`
  std::size_t size = 0;       // 0: all of the value
};

using dwarf::Operand;
using dwarf::OperandType;
using dwarf::StackFault;

// Evaluates one expression.
class Evaluation {
 public:
  Evaluation(Dwarf_Attribute* attribute, std::span<const Dwarf_Op> ops, ExpressionFrame& frame, MemoryReads reads)
      : attribute_(attribute), ops_(ops), frame_(frame), reads_(reads), stack_(word_size()) {}

  std::vector<Piece> run_location() {
    const bool is_done = run_ops();
    if (!pieces_.empty() && is_done && !place_ && stack_.empty()) return pieces_;
    Piece whole;
    if (!is_done)
      whole.kind = failure_;
    else if (!pieces_.empty())
      whole.kind = Piece::kUnknown;  // something behind the last piece
    else
      whole = place();
    return {whole};
  }

 private:
  [[nodiscard]] unsigned word_size() const { return Registers::word_size(frame_.registers().architecture()); }

  bool fail_as(Piece::Kind kind) {
    failure_ = kind;
    return false;
  }
  bool unknown() { return fail_as(Piece::kUnknown); }
  bool push(std::optional<std::uint64_t> value, OperandType type = {}) {
    return (value && stack_.push(*value, type) == StackFault::kNone) || unknown();
  }
  std::uint64_t pop() { return stack_.take().value; }
  bool has(std::size_t count) { return stack_.size() >= count || unknown(); }

  // What the operations since the last piece describe.
  Piece place() {
    Piece found;
    if (place_) {
      found = *place_;
    } else if (!stack_.empty()) {
      found.kind = Piece::kMemory;
      found.number = stack_.top();
    }
    place_.reset();
    stack_.clear();
    return found;
  }

  std::optional<std::uint64_t> register_value(std::uint64_t reg) const {
    const Registers& registers = frame_.registers();
    if (!registers.has(reg)) return std::nullopt;
    return registers.get(reg);
  }

  bool run_ops() {
    std::size_t steps = 0;
    for (std::size_t i = 0; i < ops_.size(); ++i) {
      if (++steps > kMostSteps) return unknown();
      const Dwarf_Op& op = ops_[i];
      if (op.atom == DW_OP_skip || op.atom == DW_OP_bra) {
        if (op.atom == DW_OP_bra) {
          if (!has(1)) return false;
          if (pop() == 0) continue;
        }
        const Dwarf_Word target = op.offset + 3 + static_cast<std::int16_t>(op.number);
        const auto found = std::ranges::find(ops_, target, &Dwarf_Op::offset);
        if (found == ops_.end()) return unknown();
        i = static_cast<std::size_t>(found - ops_.begin()) - 1;
      } else if (!run_one(op)) {
        return false;
      }
    }
    return true;
  }

  bool run_one(const Dwarf_Op& op) {
    if (place_ && op.atom != DW_OP_piece && op.atom != DW_OP_bit_piece) return unknown();
    if (op.atom >= DW_OP_lit0 && op.atom <= DW_OP_lit31) return push(op.atom - DW_OP_lit0);
    if (op.atom >= DW_OP_reg0 && op.atom <= DW_OP_reg31) return set_register(op.atom - DW_OP_reg0);
    if (op.atom >= DW_OP_breg0 && op.atom <= DW_OP_breg31) return push_based(op.atom - DW_OP_breg0, op.number);
    switch (op.atom) {
      case DW_OP_addr: return push(op.number + frame_.bias());
      case DW_OP_addrx:
      case DW_OP_GNU_addr_index:
      case DW_OP_constx:
      case DW_OP_GNU_const_index: return push_indexed(op);
      case DW_OP_const1u:
      case DW_OP_const1s:
      case DW_OP_const2u:
      case DW_OP_const2s:
      case DW_OP_const4u:
      case DW_OP_const4s:
      case DW_OP_const8u:
      case DW_OP_const8s:
      case DW_OP_constu:
      case DW_OP_consts: return push(op.number);
      case DW_OP_regx: return set_register(op.number);
      case DW_OP_bregx: return push_based(op.number, op.number2);
      case DW_OP_fbreg: {
        const auto base = frame_.frame_base();
        return base ? push(*base + op.number) : unknown();
      }
      case DW_OP_call_frame_cfa: return push(frame_.cfa());
      case DW_OP_deref: return deref(word_size());
      case DW_OP_deref_size: return deref(op.number);
      case DW_OP_entry_value:
      case DW_OP_GNU_entry_value: return push_entry_value(op);
      case DW_OP_convert:
      case DW_OP_GNU_convert:
      case DW_OP_reinterpret:
      case DW_OP_GNU_reinterpret:
      case DW_OP_regval_type:
      case DW_OP_GNU_regval_type:
      case DW_OP_deref_type:
      case DW_OP_GNU_deref_type:
      case DW_OP_const_type:
      case DW_OP_GNU_const_type: return push_typed(op);
      case DW_OP_stack_value: return has(1) && set_place({.kind = Piece::kValue, .number = pop()});
      case DW_OP_implicit_value: return set_bytes(op);
      case DW_OP_implicit_pointer:
      case DW_OP_GNU_implicit_pointer: return set_place({});
      case DW_OP_piece: return end_piece(op.number);
      case DW_OP_bit_piece: return op.number % 8 == 0 && op.number2 == 0 ? end_piece(op.number / 8) : unknown();
      case DW_OP_nop: return true;
      default: return stack_.apply(op.atom, op.number) == StackFault::kNone || unknown();
    }
  }

  bool set_place(const Piece& piece) {
    place_ = piece;
    return true;
  }
  bool set_register(std::uint64_t reg) {
    if (!stack_.empty()) return unknown();
    return set_place({.kind = Piece::kRegister, .number = reg});
  }
  bool set_bytes(const Dwarf_Op& op) {
    Dwarf_Block block;
    if (dwarf_getlocation_implicit_value(attribute_, &op, &block) != 0) return unknown();
    return set_place({.kind = Piece::kBytes, .bytes = block.data, .available = block.length});
  }
  bool end_piece(std::uint64_t size) {
    if (size == 0 || pieces_.size() >= kMostPieces) return unknown();
    Piece piece = place();
    piece.size = size;
    pieces_.push_back(piece);
    return true;
  }

  bool push_based(std::uint64_t reg, std::uint64_t offset) {
    const auto base = register_value(reg);
    return base ? push(*base + offset) : unknown();
  }
  bool push_indexed(const Dwarf_Op& op) {
    Dwarf_Attribute at;
    Dwarf_Addr address = 0;
    if (dwarf_getlocation_attr(attribute_, &op, &at) != 0 || dwarf_formaddr(&at, &address) != 0) return unknown();
    const bool is_address = op.atom == DW_OP_addrx || op.atom == DW_OP_GNU_addr_index;
    return push(address + (is_address ? frame_.bias() : 0));
  }
  bool push_entry_value(const Dwarf_Op& op) {
    Dwarf_Attribute inner;
    if (dwarf_getlocation_attr(attribute_, &op, &inner) != 0) return unknown();
    const auto reg = only_register(&inner);
    if (!reg || !reg->is_bare) return unknown();
    const auto value = frame_.entry_value(reg->number);
    return value ? push(value) : fail_as(Piece::kNothing);
  }

  // Integers only. Type 0 of a conversion is the generic one.
  bool push_typed(const Dwarf_Op& op) {
    const bool converts = op.atom == DW_OP_convert || op.atom == DW_OP_GNU_convert;
    const bool reinterprets = op.atom == DW_OP_reinterpret || op.atom == DW_OP_GNU_reinterpret;
    std::optional<OperandType> type;
    Dwarf_Die die;
    if ((converts || reinterprets) && op.number == 0)
      type = OperandType{};
    else if (dwarf_getlocation_die(attribute_, &op, &die) == 0)
      type = type_of(die);
    if (!type) return unknown();
    if (converts || reinterprets) {
      if (!has(1)) return false;
      const Operand from = stack_.take();
      if (reinterprets && stack_.size_of(from.type) != stack_.size_of(*type)) return unknown();
      return push(from.value, *type);
    }
    if (op.atom == DW_OP_regval_type || op.atom == DW_OP_GNU_regval_type) return push(register_value(op.number), *type);
    if (op.atom == DW_OP_deref_type || op.atom == DW_OP_GNU_deref_type)
      return op.number == type->size ? deref(op.number, *type) : unknown();
    const auto* bytes =
        reinterpret_cast<const unsigned char*>(op.number2);  // as libdw gives them: the size, then these
    std::uint64_t value = 0;
    if (bytes == nullptr || bytes[0] != type->size) return unknown();
    std::memcpy(&value, bytes + 1, bytes[0]);
    return push(value, *type);
  }
  static std::optional<OperandType> type_of(Dwarf_Die& die) {
    Dwarf_Attribute memory;
    Dwarf_Word encoding = 0, size = 0;
    if (dwarf_tag(&die) != DW_TAG_base_type ||
        dwarf_formudata(dwarf_attr(&die, DW_AT_encoding, &memory), &encoding) != 0 ||
        dwarf_formudata(dwarf_attr(&die, DW_AT_byte_size, &memory), &size) != 0 || size == 0 || size > 8)
      return std::nullopt;
    const bool is_signed = encoding == DW_ATE_signed || encoding == DW_ATE_signed_char;
    const bool is_unsigned = encoding == DW_ATE_unsigned || encoding == DW_ATE_unsigned_char ||
                             encoding == DW_ATE_boolean || encoding == DW_ATE_UTF || encoding == DW_ATE_address;
    if (!is_signed && !is_unsigned) return std::nullopt;
    return OperandType{static_cast<std::uint8_t>(size), is_signed};
  }

  bool deref(std::uint64_t size, OperandType type = {}) {
    std::uint64_t value = 0;
    if (!has(1) || size == 0 || size > word_size() || reads_ == MemoryReads::kRefused) return unknown();
    if (!frame_.memory().read(pop(), &value, size)) return unknown();
    return push(value, type);
  }

  Dwarf_Attribute* attribute_;
  std::span<const Dwarf_Op> ops_;
  ExpressionFrame& frame_;
  MemoryReads reads_;
  dwarf::OperandStack stack_;
  std::optional<Piece> place_;
  std::vector<Piece> pieces_;
  Piece::Kind failure_ = Piece::kNothing;
};

// Adds the bytes of a piece.
Presence read_piece(const Piece& piece, std::size_t size, ExpressionFrame& frame, std::vector<std::byte>& to) {
  const Registers& registers = frame.registers();
  const std::size_t begin = to.size();
  to.resize(begin + size);
  switch (piece.kind) {
    case Piece::kNothing: return Presence::kOptimizedOut;
    case Piece::kUnknown: return Presence::kUnknown;
    case Piece::kMemory:
      return frame.memory().read(piece.number, to.data() + begin, size) ? Presence::kHere : Presence::kUnknown;
    case Piece::kBytes:
      if (piece.available < size) return Presence::kUnknown;
      std::memcpy(to.data() + begin, piece.bytes, size);
      return Presence::kHere;
    case Piece::kRegister:
      if (const auto wide = frame.vector_register(piece.number); !wide.empty() && size <= wide.size()) {
        std::memcpy(to.data() + begin, wide.data(), size);
        return Presence::kHere;
      }
      if (!registers.has(piece.number)) return Presence::kUnknown;
      [[fallthrough]];
    case Piece::kValue: break;
  }
  if (size > Registers::word_size(registers.architecture())) return Presence::kUnknown;
  const std::uint64_t value = piece.kind == Piece::kRegister ? registers.get(piece.number) : piece.number;
  std::memcpy(to.data() + begin, &value, size);
  return Presence::kHere;
}

std::span<const Dwarf_Op> ops_at(Dwarf_Attribute* attribute, Dwarf_Addr pc) {
  Dwarf_Op* ops = nullptr;
  std::size_t count = 0;
  if (attribute == nullptr || dwarf_getlocation_addr(attribute, pc, &ops, &count, 1) != 1) return {};
  return {ops, count};
}

}  // namespace

std::span<const std::byte> ExpressionFrame::vector_register(std::uint64_t reg) const {
  // x86-64: xmm0-15 in FXSAVE's area (Intel SDM volume 1, table 10-2). AArch64: v0-31 in user_fpsimd_state.
  constexpr std::size_t kSize = 16;
  const bool is_x86 = registers_.architecture() == Architecture::kX86_64;
  if (!is_x86 && registers_.architecture() != Architecture::kAArch64) return {};
  const std::uint64_t first = is_x86 ? 17 : 64, count = is_x86 ? 16 : 32, area = is_x86 ? 160 : 0;
  if (reg < first || reg >= first + count) return {};
  const std::size_t at = area + (reg - first) * kSize;
  return at + kSize <= vector_registers_.size() ? vector_registers_.subspan(at, kSize) : std::span<const std::byte>();
}

LocatedValue read_located(Dwarf_Attribute* location, Dwarf_Addr pc, std::size_t size, ExpressionFrame& frame) {
  LocatedValue value;
  const auto ops = ops_at(location, pc);
  if (ops.empty()) return value;
  const auto pieces = Evaluation(location, ops, frame, MemoryReads::kAllowed).run_location();
  for (const Piece& piece : pieces) {
    if (value.bytes.size() >= size) break;
    const std::size_t rest = size - value.bytes.size();
    value.presence = read_piece(piece, piece.size == 0 ? rest : std::min(rest, piece.size), frame, value.bytes);
    if (value.presence != Presence::kHere) return value;
  }
  if (value.bytes.size() != size) value.presence = Presence::kUnknown;
  return value;
}

std::optional<std::uint64_t> value_of(Dwarf_Attribute* expression, Dwarf_Addr pc, ExpressionFrame& frame,
                                      MemoryReads reads) {
  const auto ops = ops_at(expression, pc);
  if (ops.empty()) return std::nullopt;
  const auto pieces = Evaluation(expression, ops, frame, reads).run_location();
  const Piece& whole = pieces.front();
  if (pieces.size() != 1 || whole.size != 0) return std::nullopt;
  if (whole.kind == Piece::kRegister && frame.registers().has(whole.number)) return frame.registers().get(whole.number);
  // A value on the stack, which a location would take for an address.
  if (whole.kind == Piece::kMemory || whole.kind == Piece::kValue) return whole.number;
  return std::nullopt;
}

std::optional<NamedRegister> only_register(Dwarf_Attribute* expression) {
  Dwarf_Op* ops = nullptr;
  std::size_t count = 0;
  if (expression == nullptr || dwarf_getlocation(expression, &ops, &count) != 0 || count != 1) return std::nullopt;
  const Dwarf_Op& op = ops[0];
  if (op.atom >= DW_OP_reg0 && op.atom <= DW_OP_reg31) return NamedRegister{op.atom - std::uint64_t{DW_OP_reg0}, true};
  if (op.atom == DW_OP_regx) return NamedRegister{op.number, true};
  if (op.atom >= DW_OP_breg0 && op.atom <= DW_OP_breg31)
    return NamedRegister{op.atom - std::uint64_t{DW_OP_breg0}, op.number == 0};
  return std::nullopt;
}

}  // namespace windlass::symbols
