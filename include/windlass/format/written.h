// Types that the writers of unwind information share: format/winx64.h, format/winarm64.h and format/dwarf.h.
#pragma once

#include <cstdint>
#include <string>

namespace windlass::prologue {

// A 32-bit RVA among written bytes, for which a writer of object files makes a relocation. The relocation is
// IMAGE_REL_AMD64_ADDR32NB or IMAGE_REL_ARM64_ADDR32NB, against the function, the unwind information or the handler. If
// all three RVAs are given as 0, the bytes hold the addends.
struct ImageRelative {
  enum class Base : std::uint8_t { kFunction, kInfo, kHandler } base = Base::kFunction;
  std::uint32_t at = 0;        // The offset among the bytes.
  std::uint32_t function = 0;  // Which function, counted in the order in which a Writer was given the functions.
};

// Lines of assembly that a code generator prints among its instructions. The lines belong behind the instruction that
// ends at `offset`. Some lines are macros that make the instructions themselves: then `replaces` says how many bytes
// before `offset` to leave out.
//
// For example, {1, ".seh_pushreg rbx", 0} is printed behind a `push rbx` of one byte.
struct Directive {
  std::uint32_t offset = 0;    // The offset into the code.
  std::string text;            // One line, or several with a newline between; no newline at the end.
  std::uint32_t replaces = 0;  // Bytes before `offset` whose instructions the lines make.
};

}  // namespace windlass::prologue
