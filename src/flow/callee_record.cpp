#include "flow/callee_record.h"

#include <cstring>
#include <span>

#include "flow/stack_effect.h"

namespace windlass::flow {

using x86_64::kRbp;
using x86_64::kRsp;

namespace {
constexpr std::int64_t kRecord = 16;
}

bool X86_64::has_callers_record(const SymbolicState<kSlots>& state) {
  return state.load(Value::initial(kRbp, 8), 8) == Value::initial(kRsp).loaded();
}

void take_back_record(SymbolicState<X86_64::kSlots>& state) {
  const Value record = state[kRbp];
  // Room that the path has made itself: no return address stands there. C's records have theirs above.
  const std::int64_t highest = X86_64::has_callers_record(state) ? 8 - kRecord : -kRecord;
  if (!record.is_address() || record.addend > highest || !(record.same_base(state[kRsp]) || record.is_symbol())) return;
  Value kept;
  bool is_free = true;
  state.for_each_store([&](const Value& address, const Value& value) {
    if (address == record) kept = value;
    is_free &= address != record.plus(8);
  });
  const bool is_frame_pointer = kept.is_initial(kRbp) || kept.kind == Value::kMemory || kept.kind == Value::kMemory2;
  if (!is_free || !is_frame_pointer) return;
  state[kRbp] = kept;
  state[kRsp] = record.plus(kRecord);
}

namespace {

// What makes the record, and the register that points to it.
struct RecordForm {
  unsigned store_size;
  std::uint8_t store[4], move[3];
  unsigned from, place;  // slots
};
constexpr unsigned kMoveSize = 3, kRax = 0, kR15 = 15;
constexpr RecordForm kForms[] = {
    {4, {0x48, 0x89, 0x2c, 0x24}, {0x48, 0x8b, 0xec}, kRbp, kRsp},  // mov [rsp], rbp; mov rbp, rsp
    {3, {0x49, 0x89, 0x2f}, {0x49, 0x8b, 0xef}, kRbp, kR15},        // mov [r15], rbp; mov rbp, r15
    {3, {0x49, 0x89, 0x07}, {0x49, 0x8b, 0xef}, kRax, kR15},        // mov [r15], rax; mov rbp, r15
};

// Past one form of the call at most, over which a branch leads to the other: jz 1f; call; jmp 2f; 1: call; 2:
bool leads_to_end(std::span<const std::uint8_t> code, std::uint64_t address) {
  using Kind = StackEffect::Kind;
  Kind last = Kind::kNone;
  std::uint64_t other_form = 0;
  StraightCode line(ByteView(code), address, code.size());
  while (const auto effect = line.next()) {
    const bool is_jump = effect->kind == Kind::kJump && address + line.end() == other_form;
    const bool goes_on = effect->kind == Kind::kNone || effect->kind == Kind::kBranch || effect->kind == Kind::kCall;
    if (is_jump != (last == Kind::kCall) || !(goes_on || is_jump)) return false;
    if (effect->kind == Kind::kBranch) other_form = effect->target;
    last = effect->kind;
  }
  return !line.failed() && last != Kind::kCall;
}

}  // namespace

bool is_on_callees_record(ByteView before, std::uint64_t address) {
  const std::span<const std::uint8_t> code(before.u8(), before.size());
  for (std::size_t at = code.size(); at-- >= kMoveSize;) {
    const std::size_t move = at - (kMoveSize - 1);
    const bool sets =
        (code[move] == 0x48 || code[move] == 0x49) && code[move + 1] == 0x8b && code[move + 2] >> 3 == 0x1d;
    if (sets && leads_to_end(code.subspan(at + 1), address + at + 1)) return true;  // mov rbp, REG
  }
  return false;
}

void note_record_before(CodeReader& code, Path<X86_64>& path) {
  constexpr std::size_t kFarthest = kMostBeforeCall, kAhead = 7;
  std::uint8_t bytes[kFarthest + kAhead] = {};
  if (code.read(path.pc - kFarthest, bytes, sizeof bytes) < kFarthest) return;
  auto& state = path.state;
  for (std::size_t at = 0; at <= kFarthest; ++at) {
    for (const RecordForm& form : kForms) {
      const std::size_t move = at + form.store_size, behind = move + kMoveSize;
      if (behind > sizeof bytes || std::memcmp(bytes + at, form.store, form.store_size) != 0 ||
          std::memcmp(bytes + move, form.move, kMoveSize) != 0)
        continue;
      const Value record = state.fresh().plus(-kRecord);
      if (at == kFarthest) {  // the store is to come
        state[form.from] = Value::initial(kRbp);
        state[form.place] = record;
      } else if (move == kFarthest) {
        state[form.place] = record;
        state.store(record, 8, Value::initial(kRbp));
      } else if (behind <= kFarthest &&
                 leads_to_end(std::span(bytes).subspan(behind, kFarthest - behind), path.pc - kFarthest + behind)) {
        state.store(record, 8, Value::initial(kRbp).loaded());
        state[kRbp] = record;
      } else {
        continue;
      }
      return;
    }
  }
}

}  // namespace windlass::flow
