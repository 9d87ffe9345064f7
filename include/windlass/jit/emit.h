// Writes unwind information for existing code that has none: a runtime's builtins in a blob or an object, or an
// interpreter in assembly. The result is a source file of data that refers to the code by symbols. Assemble the file,
// and link it beside the code.
//
// For example:
//
//   std::vector<emit::Function> functions = {{.symbol = "add", .address = 0, .code = bytes_of_add}, ...};
//   const auto spans = emit::spans_of(functions, {.mode = emit::Mode::kExact});
//
//   const auto text = emit::text_of(*spans, functions, {.syntax = emit::Syntax::kGas});
//
// Thread-safe; not for signal handlers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "windlass/error.h"
#include "windlass/frame_row.h"
#include "windlass/prologue.h"
#include "windlass/registers.h"

namespace windlass::emit {

// A function of the existing code.
struct Function {
  std::string symbol;         // The symbol from which the text counts: the function's own, or the blob's, or an
                              // address.
  std::int64_t addend = 0;    // From the symbol to the function's first byte.
  std::uint64_t address = 0;  // Of the first byte, in a numbering that all functions share. Tells which functions are
                              // neighbours.
  std::span<const std::byte> code = {};
  // kExact: as in DescribeOptions. True for V8's builtins, except those that C enters.
  bool keeps_frame_pointer_only = false;
};

// Which code is described as having a frame. The prologue of a frame is found by its bytes: on x86-64 `push rbp; mov
// rbp, rsp`, on AArch64 `stp x29, x30, [sp, #-n]!` and `mov x29, sp` or `add x29, sp, #m`.
enum class Mode : std::uint8_t {
  // One span from the first function to the end of the last, as if all of it were behind such a prologue. Where a
  // function has no frame, or has just begun, a walk misses the caller.
  kWhole,
  // The same with a span for each function. On AArch64, functions of a single instruction have none, and the first two
  // instructions count as the prologue.
  kFunctions,
  // As V8 describes its builtins: a span from each frame's prologue to the next prologue, or to the function's end. On
  // x86-64, the code before the first frame has a span too, and leaves have none. On AArch64 that code has none, since
  // the return address is in x30.
  kFrames,
  // The frame at every instruction, as far as the code proves it (jit/describe.h). For Windows, the frame must be one
  // that a Prologue can express. Other functions have the spans of kFrames. So has, in every format, code of which
  // nothing is proved.
  kExact,
};

// Options of spans_of().
struct Options {
  Architecture architecture = Architecture::kX86_64;  // Or kAArch64.
  Mode mode = Mode::kExact;
  // For kFrames on x86-64: exactly V8's bytes. The code before the first frame has a span that begins 4 bytes before
  // the function, as if a prologue were there. So a record of Windows serves all functions. If the previous function
  // ends later, the span begins there. Leaves are described too. The code must be padded so far.
  bool as_v8 = false;
  // kExact: reads memory outside of the code, jump tables above all. The address is in the functions' numbering; all or
  // nothing.
  std::function<bool(std::uint64_t address, void* to, std::size_t size)> read = {};
};

// A run of code with a description of its own.
struct Span {
  std::size_t function = 0;  // An index: `offset` counts from this function.
  std::int64_t offset = 0;   // Of the first byte; negative before the function.
  Prologue prologue;         // `code_size` is the length of the span.
  // kExact: written for ELF in place of `prologue`. From 0 on, adjoining.
  std::vector<FrameRow> rows = {};
  // kExact: this span is for a single format, because the other format has different spans of this code.
  enum Only : std::uint8_t { kBoth, kElf, kWindows } only = kBoth;
};

// Finds the spans of functions, ascending by address. Linear in the code. Errors:
//
// - kMalformed: a function is empty, overlaps another, or is out of order; `where` is the address.
// - kUnsupported: another architecture.
// - kLimit: a span of 2 GiB or more.
[[nodiscard]] Expected<std::vector<Span>> spans_of(std::span<const Function> functions, const Options& options);

// The format of the text, and its assembler.
enum class Syntax : std::uint8_t {
  kGas,   // .pdata and .xdata for binutils and LLVM.
  kMasm,  // .pdata and .xdata for ml64 and armasm64.
  kElf,   // .eh_frame for binutils and LLVM.
};

// Options of text_of().
struct TextOptions {
  Syntax syntax = Syntax::kGas;
  // For Windows: the symbol of the language-specific handler of all spans, and the passes that call it. Empty: none.
  std::string handler = {};
  bool handler_on_exception = true;
  bool handler_on_unwind = true;
};

// Writes the text; empty without spans. Linear in the spans. Errors: a span that the format cannot express, with its
// address; kUnsupported for a handler in ELF.
[[nodiscard]] Expected<std::string> text_of(std::span<const Span> spans, std::span<const Function> functions,
                                            const TextOptions& options);

}  // namespace windlass::emit
