#include "formats/winx64/lower.h"

#include <algorithm>
#include <array>

#include "formats/winx64/epilogue.h"
#include "formats/winx64/epilogue_scan.h"
#include "formats/winx64/exec.h"
#include "formats/winx64/instruction_length.h"
#include "formats/winx64/lower_v3.h"
#include "formats/winx64/registers.h"
#include "formats/winx64/row_writer.h"

namespace windlass::winx64 {
namespace {

constexpr std::size_t kMaxBoundaries = 64, kMaxOps = 256;

struct Link {
  RuntimeFunction function;
  UnwindInfo info;
};

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

template <UnwindImage I>
class Lowering {
 public:
  Lowering(const I& functions, const RuntimeFunction& entry, RowSink row, ProblemSink problem)
      : functions_(functions), entry_(entry), writer_(row), problem_(problem), boundaries_of_code_(ByteView()) {}

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
        row_of_step(match, 0, row);
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
    if (!prepare() || !find_boundaries()) return;
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

  // ---- prologue and body --------------------------------------------------------------------------------------

  // Rows from at_ up to `end`, where no epilogue is.
  void prologue_rows(std::uint32_t end) {
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

  // From one of its instructions on: everything counts from the CFA, which is behind the return.
  static void row_of_step(const EpilogueMatch& match, unsigned step, Row& row) {
    const bool releases = step == 0 && match.release != EpilogueMatch::Release::kNone;
    row.start();
    if (releases && match.release == EpilogueMatch::Release::kLea) row.base = match.base;
    const unsigned first_pop = match.steps[step].pops;
    std::int64_t below = std::int64_t{8} * (match.pop_count - first_pop) + 8 + match.return_pops;  // the CFA
    row.offset = (releases ? match.displacement : 0) + below;
    (void)row.narrow(row.offset);
    row.return_address = RegisterRule::at_cfa(-8 - match.return_pops);
    for (unsigned i = first_pop; i < match.pop_count; ++i, below -= 8)
      row.save_at_cfa(dwarf_number(match.pops[i]), -below);
  }

  // Looks for the exits, and from each one back. Bytes inside other instructions may look like an exit. Then rows are
  // made for addresses that no instruction has, which does no harm as long as these rows stay at those addresses.
  void find_epilogues() {
    length_ = entry_.end - entry_.begin;
    // Some bytes more: an epilogue may reach past the entry, as the unwinder, which sees the image's bytes, does.
    code_ = functions_.bytes(entry_.begin, length_ + kEpilogueWindow);
    boundaries_of_code_ = Boundaries(code_);
    each_exit(code_.u8(), static_cast<std::uint32_t>(code_.size()), length_, [&](std::uint32_t at) {
      if (at >= free_ && is_exit(at)) epilogue(at);
    });
  }

  // Does what looks like one leave the function? The byte at `at` is one of those that `each_exit` stops at.
  [[nodiscard]] bool is_exit(std::uint32_t at) const {
    const std::uint8_t* code = code_.u8() + at;
    const std::uint64_t room = code_.size() - at;
    switch (code[0]) {
      case 0xc3: return true;
      case 0xc2: return room < 3 || ((code[1] & 7) == 0 && code[2] <= 4);
      case 0xff: return code[1] == 0x25 || (at > 0 && (code[-1] & 0xf8) == 0x48);
      default: {
        if (room < 5 || entry_.indirect()) return true;
        const std::int64_t displacement =
            code[0] == 0xeb ? static_cast<std::int8_t>(code[1]) + 2 : std::int64_t{load_word(code + 1)} + 5;
        const std::int64_t target = at + displacement;
        return target <= 0 || target >= length_;
      }
    }
  }
  static std::int32_t load_word(const std::uint8_t* code) {
    std::int32_t word;
    std::memcpy(&word, code, sizeof word);
    return word;
  }

  // Where an instruction that may stand before `at` in an epilogue begins; `at` itself: there is none.
  [[nodiscard]] std::uint32_t before(std::uint32_t at, bool is_exit) const {
    const std::uint8_t* code = code_.u8() + at;
    const std::uint32_t room = at - free_;
    if (room >= 1 && is_exit) {  // prefixes count as instructions here
      if (code[-1] == 0xf2 || (code[0] == 0xc3 && (code[-1] == 0xf3 || code[-1] == 0x90))) return at - 1;
      if (code[0] == 0xff && (code[-1] & 0xf8) == 0x48) return at - 1;
    }
    // Not if what looks like a REX prefix is the displacement of a release.
    if (room >= 2 && (code[-1] & 0xf8) == 0x58 && (code[-2] & 0xf0) == 0x40 && release_before(at - 1) == at - 1)
      return at - 2;
    if (room >= 1 && (code[-1] & 0xf8) == 0x58) return at - 1;
    if (room >= 3 && code[-3] == 0xc5 && code[-2] == 0xf8 && code[-1] == 0x77) return at - 3;
    return at;
  }
  // Where the release that ends at `at` begins; `at` itself: there is none.
  [[nodiscard]] std::uint32_t release_before(std::uint32_t at) const {
    const std::uint8_t* code = code_.u8() + at;
    const std::uint32_t room = at - free_;
    if (room < 4) return at;
    if (code[-4] == 0x48 && code[-3] == 0x83 && code[-2] == 0xc4) return at - 4;
    if (room >= 7 && code[-7] == 0x48 && code[-6] == 0x81 && code[-5] == 0xc4) return at - 7;
    const unsigned frame_register = chain_[0].info.frame_register;
    if (frame_register == 0) return at;
    const bool sib = (frame_register & 7) == 4;
    for (const std::uint32_t size : {sib ? 5U : 4U, sib ? 8U : 7U}) {
      if (room < size) break;
      const std::uint8_t* lea = code - size;
      const unsigned mod_rm = (size < 6 ? 0x60U : 0xa0U) | (frame_register & 7);
      if (lea[0] == (0x48U | frame_register >> 3) && lea[1] == 0x8d && lea[2] == mod_rm && (!sib || lea[3] == 0x24))
        return at - size;
    }
    return at;
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
      std::uint32_t step = release_before(at);
      released = step != at;
      if (!released) step = before(at, count == 1);
      if (step == at) break;
      steps[count++] = step;
    }
    if (steps[count - 1] >= length_) return;
    // Where there are no codes, a lone return undoes what the row in force undoes.
    if (count == 1 && op_count_ == 0 && code_.u8()[exit] != 0xc2) return;
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
    // What has still to be popped behind so many pops, by DWARF number.
    std::uint64_t unpopped[sizeof match.pops + 1];
    unpopped[match.pop_count] = 0;
    for (unsigned i = match.pop_count; i-- > 0;)
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
      if (follows) {
        const unsigned first_pop = match.steps[step].pops;
        writer_.add_next(end, std::int64_t{8} * (match.pop_count - first_pop) + 8 + match.return_pops,
                         unpopped[first_pop]);
      } else {
        prologue_rows(begin);
        row_of_step(match, step, step_row_);
        follows = fits(step_row_, begin);
        if (follows) writer_.add(begin, end, step_row_);
      }
      at_ = end;
      free_ = end - entry_.begin;
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
  union {
    Link chain_[kMaxChain + 1];  // the first `count_` exist
  };
  std::size_t count_ = 0;
  Op ops_[kMaxOps];
  std::size_t op_count_ = 0;
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
  std::uint32_t free_ = 0;  // behind the epilogue before
  Boundaries boundaries_of_code_;
};

// Calls callback(lowering) with that of the entry's version.
template <UnwindImage I, typename Callback>
void with_lowering(const I& image, const RuntimeFunction& entry, RowSink row, ProblemSink problem,
                   Callback&& callback) {
  const auto function = direct(image, entry);
  UnwindInfo info;
  if (entry.begin < entry.end && function && info_of(image, *function, info) && info.version == 3)
    callback(LoweringV3<I>(image, entry, *function, info, row, problem));
  else
    callback(Lowering<I>(image, entry, row, problem));
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

Expected<void> row_at(const Functions& functions, const RuntimeFunction& entry, std::uint32_t rva, FrameRow& to) {
  return lower_at(functions, entry, rva, to);
}
Expected<void> row_at(const AnyImage& image, const RuntimeFunction& entry, std::uint32_t rva, FrameRow& to) {
  return lower_at(image, entry, rva, to);
}

}  // namespace windlass::winx64
