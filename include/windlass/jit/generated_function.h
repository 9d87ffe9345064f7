// A function that was made at run time, as its code generator knows it. Registrars (jit/registration.h) and code
// managers (jit/code_manager.h) take the same description.
//
// For example:
//
//   const GeneratedFunction f{.address = code, .size = 40, .name = "add", .prologue = &prologue};
//
// A value without state.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "windlass/frame_row.h"
#include "windlass/prologue.h"

namespace windlass {

// A place in the source: valid from `offset` into the code up to the next line's offset.
struct GeneratedLine {
  std::uint32_t offset = 0;
  std::string_view file = {};
  std::uint32_t line = 0;
};

// The memory behind pointers, spans and views is read during a call only.
struct GeneratedFunction {
  std::uint64_t address = 0;  // The address of the first byte.
  std::uint64_t size = 0;     // Bytes of code: less than 2 GiB.
  std::string_view name = {};
  std::uint32_t user = 0;  // The runtime's own number. A CodeManager keeps it, and registrars do not.
  // How the function unwinds, in one of two forms. The first form: rows at offsets from the begin of the function,
  // ascending, disjoint, within its size.
  //
  // Registrars need rows for all of the code, without gaps. There, the first row may begin at any address, and the
  // others count from it. In a CodeManager, code without rows is followed.
  std::span<const FrameRow> rows = {};
  // The second form: a description.
  const Prologue* prologue = nullptr;
  // For exceptions. On ELF: the personality routine, and the data that it finds by _Unwind_GetLanguageSpecificData().
  // On Windows `personality` is the EXCEPTION_ROUTINE. It is called in both passes, unless the prologue has a handler
  // that says otherwise.
  std::uint64_t personality = 0;
  std::uint64_t language_data = 0;
  std::span<const GeneratedLine> lines = {};  // Ascending by offset.
};

}  // namespace windlass
