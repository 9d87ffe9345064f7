// Whether this is a virtual machine without a processor's help: clocks and processors are slow there, and a recorder
// has no time for each stack.
#pragma once

#include <cstdlib>

namespace windlass::test {

inline bool emulated() { return std::getenv("WINDLASS_EMULATED") != nullptr; }

// The option of `record`: the usual 997 Hz, but an emulated machine may not get through a tick before the next one is
// due.
inline const char* rate_option() { return emulated() ? "-F 199" : "-F 997"; }

}  // namespace windlass::test
