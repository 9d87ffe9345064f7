// Chooses the operations of version 3 for a Prologue. Every action has an operation, in prologues and in epilogues, and
// counts from rsp as the instruction finds it. So there are none of the limits of version 1.
//
// A Prologue has the ends of instructions, and the operations have the begins. Unwinders compare these with addresses
// of instructions alone. So the last byte of an instruction serves as well as the first, which is not known.
#include <algorithm>
#include <utility>

#include "formats/winx64/frame_codes.h"

namespace windlass::winx64 {
namespace {

constexpr std::uint32_t kMaxEpilogDistance = 0x7fff, kMaxOffset16 = 0xffff;
constexpr std::size_t kMaxEpilogsOfPiece = 7;

class PlannerV3 {
 public:
  explicit PlannerV3(const Prologue& prologue) : prologue_(prologue) {}

  Expected<std::vector<Piece>> run() {
    if (prologue_.architecture != Architecture::kX86_64)
      return fail(ErrorCode::kUnsupported, "prologue is not of x86-64", 0);
    if (prologue_.handler && !prologue_.handler->on_exception && !prologue_.handler->on_unwind)
      return fail(ErrorCode::kMalformed, "handler is called in neither pass", 0);
    if (const auto ok = check(prologue_); !ok) return Failure(ok.error());
    FrameState state(Architecture::kX86_64);
    if (const auto ok = enter(prologue_.ops, state); !ok) return Failure(ok.error());
    framed_ = !prologue_.ops.empty() || prologue_.handler;
    std::uint32_t at = 0;
    auto epilogue = prologue_.epilogues.begin();
    for (const prologue::Part& part : prologue_.parts) {
      if (framed_ && (part.begin < prologue_.prologue_end() || part.begin == 0))
        return fail(ErrorCode::kUnsupported, "a part begins behind the function's prologue and first byte", part.begin);
      if (const auto ok = stretch(at, part.begin, state, epilogue); !ok) return Failure(ok.error());
      if (const auto ok = add_part(part, state); !ok) return Failure(ok.error());
      at = part.end;
    }
    if (const auto ok = stretch(at, prologue_.code_size, state, epilogue); !ok) return Failure(ok.error());
    return std::move(pieces_);
  }

 private:
  using Epilogues = std::vector<prologue::Epilogue>;

  static Expected<void> enter(const std::vector<prologue::Op>& ops, FrameState& state) {
    for (const prologue::Op& op : ops) {
      const auto* set = std::get_if<prologue::SetFramePointer>(&op.action);
      const auto is_saved = [&](const FrameState::Saved& saved) { return saved.reg == set->reg; };
      if (set != nullptr && std::ranges::none_of(state.saved(), is_saved))
        return fail(ErrorCode::kMalformed, "the frame pointer is set before its old value was saved", op.end, set->reg);
      if (const auto ok = state.apply(op); !ok) return ok;
    }
    return {};
  }

  // Code of the function itself, with its epilogues there.
  Expected<void> stretch(std::uint32_t begin, std::uint32_t end, const FrameState& state,
                         Epilogues::const_iterator& epilogue) {
    const auto first = epilogue;
    while (epilogue != prologue_.epilogues.end() && epilogue->begin < end) ++epilogue;
    if (!framed_ || begin >= end) return {};
    if (const auto ok = open(begin, end, begin == 0 ? &prologue_.ops : nullptr, prologue_.prologue_end()); !ok)
      return ok;
    return add_epilogues(Epilogues(first, epilogue), state, nullptr);
  }

  Expected<void> add_part(const prologue::Part& part, const FrameState& around) {
    FrameState state = around;
    if (const auto ok = enter(part.ops, state); !ok) return ok;
    const std::uint32_t size = part.ops.empty() ? 0 : part.ops.back().end - part.begin;
    if (const auto ok = open(part.begin, part.end, &part.ops, size); !ok) return ok;
    return add_epilogues(part.epilogues, state, &around);
  }

  // A new piece, chained to the function's if that has a frame.
  Expected<void> open(std::uint32_t begin, std::uint32_t end, const std::vector<prologue::Op>* ops,
                      std::uint32_t prologue_size) {
    Piece piece{begin, end, {}, {}, {}};
    piece.content.version = 3;
    if (begin != 0 && framed_) {
      piece.parent = 0;
      piece.content.flags = kChaininfo;
    } else if (begin == 0 && prologue_.handler) {
      if (prologue_.handler->on_exception) piece.content.flags |= kEhandler;
      if (prologue_.handler->on_unwind) piece.content.flags |= kUhandler;
    }
    if (ops != nullptr) {
      if (prologue_size > kMaxOffset16)
        return fail(ErrorCode::kOutOfRange, "a prologue of version 3 has at most 65,535 bytes", begin, prologue_size);
      piece.content.prolog_size = prologue_size;
      if (prologue_size > 0xff) piece.content.flags |= kLarge;
      for (auto op = ops->rbegin(); op != ops->rend(); ++op)
        if (const auto ok = add_codes(piece.content.codes, *op, begin, true); !ok) return ok;
    }
    pieces_.push_back(std::move(piece));
    return {};
  }

  Expected<void> add_epilogues(const Epilogues& epilogues, const FrameState& frame, const FrameState* around) {
    for (const prologue::Epilogue& epilogue : epilogues) {
      FrameState left = frame;
      const std::size_t described = first_described(epilogue, frame);
      for (const prologue::Op& op : epilogue.undone)
        if (const auto ok = left.undo(op); !ok) return ok;
      if (described == epilogue.undone.size()) continue;  // it takes nothing back
      EpilogContent content;
      content.parent_transfer = around != nullptr && !left.is_entry() && left.same_frame(*around);
      const std::uint32_t begin = frame.pointer() ? epilogue.undone[described].end - 1 : epilogue.begin;
      const EpilogContent* before =
          pieces_.back().content.epilogs_v3.empty() ? nullptr : &pieces_.back().content.epilogs_v3.back();
      const std::uint32_t from = pieces_.back().begin + (before != nullptr ? before->begin : 0);
      if (pieces_.back().content.epilogs_v3.size() == kMaxEpilogsOfPiece || begin - from > kMaxEpilogDistance) {
        const std::uint32_t end = std::exchange(pieces_.back().end, epilogue.begin);
        // What a part has saved would have to be said again.
        if (around != nullptr)
          return fail(ErrorCode::kLimit, "a part has at most 7 epilogues in 32,767 bytes in version 3", epilogue.begin);
        if (const auto ok = open(epilogue.begin, end, nullptr, 0); !ok) return ok;
      }
      if (epilogue.end - 1 - begin > kMaxOffset16)
        return fail(ErrorCode::kOutOfRange, "an epilogue of version 3 has at most 65,535 bytes", epilogue.begin);
      content.begin = begin - pieces_.back().begin;
      content.last_instruction = static_cast<std::uint16_t>(epilogue.end - 1 - begin);
      for (std::size_t i = described; i < epilogue.undone.size(); ++i)
        if (const auto ok = add_codes(content.codes, epilogue.undone[i], begin, false); !ok) return ok;
      pieces_.back().content.epilogs_v3.push_back(std::move(content));
    }
    return {};
  }

  // Up to the first instruction that moves rsp, an epilogue is as good as the body. Where the frame is found by a frame
  // pointer, rsp is not known before that instruction: so the epilogue begins with the last byte of the instruction.
  static std::size_t first_described(const prologue::Epilogue& epilogue, const FrameState& frame) {
    if (!frame.pointer()) return 0;
    std::size_t first = 0;
    const auto moves = [](const prologue::Op& op) {
      const auto* save = std::get_if<prologue::Save>(&op.action);
      return save == nullptr || save->allocate != 0;
    };
    while (first < epilogue.undone.size() && !moves(epilogue.undone[first])) ++first;
    // All of the same instruction.
    while (first > 0 && first < epilogue.undone.size() && epilogue.undone[first - 1].end == epilogue.undone[first].end)
      --first;
    return first;
  }

  // The operations of an action, in the order of undoing.
  Expected<void> add_codes(std::vector<UnwindCode>& codes, const prologue::Op& op, std::uint32_t from, bool prologue) {
    const std::uint32_t end = op.end - from;
    const std::uint32_t offset = end == 0 ? 0 : end - 1;
    if (offset > kMaxOffset16)
      return fail(ErrorCode::kOutOfRange, "a prologue of version 3 has at most 65,535 bytes", op.end);
    const auto add = [&](Operation operation, unsigned info, std::uint64_t value) {
      UnwindCode code;
      code.offset = static_cast<std::uint16_t>(offset);
      code.operation = operation;
      code.info = static_cast<std::uint8_t>(info);
      code.value = static_cast<std::uint32_t>(value);
      codes.push_back(code);
    };
    if (const auto* allocate = std::get_if<prologue::Allocate>(&op.action)) {
      if (allocate->size > 0xffff'ffff)
        return fail(ErrorCode::kOutOfRange, "an allocation of version 3 has less than 4 GiB", op.end, allocate->size);
      add(Operation::kAllocLarge, 0, allocate->size);
    } else if (const auto* save = std::get_if<prologue::Save>(&op.action)) {
      if (is_push(*save)) {
        if (instruction_number(save->reg) > 15)
          return fail(ErrorCode::kUnsupported, "version 3 saves rax to r15 and xmm0 to xmm15", op.end, save->reg);
        add(Operation::kPushNonvol, instruction_number(save->reg), 0);
        return {};
      }
      std::uint64_t at = save->offset;
      for (const RegisterNumber reg : {save->reg, save->second}) {
        if (reg == prologue::kNoRegister) continue;
        if (!is_xmm(reg) && instruction_number(reg) > 15)
          return fail(ErrorCode::kUnsupported, "version 3 saves rax to r15 and xmm0 to xmm15", op.end, reg);
        add(is_xmm(reg) ? Operation::kSaveXmm128 : Operation::kSaveNonvol,
            is_xmm(reg) ? static_cast<unsigned>(reg - kXmm0) : instruction_number(reg), at);
        at += 8;
      }
      if (save->allocate != 0) add(Operation::kAllocLarge, 0, save->allocate);
    } else if (const auto* set = std::get_if<prologue::SetFramePointer>(&op.action)) {
      if (instruction_number(set->reg) > 15)
        return fail(ErrorCode::kUnsupported, "the frame pointer is a register that calls preserve", op.end, set->reg);
      add(Operation::kSetFpreg, instruction_number(set->reg), set->offset);
    } else if (const auto* machine = std::get_if<prologue::MachineFrame>(&op.action); machine != nullptr && prologue) {
      add(Operation::kPushCanonicalFrame, machine->error_code ? 1 : 0, 0);
    } else {
      return fail(ErrorCode::kUnsupported, "operation is none that version 3 writes", op.end);
    }
    return {};
  }

  const Prologue& prologue_;
  bool framed_ = false;
  std::vector<Piece> pieces_;
};

}  // namespace

Expected<std::vector<Piece>> pieces_of_v3(const Prologue& prologue) { return PlannerV3(prologue).run(); }

}  // namespace windlass::winx64
