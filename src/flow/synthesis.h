// The stack effect of machine code, as a row. The code is followed from an instruction to its return, with symbolic
// registers. So the row holds for every execution that passes the instruction. For code without unwind information, and
// to check unwind information.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "windlass/error.h"
#include "windlass/function_ref.h"
#include "windlass/registers.h"

namespace windlass::flow {

enum class CodeKind : std::uint8_t { kNoCode, kFile, kGenerated };

namespace detail {
inline constexpr auto kNoStart = [](std::uint64_t) { return std::uint64_t{0}; };
inline constexpr auto kAnyRow = [](const FrameRow&) { return true; };
}  // namespace detail

// The code of a process. Addresses are the process's. Keep the callables alive while in use.
struct CodeSource {
  Architecture architecture;
  // All or nothing. Must bear any address: what is taken for code may be data. Linkage and jump tables are read too.
  FunctionRef<bool(std::uint64_t address, void* to, std::size_t size)> read;
  FunctionRef<CodeKind(std::uint64_t address)> kind;
  // Asked of each row found, the likeliest first: can it be right for the stack at hand (is there a return address
  // where it says)? A caller without a stack accepts all.
  FunctionRef<bool(const FrameRow& row)> plausible;
  // Optional: where the function that contains `address` starts, as a symbol or the like says; 0: not known.
  FunctionRef<std::uint64_t(std::uint64_t address)> function_start = detail::kNoStart;
  // Optional: where the program starts (ELF's e_entry in the process); code from there to its first call or jump has
  // no caller.
  std::uint64_t entry_point = 0;
  // Optional: does a row that is plausible lead to a caller, and not to an address of 0? What a frame that is guessed
  // holds there is as likely a local variable.
  FunctionRef<bool(const FrameRow& row)> has_caller = detail::kAnyRow;
};

enum class Certainty : std::uint8_t {
  kCertain,  // to a return without a call on the way, or the ways in and out of the function agree
  kLikely,   // a return behind calls, or only the way in
  kGuess,    // no return was found: a jump to an unknown place, a frame pointer the code sets up
};

// Code that cannot return.
enum class Start : std::uint8_t {
  kNone,        // it can, or not known
  kEntryPoint,  // the program starts here
  kHalts,       // straight to a halt
  kExits,       // on no way, and some halt straight behind a call
};

struct Synthesis {
  FrameRow row;  // holds at the pc only: begin = pc, end = pc + 1
  Certainty certainty = Certainty::kGuess;
  Start start = Start::kNone;  // if it is any, the row says nothing
  // By a jump to another function, which is taken to keep the calling convention. Not all code does: in Haskell's every
  // jump is one, and the stack is elsewhere.
  bool by_jump = false;
  bool addresses_frame = false;  // by the frame pointer, before the code changes that
  // Behind a call and padding, which more likely than not end a function: the way out may be the next one's.
  bool behind_padding = false;
  // The function has made a frame record that the frame pointer points to, and the row's CFA counts from sp. For a
  // start that is not known: where both lead to one place, it is the function's.
  bool keeps_frame_record = false;
};

// How much work may still be done, in instructions followed: 0.1 to 0.4 us each. For who cannot wait.
class Budget {
 public:
  static constexpr std::uint32_t kUnlimited = ~std::uint32_t{0};
  constexpr explicit Budget(std::uint32_t instructions = kUnlimited) : left_(instructions) {}
  // False, and nothing is left, where there was less.
  bool spend(std::uint32_t instructions) {
    if (left_ == kUnlimited) return true;
    const bool enough = left_ >= instructions;
    left_ = enough ? left_ - instructions : 0;
    exhausted_ |= !enough;
    return enough;
  }
  [[nodiscard]] std::uint32_t left() const { return left_; }
  // Something was not done for want of it.
  [[nodiscard]] bool exhausted() const { return exhausted_; }

 private:
  std::uint32_t left_;
  bool exhausted_ = false;
};

// Space for one synthesis at a time, of fixed size (about 110 KiB), so that it allocates nothing and can run in a
// signal handler.
struct SynthesisScratch;
[[nodiscard]] SynthesisScratch* make_scratch();
void free_scratch(SynthesisScratch* scratch);
// What all that follows is paid from, until another is set; unlimited at first. Where it is exhausted, synthesize() and
// return_row() fail with kLimit, contradicts() finds nothing, and call_site() says kElsewhere.
[[nodiscard]] Budget& budget_of(SynthesisScratch& scratch);

// The row at `pc`. For a return address `pc` is where execution will go on. Errors: kNotFound (no way out was found),
// kUnreadable (no code at pc), kUnsupported (architecture). Bounded by a fixed number of instructions. The bytes of
// expressions in the row live for ever, so it may be kept for as long as the code stays the same.
[[nodiscard]] Expected<Synthesis> synthesize(const CodeSource& source, CodeAddress pc, SynthesisScratch& scratch);

// The row at `pc` by the way in alone, from the nearest place before where a function may start. A guess, for code
// whose ways out lead nowhere. kNotFound if no way leads to `pc` by a plausible row, and for generated code.
[[nodiscard]] Expected<Synthesis> way_in(const CodeSource& source, CodeAddress pc, SynthesisScratch& scratch);

// Only if from `pc` on the code goes straight to a return: no call, no branch. What compilers' unwind information most
// often gets wrong. kNotFound if it does not.
[[nodiscard]] Expected<FrameRow> epilogue_row(const CodeSource& source, std::uint64_t pc, SynthesisScratch& scratch);

// The row of the nearest way from `pc` to a return, whose registers are all that are known there, those that calls need
// not preserve among them: what hand-written code with calling conventions of its own leaves to its caller. To be asked
// only where the caller needs one of these. kNotFound if there is no such way.
[[nodiscard]] Expected<FrameRow> return_row(const CodeSource& source, CodeAddress pc, SynthesisScratch& scratch);

// The row to use instead of `row`, which unwind information has for `pc`, if the code certainly contradicts it. Nearly
// always there is no contradiction, and nothing is returned. Call once for each new pc. The code wins in three cases:
//   - pc is on a straight way to a return (epilogue_row), and the row found differs. For example GCC's epilogues of
//     realigned frames, LLVM's `add rsp,8` without a note, and assembly that pops without a note.
//   - The row is that of a function's entry: CFA = sp + 8, nothing saved; on AArch64 CFA = sp, x30. But the code,
//   followed
//     without a call to a return, says that something is on the stack. So something was pushed without a note.
//   - The same behind calls, if the row found is plausible and `row` is not.
[[nodiscard]] std::optional<FrameRow> contradicts(const FrameRow& row, const CodeSource& source, CodeAddress pc,
                                                  SynthesisScratch& scratch);

// Does a call instruction end at `address`, or a signal trampoline begin there (whose "return address" the kernel has
// made up)? True where the code cannot be read, and in generated code: interpreters push the address to go on at
// themselves (HotSpot's return entries).
[[nodiscard]] bool may_be_return_address(const CodeSource& source, std::uint64_t address);

// Where the call before a return address leads.
enum class CallSite : std::uint8_t {
  kNone,       // there is none, or it cannot be read
  kAnywhere,   // to where a register or memory says, at once or by a jump
  kReaches,    // to the start of the function at hand, or to a jump there (linkage stubs)
  kLeads,      // to code from where a way leads to the pc at hand
  kMayLead,    // to code too long to be followed as far as that, or which goes on by a table of many ways; or a way
               // leads to the pc at hand, which no row can tell
  kElsewhere,  // neither
};
// As seen from the frame at `callee`. With kLeads the row that the way in has at `callee` is in `way_in`.
[[nodiscard]] CallSite call_site(const CodeSource& source, CodeAddress caller, CodeAddress callee, FrameRow& way_in,
                                 SynthesisScratch& scratch);

}  // namespace windlass::flow
