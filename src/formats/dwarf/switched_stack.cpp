#include "formats/dwarf/switched_stack.h"

#include <algorithm>
#include <span>

#include "base/registers.h"
#include "formats/dwarf/expression_ops.h"

namespace windlass::dwarf {
namespace {

// dup; bra over the skip; skip to the end: a 0 is left as it is. `rest` bytes follow.
constexpr std::size_t kGuard = 7;
std::array<std::uint8_t, kGuard> guard(std::uint8_t rest) { return {DW_OP_dup, DW_OP_bra, 3, 0, DW_OP_skip, rest, 0}; }
constexpr std::array<std::uint8_t, 3> kLoadReturnAddress = {DW_OP_lit0 + 8, DW_OP_minus, DW_OP_deref};

void append(Block& to, std::span<const std::uint8_t> bytes) { to.insert(to.end(), bytes.begin(), bytes.end()); }

void append_guarded(Block& to, const Block& rest) {
  append(to, guard(static_cast<std::uint8_t>(rest.size())));
  append(to, rest);
}

void append_sum(Block& to, std::uint64_t addend) {
  to.push_back(DW_OP_plus_uconst);
  put_uleb(to, addend);
}

bool read_op(ByteCursor& cursor, std::uint8_t operation) {
  const auto read = cursor.read<std::uint8_t>();
  return read && *read == operation;
}

bool read_sum(ByteCursor& cursor, std::uint64_t& addend) {
  if (!read_op(cursor, DW_OP_plus_uconst)) return false;
  const auto value = cursor.uleb();
  addend = value.value_or(0);
  return value.has_value();
}

// [rsp + place]
bool read_place(ByteCursor& cursor, std::uint64_t& slot) {
  if (!read_op(cursor, DW_OP_breg0 + x86_64::kRsp)) return false;
  const auto offset = cursor.sleb();
  slot = static_cast<std::uint64_t>(offset.value_or(-1));
  return offset && *offset >= 0 && read_op(cursor, DW_OP_deref);
}

bool read_guard(ByteCursor& cursor) {
  const auto bytes = cursor.bytes(kGuard);
  if (!bytes) return false;
  const auto expected = guard(static_cast<std::uint8_t>(cursor.remaining()));
  return cursor.remaining() <= 0x7f && std::equal(expected.begin(), expected.end(), bytes->u8());
}

// [gs.base + offset], or [gs.base + [variable]], with gs.base pushed.
bool read_slot(ByteCursor& cursor, ThreadSlot& slot) {
  const std::uint8_t operation = cursor.read<std::uint8_t>().value_or(0);
  if (operation == DW_OP_plus_uconst) {
    slot.offset = cursor.uleb().value_or(0);
  } else if (operation == DW_OP_addr) {
    slot.variable = cursor.read<std::uint64_t>().value_or(0);
    if (!read_op(cursor, DW_OP_deref) || !read_op(cursor, DW_OP_plus)) return false;
  }
  return slot.used() && read_op(cursor, DW_OP_deref);
}

std::optional<SwitchedStack> read_cfa(ByteView cfa) {
  SwitchedStack stack;
  ByteCursor cursor(cfa);
  if (!read_op(cursor, DW_OP_bregx)) return std::nullopt;
  const std::uint64_t base = cursor.uleb().value_or(0);
  if ((base != x86_64::kFsBase && base != x86_64::kGsBase) || cursor.sleb().value_or(-1) != 0 || !read_guard(cursor) ||
      (base == x86_64::kGsBase && !read_slot(cursor, stack.slot)) || !read_op(cursor, DW_OP_consts))
    return std::nullopt;
  const auto thread = cursor.sleb();
  if (!thread || !read_op(cursor, DW_OP_plus) || !read_op(cursor, DW_OP_deref)) return std::nullopt;
  stack.thread = *thread;
  if (!read_sum(cursor, stack.offsets[0]) || !read_op(cursor, DW_OP_deref) || !read_sum(cursor, stack.offsets[1]) ||
      !read_op(cursor, DW_OP_deref) || !read_guard(cursor) || !read_sum(cursor, stack.offsets[2]) ||
      !read_op(cursor, DW_OP_deref) || !read_sum(cursor, stack.addend) || !cursor.at_end())
    return std::nullopt;
  return stack;
}

void append_slot(const ThreadSlot& slot, Block& to) {
  if (slot.variable != 0) {
    to.push_back(DW_OP_addr);
    for (unsigned shift = 0; shift < 64; shift += 8) to.push_back(static_cast<std::uint8_t>(slot.variable >> shift));
    to.insert(to.end(), {DW_OP_deref, DW_OP_plus});
  } else {
    append_sum(to, slot.offset);
  }
  to.push_back(DW_OP_deref);
}

// What is loaded like the stack pointer, from the word behind it.
SwitchedStack beside(SwitchedStack stack) {
  stack.offsets[2] += 8;
  stack.addend = 0;
  stack.saves_pc = false;
  return stack;
}

}  // namespace

namespace {
constexpr std::array<std::uint8_t, 1> kNoThread = {DW_OP_lit0};

constexpr std::uint8_t base_register(bool windows) { return windows ? x86_64::kGsBase : x86_64::kFsBase; }
}  // namespace

void append_cfa(const SwitchedStack& stack, Block& to) {
  Block stored;
  append_sum(stored, stack.offsets[2]);
  stored.push_back(DW_OP_deref);
  append_sum(stored, stack.addend);
  Block loads;
  if (stack.slot.used()) append_slot(stack.slot, loads);
  loads.push_back(DW_OP_consts);
  put_sleb(loads, stack.thread);
  loads.insert(loads.end(), {DW_OP_plus, DW_OP_deref});
  for (const std::uint64_t offset : {stack.offsets[0], stack.offsets[1]}) {
    append_sum(loads, offset);
    loads.push_back(DW_OP_deref);
  }
  append_guarded(loads, stored);
  to.insert(to.end(), {DW_OP_bregx, base_register(stack.slot.used()), 0});
  append_guarded(to, loads);
}

void leave_switched_stack(FrameRow& to, bool windows) {
  to.expressions = ByteView(reinterpret_cast<const std::byte*>(kNoThread.data()), kNoThread.size());
  to.registers.append(base_register(windows), RegisterRule::expression_value({0, kNoThread.size()}));
}

bool leaves_switched_stack(const FrameRow& row) {
  const RegisterRule* rule = row.registers.find(x86_64::kFsBase);
  if (rule == nullptr) rule = row.registers.find(x86_64::kGsBase);
  if (rule == nullptr || !rule->is(RegisterRule::kExpressionValue)) return false;
  const ByteView bytes = row.expression(*rule);
  return bytes.size() == kNoThread.size() && bytes.u8()[0] == kNoThread[0];
}

void append_return_address(const SwitchedStack& stack, Block& to) {
  if (stack.saves_pc) return append_cfa(beside(stack), to);
  append(to, guard(kLoadReturnAddress.size()));
  append(to, kLoadReturnAddress);
}

std::optional<SwitchedStack> switched_stack(ByteView cfa, ByteView return_address) {
  auto stack = read_cfa(cfa);
  if (!stack) return std::nullopt;
  if (read_cfa(return_address) == beside(*stack)) {
    stack->saves_pc = true;
    return stack;
  }
  ByteCursor back(return_address);
  if (!read_guard(back) || back.remaining() != kLoadReturnAddress.size()) return std::nullopt;
  const auto load = *back.bytes(kLoadReturnAddress.size());
  if (!std::equal(kLoadReturnAddress.begin(), kLoadReturnAddress.end(), load.u8())) return std::nullopt;
  return stack;
}

void append_cfa(const MovableStack& stack, Block& to) {
  to.push_back(DW_OP_breg0 + x86_64::kRsp);
  put_sleb(to, static_cast<std::int64_t>(stack.owner));
  to.push_back(DW_OP_deref);
  append_sum(to, stack.top);
  to.insert(to.end(), {DW_OP_deref, DW_OP_breg0 + x86_64::kRsp});
  put_sleb(to, static_cast<std::int64_t>(stack.depth));
  to.insert(to.end(), {DW_OP_deref, DW_OP_minus});
  append_sum(to, stack.addend);
}

std::optional<MovableStack> movable_stack(ByteView cfa) {
  MovableStack stack;
  ByteCursor cursor(cfa);
  if (!read_place(cursor, stack.owner) || !read_sum(cursor, stack.top) || !read_op(cursor, DW_OP_deref) ||
      !read_place(cursor, stack.depth) || !read_op(cursor, DW_OP_minus) || !read_sum(cursor, stack.addend) ||
      !cursor.at_end())
    return std::nullopt;
  return stack;
}

}  // namespace windlass::dwarf
