// What the code of one function does to its frame: described once by whoever generates the code, and from there turned
// into rows (rows_of() below) or written as unwind information: Windows x64 (winx64.h), Windows ARM64 (winarm64.h),
// DWARF (dwarf.h), SFrame (sframe.h).
//
// Offsets into code count bytes from the function's begin. Registers are DWARF numbers (System V x86-64 psABI figure
// 3.36: 0 rax 1 rdx 2 rcx 3 rbx 4 rsi 5 rdi 6 rbp 7 rsp 8-15, 17-32 xmm0-15; AADWARF64 table 1: 0-30 x, 31 sp, 64-95
// v).
//
//   Prologue f{.architecture = Architecture::kX86_64, .code_size = 40};
//   f.ops = {{1, prologue::push(3)}, {5, prologue::Allocate{32}}};   // push rbx; sub rsp, 32
//   f.epilogues = {mirrored(f, 34)};                                 // add rsp, 32; pop rbx; ret
//
// Nothing here keeps state: all of it is thread-safe, none of it is for signal handlers (it allocates).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "windlass/error.h"
#include "windlass/frame_row.h"
#include "windlass/registers.h"

namespace windlass::prologue {

// ---- what one instruction of a prologue does ----------------------------------------------------------------------

inline constexpr RegisterNumber kNoRegister = 0xffff;

struct Allocate {
  std::uint64_t size;
};  // sp -= size
struct Save {
  RegisterNumber reg;
  std::uint32_t offset = 0;
  std::uint32_t allocate = 0;
  RegisterNumber second = kNoRegister;
};  // sp -= allocate; [sp + offset] = reg; [sp + offset + 8] = second. 16 bytes for xmm registers, 8 for d and others
struct SetFramePointer {
  RegisterNumber reg;
  std::uint32_t offset = 0;
};                            // reg = sp + offset
struct SignReturnAddress {};  // AArch64: pacibsp (Windows) or paciasp
struct MachineFrame {
  bool error_code = false;
};  // no instruction: an interrupt entered here and left [error code] rip cs rflags rsp ss on top of the stack
using Action = std::variant<Allocate, Save, SetFramePointer, SignReturnAddress, MachineFrame>;

// x86-64 push; AArch64 str reg, [sp, #-16]!
[[nodiscard]] constexpr Save push(RegisterNumber reg, std::uint32_t size = 8) { return {reg, 0, size, kNoRegister}; }

struct Op {
  std::uint32_t end = 0;  // of the instruction that does it
  Action action;
};

// ---- a function ---------------------------------------------------------------------------------------------------

// Takes back what the prologue did. An instruction may take back several actions (`leave`: the allocation, the frame
// pointer and its push, in this order); instructions that take back none need no entry. What computes sp from the frame
// pointer (GCC's `lea rsp, [rbp - 16]`) takes back what was done to sp behind that place; a SetFramePointer need only
// be listed where sp goes to where it was set from somewhere else.
struct Epilogue {
  std::uint32_t begin = 0;      // of its first instruction
  std::uint32_t end = 0;        // behind its last one, the return or jump
  std::vector<Op> undone = {};  // in the order of the code: where the instruction ends, and the action it takes back
};

// A stretch of a function in which more is saved than around it (shrink wrapping): its ops come on top of all of the
// function's, whose prologue has run.
struct Part {
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
  std::vector<Op> ops = {};
  std::vector<Epilogue> epilogues = {};  // inside the part; may leave the function, or only the part
};

struct Handler {
  std::uint32_t rva = 0;  // of the handler, in the image or code range
  bool on_exception = true;
  bool on_unwind = true;
  std::vector<std::byte> data = {};  // what it finds behind its address
};

struct Prologue {
  Architecture architecture = Architecture::kX86_64;
  std::uint32_t code_size = 0;           // of the function, bytes
  std::vector<Op> ops = {};              // ascending
  std::uint32_t size = 0;                // of the prologue; 0: it ends with its last op
  std::vector<Epilogue> epilogues = {};  // ascending, disjoint; not within parts
  std::vector<Part> parts = {};          // ascending, disjoint, behind the prologue
  std::optional<Handler> handler = {};

  // Where the prologue ends.
  [[nodiscard]] std::uint32_t prologue_end() const { return size != 0 || ops.empty() ? size : ops.back().end; }
};

// The epilogue at `begin` that takes back everything in reverse by the instructions compilers use: add or pop of the
// sizes they have on x86-64 (`lea` where the last thing done is to set a frame pointer; one set earlier takes no
// instruction), 4 bytes each on AArch64; then a return of 1 or 4 bytes.
[[nodiscard]] Epilogue mirrored(const Prologue& prologue, std::uint32_t begin);

// Is it one that can be? Errors (kMalformed, kOutOfRange; `where` is an offset into the code): ops out of order or
// outside of the code, a save outside of the frame, over the return address or over another one, a frame pointer set
// twice, an epilogue that takes back what was not done or not all, overlapping epilogues or parts. What only one format
// cannot say is its writer's error. Linear.
[[nodiscard]] Expected<void> check(const Prologue& prologue);

// What the model itself says, which every written format must lower to: a row for every stretch of the function,
// ascending and adjoining, by offset from its begin. Checks first. A machine frame's CFA is the interrupted rsp.
// kLimit: a frame of 2 GiB or more, which writers can write but no row can say.
[[nodiscard]] Expected<std::vector<FrameRow>> rows_of(const Prologue& prologue);

}  // namespace windlass::prologue

namespace windlass {
using prologue::Prologue;
}
