// The stack effect of machine code, as a row. The code is followed from an instruction to its return, with symbolic
// registers. So the row holds for every execution that passes the instruction. For code without unwind information, and
// to check unwind information.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "windlass/error.h"
#include "windlass/function_ref.h"
#include "windlass/registers.h"

namespace windlass::flow {

enum class CodeKind : std::uint8_t { kNoCode, kFile, kGenerated };

struct CodeSource;

namespace detail {
inline constexpr auto kNoStart = [](std::uint64_t) { return std::uint64_t{0}; };
inline constexpr auto kAnyRow = [](const FrameRow&) { return true; };
inline constexpr auto kNotDescribed = [](std::uint64_t, FrameRow&) { return false; };
inline constexpr auto kNoWholeFunction = [](const CodeSource&, CodeAddress, FrameRow&) { return false; };
inline constexpr auto kNoValue = [](RegisterNumber, std::uint64_t&) { return false; };
}  // namespace detail

// The code of a process. Addresses are the process's. Keep the callables alive while in use.
struct CodeSource {
  Architecture architecture;
  // Reads code: all or nothing. Any address must be allowed, since data may be taken for code. Linkage and jump tables
  // are read too.
  FunctionRef<bool(std::uint64_t address, void* to, std::size_t size)> read;
  FunctionRef<CodeKind(std::uint64_t address)> kind;
  // Called for each row found, the likeliest first. True if the row can be right for this stack, for example if a
  // return address is where the row says. A caller without a stack accepts all rows.
  FunctionRef<bool(const FrameRow& row)> plausible;
  // Optional: the start of the function that contains `address`, for example by a symbol; 0: not known.
  FunctionRef<std::uint64_t(std::uint64_t address)> function_start = detail::kNoStart;
  // Optional: the start of the program (ELF's e_entry in the process). Code from there to its first call or jump has no
  // caller.
  std::uint64_t entry_point = 0;
  // Optional: true if a plausible row leads to a caller, and not to an address of 0. The word that a guessed frame has
  // there is as likely a local variable.
  FunctionRef<bool(const FrameRow& row)> has_caller = detail::kAnyRow;
  // Optional: the row that unwind information has for `address`, if a function with a frame is entered in its middle
  // there. Generated code that jumps there runs in that function's frame, or has it above what it has pushed.
  FunctionRef<bool(std::uint64_t address, FrameRow& row)> inside_function = detail::kNotDescribed;
  // Optional: the row at `pc` by its whole function (whole_function.h). `self`: this source, or one that stands for it.
  // Asked where the function's start is not known: first in a file's code, in generated code if the way out keeps too
  // few registers.
  FunctionRef<bool(const CodeSource& self, CodeAddress pc, FrameRow& row)> by_whole_function = detail::kNoWholeFunction;
  // Optional: what a register holds at the pc. With it, generated code is followed where a jump leads now, by registers
  // and memory as they are.
  FunctionRef<bool(RegisterNumber reg, std::uint64_t& value)> register_value = detail::kNoValue;
};

enum class Certainty : std::uint8_t {
  kCertain,  // Followed to a return without a call, or the ways in and out of the function agree.
  kLikely,   // A return behind calls, or only the way in.
  kGuess,    // No return was found: a jump to an unknown place, or a frame pointer that the code sets up.
};

// Why code cannot return.
enum class Start : std::uint8_t {
  kNone,        // The code can return, or this is not known.
  kEntryPoint,  // The program starts here.
  kHalts,       // The code goes straight to a halt.
  kExits,       // No path returns, and some path halts straight behind a call.
};

struct Synthesis {
  FrameRow row;  // Holds at the pc only: begin = pc, end = pc + 1.
  Certainty certainty = Certainty::kGuess;
  Start start = Start::kNone;  // If not kNone, the row says nothing.
  // The way out is a jump to another function, which is assumed to keep the calling convention. Not all code does. For
  // example, every jump of Haskell's code is of this kind, and its stack is elsewhere.
  bool by_jump = false;
  bool addresses_frame = false;  // The code addresses the frame by the frame pointer, before it changes the frame
                                 // pointer.
  // Behind a call and padding, which probably end a function: the way out may be the next function's.
  bool behind_padding = false;
  // The function has made a frame record that the frame pointer points to, and the row's CFA counts from sp. If the
  // function's start is not known, and both lead to the same place, the record is the function's.
  bool keeps_frame_record = false;
};

// How much work may still be done, in instructions followed: 0.1 to 0.4 us each. For callers that cannot wait.
class Budget {
 public:
  static constexpr std::uint32_t kUnlimited = ~std::uint32_t{0};
  constexpr explicit Budget(std::uint32_t instructions = kUnlimited) : left_(instructions) {}
  // Takes instructions from the budget. If there are fewer, returns false, and nothing is left.
  bool spend(std::uint32_t instructions) {
    if (left_ == kUnlimited) return true;
    const bool enough = left_ >= instructions;
    left_ = enough ? left_ - instructions : 0;
    exhausted_ |= !enough;
    return enough;
  }
  [[nodiscard]] std::uint32_t left() const { return left_; }
  // True if work was left undone because the budget was too small.
  [[nodiscard]] bool exhausted() const { return exhausted_; }

 private:
  std::uint32_t left_;
  bool exhausted_ = false;
};

// Space for one synthesis at a time, of a fixed size (about 110 KiB). So a synthesis allocates nothing, and can run in
// a signal handler.
struct SynthesisScratch;
[[nodiscard]] SynthesisScratch* make_scratch();
void free_scratch(SynthesisScratch* scratch);
struct FreeScratch {
  void operator()(SynthesisScratch* scratch) const { free_scratch(scratch); }
};
using OwnScratch = std::unique_ptr<SynthesisScratch, FreeScratch>;
// The budget of all functions below, unlimited at first. When it is exhausted, synthesize() and return_row() fail with
// kLimit, contradicts() finds nothing, and call_site() returns kElsewhere.
[[nodiscard]] Budget& budget_of(SynthesisScratch& scratch);

// The row at `pc`. A return address is the place where execution will go on. Bounded by a fixed number of instructions.
// The bytes of expressions in the row live for ever, so the row may be kept as long as the code stays the same. Errors:
// kNotFound if no way out was found, kUnreadable without code at pc, kUnsupported for the architecture.
[[nodiscard]] Expected<Synthesis> synthesize(const CodeSource& source, CodeAddress pc, SynthesisScratch& scratch);

// The row at `pc` by the way in alone, from the nearest place before where a function may start. A guess, for code
// whose ways out lead nowhere. kNotFound if no way leads to `pc` by a plausible row, and for generated code.
[[nodiscard]] Expected<Synthesis> way_in(const CodeSource& source, CodeAddress pc, SynthesisScratch& scratch);

// The row at `pc`, if the code goes straight to a return: no call, no branch. Compilers' unwind information is most
// often wrong in such code. Else kNotFound.
[[nodiscard]] Expected<FrameRow> epilogue_row(const CodeSource& source, std::uint64_t pc, SynthesisScratch& scratch);

// The row of the nearest way from `pc` to a return, with all registers known there, also those that calls need not
// preserve. Hand-written code with its own calling conventions leaves such registers to its caller. Call only if the
// caller needs such a register. kNotFound if there is no way.
[[nodiscard]] Expected<FrameRow> return_row(const CodeSource& source, CodeAddress pc, SynthesisScratch& scratch);

// The row to use instead of `row`, which unwind information has for `pc`, if the code certainly contradicts it. Nearly
// always there is no contradiction, and nothing is returned. Call once for each new pc. The code wins in three cases:
// - pc is on a straight way to a return (epilogue_row), and the row found differs. For example GCC's epilogues of
//   realigned frames, LLVM's `add rsp,8` without a note, and assembly that pops without a note.
// - The row is that of a function's entry: CFA = sp + 8, nothing saved; on AArch64 CFA = sp, x30. But the code,
//   followed without a call to a return, says that something is on the stack. So something was pushed without a note.
// - The same behind calls, if the row found is plausible and `row` is not.
[[nodiscard]] std::optional<FrameRow> contradicts(const FrameRow& row, const CodeSource& source, CodeAddress pc,
                                                  SynthesisScratch& scratch);

// True if a call instruction ends at `address`, or a signal trampoline begins there, whose "return address" the kernel
// has made up. Also true if the code cannot be read, and in generated code: interpreters push the address to go on at
// themselves (HotSpot's return entries).
[[nodiscard]] bool may_be_return_address(const CodeSource& source, std::uint64_t address);

// The target of the direct call that ends at `address`; 0: there is none, or it cannot be read.
[[nodiscard]] std::uint64_t direct_call_target(const CodeSource& source, std::uint64_t address);

// Where the call before a return address leads.
enum class CallSite : std::uint8_t {
  kNone,           // There is no call, or it cannot be read.
  kAnywhere,       // To the address in a register or memory, at once or by a jump.
  kReaches,        // To the start of the callee's function, or to a jump there (linkage stubs).
  kLeads,          // To code from where a path leads to the callee's pc.
  kConstantLeads,  // The same through a register that the instructions before have set. Else such a call is kAnywhere.
  kMayLead,    // To code too long to be followed to the callee's pc, or code that goes on by a table of many paths. Or
               // a path leads to the callee's pc, but no row can express it.
  kElsewhere,  // None of these.
};
[[nodiscard]] constexpr bool has_way_in(CallSite site) {
  return site == CallSite::kLeads || site == CallSite::kConstantLeads;
}
// Finds the call site of a frame, as seen from its callee. If it has a way in, `way_in` is the row of that at `callee`.
[[nodiscard]] CallSite call_site(const CodeSource& source, CodeAddress caller, CodeAddress callee, FrameRow& way_in,
                                 SynthesisScratch& scratch);

// True if the code, followed from the function's start at `start`, comes by `pc`. False too if it is too long to be
// followed so far, or is not followed at all. For names: code behind a symbol without a size may be another function's.
[[nodiscard]] bool leads_to(const CodeSource& source, std::uint64_t start, CodeAddress pc, SynthesisScratch& scratch);

}  // namespace windlass::flow
