// Unwind information for code that is there already and has none: a runtime's builtins in a blob or an object, an
// interpreter written in assembly. It is written as a source text of data that refers to the code by symbols, so that
// assembling and linking it beside the code is all there is to do.
//
//   std::vector<emit::Function> functions = {{.symbol = "add", .address = 0, .code = bytes_of_add}, ...};
//   const auto spans = emit::spans_of(functions, {.mode = emit::Mode::kExact});
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

struct Function {
  std::string symbol;         // from which the text counts: the function's own, or the blob's, or an address
  std::int64_t addend = 0;    // from the symbol to the function's first byte
  std::uint64_t address = 0;  // of its first byte, by a numbering that all share: tells neighbours
  std::span<const std::byte> code = {};
  // kExact: as DescribeOptions has it. True of V8's builtins, but for those that C enters.
  bool keeps_frame_pointer_only = false;
};

// What is taken for a frame: x86-64 `push rbp; mov rbp, rsp`, AArch64 `stp x29, x30, [sp, #-n]!` and `mov x29, sp` or
// `add x29, sp, #m`. They are found as bytes.
enum class Mode : std::uint8_t {
  // One span from the first function to the end of the last, as if all of it were behind such a prologue. Where a
  // function has no frame, or has just begun, the walk misses the caller.
  kWhole,
  // The same, a span for each function. AArch64: none for those of one instruction; the first two instructions are
  // taken for the prologue.
  kFunctions,
  // As V8 describes its builtins: a span from each frame's prologue to the next one or to the function's end. x86-64:
  // one for what is before the first, too; leaves have none. AArch64: none, there the return address is in x30.
  kFrames,
  // What the code of each function does to its frame at every instruction, as far as that is proved (describe.h). For
  // Windows a function has to be what a Prologue can say; others have the spans of kFrames, and so does, in every
  // format, code of which nothing is proved.
  kExact,
};

struct Options {
  Architecture architecture = Architecture::kX86_64;  // or kAArch64
  Mode mode = Mode::kExact;
  // Of kFrames on x86-64, to the byte: what is before the first frame begins 4 bytes in front of the function, as if a
  // prologue were there (so that one record of Windows' does for all), or where the function before it ends, and
  // leaves have a description, too. The code must be padded so far.
  bool as_v8 = false;
  // kExact: reads what is not code, jump tables above all, at an address in the functions' numbering; all or nothing.
  std::function<bool(std::uint64_t address, void* to, std::size_t size)> read = {};
};

// A run of code with a description of its own.
struct Span {
  std::size_t function = 0;  // by index: what `offset` counts from
  std::int64_t offset = 0;   // of its first byte; negative in front of the function
  Prologue prologue;         // `code_size` is its length
  // kExact: what is written for ELF instead, from 0 on, adjoining.
  std::vector<FrameRow> rows = {};
  // kExact: for one format alone, as the other has different spans of this code.
  enum Only : std::uint8_t { kBoth, kElf, kWindows } only = kBoth;
};

// Ascending by address. Functions that overlap, are empty or out of order (by address): kMalformed, `where` is the
// address. kUnsupported: another architecture. kLimit: a span of 2 GiB and more. Linear in the code.
[[nodiscard]] Expected<std::vector<Span>> spans_of(std::span<const Function> functions, const Options& options);

// Of what the text is made, and for which assembler.
enum class Syntax : std::uint8_t {
  kGas,   // .pdata and .xdata for binutils and LLVM
  kMasm,  // .pdata and .xdata for ml64 and armasm64
  kElf,   // .eh_frame for binutils and LLVM
};

struct TextOptions {
  Syntax syntax = Syntax::kGas;
  // Of Windows: the symbol of every span's language-specific handler, and which passes ask it. Empty: none.
  std::string handler = {};
  bool handler_on_exception = true;
  bool handler_on_unwind = true;
};

// The text; empty without spans. Errors: what the format cannot say of a span, with its address; kUnsupported a handler
// in ELF. Linear in the spans.
[[nodiscard]] Expected<std::string> text_of(std::span<const Span> spans, std::span<const Function> functions,
                                            const TextOptions& options);

}  // namespace windlass::emit
