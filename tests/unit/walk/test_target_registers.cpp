// The registers of dumps: which of them a Windows context has by its flags, and where the kernel's register sets have
// them. Offsets are those of winnt.h, Breakpad's minidump_cpu_arm64.h and <sys/user.h>.
#include <gtest/gtest.h>
#include <sys/user.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <vector>

#include "base/registers.h"
#include "walk/target/minidump_context.h"
#include "walk/target/regsets.h"

namespace windlass::walk {
namespace {

using Known = std::map<RegisterNumber, std::uint64_t>;
using Bytes = std::vector<std::byte>;

ByteView view(const Bytes& bytes) { return ByteView(bytes.data(), bytes.size()); }
template <typename T>
void put(Bytes& bytes, std::size_t at, T value) {
  std::memcpy(bytes.data() + at, &value, sizeof value);
}
// Each word of 8 bytes from `from` on has its offset and more as its value.
Bytes numbered(std::size_t size, std::size_t from) {
  Bytes bytes(size);
  for (std::size_t at = from; at + 8 <= size; at += 8) put(bytes, at, 0x1111'0000 + std::uint64_t{at});
  return bytes;
}
std::uint64_t word_at(std::size_t offset) { return 0x1111'0000 + std::uint64_t{offset}; }
Known known(const Registers& registers) {
  Known all;
  registers.for_each([&](RegisterNumber reg, std::uint64_t value) { all[reg] = value; });
  return all;
}

// CONTEXT_AMD64: the integer registers from 0x78 on in the order of their encoding, Rip at 0xf8. Rsp and Rip are of the
// control group. Of ARM64EC code lr is in the first of the x87 registers, at 0x120.
TEST(ContextOfX64, HasTheRegistersThatItsFlagsTell) {
  constexpr std::uint32_t kAmd64 = 0x100000, kControl = 1, kInteger = 2, kFloatingPoint = 8;
  const std::array<RegisterNumber, 16> order{0, 2, 1, 3, 7, 6, 4, 5, 8, 9, 10, 11, 12, 13, 14, 15};
  constexpr RegisterNumber kRsp = 7, kRip = 16;
  for (std::uint32_t flags = 0; flags < 16; ++flags) {
    Bytes context = numbered(0x4d0, 0x78);
    put(context, 0x30, kAmd64 | flags);
    Known expected;
    for (std::size_t i = 0; i < order.size(); ++i)
      if ((flags & (order[i] == kRsp ? kControl : kInteger)) != 0) expected[order[i]] = word_at(0x78 + 8 * i);
    if ((flags & kControl) != 0) expected[kRip] = word_at(0xf8);
    if ((flags & kFloatingPoint) != 0) expected[x86_64::kMm0] = word_at(0x120);
    const auto registers = context_registers(Architecture::kX86_64, view(context));
    ASSERT_TRUE(registers);
    EXPECT_EQ(known(*registers), expected) << flags;
    put(context, 0x120, std::uint64_t{0});
    expected.erase(x86_64::kMm0);
    EXPECT_EQ(known(*context_registers(Architecture::kX86_64, view(context))), expected) << "never used";
    put(context, 0x30, flags);
    EXPECT_FALSE(context_registers(Architecture::kX86_64, view(context))) << "of another machine";
  }
}

TEST(ContextOfX64, ThatIsCutShort) {
  Bytes whole = numbered(0x128, 0x78);
  put(whole, 0x30, 0x10000bU);
  for (std::size_t size = 0; size <= whole.size(); ++size) {
    const Bytes context(whole.begin(), whole.begin() + static_cast<long>(size));
    const auto registers = context_registers(Architecture::kX86_64, view(context));
    ASSERT_EQ(registers.has_value(), size >= 0x100) << size;
    if (registers)
      EXPECT_EQ(registers->has(x86_64::kMm0), size >= 0x128) << size;
    else
      EXPECT_EQ(registers.error().code, ErrorCode::kTruncated);
  }
}

// CONTEXT_ARM64: x0 to x28, fp, lr, sp and pc from 8 on. The last four are of the control group. v0 is at 0x110.
// Breakpad's old form has no control group, and the vectors 12 bytes farther on.
TEST(ContextOfArm64, HasTheRegistersThatItsFlagsTell) {
  constexpr std::uint32_t kControl = 1, kInteger = 2, kVectors = 4;
  for (const bool breakpad : {false, true})
    for (std::uint32_t flags = 0; flags < 8; ++flags) {
      const std::size_t vectors = breakpad ? 284 : 272;
      Bytes context = numbered(vectors + 16 * 32, 8);
      put(context, 0, flags | (breakpad ? 0x80000000U : 0x00400000U));
      for (std::size_t i = 0; i < 32; ++i) put(context, vectors + 16 * i, 0x2222'0000 + std::uint64_t{i});
      Known expected;
      for (std::size_t i = 0; i < 33; ++i)
        if ((flags & (i >= 29 && !breakpad ? kControl : kInteger)) != 0)
          expected[static_cast<RegisterNumber>(i)] = word_at(8 + 8 * i);
      if ((flags & kVectors) != 0)
        for (std::size_t i = 8; i < 16; ++i) expected[static_cast<RegisterNumber>(64 + i)] = 0x2222'0000 + i;
      const auto registers = context_registers(Architecture::kAArch64, view(context));
      ASSERT_TRUE(registers);
      EXPECT_EQ(known(*registers), expected) << breakpad << ", " << flags;
    }
  Bytes context = numbered(800, 8);
  put(context, 0, 0x100003U);
  EXPECT_FALSE(context_registers(Architecture::kAArch64, view(context))) << "of another machine";
}

TEST(ContextOfArm64, ThatIsCutShort) {
  Bytes whole = numbered(272 + 16 * 16, 8);
  put(whole, 0, 0x400007U);
  for (std::size_t size = 0; size <= whole.size(); ++size) {
    const Bytes context(whole.begin(), whole.begin() + static_cast<long>(size));
    const auto registers = context_registers(Architecture::kAArch64, view(context));
    ASSERT_EQ(registers.has_value(), size >= 8 + 8 * 33) << size;
    for (unsigned i = 8; registers && i < 16; ++i)
      EXPECT_EQ(registers->has(static_cast<RegisterNumber>(64 + i)), size >= 272 + 16 * i + 8) << size;
  }
}

#ifdef __x86_64__
TEST(Regset, OfX86_64) {
  Bytes regset = numbered(sizeof(user_regs_struct), 0);
  ASSERT_EQ(general_registers_size(Architecture::kX86_64), sizeof(user_regs_struct));
  const auto of = [](std::size_t offset) { return word_at(offset); };
  using U = user_regs_struct;
  const Known expected{{0, of(offsetof(U, rax))},     {1, of(offsetof(U, rdx))},  {2, of(offsetof(U, rcx))},
                       {3, of(offsetof(U, rbx))},     {4, of(offsetof(U, rsi))},  {5, of(offsetof(U, rdi))},
                       {6, of(offsetof(U, rbp))},     {7, of(offsetof(U, rsp))},  {8, of(offsetof(U, r8))},
                       {9, of(offsetof(U, r9))},      {10, of(offsetof(U, r10))}, {11, of(offsetof(U, r11))},
                       {12, of(offsetof(U, r12))},    {13, of(offsetof(U, r13))}, {14, of(offsetof(U, r14))},
                       {15, of(offsetof(U, r15))},    {16, of(offsetof(U, rip))}, {58, of(offsetof(U, fs_base))},
                       {59, of(offsetof(U, gs_base))}};
  const auto registers = general_registers(Architecture::kX86_64, view(regset));
  ASSERT_TRUE(registers);
  EXPECT_EQ(known(*registers), expected);
  regset.pop_back();
  EXPECT_EQ(general_registers(Architecture::kX86_64, view(regset)).error().code, ErrorCode::kTruncated);
}
#endif

// user_regs_struct32: ebx ecx edx esi edi ebp eax, four segments, orig_eax, eip, cs, eflags, esp, ss.
TEST(Regset, OfI386) {
  Bytes regset(17 * 4);
  for (std::uint32_t i = 0; i < 17; ++i) put(regset, 4 * i, 0xf000'0000 + i);
  ASSERT_EQ(general_registers_size(Architecture::kI386), regset.size());
  const auto registers = general_registers(Architecture::kI386, view(regset));
  ASSERT_TRUE(registers);
  const auto word = [](std::uint32_t i) { return std::uint64_t{0xf000'0000} + i; };
  EXPECT_EQ(known(*registers), (Known{{0, word(6)},
                                      {1, word(1)},
                                      {2, word(2)},
                                      {3, word(0)},
                                      {4, word(15)},
                                      {5, word(5)},
                                      {6, word(3)},
                                      {7, word(4)},
                                      {8, word(12)}}));
  regset.pop_back();
  EXPECT_FALSE(general_registers(Architecture::kI386, view(regset)));
}

// user_pt_regs: x0 to x30, sp, pc, pstate. user_fpsimd_state: v0 to v31.
TEST(Regset, OfAArch64) {
  const Bytes regset = numbered(34 * 8, 0);
  ASSERT_EQ(general_registers_size(Architecture::kAArch64), regset.size());
  auto registers = general_registers(Architecture::kAArch64, view(regset));
  ASSERT_TRUE(registers);
  Known expected;
  for (std::size_t i = 0; i < 33; ++i) expected[static_cast<RegisterNumber>(i)] = word_at(8 * i);
  EXPECT_EQ(known(*registers), expected);
  const Bytes vectors = numbered(16 * 15 + 8, 0);
  for (std::size_t size = 0; size < vectors.size(); ++size) {
    Registers some = *registers;
    EXPECT_FALSE(add_vector_registers(some, view(Bytes(vectors.begin(), vectors.begin() + static_cast<long>(size)))));
  }
  ASSERT_TRUE(add_vector_registers(*registers, view(vectors)));
  for (std::size_t i = 8; i < 16; ++i) expected[static_cast<RegisterNumber>(64 + i)] = word_at(16 * i);
  EXPECT_EQ(known(*registers), expected);
}

}  // namespace
}  // namespace windlass::walk
