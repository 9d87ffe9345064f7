#include "rows/frame_state.h"

#include <algorithm>

namespace windlass {
namespace {

constexpr RegisterNumber kLr = 30;                      // AArch64
constexpr std::uint64_t kCallPushes = 8;                // x86-64
constexpr std::uint64_t kMachineFrame = 40, kRsp = 16;  // bytes of it, and how far back from its end rsp stands
constexpr std::uint64_t kLargest = std::uint64_t{1} << 40;
constexpr RegisterNumber kFirstP = 48, kLastP = 63, kFirstZ = 96, kLastZ = 127, kFirstV = 64;

std::uint64_t width(Architecture architecture, RegisterNumber reg) {
  return architecture == Architecture::kX86_64 && reg >= 17 && reg <= 32 ? 16 : 8;
}

// Do two places share a byte? Each is `size` bytes from [CFA - depth] up; a depth of the home area is below 0.
bool overlaps(std::uint64_t a, std::uint64_t a_size, std::uint64_t b, std::uint64_t b_size) {
  const auto a_low = -static_cast<std::int64_t>(a), b_low = -static_cast<std::int64_t>(b);
  return a_low < b_low + static_cast<std::int64_t>(b_size) && b_low < a_low + static_cast<std::int64_t>(a_size);
}

bool is_p(RegisterNumber reg) { return reg >= kFirstP && reg <= kLastP; }
bool is_scalable(RegisterNumber reg) { return is_p(reg) || (reg >= kFirstZ && reg <= kLastZ); }
std::uint64_t eighths(RegisterNumber reg) { return is_p(reg) ? 1 : 8; }

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
    if (set->offset > reach())
      return fail(ErrorCode::kOutOfRange, "frame pointer would lie outside of the frame", where, set->offset);
    pointer_ = Pointer{set->reg, depth_ - set->offset, vectors_};
  } else if (std::holds_alternative<prologue::SignReturnAddress>(op.action)) {
    if (architecture_ != Architecture::kAArch64 || signed_)
      return fail(ErrorCode::kMalformed, "return address is signed twice, or on x86-64", where);
    signed_ = true;
  } else if (const auto* machine = std::get_if<prologue::MachineFrame>(&op.action)) {
    if (architecture_ != Architecture::kX86_64 || machine_frame_ || depth_ != kCallPushes || !saved_.empty())
      return fail(ErrorCode::kMalformed, "a machine frame comes before everything else, on x86-64", where);
    machine_frame_ = *machine;
    depth_ = entry_depth();
  } else if (const auto* vectors = std::get_if<prologue::AllocateVectors>(&op.action)) {
    return add_vectors(*vectors, where);
  } else if (const auto* vector = std::get_if<prologue::SaveVector>(&op.action)) {
    return save(*vector, where);
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
    if (is_scalable(reg)) return fail(ErrorCode::kMalformed, "SVE registers are saved by SaveVector", where, reg);
    if (!vectors_.empty() && offset + size > reach())
      return fail(ErrorCode::kMalformed, "register is saved across SVE vectors, whose length is not known", where, reg);
    if (offset + size > free)
      return fail(ErrorCode::kOutOfRange, "register is saved outside of the frame", where, offset);
    if (std::any_of(saved_.begin(), saved_.end(), [&](const Saved& s) { return s.reg == reg; }))
      return fail(ErrorCode::kMalformed, "register is saved twice", where, reg);
    if (pointer_ && pointer_->reg == reg)
      return fail(ErrorCode::kMalformed, "frame pointer is saved after it was set", where, reg);
    const std::uint64_t place = depth_ - offset;
    if (overlaps(place, size, entry_depth(), entry_depth()))
      return fail(ErrorCode::kMalformed, "register is saved over the return address", where, offset);
    if (std::any_of(saved_.begin(), saved_.end(),
                    [&](const Saved& s) { return overlaps(place, size, s.depth, width(architecture_, s.reg)); }))
      return fail(ErrorCode::kMalformed, "register is saved where another one is", where, offset);
    saved_.push_back({reg, place, vectors_.size()});
    offset += size;
  }
  return {};
}

Expected<void> FrameState::undo(const prologue::Op& op) {
  const std::uint32_t where = op.end;
  if (const auto* allocate = std::get_if<prologue::Allocate>(&op.action)) {
    if (allocate->size > reach()) return fail(ErrorCode::kMalformed, "epilogue frees more than there is", where);
    depth_ -= allocate->size;
  } else if (const auto* saves = std::get_if<prologue::Save>(&op.action)) {
    return restore(*saves, where);
  } else if (const auto* set = std::get_if<prologue::SetFramePointer>(&op.action)) {
    if (!pointer_ || pointer_->reg != set->reg)
      return fail(ErrorCode::kMalformed, "epilogue goes by a frame pointer that is not set", where, set->reg);
    depth_ = pointer_->depth + set->offset;
    vectors_ = pointer_->vectors;
  } else if (std::holds_alternative<prologue::SignReturnAddress>(op.action)) {
    if (!signed_) return fail(ErrorCode::kMalformed, "epilogue authenticates what is not signed", where);
    signed_ = false;
  } else if (std::holds_alternative<prologue::MachineFrame>(op.action)) {
    return fail(ErrorCode::kMalformed, "no instruction of an epilogue takes a machine frame back", where);
  } else if (const auto* vectors = std::get_if<prologue::AllocateVectors>(&op.action)) {
    return free_vectors(*vectors, where);
  } else if (const auto* vector = std::get_if<prologue::SaveVector>(&op.action)) {
    return restore(*vector, where);
  }
  return {};
}

Expected<void> FrameState::restore(const prologue::Save& save, std::uint32_t where) {
  const RegisterNumber regs[] = {save.reg, save.second};
  std::uint64_t offset = save.offset;
  for (const RegisterNumber reg : regs) {
    if (reg == prologue::kNoRegister) continue;
    const auto found = std::find_if(saved_.begin(), saved_.end(), [&](const Saved& s) { return s.reg == reg; });
    if (found == saved_.end() || found->depth + offset != depth_ || found->vectors != vectors_.size())
      return fail(ErrorCode::kMalformed,
                  "epilogue restores a register from where it was not saved: a Save counts from sp as it is when the "
                  "instruction runs",
                  where, reg);
    saved_.erase(found);
    if (pointer_ && pointer_->reg == reg) pointer_.reset();
    offset += width(architecture_, reg);
  }
  if (save.allocate > reach()) return fail(ErrorCode::kMalformed, "epilogue frees more than there is", where);
  depth_ -= save.allocate;
  return {};
}

Expected<void> FrameState::add_vectors(const prologue::AllocateVectors& vectors, std::uint32_t where) {
  if (architecture_ != Architecture::kAArch64)
    return fail(ErrorCode::kMalformed, "SVE vectors are those of AArch64", where);
  if (vectors.count == 0) return fail(ErrorCode::kOutOfRange, "allocation of no SVE vectors", where);
  if (vectors_.empty() || reach() != 0) vectors_.push_back({depth_, 0});
  if (vectors.count > ~vectors_.back().count)
    return fail(ErrorCode::kOutOfRange, "allocation of more SVE vectors than any stack has", where, vectors.count);
  vectors_.back().count += vectors.count;
  return {};
}

Expected<void> FrameState::free_vectors(const prologue::AllocateVectors& vectors, std::uint32_t where) {
  if (vectors_.empty() || reach() != 0 || vectors.count > vectors_.back().count)
    return fail(ErrorCode::kMalformed, "epilogue frees SVE vectors that are not at sp", where, vectors.count);
  vectors_.back().count -= vectors.count;
  if (vectors_.back().count == 0) vectors_.pop_back();
  return {};
}

Expected<void> FrameState::save(const prologue::SaveVector& save, std::uint32_t where) {
  if (!is_scalable(save.reg))
    return fail(ErrorCode::kMalformed, "SaveVector saves z and p registers of SVE", where, save.reg);
  const std::uint64_t size = eighths(save.reg);
  const std::uint64_t room = vectors_.empty() || reach() != 0 ? 0 : std::uint64_t{8} * vectors_.back().count;
  const std::uint64_t begin = save.offset * size;
  if (begin + size > room)
    return fail(ErrorCode::kOutOfRange, "SVE register is saved outside of the vectors at sp", where, save.offset);
  const std::uint64_t below = room - begin;
  for (const SavedVector& saved : saved_vectors_) {
    if (saved.reg == save.reg) return fail(ErrorCode::kMalformed, "register is saved twice", where, save.reg);
    if (saved.vectors == vectors_.size() && overlaps(below, size, saved.below, eighths(saved.reg)))
      return fail(ErrorCode::kMalformed, "register is saved where another one is", where, save.offset);
  }
  saved_vectors_.push_back({save.reg, below, vectors_.size()});
  return {};
}

Expected<void> FrameState::restore(const prologue::SaveVector& save, std::uint32_t where) {
  const auto found = std::ranges::find(saved_vectors_, save.reg, &SavedVector::reg);
  const bool here = found != saved_vectors_.end() && found->vectors == vectors_.size() && reach() == 0 &&
                    found->below + save.offset * eighths(save.reg) == std::uint64_t{8} * vectors_.back().count;
  if (!here)
    return fail(ErrorCode::kMalformed,
                "epilogue restores an SVE register from where it was not saved: SaveVector counts from sp as it is "
                "when the instruction runs",
                where, save.reg);
  saved_vectors_.erase(found);
  return {};
}

bool FrameState::is_entry() const {
  return saved_.empty() && saved_vectors_.empty() && vectors_.empty() && !signed_ && depth_ == entry_depth();
}

std::uint64_t FrameState::entry_depth() const {
  if (machine_frame_) return kMachineFrame + (machine_frame_->error_code ? 8 : 0);
  return architecture_ == Architecture::kX86_64 ? kCallPushes : 0;
}

Expected<FrameRow> FrameState::row() const {
  const auto lost = [&](const Saved& saved) { return saved.reg == kLr && saved.vectors != 0; };
  if (!(pointer_ ? pointer_->vectors : vectors_).empty() ||
      (architecture_ == Architecture::kAArch64 && std::ranges::any_of(saved_, lost)))
    return fail(ErrorCode::kUnsupported, "no row: sp and pc lie behind SVE vectors, whose length is not known", 0);
  const RegisterNumber base = pointer_ ? pointer_->reg : Registers::sp_number(architecture_);
  const std::uint64_t depth = pointer_ ? pointer_->depth : depth_;
  bool fits = true;
  const auto narrow = [&](std::uint64_t distance) {
    const auto offset = static_cast<std::int64_t>(distance);
    fits = fits && fits_row(offset);
    return static_cast<std::int32_t>(offset);
  };
  // Above a machine frame nothing is told from the CFA: the interrupted rsp may point anywhere.
  const auto at = [&](std::uint64_t place) {
    return machine_frame_ ? RegisterRule::at_register(base, narrow(depth - place))
                          : RegisterRule::at_cfa(narrow(std::uint64_t{0} - place));
  };
  FrameRow row;
  row.cfa = machine_frame_ ? CfaRule::loaded(base, narrow(depth - kRsp), 0) : CfaRule::at(base, narrow(depth));
  if (architecture_ == Architecture::kAArch64)
    row.return_address = RegisterRule::in_register(kLr);
  else
    row.return_address = at(machine_frame_ ? kMachineFrame : kCallPushes);
  row.return_signed = signed_;
  row.signal_frame = machine_frame_.has_value();
  for (const Saved& saved : saved_) {
    if (architecture_ == Architecture::kAArch64 && saved.reg == kLr)
      row.return_address = at(saved.depth);
    else
      fits = row.registers.set(saved.reg, saved.vectors == 0 ? at(saved.depth) : RegisterRule::undefined()) && fits;
  }
  // A z register has the v register of its number. Calls preserve d8-d15 alone, the low halves of v8-v15.
  for (const SavedVector& saved : saved_vectors_)
    if (saved.reg >= kFirstZ + 8 && saved.reg <= kFirstZ + 15)
      (void)row.registers.set(static_cast<RegisterNumber>(saved.reg - kFirstZ + kFirstV), RegisterRule::undefined());
  if (!fits) return fail(ErrorCode::kLimit, "no row for a frame of 2 GiB or more", 0, depth_);
  return row;
}

}  // namespace windlass
