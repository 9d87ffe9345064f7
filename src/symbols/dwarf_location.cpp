#include "symbols/dwarf_location.h"

#include <dwarf.h>

#include <algorithm>
#include <cstring>
#include <span>

namespace windlass::symbols {
namespace {

// elfutils' budgets, which no real expression comes near.
constexpr std::size_t kMostSteps = 4096, kMostStack = 256, kMostPieces = 64;

// A part of a value.
struct Piece {
  enum Kind : std::uint8_t { kNothing, kUnknown, kMemory, kRegister, kValue, kBytes };
  Kind kind = kNothing;
  std::uint64_t number = 0;  // an address, a register or the value
  const unsigned char* bytes = nullptr;
  std::size_t available = 0;  // of `bytes`
  std::size_t size = 0;       // 0: all of the value
};

// Of a value on the stack. Size 0: the generic type, which is as wide as an address (DWARF 5 section 2.5.1).
struct OperandType {
  unsigned size = 0;
  bool is_signed = false;
};
// Sign- or zero-extended from its type to 64 bits.
struct Operand {
  std::uint64_t value = 0;
  OperandType type;
};

std::uint64_t extended(std::uint64_t value, OperandType type) {
  const unsigned unused = 64 - 8 * type.size;
  if (!type.is_signed) return value << unused >> unused;
  return static_cast<std::uint64_t>(static_cast<std::int64_t>(value << unused) >> unused);
}

// Evaluates one expression.
class Evaluation {
 public:
  Evaluation(Dwarf_Attribute* attribute, std::span<const Dwarf_Op> ops, ExpressionFrame& frame, MemoryReads reads)
      : attribute_(attribute), ops_(ops), frame_(frame), reads_(reads) {
    const unsigned size = word_size();
    mask_ = size == 8 ? ~std::uint64_t{0} : (std::uint64_t{1} << 8 * size) - 1;
  }

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
    if (!value || stack_.size() >= kMostStack) return unknown();
    stack_.push_back({type.size == 0 ? *value & mask_ : extended(*value, type), type});
    return true;
  }
  Operand take() {
    const Operand operand = stack_.back();
    stack_.pop_back();
    return operand;
  }
  std::uint64_t pop() { return take().value; }
  bool has(std::size_t count) { return stack_.size() >= count || unknown(); }

  // What the operations since the last piece describe.
  Piece place() {
    Piece found;
    if (place_) {
      found = *place_;
    } else if (!stack_.empty()) {
      found.kind = Piece::kMemory;
      found.number = stack_.back().value;
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
      default: return arithmetic(op);
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
      const Operand from = take();
      if (reinterprets && size_of(from.type) != size_of(*type)) return unknown();
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
  [[nodiscard]] unsigned size_of(OperandType type) const { return type.size == 0 ? word_size() : type.size; }
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
    return OperandType{static_cast<unsigned>(size), is_signed};
  }

  bool deref(std::uint64_t size, OperandType type = {}) {
    std::uint64_t value = 0;
    if (!has(1) || size == 0 || size > word_size() || reads_ == MemoryReads::kRefused) return unknown();
    if (!frame_.memory().read(pop(), &value, size)) return unknown();
    return push(value, type);
  }

  bool arithmetic(const Dwarf_Op& op) {
    switch (op.atom) {
      case DW_OP_dup: return has(1) && push_copy(0);
      case DW_OP_drop: return has(1) && (pop(), true);
      case DW_OP_over: return has(2) && push_copy(1);
      case DW_OP_pick: return op.number < kMostStack && has(op.number + 1) && push_copy(op.number);
      case DW_OP_swap:
        if (!has(2)) return false;
        std::swap(stack_.back(), stack_[stack_.size() - 2]);
        return true;
      case DW_OP_rot:
        if (!has(3)) return false;
        std::rotate(stack_.end() - 3, stack_.end() - 1, stack_.end());
        return true;
      case DW_OP_neg:
      case DW_OP_not:
      case DW_OP_abs:
      case DW_OP_plus_uconst: return has(1) && unary(op);
      default: return binary(op.atom);
    }
  }
  bool push_copy(std::uint64_t below_top) {
    const Operand operand = stack_[stack_.size() - 1 - below_top];
    return push(operand.value, operand.type);
  }
  bool unary(const Dwarf_Op& op) {
    const Operand operand = take();
    const std::uint64_t value = operand.value;
    switch (op.atom) {
      case DW_OP_neg: return push(-value, operand.type);
      case DW_OP_not: return push(~value, operand.type);
      case DW_OP_abs: return push(sign(operand) < 0 ? -value : value, operand.type);
      default: return push(value + op.number, operand.type);
    }
  }

  [[nodiscard]] std::int64_t sign(const Operand& operand) const {
    const bool is_short = operand.type.size == 0 && word_size() == 4;
    return is_short ? static_cast<std::int32_t>(operand.value) : static_cast<std::int64_t>(operand.value);
  }
  // The generic type stands for a signed one of its size: Clang multiplies a `long` by DW_OP_lit3, and so does GDB.
  [[nodiscard]] bool are_of_one_type(const Operand& a, const Operand& b) const {
    const auto is_signed = [](OperandType type) { return type.size == 0 || type.is_signed; };
    return size_of(a.type) == size_of(b.type) && is_signed(a.type) == is_signed(b.type);
  }

  bool binary(std::uint8_t atom) {
    if (!has(2)) return false;
    const Operand by = take(), of = take();
    const bool shifts = atom == DW_OP_shl || atom == DW_OP_shr || atom == DW_OP_shra;
    if (!shifts && !are_of_one_type(of, by)) return unknown();
    const OperandType type = of.type;
    const std::uint64_t left = of.value, right = by.value;
    const std::int64_t a = sign(of), b = sign(by);
    const bool is_unsigned = type.size != 0 && !type.is_signed;
    const unsigned bits = 8 * size_of(type);
    switch (atom) {
      case DW_OP_and: return push(left & right, type);
      case DW_OP_or: return push(left | right, type);
      case DW_OP_xor: return push(left ^ right, type);
      case DW_OP_plus: return push(left + right, type);
      case DW_OP_minus: return push(left - right, type);
      case DW_OP_mul: return push(left * right, type);
      case DW_OP_div:
        if (right == 0) return unknown();
        if (is_unsigned) return push(left / right, type);
        return push(b == -1 ? -left : static_cast<std::uint64_t>(a / b), type);
      case DW_OP_mod:
        if (right == 0) return unknown();
        if (!type.is_signed) return push(left % right, type);
        return push(b == -1 ? 0 : static_cast<std::uint64_t>(a % b), type);
      case DW_OP_shl: return push(right < bits ? left << right : 0, type);
      case DW_OP_shr: {
        const std::uint64_t unsigned_left = type.size == 0 ? left : extended(left, {type.size, false});
        return push(right < bits ? unsigned_left >> right : 0, type);
      }
      case DW_OP_shra: {
        const std::uint64_t signed_left =
            type.size == 0 ? static_cast<std::uint64_t>(a) : extended(left, {type.size, true});
        return push(static_cast<std::uint64_t>(static_cast<std::int64_t>(signed_left) >>
                                               std::min<std::uint64_t>(right, bits - 1)),
                    type);
      }
      default: return is_unsigned ? compare(atom, left, right) : compare(atom, a, b);
    }
  }
  // The result is of the generic type.
  template <typename Number>
  bool compare(std::uint8_t atom, Number a, Number b) {
    switch (atom) {
      case DW_OP_eq: return push(a == b);
      case DW_OP_ne: return push(a != b);
      case DW_OP_lt: return push(a < b);
      case DW_OP_le: return push(a <= b);
      case DW_OP_gt: return push(a > b);
      case DW_OP_ge: return push(a >= b);
      default: return unknown();
    }
  }

  Dwarf_Attribute* attribute_;
  std::span<const Dwarf_Op> ops_;
  ExpressionFrame& frame_;
  MemoryReads reads_;
  std::uint64_t mask_;
  std::vector<Operand> stack_;
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
