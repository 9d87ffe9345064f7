// The rows of a function but for its epilogues, where they are kept from function to function.
#pragma once

#include <cstdint>
#include <span>

#include "formats/winx64/known_lowering.h"
#include "formats/winx64/read.h"
#include "formats/winx64/row_writer.h"

namespace windlass::winx64 {

// One operation of a prologue. It has been done where an RVA is `offset` or more behind `begin`; before `begin` the
// difference wraps around and all counts as done (fragments before their parents).
struct Op {
  std::uint32_t begin;
  std::uint32_t value;
  std::uint16_t offset;
  Operation operation;
  std::uint8_t info;
  std::uint8_t frame_register;

  [[nodiscard]] bool done_at(std::uint32_t rva) const { return rva - begin >= offset; }
};

// By the function's unwind information, as KnownPrologue has it. True: the rows are known.
class PrologueInUse {
 public:
  // `memory`: null: nothing is kept.
  PrologueInUse(KnownLowering* memory, const RuntimeFunction& entry) : memory_(memory), entry_(entry) {}

  explicit operator bool() const { return in_use_ != nullptr; }
  [[nodiscard]] unsigned frame_register() const { return key_.frame_register(); }
  [[nodiscard]] bool has_operations() const { return in_use_->has_operations; }

  // Has an earlier function had this information? To be called once, before all else.
  bool recall(ByteView info) {
    if (memory_ == nullptr || entry_.begin >= entry_.end || entry_.indirect()) return false;
    memory_->tidy();
    if (!key_.assign(info)) return false;
    place_ = &memory_->prologue(key_);
    if (place_->count == 0 || !(place_->key == key_)) return false;
    in_use_ = place_;
    return true;
  }

  // Can the rows be kept? Not of a function that ends before its prologue does.
  bool can_learn(std::uint32_t prologue_size, std::span<const Op> ops, std::size_t changes) {
    const std::uint32_t length = entry_.end - entry_.begin;
    if (place_ == nullptr || changes >= KnownPrologue::kMostSteps || prologue_size >= length) return false;
    for (const Op& op : ops)
      if (op.offset >= length) return false;
    place_->key = key_;
    place_->count = 0;
    place_->has_operations = !ops.empty();
    return true;
  }
  // The next step. False: there is no room for its row.
  bool learn(std::uint32_t offset, const Row& row) {
    FrameRow filled;
    RowWriter::fill(row, filled);
    const std::uint32_t number = memory_->rows.number_of(filled);
    if (number == 0) return false;
    place_->steps[learned_++] = {offset, number, word_of(filled.cfa)};
    return true;
  }
  // All steps are learned.
  void use_learned() {
    place_->count = learned_;
    in_use_ = place_;
  }
  // Learns all steps of pushes with allocations behind: each row is one of the epilogue that pops the registers again.
  // False: there is something else among the operations, which come in order, the last one first.
  bool learn_pushes(std::span<const Op> ops) {
    constexpr std::uint64_t kMostAllocated = std::uint64_t{1} << 30;  // of frames whose rows surely fit
    EpilogueMatch match;
    match.pop_count = 0;
    std::uint64_t allocated = 0;
    for (const Op& op : ops) {
      if (op.operation == Operation::kPushNonvol) {
        if (match.pop_count == sizeof match.pops) return false;
        match.pops[match.pop_count++] = op.info;
      } else if (match.pop_count == 0 &&
                 (op.operation == Operation::kAllocSmall || op.operation == Operation::kAllocLarge)) {
        allocated += op.value;
      } else {
        return false;
      }
    }
    if (ops.size() >= KnownPrologue::kMostSteps || allocated > kMostAllocated) return false;
    const KnownPops* rows = memory_->pops_of(match);
    if (rows == nullptr) return false;
    unsigned left = match.pop_count;  // pushes
    std::int32_t below = 0;           // what is pushed
    std::uint16_t last = 0;
    place_->steps[0] = {0, rows->numbers[left], rows->cfas[left]};
    for (std::size_t i = ops.size(); i-- > 0;) {
      const Op& op = ops[i];
      if (op.operation == Operation::kPushNonvol)
        --left;
      else
        below += static_cast<std::int32_t>(op.value);
      if (place_->steps[last].offset != op.offset) ++last;
      place_->steps[last] = {op.offset, rows->numbers[left], grown(rows->cfas[left], below)};
    }
    learned_ = static_cast<std::uint16_t>(last + 1);
    use_learned();
    return true;
  }

  // The rows from `at` up to `end`. `at` never goes back.
  void write(std::uint32_t at, std::uint32_t end, RowWriter& writer) {
    const KnownPrologue& known = *in_use_;
    while (at < end) {
      while (step_ + 1U < known.count && known.steps[step_ + 1].offset <= at - entry_.begin) ++step_;
      const KnownPrologue::Step& step = known.steps[step_];
      const std::uint32_t stop =
          step_ + 1U < known.count ? std::min(end, entry_.begin + known.steps[step_ + 1].offset) : end;
      writer.add_known(at, stop, step.cfa, step.number);
      at = stop;
    }
  }

 private:
  KnownLowering* memory_;
  const RuntimeFunction entry_;
  KnownPrologue::Key key_;
  KnownPrologue* place_ = nullptr;         // where that of this key is, or can be, kept
  const KnownPrologue* in_use_ = nullptr;  // null: the rows are not known
  std::uint32_t step_ = 0;                 // which holds where writing goes on
  std::uint16_t learned_ = 0;              // steps
};

}  // namespace windlass::winx64
