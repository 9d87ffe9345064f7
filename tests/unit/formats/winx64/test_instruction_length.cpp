// Lengths of instructions whose opcode alone does not say them. GNU's disassembler gives these.
#include "formats/winx64/instruction_length.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace windlass::winx64 {
namespace {

TEST(InstructionLength, PrefixesEscapesAndOtherMaps) {
  const std::vector<std::uint8_t> cases[] = {
      {0x8f, 0xe8, 0x78, 0xc0, 0xc1, 0x04},                    // vprotb xmm0, xmm1, 4 (XOP map 8)
      {0x8f, 0xe9, 0x78, 0x90, 0xc1},                          // vprotb xmm0, xmm1, xmm0 (map 9)
      {0x8f, 0xea, 0x78, 0x10, 0xc1, 0x01, 0x02, 0x03, 0x04},  // bextr eax, ecx, 0x4030201 (map 10)
      {0x8f, 0x00},                                            // pop [rax]
      {0xf2, 0x0f, 0x78, 0xc1, 0x04, 0x08},                    // insertq xmm0, xmm1, 4, 8
      {0x66, 0x0f, 0x78, 0xc1, 0x04, 0x08},                    // extrq xmm1, 4, 8
      {0x0f, 0x78, 0xc1},                                      // vmread rcx, rax
      {0x2e, 0x0f, 0x78, 0xc1},                                // the same behind a segment's prefix
      {0x66, 0x0f, 0x38, 0x00, 0xc1},                          // pshufb xmm0, xmm1
      {0x66, 0x0f, 0x3a, 0x0f, 0xc1, 0x08},                    // palignr xmm0, xmm1, 8
      {0x0f, 0x38, 0xf0, 0x00},                                // movbe eax, [rax]
  };
  for (std::vector<std::uint8_t> code : cases) {
    const std::size_t length = code.size();
    EXPECT_EQ(instruction_length(ByteView(std::span<const std::uint8_t>(code))), length) << std::hex << +code[2];
    code.resize(32, 0xcc);
    EXPECT_EQ(instruction_length(ByteView(std::span<const std::uint8_t>(code))), length) << std::hex << +code[2];
    code.resize(length - 1);
    EXPECT_EQ(instruction_length(ByteView(std::span<const std::uint8_t>(code))), 0u) << "it is cut off";
  }
}

}  // namespace
}  // namespace windlass::winx64
