// The commonest instructions of x86-64 code by their encoding alone, which takes a tenth of the time of a decoder.
#pragma once

#include <cstddef>
#include <cstdint>

#include "windlass/bytes.h"

namespace windlass::flow {

// The length in bytes of the instruction at the front of `code`, if it is one of the commonest (mov, lea, arithmetic,
// comparisons, conditional moves), does not change rsp and goes on behind itself. 0: a decoder has to look. Intel SDM
// 2, appendix A (opcode maps) and section 2.1.3 (ModR/M and SIB). Constant time, no allocation, thread-safe.
[[nodiscard]] std::size_t plain_length(ByteView code);

}  // namespace windlass::flow
