#include "formats/winarm64/lower.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/registers.h"
#include "formats/winarm64/known_codes.h"

namespace windlass::winarm64 {
namespace {

using Slot = SymbolicFrame::Slot;
using Base = SymbolicFrame::Base;

// -1: not among the registers that rows have rules for.
int slot_of(RegisterFile file, unsigned number) {
  if (file == RegisterFile::kX) return number >= 19 && number <= 30 ? static_cast<int>(number) - 19 : -1;
  return number >= 8 && number <= 15 ? static_cast<int>(number) - 8 + 12 : -1;
}

class SymbolicExecutor {
 public:
  explicit SymbolicExecutor(SymbolicFrame& frame) : frame_(frame) {}

  // The index behind the last code that counts.
  Expected<std::uint32_t> run(ByteView codes, std::uint32_t index) {
    while (index < codes.size()) {
      const auto code = code_at(codes, index);
      if (!code) return Failure(code.error());
      where_ = codes.origin() + index;
      if (code->operation == Operation::kEnd) {
        if (nexts_ != 0) return bad("save_next without a pair");
        index += code->size;
        break;
      }
      if (const auto done = one(*code); !done) return Failure(done.error());
      // Once here suffices: a code moves sp by at most 256 MiB.
      if (frame_.offset >= kLimit) return no_row("no row: the frame has 1 GiB or more");
      index += code->size;
    }
    if (frame_.base == Base::kUnknown || frame_.slots[SymbolicFrame::kLr].base == Base::kUnknown)
      return no_row("no row: sp and pc lie behind SVE vectors, whose length is not known");
    return index;
  }

 private:
  Failure bad(const char* what) { return fail(ErrorCode::kMalformed, what, where_); }
  Failure no_row(const char* what) { return fail(ErrorCode::kUnsupported, what, where_); }

  Expected<void> one(const UnwindCode& code) {
    if (nexts_ != 0 && !code.pair && code.operation != Operation::kSaveNext && code.operation != Operation::kEndC)
      return bad("save_next without a pair");
    if (code.saves()) return save(code);
    switch (code.operation) {
      case Operation::kAllocS:
      case Operation::kAllocM:
      case Operation::kAllocL: frame_.offset += code.value; return {};
      case Operation::kSetFp:
      case Operation::kAddFp:
        if (frame_.slots[SymbolicFrame::kFp].base != Base::kRegister)
          return no_row("no row: sp comes from a frame pointer that was saved");
        frame_.base = Base::kOnFp;
        frame_.offset = -std::int64_t{code.value};
        return {};
      case Operation::kSaveNext: ++nexts_; return {};
      case Operation::kPacSignLr:
        if (frame_.jumps) return no_row("no row: lr is authenticated, and kept beside the pc");
        frame_.return_signed = true;
        return {};
      case Operation::kClearUnwoundToCall:
        if (frame_.return_signed) return no_row("no row: lr is authenticated, and kept beside the pc");
        frame_.jumps = true;
        frame_.return_address = frame_.slots[SymbolicFrame::kLr];
        return {};
      case Operation::kAllocZ: frame_.base = Base::kUnknown; return {};  // until a frame pointer leads on
      case Operation::kTrapFrame:
      case Operation::kMachineFrame:
      case Operation::kContext:
      case Operation::kEcContext: return no_row("no row: a frame that the system built");
      case Operation::kReserved: return no_row("undefined unwind code");
      default: return {};
    }
  }

  Expected<void> save(const UnwindCode& code) {
    if (code.file == RegisterFile::kP) return {};  // no row has predicates
    if (code.file == RegisterFile::kZ) return save_vector(code);
    const bool with_lr = code.operation == Operation::kSaveLrpair;
    if (with_lr && nexts_ != 0) return bad("save_next without a pair");
    const unsigned count = (code.pair ? 2 : 1) + 2 * nexts_;
    nexts_ = 0;
    const unsigned limit = code.file == RegisterFile::kX ? 31 : 32;
    if (code.reg + (with_lr ? 0 : count - 1) >= limit) return bad("unwind code saves a register that does not exist");
    const std::int64_t unit = code.file == RegisterFile::kQ ? 16 : 8;
    const std::int64_t from = frame_.offset + (code.writeback ? 0 : std::int64_t{code.value});
    for (unsigned i = 0; i < count; ++i) {
      const int slot = slot_of(code.file, with_lr && i == 1 ? code.second : code.reg + i);
      if (slot < 0) continue;
      frame_.slots[slot] = {frame_.base, static_cast<std::int32_t>(from + std::int64_t{i} * unit)};
      if (slot == static_cast<int>(SymbolicFrame::kLr)) frame_.return_signed = false;  // what was stripped is gone
    }
    if (code.writeback) frame_.offset += code.value;
    return {};
  }

  // At a multiple of the vectors' length. Rows have its low 8 bytes, d.
  Expected<void> save_vector(const UnwindCode& code) {
    const int slot = slot_of(RegisterFile::kD, code.reg);
    if (slot < 0) return {};
    const bool known = code.value == 0 && frame_.base != Base::kUnknown;
    frame_.slots[slot] = known ? Slot{frame_.base, static_cast<std::int32_t>(frame_.offset)} : Slot{Base::kUnknown, 0};
    return {};
  }

  static constexpr std::int64_t kLimit = std::int64_t{1} << 30;

  SymbolicFrame& frame_;
  std::uint64_t where_ = 0;
  unsigned nexts_ = 0;
};

}  // namespace

Expected<void> execute_symbolically(ByteView codes, std::uint32_t index, SymbolicFrame& frame) {
  frame = {};
  if (const auto done = SymbolicExecutor(frame).run(codes, index); !done) return Failure(done.error());
  return {};
}

namespace {

RegisterNumber base_register(Base base) { return base == Base::kOnFp ? aarch64::kX29 : aarch64::kSp; }

// Frames are below 1 GiB, so that every offset fits.
RegisterRule rule(const SymbolicFrame& frame, const Slot& slot, RegisterNumber reg) {
  if (slot.base == Base::kRegister) return RegisterRule::in_register(reg);
  if (slot.base == Base::kUnknown) return RegisterRule::undefined();
  if (slot.base == frame.base) return RegisterRule::at_cfa(slot.offset - static_cast<std::int32_t>(frame.offset));
  return RegisterRule::at_register(base_register(slot.base), slot.offset);
}

void fill(const SymbolicFrame& frame, FrameRow& row) {
  row.cfa = CfaRule::at(base_register(frame.base), static_cast<std::int32_t>(frame.offset));
  const Slot& lr = frame.slots[SymbolicFrame::kLr];
  row.return_address = rule(frame, frame.jumps ? frame.return_address : lr, aarch64::kX30);
  row.return_signed = frame.return_signed;
  row.signal_frame = frame.jumps;
  row.registers.clear();
  for (unsigned i = 0; i < SymbolicFrame::kRegisters; ++i) {
    const RegisterNumber reg = SymbolicFrame::number(i);
    if (i == SymbolicFrame::kLr && !frame.jumps) continue;  // behind a call it is whatever the callee left
    if (i != SymbolicFrame::kLr && frame.slots[i].base == Base::kRegister) continue;
    row.registers.append(reg, rule(frame, frame.slots[i], reg));
  }
}

}  // namespace

RowEvaluator::RowEvaluator(const Functions& functions, std::uint64_t base) : functions_(functions), base_(base) {}
RowEvaluator::~RowEvaluator() = default;
void RowEvaluator::keep_rows() { known_ = std::make_unique<KnownLowering>(); }
KnownRows& RowEvaluator::rows() const { return known_->rows; }
std::uint32_t RowEvaluator::number() const { return known_ != nullptr ? known_->rows.given() : 0; }

void RowEvaluator::flush() {
  if (number_ != 0) {
    const std::uint64_t begin = base_ + begin_;
    known_->rows.add({begin + std::uint64_t{pending_} * 4, begin + std::uint64_t{at_} * 4, cfa_, number_});
    number_ = 0;
    return;
  }
  if (!has_pending_) return;
  has_pending_ = false;
  row_.begin = base_ + begin_ + std::uint64_t{pending_} * 4;
  row_.end = base_ + begin_ + std::uint64_t{at_} * 4;
  fill(frame_, row_);
  if (known_ != nullptr) known_->rows.give_waiting();
  (*emit_)(row_);
}

void RowEvaluator::report_problem(const Error& error) {
  flush();
  if (known_ != nullptr) known_->rows.give_waiting();
  (*report_)(error);
}

// The frame by the codes from `index` on; null: they were reported. Most codes stand in many functions, and an epilogue
// runs through those of the prologue again.
const SymbolicFrame* RowEvaluator::frame_at(std::uint32_t index) {
  MemoKey key;
  key.size = static_cast<std::uint32_t>(std::min<std::uint64_t>(codes_.size() - index, sizeof key.codes + 1));
  std::memcpy(key.codes, codes_.data() + index, std::min<std::size_t>(key.size, sizeof key.codes));
  std::uint64_t hash = key.size;
  for (const std::uint64_t word : key.codes) hash = (hash ^ word) * 0x9e37'79b9'7f4a'7c15;
  Memo& memo = memos_[hash >> 32 & (kMemos - 1)];
  if (memo.key == key) return &memo.frame;
  memo.key = {};
  memo.frame = {};
  const auto behind = SymbolicExecutor(memo.frame).run(codes_, index);
  if (!behind) {
    report_problem(behind.error());
    return nullptr;
  }
  if (*behind - index <= sizeof key.codes) memo.key = key;  // else more than the key counts
  return &memo.frame;
}

// False: there is no such row, or no room to keep it.
bool RowEvaluator::known_state(std::uint32_t end, std::uint32_t index) {
  KnownCodes::Row& known = known_codes_->rows[std::min(index, known_codes_->size)];
  if (known.number == 0) {
    SymbolicFrame frame;
    if (index < codes_.size() && !SymbolicExecutor(frame).run(codes_, index)) return false;
    FrameRow row;
    fill(frame, row);
    known = {word_of(row.cfa), known_->rows.number_of(row)};
    if (known.number == 0) return false;
  }
  if (number_ != known.number || cfa_ != known.cfa) {
    flush();
    number_ = known.number;
    cfa_ = known.cfa;
    pending_ = at_;
  }
  at_ = end;
  return true;
}

// The words from `at_` to `end` are unwound by the codes from `index` on.
void RowEvaluator::state(std::uint32_t end, std::uint32_t index) {
  if (end <= at_) return;
  if (known_codes_ != nullptr && known_state(end, index)) return;
  static constexpr SymbolicFrame kNoCodes;
  const SymbolicFrame* frame = index < codes_.size() ? frame_at(index) : &kNoCodes;
  if (frame != nullptr && !(has_pending_ && *frame == frame_)) {
    flush();
    frame_ = *frame;
    pending_ = at_;
    has_pending_ = true;
  }
  at_ = end;
}

std::uint32_t RowEvaluator::behind(std::uint32_t index, std::uint32_t count) const {
  if (known_codes_ == nullptr || count != 1) return skip_codes(codes_, index, count);
  return index < codes_.size() ? known_codes_->after[index] : index;
}
std::uint32_t RowEvaluator::instructions_from(std::uint32_t index) const {
  if (known_codes_ == nullptr) return count_instructions(codes_, index);
  return index < codes_.size() ? known_codes_->instructions[index] : 0;
}

void RowEvaluator::body(std::uint32_t end) { state(end, 0); }

// [start, end): the instructions of an epilogue, as far as they are not taken yet.
void RowEvaluator::epilogue(std::uint32_t index, std::uint32_t start, std::uint32_t end) {
  std::uint32_t word = std::max(at_, start);
  for (index = behind(index, word - start); word < end; index = behind(index, 1)) state(++word, index);
}

// The first codes are those of the last instructions.
void RowEvaluator::prologue_rows(std::uint32_t instructions, std::uint32_t words) {
  constexpr std::uint32_t kMost = 128;
  if (instructions >= kMost) {
    for (std::uint32_t word = 0; word < words; ++word) state(word + 1, behind(0, instructions - word));
    return;
  }
  std::array<std::uint32_t, kMost> after;  // so many codes
  after[0] = 0;
  for (std::uint32_t count = 1; count <= instructions; ++count) after[count] = behind(after[count - 1], 1);
  for (std::uint32_t word = 0; word < words; ++word) state(word + 1, after[instructions - word]);
}

// The same decisions as position_at, made once for each place where they change.
void RowEvaluator::cover(const UnwindRecord& record, std::uint32_t words) {
  const std::uint32_t prologue = instructions_from(0);
  prologue_rows(prologue, std::min(prologue, words));
  if (record.single_epilogue) {
    const std::uint32_t index = record.epilogue_index;
    const std::uint32_t size = index > codes_.size() ? 0 : instructions_from(index) + 1;
    if (size != 0 && size <= words) {
      body(words - size);
      epilogue(index, words - size, words);
    }
  }
  std::uint32_t latest = 0;  // start of the scopes so far: an earlier pc never gets to see the rest of them
  for (std::uint32_t i = 0; i < record.scope_count(); ++i) {
    const EpilogueScope scope = record.scope(i);
    const std::uint32_t start = scope.start / 4;
    latest = std::max(latest, start);
    if (scope.index > codes_.size()) continue;
    const std::uint32_t end = std::min(words, start + instructions_from(scope.index) + 1);
    if (std::max(at_, latest) >= end) continue;
    body(std::min(latest, words));
    epilogue(scope.index, start, end);
  }
  body(words);
}

Expected<void> RowEvaluator::for_each_row(RuntimeFunction function, RowSink emit, ErrorSink report) {
  const auto one_by_one = [&](std::span<const NumberedRow> rows) {
    for (const NumberedRow& each : rows) known_->rows.give(each, emit);
  };
  return for_each_row(function, one_by_one, emit, report);
}

Expected<void> RowEvaluator::for_each_row(RuntimeFunction function, NumberedRowSink numbered, RowSink emit,
                                          ErrorSink report) {
  emit_ = &emit;
  report_ = &report;
  if (known_ != nullptr) known_->rows.give_to(numbered);
  const auto done = lower_function(function);
  if (known_ != nullptr) known_->rows.give_waiting();
  return done;
}

Expected<void> RowEvaluator::lower_function(RuntimeFunction function) {
  Expansion storage;
  RuntimeFunction described = function;
  if (function.kind() == EntryKind::kParent) {
    const auto parent = parent_of(functions_.image(), function);
    if (!parent) return Failure(parent.error());
    described = *parent;
  }
  const auto record = read_record(functions_.image(), described, storage);
  if (!record) return Failure(record.error());
  codes_ = record->codes;
  known_codes_ = known_ != nullptr ? known_->codes(codes_) : nullptr;
  begin_ = function.begin;
  at_ = 0;
  has_pending_ = false;
  if (function.kind() == EntryKind::kParent) {
    // Up to the next entry, or one instruction where it is the last.
    const image::FunctionTable& table = functions_.table();
    const auto rank = table.last_at_or_before(function.begin);
    const bool last = !rank || *rank + 1 >= table.size();
    const std::uint32_t next = last ? function.begin + 4 : table.begin_of(table.stored_index(*rank + 1));
    state((next - function.begin) / 4, position_at(*record, 0).index);
  } else {
    cover(*record, record->length / 4);
  }
  flush();
  return {};
}

Expected<void> RowEvaluator::row_at(RuntimeFunction function, std::uint32_t rva, FrameRow& to) {
  Expansion storage;
  const auto location = locate(functions_, rva, storage);
  if (!location) return Failure(location.error());
  if (location->position.place == Place::kLeaf || location->function.begin != function.begin)
    return fail(ErrorCode::kNotFound, "no row covers the address: RVA", rva);
  frame_ = SymbolicFrame();
  const auto done = execute_symbolically(location->record.codes, location->position.index, frame_);
  if (!done) return done;
  to.begin = base_ + (rva & ~3U);
  to.end = to.begin + 4;
  fill(frame_, to);
  return {};
}

}  // namespace windlass::winarm64
