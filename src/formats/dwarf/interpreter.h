// The one interpreter of CFA programs (DWARF 5 section 6.4.2), a template over what a row is kept in.
//
//   CfaInterpreter<TraceState> interpreter(section);          // once a section; holds the caches and the state stack
//   while (reader.next_fde(fde))
//     if (auto done = interpreter.run(fde, [&](std::uint64_t begin, std::uint64_t end, const TraceState& state) { ...
//     }); !done)
//       report(done.error());
//
// `emit` is called for every non-empty [begin, end) of the FDE, ascending, without holes; neighbouring rows may be
// equal. If `emit` returns bool, false ends the FDE. After an error the rows before the bad instruction's location have
// been emitted; the location itself has not.
//
// A state policy `State` is copyable (preferably trivially: it is copied once an FDE, and on remember/restore), default
// constructible to "nothing known", and has these members. Registers are DWARF numbers as read (any 64-bit value);
// offsets are already multiplied by the data alignment factor. Each returns false to stop with kLimit (what it cannot
// hold but must); a policy that merely ignores a register returns true, which inlines to nothing.
//
//   bool def_cfa(u64 reg, i64 offset);      bool def_cfa_register(u64 reg);      bool def_cfa_offset(i64 offset);
//   bool def_cfa_expression(ByteView expression);
//   bool at_cfa(u64 reg, i64 offset);       bool cfa_value(u64 reg, i64 offset); bool in_register(u64 reg, u64 source);
//   bool at_expression(u64 reg, ByteView);  bool expression_value(u64 reg, ByteView);
//   bool same_value(u64 reg);               bool undefined(u64 reg);
//   bool restore(u64 reg, const State& initial);   // back to the rule after the CIE's instructions
//   void toggle_return_signed();                   // AArch64
//
// and may have `void start(const Cie&)`, called on a copy of the prototype before the CIE's instructions run.
// No allocation after construction (with InlineStorage: none at all), no exception; one interpreter a thread.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <type_traits>

#include "formats/dwarf/cfi.h"
#include "formats/dwarf/constants.h"
#include "windlass/bytes.h"

namespace windlass::dwarf {

// Where code can be without an advance overflowing: the user half of the address space and more.
inline constexpr std::uint64_t kNoOverflow = std::uint64_t{1} << 62;

// Nobody nests deeper than two or three; hostile programs try 200,000.
inline constexpr std::size_t kMaxRememberedStates = 32;

// What holds after a CIE's instructions.
template <typename State>
struct InitialState {
  const Cie* cie = nullptr;
  State state;
};

// Where an interpreter keeps its states. On the heap, for many FDEs: the initial states are cached, direct-mapped by
// CIE; a module has one to four.
template <typename State>
struct HeapStorage {
  static constexpr std::size_t kInitialCache = 32;
  static constexpr std::size_t kRemembered = kMaxRememberedStates;
  std::unique_ptr<InitialState<State>[]> initial = std::make_unique<InitialState<State>[]>(kInitialCache);
  std::unique_ptr<State[]> stack = std::make_unique_for_overwrite<State[]>(kRemembered);
};

// In place, for one FDE in a signal handler. Nothing known nests deeper than two.
template <typename State>
struct InlineStorage {
  static constexpr std::size_t kInitialCache = 1;
  static constexpr std::size_t kRemembered = 3;
  InitialState<State> initial[kInitialCache];
  union {
    State stack[kRemembered];  // written before it is read: left uninitialised
  };
  static_assert(std::is_trivially_destructible_v<State>);
  InlineStorage() {}   // NOLINT(modernize-use-equals-default): the union has no default
  ~InlineStorage() {}  // NOLINT(modernize-use-equals-default)
};

template <typename State, template <typename> typename Storage = HeapStorage>
class CfaInterpreter {
 public:
  // `prototype` is what the prototype of all states is made of.
  template <typename... Prototype>
  explicit CfaInterpreter(const CfiSection& section, const Prototype&... prototype)
      : section_(section), prototype_(prototype...) {}

  // Runs the CIE's and the FDE's programs. Linear in the length of the FDE's program.
  template <typename Emit>
  [[nodiscard]] Expected<void> run(const Fde& fde, Emit&& emit) {
    const Cie& cie = *fde.cie;
    Initial& initial = storage_.initial[cie.index % Storage<State>::kInitialCache];
    if (initial.cie != &cie) [[unlikely]] {
      if (auto done = prepare(cie, initial); !done) return done;
    }
    state_ = initial.state;
    depth_ = 0;
    if (!execute(cie, fde.instructions, fde.begin, fde.end, initial.state, emit)) [[unlikely]]
      return failure();
    return {};
  }

 private:
  using Initial = InitialState<State>;

  // No state of its own on the stack: with InlineStorage that is a signal handler's.
  [[nodiscard]] Expected<void> prepare(const Cie& cie, Initial& initial) {
    initial.cie = nullptr;
    initial.state = prototype_;
    if constexpr (requires { initial.state.start(cie); }) initial.state.start(cie);
    state_ = initial.state;
    depth_ = 0;
    // A CIE has no location, so an advance ends its program. A restore goes back to the state before the CIE.
    auto no_rows = [](std::uint64_t, std::uint64_t, const State&) {};
    if (!execute(cie, cie.instructions, 0, 0, initial.state, no_rows)) return failure();
    initial.state = state_;
    initial.cie = &cie;
    return {};
  }

  [[nodiscard]] Failure failure() const { return Failure(error_); }

  // Out of line of the hot loop: notes what went wrong at the instruction that starts at `at`.
  [[gnu::noinline, gnu::cold]] bool stop(ErrorCode code, const char* what, const ByteView& program,
                                         const std::uint8_t* at, std::uint64_t detail = 0) {
    error_ = Error{code, what, program.origin() + static_cast<std::uint64_t>(at - program.u8()), detail};
    return false;
  }

  static bool uleb(const std::uint8_t*& p, const std::uint8_t* end, std::uint64_t& value) {
    if (p == end) [[unlikely]]
      return false;
    value = *p++;
    if (value < 0x80) [[likely]]
      return true;
    value &= 0x7f;
    return long_uleb(p, end, value);
  }
  static bool sleb(const std::uint8_t*& p, const std::uint8_t* end, std::int64_t& value) {
    if (p == end) [[unlikely]]
      return false;
    const std::uint8_t first = *p;
    if (first < 0x80) [[likely]] {
      ++p;
      value = static_cast<std::int64_t>(static_cast<std::uint64_t>(first) << 57) >> 57;
      return true;
    }
    return long_sleb(p, end, value);
  }
  [[gnu::noinline]] static bool long_uleb(const std::uint8_t*& p, const std::uint8_t* end, std::uint64_t& value) {
    for (unsigned shift = 7; p != end; shift += 7) {
      const std::uint64_t byte = *p++;
      const std::uint64_t bits = byte & 0x7f;
      if (shift < 64) {
        if ((bits << shift) >> shift != bits) return false;
        value |= bits << shift;
      } else if (bits != 0) {
        return false;
      }
      if (byte < 0x80) return true;
      if (shift > 126) return false;  // 20 bytes: no producer pads that much
    }
    return false;
  }
  [[gnu::noinline]] static bool long_sleb(const std::uint8_t*& p, const std::uint8_t* end, std::int64_t& value) {
    ByteCursor cursor(ByteView(reinterpret_cast<const std::byte*>(p), static_cast<std::size_t>(end - p)));
    const auto read = cursor.sleb();
    if (!read) return false;
    value = *read;
    p += cursor.position();
    return true;
  }

  template <typename T>
  static bool fixed(const std::uint8_t*& p, const std::uint8_t* end, std::uint64_t& value) {
    if (static_cast<std::size_t>(end - p) < sizeof(T)) [[unlikely]]
      return false;
    T read;
    std::memcpy(&read, p, sizeof read);
    p += sizeof read;
    value = read;
    return true;
  }

  template <typename Emit>
  bool execute(const Cie& cie, const ByteView& program, std::uint64_t begin, std::uint64_t end, const State& initial,
               Emit& emit);

  // Nearly all instructions are one of a few, in the short form. Those are tried first, each with a branch of its own,
  // so that the branch predictor learns which follows which.
  enum class Pairs : std::uint8_t { kOther, kEnough, kPastEnd };  // What comes next, or why nothing does.
  template <typename Emit>
  [[gnu::always_inline]] inline Pairs execute_pairs(const std::uint8_t*& p, const std::uint8_t* pairs_end,
                                                    const Cie& cie, std::uint64_t& location, std::uint64_t end,
                                                    Emit& emit);

  // Of an instruction that is rare: a register, then a number or an expression.
  struct Operands {
    enum : unsigned { kRegister = 1, kUnsigned = 2, kSigned = 4, kExpression = 8 };
    std::uint64_t reg = 0, number = 0;
    ByteView expression;

    // 0: the opcode is unknown.
    static constexpr unsigned kinds_of(std::uint8_t opcode) {
      switch (opcode) {
        case DW_CFA_restore_extended:
        case DW_CFA_undefined:
        case DW_CFA_same_value: return kRegister;
        case DW_CFA_offset_extended:
        case DW_CFA_GNU_negative_offset_extended:
        case DW_CFA_val_offset:
        case DW_CFA_register: return kRegister | kUnsigned;
        case DW_CFA_offset_extended_sf:
        case DW_CFA_val_offset_sf:
        case DW_CFA_def_cfa_sf: return kRegister | kSigned;
        case DW_CFA_def_cfa_offset_sf: return kSigned;
        case DW_CFA_GNU_args_size: return kUnsigned;
        case DW_CFA_def_cfa_expression: return kExpression;
        case DW_CFA_expression:
        case DW_CFA_val_expression: return kRegister | kExpression;
        default: return 0;
      }
    }
  };
  static bool read(unsigned kinds, const ByteView& program, const std::uint8_t*& p, Operands& to);
  // False: the rule cannot be kept.
  bool set_rule(std::uint8_t opcode, const Operands& by, std::int64_t data_alignment, const State& initial);
  bool set_loc(const Cie& cie, const ByteView& program, const std::uint8_t*& p, std::uint64_t location,
               std::uint64_t& next_location);

  // Everything that is rare in compiled code, kept out of the hot loop. `p` is after the opcode.
  [[gnu::noinline]] bool execute_rare(std::uint8_t opcode, const Cie& cie, const ByteView& program,
                                      const std::uint8_t*& p, const State& initial, std::uint64_t location,
                                      std::uint64_t& next_location);

  template <typename Emit>
  bool give(Emit& emit, std::uint64_t begin, std::uint64_t end) {
    const State& state = state_;
    if constexpr (std::is_same_v<std::invoke_result_t<Emit&, std::uint64_t, std::uint64_t, const State&>, bool>) {
      return emit(begin, end, state);
    } else {
      emit(begin, end, state);
      return true;
    }
  }

  // Multiplication as libgcc does it: wrapping, never undefined behaviour.
  static std::int64_t factored(std::uint64_t value, std::int64_t factor) {
    return static_cast<std::int64_t>(value * static_cast<std::uint64_t>(factor));
  }

  CfiSection section_;
  State prototype_;
  State state_;
  std::size_t depth_ = 0;
  Storage<State> storage_;
  Error error_;
};

template <typename State, template <typename> typename Storage>
template <typename Emit>
auto CfaInterpreter<State, Storage>::execute_pairs(const std::uint8_t*& p, const std::uint8_t* pairs_end,
                                                   const Cie& cie, std::uint64_t& location, std::uint64_t end,
                                                   Emit& emit) -> Pairs {
  while (p < pairs_end) {
    std::uint64_t delta;
    if (p[0] == DW_CFA_def_cfa_offset && p[1] < 0x80) {
      if (!state_.def_cfa_offset(p[1])) [[unlikely]]
        break;
      p += 2;
      continue;
    }
    if (p[0] >> 6 == DW_CFA_offset >> 6 && p[1] < 0x80) {
      if (!state_.at_cfa(p[0] & 0x3fu, factored(p[1], cie.data_alignment))) [[unlikely]]
        break;
      p += 2;
      continue;
    }
    if (p[0] == DW_CFA_def_cfa_register && p[1] < 0x80) {
      if (!state_.def_cfa_register(p[1])) [[unlikely]]
        break;
      p += 2;
      continue;
    }
    if (p[0] == DW_CFA_def_cfa && p[1] < 0x80 && pairs_end - p > 1 && p[2] < 0x80) {
      if (!state_.def_cfa(p[1], p[2])) [[unlikely]]
        break;
      p += 3;
      continue;
    }
    if (p[0] == DW_CFA_remember_state && depth_ != Storage<State>::kRemembered) {
      storage_.stack[depth_++] = state_;
      p += 1;
      continue;
    }
    if (p[0] == DW_CFA_restore_state && depth_ != 0) {
      state_ = storage_.stack[--depth_];
      p += 1;
      continue;
    }
    if (p[0] >> 6 == DW_CFA_advance_loc >> 6) {
      delta = (p[0] & 0x3fu) * cie.code_alignment;
      p += 1;
    } else if (p[0] == DW_CFA_advance_loc1) {
      delta = p[1] * cie.code_alignment;
      p += 2;
    } else {
      break;
    }
    if (delta >= end - location) [[unlikely]]
      return Pairs::kPastEnd;
    if (delta != 0) [[likely]] {
      if (!give(emit, location, location + delta)) return Pairs::kEnough;
      location += delta;
    }
  }
  return Pairs::kOther;
}

template <typename State, template <typename> typename Storage>
template <typename Emit>
bool CfaInterpreter<State, Storage>::execute(const Cie& cie, const ByteView& program, std::uint64_t begin,
                                             std::uint64_t end, const State& initial, Emit& emit) {
  const std::uint8_t* p = program.u8();
  const std::uint8_t* const stop_at = p + program.size();
  const std::uint64_t code_alignment = cie.code_alignment;
  const std::int64_t data_alignment = cie.data_alignment;
  std::uint64_t location = begin;
  // Advances cannot overflow here.
  const std::uint8_t* const pairs_end =
      program.size() >= 2 && code_alignment <= 64 && end <= kNoOverflow ? stop_at - 1 : p;
  while (p != stop_at) {
    switch (execute_pairs(p, pairs_end, cie, location, end, emit)) {
      case Pairs::kOther: break;
      case Pairs::kEnough: return true;
      case Pairs::kPastEnd: goto past_end;
    }
    if (p == stop_at) break;
    if (*p == DW_CFA_nop) {  // padding
      ++p;
      continue;
    }
    const std::uint8_t* const at = p;
    const std::uint8_t opcode = *p++;
    std::uint64_t reg = 0;
    std::uint64_t operand = 0;
    std::uint64_t next = 0;
    bool held = true;
    switch (opcode >> 6) {
      case DW_CFA_advance_loc >> 6:
        operand = opcode & 0x3f;
      advance:
        if (__builtin_mul_overflow(operand, code_alignment, &operand) ||
            __builtin_add_overflow(location, operand, &next)) [[unlikely]]
          return stop(ErrorCode::kMalformed, "advance past the end of the address space", program, at, operand);
      advance_to:
        if (next >= end) [[unlikely]]
          goto past_end;
        if (next != location) [[likely]] {
          if (!give(emit, location, next)) return true;
          location = next;
        }
        continue;
      case DW_CFA_offset >> 6:
        if (!uleb(p, stop_at, operand)) [[unlikely]]
          goto truncated;
        held = state_.at_cfa(opcode & 0x3fu, factored(operand, data_alignment));
        break;
      case DW_CFA_restore >> 6: held = state_.restore(opcode & 0x3fu, initial); break;
      default:
        switch (opcode) {
          case DW_CFA_def_cfa_offset:
            if (!uleb(p, stop_at, operand)) [[unlikely]]
              goto truncated;
            held = state_.def_cfa_offset(static_cast<std::int64_t>(operand));
            break;
          case DW_CFA_advance_loc1:
            if (!fixed<std::uint8_t>(p, stop_at, operand)) goto truncated;
            goto advance;
          case DW_CFA_advance_loc2:
            if (!fixed<std::uint16_t>(p, stop_at, operand)) goto truncated;
            goto advance;
          case DW_CFA_advance_loc4:
            if (!fixed<std::uint32_t>(p, stop_at, operand)) goto truncated;
            goto advance;
          case DW_CFA_def_cfa:
            if (!uleb(p, stop_at, reg) || !uleb(p, stop_at, operand)) [[unlikely]]
              goto truncated;
            held = state_.def_cfa(reg, static_cast<std::int64_t>(operand));
            break;
          case DW_CFA_def_cfa_register:
            if (!uleb(p, stop_at, reg)) [[unlikely]]
              goto truncated;
            held = state_.def_cfa_register(reg);
            break;
          case DW_CFA_remember_state:
            if (depth_ == Storage<State>::kRemembered) [[unlikely]]
              return stop(ErrorCode::kLimit, "states remembered too deep", program, at);
            storage_.stack[depth_++] = state_;
            continue;
          case DW_CFA_restore_state:
            // DWARF 5 does not say so, but GCC and all readers of GCC's output restore the CFA together with the
            // registers.
            if (depth_ == 0) [[unlikely]]
              return stop(ErrorCode::kMalformed, "restore_state without remember_state", program, at);
            state_ = storage_.stack[--depth_];
            continue;
          default:
            next = location;
            if (!execute_rare(opcode, cie, program, p, initial, location, next)) [[unlikely]]
              return false;
            if (next != location) goto advance_to;
            continue;
        }
    }
    if (!held) [[unlikely]]
      return stop(ErrorCode::kLimit, "register rule that cannot be kept", program, at, opcode);
    continue;
  truncated:
    return stop(ErrorCode::kTruncated, "instruction's operand is cut off or does not fit 64 bits", program, at, opcode);
  }
past_end:
  // Nothing beyond the FDE's end matters. Producers do advance to exactly the end and past it (hand-written .cfi).
  if (location < end) (void)give(emit, location, end);
  return true;
}

template <typename State, template <typename> typename Storage>
bool CfaInterpreter<State, Storage>::execute_rare(std::uint8_t opcode, const Cie& cie, const ByteView& program,
                                                  const std::uint8_t*& p, const State& initial, std::uint64_t location,
                                                  std::uint64_t& next_location) {
  const std::uint8_t* const at = p - 1;
  const std::uint8_t* const end = program.u8() + program.size();
  Operands operands;
  switch (opcode) {
    case DW_CFA_set_loc: return set_loc(cie, program, p, location, next_location);
    case DW_CFA_MIPS_advance_loc8:
      if (!fixed<std::uint64_t>(p, end, operands.number)) break;
      if (__builtin_mul_overflow(operands.number, cie.code_alignment, &operands.number) ||
          __builtin_add_overflow(location, operands.number, &next_location))
        return stop(ErrorCode::kMalformed, "advance past the end of the address space", program, at, operands.number);
      return true;
    case DW_CFA_GNU_window_save:  // = DW_CFA_AARCH64_negate_ra_state
      if (section_.architecture != Architecture::kAArch64)
        return stop(ErrorCode::kUnsupported, "SPARC's window_save", program, at, opcode);
      state_.toggle_return_signed();
      return true;
    case DW_CFA_AARCH64_negate_ra_state_with_pc:
      if (section_.architecture != Architecture::kAArch64)
        return stop(ErrorCode::kMalformed, "unknown CFA opcode", program, at, opcode);
      state_.toggle_return_signed();
      return true;
    default:
      if (Operands::kinds_of(opcode) == 0)
        return stop(ErrorCode::kMalformed, "unknown CFA opcode", program, at, opcode);
      if (!read(Operands::kinds_of(opcode), program, p, operands)) break;
      if (!set_rule(opcode, operands, cie.data_alignment, initial))
        return stop(ErrorCode::kLimit, "register rule that cannot be kept", program, at, opcode);
      return true;
  }
  return stop(ErrorCode::kTruncated, "instruction's operand is cut off or does not fit 64 bits", program, at, opcode);
}

template <typename State, template <typename> typename Storage>
bool CfaInterpreter<State, Storage>::set_loc(const Cie& cie, const ByteView& program, const std::uint8_t*& p,
                                             std::uint64_t location, std::uint64_t& next_location) {
  const std::uint8_t* const at = p - 1;
  const std::uint8_t* const end = program.u8() + program.size();
  const std::uint64_t before =
      program.origin() + static_cast<std::uint64_t>(p - program.u8()) - section_.bytes.origin();
  CfiSection bounded = section_;
  bounded.bytes =
      ByteView(section_.bytes.data(), static_cast<std::size_t>(end - section_.bytes.u8()), section_.bytes.origin());
  std::uint64_t position = before;
  const auto target = read_encoded_pointer(bounded, position, cie.fde_encoding, cie.address_size, location);
  if (!target || target->indirect) return stop(ErrorCode::kMalformed, "set_loc with a bad pointer", program, at);
  if (target->value < location)
    return stop(ErrorCode::kMalformed, "set_loc goes backwards", program, at, target->value);
  p += position - before;
  next_location = target->value;
  return true;
}

template <typename State, template <typename> typename Storage>
bool CfaInterpreter<State, Storage>::read(unsigned kinds, const ByteView& program, const std::uint8_t*& p,
                                          Operands& to) {
  const std::uint8_t* const end = program.u8() + program.size();
  if ((kinds & Operands::kRegister) != 0 && !uleb(p, end, to.reg)) return false;
  if ((kinds & Operands::kSigned) != 0) {
    std::int64_t number = 0;
    if (!sleb(p, end, number)) return false;
    to.number = static_cast<std::uint64_t>(number);
  }
  if ((kinds & (Operands::kUnsigned | Operands::kExpression)) != 0 && !uleb(p, end, to.number)) return false;
  if ((kinds & Operands::kExpression) == 0) return true;
  if (to.number > static_cast<std::uint64_t>(end - p)) return false;
  to.expression = ByteView(reinterpret_cast<const std::byte*>(p), static_cast<std::size_t>(to.number),
                           program.origin() + static_cast<std::uint64_t>(p - program.u8()));
  p += to.number;
  return true;
}

template <typename State, template <typename> typename Storage>
bool CfaInterpreter<State, Storage>::set_rule(std::uint8_t opcode, const Operands& by, std::int64_t data_alignment,
                                              const State& initial) {
  const std::int64_t offset = factored(by.number, data_alignment);
  switch (opcode) {
    case DW_CFA_offset_extended:
    case DW_CFA_offset_extended_sf: return state_.at_cfa(by.reg, offset);
    // The offset's sign is turned: what old PowerPC compilers emit.
    case DW_CFA_GNU_negative_offset_extended:
      return state_.at_cfa(by.reg, factored(std::uint64_t{0} - by.number, data_alignment));
    case DW_CFA_val_offset:
    case DW_CFA_val_offset_sf: return state_.cfa_value(by.reg, offset);
    case DW_CFA_restore_extended: return state_.restore(by.reg, initial);
    case DW_CFA_undefined: return state_.undefined(by.reg);
    case DW_CFA_same_value: return state_.same_value(by.reg);
    case DW_CFA_register: return state_.in_register(by.reg, by.number);
    case DW_CFA_def_cfa_sf: return state_.def_cfa(by.reg, offset);
    case DW_CFA_def_cfa_offset_sf: return state_.def_cfa_offset(offset);
    case DW_CFA_def_cfa_expression: return state_.def_cfa_expression(by.expression);
    case DW_CFA_expression: return state_.at_expression(by.reg, by.expression);
    case DW_CFA_val_expression: return state_.expression_value(by.reg, by.expression);
    default: return true;  // DW_CFA_GNU_args_size: for landing pads only
  }
}

}  // namespace windlass::dwarf
