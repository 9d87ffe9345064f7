// One A64 instruction, executed on symbolic registers.
#include "base/aarch64_signal_frame.h"
#include "base/registers.h"
#include "flow/aarch64.h"
#include "flow/aarch64_encoding.h"

namespace windlass::flow {
namespace {

using a64::Word;

constexpr unsigned kZero = 31;             // as a general register of most instructions
constexpr unsigned kFirstVectorSlot = 36;  // Registers::slot_of(d8)
constexpr std::int64_t kRtSigreturn = 139, kExit = 93, kExitGroup = 94;

class A64Execution {
 public:
  A64Execution(Word word, Path<AArch64>& path) : word_(word), path_(path), state_(path.state) {}
  Flow run();

 private:
  using State = SymbolicState<AArch64::kSlots>;

  [[nodiscard]] Value x(unsigned n) const { return n == kZero ? Value::constant(0) : state_[n]; }
  [[nodiscard]] Value x_or_sp(unsigned n) const { return state_[n]; }
  void set_x(unsigned n, const Value& value) {
    if (n != kZero) set_x_or_sp(n, value);
  }
  void set_x_or_sp(unsigned n, const Value& value) {
    state_[n] = value;
    if (n == aarch64::kX29) flow_.writes_frame_pointer = true;
  }
  [[nodiscard]] Value d(unsigned n) const { return n >= 8 && n <= 15 ? state_[kFirstVectorSlot + n - 8] : Value(); }
  void set_d(unsigned n, const Value& value) {
    n &= 31;
    if (n >= 8 && n <= 15) state_[kFirstVectorSlot + n - 8] = value;
  }
  // What is left of a value that becomes 32 bits wide.
  [[nodiscard]] Value narrowed(const Value& value) const {
    if (word_.wide()) return value;
    return value.is_constant() ? Value::constant(static_cast<std::uint32_t>(value.addend)) : Value();
  }

  void immediate();
  void add_immediate();
  void move_wide();
  void data_register();
  void add_register();
  [[nodiscard]] Value sum(const Value& left, Value right, unsigned shift, bool subtract) const;
  void vector();

  void load_or_store();
  void pair();
  void single();
  void indexed_single(unsigned size, bool load);
  void exclusive();
  void vector_structure();
  void transfer(bool is_vector, unsigned reg, const Value& address, unsigned size, bool load, bool sign_extends);
  void write_back(const Value& address);
  [[nodiscard]] Value base();

  void branch_or_system();
  void branch_register();
  void note_limit();
  void system_call();

  Word word_;
  Path<AArch64>& path_;
  State& state_;
  Flow flow_;
  std::uint64_t pc_ = 0;
};

Flow A64Execution::run() {
  pc_ = path_.pc;
  path_.pc += 4;
  if (word_.bits >> 16 == 0) return {.kind = Flow::kStop};  // udf
  if (word_.is_immediate())
    immediate();
  else if (word_.is_branch_or_system())
    branch_or_system();
  else if (word_.is_load_store())
    load_or_store();
  else if (word_.is_register())
    data_register();
  else if (word_.is_vector())
    vector();
  else if (word_.is_scalable()) {
    // addvl, addpl: a number of bytes that only the machine knows. All others may count into a register at most.
    if (word_.is(0xffa0'f800, 0x0420'5000))
      set_x_or_sp(word_.rd(), {});
    else
      set_x(word_.rd(), {});
    set_d(word_.rd(), {});
  } else {
    flow_.kind = Flow::kStop;
  }
  return flow_;
}

// ---- data processing ----------------------------------------------------------------------------------------------

void A64Execution::immediate() {
  switch (word_.field(23, 3)) {
    case 0:
    case 1: {  // adr, adrp
      const std::int64_t offset = word_.signed_field(5, 19) * 4 + word_.field(29, 2);
      set_x(word_.rd(),
            Value::constant(word_.wide() ? (pc_ & ~std::uint64_t{0xfff}) + static_cast<std::uint64_t>(offset * 4096)
                                         : pc_ + static_cast<std::uint64_t>(offset)));
      return;
    }
    case 2: add_immediate(); return;
    case 3: {  // addg, subg: the address moves, and its tag is the hardware's business
      const std::int64_t offset = std::int64_t{word_.field(16, 6)} * 16;
      set_x_or_sp(word_.rd(), x_or_sp(word_.rn()).plus(word_.bit(30) ? -offset : offset));
      return;
    }
    case 4: {  // and, orr, eor, ands
      const unsigned operation = word_.field(29, 2);
      const std::uint64_t mask = logical_immediate(word_);
      const Value from = x(word_.rn());
      Value value;
      if (operation == 1 && from.is_constant())
        value = Value::constant(static_cast<std::uint64_t>(from.addend) | mask);
      else if ((operation == 0 || operation == 3) && from.is_constant())
        value = Value::constant(static_cast<std::uint64_t>(from.addend) & mask);
      else if (operation == 0 && from.is_address() && word_.wide() && static_cast<std::int64_t>(mask) < 0)
        value = state_.fresh();  // aligned down
      if (operation == 3)
        set_x(word_.rd(), value);
      else
        set_x_or_sp(word_.rd(), value);
      return;
    }
    case 5: move_wide(); return;
    default: set_x(word_.rd(), {}); return;  // bit fields, extr
  }
}

void A64Execution::add_immediate() {
  const bool sets_flags = word_.bit(29);
  const std::int64_t amount = std::int64_t{word_.field(10, 12)} << (word_.bit(22) ? 12 : 0);
  const Value value = narrowed(x_or_sp(word_.rn()).plus(word_.bit(30) ? -amount : amount));
  if (word_.rd() == aarch64::kSp && word_.rn() == aarch64::kX29 && !sets_flags)
    flow_.uses_frame_pointer = flow_.addresses_frame = true;
  if (sets_flags && word_.bit(30)) path_.compared = static_cast<std::uint32_t>(amount) + 1;
  if (sets_flags)
    set_x(word_.rd(), value);
  else
    set_x_or_sp(word_.rd(), value);
  flow_.sets_frame_pointer = word_.rd() == aarch64::kX29 && word_.rn() == aarch64::kSp && !sets_flags;
}

void A64Execution::move_wide() {
  const unsigned shift = word_.field(21, 2) * 16;
  const std::uint64_t part = std::uint64_t{word_.field(5, 16)} << shift;
  const Value old = x(word_.rd());
  switch (word_.field(29, 2)) {
    case 0: set_x(word_.rd(), narrowed(Value::constant(~part))); return;
    case 2: set_x(word_.rd(), Value::constant(part)); return;
    case 3:
      set_x(word_.rd(),
            old.is_constant()
                ? Value::constant((static_cast<std::uint64_t>(old.addend) & ~(std::uint64_t{0xffff} << shift)) | part)
                : Value());
      return;
    default: flow_.kind = Flow::kStop; return;
  }
}

// left +- (right << shift), where one of them is a constant; or a jump table's base plus its entry.
Value A64Execution::sum(const Value& left, Value right, unsigned shift, bool subtract) const {
  if (left.is_constant() && right.kind == Value::kTableEntry && !subtract) {
    const std::int64_t distance = left.minus(right);
    if (distance != static_cast<std::int32_t>(distance)) return {};
    return {Value::kTableTarget, static_cast<std::uint8_t>(shift), right.slot2, static_cast<std::int32_t>(distance),
            right.addend};
  }
  if (right.is_constant()) {
    const auto amount = static_cast<std::int64_t>(static_cast<std::uint64_t>(right.addend) << shift);
    return left.plus(subtract ? -amount : amount);
  }
  if (left.is_constant() && shift == 0 && !subtract) return right.plus(left.addend);
  return {};
}

void A64Execution::add_register() {
  const bool subtract = word_.bit(30);
  const bool sets_flags = word_.bit(29);
  if (word_.bit(21)) {  // extended: sp is allowed, an index may be narrow
    const unsigned option = word_.field(13, 3);
    const bool whole = option == 3 || option == 7;
    Value right = x(word_.rm());
    // sxth, uxtb and so on widen a table's entry as its load did, or as it should have done.
    if (!whole && right.kind == Value::kTableEntry && option >= 4)
      right.slot2 = static_cast<std::int16_t>(right.slot2 < 0 ? right.slot2 : -right.slot2);
    else if (!whole && right.is_constant())
      right = option == 2 ? Value::constant(static_cast<std::uint32_t>(right.addend)) : Value();
    const Value left = x_or_sp(word_.rn());
    Value value = narrowed(sum(left, right, word_.field(10, 3), subtract));
    // A stack pointer moved by an unknown amount is a place of its own.
    if (!value.known() && word_.rd() == aarch64::kSp && !sets_flags) value = state_.fresh();
    if (sets_flags)
      set_x(word_.rd(), value);
    else
      set_x_or_sp(word_.rd(), value);
    return;
  }
  const bool shifts_left = word_.field(22, 2) == 0;
  set_x(word_.rd(), shifts_left ? narrowed(sum(x(word_.rn()), x(word_.rm()), word_.field(10, 6), subtract)) : Value());
}

void A64Execution::data_register() {
  if (!word_.bit(28)) {
    if (word_.bit(24)) {
      add_register();
      return;
    }
    const bool plain_move = word_.field(29, 2) == 1 && !word_.bit(21) && word_.rn() == kZero &&
                            word_.field(10, 6) == 0 && word_.field(22, 2) == 0;  // orr rd, xzr, rm
    set_x(word_.rd(), plain_move ? narrowed(x(word_.rm())) : Value());
    return;
  }
  const unsigned group = word_.field(21, 4);
  if (group == 2) return;                             // conditional compare: flags only
  if (group == 0 && word_.field(10, 6) != 0) return;  // rmif, setf
  const bool one_source = group == 6 && word_.bit(30);
  if (one_source && word_.field(16, 5) == 1 && word_.rd() == aarch64::kX30) {  // pacia x30, ... and xpaci
    const unsigned operation = word_.field(10, 6);
    if (operation < 2 || operation == 4 || operation == 5 || (operation >= 8 && operation < 10) || operation == 12 ||
        operation == 13) {
      path_.signed_return = !path_.signed_return;
      return;
    }
    if (operation == 16 || operation == 17) return;
  }
  set_x(word_.rd(), {});
}

// Most write a vector register; the conversions and moves to general ones do not.
void A64Execution::vector() {
  const unsigned to = word_.rd();
  if (word_.is(0xffff'fc00, 0x9e66'0000)) {  // fmov xd, dn
    set_x(to, d(word_.rn()));
    return;
  }
  if (word_.is(0xffff'fc00, 0x9e67'0000)) {  // fmov dd, xn
    set_d(to, x(word_.rn()));
    return;
  }
  if (word_.is(0xffff'fc00, 0x1e60'4000)) {  // fmov dd, dn
    set_d(to, d(word_.rn()));
    return;
  }
  const unsigned operation = word_.field(16, 3);
  const bool integer_conversion = word_.is(0x5f20'fc00, 0x1e20'0000);
  const bool fixed_conversion = word_.is(0x5f20'0000, 0x1e00'0000);
  const bool converts_to_general =
      (integer_conversion && operation != 2 && operation != 3 && operation != 7) || (fixed_conversion && operation < 2);
  if (converts_to_general || word_.is(0xbfe0'fc00, 0x0e00'3c00) || word_.is(0xbfe0'fc00, 0x0e00'2c00)) {  // umov, smov
    set_x(to, {});
    return;
  }
  if (word_.is(0x5f20'3c00, 0x1e20'2000) || word_.is(0x5f20'0c00, 0x1e20'0400)) return;  // compares: flags only
  set_d(to, {});
}

// ---- loads and stores ---------------------------------------------------------------------------------------------

Value A64Execution::base() {
  if (word_.rn() == aarch64::kX29) flow_.uses_frame_pointer = flow_.addresses_frame = true;
  return x_or_sp(word_.rn());
}

void A64Execution::write_back(const Value& address) { set_x_or_sp(word_.rn(), address); }

void A64Execution::transfer(bool is_vector, unsigned reg, const Value& address, unsigned size, bool load,
                            bool sign_extends) {
  if (load) {
    // The lower half of a vector register is its first eight bytes in memory.
    const Value value = size == 8 || (is_vector && size == 16) ? state_.load(address, 8) : Value();
    if (is_vector)
      set_d(reg, value);
    else
      set_x(reg, sign_extends ? Value() : value);
    return;
  }
  if (is_vector && size == 16) {
    state_.store(address, 8, d(reg));
    state_.store(address.plus(8), 8, {});
    return;
  }
  state_.store(address, size, is_vector ? d(reg) : x(reg));
}

void A64Execution::pair() {
  const bool is_vector = word_.bit(26);
  const bool load = word_.bit(22);
  const unsigned kind = word_.field(30, 2);
  const bool tags = !is_vector && kind == 1 && !load;  // stgp
  const unsigned size = is_vector ? 4u << kind : kind == 2 ? 8 : 4;
  if (kind == 3) {
    flow_.kind = Flow::kStop;
    return;
  }
  const unsigned mode = word_.field(23, 2);  // 1 after, 2 plain offset, 3 before; 0 non-temporal
  const Value at = base();
  const Value moved = at.plus(word_.signed_field(15, 7) * (tags ? 16 : size));
  const Value address = mode == 1 ? at : moved;
  const unsigned piece = tags ? 8 : size;
  const bool sign_extends = !is_vector && kind == 1 && load;
  transfer(is_vector, word_.rd(), address, piece, load, sign_extends);
  transfer(is_vector, word_.rt2(), address.plus(piece), piece, load, sign_extends);
  if (mode == 1 || mode == 3) write_back(moved);
}

void A64Execution::indexed_single(unsigned size, bool load) {
  const bool is_vector = word_.bit(26);
  if (word_.field(10, 2) == 2) {  // register offset
    const Value at = base();
    const Value index = x(word_.rm());
    const unsigned shift = word_.bit(12) ? word_.field(30, 2) : 0;
    Value address;
    if (index.is_constant() && word_.field(13, 3) == 3)
      address = at.plus(static_cast<std::int64_t>(static_cast<std::uint64_t>(index.addend) << shift));
    else if (load && !is_vector && at.is_constant() && at.addend != 0) {
      // An entry of a jump table.
      const bool sign = (word_.field(22, 2) & 2) != 0;
      const auto entry = static_cast<std::int16_t>(sign ? -static_cast<int>(size) : static_cast<int>(size));
      set_x(word_.rd(), size == 8 ? Value{Value::kTableTarget, 0, 8, 0, at.addend}
                                  : Value{Value::kTableEntry, 0, entry, 0, at.addend});
      return;
    }
    transfer(is_vector, word_.rd(), address, size, load, (word_.field(22, 2) & 2) != 0);
    return;
  }
  if (word_.bit(10)) {  // ldraa, ldrab: the address is authenticated, the offset counts eight bytes
    const std::int64_t offset = (word_.bit(22) ? -512 : 0) + std::int64_t{word_.field(12, 9)};
    const Value address = base().plus(offset * 8);
    set_x(word_.rd(), state_.load(address, 8));
    if (word_.bit(11)) write_back(address);
    return;
  }
  // Atomic operations: a register gets what was there.
  state_.store(base(), size, {});
  set_x(word_.rd(), {});
}

void A64Execution::single() {
  const bool is_vector = word_.bit(26);
  const unsigned operation = word_.field(22, 2);
  const unsigned size = is_vector && (operation & 2) != 0 ? 16 : 1u << word_.field(30, 2);
  const bool load = is_vector ? (operation & 1) != 0 : operation != 0;
  if (!is_vector && word_.field(30, 2) == 3 && operation == 2 &&
      (word_.bit(24) || !word_.bit(21) || word_.field(10, 2) == 2))
    return;  // prefetch
  const bool sign_extends = !is_vector && (operation & 2) != 0;
  if (word_.bit(24)) {
    transfer(is_vector, word_.rd(), base().plus(std::int64_t{word_.field(10, 12)} * size), size, load, sign_extends);
    return;
  }
  if (word_.bit(21)) {
    indexed_single(size, load);
    return;
  }
  const unsigned mode = word_.field(10, 2);  // 0 unscaled, 1 after, 2 unprivileged, 3 before
  const Value at = base();
  const Value moved = at.plus(word_.signed_field(12, 9));
  transfer(is_vector, word_.rd(), mode == 1 ? at : moved, size, load, sign_extends);
  if (mode == 1 || mode == 3) write_back(moved);
}

// Exclusive and ordered accesses, compare and swap.
void A64Execution::exclusive() {
  const bool load = word_.bit(22);
  const bool compares = word_.bit(23) && word_.bit(21);
  const bool pairs = !word_.bit(23) && word_.bit(21);
  const bool ordered_only = word_.bit(23) && !word_.bit(21);
  const Value address = base();
  if (ordered_only && !load) {  // stlr
    const unsigned size = 1u << word_.field(30, 2);
    state_.store(address, size, x(word_.rd()));
    return;
  }
  if (!load || compares) state_.store(address, 16, {});
  const bool swaps_pair = pairs && !word_.bit(31);  // casp
  if (swaps_pair) state_.store(address, 16, {});
  if (!ordered_only) set_x(word_.rm(), {});  // the status, or what was there
  if (swaps_pair) set_x(word_.rm() | 1, {});
  if (load && !compares && !swaps_pair) {
    set_x(word_.rd(), {});
    if (pairs) set_x(word_.rt2(), {});
  }
}

// ld1-ld4, st1-st4.
void A64Execution::vector_structure() {
  const bool load = word_.bit(22);
  const unsigned whole = word_.bit(30) ? 16 : 8;
  unsigned registers = 4;
  unsigned bytes = 0;
  if (word_.bit(24)) {  // one lane
    registers = ((word_.field(13, 1) << 1) | word_.field(21, 1)) + 1;
    const unsigned scale = word_.field(14, 2);
    const unsigned lane = scale == 3 ? 1u << word_.field(10, 2) : scale == 2 ? (word_.bit(10) ? 8 : 4) : 1u << scale;
    bytes = registers * lane;
  } else {
    switch (word_.field(12, 4)) {
      case 4:
      case 6: registers = 3; break;
      case 7: registers = 1; break;
      case 8:
      case 10: registers = 2; break;
      default: break;
    }
    bytes = registers * whole;
  }
  const Value at = base();
  if (load)
    for (unsigned i = 0; i < registers; ++i) set_d(word_.rd() + i, {});
  else
    state_.store(at, bytes, {});
  if (!word_.bit(23)) return;
  const Value index = x(word_.rm());
  write_back(word_.rm() == kZero ? at.plus(bytes) : index.is_constant() ? at.plus(index.addend) : Value());
}

void A64Execution::load_or_store() {
  if (word_.is_pair()) {
    pair();
  } else if (word_.is_literal()) {
    if (word_.bit(26))
      set_d(word_.rd(), {});
    else if (word_.field(30, 2) != 3)
      set_x(word_.rd(), {});
  } else if (word_.is_tag_store()) {
    const unsigned mode = word_.field(10, 2);  // 1 after, 2 offset, 3 before; 0: others, ldg among them
    if (mode == 0 && word_.field(22, 2) != 0) set_x(word_.rd(), {});
    if (mode == 1 || mode == 3) write_back(base().plus(word_.signed_field(12, 9) * 16));
  } else if (word_.is_single()) {
    single();
  } else if (word_.is_exclusive()) {
    exclusive();
  } else if (word_.is_unscaled_ordered()) {
    const bool load = word_.field(22, 2) != 0;
    const unsigned size = 1u << word_.field(30, 2);
    transfer(false, word_.rd(), base().plus(word_.signed_field(12, 9)), size, load, word_.field(22, 2) > 1);
  } else if (word_.is_vector_structure()) {
    vector_structure();
  } else if (word_.is_memory_copy()) {
    set_x(word_.rd(), {});
    set_x(word_.rn(), {});
    set_x(word_.rm(), {});
  } else {
    flow_.kind = Flow::kStop;
  }
}

// ---- branches, system ---------------------------------------------------------------------------------------------

void A64Execution::branch_register() {
  const Value to = state_[word_.rn()];
  if (word_.is_ret()) {
    const bool authenticates = word_.authenticates();
    if (authenticates) path_.signed_return = !path_.signed_return;
    flow_.kind = Flow::kReturn;
    flow_.value = authenticates ? state_[aarch64::kX30] : x(word_.rn());
    return;
  }
  if (word_.is_blr()) {
    flow_.kind = Flow::kCall;
    return;
  }
  if (!word_.is_br()) {  // eret, drps
    flow_.kind = Flow::kStop;
    return;
  }
  // Linkage code and calls in tail position go by x16 or x17 (AAPCS64 section 6.1.1); jump tables do so only where
  // their target is one.
  const bool by_linkage = (word_.rn() == 16 || word_.rn() == 17) && to.kind != Value::kTableTarget;
  flow_.kind = by_linkage ? Flow::kLeave : Flow::kJumpTo;
  if (by_linkage && to.is_constant()) flow_.target = static_cast<std::uint64_t>(to.addend);
  flow_.value = x(word_.rn());
}

void A64Execution::system_call() {
  const Value number = state_[8];
  if (number.is_constant() && number.addend == kRtSigreturn) {
    const Value frame = state_[aarch64::kSp];
    flow_.kind = Flow::kSignalReturn;
    flow_.value = state_.load(frame.plus(aarch64::kSignalPc), 8);
    for (unsigned i = 0; i < 8; ++i)
      state_[kFirstVectorSlot + i] = state_.load(frame.plus(aarch64::kSignalVectors + 16 * (8 + std::int64_t{i})), 8);
    for (unsigned i = 0; i <= 30; ++i)
      state_[i] = state_.load(frame.plus(aarch64::kSignalRegisters + 8 * std::int64_t{i}), 8);
    state_[aarch64::kSp] = state_.load(frame.plus(aarch64::kSignalSp), 8);
    return;
  }
  if (number.is_constant() && (number.addend == kExit || number.addend == kExitGroup)) {
    flow_.kind = Flow::kStop;
    return;
  }
  state_[0] = {};
}

// hs, lo, hi, ls: what an unsigned comparison lets through.
void A64Execution::note_limit() {
  switch (word_.field(0, 4)) {
    case 2: path_.limit = path_.compared - 1; break;
    case 3: flow_.limit = path_.compared - 1; break;
    case 8: path_.limit = path_.compared; break;
    case 9: flow_.limit = path_.compared; break;
    default: break;
  }
}

void A64Execution::branch_or_system() {
  if (word_.is_b() || word_.is_bl()) {
    flow_.target = word_.branch_target(pc_);
    flow_.kind = word_.is_bl() ? Flow::kCall : Flow::kJump;
  } else if (word_.is_b_cond() || word_.is_cbz() || word_.is_tbz()) {
    flow_.kind = Flow::kBranch;
    flow_.target = word_.branch_target(pc_);
    if (word_.is_b_cond() && path_.compared != 0) note_limit();
  } else if (word_.is_branch_register()) {
    branch_register();
  } else if (word_.is_svc()) {
    system_call();
  } else if (word_.is_exception()) {
    flow_.kind = Flow::kStop;
  } else if (word_.signs_or_authenticates_link()) {
    path_.signed_return = !path_.signed_return;
  } else if (word_.is(0xffe0'0000, 0xd520'0000)) {  // mrs, sysl
    set_x(word_.rd(), {});
  } else if (!word_.is(0xffe0'0000, 0xd500'0000)) {
    flow_.kind = Flow::kStop;
  }
}

}  // namespace

// AAPCS64 section 6.1.1. The call itself has written x30.
void AArch64::forget_by_call(SymbolicState<kSlots>& state, std::uint64_t kept) {
  for (unsigned i = 0; i <= 18; ++i)
    if ((kept >> i & 1) == 0) state[i] = {};
  state[aarch64::kX30] = {};
}

Flow AArch64::step(CodeReader& code, Path<AArch64>& path) {
  std::uint32_t word = 0;
  if (path.pc % 4 != 0 || code.read(path.pc, reinterpret_cast<std::uint8_t*>(&word), sizeof word) != sizeof word)
    return {.kind = Flow::kStop};
  return A64Execution(Word{word}, path).run();
}

}  // namespace windlass::flow
