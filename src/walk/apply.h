// A row applied to a frame: the caller's registers. Values are computed into a copy and committed last, so a failed
// step leaves nothing half changed. No allocation, lock or system call of its own; signal-safe if `memory` is.
#pragma once

#include <optional>

#include "base/registers.h"
#include "base/target_memory.h"
#include "formats/dwarf/expression.h"
#include "windlass/frame_row.h"
#include "windlass/walk.h"

namespace windlass::walk {

// Why there is no caller, or kRunning with it.
struct StepStatus {
  WalkEnd end = WalkEnd::kRunning;
  Error error;
  [[nodiscard]] bool ok() const { return end == WalkEnd::kRunning; }
};

// What the row's numbers are relative to, beside the registers.
struct ApplyContext {
  std::uint64_t bias = 0;                     // of the module: what DW_OP_addr is moved by
  std::uint64_t pac_mask = 0;                 // bits of a return address to clear where it is signed (AArch64)
  bool slots_below_sp_are_dead = true;        // see value()
  std::optional<std::uint64_t> fs_base = {};  // x86-64: of the thread, for expressions, where it is known
  std::optional<std::uint64_t> gs_base = {};  // The same.
  bool jumps_to_register = true;              // see apply()
};

// Evaluates a row's rules against one frame; keeps why the last one failed.
template <TargetMemory M>
class RuleReader {
 public:
  RuleReader(const FrameRow& row, const M& memory, const Registers& frame, const ApplyContext& context)
      : row_(row), memory_(memory), frame_(frame), context_(context) {}

  // To be asked first.
  bool find_cfa() {
    const CfaRule& rule = row_.cfa;
    switch (rule.kind()) {
      case CfaRule::kRegister: return sum(rule.reg(), rule.offset(), cfa_);
      case CfaRule::kLoaded: {
        std::uint64_t at = 0;
        if (!sum(rule.reg(), rule.offset(), at) || !load(at, cfa_)) return false;
        cfa_ = address(cfa_ + signed_word(rule.addend()));
        return true;
      }
      case CfaRule::kExpression: break;
    }
    return evaluate(row_.expression(rule), false, cfa_);
  }

  // The caller's value of `reg`, and where it was saved (0: in a register, or nowhere).
  bool value(RegisterNumber reg, const RegisterRule& rule, std::uint64_t& to, std::uint64_t& saved_at) {
    saved_at = 0;
    switch (rule.kind()) {
      case RegisterRule::kUndefined: return lost(reg);
      case RegisterRule::kSameValue: return copy(reg, to);
      case RegisterRule::kAtCfa:
        saved_at = address(cfa_ + signed_word(rule.offset()));
        // GCC's epilogues do not say that a register has been popped again: its slot is then below sp, and dead.
        if (context_.slots_below_sp_are_dead && saved_at < frame_.sp() && !frame_.pc().is_return_address() &&
            is_callee_saved(frame_.architecture(), reg) && copy(reg, to)) {
          saved_at = 0;
          return true;
        }
        return load(saved_at, to);
      case RegisterRule::kCfaValue: to = address(cfa_ + signed_word(rule.offset())); return true;
      case RegisterRule::kInRegister: return copy(rule.reg(), to);
      case RegisterRule::kAtRegister: return sum(rule.reg(), rule.offset(), saved_at) && load(saved_at, to);
      case RegisterRule::kRegisterValue: return sum(rule.reg(), rule.offset(), to);
      case RegisterRule::kAtExpression: return evaluate(row_.expression(rule), true, saved_at) && load(saved_at, to);
      case RegisterRule::kExpressionValue: break;
    }
    return evaluate(row_.expression(rule), true, to);
  }

  [[nodiscard]] std::uint64_t cfa() const { return cfa_; }
  [[nodiscard]] const StepStatus& status() const { return status_; }

 private:
  bool failed(WalkEnd end, const Error& error) {
    status_ = {end, error};
    return false;
  }
  bool lost(std::uint64_t reg) {
    return failed(WalkEnd::kLost,
                  Error{ErrorCode::kNotFound, "register is not known in this frame", frame_.pc().value(), reg});
  }
  bool copy(RegisterNumber reg, std::uint64_t& to) {
    if (!frame_.has(reg)) return lost(reg);
    to = frame_.get(reg);
    return true;
  }
  bool sum(RegisterNumber reg, std::int32_t offset, std::uint64_t& to) {
    if (!copy(reg, to)) return false;
    to = address(to + signed_word(offset));
    return true;
  }
  static std::uint64_t signed_word(std::int32_t offset) { return static_cast<std::uint64_t>(std::int64_t{offset}); }
  // A sum wraps where addresses do.
  [[nodiscard]] std::uint64_t address(std::uint64_t sum) const {
    return narrow_ ? static_cast<std::uint32_t>(sum) : sum;
  }
  // A word of the architecture.
  bool load(std::uint64_t address, std::uint64_t& to) {
    if (!narrow_) [[likely]] {
      if (memory_.read(address, &to, sizeof to)) return true;
    } else {
      std::uint32_t word = 0;
      const bool read = memory_.read(address, &word, sizeof word);
      to = word;
      if (read) return true;
    }
    return failed(WalkEnd::kUnreadable, Error{ErrorCode::kUnreadable, "stack is not readable", address,
                                              Registers::word_size(frame_.architecture())});
  }

  bool evaluate(ByteView expression, bool push_cfa, std::uint64_t& to) {
    const auto read_register = [&](std::uint64_t reg) -> Expected<std::uint64_t> {
      if (reg == x86_64::kFsBase && context_.fs_base && frame_.architecture() == Architecture::kX86_64)
        return *context_.fs_base;
      if (reg == x86_64::kGsBase && context_.gs_base && frame_.architecture() == Architecture::kX86_64)
        return *context_.gs_base;
      if (!frame_.has(reg)) return fail(ErrorCode::kNotFound, "register is not known in this frame", reg);
      return frame_.get(reg);
    };
    const auto read_memory = [&](std::uint64_t address, unsigned size) -> Expected<std::uint64_t> {
      std::uint64_t value = 0;
      if (size > sizeof value || !memory_.read(address, &value, size))
        return fail(ErrorCode::kUnreadable, "memory is not readable", address, size);
      return value;
    };
    const auto value = dwarf::evaluate_expression(
        expression, {read_register, read_memory, push_cfa ? std::optional<std::uint64_t>(cfa_) : std::nullopt,
                     context_.bias, Registers::word_size(frame_.architecture())});
    if (!value) {
      const ErrorCode code = value.error().code;
      return failed(code == ErrorCode::kUnreadable ? WalkEnd::kUnreadable
                    : code == ErrorCode::kNotFound ? WalkEnd::kLost
                                                   : WalkEnd::kBadRow,
                    value.error());
    }
    to = *value;
    return true;
  }

  const FrameRow& row_;
  const M& memory_;
  const Registers& frame_;
  const ApplyContext& context_;
  const bool narrow_ = Registers::word_size(frame_.architecture()) == 4;
  std::uint64_t cfa_ = 0;
  StepStatus status_;
};

// The caller of `frame` by `row`. On kRunning `caller` and `saved` (may be null) are set. kComplete if the row has no
// caller (an undefined return address), or if the return address is 0. But if an interrupted pc is 0, the program has
// called a null pointer.
template <TargetMemory M>
StepStatus apply(const FrameRow& row, const M& memory, const ApplyContext& context, const Registers& frame,
                 Registers& caller, SavedLocations* saved) {
  if (row.return_address.is(RegisterRule::kUndefined)) return {WalkEnd::kComplete, {}};
  RuleReader<M> rules(row, memory, frame, context);
  if (!rules.find_cfa()) return rules.status();

  Registers next(frame.architecture());
  keep_preserved(frame, next);
  next.set_sp(rules.cfa());
  std::uint64_t value = 0;
  std::uint64_t saved_at = 0;
  for (const RegisterEntry entry : row.registers) {
    if (!next.holds(entry.reg)) continue;
    if (rules.value(entry.reg, entry.rule, value, saved_at)) {
      next.set(entry.reg, value);
      if (saved != nullptr) saved->set(next, entry.reg, saved_at);
    } else {
      next.forget(entry.reg);  // lost; whoever needs it says so
    }
  }
  const RegisterNumber pc = Registers::pc_number(frame.architecture());
  if (!rules.value(pc, row.return_address, value, saved_at)) return rules.status();
  if (row.return_signed) value &= ~context.pac_mask;
  if (value == 0 && !row.signal_frame) return {WalkEnd::kComplete, {}};
  if (saved != nullptr) saved->set(next, pc, saved_at);
  // A signal frame's pc was interrupted. Without a link register a return address in a register is jumped to (vfork,
  // libgcc's context installation), so the row is the one at it. A runtime's code may just keep it there.
  const bool jumped = frame.architecture() != Architecture::kAArch64 && context.jumps_to_register &&
                      row.return_address.is(RegisterRule::kInRegister);
  next.set_pc(row.signal_frame || jumped ? CodeAddress::instruction(value) : CodeAddress::return_address(value));
  caller = next;
  return {};
}

}  // namespace windlass::walk
