// Describes machine code that has no unwind information: finds from the code of a function alone how the frame
// changes. For code that a JIT compiler or a runtime has made. The result can be written as unwind information
// (format/winx64.h, format/winarm64.h, format/dwarf.h), or used as rows.
//
// For example:
//
//   const auto found = describe(code, address, Architecture::kX86_64);
//   if (found && found->prologue) writer.add(*found->prologue, rva);
//
// The code is not run, but followed from its first instruction along all paths. Assumed is:
// - A call leaves sp unchanged, and keeps the preserved registers.
// - Only the function's own stores, relative to its frame, overwrite saved values.
//
// A row is given only where all paths that were found arrive with the same frame. Thread-safe; allocates, so not for
// signal handlers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "windlass/error.h"
#include "windlass/frame_row.h"
#include "windlass/prologue.h"
#include "windlass/registers.h"

namespace windlass {

// Where the code goes on when a call throws an exception. The landing pad has the frame of the call.
struct LandingPad {
  std::uint32_t begin = 0;  // The calls: offsets into the code, [begin, end).
  std::uint32_t end = 0;
  std::uint32_t pad = 0;  // The landing pad: an offset into the code.
};

// Facts about the code that the code itself does not tell.
struct DescribeOptions {
  // x86-64: calls also keep rsi and rdi, and the rows include both. On x86-64, rows never include vector registers.
  bool windows_calls = false;
  // The code keeps its callers' frame pointer and no other register: for example the code of V8 and HotSpot, except
  // where C enters it. Rows include no other register, and paths may differ in the other registers.
  //
  // Without this option, take a call behind which another register is lost, while other paths keep the register. Such a
  // call may be taken for a call that does not return.
  bool keeps_frame_pointer_only = false;
  // The code may remove its arguments from the stack, or replace them for a function it jumps to. Meanwhile the return
  // address is in a register, or pushed again. The caller finds its own frame by the frame pointer. For example, V8's
  // code is like this. Where the distance of sp from sp at the entry is no longer known, the CFA is where sp would be
  // after a return.
  bool drops_arguments = false;
  // True: rows count from the frame pointer as soon as the code has set it, as rows of a Prologue do. False: rows count
  // from sp wherever sp is known.
  bool by_frame_pointer = true;
  // Reads memory outside of the code, jump tables above all; all or nothing, at any address. Without this function,
  // code that only an outside table leads to is not reached.
  std::function<bool(std::uint64_t address, void* to, std::size_t size)> read = {};
  // The code's exception table. Without this table, landing pads are not reached.
  std::span<const LandingPad> landing_pads = {};
  // Offsets of further entries, with the frame that a call makes. For example, HotSpot puts stubs of calls behind a
  // method.
  std::span<const std::uint32_t> entries = {};
  // True if a call to this address returns. 0: the target is not known. Without this function all calls return, unless
  // the code behind a call has another frame on its other paths.
  std::function<bool(std::uint64_t target)> returns = {};
};

// A stretch of the code without a row, and the reason.
struct Unproved {
  enum Reason : std::uint8_t {
    kNotReached,       // No path from an entry leads there: landing pads, code behind a call that never returns.
    kUnknownJump,      // The same, and some jump may lead anywhere.
    kDifferentFrames,  // Paths arrive with different frames. `depths` says how far sp is below the CFA.
    kFrameLost,        // No register is at a known fixed distance from the CFA.
    kNotFollowed,      // No instruction, or one that cannot be followed.
  };
  std::uint32_t begin = 0;  // Offsets into the code, [begin, end).
  std::uint32_t end = 0;
  Reason reason = kNotReached;
  std::int64_t depths[2] = {};  // kDifferentFrames: bytes.
};
// A sentence for people. A string literal.
[[nodiscard]] std::string_view reason_text(Unproved::Reason reason);

// The frame of a function, as far as the code proves it.
struct Description {
  // By offset into the code, ascending; neighbours differ. A register whose caller's value is lost is Undefined.
  std::vector<FrameRow> rows;
  // The code without rows, ascending. Neither rows nor `unproved` contain padding that is not reached (nop, int3, ud2,
  // hlt, brk, zeros), or jump tables.
  std::vector<Unproved> unproved;
  // A Prologue for which rows_of() gives these rows, wherever there are rows. A Prologue cannot express a lost
  // register, and counts it as not saved.
  std::optional<Prologue> prologue;
  // Why there is no prologue, a string literal. `no_prologue_at` is the offset of the code in question.
  const char* no_prologue = nullptr;
  std::uint32_t no_prologue_at = 0;

  // True if every reached instruction has a row.
  [[nodiscard]] bool whole() const { return unproved.empty(); }
};

// Describes a function. `code` is all of its code, and `address` is where it runs. The first byte is the only entry,
// besides options.entries.
//
// Errors: kOutOfRange for no code, or 2 GiB of it. kUnsupported for i386, and in a build that reads no machine code.
// Time: linear in the instructions, times how often joining paths lose a register. Memory: about 2 KiB for each branch
// target, and 10 bytes for each byte of code.
[[nodiscard]] Expected<Description> describe(std::span<const std::byte> code, std::uint64_t address,
                                             Architecture architecture, const DescribeOptions& options = {});

}  // namespace windlass
