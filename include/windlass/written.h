// What the writers of unwind information (winx64.h, winarm64.h, dwarf.h) have in common.
#pragma once

#include <cstdint>
#include <string>

namespace windlass::prologue {

// A 32-bit RVA among bytes that were written, for writers of object files: IMAGE_REL_AMD64_ADDR32NB or
// IMAGE_REL_ARM64_ADDR32NB against one of these. Written with function, info and handler at 0, the bytes hold the
// addends.
struct ImageRelative {
  enum class Base : std::uint8_t { kFunction, kInfo, kHandler } base = Base::kFunction;
  std::uint32_t at = 0;        // offset among the bytes
  std::uint32_t function = 0;  // which one of several, by the order in which a Writer was given them
};

// Lines that a code generator puts among its instructions: behind the one that ends at `offset`, or in the place of the
// last `replaces` bytes in front of it where the lines are macros that make the instructions themselves.
struct Directive {
  std::uint32_t offset = 0;  // into the code
  std::string text;          // without a newline; several lines have them between
  std::uint32_t replaces = 0;
};

}  // namespace windlass::prologue
