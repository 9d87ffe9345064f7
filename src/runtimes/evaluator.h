// Finds the machine code of an interpreter's evaluator. That is one function, but compilers put its rare parts
// elsewhere (GCC's .cold), and shipped files have no symbols for these parts. GCC 16 puts nearly all of CPython 3.14's
// there.
#pragma once

#include <cstdint>

#include "base/address_range.h"
#include "windlass/error.h"
#include "windlass/walk.h"

namespace windlass::runtimes {

struct Evaluator {
  AddressRange hot;
  AddressRange cold;

  [[nodiscard]] bool contains(std::uint64_t address) const { return hot.contains(address) || cold.contains(address); }
};

// The function that the image at `base` exports by that name, x86-64 code: kNotFound, kUnreadable, kMalformed where it
// has no usable size.
[[nodiscard]] Expected<Evaluator> find_evaluator(const Memory& memory, std::uint64_t base, const char* name);

// The function that begins there, if the image's unwind information has it.
[[nodiscard]] Expected<Evaluator> find_evaluator_at(const Memory& memory, std::uint64_t base, std::uint64_t address);

}  // namespace windlass::runtimes
