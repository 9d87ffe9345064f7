// Windows x64 unwind information written from a Prologue: bytes for code made at run time or for an object file, or
// directives for an assembler. Sources: "x64 exception handling" (Microsoft); for version 2 LLVM and .NET's unwinder.
//
//   Prologue f{.code_size = 20, .ops = {{1, prologue::push(3)}, {5, prologue::Allocate{32}}}};
//   const auto written = winx64::write(f, {.function = 0x1000, .info = 0x2000});
//   // written->entries: {0x1000, 0x1014, 0x2000}; written->bytes: 01 05 02 00 05 32 01 30
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

namespace windlass::winx64 {

using prologue::Directive;
using prologue::ImageRelative;

// RUNTIME_FUNCTION. RVAs; `end` is one past the last byte.
struct RuntimeFunction {
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
  std::uint32_t info = 0;
  bool operator==(const RuntimeFunction&) const = default;

  // Bit 0 of UnwindData: not an UNWIND_INFO but the RVA of another RUNTIME_FUNCTION, whose information holds for this
  // range too (RUNTIME_FUNCTION_INDIRECT of winnt.h; the page does not mention it).
  [[nodiscard]] bool indirect() const { return (info & 1) != 0; }
};

// ---- bytes --------------------------------------------------------------------------------------------------------

struct WriteOptions {
  std::uint8_t version = 1;  // 2 describes the epilogues too; Windows finds those of 1 by decoding instructions
  // Saved registers keep their values until the prologue's end (all compilers' do), so the code of a save may stand at
  // a later offset than the save: one to the home area, before rsp has arrived, gets the offset at which it has, as
  // MSVC does.
  bool saves_can_wait = false;
  std::uint32_t function = 0;  // RVA of the function's first byte
  std::uint32_t info = 0;      // RVA at which the bytes will stand, a multiple of 4
};

struct Written {
  // For the function table, ascending. None where there is nothing to say: a leaf needs no entry, and spans without a
  // frame around parts that have one are best left without (unwinders then find the return address at rsp).
  std::vector<RuntimeFunction> entries = {};
  std::vector<std::byte> bytes = {};  // UNWIND_INFOs, each at a multiple of 4; equal ones are shared
  std::vector<ImageRelative> relocations = {};
};

// The shortest information whose unwinding is what rows_of(prologue) says, at every instruction.
// Parts, and the code behind them, become entries chained to the function's. What is pushed or saved behind a frame
// pointer is written as saved at a distance from it, below it too.
// `code`: the function's, if it is at hand; unwinders of version 1 find epilogues by their instructions, and an exit
// that they do not take for one (a jump to a register, or back into the function) gets entries in which they need not.
// Without the code, whatever is short enough is taken for an exit that they know.
// Thread-safe; not for signal handlers. Errors: those of check(); kOutOfRange, kUnsupported or kMalformed where the
// format cannot say it. The sentence is the rule; `where` is the offset into the code, `detail` the register (by DWARF
// number), size or displacement. Allocates; linear in the ops but for saves, which are compared with all that follows
// them.
[[nodiscard]] Expected<Written> write(const Prologue& prologue, const WriteOptions& options = {},
                                      std::span<const std::byte> code = {});

// Many functions with one run of bytes: equal UNWIND_INFOs are written once, so that thousands
// of functions of a few shapes (interpreters, builtins, stubs) take little more than their entries.
// Chained entries are shared by nobody, as they name their function.
// Object files: functions whose handlers differ need handlers of different RVAs, to be told apart by.
// As thread-safe as a std::vector.
class Writer {
 public:
  // `options.function` is not looked at.
  explicit Writer(const WriteOptions& options = {}) : options_(options) {}

  // A function of which `function` is the RVA; `code` as write()'s. Errors as write()'s; then nothing has been added.
  // Logarithmic in the records there are, besides.
  [[nodiscard]] Expected<void> add(const Prologue& prologue, std::uint32_t function,
                                   std::span<const std::byte> code = {});

  // All so far; entries in the order in which functions were added.
  [[nodiscard]] const Written& written() const { return written_; }
  [[nodiscard]] Written take() && { return std::move(written_); }

 private:
  Expected<void> add_pieces(const Prologue& prologue, std::span<const std::byte> code);

  WriteOptions options_;
  std::uint32_t functions_ = 0;
  Written written_;
  std::map<std::vector<std::byte>, std::uint32_t> records_;  // to where they stand among the bytes
};

// ---- assembly -----------------------------------------------------------------------------------------------------

enum class Assembler : std::uint8_t {
  kGas,    // binutils: .seh_ directives, version 1
  kClang,  // LLVM's: the same and version 2
  kMasm,   // ml64, llvm-ml, UASM: PROC FRAME and its directives, version 1
};

struct AssemblyOptions {
  Assembler assembler = Assembler::kGas;
  std::uint8_t version = 1;
  bool saves_can_wait = false;    // as in WriteOptions
  std::string name = "function";  // of the function
  std::string section = ".text";  // that its code is in; MASM: of the kind of .CODE
  std::string handler = {};       // symbol, where the prologue has a handler, whose RVA is then not looked at
};

// `code` as write()'s. From the procedure's first line on to its last, ascending by offset; none for a leaf without a
// handler. GAS and clang want the function's label besides. Errors: as write(); kUnsupported for what the assembler has
// no directive for: parts, version 2 but for clang, and for MASM a handler of one pass only or with data. assembly_of()
// writes these as data.
[[nodiscard]] Expected<std::vector<Directive>> directives_of(const Prologue& prologue, const AssemblyOptions& options,
                                                             std::span<const std::byte> code = {});

// A whole source text: sections, the function with its code as bytes, its unwind information as directives, or as data
// where there are none for it. `code` is prologue.code_size bytes (kMalformed otherwise).
[[nodiscard]] Expected<std::string> assembly_of(const Prologue& prologue, std::span<const std::byte> code,
                                                const AssemblyOptions& options);

// ---- for people ---------------------------------------------------------------------------------------------------

// One UNWIND_INFO of version 1 or 2 as CoreCLR's checked JIT prints it (DOTNET_JitUnwindDump), for a method from
// `begin` to `end` in its code. Errors, `where` an offset in the information: those of reading it; kUnsupported for
// version 3. Linear; allocates the text.
[[nodiscard]] Expected<std::string> jit_unwind_dump(std::span<const std::byte> info, std::uint32_t begin,
                                                    std::uint32_t end);

}  // namespace windlass::winx64
