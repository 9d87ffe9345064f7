// DWARF call frame information written from a Prologue, or from rows of any origin: `.eh_frame` and `.eh_frame_hdr` as
// bytes for code made at run time, or .cfi_ directives for an assembler.
// Sources: DWARF 5 sections 6.4 and 7.24; LSB 5.0 "Exception frames" (sections 10.5 and 10.6); AADWARF64 section 4.
//
//   Prologue f{.architecture = Architecture::kX86_64, .code_size = 40};
//   f.ops = {{1, prologue::push(6)}, {4, prologue::SetFramePointer{6}}};   // push rbp; mov rbp, rsp
//   f.epilogues = {mirrored(f, 37)};                                       // mov rsp, rbp; pop rbp; ret
//   dwarf::Writer writer({.address = where_the_bytes_will_stand});
//   writer.add(f, {.address = code});
//   const dwarf::Written written = std::move(writer).take();               // for __register_frame(), or a file
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "windlass/error.h"
#include "windlass/frame_row.h"
#include "windlass/prologue.h"
#include "windlass/written.h"

namespace windlass::dwarf {

using prologue::Directive;

// ---- bytes --------------------------------------------------------------------------------------------------------

// How the records refer to code and to handlers.
enum class Pointers : std::uint8_t {
  kRelative,  // 4 bytes, from where they stand (DW_EH_PE_pcrel | DW_EH_PE_sdata4), as compilers do
  kAbsolute,  // 8 bytes: code at any distance
};

// What advances and offsets count in. Readers take any; it is here to make what an assembler makes.
enum class Factors : std::uint8_t {
  kBinutils,  // bytes of code, 4 on AArch64; -8 bytes of stack
  kLlvm,      // bytes of code; -8 bytes of stack, -4 on AArch64
};

struct WriteOptions {
  Architecture architecture = Architecture::kX86_64;  // or kAArch64
  std::uint64_t address = 0;                          // at which the bytes will stand, a multiple of 8
  Pointers pointers = Pointers::kRelative;
  Factors factors = Factors::kBinutils;
  bool b_key = false;  // AArch64: return addresses are signed by pacibsp, not by paciasp
};

// Where a function stands, and who handles its exceptions. All are addresses; 0: none.
struct Place {
  std::uint64_t address = 0;        // of its first byte
  std::uint64_t personality = 0;    // the routine, as __gxx_personality_v0
  std::uint64_t language_data = 0;  // what that finds by _Unwind_GetLanguageSpecificData()
};

// An FDE, as a sorted table refers to it.
struct WrittenFunction {
  std::uint64_t address = 0;
  std::uint32_t fde = 0;  // its offset among the bytes
};

struct Written {
  std::uint64_t address = 0;          // of the bytes
  std::vector<std::byte> bytes = {};  // CIEs and FDEs of the 32-bit form, each a multiple of 4 bytes, and a terminator
  std::vector<WrittenFunction> functions = {};  // in the order in which they were added
};

// One run of bytes for many functions. Functions of equal CIEs share one; those that do nothing to the frame have their
// FDE, too, as without one an unwinder finds no function. As thread-safe as a std::vector; not for signal handlers.
class Writer {
 public:
  explicit Writer(const WriteOptions& options = {});

  // A function whose rows are rows_of(prologue), at every instruction. Linear in the rows.
  // Of a handler its data is the caller's to place, at `language_data`; its RVA is not looked at, and DWARF asks
  // handlers in both passes. Errors: those of rows_of(); kUnsupported another architecture than the options';
  // kMalformed a handler without a personality; kOutOfRange a pointer that four bytes do not reach; kLimit 2 GiB of
  // bytes. Then nothing has been added.
  [[nodiscard]] Expected<void> add(const Prologue& prologue, const Place& place);
  // The same of a function's rows, ascending and adjoining; they begin where the function begins, whatever address that
  // has in them (kMalformed otherwise, and without any row). kUnsupported: an address within an instruction.
  [[nodiscard]] Expected<void> add(std::span<const FrameRow> rows, const Place& place);

  // All so far.
  [[nodiscard]] Written take() &&;

 private:
  // What tells CIEs apart.
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
  std::map<Common, std::uint32_t> commons_;  // to their offsets
};

// The table by which unwinders search `written` in logarithmic time: `.eh_frame_hdr`, which will stand at `address`.
// kOutOfRange: bytes or functions farther away than 2 GiB. n log n.
[[nodiscard]] Expected<std::vector<std::byte>> eh_frame_hdr(const Written& written, std::uint64_t address);

// ---- assembly -----------------------------------------------------------------------------------------------------

struct AssemblyOptions {
  std::string name = "function";  // of the function
  std::string section = ".text";  // that its code is in
  std::string personality = {};   // symbol, where the prologue has a handler; by way of DW.ref.<symbol>, as GCC has it
  bool b_key = false;             // as WriteOptions'
};

// .cfi_startproc to .cfi_endproc, ascending by offset, for binutils and LLVM alike. The text of a handler refers to
// DW.ref.<personality> and to <name>_language_data, which assembly_of() defines. What they make of it is, but for the
// padding of records, what Writer writes. Errors as Writer::add()'s, and kMalformed without the names it needs.
[[nodiscard]] Expected<std::vector<Directive>> directives_of(const Prologue& prologue, const AssemblyOptions& options);

// A whole source text for ELF: the function with its code as data, its directives, a handler's data. `code` is
// prologue.code_size bytes (kMalformed otherwise).
[[nodiscard]] Expected<std::string> assembly_of(const Prologue& prologue, std::span<const std::byte> code,
                                                const AssemblyOptions& options);

}  // namespace windlass::dwarf
