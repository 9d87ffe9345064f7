// Describes how the code of a function changes the frame. The generator of the code makes one description. From it
// come rows (rows_of() below) and unwind information: Windows x64 (format/winx64.h), Windows ARM64 (format/winarm64.h),
// DWARF (format/dwarf.h), SFrame (format/sframe.h).
//
// Offsets into code count bytes from the function's begin. Registers are DWARF numbers:
// - x86-64 (System V psABI, figure 3.36): 0 rax, 1 rdx, 2 rcx, 3 rbx, 4 rsi, 5 rdi, 6 rbp, 7 rsp, 8-15, 17-32 xmm0-15.
// - AArch64 (AADWARF64, table 1): 0-30 x, 31 sp, 48-63 p, 64-95 v, 96-127 z.
//
// For example, a function that begins with push rbx; sub rsp, 32:
//
//   Prologue f{.architecture = Architecture::kX86_64, .code_size = 40};
//   f.ops = {{1, prologue::push(3)}, {5, prologue::Allocate{32}}};
//
// It ends with add rsp, 32; pop rbx; ret:
//
//   f.epilogues = {mirrored(f, 34)};
//
// Nothing here keeps state, so all is thread-safe. Functions allocate, so none is for signal handlers.
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

// No register, for example in Save::second.
inline constexpr RegisterNumber kNoRegister = 0xffff;

// Makes the frame larger.
struct Allocate {
  std::uint64_t size;
};  // sp -= size
// Saves a register, or two, and can make the frame larger first. Takes 16 bytes for an xmm register, and 8 for others,
// AArch64's d registers too.
struct Save {
  RegisterNumber reg;
  std::uint32_t offset = 0;
  std::uint32_t allocate = 0;
  RegisterNumber second = kNoRegister;
};  // sp -= allocate; [sp + offset] = reg; [sp + offset + 8] = second.
// Sets a frame pointer.
struct SetFramePointer {
  RegisterNumber reg;
  std::uint32_t offset = 0;
};  // reg = sp + offset.
// AArch64: pacibsp (Windows) or paciasp.
struct SignReturnAddress {};
// No instruction: an interrupt entered here. On top of the stack are [error code] rip cs rflags rsp ss.
struct MachineFrame {
  bool error_code = false;
};
// AArch64 SVE: makes the frame larger by whole vectors, whose length only the processor knows.
struct AllocateVectors {
  std::uint32_t count;
};  // addvl sp, sp, #-count
// AArch64 SVE: saves a z or p register, which AllocateVectors has made room for. `offset` counts lengths of what is
// saved: a p register has an eighth of a vector.
struct SaveVector {
  RegisterNumber reg;
  std::uint32_t offset = 0;
};  // str z8, [sp, #offset, mul vl]
using Action =
    std::variant<Allocate, Save, SetFramePointer, SignReturnAddress, MachineFrame, AllocateVectors, SaveVector>;

// Saves a register by x86-64 `push`, or by AArch64 `str reg, [sp, #-16]!` with a size of 16.
[[nodiscard]] constexpr Save push(RegisterNumber reg, std::uint32_t size = 8) { return {reg, 0, size, kNoRegister}; }

// An action of an instruction.
struct Op {
  std::uint32_t end = 0;  // The end of the instruction.
  Action action;
};

// ---- a function ---------------------------------------------------------------------------------------------------

// The instructions that take back the actions of a prologue. One instruction may take back several actions. For
// example, `leave` takes back the allocation, the frame pointer and the push of the frame pointer, in this order.
// Instructions that take back nothing need no entry.
//
// An instruction may compute sp from the frame pointer, for example GCC's `lea rsp, [rbp - 16]`. This takes back the
// changes of sp beyond that place. List a SetFramePointer only where sp comes from another place to the place where the
// frame pointer was set.
struct Epilogue {
  std::uint32_t begin = 0;  // The begin of its first instruction.
  std::uint32_t end = 0;    // Behind its last instruction, the return or jump.
  // In the order of the code: the end of the instruction, and the action that it takes back. A Save counts from sp as
  // it is when the instruction runs.
  std::vector<Op> undone = {};
};

// A stretch of a function that saves more than the code around it (shrink wrapping). Its ops come on top of all ops of
// the function, whose prologue has run.
struct Part {
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
  std::vector<Op> ops = {};
  std::vector<Epilogue> epilogues = {};  // Inside the part. An epilogue may leave the function, or only the part.
};

// A handler of exceptions.
struct Handler {
  std::uint32_t rva = 0;  // Of the handler, in the image or code range.
  bool on_exception = true;
  bool on_unwind = true;
  std::vector<std::byte> data = {};  // The data that the handler finds behind its address.
};

// The description of one function.
struct Prologue {
  Architecture architecture = Architecture::kX86_64;
  std::uint32_t code_size = 0;           // Bytes of the function.
  std::vector<Op> ops = {};              // Ascending.
  std::uint32_t size = 0;                // Bytes of the prologue; 0: it ends with its last op.
  std::vector<Epilogue> epilogues = {};  // Ascending, disjoint; not within parts.
  std::vector<Part> parts = {};          // Ascending, disjoint, behind the prologue.
  std::optional<Handler> handler = {};

  // The offset where the prologue ends.
  [[nodiscard]] std::uint32_t prologue_end() const { return size != 0 || ops.empty() ? size : ops.back().end; }
};

// The epilogue at `begin` that takes back everything in reverse, by the instructions that compilers use. On x86-64
// these are add or pop, with their usual sizes; `lea` if the last action sets a frame pointer. A frame pointer that was
// set earlier takes no instruction. On AArch64 each instruction has 4 bytes. Last comes a return of 1 or 4 bytes.
[[nodiscard]] Epilogue mirrored(const Prologue& prologue, std::uint32_t begin);

// Checks that a description is possible. Linear. Errors that only one format has come from its writer. Errors here are
// kMalformed and kOutOfRange, with an offset into the code as `where`:
//
// - Ops out of order, or outside of the code.
// - A save outside of the frame, over the return address, or over another save.
// - A frame pointer that is set twice.
// - A register that is saved or loaded across SVE vectors.
// - An epilogue that takes back an action that was not done, or not all actions.
// - Epilogues or parts that overlap.
[[nodiscard]] Expected<void> check(const Prologue& prologue);

// The rows of a description: one for each stretch of the function, ascending and adjoining, by offset from the
// function's begin. Every written format means the same rows. The CFA of a machine frame is the interrupted rsp.
// Errors: those of check(), and two of frames that writers can write, but no row can express. kLimit: a frame of 2 GiB
// or more. kUnsupported: the CFA or the return address lies behind SVE vectors.
[[nodiscard]] Expected<std::vector<FrameRow>> rows_of(const Prologue& prologue);

}  // namespace windlass::prologue

namespace windlass {
using prologue::Prologue;
}
