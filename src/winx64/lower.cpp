#include "winx64/lower.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "winx64/epilogue.h"
#include "winx64/exec.h"
#include "winx64/instruction_length.h"
#include "winx64/registers.h"

namespace windlass::winx64 {
namespace {

constexpr RegisterNumber kFirstXmm = 17;  // DWARF
constexpr std::size_t kMaxBoundaries = 64;

// A row in the making. Offsets count from the base register's value until `finish`, from the CFA after it.
struct Row {
  std::uint8_t base = kRsp;  // instruction number
  std::int64_t offset = 0;   // of what is undone so far; then of the CFA
  std::int64_t return_at = 0;
  std::uint32_t saved = 0;  // bit n: integer register n, 16 + n: xmm n
  std::int64_t saved_at[32] = {};

  void save(unsigned slot, std::int64_t at) {
    saved |= 1U << slot;
    saved_at[slot] = at;
  }
  void finish(std::uint16_t arguments) {
    return_at = -8 - std::int64_t{arguments};
    offset += 8 + std::int64_t{arguments};
    for (unsigned i = 0; i < 32; ++i) {
      if ((saved >> i & 1) != 0) saved_at[i] -= offset;
    }
  }
  bool operator==(const Row& other) const {
    return base == other.base && offset == other.offset && return_at == other.return_at && saved == other.saved &&
           std::memcmp(saved_at, other.saved_at, sizeof saved_at) == 0;
  }
};

// Gives rows to the sink, those that say the same as one.
class Writer {
 public:
  explicit Writer(RowSink sink) : sink_(sink) {}
  ~Writer() { flush(); }
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  void add(std::uint32_t begin, std::uint32_t end, const Row& row) {
    if (begin >= end) return;
    if (open_ && end_ == begin && row_ == row) {
      end_ = end;
      return;
    }
    flush();
    open_ = true;
    begin_ = begin;
    end_ = end;
    row_ = row;
  }
  void flush() {
    if (!open_) return;
    open_ = false;
    FrameRow out;
    out.begin = begin_;
    out.end = end_;
    out.cfa = CfaRegister{dwarf_number(row_.base), row_.offset};
    out.return_address = AtCfa{row_.return_at};
    for (const unsigned number : {0U, 2U, 1U, 3U, 6U, 7U, 5U, 8U, 9U, 10U, 11U, 12U, 13U, 14U, 15U}) {  // DWARF order
      if ((row_.saved >> number & 1) != 0)
        (void)out.registers.set(dwarf_number(number), AtCfa{row_.saved_at[number]});
      else if (number == 6 || number == 7)
        (void)out.registers.set(dwarf_number(number), SameValue{});
    }
    for (unsigned i = 0; i < 16; ++i) {
      if ((row_.saved >> (16 + i) & 1) != 0)
        (void)out.registers.set(static_cast<RegisterNumber>(kFirstXmm + i), AtCfa{row_.saved_at[16 + i]});
    }
    sink_(out);
  }

 private:
  RowSink sink_;
  bool open_ = false;
  std::uint32_t begin_ = 0, end_ = 0;
  Row row_;
};

struct Link {
  RuntimeFunction function;
  UnwindInfo info;
};

class Lowering {
 public:
  Lowering(const Functions& functions, const RuntimeFunction& entry, RowSink row, ProblemSink problem)
      : functions_(functions), entry_(entry), writer_(row), problem_(problem) {}

  // The row for one address of the entry, or nothing and a problem.
  void run_at(std::uint32_t rva) {
    if (!prepare()) return;
    Row row;
    if (chain_[0].info.version == 1) {
      code_ = functions_.bytes(entry_.begin, entry_.end - entry_.begin + kEpilogueWindow);
      EpilogueMatch match;
      const std::uint32_t offset = rva - entry_.begin;
      if (offset < code_.size() && matches(offset, match)) return writer_.add(rva, rva + 1, row_of(match));
    } else {
      std::optional<std::uint32_t> into;
      each_epilog(chain_[0].info, chain_[0].function.end, [&](const Epilog& epilog) {
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
    if (!prepare()) return;
    if (const auto ok = find_boundaries(); !ok) return problem_(ok.error());
    at_ = entry_.begin;
    if (chain_[0].info.version == 1)
      find_epilogues();
    else
      add_told_epilogues();
    prologue_rows(entry_.end);
  }

 private:
  bool prepare() {
    Error error;
    if (entry_.begin >= entry_.end)
      error = {ErrorCode::kMalformed, "function ends before it begins: RVA", entry_.begin, entry_.end};
    else if (const auto ok = read_chain(); !ok)
      error = ok.error();
    else if (chain_[0].info.version > 2)
      error = {ErrorCode::kUnsupported, "unwind information of version 3 is not lowered: RVA", chain_[0].info.rva, 0};
    else
      return true;
    problem_(error);
    return false;
  }

  Expected<void> read_chain() {
    RuntimeFunction function = entry_;
    if (function.indirect()) {
      const auto other = functions_.bytes(function.info & ~1U, 12).at<RuntimeFunction>(0);
      if (!other)
        return fail(ErrorCode::kOutOfRange, "indirect function entry is outside the image: RVA", function.info);
      function = *other;
    }
    for (;;) {
      const auto info = read_unwind_info(functions_.image(), function.info);
      if (!info) return std::unexpected(info.error());
      if (count_ == chain_.size())
        return fail(ErrorCode::kLimit, "chain of unwind information is longer than 32: RVA", info->rva);
      chain_[count_++] = {function, *info};
      if (!info->chained) return {};
      function = *info->chained;
    }
  }

  // RVAs inside the entry at which one more operation of the prologue has been done.
  Expected<void> find_boundaries() {
    for (std::size_t i = 0; i < count_; ++i) {
      const auto add = [&](std::uint32_t offset) {
        const std::uint32_t rva = chain_[i].function.begin + offset;
        if (rva > entry_.begin && rva < entry_.end && boundary_count_ < kMaxBoundaries)
          boundaries_[boundary_count_++] = rva;
      };
      const auto ok = each_code(chain_[i].info, [&](const UnwindCode& code) {
        if (code.operation != Operation::kEpilog) add(code.offset);
      });
      if (!ok) return ok;
      if (chain_[i].info.frame_register != 0) add(chain_[i].info.prolog_size);
      // A parent may begin inside or behind this entry; before it, its offsets wrap around and all of it counts as
      // done.
      add(0);
    }
    if (boundary_count_ == kMaxBoundaries)
      return fail(ErrorCode::kLimit, "prologue has more than 64 changes: RVA", chain_[0].info.rva);
    std::sort(boundaries_.begin(), boundaries_.begin() + static_cast<std::ptrdiff_t>(boundary_count_));
    return {};
  }

  // ---- prologue and body --------------------------------------------------------------------------------------

  // Rows from at_ up to `end`, where no epilogue is.
  void prologue_rows(std::uint32_t end) {
    while (at_ < end) {
      const auto begin = boundaries_.begin();
      const auto next = std::upper_bound(begin, begin + static_cast<std::ptrdiff_t>(boundary_count_), at_);
      const bool last = next == begin + static_cast<std::ptrdiff_t>(boundary_count_);
      const std::uint32_t stop = last ? end : std::min(*next, end);
      const auto segment = static_cast<std::size_t>(next - begin);
      if (segment != known_segment_) {
        known_segment_ = segment;
        has_row_ = undo_prologues(at_, known_row_);
      }
      if (has_row_) writer_.add(at_, stop, known_row_);
      at_ = stop;
    }
  }

  // What `Unwinder::undo_prologues` does, in symbols.
  bool undo_prologues(std::uint32_t rva, Row& row) {
    row = {};
    const Place establisher = establisher_at(rva);
    for (std::size_t i = 0; i < count_; ++i) {
      const std::uint32_t offset = rva - chain_[i].function.begin;
      bool ok = true;
      (void)each_code(chain_[i].info, [&](const UnwindCode& code) {
        if (ok && code.operation != Operation::kEpilog && offset >= code.offset)
          ok = undo(chain_[i].info, code, establisher, row);
      });
      if (!ok) {
        problem_(Error{ErrorCode::kUnsupported, "no row can say what the codes do at RVA", rva, chain_[i].info.rva});
        return false;
      }
    }
    // Saves by one register and the CFA by another are tied to each other by nothing.
    if (row.saved != 0 && saves_base_ != row.base) {
      problem_(Error{ErrorCode::kUnsupported, "no row can say what the codes do at RVA", rva, chain_[0].info.rva});
      return false;
    }
    row.finish(0);
    return true;
  }

  struct Place {
    std::uint8_t base;
    std::int64_t offset;
  };
  Place establisher_at(std::uint32_t rva) const {
    const UnwindInfo& info = chain_[0].info;
    const std::uint32_t offset = rva - chain_[0].function.begin;
    if (info.frame_register == 0) return {kRsp, 0};
    bool set = offset >= info.prolog_size || info.has(kChaininfo);
    std::int64_t displacement = info.frame_offset * 16;
    bool seen = false;
    (void)each_code(info, [&](const UnwindCode& code) {
      if (seen || (code.operation != Operation::kSetFpreg && code.operation != Operation::kSetFpregLarge)) return;
      seen = true;
      if (!set || info.frame_offset == 15) displacement = code.value;
      set = set || offset >= code.offset;
    });
    return set ? Place{info.frame_register, -displacement} : Place{kRsp, 0};
  }

  bool save(Row& row, unsigned slot, Place place) {
    if (row.saved == 0) saves_base_ = place.base;
    row.save(slot, place.offset);
    return saves_base_ == place.base;
  }

  bool undo(const UnwindInfo& info, const UnwindCode& code, Place establisher, Row& row) {
    switch (code.operation) {
      case Operation::kPushNonvol: {
        if (code.info == kRsp || !save(row, code.info, {row.base, row.offset})) return false;
        row.offset += 8;
        return true;
      }
      case Operation::kAllocLarge:
      case Operation::kAllocSmall: row.offset += code.value; return true;
      case Operation::kSetFpreg:
      case Operation::kSetFpregLarge:
        if ((row.saved >> info.frame_register & 1) != 0) return false;  // it would have to be read first
        row.base = info.frame_register;
        row.offset = -static_cast<std::int64_t>(code.value);
        return true;
      case Operation::kSaveNonvol:
      case Operation::kSaveNonvolFar:
        return code.info != kRsp && save(row, code.info, {establisher.base, establisher.offset + code.value});
      case Operation::kSaveXmm128:
      case Operation::kSaveXmm128Far:
        return save(row, 16U + code.info, {establisher.base, establisher.offset + code.value});
      default: return false;
    }
  }

  // ---- epilogues ----------------------------------------------------------------------------------------------

  static Row row_of(const EpilogueMatch& match) {
    Row row;
    if (match.release != EpilogueMatch::Release::kNone) row.offset = match.displacement;
    if (match.release == EpilogueMatch::Release::kLea) row.base = match.base;
    for (unsigned i = 0; i < match.pop_count; ++i, row.offset += 8) row.save(match.pops[i], row.offset);
    row.finish(match.return_pops);
    return row;
  }

  [[nodiscard]] std::uint32_t inside(std::uint32_t offset) const {
    const std::uint32_t length = entry_.end - entry_.begin;
    return offset < length ? length - offset : 0;
  }
  [[nodiscard]] bool matches(std::uint32_t offset, EpilogueMatch& match) const {
    const std::uint64_t rest = code_.size() - offset;
    const ByteView window(code_.data() + offset, rest < kEpilogueWindow ? rest : kEpilogueWindow);
    return match_epilogue(window, chain_[0].info.frame_register, inside(offset), match) &&
           (match.exit != EpilogueMatch::Exit::kJump ||
            jump_leaves(functions_, chain_[0].function, chain_[0].info, entry_.begin + offset, match));
  }

  // Looks for the exits, each a byte or two, and from each one back. Bytes of other instructions may look like one;
  // then rows are made for addresses that no instruction has, which does no harm as long as they stay at those
  // addresses.
  void find_epilogues() {
    const std::uint32_t length = entry_.end - entry_.begin;
    // Some bytes more: an epilogue may reach past the entry, as the unwinder, which sees the image's bytes, does.
    code_ = functions_.bytes(entry_.begin, length + kEpilogueWindow);
    const std::uint8_t* code = code_.u8();
    const auto size = static_cast<std::uint32_t>(code_.size());
    std::uint32_t free = 0;  // behind the epilogue before
    for (std::uint32_t at = next_exit(code, 0, size); at < size; at = next_exit(code, at + 1, size)) {
      if (at < free) continue;
      EpilogueMatch match;
      if (matches(at, match)) free = epilogue(at, free);
      if (at >= length) break;  // the first one behind the entry is that of an epilogue that reaches past it
    }
  }

  static std::uint32_t next_exit(const std::uint8_t* code, std::uint32_t at, std::uint32_t size) {
    for (; at < size; ++at) {
      switch (code[at]) {
        case 0xc3:
        case 0xc2:
        case 0xe9:
        case 0xeb: return at;
        case 0xf2:
        case 0xf3:
          if (at + 1 < size && (code[at + 1] & 0xfe) == 0xc2) return at;
          break;
        case 0xff:
          if (at + 1 < size && code[at + 1] == 0x25) return at;
          break;
        default:
          if ((code[at] & 0xf8) == 0x48 && at + 2 < size && code[at + 1] == 0xff && (code[at + 2] & 0x38) == 0x20)
            return at;
          break;
      }
    }
    return size;
  }

  // Where an instruction that may stand before `at` in an epilogue begins; `at` itself: there is none. Releases end it.
  std::uint32_t before(std::uint32_t at, std::uint32_t floor) const {
    const std::uint8_t* code = code_.u8();
    const std::uint32_t room = at - floor;
    // Not if what looks like a REX prefix is the displacement of a release.
    if (room >= 2 && (code[at - 1] & 0xf8) == 0x58 && (code[at - 2] & 0xf0) == 0x40 &&
        release_before(at - 1, floor) == at - 1)
      return at - 2;
    if (room >= 1 && ((code[at - 1] & 0xf8) == 0x58 || code[at - 1] == 0x90 || code[at - 1] == 0xf2)) return at - 1;
    if (room >= 3 && code[at - 3] == 0xc5 && code[at - 2] == 0xf8 && code[at - 1] == 0x77) return at - 3;
    return at;
  }
  std::uint32_t release_before(std::uint32_t at, std::uint32_t floor) const {
    for (const std::uint32_t size : {4U, 5U, 7U, 8U}) {
      if (at - floor < size) break;
      EpilogueMatch match;
      if (matches(at - size, match) && match.release != EpilogueMatch::Release::kNone &&
          release_size(at - size) == size)
        return at - size;
    }
    return at;
  }
  [[nodiscard]] std::uint32_t release_size(std::uint32_t at) const {
    const std::uint8_t* code = code_.u8() + at;
    const bool wide = code[1] == 0x81 || (code[1] == 0x8d && (code[2] & 0xc0) == 0x80);
    return (wide ? 7U : 4U) + (code[1] == 0x8d && (code[2] & 7) == 4 ? 1U : 0U);
  }

  // Is what looks like a lone exit but a byte of another instruction? A row too many would do no harm but to tables, of
  // which they would be half: C3 is the ModRM byte of what takes two registers. Told by the lengths of the instructions
  // from the last one known on; data between instructions may lead it astray for a few of them, as any disassembler.
  // Without a decoder nothing is.
  bool is_part_of_another(std::uint32_t at) {
    while (decoded_ < at)
      decoded_ += std::max(instruction_length(*code_.sub(decoded_, code_.size() - decoded_)), 1U);
    return decoded_ != at;
  }

  // The epilogue that ends at `exit`; returns the offset behind the exit's first byte.
  std::uint32_t epilogue(std::uint32_t exit, std::uint32_t floor) {
    std::array<std::uint32_t, kEpilogueWindow> steps;
    std::size_t count = 0;
    steps[count++] = exit;
    bool released = false;
    while (!released && count < steps.size() - 2) {
      // The displacement of a release may look like a pop, so that is asked first.
      std::uint32_t step = release_before(steps[count - 1], floor);
      released = step != steps[count - 1];
      if (!released) step = before(steps[count - 1], floor);
      EpilogueMatch match;
      if (step == steps[count - 1] || !matches(step, match)) break;
      steps[count++] = step;
    }
    // A release leaves no doubt where instructions begin; without one the first bytes may be another instruction's
    // last.
    while (!released && is_part_of_another(steps[count - 1])) {
      const std::uint32_t step = steps[count - 1];
      if (decoded_ < (count > 1 ? steps[count - 2] : exit))  // REX and pop, of which REX is not one: a plain pop
        steps[count - 1] = decoded_;
      else if (--count == 0)
        return std::max(floor, step);
    }
    const std::uint32_t first = steps[count - 1];
    if (first >= entry_.end - entry_.begin) return exit + 1;
    prologue_rows(entry_.begin + steps[count - 1]);
    for (std::size_t i = count; i-- > 0;) {
      EpilogueMatch match;
      const std::uint32_t begin = entry_.begin + steps[i];
      const std::uint32_t end = std::min(entry_.end, i == 0 ? begin + 1 : entry_.begin + steps[i - 1]);
      if (begin >= end) break;
      at_ = begin;
      if (!matches(steps[i], match)) {
        prologue_rows(end);
        continue;
      }
      writer_.add(begin, end, row_of(match));
      at_ = end;
    }
    return exit + 1;
  }

  // Version 2: what the codes tell, ascending.
  void add_told_epilogues() {
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
        Row row;
        if (undo_pushes(into, row)) writer_.add(at_, at_ + 1, row);
        ++at_;
      }
    }
  }

  // What `Unwinder::undo_epilogue` does, in symbols.
  bool undo_pushes(std::uint32_t into, Row& row) const {
    std::size_t link = 0;
    while (link + 1 < count_ && first_push(chain_[link].info) == chain_[link].info.slot_count) ++link;
    const UnwindInfo& info = chain_[link].info;
    std::uint32_t offset = 0;
    for (unsigned index = first_push(info); index < info.slot_count; ++index) {
      const auto code = code_at(info, index);
      if (!code || code->operation == Operation::kPushMachframe) return false;
      const bool flags = code->operation == Operation::kAllocSmall && code->info == 0;
      if (code->operation != Operation::kPushNonvol && !flags) break;
      if (offset >= into) {
        if (!flags) row.save(code->info, row.offset);
        row.offset += 8;
      }
      offset += !flags && code->info >= 8 ? 2 : 1;
    }
    row.finish(0);
    return true;
  }

  const Functions& functions_;
  const RuntimeFunction entry_;
  Writer writer_;
  ProblemSink problem_;
  std::array<Link, kMaxChain + 1> chain_;
  std::size_t count_ = 0;
  std::array<std::uint32_t, kMaxBoundaries> boundaries_{};
  std::size_t boundary_count_ = 0;
  std::uint32_t at_ = 0;  // rows are complete up to here
  std::size_t known_segment_ = SIZE_MAX;
  Row known_row_;
  bool has_row_ = false;
  std::uint8_t saves_base_ = kRsp;
  ByteView code_;
  std::uint32_t decoded_ = 0;  // an instruction begins here, as far as is known
};

}  // namespace

void lower(const Functions& functions, const RuntimeFunction& entry, RowSink row, ProblemSink problem) {
  Lowering(functions, entry, row, problem).run();
}

Expected<void> row_at(const Functions& functions, const RuntimeFunction& entry, std::uint32_t rva, FrameRow& to) {
  Error error{ErrorCode::kUnsupported, "no row can say what the codes do at RVA", rva, 0};
  bool found = false;
  const auto keep = [&](const FrameRow& row) {
    to = row;
    found = true;
  };
  const auto complain = [&](const Error& problem) { error = problem; };
  Lowering(functions, entry, keep, complain).run_at(rva);
  return found ? Expected<void>() : std::unexpected(error);
}

}  // namespace windlass::winx64
