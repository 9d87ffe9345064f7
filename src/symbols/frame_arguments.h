// The arguments of the functions of a stack, by the debug information of a module.
#pragma once

#include <elfutils/libdw.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "symbols/value_text.h"
#include "windlass/symbols.h"
#include "windlass/walk.h"

namespace windlass::symbols {

class DebugLines;

// A frame, and the debug information of its module.
struct ArgumentFrame {
  const Registers* registers = nullptr;
  DebugLines* debug = nullptr;                       // Null: there is none.
  std::uint64_t bias = 0;                            // Address in the process - address in the debug information.
  std::span<const std::byte> vector_registers = {};  // StackPlace's
};

// The functions whose code the frame `index` of a stack is at, innermost inlined call first; with what they were called
// with. Empty: debug information does not know them. Frames further out give values that a function had at its entry:
// those of the same module as `index`, which alone is locked, are asked.
[[nodiscard]] std::vector<FunctionArguments> frame_arguments(const AddressSpace& space,
                                                             std::span<const ArgumentFrame> stack, std::size_t index,
                                                             EntryBudget& budget);

}  // namespace windlass::symbols
