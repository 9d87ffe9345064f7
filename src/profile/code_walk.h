// Finds a frame's caller from nothing but machine code: runs the code forward from the pc on the frame's own registers
// and stack until it returns. Generated code, assembly without unwind information, prologues and epilogues alike: what
// the code would do to sp and the frame pointer until its `ret` says where the return address is now.
#pragma once

#include <cstdint>

#include "base/function_ref.h"
#include "windlass_layout.h"

namespace windlass::profile {

// Registers of a frame by x86-64 DWARF number; 16 is the pc.
struct FrameRegisters {
  static constexpr unsigned kRbp = 6, kRsp = 7, kPc = 16;
  std::uint64_t value[17] = {};
  std::uint32_t valid = 0;  // bit i: value[i] is known
  bool exact = true;        // the pc is an instruction's address; else a return address

  [[nodiscard]] bool has(unsigned reg) const { return reg < 17 && (valid >> reg & 1) != 0; }
  void set(unsigned reg, std::uint64_t to) {
    value[reg] = to;
    valid |= 1u << reg;
  }
  // The address to look things up at: a return address may be the first byte after its function.
  [[nodiscard]] std::uint64_t lookup_pc() const { return value[kPc] - (exact ? 0 : 1); }
};

// Copies `size` bytes of the target at `address`; false if not readable.
using ReadTarget = FunctionRef<bool(std::uint64_t address, void* to, std::size_t size)>;
// What executable memory is at `address`.
enum class CodeKind : std::uint8_t { kNoCode, kFile, kGenerated };
using FindCode = FunctionRef<CodeKind(std::uint64_t address)>;

// How many instructions are run at most, over all paths, and how many paths are open at a time.
inline constexpr unsigned kMaxWalkInstructions = 8192;
inline constexpr unsigned kMaxWalkPaths = 1024;

// Puts the caller's registers into `frame` and returns -1, or returns the wl_end and leaves `frame` unchanged:
// WL_END_COMPLETE where the code cannot return (outermost frame), WL_END_BAD_FRAME_POINTER where nothing was found.
// A conditional branch is followed both ways, falling through first (compilers put what is rare out of line); what lies
// behind calls is looked at last, as a call may never return and the bytes behind it be anything. A return only counts
// if it goes to a return address. In this order:
//   1. a `ret`; one behind a call only if the code does not use rbp as its frame's base before it changes it;
//   2. a jump to where the code does not tell (an interpreter's dispatch, a tail call) with a return address on top of
//   the
//      stack;
//   3. the frame that the code sets up, where it pushes rbp and makes sp the frame pointer;
//   4. the frame that rbp points to, if the code uses it as such (optimised code that only ever leaves by a
//      deoptimisation), or, in generated code, leaves rbp alone (an interpreter's bytecodes).
// `certain`, if given: whether it was a `ret` that no call stands before.
[[nodiscard]] int walk_code(FrameRegisters& frame, ReadTarget read, FindCode find_code, bool* certain = nullptr);

// Does a call instruction end at `address`, in executable memory? True where the code cannot be read, and in generated
// code: interpreters push the address to go on at themselves (HotSpot's return entries).
[[nodiscard]] bool is_return_address(std::uint64_t address, ReadTarget read, FindCode find_code);

}  // namespace windlass::profile
