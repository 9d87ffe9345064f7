// Fragments into unwind codes: one for each instruction.
#include <algorithm>
#include <span>

#include "formats/winarm64/encode_codes.h"
#include "formats/winarm64/frame_codes.h"
#include "formats/winarm64/frames.h"
#include "rows/frame_state.h"

namespace windlass::winarm64 {
namespace {

constexpr RegisterNumber kFirstV = 64, kLastV = 95, kFirstP = 48, kFirstZ = 96;

UnwindCode code_of(Operation operation, std::uint32_t value = 0) {
  UnwindCode code;
  code.operation = operation;
  code.value = value;
  return code;
}

Expected<UnwindCode> save_code(const prologue::Save& save, std::uint32_t where) {
  const bool pair = save.second != prologue::kNoRegister;
  const bool vector = save.reg >= kFirstV && save.reg <= kLastV;
  if (!vector && save.reg > kLr)
    return fail(ErrorCode::kUnsupported, "no unwind code saves this register", where, save.reg);
  const RegisterNumber base = vector ? kFirstV : 0;
  if (pair && (save.second < base || save.second > base + 31U))
    return fail(ErrorCode::kMalformed, "registers are no pair: of different kinds", where, save.second);
  if (save.allocate != 0 && save.offset != 0)
    return fail(ErrorCode::kUnsupported, "no one instruction moves sp and saves above where it then is", where,
                save.offset);
  UnwindCode code;
  code.file = vector ? RegisterFile::kD : RegisterFile::kX;
  code.reg = static_cast<std::uint8_t>(save.reg - base);
  code.pair = pair;
  code.second = static_cast<std::uint8_t>(pair ? save.second - base : 0);
  code.writeback = save.allocate != 0;
  code.value = save.allocate != 0 ? save.allocate : save.offset;
  return smallest(code, where);
}

// Errors by the limits of the code.
Expected<UnwindCode> scalable_code(UnwindCode code, std::uint8_t size, std::uint32_t where) {
  code.size = size;
  CodeBytes tried;
  if (const auto done = append_code(tried, code, where); !done) return Failure(done.error());
  return code;
}

Expected<UnwindCode> code_for(const prologue::SaveVector& save, std::uint32_t where) {
  const bool predicate = save.reg < kFirstZ;
  UnwindCode code = code_of(predicate ? Operation::kSavePreg : Operation::kSaveZreg, save.offset);
  code.file = predicate ? RegisterFile::kP : RegisterFile::kZ;
  code.reg = static_cast<std::uint8_t>(save.reg - (predicate ? kFirstP : kFirstZ));
  return scalable_code(code, 3, where);
}

Expected<UnwindCode> code_for(const prologue::Action& action, std::uint32_t where) {
  if (const auto* save = std::get_if<prologue::Save>(&action)) return save_code(*save, where);
  if (const auto* allocate = std::get_if<prologue::Allocate>(&action)) {
    if (allocate->size > 0xffff'ffff)
      return fail(ErrorCode::kOutOfRange, "allocation of 256 MiB or more has no unwind code", where, allocate->size);
    return smallest(code_of(Operation::kAllocL, static_cast<std::uint32_t>(allocate->size)), where);
  }
  if (const auto* set = std::get_if<prologue::SetFramePointer>(&action)) {
    if (set->reg != kFp)
      return fail(ErrorCode::kUnsupported, "only x29 can be a frame pointer that is unwound by", where, set->reg);
    return smallest(code_of(Operation::kAddFp, set->offset), where);
  }
  if (std::holds_alternative<prologue::SignReturnAddress>(action)) return code_of(Operation::kPacSignLr);
  if (const auto* vectors = std::get_if<prologue::AllocateVectors>(&action))
    return scalable_code(code_of(Operation::kAllocZ, vectors->count), 2, where);
  if (const auto* vector = std::get_if<prologue::SaveVector>(&action)) return code_for(*vector, where);
  return fail(ErrorCode::kUnsupported, "no instruction of a prologue makes a machine frame", where);
}

Expected<void> check_instruction(std::uint32_t end, std::uint32_t previous) {
  if (end % 4 != 0) return fail(ErrorCode::kMalformed, "instruction does not end at a multiple of 4", end, end);
  if (end < previous + 4)
    return fail(ErrorCode::kMalformed, "each op has one instruction of 4 bytes: a Save can allocate, too", end,
                previous);
  return {};
}

// Codes in the order of the code, with a nop for each instruction up to `to`.
void pad(std::vector<UnwindCode>& codes, std::uint32_t from, std::uint32_t to) {
  // More than a record can hold are as good as all.
  const std::uint32_t count = std::min<std::uint32_t>((to - from) / 4, kMaxCodeBytes + 1);
  codes.insert(codes.end(), count, code_of(Operation::kNop));
}

// What other code has done before, behind an end_c.
Expected<void> append_before(std::vector<UnwindCode>& codes, std::span<const prologue::Action> actions,
                             std::uint32_t where) {
  if (!actions.empty()) codes.push_back(code_of(Operation::kEndC));
  for (auto action = actions.rbegin(); action != actions.rend(); ++action) {
    const auto code = code_for(*action, where);
    if (!code) return Failure(code.error());
    codes.push_back(*code);
  }
  return {};
}

Expected<std::vector<UnwindCode>> prologue_codes(const Fragment& fragment) {
  std::vector<UnwindCode> codes;
  std::uint32_t at = fragment.begin;
  for (const prologue::Op& op : fragment.ops) {
    if (const auto done = check_instruction(op.end, at); !done) return Failure(done.error());
    const auto code = code_for(op.action, op.end);
    if (!code) return Failure(code.error());
    pad(codes, at, op.end - 4);
    codes.push_back(*code);
    at = op.end;
  }
  if (fragment.prologue_end > at) pad(codes, at, fragment.prologue_end);
  std::reverse(codes.begin(), codes.end());
  if (const auto done = append_before(codes, fragment.entered, fragment.begin); !done) return Failure(done.error());
  use_save_next(codes);
  return codes;
}

// ---- epilogues ----------------------------------------------------------------------------------------------------

// What one instruction takes back: `add sp` several allocations, `ldp [sp], #n` a save and allocations, `mov sp, x29`
// all that was allocated since.
Expected<prologue::Action> combined(const std::vector<prologue::Op>& undone, std::size_t first, std::size_t last) {
  prologue::Action whole = undone[first].action;
  const std::uint32_t where = undone[first].end;
  for (std::size_t i = first + 1; i < last; ++i) {
    const prologue::Action& next = undone[i].action;
    auto* sum = std::get_if<prologue::Allocate>(&whole);
    auto* save = std::get_if<prologue::Save>(&whole);
    if (const auto* more = std::get_if<prologue::Allocate>(&next); more != nullptr && sum != nullptr) {
      sum->size += more->size;
    } else if (more != nullptr && save != nullptr && more->size <= 0xffff'ffff - save->allocate) {
      save->allocate += static_cast<std::uint32_t>(more->size);
    } else if (sum != nullptr && std::holds_alternative<prologue::SetFramePointer>(next)) {
      whole = next;
    } else {
      return fail(ErrorCode::kUnsupported,
                  "one instruction takes back allocations, or a Save and then allocations: list the rest at other ends",
                  where);
    }
  }
  return whole;
}

// One that starts with the first instruction that takes something back. Those in front of it are as good as the body.
struct EpilogueForm {
  EpilogueCodes codes;
  std::uint32_t second = 0;  // where the first instruction ends
  bool first_has_code = true;
  bool open_end = false;  // its last instruction takes something back
};

Expected<UnwindCode> code_of_instruction(const std::vector<prologue::Op>& undone, std::size_t first, std::size_t last) {
  const auto action = combined(undone, first, last);
  if (!action) return Failure(action.error());
  return code_for(*action, undone[first].end);
}

// What actions take or give back.
struct Tally {
  std::size_t registers = 0;  // saved, or signed
  std::uint64_t bytes = 0;
  void add(const prologue::Action& action) {
    if (const auto* allocate = std::get_if<prologue::Allocate>(&action)) bytes += allocate->size;
    if (std::holds_alternative<prologue::SignReturnAddress>(action) ||
        std::holds_alternative<prologue::SaveVector>(action))
      ++registers;
    if (const auto* save = std::get_if<prologue::Save>(&action)) {
      registers += save->second == prologue::kNoRegister ? 1 : 2;
      bytes += save->allocate;
    }
  }
};

// All that is done to the frame when a fragment's prologue has run, and the frame after each of the actions.
class Frames {
 public:
  explicit Frames(const Fragment& fragment) : actions_(fragment.entered), states_{FrameState(Architecture::kAArch64)} {
    for (const prologue::Op& op : fragment.ops) actions_.push_back(op.action);
    for (const prologue::Action& action : actions_) {
      states_.push_back(states_.back());
      known_ = known_ && states_.back().apply({fragment.begin, action});
    }
  }

  // What an epilogue leaves in place: the actions of the function around a part that it leaves, or none.
  [[nodiscard]] std::span<const prologue::Action> left_by(const prologue::Epilogue& epilogue) const {
    std::size_t left = actions_.size();
    FrameState state = states_.back();
    bool known = known_;
    for (const prologue::Op& op : epilogue.undone) known = known && state.undo(op);
    if (known) {
      while (left > 0 && (left == actions_.size() || !states_[left].same_frame(state))) --left;
    } else {
      // A compiler's record: epilogues may free what no prologue has allocated, as the frame is found by x29.
      Tally undone, rest;
      for (const prologue::Op& op : epilogue.undone) undone.add(op.action);
      while (left > 0 && (rest.registers < undone.registers || rest.bytes < undone.bytes)) rest.add(actions_[--left]);
    }
    return std::span(actions_).first(left);
  }

 private:
  std::vector<prologue::Action> actions_;
  std::vector<FrameState> states_;
  bool known_ = true;
};

// Does the epilogue's first instruction end the frame pointer's use by loading the register, and nothing else? Where sp
// has not moved since the frame pointer was set, taking that back needs no instruction.
bool loads_frame_pointer(const Fragment& fragment, const std::vector<prologue::Op>& undone) {
  const auto sets = [](const prologue::Op& op) { return std::holds_alternative<prologue::SetFramePointer>(op.action); };
  return undone.size() > 1 && undone[0].end == undone[1].end && sets(undone[0]) && !fragment.ops.empty() &&
         sets(fragment.ops.back());
}

Expected<EpilogueForm> epilogue_form(const Fragment& fragment, const Frames& frames,
                                     const prologue::Epilogue& epilogue) {
  EpilogueForm form;
  std::uint32_t at = epilogue.begin;
  const std::vector<prologue::Op>& undone = epilogue.undone;
  for (std::size_t i = 0; i < undone.size();) {
    std::size_t next = i + 1;
    while (next < undone.size() && undone[next].end == undone[i].end) ++next;
    const std::uint32_t end = undone[i].end;
    if (const auto done = check_instruction(end, at); !done) return Failure(done.error());
    const std::size_t first = i == 0 && loads_frame_pointer(fragment, undone) ? 1 : i;
    const auto code = code_of_instruction(undone, first, next);
    if (i == 0) {
      // Until it has run the codes of the body hold, so it needs none of its own.
      form.codes.start = end - 4;
      form.second = end;
      form.first_has_code = code.has_value();
    } else {
      if (!code) return Failure(code.error());
      pad(form.codes.codes, at, end - 4);
    }
    form.codes.codes.push_back(code.value_or(code_of(Operation::kNop)));
    at = end;
    i = next;
  }
  if (epilogue.end % 4 != 0)
    return fail(ErrorCode::kMalformed, "epilogue does not end at a multiple of 4", epilogue.end, epilogue.end);
  form.open_end = at == epilogue.end;
  // The record has one more instruction follow the codes. Behind the fragment that does no harm.
  if (form.open_end && epilogue.end < fragment.end)
    return fail(ErrorCode::kUnsupported, "last instruction of an epilogue must be one that takes nothing back",
                epilogue.end);
  if (!form.open_end) pad(form.codes.codes, at, epilogue.end - 4);
  if (const auto done = append_before(form.codes.codes, frames.left_by(epilogue), epilogue.begin); !done)
    return Failure(done.error());
  use_save_next(form.codes.codes);
  return form;
}

// Is the epilogue's code the rest of the prologue's?
bool shared(const RecordContents& contents, const std::vector<UnwindCode>& codes) {
  CodeBytes all, rest;
  for (const UnwindCode& code : contents.prologue)
    if (!append_code(all, code, 0)) return false;
  for (const UnwindCode& code : codes)
    if (!append_code(rest, code, 0)) return false;
  return rest.size() <= all.size() && std::equal(rest.rbegin(), rest.rend(), all.rbegin());
}

EpilogueCodes without_first(const EpilogueForm& form) {
  EpilogueCodes rest{form.second, {}};
  rest.codes.assign(form.codes.codes.begin() + 1, form.codes.codes.end());
  return rest;
}

std::size_t encoded_size(const RecordContents& contents) {
  if (packed_form(contents)) return 0;
  const auto bytes = encode(contents);
  return bytes ? bytes->size() : ~std::size_t{0};
}

}  // namespace

std::size_t left_in_place(const Fragment& fragment, const prologue::Epilogue& epilogue) {
  return Frames(fragment).left_by(epilogue).size();
}

Expected<RecordContents> contents_of(const Fragment& fragment, const prologue::Handler* handler) {
  RecordContents contents;
  if (fragment.begin % 4 != 0 || fragment.end % 4 != 0)
    return fail(ErrorCode::kMalformed, "code or part of it does not begin and end at a multiple of 4", fragment.begin,
                fragment.end);
  contents.length = fragment.end - fragment.begin;
  if (handler != nullptr) contents.handler = *handler;
  auto prologue = prologue_codes(fragment);
  if (!prologue) return Failure(prologue.error());
  contents.prologue = std::move(*prologue);

  RecordContents shorter = contents;
  const Frames frames(fragment);
  bool differs = false;
  for (const prologue::Epilogue& epilogue : fragment.epilogues) {
    if (epilogue.undone.empty()) continue;
    auto form = epilogue_form(fragment, frames, epilogue);
    if (!form) return Failure(form.error());
    form->codes.start -= fragment.begin;
    form->second -= fragment.begin;
    const EpilogueCodes rest = without_first(*form);
    if (!form->first_has_code) form->codes = rest;
    // Without its first instruction it is shared more often. A handler is not called in an epilogue, though, so where
    // there is one it stays.
    const bool keep = handler != nullptr || rest.start >= contents.length || shared(contents, form->codes.codes);
    differs |= !keep;
    shorter.epilogues.push_back(keep ? form->codes : rest);
    contents.epilogues.push_back(std::move(form->codes));
  }
  if (differs && encoded_size(shorter) < encoded_size(contents)) return shorter;
  return contents;
}

// ---- and back -----------------------------------------------------------------------------------------------------

namespace {

Expected<std::optional<prologue::Action>> action_of(const UnwindCode& code, std::uint64_t where) {
  if (code.file == RegisterFile::kZ || code.file == RegisterFile::kP) {
    const RegisterNumber first = code.file == RegisterFile::kZ ? kFirstZ : kFirstP;
    return prologue::Action(prologue::SaveVector{static_cast<RegisterNumber>(first + code.reg), code.value});
  }
  if (code.saves()) {
    if (code.file != RegisterFile::kX && code.file != RegisterFile::kD)
      return fail(ErrorCode::kUnsupported, "function saves vector registers whole", where, code.reg);
    prologue::Save save{dwarf_number(code.file, code.reg)};
    if (code.pair) save.second = dwarf_number(code.file, code.second);
    (code.writeback ? save.allocate : save.offset) = code.value;
    return prologue::Action(save);
  }
  switch (code.operation) {
    case Operation::kAllocS:
    case Operation::kAllocM:
    case Operation::kAllocL:
      return code.value == 0 ? std::optional<prologue::Action>() : prologue::Allocate{code.value};
    case Operation::kAllocZ: return prologue::AllocateVectors{code.value};
    case Operation::kSetFp:
    case Operation::kAddFp: return prologue::SetFramePointer{kFp, code.value};
    case Operation::kPacSignLr: return prologue::SignReturnAddress{};
    case Operation::kNop:
    case Operation::kReservedNop: return std::optional<prologue::Action>();
    default: return fail(ErrorCode::kUnsupported, "function's frame is not made by a prologue alone", where);
  }
}

Expected<void> take_prologue(Fragment& fragment, std::vector<UnwindCode> codes, std::uint64_t where) {
  if (const auto done = resolve_save_next(codes); !done) return done;
  const auto boundary = std::find_if(codes.begin(), codes.end(), [](const UnwindCode& code) { return code.ends(); });
  for (std::size_t i = codes.size(); i-- > static_cast<std::size_t>(boundary - codes.begin());) {
    if (codes[i].ends()) continue;
    const auto action = action_of(codes[i], where);
    if (!action) return Failure(action.error());
    if (*action) fragment.entered.push_back(**action);
  }
  for (auto code = boundary; code != codes.begin();) {
    const auto action = action_of(*--code, where);
    if (!action) return Failure(action.error());
    fragment.prologue_end += 4;
    if (*action) fragment.ops.push_back({fragment.prologue_end, **action});
  }
  return {};
}

Expected<prologue::Epilogue> take_epilogue(const EpilogueCodes& from, std::uint64_t where) {
  prologue::Epilogue epilogue{from.start, from.start, {}};
  std::vector<UnwindCode> codes = from.codes;
  if (const auto done = resolve_save_next(codes); !done) return Failure(done.error());
  for (const UnwindCode& code : codes) {
    if (code.ends()) break;
    const auto action = action_of(code, where);
    if (!action) return Failure(action.error());
    epilogue.end += 4;
    if (*action) epilogue.undone.push_back({epilogue.end, **action});
  }
  epilogue.end += 4;
  return epilogue;
}

// MSVC leaves the instruction that frees the stack out of some epilogues: it is the one in front.
void add_first(const Fragment& fragment, bool whole, prologue::Epilogue& epilogue) {
  for (const prologue::Op& op : epilogue.undone)
    if (std::holds_alternative<prologue::SetFramePointer>(op.action)) return;
  Tally done, undone;
  for (const prologue::Op& op : fragment.ops) done.add(op.action);
  if (whole)
    for (const prologue::Action& action : fragment.entered) done.add(action);
  for (const prologue::Op& op : epilogue.undone) undone.add(op.action);
  if (undone.bytes >= done.bytes || epilogue.begin < 4) return;
  epilogue.undone.insert(epilogue.undone.begin(), {epilogue.begin, prologue::Allocate{done.bytes - undone.bytes}});
  epilogue.begin -= 4;
}

}  // namespace

Expected<Fragment> fragment_of(const UnwindRecord& record) {
  auto contents = decode(record);
  if (!contents) return Failure(contents.error());
  Fragment fragment;
  fragment.end = record.length;
  if (const auto done = take_prologue(fragment, std::move(contents->prologue), record.rva); !done)
    return Failure(done.error());
  for (const EpilogueCodes& codes : contents->epilogues) {
    auto epilogue = take_epilogue(codes, record.rva);
    if (!epilogue) return Failure(epilogue.error());
    const bool whole =
        std::none_of(codes.codes.begin(), codes.codes.end(), [](const auto& code) { return code.ends(); });
    add_first(fragment, whole, *epilogue);
    fragment.epilogues.push_back(std::move(*epilogue));
  }
  return fragment;
}

Expected<Prologue> prologue_of(const UnwindRecord& record) {
  auto fragment = fragment_of(record);
  if (!fragment) return Failure(fragment.error());
  if (!fragment->entered.empty())
    return fail(ErrorCode::kUnsupported, "record is of a later fragment of a function", record.rva);
  Prologue prologue;
  prologue.architecture = Architecture::kAArch64;
  prologue.code_size = fragment->end;
  prologue.ops = std::move(fragment->ops);
  prologue.size = fragment->prologue_end;
  prologue.epilogues = std::move(fragment->epilogues);
  if (record.has_handler) prologue.handler = prologue::Handler{record.handler, true, true, {}};
  return prologue;
}

}  // namespace windlass::winarm64
