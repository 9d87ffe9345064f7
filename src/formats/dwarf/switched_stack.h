// The rule of frames that run on another stack than their caller's, to which the thread's own data leads: Go's runtime
// goes to its system stack and keeps the goroutine's stack pointer in a structure that is reached from the thread's
// pointer by three loads. Written as a DWARF expression over fs.base (register 58 of the System V x86-64 psABI) or, in
// programs for Windows, gs.base (59), so
// that every reader of rows can follow it; the tables recognise it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "formats/dwarf/encode.h"
#include "windlass/bytes.h"
#include "windlass/frame_row.h"

namespace windlass::dwarf {

// Where a program for Windows keeps its thread's pointer: in a word of the TEB, which is where gs begins. For example,
// Go's is [gs.base + 0x28], or in the slot that a variable of the program has the offset of.
struct ThreadSlot {
  std::uint64_t offset = 0;    // Of the word in the TEB.
  std::uint64_t variable = 0;  // Or the address of the variable, as in the image. Both 0: no program for Windows.
  [[nodiscard]] bool used() const { return offset != 0 || variable != 0; }
  bool operator==(const ThreadSlot&) const = default;
};

// CFA = [[[[T + thread] + offsets[0]] + offsets[1]] + offsets[2]] + addend. T, the thread's pointer, is fs.base, or
// what `slot` has. If the third load gives 0, or the base register is 0, there is no other stack, and the frame is the
// outermost one.
struct SwitchedStack {
  std::int64_t thread = 0;
  std::array<std::uint64_t, 3> offsets = {};
  std::uint64_t addend = 0;
  bool saves_pc = false;  // behind the stack pointer; else the return address is [CFA - 8]
  ThreadSlot slot = {};   // gs.base is the base register where it is used, else fs.base
  bool operator==(const SwitchedStack&) const = default;
};

// Appends the expression of the CFA, which is 0 where there is no other stack.
void append_cfa(const SwitchedStack& stack, Block& to);
// Appends that of the return address, with the CFA pushed; 0, which ends a walk, where there is no other stack.
void append_return_address(const SwitchedStack& stack, Block& to);

// Are these the two? No allocation.
[[nodiscard]] std::optional<SwitchedStack> switched_stack(ByteView cfa, ByteView return_address);

// The rule of the base register where the thread's data lead to another stack than the one that the callers came from:
// for them it is 0. `to` gets the row's only expression, whose bytes last.
void leave_switched_stack(FrameRow& to, bool windows);
[[nodiscard]] bool leaves_switched_stack(const FrameRow& row);

// CFA = [[sp + owner] + top] - [sp + depth] + addend: C code that Go calls on the system stack may call Go again, which
// may move the goroutine's stack. So a frame there has kept whose stack it was called on, a structure that has that
// stack's upper end, and how far from it. The return address is [CFA - 8].
struct MovableStack {
  std::uint64_t owner = 0, top = 0, depth = 0, addend = 0;
  bool operator==(const MovableStack&) const = default;
};

void append_cfa(const MovableStack& stack, Block& to);
// No allocation.
[[nodiscard]] std::optional<MovableStack> movable_stack(ByteView cfa);

}  // namespace windlass::dwarf
