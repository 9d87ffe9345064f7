// An FDE as a Function.
#pragma once

#include "formats/dwarf/cfi.h"
#include "lookup/sources/unwind_source.h"

namespace windlass::sources {

[[nodiscard]] inline Pointer pointer_of(const std::optional<dwarf::EncodedPointer>& pointer) {
  return pointer ? Pointer{pointer->value, pointer->indirect} : Pointer{};
}

// `fde`, with its CIE, of the source's section `number`.
[[nodiscard]] inline Function function_of(const dwarf::CfiSection& section, std::uint32_t number,
                                          const dwarf::Fde& fde) {
  Function function;
  function.begin = function.primary = fde.begin;
  function.end = fde.end;
  function.personality = pointer_of(fde.cie->personality);
  function.language_data = pointer_of(fde.lsda);
  function.on_exception = function.on_termination = function.personality.address != 0;
  function.signal_frame = fde.cie->signal_frame;
  function.record = {number, fde.offset, section.address != 0 ? section.address + fde.offset : 0};
  function.text_base = section.text_address;
  function.data_base = section.data_address;
  return function;
}

}  // namespace windlass::sources
