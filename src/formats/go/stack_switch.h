// The few functions of Go's runtime, written by hand, that go on on another stack: on which stack an instruction of
// theirs runs, and where the way back is. The table of functions says of their stack pointers what would be true
// without that. x86-64; read from the code, whose numbers differ from one release of Go to the next.
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
    kOwn,      // the one it was called on: the table is right
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

// Tells the places of the code at `address` in order. `by_thread`: where the code leaves its stack for one that it gets
// from memory, its own is known to the thread (kOther); else that is kUnknown. No allocation, signal-safe; linear in
// the code, times what a depth costs.
void for_each_place(ByteView code, std::uint64_t address, bool by_thread, DepthAt depth, PlaceSink place);

// How the goroutine's stack pointer is found while the thread runs on its system stack: what the code of
// runtime.systemstack reads to go back. Nothing: it does not look as it should.
[[nodiscard]] std::optional<dwarf::SwitchedStack> find_way_back(ByteView systemstack, std::uint64_t address);

// What runtime.asmcgocall's code reads on its new stack to go back. While C code runs that it has called, the thread
// may have left that goroutine's stack pointer for a later one: when C has called Go, which has called C.
[[nodiscard]] std::optional<dwarf::MovableStack> find_kept_stack(ByteView asmcgocall, std::uint64_t address);

}  // namespace windlass::runtimes::go
