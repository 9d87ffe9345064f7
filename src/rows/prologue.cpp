#include "windlass/prologue.h"

#include "rows/frame_state.h"

namespace windlass::prologue {
namespace {

// Emits a row at every point where the state has changed.
class RowMaker {
 public:
  // Without `emit` it only checks.
  RowMaker(const Prologue& prologue, bool emit) : prologue_(prologue), state_(prologue.architecture), emit_(emit) {}

  Expected<std::vector<FrameRow>> run() {
    if (prologue_.architecture == Architecture::kI386)
      return fail(ErrorCode::kUnsupported, "prologues are those of x86-64 and AArch64", 0);
    if (auto ok = enter(prologue_.ops, 0, prologue_.code_size); !ok) return Failure(ok.error());
    if (prologue_.prologue_end() > prologue_.code_size || prologue_.prologue_end() < reached_)
      return fail(ErrorCode::kOutOfRange, "prologue ends outside of the code, or before its last op", prologue_.size);
    if (auto ok = body(prologue_.epilogues, prologue_.code_size, true); !ok) return Failure(ok.error());
    advance(prologue_.code_size);
    if (no_row_) return Failure(*no_row_);
    return std::move(rows_);
  }

 private:
  // Behind what the state holds for.
  void advance(std::uint32_t to) {
    reached_ = to;
    if (to <= at_) return;
    if (emit_) make_row(to);
    at_ = to;
  }

  void make_row(std::uint32_t to) {
    auto row = state_.row();
    if (!row) {
      if (!no_row_) no_row_ = Error{row.error().code, row.error().what, at_, row.error().detail};
      return;
    }
    row->begin = at_;
    row->end = to;
    rows_.push_back(*row);
  }

  Expected<void> enter(const std::vector<Op>& ops, std::uint32_t begin, std::uint32_t end) {
    for (const Op& op : ops) {
      if (op.end < reached_ || op.end < begin || op.end > end)
        return fail(ErrorCode::kOutOfRange, "op is out of order, or outside of the code", op.end);
      advance(op.end);
      if (const auto ok = state_.apply(op); !ok) return ok;
    }
    return {};
  }

  // From at_ up to `end`: epilogues, and (outside of parts) parts.
  Expected<void> body(const std::vector<Epilogue>& epilogues, std::uint32_t end, bool with_parts) {
    auto part = prologue_.parts.begin();
    const auto last = with_parts ? prologue_.parts.end() : part;
    auto epilogue = epilogues.begin();
    while (epilogue != epilogues.end() || part != last) {
      const bool is_part = epilogue == epilogues.end() || (part != last && part->begin < epilogue->begin);
      if (const auto ok = is_part ? enter_part(*part++) : leave(*epilogue++, end); !ok) return ok;
    }
    return {};
  }

  Expected<void> enter_part(const Part& part) {
    if (part.begin < reached_ || part.begin >= part.end || part.end > prologue_.code_size)
      return fail(ErrorCode::kOutOfRange, "part is empty, out of order, or outside of the code", part.begin, part.end);
    reached_ = part.begin;
    const FrameState around = state_;
    if (const auto ok = enter(part.ops, part.begin, part.end); !ok) return ok;
    outside_part_ = &around;
    const auto ok = body(part.epilogues, part.end, false);
    outside_part_ = nullptr;
    if (!ok) return ok;
    advance(part.end);
    state_ = around;
    return {};
  }

  Expected<void> leave(const Epilogue& epilogue, std::uint32_t limit) {
    if (epilogue.begin < reached_ || epilogue.begin >= epilogue.end || epilogue.end > limit)
      return fail(ErrorCode::kOutOfRange, "epilogue is empty, out of order, or outside of the code", epilogue.begin,
                  epilogue.end);
    reached_ = epilogue.begin;
    const FrameState around = state_;
    for (const Op& op : epilogue.undone) {
      if (op.end < reached_ || op.end > epilogue.end)
        return fail(ErrorCode::kOutOfRange, "op is out of order, or outside of its epilogue", op.end);
      advance(op.end);
      if (const auto ok = state_.undo(op); !ok) return ok;
    }
    const bool leaves_part = outside_part_ != nullptr && state_.same_frame(*outside_part_);
    if (!state_.is_entry() && !leaves_part)
      return fail(ErrorCode::kMalformed, "epilogue does not take back all that was done", epilogue.begin);
    advance(epilogue.end);
    state_ = around;
    return {};
  }

  const Prologue& prologue_;
  FrameState state_;
  const FrameState* outside_part_ = nullptr;  // while in one: the function's frame around it
  std::uint32_t reached_ = 0;                 // by what has been looked at
  std::uint32_t at_ = 0;                      // by rows
  bool emit_;
  std::vector<FrameRow> rows_;
  std::optional<Error> no_row_;  // of the first state that no row can express
};

// How long the instruction is that compilers take an action back by.
std::uint32_t undo_size(Architecture architecture, const Action& action) {
  if (architecture == Architecture::kAArch64) return 4;
  if (const auto* allocate = std::get_if<Allocate>(&action))
    return allocate->size < 128 ? 4 : 7;  // add rsp, imm8/imm32
  if (const auto* save = std::get_if<Save>(&action)) {
    if (save->allocate == 8) return save->reg >= 8 ? 2 : 1;  // pop
    return save->offset < 128 ? 5 : 8;                       // mov reg, [rsp + disp8/disp32]
  }
  if (const auto* set = std::get_if<SetFramePointer>(&action))
    return set->offset == 0 ? 3 : set->offset <= 128 ? 4 : 7;  // mov rsp, rbp; lea rsp, [rbp - disp8/disp32]
  return 0;
}

}  // namespace

Epilogue mirrored(const Prologue& prologue, std::uint32_t begin) {
  const bool x64 = prologue.architecture == Architecture::kX86_64;
  Epilogue epilogue{begin, begin, {}};
  for (auto op = prologue.ops.rbegin(); op != prologue.ops.rend(); ++op) {
    if (std::holds_alternative<MachineFrame>(op->action)) continue;
    // What was done behind it has been taken back: rsp is where it was. Only in front may the body have moved it.
    if (x64 && op != prologue.ops.rbegin() && std::holds_alternative<SetFramePointer>(op->action)) continue;
    epilogue.end += undo_size(prologue.architecture, op->action);
    epilogue.undone.push_back({epilogue.end, op->action});
  }
  epilogue.end += x64 ? 1 : 4;
  return epilogue;
}

Expected<std::vector<FrameRow>> rows_of(const Prologue& prologue) { return RowMaker(prologue, true).run(); }

Expected<void> check(const Prologue& prologue) {
  const auto rows = RowMaker(prologue, false).run();
  return rows ? Expected<void>() : Failure(rows.error());
}

}  // namespace windlass::prologue
