// The machine code of an interpreter's evaluator: one function, of which compilers put what is seldom run elsewhere
// (GCC's .cold), without a symbol in shipped files.
#pragma once

#include <cstdint>

#include "base/address_range.h"
#include "windlass/error.h"
#include "windlass/walk.h"

namespace windlass::runtimes {

struct Evaluator {
  AddressRange hot;
  AddressRange cold;  // as far as it comes back

  [[nodiscard]] bool contains(std::uint64_t address) const { return hot.contains(address) || cold.contains(address); }
};

// The function that the image at `base` exports by that name, x86-64 code: kNotFound, kUnreadable, kMalformed where it
// has no usable size.
[[nodiscard]] Expected<Evaluator> find_evaluator(const Memory& memory, std::uint64_t base, const char* name);

}  // namespace windlass::runtimes
