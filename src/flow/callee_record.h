// The frame record of a callee, made by the caller: SBCL's calls.
//
// The caller makes room on the stack, stores its own frame pointer there, sets the frame pointer to the room, and
// calls. The callee puts its return address behind that. Its return removes the record and restores the old frame
// pointer. For example:
//
//   sub rsp, 16; mov [rsp], rbp; mov rbp, rsp; ... call      or     mov [r15], rbp; mov rbp, r15; call
#pragma once

#include "flow/x86_64.h"

namespace windlass::flow {

// A call is left: does the frame pointer point to a record that this path has made for the callee? Then what the return
// does is done.
void take_back_record(SymbolicState<X86_64::kSlots>& state);

// Where the instructions before the path's pc have made such a record, the state says so.
void note_record_before(CodeReader& code, Path<X86_64>& path);

// The same of an instruction, from the one on that sets the frame pointer to a register: does the frame pointer point
// to a callee's record there? `before`: the code before the instruction, at an address.
inline constexpr std::size_t kMostBeforeCall = 40;
[[nodiscard]] bool is_on_callees_record(ByteView before, std::uint64_t address);

}  // namespace windlass::flow
