// The commonest instructions of x86-64 code by their encoding alone, which takes a tenth of the time of a decoder.
#pragma once

#include <cstddef>

#include "windlass/bytes.h"

namespace windlass::flow {

// The length in bytes of the instruction at the front of `code`, if it is one of the commonest (mov, lea, arithmetic,
// comparisons, conditional moves, NOPs, and moves and calculations of floating-point numbers in xmm or ymm registers),
// does not change rsp and goes on behind itself. 0: a decoder has to look. Intel SDM 2, appendix A (opcode maps) and
// sections 2.1.3 (ModR/M and SIB) and 2.3 (VEX). Constant time, no allocation, thread-safe.
[[nodiscard]] std::size_t plain_length(ByteView code);

// The length in bytes of the NOP at the front of `code`; 0: none. Intel SDM 2B, "NOP": 90, or 0F 1F /0 with any
// operand. Assemblers put up to ten operand-size prefixes and a segment prefix in front. As plain_length().
[[nodiscard]] std::size_t nop_length(ByteView code);

}  // namespace windlass::flow
