// Writes SFrame stack trace information from a Prologue or from rows: a section .sframe of version 3 or 2, for x86-64
// and AArch64. SFrame tells the caller's CFA, return address and frame pointer, and no other register. So stacks can be
// walked by SFrame, but exceptions cannot be thrown. To read SFrame: unwind_info.h. Specification: "The SFrame format",
// version 3 of February 2026, and version 2 with errata 1 (GNU binutils).
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
// The section:
//
//   sframe::Writer writer({.address = where_the_bytes_will_stand});
//   writer.add(f, code);
//   const auto section = std::move(writer).take();
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "windlass/error.h"
#include "windlass/frame_row.h"
#include "windlass/prologue.h"
#include "windlass/registers.h"

namespace windlass::sframe {

// The version of the format.
enum class Version : std::uint8_t {
  k2 = 2,  // Functions at most 2 GiB away. Rows count from the stack and the frame pointer only. No signal frames.
  k3 = 3,  // Any distance. A function whose rows need other registers is of the flexible type, with registers in its
           // rows.
};

// Options of a Writer.
struct WriteOptions {
  Architecture architecture = Architecture::kX86_64;  // Or kAArch64.
  Version version = Version::k3;
  std::uint64_t address = 0;  // Where the bytes will stand.
  bool b_key = false;         // AArch64: pacibsp signs return addresses, not paciasp.
};

// Writes a section of many functions. As thread-safe as a std::vector; not for signal handlers.
class Writer {
 public:
  explicit Writer(const WriteOptions& options = {}) : options_(options) {}

  // Adds a function at `address` whose rows are rows_of(prologue), at every instruction. Of the rows, the CFA, the
  // return address and the frame pointer are written. Handlers are not written. Linear in the rows. After an error
  // nothing has been added.
  //
  // Errors: those of rows_of(). Also:
  // - kUnsupported: another architecture than that of the options.
  // - kUnsupported: a row that the version cannot express. The text names the reason, `where` is the row's begin,
  //   `detail` the register.
  // - kLimit: 4 GiB of code or of rows, or in version 3 65,535 rows.
  //
  // No version can express rules by expressions, a CFA loaded from memory and added to, or a frame pointer that is lost
  // or counts from the CFA. Version 2 also cannot express registers other than sp and the frame pointer, or signal
  // frames.
  [[nodiscard]] Expected<void> add(const Prologue& prologue, std::uint64_t address);
  // Adds a function by its rows, ascending and adjoining. The first row begins where the function begins, whatever
  // addresses the rows have. kMalformed for rows that do not adjoin, and for no rows.
  [[nodiscard]] Expected<void> add(std::span<const FrameRow> rows, std::uint64_t address);

  // Returns the section with all functions, sorted by address. Time: n log n. Errors, with a function's address:
  // kMalformed for two functions that overlap; kOutOfRange for a function beyond the reach of version 2.
  [[nodiscard]] Expected<std::vector<std::byte>> take() &&;

 private:
  struct Added {
    std::uint64_t address;
    std::uint32_t size;    // Of its code.
    std::uint32_t rows;    // How many.
    std::uint32_t offset;  // Of the first row in rows_. Version 3: of the facts about all rows, which stand before the
                           // first.
    std::uint8_t info;
  };
  WriteOptions options_;
  std::vector<Added> functions_;
  std::vector<std::byte> rows_;
  std::uint32_t row_count_ = 0;
};

}  // namespace windlass::sframe
