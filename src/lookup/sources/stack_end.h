// What proves that a frame is a thread's outermost one. Tables carry is_called() in their rules (wl_proof of
// bpf/windlass_table_layout.h). The kernel side knows no code: what it takes for an end is asked about here.
#pragma once

#include <cstdint>

#include "lookup/sources/unwind_source.h"
#include "windlass/registers.h"

namespace windlass::sources {

enum class EndProof : std::uint8_t {
  kProven,   // or somebody else's to prove
  kNone,     // it may be the outermost frame
  kRefuted,  // the code returns to a caller
};

// The row at `pc` says that there is no caller, or leads to address 0: does that prove it?
// - A row that says so is refuted where the code goes on to a return of its function (returns()). Rows of Go and of
//   managed runtimes are believed: they are marks of the compiler.
// - Address 0: only in a function whose rows begin with what a call leaves on the stack. Unwind information that begins
//   with a frame already there is of code that is jumped into, and what that was true for need not be so each time:
//   LuaJIT's interpreter has one row for all of it, also where compiled traces leave by another frame. Refuted
//   where the code goes straight to a return with the return address elsewhere.
// - Go's compiler marks its outermost frames. Address 0 proves no end in other code of Go's, but in rows that switch
//   stacks, whose CFA is an expression.
// - Windows marks no frame; a row that leads to 0 is believed. Code without a row is taken for a leaf, which is no
// proof. Other files' code without a row has an end that somebody else has to prove.
[[nodiscard]] EndProof end_proof(const UnwindSource& source, CodeAddress pc);

// Does a function whose first row has this CFA begin with what a call leaves on the stack? Else the code is jumped
// into, and address 0 proves no end there.
[[nodiscard]] bool is_called(const CfaRule& first, Architecture architecture);

// Is there a return in the code of [address, end), which goes on to the end of its function? Code that cannot be read,
// or of another machine, has none.
using CodeReader = FunctionRef<bool(std::uint64_t address, void* to, std::size_t size)>;
[[nodiscard]] bool returns(CodeReader read, std::uint64_t address, std::uint64_t end, Architecture architecture);

}  // namespace windlass::sources
