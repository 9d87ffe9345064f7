// Whether this is a virtual machine without a processor's help: clocks and processors are slow there, and a recorder
// has no time for each stack.
#pragma once

#include <cstdlib>

namespace windlass::test {

inline bool emulated() { return std::getenv("WINDLASS_EMULATED") != nullptr; }

}  // namespace windlass::test
