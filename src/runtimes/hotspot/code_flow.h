// Where HotSpot's own code keeps its caller, instruction by instruction: compiled methods, the interpreter, adapters,
// helpers.
//
// The code is read once from begin to end. It need not be followed along all paths, since its compilers use few forms.
// Only the prologue, the epilogues and some pushes in slow paths move the stack pointer. Code behind a jump has the
// frame of a branch that leads there or, without a branch, of the method's body.
//
// openjdk/jdk, src/hotspot/cpu/x86: macroAssembler_x86.cpp (verified_entry), c1_MacroAssembler_x86.cpp (build_frame),
// x86.ad and x86_64.ad (MachEpilogNode), templateInterpreterGenerator_x86.cpp, interp_masm_x86.cpp (remove_activation),
// frame_x86.hpp, sharedRuntime_x86_64.cpp (adapters).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "windlass/frame_row.h"

namespace windlass::runtimes::hotspot {

// A frame at one instruction, in terms of its registers.
struct FrameState {
  enum class Cfa : std::uint8_t {
    kUnknown,
    kAtSp,          // rsp + cfa
    kAtFp,          // rbp + cfa
    kSenderSp,      // r13: set by every caller of the interpreter
    kSenderSlot,    // [rbp - 8], where the interpreter keeps it
    kSenderInRbx,   // where it has been loaded on the way out
    kAtCopy,        // the register that has a copy of rsp + cfa
    kAboveRoom,     // rsp + rbx + cfa: rsp was moved down by rbx bytes
    kAboveAligned,  // the same, and then down to a multiple of 16
  };
  // Of the return address, and of the caller's rbp.
  enum class Place : std::uint8_t { kUnknown, kRegister, kAtSp, kAtFp, kAtCfa };

  Cfa cfa_kind = Cfa::kUnknown;
  Place return_kind = Place::kUnknown, fp_kind = Place::kUnknown;
  std::uint8_t return_register = 0;  // DWARF number
  std::int32_t cfa = 0, return_at = 0, fp_at = 0;
  bool sender_in_rbx = false, fp_is_frame = false;  // rbp is what return_at and fp_at may count from
  bool is_nested = false;  // rbp is of a frame within: what return_at and fp_at count from is at [rbp]
  // A register that rsp has been copied to, and how far below the CFA that was.
  bool has_sp_copy = false, has_return_copy = false;
  std::uint8_t sp_copy = 0, return_copy = 0;  // DWARF numbers; of one that has the return address, too
  std::int32_t sp_copy_cfa = 0;

  // Where a call has just come in.
  [[nodiscard]] static FrameState at_entry();
  // Where an exception has been thrown in a method: where, in rdx, and its frame as it is.
  [[nodiscard]] static FrameState throwing();
  // In the body of a method whose frame has so many bytes, the saved rbp and not the return address among them.
  [[nodiscard]] static FrameState in_body(std::uint32_t frame_bytes);
  // In the interpreter's frame.
  [[nodiscard]] static FrameState interpreted();
  // Where the interpreter is entered by a method's call: the return address on top, the caller's sp in r13.
  [[nodiscard]] static FrameState entering_interpreter();
  // rsp is at the ContinuationEntry of so many bytes, above which a virtual thread was entered.
  [[nodiscard]] static FrameState in_continuation(std::uint32_t entry_bytes);

  // False: it is not known.
  [[nodiscard]] bool row(FrameRow& to) const;
  [[nodiscard]] bool operator==(const FrameState&) const = default;
};

struct FlowInput {
  std::span<const std::byte> code;
  std::uint64_t address = 0;
  // Offsets where it is entered, with the frame there; ascending.
  std::map<std::uint32_t, FrameState> entries;
  // Behind jumps, where no branch leads.
  FrameState body;
  // The CFA is a multiple of 16, as where compiled code calls.
  bool callers_are_aligned = false;
  // rbp is not what the code left in it when a call returns: the frame is where rsp says.
  bool loses_fp = false;
  // It may push a copy of its return address further down, for the method that it jumps to.
  bool is_adapter = false;
  // Of the stubs that bring frames back from the heap: JavaThread::_cont_entry and in_continuation(). 0: of other code.
  std::uint32_t thread_continuation = 0;
  FrameState continuation = {};
};

struct FrameStretch {
  std::uint32_t begin = 0;  // offset; holds up to the next one's
  FrameState state;
};

// Ascending, from 0 on; neighbours differ. Linear in the code.
[[nodiscard]] std::vector<FrameStretch> flow(const FlowInput& input);

}  // namespace windlass::runtimes::hotspot
