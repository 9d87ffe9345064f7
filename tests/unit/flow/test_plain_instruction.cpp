// The commonest instructions by their encoding alone: each encoding beside the decoder.
#include "flow/plain_instruction.h"

#include <gtest/gtest.h>

#include <span>
#include <vector>

#include "flow/stack_effect.h"

namespace windlass::flow {
namespace {

using Bytes = std::vector<std::uint8_t>;
ByteView view(const Bytes& bytes) { return ByteView(std::span<const std::uint8_t>(bytes)); }

// What the decoder says of the instruction. A prefix of a segment, which long mode ignores, keeps the short way from
// it.
Expected<StackEffect> by_decoder(const Bytes& code) {
  Bytes prefixed{0x3e};
  prefixed.insert(prefixed.end(), code.begin(), code.end());
  return stack_effect(view(prefixed), 0x1000);
}

struct Judged {
  std::uint64_t plain = 0, different = 0;
};

void judge(const Bytes& code, Judged& judged) {
  const std::size_t length = plain_length(view(code));
  if (length == 0) return;
  ++judged.plain;
  const auto effect = by_decoder(code);
  if (effect && effect->kind == StackEffect::Kind::kNone && effect->length == length + 1) return;
  if (++judged.different > 10) return;
  std::string text;
  for (const std::uint8_t byte : code) text += testing::PrintToString(unsigned{byte}) + " ";
  ADD_FAILURE() << text << "is " << length << " bytes here";
}

// All opcodes of one and of two bytes, with all of ModR/M, with and without REX, and SIB with all bases.
TEST(PlainInstruction, IsWhatTheDecoderSays) {
  Judged judged;
  const unsigned prefixes[] = {0, 0x40, 0x41, 0x44, 0x48, 0x49, 0x4c, 0x4f};
  for (const unsigned prefix : prefixes)
    for (const bool two : {false, true})
      for (unsigned opcode = 0; opcode < 256; ++opcode)
        for (unsigned modrm = 0; modrm < 256; ++modrm)
          for (unsigned base = 0; base < 8; ++base) {
            Bytes code;
            if (prefix != 0) code.push_back(static_cast<std::uint8_t>(prefix));
            if (two) code.push_back(0x0f);
            code.insert(code.end(), {static_cast<std::uint8_t>(opcode), static_cast<std::uint8_t>(modrm),
                                     static_cast<std::uint8_t>(0x48 | base), 1, 2, 3, 4, 5, 6, 7, 8});
            judge(code, judged);
          }
  EXPECT_EQ(judged.different, 0U);
  EXPECT_GT(judged.plain, 500'000U);
}

// Whole effects, those on rsp too: all opcodes behind each kind of prefix, with all of ModR/M.
TEST(PlainInstruction, EffectsAreWhatTheDecoderSays) {
  const Bytes prefixes[] = {{},
                            {0x40},
                            {0x41},
                            {0x44},
                            {0x48},
                            {0x49},
                            {0x4c},
                            {0x4f},
                            {0x0f},
                            {0x48, 0x0f},
                            {0x66},
                            {0x66, 0x0f},
                            {0xf2, 0x0f},
                            {0xf3, 0x0f},
                            {0x66, 0x45, 0x0f},
                            {0xf2, 0x48, 0x0f},
                            {0x66, 0x66, 0x2e},
                            {0x66, 0x2e, 0x0f},
                            {0xc5, 0xf8},
                            {0xc5, 0xf9},
                            {0xc5, 0xfa},
                            {0xc5, 0xfb},
                            {0xc5, 0x33},
                            {0xc5, 0xe4},
                            {0xc4, 0xe1, 0x7b},
                            {0xc4, 0xc1, 0x31},
                            {0xc4, 0xe2, 0x79}};
  std::uint64_t different = 0;
  for (const Bytes& prefix : prefixes)
    for (unsigned opcode = 0; opcode < 256; ++opcode)
      for (unsigned modrm = 0; modrm < 256; ++modrm)
        for (const unsigned sib : {0x24U, 0x8dU}) {
          Bytes code = prefix;
          code.insert(code.end(), {static_cast<std::uint8_t>(opcode), static_cast<std::uint8_t>(modrm),
                                   static_cast<std::uint8_t>(sib), 0x81, 0x32, 0xf4, 5, 6, 7, 8, 9});
          const auto effect = stack_effect(view(code), 0x1001), decoded = by_decoder(code);
          const bool same = effect && decoded
                                ? effect->kind == decoded->kind && effect->length + 1 == decoded->length &&
                                      effect->reg == decoded->reg && effect->delta == decoded->delta &&
                                      effect->target == decoded->target
                                : effect.has_value() == decoded.has_value();
          if (!same && ++different <= 10) ADD_FAILURE() << testing::PrintToString(code);
        }
  EXPECT_EQ(different, 0U);
}

// Code that ends within an instruction.
TEST(PlainInstruction, NothingIsReadBehindTheEnd) {
  const Bytes whole[] = {{0xe8, 1, 2, 3, 4},
                         {0x74, 1},
                         {0x0f, 0x84, 1, 2, 3, 4},
                         {0x48, 0x83, 0xec, 8},
                         {0x41, 0x5f},
                         {0x48, 0x8d, 0xa4, 0x24, 1, 2, 3, 4},
                         {0xff, 0x54, 0x24, 8},
                         {0x68, 1, 2, 3, 4},
                         {0x48, 0x8b, 0x64, 0x24, 8},
                         {0x66, 0x0f, 0x1f, 0x44, 0, 0},
                         {0xc5, 0xfb, 0x58, 0x44, 0x24, 8},
                         {0xf2, 0x0f, 0x10, 5, 1, 2, 3, 4},
                         {0x48, 0x3d, 1, 2, 3, 4}};
  for (const Bytes& code : whole) {
    const auto effect = stack_effect(view(code), 0x1000);
    ASSERT_TRUE(effect);
    EXPECT_EQ(effect->length, code.size());
    for (std::size_t size = 1; size < code.size(); ++size)
      EXPECT_FALSE(stack_effect(view(Bytes(code.begin(), code.begin() + static_cast<std::ptrdiff_t>(size))), 0x1000))
          << testing::PrintToString(code) << size;
  }
}

TEST(PlainInstruction, ReadsNothingBehindTheCode) {
  const Bytes whole[] = {{0x48, 0x89, 0xc3},                                // mov rbx, rax
                         {0x48, 0x8b, 0x44, 0x24, 0x08},                    // mov rax, [rsp + 8]
                         {0x48, 0x8d, 0x05, 1, 2, 3, 4},                    // lea rax, [rip + n]
                         {0x48, 0x81, 0x84, 0x88, 1, 2, 3, 4, 5, 6, 7, 8},  // add qword [rax + rcx * 4 + n], n
                         {0x48, 0x0f, 0x44, 0x04, 0x25, 1, 2, 3, 4}};       // cmove rax, [n]
  for (const Bytes& code : whole) {
    EXPECT_EQ(plain_length(view(code)), code.size());
    for (std::size_t size = 0; size < code.size(); ++size)
      EXPECT_EQ(plain_length(view(Bytes(code.begin(), code.begin() + static_cast<std::ptrdiff_t>(size)))), 0U);
  }
}

// Those of Intel's SDM 2B, "NOP", with more prefixes, as assemblers pad with them. Cut ones are none.
TEST(NopLength, IsOfWholeNopsAlone) {
  const Bytes nops[] = {{0x90},
                        {0x66, 0x90},
                        {0x0f, 0x1f, 0x00},
                        {0x0f, 0x1f, 0x40, 0x00},
                        {0x0f, 0x1f, 0x44, 0x00, 0x00},
                        {0x66, 0x0f, 0x1f, 0x44, 0x00, 0x00},
                        {0x0f, 0x1f, 0x80, 0, 0, 0, 0},
                        {0x0f, 0x1f, 0x84, 0x00, 0, 0, 0, 0},
                        {0x66, 0x2e, 0x0f, 0x1f, 0x84, 0x00, 0, 0, 0, 0},
                        {0x66, 0x66, 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0x00, 0, 0, 0, 0}};
  for (const Bytes& nop : nops) {
    EXPECT_EQ(nop_length(view(nop)), nop.size()) << testing::PrintToString(nop);
    for (std::size_t size = 0; size < nop.size(); ++size)
      EXPECT_EQ(nop_length(view(Bytes(nop.begin(), nop.begin() + static_cast<std::ptrdiff_t>(size)))), 0U)
          << testing::PrintToString(nop) << size;
    Bytes more = nop;
    more.insert(more.end(), {0xc3, 0x90, 0x90, 0x90});
    EXPECT_EQ(nop_length(view(more)), nop.size()) << testing::PrintToString(nop);
  }
  const Bytes others[] = {{0xc3, 0x90, 0x90, 0x90},        // ret
                          {0x66, 0xc3, 0x90, 0x90},        // with a prefix
                          {0x0f, 0x1f, 0xc0, 0x90, 0x90},  // of a register
                          {0x0f, 0x1f, 0x48, 0x00, 0x90},  // another one of the group
                          {0x0f, 0x1e, 0x00, 0x90, 0x90}};
  for (const Bytes& other : others) EXPECT_EQ(nop_length(view(other)), 0U) << testing::PrintToString(other);
}

// Those with VEX of which vvvv names a source, and those of which it names none.
TEST(PlainInstruction, VectorsWithOneSourceOrTwo) {
  EXPECT_EQ(plain_length(view({0xc5, 0xf8, 0x28, 0xc1, 0, 0, 0, 0})), 4U);        // vmovaps xmm0, xmm1
  EXPECT_EQ(plain_length(view({0xc5, 0xf9, 0x6f, 0xc1, 0, 0, 0, 0})), 4U);        // vmovdqa xmm0, xmm1
  EXPECT_EQ(plain_length(view({0xc4, 0xc1, 0x78, 0x28, 0xc1, 0, 0, 0})), 5U);     // vmovaps xmm0, xmm9
  EXPECT_EQ(plain_length(view({0xc5, 0xf1, 0xef, 0xc1, 0, 0, 0, 0})), 4U);        // vpxor xmm0, xmm1, xmm1
  EXPECT_EQ(plain_length(view({0xc5, 0xf3, 0x58, 0x44, 0x24, 0x08, 0, 0})), 6U);  // vaddsd xmm0, xmm1, [rsp + 8]
  EXPECT_EQ(plain_length(view({0xc5, 0xf0, 0x28, 0xc1, 0, 0, 0, 0})), 0U);        // no instruction: vmovaps has one
}

TEST(PlainInstruction, LeavesRspToTheDecoder) {
  EXPECT_EQ(plain_length(view({0x48, 0x89, 0xc4, 0, 0, 0, 0, 0})), 0U);     // mov rsp, rax
  EXPECT_EQ(plain_length(view({0x48, 0x8b, 0x63, 0x08, 0, 0, 0, 0})), 0U);  // mov rsp, [rbx + 8]
  EXPECT_EQ(plain_length(view({0x48, 0x83, 0xec, 0x18, 0, 0, 0, 0})), 0U);  // sub rsp, 24
  EXPECT_EQ(plain_length(view({0x48, 0x0f, 0x44, 0xe0, 0, 0, 0, 0})), 0U);  // cmove rsp, rax
  EXPECT_EQ(plain_length(view({0x49, 0x89, 0xc4, 0, 0, 0, 0, 0})), 3U);     // mov r12, rax
  EXPECT_EQ(plain_length(view({0x4c, 0x8b, 0x63, 0x08, 0, 0, 0, 0})), 4U);  // mov r12, [rbx + 8]
}

}  // namespace
}  // namespace windlass::flow
