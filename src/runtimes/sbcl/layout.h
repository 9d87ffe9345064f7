// Where an SBCL keeps its objects, by its exported variables.
//
// SBCL 2.2.9: src/runtime/code.h, src/runtime/globals.h, src/compiler/generic/objdef.lisp, early-objdef.lisp.
#pragma once

#include <cstdint>

#include "windlass/error.h"
#include "windlass/walk.h"

namespace windlass::runtimes::sbcl {

// Lisp's pointers have a tag in their low four bits. An object begins with a word whose low byte is its kind.
inline constexpr std::uint64_t kTagMask = 15;
inline constexpr std::uint64_t kListTag = 7, kInstanceTag = 3, kObjectTag = 15;

struct Layout {
  std::uint64_t routines_begin = 0, routines_end = 0;  // of the assembler: code without the frames of Lisp
  std::uint64_t packages = 0;                          // the variable that points to the vector of packages; 0: none
  std::uint8_t code_kind = 0;                          // of code objects

  // Of the image at an address. kUnreadable: Lisp is not loaded yet. kUnsupported: the image exports something else.
  [[nodiscard]] static Expected<Layout> read(const Memory& memory, std::uint64_t image);
};

}  // namespace windlass::runtimes::sbcl
