// The unwind information of the own process's modules, read where it is mapped.
#pragma once

#include "walk/unwind_source.h"

namespace windlass::walk {

// One for all of them: addresses are the process's, and what is loaded there is looked up anew each time.
[[nodiscard]] const UnwindSource& mapped_source();

}  // namespace windlass::walk
