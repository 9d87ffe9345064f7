// The unwind information of the own process's modules, read where it is mapped.
#pragma once

#include "lookup/sources/unwind_source.h"

namespace windlass::walk {

// One for all of them: addresses are the process's, and what is loaded there is looked up anew each time. Lists go over
// the modules that walks or AddressSpace::self() have met; record places are those of addresses, sections all number 0.
[[nodiscard]] const sources::UnwindSource& mapped_source();

}  // namespace windlass::walk
