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

// Bytes of ModR/M, SIB and displacement at the front of `code`; 0: it ends before ModR/M or SIB. As
// plain_length().
[[nodiscard]] std::size_t operand_length(const std::uint8_t* code, std::size_t size);

// The length in bytes of the NOP at the front of `code`; 0: none. Intel SDM 2B, "NOP": 90, or 0F 1F /0 with any
// operand. Assemblers put up to ten operand-size prefixes and a segment prefix in front. As plain_length().
[[nodiscard]] std::size_t nop_length(ByteView code);

// The length in bytes of a move or a calculation of floating-point numbers in xmm or ymm registers, of SSE or AVX; 0: a
// decoder has to look. Intel SDM 2, section 2.3 (VEX) and appendix A. As plain_length().
[[nodiscard]] std::size_t vector_length(ByteView code);

}  // namespace windlass::flow
