// Windows ARM64 unwind information written from a Prologue: bytes for code made at run time or for an object file, or
// directives for an assembler. Sources: "ARM64 exception handling" (Microsoft) as corrected by .NET's unwinder and
// LLVM.
//
// A function takes one entry of 8 bytes, packed where a packed one says it, else with an .xdata record. One that is
// longer than a record can cover (1 MiB - 4), or has parts in which more is saved, is cut into fragments with an entry
// each; those without a prologue of their own have the codes of what was done before them behind an `end_c`.
//
//   Prologue f{.architecture = Architecture::kAArch64, .code_size = 40};
//   f.ops = {{4, prologue::Save{29, 0, 16, 30}},     // stp x29, x30, [sp, #-16]!
//            {8, prologue::SetFramePointer{29}}};    // mov x29, sp
//   f.epilogues = {mirrored(f, 28)};                 // mov sp, x29; ldp x29, x30, [sp], #16; ret
//   const auto written = winarm64::write(f, {.function = 0x1000});
//   // written->entries: {0x1000, 0x00e00029}: packed, 40 bytes of code, CR = 3, a frame of 16 bytes; no bytes
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "windlass/error.h"
#include "windlass/prologue.h"
#include "windlass/written.h"

namespace windlass::winarm64 {

using prologue::Directive;
using prologue::ImageRelative;

// The two low bits of an entry's second word.
enum class EntryKind : std::uint8_t {
  kRecord = 0,          // the RVA of an .xdata record
  kPacked = 1,          // a function in canonical form
  kPackedFragment = 2,  // a part of one, without prologue and epilogue
  kParent = 3,          // the RVA of another entry. The page calls it reserved; .NET reads it so where bit 2 is 0
};

// IMAGE_ARM64_RUNTIME_FUNCTION_ENTRY.
struct RuntimeFunction {
  std::uint32_t begin = 0;  // RVA
  std::uint32_t data = 0;
  bool operator==(const RuntimeFunction&) const = default;

  [[nodiscard]] EntryKind kind() const { return static_cast<EntryKind>(data & 3); }
  [[nodiscard]] bool packed() const { return kind() == EntryKind::kPacked || kind() == EntryKind::kPackedFragment; }
  // Of the .xdata record, or of the parent's entry.
  [[nodiscard]] std::uint32_t target() const { return data & ~std::uint32_t{3}; }
};

// ---- bytes --------------------------------------------------------------------------------------------------------

enum class Fragments : std::uint8_t {
  kNever,       // a function that needs them is an error
  kWhenNeeded,  // parts, and more code, epilogues or unwind codes than a record holds
  kWhenSmaller  // also where packed entries replace a record, or where a prologue pauses for long
};

struct WriteOptions {
  std::uint32_t function = 0;  // RVA of the function's first byte, a multiple of 4
  std::uint32_t info = 0;      // RVA at which the bytes will stand, a multiple of 4
  Fragments fragments = Fragments::kWhenNeeded;
  bool leaf_entries = false;  // an entry even for what does nothing to the frame, so that a look-up finds its begin
};

struct Written {
  // For the function table, ascending. `data` holds info + an offset among the bytes where it is not packed. None where
  // there is nothing to say: a leaf needs no entry.
  std::vector<RuntimeFunction> entries = {};
  std::vector<std::byte> bytes = {};            // .xdata records, each at a multiple of 4; equal ones are shared
  std::vector<ImageRelative> relocations = {};  // of handlers
};

// The shortest information whose unwinding is what rows_of(prologue) says, at every instruction.
// Thread-safe; not for signal handlers. Errors: those of check(); kUnsupported another architecture, what has no unwind
// code, or an epilogue whose last instruction takes something back (a record has it undo nothing) before the end of its
// fragment; kMalformed an instruction that does not end at a multiple of 4, two ops in one instruction of a prologue,
// registers that are no pair, sizes that are no multiple of their units; kOutOfRange offsets and sizes that no one
// instruction or code can hold; kLimit what `fragments` forbids, and what no fragment can hold. The sentence is the
// rule; `where` is the offset into the code, `detail` the register (in its file), size or offset. Allocates; linear in
// the ops and epilogues but for the sharing of codes, which compares those of different epilogues.
[[nodiscard]] Expected<Written> write(const Prologue& prologue, const WriteOptions& options = {});

// Many functions with one run of bytes: equal records are written once.
// Records say how long their function is, so that those of equal functions are equal; chunks of one length have one
// record. Object files: functions whose handlers differ need handlers of different RVAs, to be told apart by. As
// thread-safe as a std::vector.
class Writer {
 public:
  // `options.function` is not looked at.
  explicit Writer(const WriteOptions& options = {}) : options_(options) {}

  // A function of which `function` is the RVA. Errors as write()'s; then nothing has been added. Logarithmic in the
  // records there are, besides.
  [[nodiscard]] Expected<void> add(const Prologue& prologue, std::uint32_t function);

  // All so far; entries in the order in which functions were added.
  [[nodiscard]] const Written& written() const { return written_; }
  [[nodiscard]] Written take() && { return std::move(written_); }

 private:
  Expected<void> add_pieces(const Prologue& prologue);

  WriteOptions options_;
  std::uint32_t functions_ = 0;
  Written written_;
  std::map<std::vector<std::byte>, std::uint32_t> records_;  // to where they stand among the bytes
};

// ---- assembly -----------------------------------------------------------------------------------------------------

enum class Assembler : std::uint8_t {
  kClang,     // LLVM's .seh_ directives, each behind its instruction
  kArmasm64,  // Microsoft's, with the macros of ksarm64.h: PROLOG_..., EPILOG_..., which make the instructions too
};

struct AssemblyOptions {
  Assembler assembler = Assembler::kClang;
  std::string name = "function";  // of the function
  std::string section = ".text";  // that its code is in
  std::string handler = {};       // symbol, where the prologue has a handler, whose RVA is then not looked at
};

// From the procedure's first line on to its last, ascending by offset; none for a leaf without a handler. Clang wants
// the function's label besides. Lines of armasm64 that end in PROLOG_NOP, PROLOG_SAVE_NEXT_PAIR, EPILOG_NOP,
// EPILOG_RESTORE_NEXT_PAIR or EPILOG_END want the instruction that they replace behind them.
// Errors: as write(); kUnsupported for what the assembler cannot say: parts (clang cuts long functions itself); for
// armasm64 also x29 set other than right behind `stp x29,lr`, sp from x29 with an offset, a single register stored with
// sp moved unless it is x19 or d8 (the macros' codes for others are wrong), a handler with data, allocations that no
// `sub` can do; kLimit: more than its four epilogues. assembly_of() writes these as data.
[[nodiscard]] Expected<std::vector<Directive>> directives_of(const Prologue& prologue, const AssemblyOptions& options);

// A whole source text: sections, the function with its code as words, its unwind information as directives, or as data
// where there are none for it. `code` is prologue.code_size bytes (kMalformed otherwise).
[[nodiscard]] Expected<std::string> assembly_of(const Prologue& prologue, std::span<const std::byte> code,
                                                const AssemblyOptions& options);

// ---- for people ---------------------------------------------------------------------------------------------------

// One .xdata record as CoreCLR's checked JIT prints it (DOTNET_JitUnwindDump), for a method from `begin` to `end` in
// its code. Errors, `where` an offset in the record: those of reading it; kUnsupported for codes that the JIT does not
// write (save_any_reg, those of SVE and of system frames). Linear; allocates the text.
[[nodiscard]] Expected<std::string> jit_unwind_dump(std::span<const std::byte> record, std::uint32_t begin,
                                                    std::uint32_t end);

}  // namespace windlass::winarm64
