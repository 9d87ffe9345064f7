// SFrame stack trace information written from a Prologue, or from rows of any origin: `.sframe` as bytes, of version 3
// or 2, for x86-64 and AArch64. It says where the CFA, the return address and the frame pointer of the caller are, and
// of other registers nothing: stacks can be walked with it, exceptions not thrown. What it is read by, unwind_info.h
// has. Source: "The SFrame format", version 3 of February 2026 and version 2 with errata 1 (GNU binutils).
//
//   Prologue f{.architecture = Architecture::kX86_64, .code_size = 40};
//   f.ops = {{1, prologue::push(6)}, {4, prologue::SetFramePointer{6}}};   // push rbp; mov rbp, rsp
//   f.epilogues = {mirrored(f, 37)};                                       // mov rsp, rbp; pop rbp; ret
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

enum class Version : std::uint8_t {
  k2 = 2,  // functions at most 2 GiB away, rows from the stack and the frame pointer only, no signal frames
  k3 = 3,  // any distance; a function whose rows need it is of the flexible type, which has registers in its rows
};

struct WriteOptions {
  Architecture architecture = Architecture::kX86_64;  // or kAArch64
  Version version = Version::k3;
  std::uint64_t address = 0;  // at which the bytes will stand
  bool b_key = false;         // AArch64: return addresses are signed by pacibsp, not by paciasp
};

// A section of many functions. As thread-safe as a std::vector; not for signal handlers.
class Writer {
 public:
  explicit Writer(const WriteOptions& options = {}) : options_(options) {}

  // A function at `address` whose rows are rows_of(prologue), at every instruction, as far as they are about the CFA,
  // the return address and the frame pointer. Handlers are not said. Linear in the rows. Errors: those of rows_of();
  // kUnsupported another architecture than the options', and what the version cannot say, which the sentence names
  // (`where`: the row's begin; `detail`: the register): rules by expressions, a CFA loaded from memory and added to, a
  // frame pointer that is lost or counts from the CFA; in version 2 also other registers than sp and fp, and signal
  // frames. kLimit: 4 GiB of code or of rows; in version 3 65,535 rows. Then nothing has been added.
  [[nodiscard]] Expected<void> add(const Prologue& prologue, std::uint64_t address);
  // The same of a function's rows, ascending and adjoining (kMalformed otherwise, and without any); they begin where
  // the function begins, whatever address that has in them.
  [[nodiscard]] Expected<void> add(std::span<const FrameRow> rows, std::uint64_t address);

  // The section: all so far, sorted by address. n log n. Errors, with the function's address: kMalformed two that
  // overlap; kOutOfRange one farther away than version 2 reaches.
  [[nodiscard]] Expected<std::vector<std::byte>> take() &&;

 private:
  struct Added {
    std::uint64_t address;
    std::uint32_t size;    // of its code
    std::uint32_t rows;    // how many
    std::uint32_t offset;  // of the first one in rows_; version 3: of what is said of all of them, in front of it
    std::uint8_t info;
  };
  WriteOptions options_;
  std::vector<Added> functions_;
  std::vector<std::byte> rows_;
  std::uint32_t row_count_ = 0;
};

}  // namespace windlass::sframe
