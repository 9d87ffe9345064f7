// What machine code does to the stack, as a row: from an instruction on, the code is followed to where it returns, with
// symbolic registers, so that the row holds for every execution that comes by. For code without unwind information, and
// to hold unwind information against.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/function_ref.h"
#include "windlass/error.h"
#include "windlass/registers.h"

namespace windlass::code {

enum class CodeKind : std::uint8_t { kNoCode, kFile, kGenerated };

// The code of a process. Addresses are the process's. Keep the callables alive while in use.
struct CodeSource {
  Architecture architecture;
  FunctionRef<bool(std::uint64_t address, void* to, std::size_t size)> read;  // all or nothing
  FunctionRef<CodeKind(std::uint64_t address)> kind;
  // Asked of each row found, the likeliest first: can it be right for the stack at hand (is there a return address
  // where it says)? A caller without a stack accepts all.
  FunctionRef<bool(const FrameRow& row)> plausible;
};

enum class Certainty : std::uint8_t {
  kCertain,  // straight to a return: every instruction on the way is understood and no call stands before it
  kLikely,   // a return behind calls or branches
  kGuess,    // no return was found: a jump to an unknown place, a frame pointer the code sets up
};

struct Synthesis {
  FrameRow row;  // holds at the pc only: begin = pc, end = pc + 1
  Certainty certainty = Certainty::kGuess;
  bool outermost = false;  // the code cannot return (_start): the row says nothing
};

// Space for one synthesis, of fixed size, so that it allocates nothing and can run in a signal handler.
struct SynthesisScratch;
[[nodiscard]] SynthesisScratch* make_scratch();
void free_scratch(SynthesisScratch* scratch);

// The row at `pc`. For a return address `pc` is where execution will go on. Errors: kNotFound (no way out was found),
// kUnreadable (no code at pc), kUnsupported (architecture). Bounded by a fixed number of instructions.
[[nodiscard]] Expected<Synthesis> synthesize(const CodeSource& source, CodeAddress pc, SynthesisScratch& scratch);

// Only if from `pc` on there are but the instructions of an epilogue (pops, adding to sp, leave) up to a return or a
// tail jump out: what compilers' unwind information most often gets wrong. kNotFound if it is no epilogue.
[[nodiscard]] Expected<FrameRow> epilogue_row(const CodeSource& source, std::uint64_t pc, SynthesisScratch& scratch);

}  // namespace windlass::code
