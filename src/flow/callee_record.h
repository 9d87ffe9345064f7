// The frame record of a function's callee, made by the caller. SBCL's calls: room on the stack, the own frame pointer
// into it, the frame pointer to it, the call; the callee puts its return address behind that, and its return takes the
// record away and the old frame pointer back.
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

}  // namespace windlass::flow
