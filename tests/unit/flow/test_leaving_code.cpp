// Code that leaves its frame, and does not say so: libgcc's way to a landing pad, and functions that go over to another
// stack.
#include <gtest/gtest.h>

#include <vector>

#include "flow/eh_return.h"
#include "flow/stack_switch.h"

namespace windlass::flow {
namespace {

using Bytes = std::vector<std::uint8_t>;
ByteView view(const Bytes& bytes) { return ByteView(std::span<const std::uint8_t>(bytes)); }

// As _Unwind_RaiseException ends (GCC 12): the last three of its calls, an ordinary way out, the jump.
const Bytes kRaise{0x55,                          // 0: push rbp
                   0xe8, 0,    0,    0,    0,     // 1: call (phase 2)
                   0x75, 0x1e,                    // 6: jne 38
                   0xe8, 0,    0,    0,    0,     // 8: call uw_install_context_1
                   0xe8, 0,    0,    0,    0,     // 13: call _Unwind_DebugHook
                   0xf3, 0x48, 0x0f, 0x1e, 0xc8,  // 18: rdsspq rax
                   0x74, 0x02,                    // 23: je 27
                   0xeb, 0x00,                    // 25: jmp 27
                   0x48, 0x89, 0xc1,              // 27: mov rcx, rax
                   0x48, 0x89, 0xcc,              // 30: mov rsp, rcx
                   0x59, 0xff, 0xe1,              // 33: pop rcx; jmp rcx
                   0x90, 0x90,                    // 36
                   0xc9, 0xc3};                   // 38: leave; ret

TEST(EhReturn, PartFromTheInstallationOn) {
  const auto part = eh_return_part(view(kRaise), 0x1000);
  ASSERT_TRUE(part);
  EXPECT_EQ(part->begin, 0x1008u);
  EXPECT_EQ(part->end, 0x1024u);
  const auto leads_from = [&](std::size_t offset) {
    return leads_to_eh_return(*view(kRaise).sub(offset, kRaise.size() - offset), 0x1000 + offset);
  };
  EXPECT_FALSE(leads_from(6)) << "two calls are to come: nothing has been written yet";
  EXPECT_TRUE(leads_from(13));
  EXPECT_TRUE(leads_from(18));
  EXPECT_TRUE(leads_from(30));
  EXPECT_FALSE(leads_from(33));
  EXPECT_FALSE(leads_from(38)) << "an ordinary return";
  EXPECT_TRUE(behind_eh_return(*view(kRaise).sub(30, kEhReturnMove)));
  EXPECT_FALSE(behind_eh_return(*view(kRaise).sub(29, kEhReturnMove)));
}

// As i386's ends: ecx and esp have other numbers, and moves have no prefix.
const Bytes kNarrowRaise{0xe8, 0,    0,    0,    0,  // 0: call _Unwind_DebugHook
                         0xf3, 0x0f, 0x1e, 0xcb,     // 5: rdsspd ebx
                         0x83, 0xc4, 0x10,           // 9: add esp, 16
                         0x74, 0x02,                 // 12: je 16
                         0xeb, 0x00,                 // 14: jmp 16
                         0x40,                       // 16: inc eax, and no REX prefix
                         0x89, 0x74, 0x15, 0x04,     // 17: mov [ebp + edx + 4], esi
                         0x8b, 0x6d, 0x00,           // 21: mov ebp, [ebp]
                         0x89, 0xcc,                 // 24: mov esp, ecx
                         0x59, 0xff, 0xe1};          // 26: pop ecx; jmp ecx

TEST(EhReturn, OfI386) {
  const auto leads_from = [&](std::size_t offset, Architecture architecture) {
    return leads_to_eh_return(*view(kNarrowRaise).sub(offset, kNarrowRaise.size() - offset), 0x1000 + offset,
                              architecture);
  };
  EXPECT_TRUE(leads_from(0, Architecture::kI386));
  EXPECT_TRUE(leads_from(16, Architecture::kI386));
  EXPECT_FALSE(leads_from(16, Architecture::kX86_64)) << "of the other machine's registers";
  EXPECT_FALSE(leads_from(26, Architecture::kI386));
  EXPECT_TRUE(behind_eh_return(*view(kNarrowRaise).sub(23, kEhReturnMove), Architecture::kI386));
  EXPECT_FALSE(behind_eh_return(*view(kNarrowRaise).sub(23, kEhReturnMove)));
  EXPECT_FALSE(behind_eh_return(*view(kNarrowRaise).sub(24, kEhReturnMove), Architecture::kI386));
}

// As AArch64's ends (GCC 12): a way out for landings and plain returns, and one of its two ways there behind it.
const Bytes kRaiseOfAArch64{0x04, 0x00, 0x80, 0xd2,   // 0: mov x4, 0
                            0xfd, 0x7b, 0x40, 0xa9,   // 4: ldp x29, x30, [sp]
                            0xe0, 0x07, 0x41, 0xa9,   // 8: ldp x0, x1, [sp, 16]
                            0xff, 0x03, 0x3b, 0x91,   // 12: add sp, sp, 0xec0
                            0xff, 0x63, 0x24, 0x8b,   // 16: add sp, sp, x4
                            0xc0, 0x03, 0x5f, 0xd6,   // 20: ret
                            0x61, 0xff, 0xff, 0x54,   // 24: b.ne 4
                            0x00, 0x00, 0x00, 0x94,   // 28: bl uw_install_context_1
                            0xe4, 0x03, 0x00, 0xaa,   // 32: mov x4, x0
                            0x00, 0x00, 0x00, 0x94,   // 36: bl _Unwind_DebugHook
                            0xa1, 0x07, 0x00, 0xf9,   // 40: str x1, [x29, 8]
                            0xf6, 0xff, 0xff, 0x17};  // 44: b 4

TEST(EhReturn, OfAArch64) {
  const auto from = [&](std::uint64_t offset) { return way_out(view(kRaiseOfAArch64), 0x1000, 0x1000 + offset); };
  EXPECT_EQ(from(0), WayOut::kPlain) << "x4 is 0";
  EXPECT_EQ(from(4), WayOut::kAsX4HasIt);
  EXPECT_EQ(from(16), WayOut::kAsX4HasIt);
  EXPECT_EQ(from(20), WayOut::kPlain);
  EXPECT_EQ(from(24), WayOut::kPlain) << "a branch";
  EXPECT_EQ(from(28), WayOut::kPlain) << "two calls are to come: nothing has been written yet";
  EXPECT_EQ(from(32), WayOut::kLanding);
  EXPECT_EQ(from(36), WayOut::kLanding) << "x4 is what the call leaves there";
  EXPECT_EQ(from(40), WayOut::kAsX4HasIt);
  EXPECT_EQ(from(44), WayOut::kAsX4HasIt);
  EXPECT_EQ(from(42), WayOut::kPlain) << "no instruction";
  EXPECT_EQ(from(48), WayOut::kPlain) << "behind the code";
  EXPECT_EQ(way_out(view({0x00, 0x00, 0x00, 0x14}), 0x1000, 0x1000), WayOut::kPlain) << "b to itself, for ever";
  EXPECT_EQ(way_out(view({0xff, 0xff, 0xff, 0x17}), 0x1000, 0x1000), WayOut::kPlain) << "b out of the function";
  EXPECT_TRUE(is_eh_return_end(*view(kRaiseOfAArch64).sub(16, kEhReturnEnd)));
  EXPECT_FALSE(is_eh_return_end(*view(kRaiseOfAArch64).sub(12, kEhReturnEnd)));
  EXPECT_FALSE(is_eh_return_end(*view(kRaiseOfAArch64).sub(16, 4)));
  // What lies between the way out and the way there is neither.
  const auto parts = landing_parts(view(kRaiseOfAArch64), 0x1000);
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(parts[0].begin, 0x1004u);
  EXPECT_EQ(parts[0].end, 0x1018u);
  EXPECT_EQ(parts[1].begin, 0x101cu) << "the call of uw_install_context_1";
  EXPECT_EQ(parts[1].end, 0x1030u);
}

TEST(EhReturn, EndsWithAReturnToo) {
  Bytes code(kRaise.begin(), kRaise.begin() + 33);
  code.insert(code.end(), {0xc3, 0x90, 0xff, 0xe1});  // ret; nop; jmp rcx
  const auto part = eh_return_part(view(code), 0x1000);
  ASSERT_TRUE(part);
  EXPECT_EQ(part->begin, 0x1008u);
  EXPECT_EQ(part->end, 0x1022u);
}

// What is between x4's value and the way out, on AArch64: one instruction in front of add sp, sp, x4.
TEST(EhReturn, WhatSetsX4) {
  const auto behind = [](std::uint32_t word) {
    Bytes code;
    for (const std::uint32_t one : {word, 0x8b24'63ffU, 0xd65f'03c0U})
      for (unsigned shift = 0; shift < 32; shift += 8) code.push_back(static_cast<std::uint8_t>(one >> shift));
    return way_out(view(code), 0x1000, 0x1000);
  };
  EXPECT_EQ(behind(0xaa0003e4), WayOut::kLanding) << "mov x4, x0";
  EXPECT_EQ(behind(0xaa0003e5), WayOut::kAsX4HasIt) << "mov x5, x0";
  EXPECT_EQ(behind(0xf9400be4), WayOut::kLanding) << "ldr x4, [sp, 16]";
  EXPECT_EQ(behind(0xf9400be5), WayOut::kAsX4HasIt) << "ldr x5, [sp, 16]";
  EXPECT_EQ(behind(0xf9000be4), WayOut::kAsX4HasIt) << "str x4, [sp, 16]";
  EXPECT_EQ(behind(0xfd400be4), WayOut::kAsX4HasIt) << "ldr d4, [sp, 16]";
  EXPECT_EQ(behind(0xa94113e3), WayOut::kLanding) << "ldp x3, x4, [sp, 16]";
  EXPECT_EQ(behind(0xa9410fe4), WayOut::kLanding) << "ldp x4, x3, [sp, 16]";
  EXPECT_EQ(behind(0xa9410fe5), WayOut::kAsX4HasIt) << "ldp x5, x3, [sp, 16]";
  EXPECT_EQ(behind(0xa90113e3), WayOut::kAsX4HasIt) << "stp x3, x4, [sp, 16]";
  EXPECT_EQ(behind(0x97ffffff), WayOut::kLanding) << "bl";
  EXPECT_EQ(behind(0xd63f0000), WayOut::kLanding) << "blr x0";
  EXPECT_EQ(behind(0xd503201f), WayOut::kAsX4HasIt) << "nop";
  EXPECT_EQ(behind(0xd2800004), WayOut::kPlain) << "mov x4, 0";
  EXPECT_EQ(behind(0xd61f0000), WayOut::kPlain) << "br x0";
  EXPECT_EQ(behind(0xb4000020), WayOut::kPlain) << "cbz x0";
  EXPECT_EQ(behind(0x36000020), WayOut::kPlain) << "tbz w0, 0";
  EXPECT_EQ(behind(0x54000020), WayOut::kPlain) << "b.eq";
  const Bytes cut(kRaiseOfAArch64.begin(), kRaiseOfAArch64.begin() + 20);
  EXPECT_EQ(way_out(view(cut), 0x1000, 0x1010), WayOut::kAsX4HasIt);
  EXPECT_EQ(way_out(*view(cut).sub(0, 19), 0x1000, 0x1010), WayOut::kPlain) << "three bytes of it are code";
}

TEST(EhReturn, NoPartOfOtherFunctions) {
  EXPECT_FALSE(eh_return_part(view({0xe8, 0, 0, 0, 0, 0xc9, 0xc3}), 0x1000));
  EXPECT_FALSE(eh_return_part(view({0xe8, 0, 0, 0, 0, 0x48, 0x89, 0xd4, 0xc3}), 0x1000)) << "rsp = rdx";
  EXPECT_FALSE(eh_return_part(view({0xe8, 0, 0, 0, 0, 0xff}), 0x1000)) << "cut short";
}

TEST(StackSwitch, BehindTheInstruction) {
  EXPECT_EQ(replaces_stack(view({0x90, 0x48, 0x8b, 0xa2, 0xa0, 0, 0, 0, 0xc3}), 0x1000),
            0x1008u);                                                          // mov rsp, [rdx+160]
  EXPECT_EQ(replaces_stack(view({0x48, 0x89, 0xf4, 0xc3}), 0x1000), 0x1003u);  // mov rsp, rsi
  EXPECT_FALSE(replaces_stack(view({0x48, 0x8b, 0x82, 0xa0, 0, 0, 0, 0xc3}), 0x1000)) << "rax";
  EXPECT_FALSE(replaces_stack(view({0x48, 0xb8, 0x48, 0x89, 0xf4, 0, 0, 0, 0, 0, 0xc3}), 0x1000)) << "in a constant";
}

}  // namespace
}  // namespace windlass::flow
