// How long an x86-64 instruction is.
#pragma once

#include "windlass/bytes.h"

namespace windlass::winx64 {

// Of the first one in `code`. 0: it is none, or this build has no decoder.
[[nodiscard]] unsigned instruction_length(ByteView code);

}  // namespace windlass::winx64
