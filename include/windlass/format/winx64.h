// Writes Windows x64 unwind information from a Prologue: bytes for code made at run time or for an object file, or
// directives for an assembler. Specifications: "x64 exception handling" (Microsoft); for version 2, LLVM and .NET's
// unwinder; for version 3, "x64 unwind information v3" (Microsoft), a preview.
//
// For example:
//
//   Prologue f{.code_size = 20, .ops = {{1, prologue::push(3)}, {5, prologue::Allocate{32}}}};
//   const auto written = winx64::write(f, {.function = 0x1000, .info = 0x2000});
//
// Then written->entries is {0x1000, 0x1014, 0x2000}. And written->bytes is 01 05 02 00 05 32 01 30.
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

namespace windlass::winx64 {

using prologue::Directive;
using prologue::ImageRelative;

// RUNTIME_FUNCTION: RVAs. `end` is the byte behind the last.
struct RuntimeFunction {
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
  std::uint32_t info = 0;
  bool operator==(const RuntimeFunction&) const = default;

  // True if bit 0 of UnwindData is set. `info` then leads to another RUNTIME_FUNCTION, not to an UNWIND_INFO. The
  // information of that entry holds for this range too. (RUNTIME_FUNCTION_INDIRECT of winnt.h; the specification does
  // not mention it.)
  [[nodiscard]] bool indirect() const { return (info & 1) != 0; }
};

// ---- bytes --------------------------------------------------------------------------------------------------------

// Options of write() and Writer.
struct WriteOptions {
  // 2 and 3 describe the epilogues too. 3 is a preview of Microsoft's, which few systems know. For 1, Windows finds
  // epilogues by decoding instructions.
  std::uint8_t version = 1;
  // Saved registers keep their values until the prologue's end, as in the code of all compilers. So the unwind code of
  // a save may have a later offset than the save. A save to the home area before rsp has arrived gets the offset at
  // which rsp arrives, as with MSVC.
  bool saves_can_wait = false;
  std::uint32_t function = 0;  // RVA of the function's first byte.
  std::uint32_t info = 0;      // RVA at which the bytes will stand, a multiple of 4.
};

// The result: entries for the function table, and the bytes of the unwind information.
struct Written {
  // For the function table, ascending. None if there is nothing to tell: a leaf needs no entry. The same holds for
  // spans without a frame around parts that have a frame: unwinders then find the return address at rsp.
  std::vector<RuntimeFunction> entries = {};
  std::vector<std::byte> bytes = {};  // UNWIND_INFOs, each at a multiple of 4. Equal ones are shared.
  std::vector<ImageRelative> relocations = {};
};

// Writes the shortest information that unwinds as rows_of(prologue), at every instruction.
//
// Parts, and the code behind them, become entries chained to the function's entry. A register that is pushed or saved
// behind a frame pointer is written as saved at a distance from the frame pointer, also below it.
//
// Unwinders of version 1 find epilogues by their instructions. Some exits they do not recognise: for example a jump to
// a register, or back into the function. If `code` is given, the function's code, such exits get entries without need
// of recognition. Without `code`, everything that is short enough counts as an exit that unwinders recognise.
//
// Thread-safe; allocates, so not for signal handlers. Linear in the ops; each save is also compared with everything
// behind it.
//
// Errors: those of check(). Also kOutOfRange, kUnsupported or kMalformed if the format cannot express the prologue. The
// text is the broken rule. `where` is the offset into the code. `detail` is the register (DWARF number), size or
// displacement.
[[nodiscard]] Expected<Written> write(const Prologue& prologue, const WriteOptions& options = {},
                                      std::span<const std::byte> code = {});

// Calls behind which an epilogue follows at once, as offsets of the return addresses, ascending. At such an address
// Windows takes the frame for one that is being left. So the handler is not asked about exceptions from the call. The
// remedy is a nop behind the call, in front of `add rsp` or the pops. Compilers do so.
//
// For example, the code of a function with a handler: call f; add rsp, 40; ret. The result is the offset of the add.
// Empty without a handler, or if `code` is not prologue.code_size bytes. Thread-safe; allocates.
[[nodiscard]] std::vector<std::uint32_t> handlers_not_asked(const Prologue& prologue, std::span<const std::byte> code);

// Writes many functions with a run of bytes. Equal UNWIND_INFOs are written once. So thousands of functions of a few
// shapes (interpreters, builtins, stubs) take little more than their entries. Chained entries are not shared, as they
// name their function.
//
// For object files: functions with different handlers need different RVAs for their handlers. As thread-safe as a
// std::vector.
class Writer {
 public:
  // `options.function` is ignored.
  explicit Writer(const WriteOptions& options = {}) : options_(options) {}

  // Adds a function with the RVA `function`. `code` and errors as for write(). After an error nothing has been added.
  // Also logarithmic in the number of records.
  [[nodiscard]] Expected<void> add(const Prologue& prologue, std::uint32_t function,
                                   std::span<const std::byte> code = {});

  // Everything so far. Entries are in the order in which functions were added.
  [[nodiscard]] const Written& written() const { return written_; }
  [[nodiscard]] Written take() && { return std::move(written_); }

 private:
  Expected<void> add_pieces(const Prologue& prologue, std::span<const std::byte> code);

  WriteOptions options_;
  std::uint32_t functions_ = 0;
  Written written_;
  std::map<std::vector<std::byte>, std::uint32_t> records_;  // To their places among the bytes.
};

// ---- assembly -----------------------------------------------------------------------------------------------------

// The assembler for a text.
enum class Assembler : std::uint8_t {
  kGas,    // Binutils: .seh_ directives, version 1.
  kClang,  // LLVM: the same, and version 2.
  kMasm,   // MASM: ml64, llvm-ml, UASM: PROC FRAME and its directives, version 1.
};

// Options of directives_of() and assembly_of().
struct AssemblyOptions {
  Assembler assembler = Assembler::kGas;
  std::uint8_t version = 1;
  bool saves_can_wait = false;    // As in WriteOptions.
  std::string name = "function";  // Of the function.
  std::string section = ".text";  // The section of the code. MASM: of the kind of .CODE.
  std::string handler = {};       // A symbol, if the prologue has a handler. The handler's RVA is then ignored.
};

// The directives of a function, from the procedure's first line to its last, ascending by offset. None for a leaf
// without a handler. For GAS and clang, the caller also prints the function's label. `code` as for write().
//
// Errors: those of write(). kUnsupported if the assembler has no directive: parts; version 2 except with clang; for
// MASM a handler of one pass, or with data. assembly_of() writes these as data.
[[nodiscard]] Expected<std::vector<Directive>> directives_of(const Prologue& prologue, const AssemblyOptions& options,
                                                             std::span<const std::byte> code = {});

// A whole source file: sections, the function with its code as bytes, and its unwind information. This is directives,
// or data if there are no directives for it. kMalformed unless `code` is prologue.code_size bytes.
[[nodiscard]] Expected<std::string> assembly_of(const Prologue& prologue, std::span<const std::byte> code,
                                                const AssemblyOptions& options);

// ---- for people ---------------------------------------------------------------------------------------------------

// Prints an UNWIND_INFO of version 1 or 2 as CoreCLR's checked JIT does (DOTNET_JitUnwindDump). The method is at
// [begin, end) in its code. Linear; allocates. Errors, with an offset in the information as `where`: those of reading
// it; kUnsupported for version 3.
[[nodiscard]] Expected<std::string> jit_unwind_dump(std::span<const std::byte> info, std::uint32_t begin,
                                                    std::uint32_t end);

}  // namespace windlass::winx64
