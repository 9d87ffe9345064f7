// Virtual unwinding of Windows ARM64 frames: what RtlVirtualUnwind does, at any instruction of a function. The unwind
// codes are executed on a copy of the registers and committed last, so a failed step changes nothing. No allocation,
// lock or system call of its own; signal-safe if `memory` is.
#pragma once

#include "base/registers.h"
#include "base/target_memory.h"
#include "formats/winarm64/frames.h"
#include "formats/winarm64/read.h"
#include "windlass/registers.h"
#include "windlass/walk.h"

namespace windlass::winarm64 {

struct ExecContext {
  std::uint64_t image_base = 0;  // address of RVA 0
  // The bits of a signed return address that hold the authentication code. They are replaced by copies of bit 55, which
  // tells kernel addresses from user addresses.
  std::uint64_t pac_mask = 0xff7f'0000'0000'0000;
  // Bytes of an SVE register. 0: not known; then registers saved by it are lost, and a frame fails whose sp or lr is
  // found by it.
  std::uint32_t vector_length = 0;
};

enum class Place : std::uint8_t { kLeaf, kPrologue, kBody, kEpilogue };

// Which codes hold at an offset of a function.
struct Position {
  Place place = Place::kBody;
  std::uint32_t index = 0;  // the first code to execute
};
// `offset`: bytes from the function's start, below its length. Linear in the number of scopes and codes.
[[nodiscard]] Position position_at(const UnwindRecord& record, std::uint32_t offset);
// Steps over `count` codes from `index` on, stopping at end and end_c.
[[nodiscard]] std::uint32_t skip_codes(ByteView codes, std::uint32_t index, std::uint32_t count);

// The function a pc lies in and what holds there; place kLeaf where it has no entry.
struct Location {
  RuntimeFunction function;
  UnwindRecord record;
  Position position;
};
// `storage` must outlive the result. Errors: an entry or record that cannot be read, by its RVA. Logarithmic in the
// number of functions.
[[nodiscard]] Expected<Location> locate(const Functions& functions, std::uint32_t rva, Expansion& storage);

struct Unwound {
  Place place = Place::kLeaf;
  RuntimeFunction function;             // zero for a leaf
  std::uint64_t establisher_frame = 0;  // sp when all is undone: what handlers know the frame by
  std::uint32_t handler = 0;            // RVA; 0: none, or the pc is in the prologue or an epilogue
  std::uint32_t handler_data = 0;       // RVA of its language-specific data
};

[[nodiscard]] constexpr std::uint64_t strip_pac(std::uint64_t pointer, std::uint64_t mask) {
  return (pointer >> 55 & 1) != 0 ? pointer | mask : pointer & ~mask;
}

// Executes a record's codes from one of them on.
template <TargetMemory M>
class Executor {
 public:
  Executor(const M& memory, const ExecContext& context, const Registers& frame)
      : memory_(memory), context_(context), registers_(frame) {}

  Expected<void> run(ByteView codes, std::uint32_t index) {
    while (index < codes.size()) {  // running out of them ends them too, as in .NET; check_record complains
      const auto code = code_at(codes, index);
      if (!code) return Failure(code.error());
      where_ = codes.origin() + index;
      if (code->operation == Operation::kEnd) {
        if (nexts_ != 0) return bad("save_next without a pair");
        break;
      }
      if (const auto done = one(*code); !done) return done;
      index += code->size;
    }
    if (scalable_ && (!registers_.has_sp() || !registers_.has(kLr))) return no_sp();
    return {};
  }

  [[nodiscard]] bool pc_is_final() const { return pc_is_final_; }
  [[nodiscard]] bool interrupted() const { return interrupted_; }
  [[nodiscard]] bool everything() const { return everything_; }
  [[nodiscard]] const Registers& registers() const { return registers_; }
  [[nodiscard]] const SavedLocations& saved() const { return saved_; }

 private:
  static constexpr RegisterNumber kX29 = 29;

  Failure bad(const char* what) { return fail(ErrorCode::kMalformed, what, where_); }
  static Failure lost(RegisterNumber reg) {
    return fail(ErrorCode::kNotFound, "register is not known in this frame", reg);
  }

  Expected<void> one(const UnwindCode& code) {
    // Only pair stores and further save_next may follow a save_next; end_c may stand anywhere (.NET).
    if (nexts_ != 0 && !code.pair && code.operation != Operation::kSaveNext && code.operation != Operation::kEndC)
      return bad("save_next without a pair");
    if (code.saves()) return restore(code);
    switch (code.operation) {
      case Operation::kAllocS:
      case Operation::kAllocM:
      case Operation::kAllocL: return move_sp(code.value);
      case Operation::kAllocZ:
        if (context_.vector_length == 0) {
          registers_.forget(kSp);  // until a frame pointer leads on
          scalable_ = true;
          return {};
        }
        return move_sp(std::uint64_t{code.value} * context_.vector_length);
      case Operation::kSetFp:
      case Operation::kAddFp:
        if (!registers_.has(kX29)) return lost(kX29);
        registers_.set_sp(registers_.get(kX29) - code.value);
        return {};
      case Operation::kSaveNext: ++nexts_; return {};
      case Operation::kPacSignLr:
        if (registers_.has(kLr)) registers_.set(kLr, strip_pac(registers_.get(kLr), context_.pac_mask));
        return {};
      case Operation::kTrapFrame:
      case Operation::kMachineFrame:
      case Operation::kContext:
      case Operation::kEcContext: return system_frame(code.operation);
      case Operation::kClearUnwoundToCall:
        if (!registers_.has(kLr)) return lost(kLr);
        registers_.set_pc(CodeAddress::instruction(registers_.get(kLr)));
        pc_is_final_ = interrupted_ = true;
        return {};
      case Operation::kReserved: return fail(ErrorCode::kUnsupported, "undefined unwind code", where_);
      default: return {};  // nop, end_c, reserved ones that are nops
    }
  }

  Failure no_sp() {
    if (!scalable_) return lost(kSp);
    return fail(ErrorCode::kUnsupported, "sp and pc lie behind SVE vectors, whose length is not known", where_);
  }

  Expected<void> move_sp(std::uint64_t size) {
    if (!registers_.has_sp()) return scalable_ ? Expected<void>() : lost(kSp);
    registers_.set_sp(registers_.sp() + size);
    return {};
  }

  // Loads the registers that the code stored: `reg`, for pairs also its neighbour, and a further pair for each
  // save_next code before. save_next counts up to the pair that follows, and stays in its register file. On Windows,
  // x27/x28 are not followed by d8/d9, although the specification says so. LLVM never uses save_next for d registers.
  Expected<void> restore(const UnwindCode& code) {
    if (!registers_.has_sp() && !scalable_) return lost(kSp);
    if (code.file == RegisterFile::kZ || code.file == RegisterFile::kP) return restore_scalable(code);
    const std::uint64_t from = registers_.sp() + (code.writeback ? 0 : code.value);
    const unsigned unit = code.file == RegisterFile::kQ ? 2 : 1;
    const bool with_lr = code.operation == Operation::kSaveLrpair;
    if (with_lr && nexts_ != 0) return bad("save_next without a pair");
    const unsigned count = (code.pair ? 2 : 1) + 2 * nexts_;
    nexts_ = 0;
    const unsigned limit = code.file == RegisterFile::kX ? 31 : 32;
    if (code.reg + (with_lr ? 0 : count - 1) >= limit) return bad("unwind code saves a register that does not exist");
    const auto number = [&](unsigned i) {
      return dwarf_number(code.file, with_lr && i == 1 ? code.second : code.reg + i);
    };
    if (!registers_.has_sp()) {
      for (unsigned i = 0; i < count; ++i) registers_.forget(number(i));
      return {};
    }
    std::uint64_t values[64];
    if (!memory_.read(from, values, std::size_t{count} * unit * 8))
      return fail(ErrorCode::kUnreadable, "stack is not readable", from, std::uint64_t{count} * unit * 8);
    for (unsigned i = 0; i < count; ++i)
      set(number(i), values[std::size_t{i} * unit], from + std::uint64_t{i} * unit * 8);
    if (code.writeback) registers_.set_sp(registers_.sp() + code.value);
    return {};
  }

  Expected<void> restore_scalable(const UnwindCode& code) {
    if (code.file == RegisterFile::kP) return {};  // predicates are not held
    if (!registers_.has_sp() || (code.value != 0 && context_.vector_length == 0)) {
      registers_.forget(dwarf_number(RegisterFile::kD, code.reg));
      return {};
    }
    const std::uint64_t from = registers_.sp() + std::uint64_t{code.value} * context_.vector_length;
    std::uint64_t value = 0;  // d is the low end of z
    if (!memory_.read(from, &value, sizeof value))
      return fail(ErrorCode::kUnreadable, "stack is not readable", from, 8);
    set(dwarf_number(RegisterFile::kD, code.reg), value, from);
    return {};
  }

  void set(RegisterNumber reg, std::uint64_t value, std::uint64_t address) {
    registers_.set(reg, value);
    saved_.set(registers_, reg, address);
  }

  Expected<void> system_frame(Operation operation) {
    if (!registers_.has_sp()) return no_sp();
    const std::uint64_t base = registers_.sp();
    const SystemFrame& layout = system_frame_layout(operation);
    Registers next = registers_;
    if (layout.replaces_all) next.forget_all();
    for (const FrameSlot& slot : layout.slots) {
      std::uint64_t value = 0;
      if (!memory_.read(base + slot.offset, &value, sizeof value))
        return fail(ErrorCode::kUnreadable, "system frame is not readable", base + slot.offset, sizeof value);
      next.set(slot.reg, value);
      saved_.set(next, slot.reg, base + slot.offset);
    }
    if (operation == Operation::kTrapFrame) {
      if (const auto done = vector_state(base, next); !done) return done;
    }
    interrupted_ = true;
    if (layout.flags_offset >= 0) {
      std::uint32_t flags = 0;
      const std::uint64_t at = base + static_cast<std::uint64_t>(layout.flags_offset);
      if (!memory_.read(at, &flags, sizeof flags))
        return fail(ErrorCode::kUnreadable, "system frame is not readable", at, sizeof flags);
      interrupted_ = (flags & kContextUnwoundToCall) == 0;
    }
    registers_ = next;
    everything_ |= operation != Operation::kMachineFrame;
    pc_is_final_ = true;
    return {};
  }

  // The vector registers of a trap frame stand elsewhere, if they were saved at all.
  Expected<void> vector_state(std::uint64_t base, Registers& next) {
    std::uint64_t state = 0;
    std::uint32_t control[2] = {};
    if (!memory_.read(base + kTrapVfpState, &state, sizeof state))
      return fail(ErrorCode::kUnreadable, "system frame is not readable", base + kTrapVfpState, sizeof state);
    if (state == 0) return {};
    if (!memory_.read(state + kVfpControl, control, sizeof control))
      return fail(ErrorCode::kUnreadable, "vector state is not readable", state + kVfpControl, sizeof control);
    if (control[0] == ~0U || control[1] == ~0U) return {};
    for (unsigned i = 8; i < 16; ++i) {
      const std::uint64_t at = state + kVfpRegisters + std::uint64_t{i} * 16;
      std::uint64_t value = 0;
      if (!memory_.read(at, &value, sizeof value))
        return fail(ErrorCode::kUnreadable, "vector state is not readable", at, sizeof value);
      next.set(dwarf_number(RegisterFile::kD, i), value);
      saved_.set(next, dwarf_number(RegisterFile::kD, i), at);
    }
    return {};
  }

  const M& memory_;
  const ExecContext& context_;
  Registers registers_;
  SavedLocations saved_;
  std::uint64_t where_ = 0;
  unsigned nexts_ = 0;
  bool pc_is_final_ = false;  // it is not lr
  bool interrupted_ = false;  // the caller's pc is an interrupted instruction
  bool everything_ = false;   // volatile registers are known too
  bool scalable_ = false;     // sp was moved by vectors of unknown length
};

// The caller of `frame`, which stands at `location`. `caller` and `saved` (may be null) are set on success only. A
// return address is looked up by the instruction in front of it: CodeAddress::lookup lies inside of that instruction,
// and so serves as Windows' pc - 4. Errors:
// - kUnreadable: memory (address).
// - kNotFound: a register that is needed is not known (its number).
// - Any other: the unwind information is damaged (RVA).
template <TargetMemory M>
Expected<Unwound> virtual_unwind(const Location& location, const ExecContext& context, const M& memory,
                                 const Registers& frame, Registers& caller, SavedLocations* saved = nullptr) {
  Unwound unwound;
  unwound.place = location.position.place;
  Executor<M> executor(memory, context, frame);
  if (unwound.place == Place::kLeaf) {
    // It has moved neither sp nor lr. If lr is the pc, nothing would be gained by going there.
    if (frame.has(kLr) && frame.get(kLr) == frame.pc().value())
      return fail(ErrorCode::kMalformed, "function without unwind information returns to itself", frame.pc().value());
  } else {
    unwound.function = location.function;
    if (const auto done = executor.run(location.record.codes, location.position.index); !done)
      return Failure(done.error());
    if (unwound.place == Place::kBody && location.record.has_handler) {
      unwound.handler = location.record.handler;
      unwound.handler_data = location.record.handler_data;
    }
  }
  const Registers& undone = executor.registers();
  if (!undone.has_sp()) return fail(ErrorCode::kNotFound, "register is not known in this frame", 31);
  if (!executor.pc_is_final() && !undone.has(kLr))
    return fail(ErrorCode::kNotFound, "register is not known in this frame", kLr);

  Registers next = undone;
  if (!executor.everything()) {
    next.forget_all();
    keep_preserved(undone, next);
    next.set_sp(undone.sp());
    // At an interrupted instruction lr still counts; behind a call it is whatever the callee left.
    if (executor.interrupted() && undone.has(kLr)) next.set(kLr, undone.get(kLr));
  }
  const std::uint64_t pc = undone.get(executor.pc_is_final() ? kPc : kLr);
  next.set_pc(executor.interrupted() ? CodeAddress::instruction(pc) : CodeAddress::return_address(pc));
  unwound.establisher_frame = undone.sp();
  if (saved != nullptr) {
    next.for_each([&](RegisterNumber reg, std::uint64_t) {
      const RegisterNumber source = reg == kPc && !executor.pc_is_final() ? kLr : reg;
      if (const std::uint64_t at = executor.saved().at(next, source); at != 0) saved->set(next, reg, at);
    });
  }
  caller = next;
  return unwound;
}

// The same of a frame in an image, at its pc.
template <TargetMemory M>
Expected<Unwound> virtual_unwind(const Functions& functions, const ExecContext& context, const M& memory,
                                 const Registers& frame, Registers& caller, SavedLocations* saved = nullptr) {
  const std::uint64_t rva = frame.pc().lookup() - context.image_base;
  if (rva > 0xffff'ffff) return fail(ErrorCode::kOutOfRange, "pc is outside of the image", frame.pc().value());
  Expansion storage;
  const auto location = locate(functions, static_cast<std::uint32_t>(rva), storage);
  if (!location) return Failure(location.error());
  return virtual_unwind(*location, context, memory, frame, caller, saved);
}

}  // namespace windlass::winarm64
