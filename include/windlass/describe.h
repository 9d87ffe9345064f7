// What machine code that nobody described does to its frame: found from the code of one function alone, for what a JIT
// compiler or a runtime has made. From here it is written as unwind information (winx64.h, winarm64.h, dwarf.h) or used
// as rows.
//
//   const auto found = describe(code, address, Architecture::kX86_64);
//   if (found && found->prologue) writer.add(*found->prologue, rva);
//
// The code is followed from its first instruction along all its ways, without running it. What is taken for granted is
// that calls leave sp where it was and keep the preserved registers, and that nothing is written over what the function
// has saved but by its own stores relative to its frame. A row is given only where every way found arrives with the
// same frame.
//
// Thread-safe; not for signal handlers (it allocates).
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

// Where an exception thrown by a call in a stretch of the code goes on, with the frame it had at the call.
struct LandingPad {
  std::uint32_t begin = 0;  // of the calls: offsets into the code
  std::uint32_t end = 0;
  std::uint32_t pad = 0;
};

struct DescribeOptions {
  // x86-64: calls keep rsi and rdi, too, and the rows tell of them. Vector registers are never told of on x86-64.
  bool windows_calls = false;
  // The code keeps its callers' frame pointer and no other register, as that of V8 and HotSpot does but for where C
  // enters it: the rows tell of no other one, and ways may differ by one. Without it a call behind which another
  // register is lost, and kept on other ways, may be taken for one that does not return.
  bool keeps_frame_pointer_only = false;
  // The code takes its arguments off the stack, or puts others there for the function that it jumps to, with its return
  // address in a register or pushed again meanwhile, and who called it finds its own frame by the frame pointer, as
  // V8's does. Where sp is no known distance from the entry's any more, the CFA is where sp would be if it returned.
  bool drops_arguments = false;
  // Rows count from the frame pointer as soon as the code has set it, as those of a Prologue do; else from sp wherever
  // it is known.
  bool by_frame_pointer = true;
  // Reads what is not part of the code, jump tables above all; all or nothing, any address. Without it what only a
  // table outside of the code leads to is not reached.
  std::function<bool(std::uint64_t address, void* to, std::size_t size)> read = {};
  // What the code's exception table says; without it landing pads are not reached.
  std::span<const LandingPad> landing_pads = {};
  // Offsets of further entries, with the frame that a call makes: HotSpot's stubs of calls stand behind the method.
  std::span<const std::uint32_t> entries = {};
  // Does a call to this address come back? 0: the target is not known. Without it all do, unless the code behind the
  // call has another frame on its other ways.
  std::function<bool(std::uint64_t target)> returns = {};
};

// A stretch of the code without a row, and why.
struct Unproved {
  enum Reason : std::uint8_t {
    kNotReached,       // no way from the entry leads there: landing pads, what stands behind a call that never returns
    kUnknownJump,      // the same, and some jump may lead anywhere
    kDifferentFrames,  // ways arrive with different frames, whose sp is so far below the CFA: depths
    kFrameLost,        // no register is known to be a fixed distance from the CFA
    kNotFollowed,      // no instruction, or one that cannot be followed
  };
  std::uint32_t begin = 0;  // offsets into the code
  std::uint32_t end = 0;
  Reason reason = kNotReached;
  std::int64_t depths[2] = {};  // kDifferentFrames: bytes
};
[[nodiscard]] std::string_view reason_text(Unproved::Reason reason);

struct Description {
  // By offset into the code, ascending; neighbours differ. Registers whose caller's value is lost are Undefined there.
  std::vector<FrameRow> rows;
  // Ascending. Padding that is not reached (nop, int3, ud2, hlt, brk, zeros) and jump tables
  // belong to neither.
  std::vector<Unproved> unproved;
  // rows_of(*prologue) are the rows, wherever there are any; but no Prologue says that a register is lost: it counts as
  // not saved.
  std::optional<Prologue> prologue;
  // Why there is none, a string literal; `no_prologue_at` is the offset of the code in question.
  const char* no_prologue = nullptr;
  std::uint32_t no_prologue_at = 0;

  [[nodiscard]] bool whole() const { return unproved.empty(); }
};

// `code` is all of one function, its first byte the only entry but for `entries`, `address` where it runs. Errors:
// kOutOfRange (no code, or 2 GiB of it), kUnsupported (i386; a build that reads no machine code). Time is linear in the
// instructions, times how often joining ways lose a register; memory is about 2 KiB a branch target and 10 bytes a byte
// of code.
[[nodiscard]] Expected<Description> describe(std::span<const std::byte> code, std::uint64_t address,
                                             Architecture architecture, const DescribeOptions& options = {});

}  // namespace windlass
