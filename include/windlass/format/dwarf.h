// Writes DWARF call frame information from a Prologue or from rows. The result is bytes for code made at run time
// (.eh_frame and .eh_frame_hdr), or .cfi_ directives for an assembler. Specifications: DWARF 5, sections 6.4 and 7.24;
// LSB 5.0, "Exception frames" (sections 10.5 and 10.6); AADWARF64, section 4.
//
// For example, for a function that does push rbp; mov rbp, rsp:
//
//   Prologue f{.architecture = Architecture::kX86_64, .code_size = 40};
//   f.ops = {{1, prologue::push(6)}, {4, prologue::SetFramePointer{6}}};
//
// It ends with mov rsp, rbp; pop rbp; ret:
//
//   f.epilogues = {mirrored(f, 37)};
//
// The bytes, for __register_frame() or for a file:
//
//   dwarf::Writer writer({.address = where_the_bytes_will_stand});
//   writer.add(f, {.address = code});
//   const dwarf::Written written = std::move(writer).take();
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
#include "windlass/frame_row.h"
#include "windlass/prologue.h"

namespace windlass::dwarf {

using prologue::Directive;

// ---- bytes --------------------------------------------------------------------------------------------------------

// How records store the addresses of code and handlers.
enum class Pointers : std::uint8_t {
  kRelative,  // 4 bytes, relative to the place of the address (DW_EH_PE_pcrel | DW_EH_PE_sdata4), as compilers do.
  kAbsolute,  // 8 bytes: for code at any distance.
};

// The units of advances and offsets. Readers take any unit. This option exists to make the bytes that an assembler
// makes.
enum class Factors : std::uint8_t {
  kBinutils,  // Code: 1 byte, on AArch64 4. Stack: -8 bytes.
  kLlvm,      // Code: 1 byte. Stack: -8 bytes, on AArch64 -4.
};

// Options of a Writer.
struct WriteOptions {
  Architecture architecture = Architecture::kX86_64;  // Or kAArch64.
  std::uint64_t address = 0;                          // Where the bytes will stand, a multiple of 8.
  Pointers pointers = Pointers::kRelative;
  Factors factors = Factors::kBinutils;
  bool b_key = false;  // AArch64: pacibsp signs return addresses, not paciasp.
};

// The addresses that belong to a function. 0: none.
struct Place {
  std::uint64_t address = 0;        // The first byte of the function.
  std::uint64_t personality = 0;    // The personality routine, for example __gxx_personality_v0.
  std::uint64_t language_data = 0;  // The data that the routine finds by _Unwind_GetLanguageSpecificData().
};

// An FDE, as a sorted table refers to it.
struct WrittenFunction {
  std::uint64_t address = 0;
  std::uint32_t fde = 0;  // The FDE's offset among the bytes.
};

// The result of a Writer.
struct Written {
  std::uint64_t address = 0;  // Where the bytes will stand.
  // CIEs and FDEs of the 32-bit form, each a multiple of 4 bytes, and a terminator.
  std::vector<std::byte> bytes = {};
  std::vector<WrittenFunction> functions = {};  // In the order in which they were added.
};

// Writes the records of many functions into a run of bytes. Functions with equal CIEs share a CIE. A function that
// does nothing to the frame has an FDE too: without an FDE, an unwinder finds no function. As thread-safe as a
// std::vector; not for signal handlers.
class Writer {
 public:
  explicit Writer(const WriteOptions& options = {});

  // Adds a function whose rows are rows_of(prologue), at every instruction. Linear in the rows. After an error nothing
  // has been added.
  //
  // The data of a handler stands at `language_data`, where the caller puts it. The handler's RVA is ignored, and DWARF
  // calls handlers in both passes.
  //
  // Errors: those of rows_of(). Also:
  // - kUnsupported: another architecture than that of the options.
  // - kMalformed: a handler without a personality.
  // - kOutOfRange: a pointer beyond the reach of four bytes.
  // - kLimit: 2 GiB of bytes.
  [[nodiscard]] Expected<void> add(const Prologue& prologue, const Place& place);
  // Adds a function by its rows, ascending and adjoining. The first row begins where the function begins, whatever
  // addresses the rows have. kMalformed for rows that do not adjoin, and for no rows. kUnsupported for an address
  // within an instruction.
  [[nodiscard]] Expected<void> add(std::span<const FrameRow> rows, const Place& place);

  // Returns all that was added so far.
  [[nodiscard]] Written take() &&;

 private:
  // The parts that differ between CIEs.
  struct Common {
    std::uint64_t personality;
    bool language_data, signal_frame;
    auto operator<=>(const Common&) const = default;
  };
  [[nodiscard]] Expected<std::uint32_t> common(const Common& wanted);
  [[nodiscard]] Expected<void> pointer(std::uint64_t target);
  void pad(std::size_t record);
  [[nodiscard]] Expected<void> record(std::span<const FrameRow> rows, const Place& place);

  WriteOptions options_;
  Written written_;
  std::map<Common, std::uint32_t> commons_;  // To their offsets.
};

// Writes .eh_frame_hdr, which will stand at `address`: the table by which unwinders search `written` in logarithmic
// time. kOutOfRange if bytes or functions are farther away than 2 GiB. Time: n log n.
[[nodiscard]] Expected<std::vector<std::byte>> eh_frame_hdr(const Written& written, std::uint64_t address);

// ---- assembly -----------------------------------------------------------------------------------------------------

// Names for the text of an assembler.
struct AssemblyOptions {
  std::string name = "function";  // Of the function.
  std::string section = ".text";  // The section of the code.
  std::string personality = {};   // A symbol, if the prologue has a handler. Referred to by DW.ref.<symbol>, as GCC
                                  // does.
  bool b_key = false;             // As in WriteOptions.
};

// The directives of a function, .cfi_startproc to .cfi_endproc, ascending by offset: for binutils and LLVM. Apart from
// the padding of records, an assembler makes the same bytes as Writer.
//
// The text of a handler refers to DW.ref.<personality> and to <name>_language_data, which assembly_of() defines. Errors
// as Writer::add(); also kMalformed if a needed name is empty.
[[nodiscard]] Expected<std::vector<Directive>> directives_of(const Prologue& prologue, const AssemblyOptions& options);

// A whole source file for ELF: the function with its code as data, its directives, and the data of a handler.
// kMalformed unless `code` is prologue.code_size bytes.
[[nodiscard]] Expected<std::string> assembly_of(const Prologue& prologue, std::span<const std::byte> code,
                                                const AssemblyOptions& options);

}  // namespace windlass::dwarf
