// Which instructions may be those of an epilogue, by their first bytes.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "flow/aarch64.h"
#include "flow/x86_64.h"

namespace windlass::flow {
namespace {

constexpr std::uint64_t kAt = 0x1000;

// `bytes` stand at kAt, and nothing behind them.
template <typename Machine>
bool may_be_epilogue(const std::vector<std::uint8_t>& bytes) {
  const auto read = [&](std::uint64_t address, void* to, std::size_t size) {
    if (address < kAt || address - kAt + size > bytes.size()) return false;
    std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(address - kAt), size, static_cast<std::uint8_t*>(to));
    return true;
  };
  const auto kind = [](std::uint64_t) { return CodeKind::kFile; };
  const auto any = [](const FrameRow&) { return true; };
  const CodeSource source{Machine::kArchitecture, read, kind, any};
  return Machine::may_be_epilogue(source, kAt);
}

TEST(EpilogueBytes, X86) {
  const auto is = [](std::vector<std::uint8_t> bytes) {
    bytes.resize(std::max<std::size_t>(bytes.size(), 3), 0x90);
    return may_be_epilogue<X86_64>(bytes);
  };
  EXPECT_TRUE(is({0x58}) && is({0x5f}) && is({0x41, 0x5c}));            // pop
  EXPECT_TRUE(is({0xc3}) && is({0xc2, 8, 0}) && is({0xc9}));            // ret, leave
  EXPECT_TRUE(may_be_epilogue<X86_64>({0xc3}));                         // the last byte that can be read
  EXPECT_TRUE(is({0xf3, 0xc3}) && is({0xf2, 0xc3}));                    // rep ret, bnd ret
  EXPECT_TRUE(is({0x48, 0x83, 0xc4, 8}) && is({0x48, 0x81, 0xc4}));     // add rsp
  EXPECT_TRUE(is({0x48, 0x8d, 0x65, 0xd8}) && is({0x48, 0x8b, 0xe5}));  // lea rsp, mov rsp
  EXPECT_TRUE(is({0x48, 0x89, 0xec}));                                  // mov rsp,rbp
  EXPECT_FALSE(is({0x55}) || is({0x57}) || is({0x60}));
  EXPECT_FALSE(is({0xe8, 0, 0}) || is({0xf3, 0x0f}) || is({0xf2, 0x0f}));
  EXPECT_FALSE(is({0x48, 0x83, 0xec, 8}) || is({0x48, 0x83, 0xc3, 8}) || is({0x48, 0x81, 0xc5}));  // sub; add rbx, rbp
  EXPECT_FALSE(is({0x48, 0x8d, 0x45, 0xd8}) || is({0x48, 0x8b, 0xec}) || is({0x48, 0x89, 0xe5}));
  EXPECT_FALSE(may_be_epilogue<X86_64>({}));
}

TEST(EpilogueBytes, AArch64) {
  const auto is = [](std::uint32_t word) {
    std::vector<std::uint8_t> bytes;
    for (int i = 0; i < 4; ++i) bytes.push_back(static_cast<std::uint8_t>(word >> 8 * i));
    return may_be_epilogue<AArch64>(bytes);
  };
  EXPECT_TRUE(is(0xd65f03c0));   // ret
  EXPECT_TRUE(is(0xa8c17bfd));   // ldp x29,x30,[sp],#16
  EXPECT_TRUE(is(0xf84107fe));   // ldr x30,[sp],#16
  EXPECT_TRUE(is(0x910083ff));   // add sp,sp,#32
  EXPECT_TRUE(is(0x910003bf));   // mov sp,x29
  EXPECT_TRUE(is(0xd50323bf));   // autiasp
  EXPECT_FALSE(is(0xa9bf7bfd));  // stp x29,x30,[sp,#-16]!
  EXPECT_FALSE(is(0xf81f0ffe));  // str x30,[sp,#-16]!
  EXPECT_FALSE(is(0xa940781d));  // ldp, of another register than sp
  EXPECT_FALSE(is(0xd10083ff));  // sub sp,sp,#32
  EXPECT_FALSE(is(0xb10083ff));  // adds xzr,sp,#32
  EXPECT_FALSE(is(0x110083ff));  // add wsp,wsp,#32
  EXPECT_FALSE(is(0x910003fd));  // mov x29,sp
  EXPECT_FALSE(is(0xd503233f));  // paciasp
  EXPECT_FALSE(is(0xd503201f));  // nop
  EXPECT_FALSE(may_be_epilogue<AArch64>({0xc0, 0x03, 0x5f}));
}

}  // namespace
}  // namespace windlass::flow
