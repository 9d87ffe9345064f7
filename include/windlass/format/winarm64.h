// Writes Windows ARM64 unwind information from a Prologue: bytes for code made at run time or for an object file, or
// directives for an assembler. Specification: "ARM64 exception handling" (Microsoft), as corrected by .NET's unwinder
// and LLVM.
//
// A function takes an entry of 8 bytes. The entry is packed if a packed entry can express the function. Else the
// function also takes an .xdata record. A record covers 1 MiB - 4. A longer function is cut into fragments with an
// entry each, and so is a function with parts. A fragment without a prologue of its own has the codes of all that was
// done before, behind an `end_c`.
//
// For example, for stp x29, x30, [sp, #-16]!; mov x29, sp:
//
//   Prologue f{.architecture = Architecture::kAArch64, .code_size = 40};
//   f.ops = {{4, prologue::Save{29, 0, 16, 30}}, {8, prologue::SetFramePointer{29}}};
//
// It ends with mov sp, x29; ldp x29, x30, [sp], #16; ret:
//
//   f.epilogues = {mirrored(f, 28)};
//   const auto written = winarm64::write(f, {.function = 0x1000});
//
// Then written->entries is {0x1000, 0x00e00029}: packed, 40 bytes of code, CR = 3, a frame of 16 bytes. There are no
// bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "windlass/error.h"
#include "windlass/format/written.h"
#include "windlass/prologue.h"

namespace windlass::winarm64 {

using prologue::Directive;
using prologue::ImageRelative;

// The meaning of an entry's second word: its two low bits.
enum class EntryKind : std::uint8_t {
  kRecord = 0,          // The RVA of an .xdata record.
  kPacked = 1,          // Packed: a function in canonical form.
  kPackedFragment = 2,  // Packed: a part of a function, without prologue and epilogue.
  kParent = 3,          // The RVA of another entry. Reserved in the specification; .NET reads it so if bit 2 is 0.
};

// IMAGE_ARM64_RUNTIME_FUNCTION_ENTRY.
struct RuntimeFunction {
  std::uint32_t begin = 0;  // The RVA.
  std::uint32_t data = 0;
  bool operator==(const RuntimeFunction&) const = default;

  // The meaning of the second word.
  [[nodiscard]] EntryKind kind() const { return static_cast<EntryKind>(data & 3); }
  [[nodiscard]] bool packed() const { return kind() == EntryKind::kPacked || kind() == EntryKind::kPackedFragment; }
  // The RVA of the .xdata record, or of the parent's entry.
  [[nodiscard]] std::uint32_t target() const { return data & ~std::uint32_t{3}; }
};

// ---- bytes --------------------------------------------------------------------------------------------------------

// When a function may be cut into fragments.
enum class Fragments : std::uint8_t {
  kNever,       // Never: a function that needs fragments is an error.
  kWhenNeeded,  // For parts, and if code, epilogues or unwind codes exceed a record.
  kWhenSmaller  // Also if packed entries replace a record, or if a prologue pauses for long.
};

// Options of write() and Writer.
struct WriteOptions {
  std::uint32_t function = 0;  // RVA of the function's first byte, a multiple of 4.
  std::uint32_t info = 0;      // RVA at which the bytes will stand, a multiple of 4.
  Fragments fragments = Fragments::kWhenNeeded;
  // Write an entry even for code that does nothing to the frame, so that a look-up finds the code's begin.
  bool leaf_entries = false;
};

// The result: entries for the function table, and the bytes of the unwind information.
struct Written {
  // For the function table, ascending. Unless packed, `data` is `info` + an offset among the bytes. None if there is
  // nothing to tell: a leaf needs no entry.
  std::vector<RuntimeFunction> entries = {};
  std::vector<std::byte> bytes = {};            // .xdata records, each at a multiple of 4. Equal records are shared.
  std::vector<ImageRelative> relocations = {};  // Of handlers.
};

// Writes the shortest information that unwinds as rows_of(prologue), at every instruction. Thread-safe; allocates, so
// not for signal handlers. Linear in the ops and epilogues; to share codes, those of different epilogues are compared.
//
// Errors: those of check(). The text is the broken rule. `where` is the offset into the code. `detail` is the register
// (in its file), size or offset. Also:
// - kUnsupported: another architecture, or an action without an unwind code.
// - kUnsupported: an epilogue whose last instruction takes an action back before the end of its fragment. A record has
//   that instruction undo nothing.
// - kMalformed: an instruction that does not end at a multiple of 4, or two ops in one instruction of a prologue.
// - kMalformed: registers that are no pair, or a size that is no multiple of its unit.
// - kOutOfRange: an offset or size too large for an instruction or unwind code.
// - kLimit: a function that needs fragments although `fragments` forbids that, or too large a function for fragments.
[[nodiscard]] Expected<Written> write(const Prologue& prologue, const WriteOptions& options = {});

// Writes many functions with a run of bytes. Equal records are written once. A record has the length of its function,
// so equal functions have equal records. Chunks of equal length have one record.
//
// For object files: functions with different handlers need different RVAs for their handlers. As thread-safe as a
// std::vector.
class Writer {
 public:
  // `options.function` is ignored.
  explicit Writer(const WriteOptions& options = {}) : options_(options) {}

  // Adds a function with the RVA `function`. Errors as for write(). After an error nothing has been added. Also
  // logarithmic in the number of records.
  [[nodiscard]] Expected<void> add(const Prologue& prologue, std::uint32_t function);

  // Everything so far. Entries are in the order in which functions were added.
  [[nodiscard]] const Written& written() const { return written_; }
  [[nodiscard]] Written take() && { return std::move(written_); }

 private:
  Expected<void> add_pieces(const Prologue& prologue);

  WriteOptions options_;
  std::uint32_t functions_ = 0;
  Written written_;
  std::map<std::vector<std::byte>, std::uint32_t> records_;  // To their places among the bytes.
};

// ---- assembly -----------------------------------------------------------------------------------------------------

// The assembler for a text.
enum class Assembler : std::uint8_t {
  kClang,     // LLVM: .seh_ directives, each behind its instruction.
  kArmasm64,  // Microsoft: the macros of ksarm64.h, PROLOG_... and EPILOG_..., which also make the instructions.
};

// Options of directives_of() and assembly_of().
struct AssemblyOptions {
  Assembler assembler = Assembler::kClang;
  std::string name = "function";  // Of the function.
  std::string section = ".text";  // The section of the code.
  std::string handler = {};       // A symbol, if the prologue has a handler. The handler's RVA is then ignored.
};

// The directives of a function, from the procedure's first line to its last, ascending by offset. None for a leaf
// without a handler. For clang, the caller also prints the function's label. Some lines of armasm64 must be followed by
// the instruction that they replace. These lines end in PROLOG_NOP, PROLOG_SAVE_NEXT_PAIR, EPILOG_NOP,
// EPILOG_RESTORE_NEXT_PAIR or EPILOG_END.
//
// Errors: those of write(). kUnsupported for parts (clang cuts long functions itself). For armasm64 also kLimit for
// more than four epilogues, and kUnsupported for:
// - x29 set elsewhere than right behind `stp x29,lr`.
// - sp computed from x29 with an offset.
// - a single register stored with sp moved, except x19 and d8. The macros have wrong codes for others.
// - a handler with data.
// - an allocation that no `sub` can do.
//
// assembly_of() writes these as data.
[[nodiscard]] Expected<std::vector<Directive>> directives_of(const Prologue& prologue, const AssemblyOptions& options);

// A whole source file: sections, the function with its code as words, and its unwind information. This is directives,
// or data if there are no directives for it. kMalformed unless `code` is prologue.code_size bytes.
[[nodiscard]] Expected<std::string> assembly_of(const Prologue& prologue, std::span<const std::byte> code,
                                                const AssemblyOptions& options);

// ---- for people ---------------------------------------------------------------------------------------------------

// Prints an .xdata record as CoreCLR's checked JIT does (DOTNET_JitUnwindDump). The method is at [begin, end) in its
// code. Linear; allocates. Errors, with an offset in the record as `where`: those of reading it. kUnsupported for codes
// that the JIT does not write: save_any_reg, SVE, system frames.
[[nodiscard]] Expected<std::string> jit_unwind_dump(std::span<const std::byte> record, std::uint32_t begin,
                                                    std::uint32_t end);

}  // namespace windlass::winarm64
