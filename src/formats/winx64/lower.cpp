#include "formats/winx64/lower.h"

#include <algorithm>
#include <array>
#include <span>

#include "formats/winx64/epilogue.h"
#include "formats/winx64/epilogue_scan.h"
#include "formats/winx64/exec.h"
#include "formats/winx64/exit_code.h"
#include "formats/winx64/instruction_length.h"
#include "formats/winx64/known_lowering.h"
#include "formats/winx64/lower_v3.h"
#include "formats/winx64/prologue_in_use.h"
#include "formats/winx64/registers.h"
#include "formats/winx64/row_writer.h"

namespace windlass::winx64 {
namespace {

constexpr std::size_t kMaxBoundaries = 64, kMaxOps = 256;

struct Link {
  RuntimeFunction function;
  UnwindInfo info;
};

template <UnwindImage I>
class Lowering {
 public:
  // `known`: what is kept from function to function; null: nothing is.
  Lowering(const I& functions, const RuntimeFunction& entry, RowSink row, ProblemSink problem,
           KnownLowering* known = nullptr)
      : functions_(functions),
        entry_(entry),
        writer_(row, known == nullptr ? nullptr : &known->rows),
        problem_(problem),
        memory_(known),
        known_rows_(known, entry),
        boundaries_of_code_(ByteView()) {}

  // The row for one address of the entry, or nothing and a problem.
  void run_at(std::uint32_t rva) {
    if (!prepare()) return;
    Row row;
    const Link& own = chain_[0];
    if (own.info.version == 1) {
      const ByteView code = functions_.bytes(rva, kEpilogueWindow);
      EpilogueMatch match;
      if ((code.size() < 2 || may_begin_epilogue(code.u8()[0], code.u8()[1])) &&
          match_epilogue(code, own.info.frame_register, entry_.end - rva, match) &&
          (match.exit != EpilogueMatch::Exit::kJump || jump_leaves(functions_, own.function, own.info, rva, match)) &&
          !is_behind_call(functions_, match, rva)) {
        row_in_epilogue(match, match.steps[0].pops, match.release != EpilogueMatch::Release::kNone, row);
        if (fits(row, rva)) writer_.add(rva, rva + 1, row);
        return;
      }
    } else {
      std::optional<std::uint32_t> into;
      each_epilog(own.info, own.function.end, [&](const Epilog& epilog) {
        if (!into && rva - epilog.begin < epilog.size) into = rva - epilog.begin;
      });
      if (into) {
        if (undo_pushes(*into, row)) writer_.add(rva, rva + 1, row);
        return;
      }
    }
    if (undo_prologues(rva, row)) writer_.add(rva, rva + 1, row);
  }

  void run() {
    if (!recall_prologue()) {
      if (!prepare() || !find_boundaries()) return;
      learn_prologue();
    }
    at_ = entry_.begin;
    if (chain_[0].info.version == 1)
      find_epilogues();
    else
      add_epilogues_v2();
    prologue_rows(entry_.end);
  }

 private:
  // ---- reading ------------------------------------------------------------------------------------------------

  bool problem(const Error& error) {
    if (quiet_) return false;
    writer_.give_waiting();
    problem_(error);
    return false;
  }
  bool problem(ErrorCode code, const char* what, std::uint64_t where, std::uint64_t detail = 0) {
    return problem(Error{code, what, where, detail});
  }

  bool prepare() {
    if (entry_.begin >= entry_.end)
      return problem(ErrorCode::kMalformed, "function ends before it begins: RVA", entry_.begin, entry_.end);
    RuntimeFunction function = entry_;
    if (function.indirect()) {
      const auto other = direct(functions_, function);
      if (!other) return problem(other.error());
      function = *other;
    }
    for (;;) {
      if (count_ == kMaxChain + 1)
        return problem(ErrorCode::kLimit, "chain of unwind information is longer than 32: RVA", function.info);
      Link& link = *::new (&chain_[count_++]) Link{function, {}};
      if (!info_of(functions_, function, link.info)) return problem(info_of(functions_, function).error());
      if (link.info.version == 3)
        return problem(ErrorCode::kUnsupported, "version 3 is chained to another version: RVA", link.info.rva);
      if (!read_codes(link)) return false;
      if (count_ == 1) own_op_count_ = op_count_;
      has_operations_ = op_count_ != 0;
      if (!link.info.chained) return true;
      function = *link.info.chained;
    }
  }

  bool read_codes(const Link& link) {
    UnwindCode code;
    for (unsigned index = 0; index < link.info.slot_count; index += code.slots) {
      if (!code_at(link.info, index, code)) return problem(code_at(link.info, index).error());
      if (code.operation == Operation::kEpilog) continue;
      if (op_count_ == kMaxOps)
        return problem(ErrorCode::kLimit, "more than 256 unwind operations: RVA", link.info.rva);
      ops_[op_count_++] = {link.function.begin, code.value, code.offset,
                           code.operation,      code.info,  link.info.frame_register};
    }
    return true;
  }

  // RVAs inside the entry at which one more operation of the prologue has been done.
  bool find_boundaries() {
    bool all = true;
    const auto add = [&](std::uint32_t rva) {
      if (rva <= entry_.begin || rva >= entry_.end) return;
      // Most come in descending order, each once.
      std::size_t at = boundary_count_;
      while (at > 0 && boundaries_[at - 1] < rva) --at;
      if (at > 0 && boundaries_[at - 1] == rva) return;
      if (boundary_count_ == kMaxBoundaries) {
        all = false;
        return;
      }
      std::copy_backward(boundaries_ + at, boundaries_ + boundary_count_, boundaries_ + boundary_count_ + 1);
      boundaries_[at] = rva;
      ++boundary_count_;
    };
    for (std::size_t i = 0; i < count_; ++i) {
      // A parent may begin inside or behind this entry; before it all of it counts as done.
      const Link& link = chain_[i];
      if (link.info.frame_register != 0) add(link.function.begin + link.info.prolog_size);
      add(link.function.begin);
    }
    for (std::size_t i = 0; i < op_count_; ++i) add(ops_[i].begin + ops_[i].offset);
    left_ = boundary_count_;
    plain_ = is_plain();
    return all || problem(ErrorCode::kLimit, "prologue has more than 64 changes: RVA", chain_[0].info.rva);
  }

  // ---- what is known ------------------------------------------------------------------------------------------

  // Does the function have the unwind information of an earlier one? Then the codes need not be read.
  bool recall_prologue() {
    if (!known_rows_.recall(functions_.bytes(entry_.info, kLongestInfo))) return false;
    Link& link = *::new (&chain_[count_++]) Link{entry_, {}};
    link.info.frame_register = static_cast<std::uint8_t>(known_rows_.frame_register());
    has_operations_ = known_rows_.has_operations();
    return true;
  }

  // Keeps the rows for later functions, and uses them for this one.
  void learn_prologue() {
    const std::span<const Op> ops(ops_, op_count_);
    if (!known_rows_.can_learn(chain_[0].info.prolog_size, ops, boundary_count_)) return;
    if (plain_ && known_rows_.learn_pushes(ops)) return;
    quiet_ = true;
    for (std::uint32_t rva = entry_.begin;; rva = boundaries_[left_ - 1]) {
      seek(rva);
      if (!has_row_ || !known_rows_.learn(rva - entry_.begin, known_row_)) break;
      if (left_ != 0) continue;
      known_rows_.use_learned();
      break;
    }
    quiet_ = false;
    if (known_rows_) return;
    left_ = boundary_count_;
    known_ = false;
    known_row_.start();
  }

  // ---- prologue and body --------------------------------------------------------------------------------------

  // Rows from at_ up to `end`, where no epilogue is.
  void prologue_rows(std::uint32_t end) {
    if (known_rows_) {
      known_rows_.write(at_, end, writer_);
      at_ = std::max(at_, end);
      return;
    }
    while (at_ < end) {
      seek(at_);
      const std::uint32_t stop = left_ == 0 ? end : std::min(boundaries_[left_ - 1], end);
      if (has_row_) writer_.add(at_, stop, known_row_);
      at_ = stop;
    }
  }

  // Makes known_row_ what holds at `rva`, which never goes back.
  void seek(std::uint32_t rva) {
    bool moved = !known_;
    for (; left_ != 0 && boundaries_[left_ - 1] <= rva; --left_) moved = true;
    if (!moved) return;
    has_row_ = plain_ ? do_plainly(rva) : undo_prologues(rva, known_row_);
    known_ = true;
  }

  // Are the codes those of a frame that rsp alone leads to, in the order they run in, with every save behind the
  // allocations? Then the row behind an operation follows from the one before it.
  [[nodiscard]] bool is_plain() const {
    if (count_ != 1 || chain_[0].info.frame_register != 0) return false;
    std::uint16_t offset = 0;
    bool saves = false;
    for (std::size_t i = op_count_; i-- > 0;) {
      const Op& op = ops_[i];
      if (op.offset < offset) return false;
      offset = op.offset;
      switch (op.operation) {
        case Operation::kPushNonvol:
          if (op.info == kRsp) return false;
          [[fallthrough]];
        case Operation::kAllocLarge:
        case Operation::kAllocSmall:
          if (saves) return false;
          break;
        case Operation::kSaveNonvol:
        case Operation::kSaveNonvolFar:
          if (op.info == kRsp) return false;
          [[fallthrough]];
        case Operation::kSaveXmm128:
        case Operation::kSaveXmm128Far: saves = true; break;
        default: return false;
      }
    }
    return true;
  }

  // What undo_prologues finds, from known_row_ on.
  bool do_plainly(std::uint32_t rva) {
    Row& row = known_row_;
    if (!known_) {
      row.offset = 8;
      row.return_address = RegisterRule::at_cfa(-8);
      next_op_ = op_count_;
    }
    for (; next_op_ != 0 && ops_[next_op_ - 1].done_at(rva); --next_op_) {
      const Op& op = ops_[next_op_ - 1];
      const bool xmm = op.operation == Operation::kSaveXmm128 || op.operation == Operation::kSaveXmm128Far;
      const unsigned reg = xmm ? kXmm0 + op.info : dwarf_number(op.info);
      switch (op.operation) {
        case Operation::kAllocLarge:
        case Operation::kAllocSmall: row.offset += op.value; break;
        case Operation::kPushNonvol:
          row.offset += 8;
          if (!row.saves(reg)) row.save_at_cfa(reg, -row.offset);  // the first save is the caller's value
          break;
        default:
          if (!row.saves(reg)) row.save_at_cfa(reg, op.value - row.offset);
          break;
      }
    }
    (void)row.narrow(row.offset);
    return fits(row, rva);
  }

  bool fits(const Row& row, std::uint32_t rva) {
    return !row.too_large || problem(ErrorCode::kLimit, "no row for a frame of 2 GiB or more at RVA", rva);
  }

  // What `Unwinder::undo_prologues` does, in symbols.
  bool undo_prologues(std::uint32_t rva, Row& row) {
    row.start();
    const Place establisher = establisher_at(rva);
    for (std::size_t i = 0; i < op_count_; ++i) {
      const Op& op = ops_[i];
      // A machine frame is what was on the stack first.
      if (op.done_at(rva) && (row.machine_frame || !undo(op, establisher, row)))
        return problem(ErrorCode::kUnsupported, "no row can say what the codes do at RVA", rva, chain_[0].info.rva);
    }
    if (!row.machine_frame) row.finish(0);
    return fits(row, rva);
  }

  struct Place {
    std::uint8_t base;
    std::int64_t offset;
  };
  Place establisher_at(std::uint32_t rva) const {
    const UnwindInfo& info = chain_[0].info;
    if (info.frame_register == 0) return {kRsp, 0};
    const std::uint32_t begin = chain_[0].function.begin;
    bool set = rva - begin >= info.prolog_size || info.has(kChaininfo);
    std::int64_t displacement = std::int64_t{info.frame_offset} * 16;
    for (std::size_t i = 0; i < own_op_count_; ++i) {
      const Op& op = ops_[i];
      if (op.operation != Operation::kSetFpreg && op.operation != Operation::kSetFpregLarge) continue;
      if (!set || info.frame_offset == 15) displacement = op.value;
      set = set || op.done_at(rva);
      break;
    }
    return set ? Place{info.frame_register, -displacement} : Place{kRsp, 0};
  }

  bool undo(const Op& op, Place establisher, Row& row) {
    switch (op.operation) {
      case Operation::kPushNonvol: {
        if (op.info == kRsp) return false;
        row.save(dwarf_number(op.info), row.base, row.offset);
        row.offset += 8;
        return true;
      }
      case Operation::kAllocLarge:
      case Operation::kAllocSmall: row.offset += op.value; return true;
      case Operation::kSetFpreg:
      case Operation::kSetFpregLarge: return row.take_base(op.frame_register, op.value);
      case Operation::kSaveNonvol:
      case Operation::kSaveNonvolFar:
        if (op.info == kRsp) return false;
        row.save(dwarf_number(op.info), establisher.base, establisher.offset + op.value);
        return true;
      case Operation::kSaveXmm128:
      case Operation::kSaveXmm128Far:
        row.save(kXmm0 + op.info, establisher.base, establisher.offset + op.value);
        return true;
      case Operation::kPushMachframe: row.enter_machine_frame(op.info != 0); return true;
      default: return false;
    }
  }

  // ---- epilogues ----------------------------------------------------------------------------------------------

  // Looks for the exits, and from each one back. Bytes inside other instructions may look like an exit. Then rows are
  // made for addresses that no instruction has, which does no harm as long as these rows stay at those addresses.
  void find_epilogues() {
    length_ = entry_.end - entry_.begin;
    // Some bytes more: an epilogue may reach past the entry, as the unwinder, which sees the image's bytes, does.
    code_ = functions_.bytes(entry_.begin, length_ + kEpilogueWindow);
    boundaries_of_code_ = Boundaries(code_);
    exits_ = ExitCode(code_, length_, chain_[0].info.frame_register, entry_.indirect());
    each_exit(code_.u8(), static_cast<std::uint32_t>(code_.size()), length_, [&](std::uint32_t at) {
      if (at >= exits_.begin() && exits_.is_exit(at)) epilogue(at);
    });
  }

  // The epilogue with an exit at `exit`, if there is one.
  void epilogue(std::uint32_t exit) {
    std::array<std::uint32_t, kEpilogueWindow> steps;  // the last instruction first
    std::size_t count = 0;
    steps[count++] = exit;
    bool released = false;
    while (!released && count < steps.size()) {
      const std::uint32_t at = steps[count - 1];
      // The displacement of a release may look like a pop, so that is asked first.
      std::uint32_t step = exits_.release_before(at);
      released = step != at;
      if (!released) step = exits_.before(at, count == 1);
      if (step == at) break;
      steps[count++] = step;
    }
    if (steps[count - 1] >= length_) return;
    // Where there are no codes, a lone return undoes what the row in force undoes.
    if (count == 1 && !has_operations_ && code_.u8()[exit] != 0xc2) return;
    if (count == 1 && leads_out_of_image(exit)) return;
    bool certain = released;
    EpilogueMatch match;
    for (; count > 0; --count) {
      std::uint32_t& first = steps[count - 1];
      // A release leaves no doubt where instructions begin; without one the first bytes may be another's last.
      if (!released) {
        Boundaries::Answer answer = boundaries_of_code_.begins(first);
        const bool rex = count > 1 && steps[count - 2] - first == 2;  // and pop: REX may belong to what is before
        if (answer == Boundaries::Answer::kNo && rex) answer = boundaries_of_code_.begins(++first);
        if (answer == Boundaries::Answer::kNo) continue;
        certain = answer == Boundaries::Answer::kYes;
      }
      if (matches(first, exit, match)) return add_epilogue(first, match, certain);
      released = false;
    }
  }

  // Then what looks like a jump is a part of other instructions.
  [[nodiscard]] bool leads_out_of_image(std::uint32_t exit) const {
    if constexpr (std::same_as<I, Functions>) {
      if (code_.u8()[exit] != 0xe9 || code_.size() - exit < 5) return false;
      const std::int64_t target = entry_.begin + exits_.jump_target(exit);
      return target < 0 || target >= static_cast<std::int64_t>(functions_.image().image_size());
    }
    return false;
  }

  // Is there an epilogue from `first` on that ends with this exit?
  bool matches(std::uint32_t first, std::uint32_t exit, EpilogueMatch& match) const {
    const std::uint64_t rest = code_.size() - first;
    const ByteView window(code_.data() + first, rest < kEpilogueWindow ? rest : kEpilogueWindow);
    if (!match_epilogue(window, chain_[0].info.frame_register, length_ - first, match)) return false;
    const std::uint32_t last = first + match.steps[match.step_count - 1].at;
    if (last != exit && last + 1 != exit) return false;  // + 1: with a prefix
    return !is_behind_call(functions_, match, entry_.begin + first);
  }

  void add_epilogue(std::uint32_t first, const EpilogueMatch& match, bool certain) {
    const Link& own = chain_[0];
    JumpKind kind = JumpKind::kLeaves;
    if (match.exit == EpilogueMatch::Exit::kJump)
      kind = jump_kind(functions_, own.function, own.info, std::int64_t{entry_.begin} + first + match.target);
    if (kind == JumpKind::kStays) return;
    const auto offset = [&](unsigned step) { return first + match.steps[step].at; };
    const std::uint32_t exit = offset(match.step_count - 1U);
    const ByteView rest(code_.data() + exit, code_.size() - exit);
    const std::uint32_t exit_size = certain ? std::max(1U, instruction_length(rest)) : 1;
    const KnownPops* known = known_rows_ ? memory_->pops_of(match) : nullptr;
    // What has still to be popped behind so many pops, by DWARF number.
    std::uint64_t unpopped[sizeof match.pops + 1];
    unpopped[match.pop_count] = 0;
    for (unsigned i = known == nullptr ? match.pop_count : 0; i-- > 0;)
      unpopped[i] = unpopped[i + 1] | std::uint64_t{1} << dwarf_number(match.pops[i]);
    bool follows = false;  // the row of the step before is the last one written
    for (unsigned step = 0; step < match.step_count && offset(step) < length_; ++step) {
      const bool last = step + 1U == match.step_count;
      const std::uint32_t begin = entry_.begin + offset(step);
      const std::uint32_t end = std::min(entry_.end, entry_.begin + (last ? exit + exit_size : offset(step + 1)));
      // Behind the release the same jump may no longer be one.
      const bool bare = step != 0 || match.release == EpilogueMatch::Release::kNone;
      if (kind == JumpKind::kLeavesIfFreed && bare && match.steps[step].pops == match.pop_count &&
          !frees_frame_before(functions_, own.function, begin)) {
        follows = false;
        continue;
      }
      const unsigned first_pop = match.steps[step].pops;
      if (known != nullptr && (bare || fits_row(released_offset(match)))) {
        prologue_rows(begin);
        CfaWord cfa = known->cfas[first_pop];
        if (!bare && match.release == EpilogueMatch::Release::kLea)
          cfa = word_of(CfaRule::at(dwarf_number(match.base), static_cast<std::int32_t>(released_offset(match))));
        else if (!bare)
          cfa = grown(cfa, match.displacement);
        writer_.add_known(begin, end, cfa, known->numbers[first_pop]);
      } else if (follows) {
        writer_.add_next(end, std::int64_t{8} * (match.pop_count - first_pop) + 8 + match.return_pops,
                         unpopped[first_pop]);
      } else {
        prologue_rows(begin);
        row_in_epilogue(match, first_pop, !bare, step_row_);
        follows = fits(step_row_, begin);
        if (follows) writer_.add(begin, end, step_row_);
      }
      at_ = end;
      exits_.begin_at(end - entry_.begin);
    }
  }

  // Version 2: what the codes describe, ascending.
  void add_epilogues_v2() {
    std::array<Epilog, 256> epilogs;
    std::size_t count = 0;
    each_epilog(chain_[0].info, chain_[0].function.end, [&](const Epilog& epilog) {
      if (count < epilogs.size() && epilog.begin >= entry_.begin && epilog.begin < entry_.end)
        epilogs[count++] = epilog;
    });
    std::sort(epilogs.begin(), epilogs.begin() + static_cast<std::ptrdiff_t>(count),
              [](const Epilog& a, const Epilog& b) { return a.begin < b.begin; });
    for (std::size_t i = 0; i < count; ++i) {
      if (epilogs[i].begin < at_) continue;
      prologue_rows(epilogs[i].begin);
      for (std::uint32_t into = 0; into < epilogs[i].size && at_ < entry_.end; ++into) {
        if (undo_pushes(into, step_row_)) writer_.add(at_, at_ + 1, step_row_);
        ++at_;
      }
    }
  }

  // What `Unwinder::undo_epilogue` does, in symbols.
  bool undo_pushes(std::uint32_t into, Row& row) const {
    std::size_t link = 0;
    while (link + 1 < count_ && first_push(chain_[link].info) == chain_[link].info.slot_count) ++link;
    const UnwindInfo& info = chain_[link].info;
    row.start();
    std::uint32_t offset = 0;
    UnwindCode code;
    for (unsigned index = first_push(info); index < info.slot_count; ++index) {
      if (!code_at(info, index, code) || code.operation == Operation::kPushMachframe) return false;
      const bool flags = code.operation == Operation::kAllocSmall && code.info == 0;
      if (code.operation != Operation::kPushNonvol && !flags) break;
      if (offset >= into) {
        if (!flags) row.save(dwarf_number(code.info), kRsp, row.offset);
        row.offset += 8;
      }
      offset += !flags && code.info >= 8 ? 2 : 1;
    }
    row.finish(0);
    return true;
  }

  const I& functions_;
  const RuntimeFunction entry_;
  RowWriter writer_;
  ProblemSink problem_;
  bool quiet_ = false;  // problems are not reported
  KnownLowering* memory_;
  PrologueInUse known_rows_;
  union {
    Link chain_[kMaxChain + 1];  // the first `count_` exist
  };
  std::size_t count_ = 0;
  Op ops_[kMaxOps];
  std::size_t op_count_ = 0;
  bool has_operations_ = false;
  std::size_t own_op_count_ = 0;              // of them, from the entry's own information
  std::uint32_t boundaries_[kMaxBoundaries];  // descending
  std::size_t boundary_count_ = 0;
  std::size_t left_ = 0;  // of them, still to come
  std::uint32_t at_ = 0;  // rows are complete up to here
  bool known_ = false;
  bool has_row_ = false;
  bool plain_ = false;
  std::size_t next_op_ = 0;  // of a plain prologue: the operations from here on are in known_row_
  Row known_row_, step_row_;
  // The code, by offsets from the entry's begin.
  ByteView code_;
  std::uint32_t length_ = 0;
  ExitCode exits_;
  Boundaries boundaries_of_code_;
};

// Calls callback(lowering) with that of the entry's version.
template <UnwindImage I, typename Callback>
void with_lowering(const I& image, const RuntimeFunction& entry, RowSink row, ProblemSink problem, Callback&& callback,
                   KnownLowering* known = nullptr) {
  const auto function = direct(image, entry);
  const ByteView header = function ? image.bytes(function->info, 1) : ByteView();
  UnwindInfo info;
  if (entry.begin < entry.end && !header.empty() && (header.u8()[0] & 7) == 3 && info_of(image, *function, info))
    callback(LoweringV3<I>(image, entry, *function, info, row, problem));
  else
    callback(Lowering<I>(image, entry, row, problem, known));
}

template <UnwindImage I>
Expected<void> lower_at(const I& image, const RuntimeFunction& entry, std::uint32_t rva, FrameRow& to) {
  Error error{ErrorCode::kUnsupported, "no row can say what the codes do at RVA", rva, 0};
  bool found = false;
  const auto keep = [&](const FrameRow& row) {
    to = row;
    found = true;
  };
  const auto complain = [&](const Error& problem) { error = problem; };
  with_lowering(image, entry, keep, complain, [&](auto&& lowering) { lowering.run_at(rva); });
  return found ? Expected<void>() : Failure(error);
}

}  // namespace

void lower(const Functions& functions, const RuntimeFunction& entry, RowSink row, ProblemSink problem) {
  with_lowering(functions, entry, row, problem, [](auto&& lowering) { lowering.run(); });
}
void lower(const AnyImage& image, const RuntimeFunction& entry, RowSink row, ProblemSink problem) {
  with_lowering(image, entry, row, problem, [](auto&& lowering) { lowering.run(); });
}

RowEvaluator::RowEvaluator(const Functions& functions)
    : functions_(functions), known_(std::make_unique<KnownLowering>()) {}
RowEvaluator::~RowEvaluator() = default;
void RowEvaluator::for_each_row(const RuntimeFunction& entry, RowSink row, ProblemSink problem) {
  const auto one_by_one = [&](std::span<const NumberedRow> rows) {
    for (const NumberedRow& each : rows) known_->rows.give(each, row);
  };
  for_each_row(entry, one_by_one, row, problem);
}
void RowEvaluator::for_each_row(const RuntimeFunction& entry, NumberedRowSink numbered, RowSink row,
                                ProblemSink problem) {
  known_->rows.give_to(numbered);
  with_lowering(
      functions_, entry, row, problem, [](auto&& lowering) { lowering.run(); }, known_.get());
}
KnownRows& RowEvaluator::rows() const { return known_->rows; }
std::uint32_t RowEvaluator::number() const { return known_->rows.given(); }

Expected<void> row_at(const Functions& functions, const RuntimeFunction& entry, std::uint32_t rva, FrameRow& to) {
  return lower_at(functions, entry, rva, to);
}
Expected<void> row_at(const AnyImage& image, const RuntimeFunction& entry, std::uint32_t rva, FrameRow& to) {
  return lower_at(image, entry, rva, to);
}

}  // namespace windlass::winx64
