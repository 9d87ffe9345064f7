// Where the runtime of OCaml 5 in a Windows program changes stacks. OCaml's code runs on a stack of its own, and C on
// the thread's. Each call between the two is made by hand-written code of the runtime, which keeps the way back:
//
// - A call of C (caml_c_call, caml_call_gc) keeps OCaml's rsp in a word of C's stack.
// - A call of OCaml (caml_start_program, caml_callback_asm) keeps C's rsp in a word of OCaml's stack.
// - A fiber (caml_runstack) leads to the stack that started it by its handler.
//
// The code is read, so that offsets of another release are right, too. Found by the symbols of that code.
//
// OCaml: runtime/amd64.S, runtime/caml/stack.h (struct c_stack_link), runtime/caml/fiber.h.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "formats/dwarf/encode.h"
#include "formats/image/pe.h"
#include "windlass/frame_row.h"

namespace windlass::sources {

// Immutable once read; look-ups do not allocate.
class OcamlStacks {
 public:
  OcamlStacks() = default;
  OcamlStacks(OcamlStacks&&) = default;
  OcamlStacks& operator=(OcamlStacks&&) = default;

  // None, if the image is of another language or release, or its code is another one. Linear in the symbols.
  [[nodiscard]] static OcamlStacks read(const image::PeImage& image);

  // The row of code that runs on another stack than its caller's; null elsewhere. An address of a call is that of its
  // last byte.
  [[nodiscard]] const FrameRow* row_at(std::uint64_t rva) const {
    for (const FrameRow& row : rows_)
      if (rva >= row.begin && rva < row.end) return &row;
    return nullptr;
  }
  // Ascending, by RVA.
  [[nodiscard]] std::span<const FrameRow> rows() const { return rows_; }

 private:
  std::vector<FrameRow> rows_;
  dwarf::Block expressions_;  // of the rows
};

}  // namespace windlass::sources
