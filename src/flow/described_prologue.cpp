#include <algorithm>

#include "base/registers.h"
#include "flow/described_frames.h"

namespace windlass::flow {

bool same_rules(const FrameRow& a, const FrameRow& b) {
  if (a.cfa != b.cfa || a.return_address != b.return_address || a.return_signed != b.return_signed) return false;
  return a.registers.size() == b.registers.size() &&
         std::equal(a.registers.begin(), a.registers.end(), b.registers.begin(),
                    [](const RegisterEntry& x, const RegisterEntry& y) { return x.reg == y.reg && x.rule == y.rule; });
}

namespace {

using prologue::Allocate;
using prologue::Epilogue;
using prologue::kNoRegister;
using prologue::Op;
using prologue::Part;
using prologue::Save;
using prologue::SetFramePointer;
using prologue::SignReturnAddress;

struct Place {
  std::int64_t depth;  // [CFA - depth]
  RegisterNumber reg;
  bool operator==(const Place&) const = default;
};

// What a Prologue can say of one stretch.
struct Frame {
  std::int64_t depth = FrameStretch::kUnknownDepth;  // CFA - sp
  std::optional<std::int64_t> pointer;               // CFA - frame pointer, where the row counts from it
  bool return_signed = false;
  std::vector<Place> saved;  // the lowest address first

  [[nodiscard]] bool has(const Place& place) const {
    return std::find(saved.begin(), saved.end(), place) != saved.end();
  }
  // As seen by the row.
  [[nodiscard]] bool same_row(const Frame& other) const {
    return pointer == other.pointer && (pointer || depth == other.depth) && return_signed == other.return_signed &&
           saved == other.saved;
  }
  // Has all of the other, and more or as much.
  [[nodiscard]] bool covers(const Frame& other) const {
    const bool pointers = other.pointer ? pointer == other.pointer : true;
    return pointers && depth >= other.depth && other.depth >= 0 && return_signed >= other.return_signed &&
           std::all_of(other.saved.begin(), other.saved.end(), [&](const Place& place) { return has(place); });
  }
};

class Finder {
 public:
  Finder(const std::vector<FrameStretch>& stretches, Architecture architecture, std::uint32_t code_size)
      : stretches_(stretches),
        architecture_(architecture),
        code_size_(code_size),
        fp_(Registers::fp_number(architecture)),
        entry_depth_(architecture == Architecture::kX86_64 ? 8 : 0) {}

  FoundPrologue run() {
    if (stretches_.empty()) return {.why_not = "no row of it is known"};
    for (const FrameStretch& stretch : stretches_) {
      Frame frame;
      if (const char* why = read(stretch, frame))
        return {.why_not = why, .where = static_cast<std::uint32_t>(stretch.row.begin)};
      frames_.push_back(std::move(frame));
    }
    if (stretches_.front().row.begin != 0 || !is_entry(frames_.front()))
      return {.why_not = "the first instruction is not that of a function"};
    std::optional<Prologue> best;
    for (std::size_t length = 0;; ++length) {
      auto made = make(length);
      const bool straight = stretches_[length].straight;
      // What is behind a branch is a part, unless there would be several.
      if (made && (!best || parts_of(*made) + (straight ? 0 : 2) <= parts_of(*best))) best = std::move(made);
      if (length + 1 >= frames_.size() || !follows(length + 1) || !frames_[length + 1].covers(frames_[length])) break;
    }
    if (best) return {.prologue = std::move(best)};
    return {.why_not = why_not_, .where = where_};
  }

 private:
  [[nodiscard]] bool is_entry(const Frame& frame) const {
    return frame.depth == entry_depth_ && !frame.pointer && !frame.return_signed && frame.saved.empty();
  }
  // Does code lead to the stretch from the one in front of it, not by a jump?
  [[nodiscard]] bool follows(std::size_t i) const { return i > 0 && stretches_[i].made_at < stretches_[i].row.begin; }
  [[nodiscard]] std::uint32_t begin_of(std::size_t i) const {
    return static_cast<std::uint32_t>(stretches_[i].row.begin);
  }
  [[nodiscard]] std::uint32_t end_of(std::size_t i) const { return static_cast<std::uint32_t>(stretches_[i].row.end); }
  [[nodiscard]] static std::size_t parts_of(const Prologue& prologue) { return prologue.parts.size(); }

  // Why a Prologue cannot say it.
  const char* read(const FrameStretch& stretch, Frame& frame) const {
    const FrameRow& row = stretch.row;
    frame.depth = stretch.depth;
    frame.return_signed = row.return_signed;
    if (row.cfa.is_at(fp_))
      frame.pointer = row.cfa.offset();
    else if (!row.cfa.is_at(Registers::sp_number(architecture_)))
      return "the CFA counts from neither sp nor the frame pointer";
    const auto place = [&](RegisterNumber reg, const RegisterRule& rule) {
      if (!rule.is(RegisterRule::kAtCfa) || rule.offset() >= 0) return false;
      frame.saved.push_back({-std::int64_t{rule.offset()}, reg});
      return true;
    };
    for (const RegisterEntry entry : row.registers)
      if (!entry.rule.is(RegisterRule::kUndefined) && !place(entry.reg, entry.rule))
        return "a register is kept elsewhere than in the frame";
    if (architecture_ == Architecture::kX86_64) {
      if (row.return_address != RegisterRule::at_cfa(-8)) return "the return address is not where a call puts it";
    } else if (row.return_address != RegisterRule::in_register(aarch64::kX30) &&
               !place(aarch64::kX30, row.return_address)) {
      return "the return address is neither in x30 nor in the frame";
    }
    std::sort(frame.saved.begin(), frame.saved.end(), [](const Place& a, const Place& b) { return a.depth > b.depth; });
    return nullptr;
  }

  bool refuse(const char* why, std::size_t at) {
    why_not_ = why;
    where_ = begin_of(at);
    return false;
  }

  // ---- from one frame to the next -----------------------------------------------------------------------------------

  // What one instruction, which ends at `end`, does to get from `from` to `to`, which covers it.
  bool enter(const Frame& from, const Frame& to, std::uint32_t end, std::vector<Op>& ops) const {
    if (to.return_signed && !from.return_signed) ops.push_back({end, SignReturnAddress{}});
    std::vector<Place> added;
    for (const Place& place : to.saved)
      if (!from.has(place)) added.push_back(place);
    auto room = static_cast<std::uint32_t>(to.depth - from.depth);
    const bool pushes = room != 0 && !added.empty() && added.front().depth == to.depth;
    if (room != 0 && !pushes) ops.push_back({end, Allocate{static_cast<std::uint64_t>(to.depth - from.depth)}});
    for (std::size_t i = 0; i < added.size(); ++i) {
      const std::int64_t offset = to.depth - added[i].depth;
      if (offset < 0) return false;  // below sp
      Save save{added[i].reg, static_cast<std::uint32_t>(offset), pushes && i == 0 ? room : 0, kNoRegister};
      take_pair(added, i, save);
      ops.push_back({end, save});
    }
    if (to.pointer && !from.pointer) {
      if (*to.pointer > to.depth) return false;
      ops.push_back({end, SetFramePointer{fp_, static_cast<std::uint32_t>(to.depth - *to.pointer)}});
    }
    return true;
  }
  // AArch64's instructions save two at a time.
  void take_pair(const std::vector<Place>& places, std::size_t& i, Save& save) const {
    if (architecture_ != Architecture::kAArch64 || i + 1 == places.size()) return;
    const bool vectors = places[i].reg >= 64;
    if (places[i + 1].depth != places[i].depth - 8 || (places[i + 1].reg >= 64) != vectors) return;
    save.second = places[++i].reg;
  }

  // The other way: `from` covers `to`. What is not popped is restored in front of it.
  bool undo(const Frame& from, const Frame& to, std::uint32_t end, bool sp_from_pointer, std::vector<Op>& ops) const {
    std::vector<Place> restored;
    for (const Place& place : from.saved)
      if (!to.has(place)) restored.push_back(place);
    const auto is_pointer = [&](const Place& place) { return place.reg == fp_; };
    const auto pointer = std::find_if(restored.begin(), restored.end(), is_pointer);
    if (from.pointer && !to.pointer && pointer == restored.end()) return false;
    std::int64_t depth = from.depth;
    // `leave`: sp goes to where the frame pointer is saved, and past it.
    const bool leaves = sp_from_pointer && from.pointer && !to.pointer && pointer->depth == *from.pointer;
    const std::int64_t popped_at = leaves ? pointer->depth : depth;
    Save pop{kNoRegister};
    for (std::size_t i = 0; i < restored.size(); ++i) {
      const Place& place = restored[i];
      if (depth < place.depth) return false;
      Save save{place.reg, static_cast<std::uint32_t>(depth - place.depth), 0, kNoRegister};
      const std::size_t first = i;
      if (!leaves) take_pair(restored, i, save);
      if (pop.reg == kNoRegister && restored[first].depth == popped_at && to.depth < popped_at) {
        pop = save;
        continue;
      }
      ops.push_back({end, save});
    }
    if (leaves) {
      if (depth != popped_at) ops.push_back({end, Allocate{static_cast<std::uint64_t>(depth - popped_at)}});
      ops.push_back({end, SetFramePointer{fp_, 0}});
      depth = popped_at;
    }
    const std::int64_t room = depth - to.depth;
    if (pop.reg != kNoRegister) {
      pop.offset = 0;
      pop.allocate = static_cast<std::uint32_t>(room);
      ops.push_back({end, pop});
    } else if (room != 0) {
      const bool arm = architecture_ == Architecture::kAArch64;
      if (arm && sp_from_pointer && from.pointer && to.depth >= *from.pointer)
        ops.push_back({end, SetFramePointer{fp_, static_cast<std::uint32_t>(to.depth - *from.pointer)}});
      else
        ops.push_back({end, Allocate{static_cast<std::uint64_t>(room)}});
    }
    if (from.return_signed && !to.return_signed) ops.push_back({end, SignReturnAddress{}});
    return true;
  }

  // ---- the whole ----------------------------------------------------------------------------------------------------

  // The stretches up to `length` are the prologue, that one is the body.
  std::optional<Prologue> make(std::size_t length) {
    Prologue made{.architecture = architecture_, .code_size = code_size_};
    for (std::size_t i = 1; i <= length; ++i) {
      if (enter(frames_[i - 1], frames_[i], begin_of(i), made.ops)) continue;
      refuse("a register is saved below sp", i);
      return std::nullopt;
    }
    const Frame& body = frames_[length];
    if (body.depth < 0) return std::nullopt;
    for (std::size_t i = length + 1; i < frames_.size();) {
      if (frames_[i].same_row(body)) {
        ++i;
      } else if (const std::size_t after = leave(body, i, length, made.epilogues); after != i) {
        i = after;
      } else if (frames_[i].depth >= 0 && frames_[i].covers(body)) {
        const std::size_t next = part(body, i, made);
        if (next == i) return std::nullopt;
        i = next;
      } else {
        refuse("a frame is neither inside nor around the body's", i);
        return std::nullopt;
      }
    }
    if (const auto wrong = differs(made)) {
      refuse("what a Prologue can say of it leads elsewhere", *wrong);
      return std::nullopt;
    }
    return made;
  }

  // An epilogue that begins with stretch `i`, where the frame is `around` in front of it: the stretch behind it. `i` if
  // there is none.
  std::size_t leave(const Frame& around, std::size_t i, std::size_t first, std::vector<Epilogue>& epilogues) const {
    // What moves sp alone is not in rows that count from the frame pointer.
    std::size_t from = i;
    if (around.pointer && i > first + 1 && follows(i) && follows(i - 1) && frames_[i - 1].same_row(around) &&
        frames_[i - 1].depth >= 0 && frames_[i - 1].depth < around.depth && frames_[i - 1].depth >= frames_[i].depth &&
        (epilogues.empty() || epilogues.back().end <= stretches_[i - 1].made_at))
      from = i - 1;
    Epilogue epilogue{.begin = stretches_[from].made_at};
    Frame frame = around;
    for (std::size_t at = from; at < frames_.size(); ++at) {
      const Frame& next = frames_[at];
      if (at != from && !follows(at)) return i;
      if (next.depth < 0 || !frame.covers(next) ||
          !undo(frame, next, begin_of(at), stretches_[at].sp_from_frame_pointer, epilogue.undone))
        return i;
      frame = next;
      if (!is_entry(frame)) continue;
      epilogue.end = end_of(at);
      epilogues.push_back(std::move(epilogue));
      return at + 1;
    }
    return i;
  }

  // A part that begins with stretch `i`: the stretch behind it.
  std::size_t part(const Frame& body, std::size_t i, Prologue& made) {
    Part part{.begin = stretches_[i].made_at};
    const auto* last = made.epilogues.empty() ? nullptr : &made.epilogues.back();
    if (last != nullptr && part.begin < last->end) part.begin = begin_of(i);
    if (!made.parts.empty() && part.begin < made.parts.back().end) part.begin = begin_of(i);
    if (!enter(body, frames_[i], begin_of(i), part.ops)) {
      refuse("a register is saved below sp", i);
      return i;
    }
    std::size_t top = i;
    for (; top + 1 < frames_.size() && follows(top + 1) && frames_[top + 1].covers(frames_[top]) &&
           !frames_[top + 1].same_row(frames_[top]);
         ++top)
      if (!enter(frames_[top], frames_[top + 1], begin_of(top + 1), part.ops)) {
        refuse("a register is saved below sp", top + 1);
        return i;
      }
    std::size_t at = top + 1;
    while (at < frames_.size() && !frames_[at].same_row(body)) {
      const std::size_t after =
          frames_[at].same_row(frames_[top]) ? at + 1 : leave(frames_[top], at, top, part.epilogues);
      if (after == at) break;
      at = after;
    }
    part.end = end_of(at - 1);
    if (at < frames_.size() && stretches_[at].row.begin == part.end) part.end = begin_of(at);
    made.parts.push_back(std::move(part));
    return at;
  }

  // A stretch that the Prologue's rows say something else of.
  [[nodiscard]] std::optional<std::size_t> differs(const Prologue& made) const {
    const auto rows = rows_of(made);
    if (!rows) return 0;
    auto row = rows->begin();
    for (std::size_t i = 0; i < stretches_.size(); ++i) {
      FrameRow given = stretches_[i].row;
      for (std::size_t left = given.registers.size(); left-- > 0;) {
        const RegisterEntry entry = *RegisterRules::Iterator(given.registers, left);
        if (entry.rule.is(RegisterRule::kUndefined)) given.registers.erase(entry.reg);
      }
      while (row != rows->end() && row->end <= given.begin) ++row;
      for (auto at = row; at != rows->end() && at->begin < given.end; ++at)
        if (!same_rules(*at, given)) return i;
      if (row == rows->end()) return i;
    }
    return std::nullopt;
  }

  const std::vector<FrameStretch>& stretches_;
  Architecture architecture_;
  std::uint32_t code_size_;
  RegisterNumber fp_;
  std::int64_t entry_depth_;
  std::vector<Frame> frames_;
  const char* why_not_ = "a frame is neither inside nor around the body's";
  std::uint32_t where_ = 0;
};

}  // namespace

FoundPrologue prologue_of(const std::vector<FrameStretch>& stretches, Architecture architecture,
                          std::uint32_t code_size) {
  return Finder(stretches, architecture, code_size).run();
}

}  // namespace windlass::flow
