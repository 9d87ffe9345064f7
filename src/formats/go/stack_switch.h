// The few functions of Go's runtime that switch to another stack. They are written by hand. Found out from their code:
// on which stack each instruction runs, and where the way back is. The table of functions ignores the switch, so its
// stack pointers are wrong there. x86-64. The code differs from one release of Go to the next, and so do the offsets in
// it.
#pragma once

#include <cstdint>
#include <optional>

#include "formats/dwarf/switched_stack.h"
#include "windlass/bytes.h"
#include "windlass/frame_row.h"
#include "windlass/function_ref.h"

namespace windlass::runtimes::go {

// A stretch of such a function.
struct StackPlace {
  enum Kind : std::uint8_t {
    kOwn,      // the one it was called on: the table is right, but for `offset` bytes more on the stack
    kCopied,   // CFA = reg + offset
    kStored,   // CFA = [rsp + slot] + offset
    kOther,    // another one; the goroutine's is where the thread says
    kKept,     // another one, which has kept where in its goroutine's stack the way back is (find_kept_stack)
    kUnknown,  // another one, or a stack pointer aligned down
  };
  Kind kind = kOwn;
  RegisterNumber reg = 0;
  std::int32_t slot = 0, offset = 0;
  std::int32_t depth = 0;  // kOther, kKept: bytes on the stack it was called on when that was left
  bool operator==(const StackPlace&) const = default;
};

using DepthAt = FunctionRef<std::int32_t(std::uint64_t address)>;  // what the table says is on the stack
using PlaceSink = FunctionRef<void(std::uint64_t begin, std::uint64_t end, const StackPlace&)>;

// Calls back for the places of the code at `address`, in order. `by_thread`: if the code switches to a stack pointer
// from memory, its own stack is known to the thread (kOther); otherwise it is kUnknown. No allocation, signal-safe.
// Linear in the code, times the cost of a depth.
void for_each_place(ByteView code, std::uint64_t address, bool by_thread, DepthAt depth, PlaceSink place);

// How the goroutine's stack pointer is found while the thread runs on its system stack: what the code of
// runtime.systemstack reads to go back. Nothing: it does not look as it should.
[[nodiscard]] std::optional<dwarf::SwitchedStack> find_way_back(ByteView systemstack, std::uint64_t address);

// The memory that runtime.asmcgocall reads on its new stack to go back. While the called C code runs, the thread may
// have left that goroutine's stack pointer for a later one. For example, the C code has called Go, which has called C
// again.
[[nodiscard]] std::optional<dwarf::MovableStack> find_kept_stack(ByteView asmcgocall, std::uint64_t address);

}  // namespace windlass::runtimes::go
