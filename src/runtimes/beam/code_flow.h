// Where BeamAsm's code keeps its caller, instruction by instruction.
//
// A function runs on the stack of its Erlang process. rsp is the stack pointer, and the return address lies above the
// function's variables. C functions are called on the stack of the scheduler. Meanwhile the Erlang stack pointer is in
// rbp, or in the process (r13), and rsp is a fixed place below rbx.
//
// erlang/otp, erts/emulator/beam/jit/x86/beam_asm.hpp (emit_enter_runtime, emit_leave_runtime).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "windlass/function_ref.h"

namespace windlass::runtimes::beam {

struct FrameState {
  enum class Stack : std::uint8_t {
    kUnknown,
    kErlang,     // rsp is the Erlang stack pointer
    kTagged,     // likewise, and the stack is one that C may walk: of terms and tagged return addresses alone
    kInRbp,      // rbp is; rsp is the scheduler's
    kInProcess,  // [r13 + Layout::kProcessStop] is, and the stack is one that C may walk
    kScheduler,  // no process runs
  };
  // Where the Erlang stack pointer has been put so far, on the Erlang stack.
  enum class Kept : std::uint8_t { kNowhere, kInRbp, kInProcess };

  Stack stack = Stack::kUnknown;
  Kept kept = Kept::kNowhere;
  std::int32_t depth = 0;  // bytes from the Erlang stack pointer to the return address

  [[nodiscard]] static FrameState at_entry() { return {Stack::kErlang, Kept::kNowhere, 0}; }
  bool operator==(const FrameState&) const = default;
};

struct FrameStretch {
  std::uint32_t begin = 0;  // offset; holds up to the next one's
  FrameState state;
};

// Follows one function's code from begin to end. Both entries have the frame that a call makes: the code in front of
// the function's name, which runs if no clause fits, and the code behind the name. Stretches ascend from 0 on. A
// stretch is unknown if no path leads there. `returns` gets the offsets behind the calls, ascending. Linear in the
// code.
[[nodiscard]] std::vector<FrameStretch> flow(std::span<const std::byte> code, std::uint64_t address,
                                             std::vector<std::uint32_t>& returns);

// Where a jump leads, as seen from the code that is followed.
enum class Leads : std::uint8_t {
  kOn,          // to more of it
  kToFunction,  // to a function's beginning, as a call does, or to where a register says
  kUnknown,
};

// Follows code whose extent is not known. It ends at the return, at a jump to a function, or at an address for which
// `known` has a frame. kUnknown: none of these was reached. A bounded number of instructions.
[[nodiscard]] FrameState follow(std::uint64_t address,
                                FunctionRef<bool(std::uint64_t address, void* to, std::size_t size)> read,
                                FunctionRef<Leads(std::uint64_t address)> leads,
                                FunctionRef<FrameState(std::uint64_t address)> known);

}  // namespace windlass::runtimes::beam
