#include "model/frame_state.h"

#include <algorithm>

namespace windlass {
namespace {

constexpr RegisterNumber kLr = 30;                      // AArch64
constexpr std::uint64_t kCallPushes = 8;                // x86-64
constexpr std::uint64_t kMachineFrame = 40, kRsp = 16;  // bytes of it, and how far back from its end rsp stands
constexpr std::uint64_t kLargest = std::uint64_t{1} << 40;

std::uint64_t width(Architecture architecture, RegisterNumber reg) {
  return architecture == Architecture::kX86_64 && reg >= 17 && reg <= 32 ? 16 : 8;
}

}  // namespace

FrameState::FrameState(Architecture architecture)
    : architecture_(architecture), depth_(architecture == Architecture::kX86_64 ? kCallPushes : 0) {}

Expected<void> FrameState::apply(const prologue::Op& op) {
  const std::uint32_t where = op.end;
  if (const auto* allocate = std::get_if<prologue::Allocate>(&op.action)) {
    if (allocate->size == 0 || allocate->size > kLargest)
      return fail(ErrorCode::kOutOfRange, "allocation of nothing, or of more than any stack", where, allocate->size);
    depth_ += allocate->size;
  } else if (const auto* saves = std::get_if<prologue::Save>(&op.action)) {
    return save(*saves, where);
  } else if (const auto* set = std::get_if<prologue::SetFramePointer>(&op.action)) {
    if (pointer_) return fail(ErrorCode::kMalformed, "frame pointer is set twice", where, set->reg);
    if (set->offset > depth_)
      return fail(ErrorCode::kOutOfRange, "frame pointer would lie outside of the frame", where, set->offset);
    pointer_ = Pointer{set->reg, depth_ - set->offset};
  } else if (std::holds_alternative<prologue::SignReturnAddress>(op.action)) {
    if (architecture_ != Architecture::kAArch64 || signed_)
      return fail(ErrorCode::kMalformed, "return address is signed twice, or on x86-64", where);
    signed_ = true;
  } else if (const auto* machine = std::get_if<prologue::MachineFrame>(&op.action)) {
    if (architecture_ != Architecture::kX86_64 || machine_frame_ || depth_ != kCallPushes || !saved_.empty())
      return fail(ErrorCode::kMalformed, "a machine frame comes before everything else, on x86-64", where);
    machine_frame_ = *machine;
    depth_ = kMachineFrame + (machine->error_code ? 8 : 0);
  }
  return {};
}

Expected<void> FrameState::save(const prologue::Save& save, std::uint32_t where) {
  depth_ += save.allocate;
  const RegisterNumber regs[] = {save.reg, save.second};
  std::uint64_t offset = save.offset;
  for (const RegisterNumber reg : regs) {
    if (reg == prologue::kNoRegister) continue;
    const std::uint64_t size = width(architecture_, reg);
    const std::uint64_t free = architecture_ == Architecture::kX86_64 && !machine_frame_ ? depth_ + 32 : depth_;
    // On x86-64 Windows the 32 bytes above the return address belong to the callee: its home area.
    if (offset + size > free)
      return fail(ErrorCode::kOutOfRange, "register is saved outside of the frame", where, offset);
    if (std::any_of(saved_.begin(), saved_.end(), [&](const Saved& s) { return s.reg == reg; }))
      return fail(ErrorCode::kMalformed, "register is saved twice", where, reg);
    if (pointer_ && pointer_->reg == reg)
      return fail(ErrorCode::kMalformed, "frame pointer is saved after it was set", where, reg);
    saved_.push_back({reg, depth_ - offset});
    offset += size;
  }
  return {};
}

Expected<void> FrameState::undo(const prologue::Op& op) {
  const std::uint32_t where = op.end;
  if (const auto* allocate = std::get_if<prologue::Allocate>(&op.action)) {
    if (allocate->size > depth_) return fail(ErrorCode::kMalformed, "epilogue frees more than there is", where);
    depth_ -= allocate->size;
  } else if (const auto* saves = std::get_if<prologue::Save>(&op.action)) {
    return restore(*saves, where);
  } else if (const auto* set = std::get_if<prologue::SetFramePointer>(&op.action)) {
    if (!pointer_ || pointer_->reg != set->reg)
      return fail(ErrorCode::kMalformed, "epilogue goes by a frame pointer that is not set", where, set->reg);
    depth_ = pointer_->depth + set->offset;
  } else if (std::holds_alternative<prologue::SignReturnAddress>(op.action)) {
    if (!signed_) return fail(ErrorCode::kMalformed, "epilogue authenticates what is not signed", where);
    signed_ = false;
  } else if (std::holds_alternative<prologue::MachineFrame>(op.action)) {
    return fail(ErrorCode::kMalformed, "no instruction of an epilogue takes a machine frame back", where);
  }
  return {};
}

Expected<void> FrameState::restore(const prologue::Save& save, std::uint32_t where) {
  const RegisterNumber regs[] = {save.reg, save.second};
  std::uint64_t offset = save.offset;
  for (const RegisterNumber reg : regs) {
    if (reg == prologue::kNoRegister) continue;
    const auto found = std::find_if(saved_.begin(), saved_.end(), [&](const Saved& s) { return s.reg == reg; });
    if (found == saved_.end() || found->depth + offset != depth_)
      return fail(ErrorCode::kMalformed, "epilogue restores a register from where it was not saved", where, reg);
    saved_.erase(found);
    if (pointer_ && pointer_->reg == reg) pointer_.reset();
    offset += width(architecture_, reg);
  }
  if (save.allocate > depth_) return fail(ErrorCode::kMalformed, "epilogue frees more than there is", where);
  depth_ -= save.allocate;
  return {};
}

bool FrameState::is_entry() const {
  const bool x64 = architecture_ == Architecture::kX86_64;
  const std::uint64_t entered = machine_frame_ ? kMachineFrame + (machine_frame_->error_code ? 8 : 0)
                                : x64          ? kCallPushes
                                               : 0;
  return saved_.empty() && !signed_ && depth_ == entered;
}

FrameRow FrameState::row() const {
  FrameRow row;
  const auto at = [](std::uint64_t depth) { return AtCfa{-static_cast<std::int64_t>(depth)}; };
  if (pointer_)
    row.cfa = CfaRegister{pointer_->reg, static_cast<std::int64_t>(pointer_->depth)};
  else
    row.cfa = CfaRegister{Registers::sp_number(architecture_), static_cast<std::int64_t>(depth_)};
  if (architecture_ == Architecture::kAArch64)
    row.return_address = InRegister{kLr};
  else
    row.return_address = machine_frame_ ? at(kMachineFrame) : at(kCallPushes);
  row.return_signed = signed_;
  if (machine_frame_) {
    row.signal_frame = true;
    (void)row.registers.set(Registers::sp_number(architecture_), at(kRsp));
  }
  for (const Saved& saved : saved_) {
    if (architecture_ == Architecture::kAArch64 && saved.reg == kLr)
      row.return_address = at(saved.depth);
    else
      (void)row.registers.set(saved.reg, at(saved.depth));
  }
  return row;
}

}  // namespace windlass
