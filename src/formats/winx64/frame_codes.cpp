// Chooses the operations for a Prologue. Depths count down from the CFA, as in FrameState. Saves in the home area,
// above the return address, have depths of 0 and less.
//
// The checks below exist because of the limits of the codes:
// - Pushes and allocations are undone from rsp, one after another, as far as they ran.
// - A save has one displacement, from the establisher frame. That is rsp or, once SET_FPREG has run, the frame register
//   minus its offset. So from a save on, the establisher frame must stay the same.
// - SET_FPREG sets rsp, so later changes of rsp need no codes. Only saves do. They may lie below the rsp of SET_FPREG
//   on one condition. The codes then claim an allocation of that size at the same instruction, and an offset larger by
//   as much (up to 240). The establisher frame is then where the saves begin.
#include "formats/winx64/frame_codes.h"

#include <algorithm>
#include <utility>

#include "formats/winx64/registers.h"

namespace windlass::winx64 {
namespace {

using Depth = std::int64_t;

constexpr std::uint32_t kLongestPrologue = 255;
constexpr std::uint32_t kLargestFrameOffset = 240;
constexpr std::uint64_t kLargestAllocation = 0xffff'fff8;
constexpr std::uint32_t kFarthestEpilogue = 4095;
constexpr std::size_t kMaxSlotsOfPiece = 255;

struct PlacedSave {
  std::size_t op;
  RegisterNumber reg;
  Depth depth;
  std::size_t coded;  // behind which op the codes count it as done: this one, or a later one
};

struct FramePointer {
  std::size_t op;
  unsigned number;       // of the register
  Depth depth;           // of rsp where it is set
  std::uint32_t extra;   // allocation claimed there
  std::uint32_t offset;  // to the establisher frame: with `extra`
  [[nodiscard]] Depth establisher() const { return depth + extra; }
};

// The function, or a part of it.
struct Region {
  const std::vector<prologue::Op>* ops;
  std::uint32_t begin, end;
  bool chained;
  FrameState state;           // behind its prologue
  Depth depth_around;         // before it
  std::vector<Depth> depths;  // behind each op
  std::vector<PlacedSave> saves;
  std::optional<FramePointer> pointer;  // set here
  std::vector<UnwindCode> codes;        // as stored

  [[nodiscard]] std::uint32_t end_of(std::size_t op) const { return (*ops)[op].end; }
};

class Planner {
 public:
  Planner(const Prologue& prologue, std::uint32_t version, bool saves_can_wait, std::span<const std::byte> code)
      : prologue_(prologue), version_(version), saves_can_wait_(saves_can_wait), code_(code) {}

  Expected<std::vector<Piece>> run() {
    if (prologue_.architecture != Architecture::kX86_64)
      return fail(ErrorCode::kUnsupported, "prologue is not of x86-64", 0);
    if (version_ != 1 && version_ != 2)
      return fail(ErrorCode::kUnsupported, "versions 1, 2 and 3 are written", 0, version_);
    if (prologue_.handler && !prologue_.handler->on_exception && !prologue_.handler->on_unwind)
      return fail(ErrorCode::kMalformed, "handler is called in neither pass", 0);
    if (!code_.empty() && code_.size() != prologue_.code_size)
      return fail(ErrorCode::kMalformed, "the code is of another size than the prologue says", code_.size(),
                  prologue_.code_size);
    if (const auto ok = check(prologue_); !ok) return Failure(ok.error());
    for (const auto step : {&Planner::make_regions, &Planner::place_pointers, &Planner::check_saves,
                            &Planner::make_codes, &Planner::make_pieces}) {
      if (const auto ok = (this->*step)(); !ok) return Failure(ok.error());
    }
    return std::move(pieces_);
  }

 private:
  // ---- regions ----

  Expected<void> make_regions() {
    const bool chained = !prologue_.ops.empty();
    if (const auto ok = add_region(prologue_.ops, 0, prologue_.code_size, false); !ok) return ok;
    for (const prologue::Part& part : prologue_.parts) {
      if (chained && (part.begin < prologue_.prologue_end() || part.begin == 0))
        return fail(ErrorCode::kUnsupported, "a part begins behind the function's prologue and first byte", part.begin);
      if (const auto ok = add_region(part.ops, part.begin, part.end, chained); !ok) return ok;
    }
    return {};
  }

  Expected<void> add_region(const std::vector<prologue::Op>& ops, std::uint32_t begin, std::uint32_t end,
                            bool chained) {
    FrameState state = regions_.empty() ? FrameState(Architecture::kX86_64) : regions_[0].state;
    Region region{&ops, begin, end, chained, state, static_cast<Depth>(state.depth()), {}, {}, {}, {}};
    for (std::size_t i = 0; i < ops.size(); ++i) {
      if (ops[i].end - begin > kLongestPrologue)
        return fail(ErrorCode::kOutOfRange, "a prologue has at most 255 bytes", ops[i].end, ops[i].end - begin);
      const std::size_t known = state.saved().size();
      const auto* pointer = std::get_if<prologue::SetFramePointer>(&ops[i].action);
      if (pointer != nullptr) {
        if (const auto ok = check_pointer(*pointer, state, ops[i].end); !ok) return ok;
        region.pointer = {i, instruction_number(pointer->reg), static_cast<Depth>(state.depth()), 0, pointer->offset};
      }
      if (const auto ok = state.apply(ops[i]); !ok) return ok;
      region.depths.push_back(static_cast<Depth>(state.depth()));
      for (std::size_t k = known; k < state.saved().size(); ++k)
        region.saves.push_back({i, state.saved()[k].reg, static_cast<Depth>(state.saved()[k].depth), i});
    }
    region.state = state;
    regions_.push_back(std::move(region));
    return {};
  }

  static Expected<void> check_pointer(const prologue::SetFramePointer& set, const FrameState& state,
                                      std::uint32_t where) {
    const unsigned number = instruction_number(set.reg);
    if (number == 0)
      return fail(ErrorCode::kUnsupported, "rax cannot be the frame pointer: its number says that there is none", where,
                  set.reg);
    if (number > 15 || !is_preserved(number))
      return fail(ErrorCode::kUnsupported, "the frame pointer is a register that calls preserve", where, set.reg);
    if (set.offset % 16 != 0 || set.offset > kLargestFrameOffset)
      return fail(ErrorCode::kOutOfRange, "the frame pointer's offset is a multiple of 16, at most 240", where,
                  set.offset);
    if (std::none_of(state.saved().begin(), state.saved().end(), [&](const auto& s) { return s.reg == set.reg; }))
      return fail(ErrorCode::kMalformed, "the frame pointer is set before its old value was saved", where, set.reg);
    return {};
  }

  // ---- the establisher frame ----

  // How much allocation each SET_FPREG has to claim, so that what is saved below is within the frame.
  Expected<void> place_pointers() {
    for (Region& region : regions_) {
      if (!region.pointer) continue;
      for (const Region& other : regions_) {
        if (&other != &region && &region != &regions_[0]) continue;
        for (const PlacedSave& save : other.saves) {
          if (&other == &region && save.op < region.pointer->op) continue;
          const Depth below = save.depth - region.pointer->depth;
          if (below > static_cast<Depth>(region.pointer->extra)) {
            if (below + region.pointer->offset > kLargestFrameOffset)
              return fail(ErrorCode::kOutOfRange,
                          "a register is saved at most 240 bytes, less the offset, below where the frame pointer was "
                          "set",
                          other.end_of(save.op), static_cast<std::uint64_t>(below));
            region.pointer->extra = static_cast<std::uint32_t>((below + 15) / 16 * 16);
          }
        }
      }
      region.pointer->offset += region.pointer->extra;
    }
    return {};
  }

  // The frame pointer of the function or of the region, if its SET_FPREG counts as done behind `op` of the region.
  const FramePointer* pointer_at(const Region& region, std::size_t op) const {
    if (&region != &regions_[0] && regions_[0].pointer) return &*regions_[0].pointer;
    return region.pointer && op >= region.pointer->op ? &*region.pointer : nullptr;
  }

  // The establisher frame as the unwinder sees it, behind the op. Nothing: the value of the frame register before it is
  // set, because chained information counts its SET_FPREG as done.
  std::optional<Depth> establisher_at(const Region& region, std::size_t op) const {
    if (const FramePointer* pointer = pointer_at(region, op)) return pointer->establisher();
    if (region.pointer && region.chained) return std::nullopt;
    return region.depths[op];
  }

  // Calls callback(establisher) for every state that a thread can be seen in from the op on.
  template <typename Callback>
  void each_state_from(const Region& region, std::size_t op, Callback&& callback) const {
    for (std::size_t i = op; i < region.depths.size(); ++i) {
      if (i + 1 == region.depths.size() || region.end_of(i + 1) != region.end_of(i))
        callback(establisher_at(region, i));
    }
  }

  Expected<void> check_saves() {
    for (Region& region : regions_) {
      for (PlacedSave& save : region.saves) {
        if (is_push_code(region, save.op)) continue;
        while (!establisher_stays(region, save.coded) && may_be_coded_behind(region, save)) ++save.coded;
        if (!establisher_stays(region, save.coded))
          return fail(ErrorCode::kUnsupported,
                      "a register is saved before the frame it counts from is complete: the codes would be wrong while "
                      "rsp still moves",
                      region.end_of(save.op), save.reg);
      }
    }
    return {};
  }

  // In every state from the op on, in the function's parts too.
  [[nodiscard]] bool establisher_stays(const Region& region, std::size_t op) const {
    std::optional<Depth> first;
    bool same = true;
    const auto compare = [&](std::optional<Depth> establisher) {
      same = same && establisher && establisher == first.value_or(*establisher);
      if (same) first = establisher;
    };
    each_state_from(region, op, compare);
    for (const Region& part : regions_) {
      if (&region != &regions_[0] || &part == &regions_[0]) continue;
      if (part.pointer && part.chained && !regions_[0].pointer) compare(std::nullopt);
      each_state_from(part, 0, compare);
    }
    return same;
  }

  // Until then the register must hold what it held; the frame pointer does not once it is set.
  [[nodiscard]] bool may_be_coded_behind(const Region& region, const PlacedSave& save) const {
    if (!saves_can_wait_ || save.coded + 1 == region.ops->size()) return false;
    return !region.pointer || region.end_of(save.coded) < region.end_of(region.pointer->op) ||
           instruction_number(save.reg) != region.pointer->number;
  }

  // ---- codes ----

  [[nodiscard]] bool is_push_code(const Region& region, std::size_t op) const {
    const auto* save = std::get_if<prologue::Save>(&(*region.ops)[op].action);
    return save != nullptr && is_push(*save) && pointer_at(region, op) == nullptr;
  }

  Expected<void> make_codes() {
    for (Region& region : regions_) {
      bool may_push = true;
      for (std::size_t i = 0; i < region.ops->size(); ++i) {
        if (const auto ok = add_code(region, i, may_push); !ok) return ok;
      }
      std::reverse(region.codes.begin(), region.codes.end());
    }
    return {};
  }

  Expected<void> add_code(Region& region, std::size_t i, bool& may_push) {
    const prologue::Action& action = (*region.ops)[i].action;
    const std::uint32_t where = region.end_of(i);
    std::size_t known = region.codes.size();
    if (const auto* save = std::get_if<prologue::Save>(&action)) {
      if (const auto ok = check_registers(*save, where); !ok) return ok;
      if (is_push_code(region, i)) {
        if (!may_push)
          return fail(ErrorCode::kUnsupported, "a push comes before every allocation and save", where, save->reg);
        add(region, where, Operation::kPushNonvol, instruction_number(save->reg));
        ++known;
      } else if (save->allocate != 0) {
        if (const auto ok = add_allocation(region, i, save->allocate); !ok) return ok;
      }
    } else if (const auto* machine = std::get_if<prologue::MachineFrame>(&action)) {
      add(region, where, Operation::kPushMachframe, machine->error_code ? 1 : 0);
      ++known;
    } else if (const auto* allocate = std::get_if<prologue::Allocate>(&action)) {
      if (const auto ok = add_allocation(region, i, allocate->size); !ok) return ok;
    } else {
      if (region.pointer->extra != 0) add(region, where, Operation::kAllocSmall, 0, region.pointer->extra);
      add(region, where, Operation::kSetFpreg, 0, region.pointer->offset);
    }
    for (const PlacedSave& placed : region.saves) {
      if (placed.coded != i || is_push_code(region, placed.op)) continue;
      if (const auto ok = add_save(region, placed); !ok) return ok;
    }
    if (region.codes.size() != known) may_push = false;
    return {};
  }

  static Expected<void> check_registers(const prologue::Save& save, std::uint32_t where) {
    for (const RegisterNumber reg : {save.reg, save.second}) {
      if (reg == prologue::kNoRegister) continue;
      const unsigned number = instruction_number(reg);
      if (is_xmm(reg) ? reg < kXmm0 + 6 : number > 15 || !is_preserved(number))
        return fail(ErrorCode::kUnsupported,
                    "only rbx, rbp, rsi, rdi, r12 to r15 and xmm6 to xmm15 are saved; the push of another register is "
                    "an allocation of 8",
                    where, reg);
    }
    return {};
  }

  Expected<void> add_save(Region& region, const PlacedSave& save) {
    const Depth displacement = *establisher_of(region, save.coded) - save.depth;
    const bool xmm = is_xmm(save.reg);
    if (displacement < 0 || displacement > 0xffff'ffff || displacement % (xmm ? 16 : 8) != 0)
      return fail(ErrorCode::kOutOfRange,
                  xmm ? "an xmm register is saved at a multiple of 16 from the frame, below 4G"
                      : "a register is saved at a multiple of 8 from the frame, below 4G",
                  region.end_of(save.op), static_cast<std::uint64_t>(displacement));
    add(region, region.end_of(save.coded), xmm ? Operation::kSaveXmm128 : Operation::kSaveNonvol,
        xmm ? save.reg - kXmm0 : instruction_number(save.reg), static_cast<std::uint32_t>(displacement));
    return {};
  }

  // That of the first state in which the op is done.
  std::optional<Depth> establisher_of(const Region& region, std::size_t op) const {
    std::optional<Depth> found;
    each_state_from(region, op, [&](std::optional<Depth> establisher) { found = found ? found : establisher; });
    return found;
  }

  Expected<void> add_allocation(Region& region, std::size_t i, std::uint64_t size) {
    if (size % 8 != 0 || size > kLargestAllocation)
      return fail(ErrorCode::kOutOfRange, "an allocation is a multiple of 8, at most 4G - 8 bytes", region.end_of(i),
                  size);
    if (pointer_at(region, i) == nullptr)
      add(region, region.end_of(i), Operation::kAllocSmall, 0, static_cast<std::uint32_t>(size));
    return {};
  }

  static void add(Region& region, std::uint32_t end, Operation operation, unsigned info, std::uint32_t value = 0) {
    UnwindCode code{
        static_cast<std::uint16_t>(end - region.begin), operation, static_cast<std::uint8_t>(info), 0, 1, value};
    code.slots = static_cast<std::uint8_t>(slots_of(code));
    region.codes.push_back(code);
  }

  // ---- pieces ----

  Expected<void> make_pieces() {
    const Region& function = regions_[0];
    const bool framed = !prologue_.ops.empty();
    std::uint32_t at = 0;
    for (std::size_t i = 1; i <= regions_.size(); ++i) {
      const bool last = i == regions_.size();
      const std::uint32_t stop = last ? prologue_.code_size : regions_[i].begin;
      if (at < stop && (framed || prologue_.handler)) {  // else a leaf, whose epilogues undo nothing
        const auto parent = framed && at != 0 ? std::optional<std::size_t>(0) : std::nullopt;
        if (const auto ok = add_piece(function, at, stop, parent, at == 0, prologue_.epilogues); !ok) return ok;
      }
      if (last) break;
      const auto parent = framed ? std::optional<std::size_t>(0) : std::nullopt;
      if (const auto ok = add_piece(regions_[i], regions_[i].begin, regions_[i].end, parent, true,
                                    prologue_.parts[i - 1].epilogues);
          !ok)
        return ok;
      at = regions_[i].end;
    }
    return {};
  }

  Expected<void> add_piece(const Region& region, std::uint32_t begin, std::uint32_t end,
                           std::optional<std::size_t> parent, bool with_codes,
                           const std::vector<prologue::Epilogue>& epilogues) {
    Piece piece{begin, end, parent, {}, {}};
    set_content(piece, region, with_codes);
    const BodyFrame frame = body_frame(region);
    for (const prologue::Epilogue& epilogue : epilogues) {
      if (epilogue.begin < begin || epilogue.begin >= end) continue;
      const auto described = judge_epilogue(epilogue, frame, version_);
      if (!described) return Failure(described.error());
      if (*described) piece.epilogues.push_back(**described);
    }
    cut(std::move(piece), region);
    return {};
  }

  void set_content(Piece& piece, const Region& region, bool with_codes) const {
    const bool is_function = &region == &regions_[0];
    InfoContent& content = piece.content;
    content.version = version_;
    if (with_codes) {
      content.codes = region.codes;
      content.prolog_size = is_function           ? prologue_.prologue_end()
                            : region.ops->empty() ? 0
                                                  : region.ops->back().end - region.begin;
    }
    const auto& pointer = region.pointer ? region.pointer : regions_[0].pointer;
    if (pointer) {
      content.frame_register = pointer->number;
      content.frame_offset = pointer->offset;
    }
    if (piece.parent)
      content.flags = kChaininfo;
    else if (prologue_.handler)
      content.flags = (prologue_.handler->on_exception ? unsigned{kEhandler} : 0U) |
                      (prologue_.handler->on_unwind ? unsigned{kUhandler} : 0U);
  }

  BodyFrame body_frame(const Region& region) const {
    BodyFrame frame{region.state, region.pointer || regions_[0].pointer, {}, {}};
    if (&region != &regions_[0]) frame.part_end = region.end;
    frame.code = code_;
    // Windows looks for the pushes along the chain, and takes those of the first that has any.
    for (const Region* at : {&region, &regions_[0]}) {
      if (!frame.pops.empty()) break;
      for (const UnwindCode& code : at->codes) {
        if (code.operation == Operation::kPushNonvol) frame.pops.push_back(dwarf_number(code.info));
      }
    }
    return frame;
  }

  // Epilogues are given by their distance from the end, which has 12 bits, and in slots, of which there are 255. Where
  // that is not enough, an entry ends behind an epilogue, and another, chained to it, goes on.
  void cut(Piece piece, const Region& region) {
    std::vector<EpilogueV2> all = std::exchange(piece.epilogues, {});
    const std::uint32_t end = piece.end;
    const std::size_t first_index = pieces_.size();
    for (std::size_t i = 0; i <= all.size(); ++i) {
      std::size_t slots = (piece.epilogues.size() + 3) / 2 * 2;
      for (const UnwindCode& code : piece.content.codes) slots += code.slots;
      const std::uint32_t reach = i == all.size() ? end : all[i].end;
      const bool full = !piece.epilogues.empty() &&
                        (reach - piece.epilogues.front().pops > kFarthestEpilogue || slots > kMaxSlotsOfPiece);
      if (full && piece.epilogues.back().end < end) {
        piece.end = piece.epilogues.back().end;
        Piece next = piece_behind(piece.end, end, first_index, region);
        pieces_.push_back(std::exchange(piece, std::move(next)));
      }
      if (i == all.size()) break;
      if (!all[i].own_pops) {
        piece.epilogues.push_back(all[i]);
        continue;
      }
      piece.end = all[i].pops;
      if (piece.begin < piece.end) pieces_.push_back(std::move(piece));  // the first one has codes, and is not empty
      add_pops(all[i]);
      if (all[i].end == end) return;
      piece = piece_behind(all[i].end, end, first_index, region);
    }
    pieces_.push_back(std::move(piece));
  }

  // The rest of a region, chained to the piece that has its codes.
  [[nodiscard]] Piece piece_behind(std::uint32_t begin, std::uint32_t end, std::size_t first,
                                   const Region& region) const {
    Piece piece{begin, end, first, {}, {}};
    set_content(piece, region, false);
    return piece;
  }

  // Pushes that count as done throughout, and are undone by the epilogue that the piece is. Where none is known to end
  // there, only the first pop of a piece is told from the others.
  void add_pops(const EpilogueV2& epilogue) {
    const std::vector<RegisterNumber>& pops = *epilogue.own_pops;
    if (!epilogue.runs_on) {
      pieces_.push_back(piece_of_pops(epilogue.pops, epilogue.end, pops));
      pieces_.back().epilogues = {epilogue};
      return;
    }
    std::uint32_t begin = epilogue.pops;
    for (std::size_t i = 0; i < pops.size(); ++i) {
      const std::uint32_t end = begin + pop_size(pops[i]);
      pieces_.push_back(piece_of_pops(begin, end, std::span(pops).subspan(i)));
      begin = end;
    }
  }

  [[nodiscard]] Piece piece_of_pops(std::uint32_t begin, std::uint32_t end,
                                    std::span<const RegisterNumber> pops) const {
    Piece piece{begin, end, {}, {}, {}};
    piece.content.version = version_;
    for (const RegisterNumber reg : pops)
      piece.content.codes.push_back(
          {0, Operation::kPushNonvol, static_cast<std::uint8_t>(instruction_number(reg)), 0, 1, 0});
    return piece;
  }

  const Prologue& prologue_;
  const std::uint32_t version_;
  const bool saves_can_wait_;
  const std::span<const std::byte> code_;
  std::vector<Region> regions_;  // the function, then its parts
  std::vector<Piece> pieces_;
};

// Epilogues of a piece as the codes count them.
void count_epilogues(Piece& piece) {
  for (auto epilogue = piece.epilogues.rbegin(); epilogue != piece.epilogues.rend(); ++epilogue) {
    piece.content.epilog_size = epilogue->size();
    if (epilogue->pops + epilogue->size() == piece.end)
      piece.content.epilog_at_end = true;
    else
      piece.content.epilog_offsets.push_back(piece.end - epilogue->pops);
  }
}

}  // namespace

Expected<std::vector<Piece>> pieces_of(const Prologue& prologue, std::uint32_t version, bool saves_can_wait,
                                       std::span<const std::byte> code) {
  if (version == 3) return pieces_of_v3(prologue);
  auto pieces = Planner(prologue, version, saves_can_wait, code).run();
  if (!pieces) return pieces;
  for (Piece& piece : *pieces) count_epilogues(piece);
  return pieces;
}

}  // namespace windlass::winx64
