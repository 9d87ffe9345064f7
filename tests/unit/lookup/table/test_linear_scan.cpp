// Code read in a straight line: what functions without unwind information have pushed, and where rsp holds a copy.
#include "lookup/table/linear_scan.h"

#include <gtest/gtest.h>

#include <map>
#include <utility>
#include <vector>

namespace windlass::table {
namespace {

using Bytes = std::vector<std::uint8_t>;
ByteView view(const Bytes& bytes) { return ByteView(std::span<const std::uint8_t>(bytes)); }

// `sizes`: what is known of calls, by offset of the return address.
std::map<std::uint64_t, TraceRule> rows_of(const Bytes& code, std::uint64_t function = 0, std::uint8_t x_reg = 3,
                                           const std::map<std::uint64_t, std::int64_t>& sizes = {}) {
  std::map<std::uint64_t, TraceRule> rows;
  rows_of_bare_code(
      view(code), 0x1000, x_reg, [&](std::uint64_t address) { return address == function; },
      [&](std::uint64_t address) {
        const auto found = sizes.find(address - 0x1000);
        return found != sizes.end() ? std::optional(found->second) : std::nullopt;
      },
      [&](std::uint64_t address, const TraceRule& rule) { EXPECT_TRUE(rows.emplace(address, rule).second); });
  return rows;
}

TEST(BareCode, PushesAndPops) {
  const auto rows = rows_of({0x51, 0x53, 0x55,        // push rcx; push rbx; push rbp
                             0x48, 0x83, 0xec, 0x20,  // sub rsp, 32
                             0x74, 0x01, 0x90,        // je over the nop
                             0x48, 0x83, 0xc4, 0x20,  // add rsp, 32
                             0x5d, 0x5b, 0x59, 0xc3,  // pop rbp; pop rbx; pop rcx; ret
                             0x53, 0xc3});            // another one: push rbx; ret
  ASSERT_EQ(rows.size(), 10u);
  const auto depth = [&](std::uint64_t address) { return rows.at(0x1000 + address).cfa_offset; };
  EXPECT_EQ(depth(0), 8);
  EXPECT_EQ(depth(1), 16);
  EXPECT_EQ(depth(2), 24);
  EXPECT_EQ(depth(3), 32);
  EXPECT_EQ(depth(7), 64);
  EXPECT_EQ(depth(14), 32);
  EXPECT_EQ(depth(15), 24);
  EXPECT_EQ(depth(16), 16);
  EXPECT_EQ(depth(17), 8);
  EXPECT_EQ(depth(19), 16);
  const TraceRule& body = rows.at(0x1007);
  EXPECT_EQ(body.fp_kind, WL_REG_CFA);
  EXPECT_EQ(body.fp_offset, -32);
  EXPECT_EQ(body.x_kind, WL_REG_CFA);
  EXPECT_EQ(body.x_offset, -24);
  EXPECT_EQ(rows.at(0x100f).fp_kind, WL_REG_SAME);
  EXPECT_EQ(rows.at(0x1010).x_kind, WL_REG_SAME);
}

// V8's function that shows all registers to its garbage collector (PushAllRegistersAndIterateStack). It has no entry in
// node 20, and has one in 24 and 26.
TEST(BareCode, AllRegistersOnTheStack) {
  const auto rows = rows_of({0x55, 0x48, 0x8b, 0xec, 0x68, 0xcd, 0xcd, 0xcd, 0x00,  // push rbp; mov rbp, rsp; push imm
                             0x56, 0x57, 0x53, 0x41, 0x54, 0x41, 0x55, 0x41, 0x56, 0x41, 0x57,  // rsi rdi rbx r12-r15
                             0x48, 0x81, 0xec, 0xa0, 0,    0,    0,                             // sub rsp, 160
                             0x66, 0x44, 0x0f, 0x7f, 0x3c, 0x24,                                // movdqa [rsp], xmm15
                             0x4c, 0x8b, 0xc4, 0x41, 0xff, 0xd1,                                // mov r8, rsp; call r9
                             0x48, 0x81, 0xc4, 0xe0, 0,    0,    0,    0x5d, 0xc3});  // add rsp, 224; pop rbp; ret
  const auto in_force = [&](std::uint64_t address) { return std::prev(rows.upper_bound(0x1000 + address))->second; };
  const TraceRule call = in_force(35);
  EXPECT_EQ(call.cfa_reg, 7);
  EXPECT_EQ(call.cfa_offset, 240);
  EXPECT_EQ(call.ra_offset, -8);
  EXPECT_EQ(call.fp_kind, WL_REG_CFA);
  EXPECT_EQ(call.fp_offset, -16);
  EXPECT_EQ(call.x_kind, WL_REG_CFA);
  EXPECT_EQ(call.x_offset, -48);
  EXPECT_EQ(in_force(39).cfa_offset, 240);
  EXPECT_EQ(in_force(46).cfa_offset, 16);
  EXPECT_EQ(in_force(46).fp_offset, -16);
  EXPECT_EQ(in_force(47).cfa_offset, 8);
}

TEST(BareCode, WhereItIsNotKnown) {
  const auto rows = rows_of({0x53, 0x48, 0x89, 0xc4, 0x90, 0xc3, 0x90});  // push rbx; mov rsp, rax; nop; ret; nop
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows.at(0x1004).cfa_kind, WL_CFA_UNSUPPORTED);
  EXPECT_EQ(rows.at(0x1006).cfa_offset, 8);
  // A call that does not return, and a symbol behind it.
  const Bytes stub{0x48, 0x83, 0xec, 0x28, 0xe8, 0, 0, 0, 0, 0x90, 0x48, 0x83, 0xec, 0x28, 0xc3};
  EXPECT_EQ(rows_of(stub).at(0x100e).cfa_offset, 8 + 2 * 0x28);
  EXPECT_EQ(rows_of(stub, 0x100a).at(0x100e).cfa_offset, 8 + 0x28);
}

// A switch: each of its cases is reached from the table alone.
TEST(BareCode, CasesOfASwitchHaveTheFrameOfItsFunction) {
  const Bytes code{0x48, 0x83, 0xec, 0x18,        // 0: sub rsp, 24
                   0xff, 0xe0,                    // 4: jmp rax
                   0xb8, 1,    0,    0,    0,     // 6: mov eax, 1
                   0xeb, 0xf0,                    // 11: jmp backwards
                   0xb8, 2,    0,    0,    0,     // 13: mov eax, 2
                   0x48, 0x83, 0xc4, 0x18, 0xc3,  // 18: add rsp, 24; ret
                   0xb8, 3,    0,    0,    0,     // 23: mov eax, 3
                   0x48, 0x83, 0xc4, 0x18,        // 28: add rsp, 24
                   0xe9, 0,    0,    1,    0,     // 32: jmp to another function
                   0xb8, 4,    0,    0,    0,     // 37: mov eax, 4
                   0xe8, 0,    0,    0,    0,     // 42: call
                   0xeb, 0xcf,                    // 47: jmp backwards
                   0xc3};                         // 49: ret, of another function
  const auto rows = rows_of(code, 0x1031, 3, {{47, 24}});
  const auto size = [&](std::uint64_t at) { return std::prev(rows.upper_bound(0x1000 + at))->second.cfa_offset - 8; };
  for (const std::uint64_t at : {4, 6, 11, 13, 18, 23, 28, 37, 42, 47}) EXPECT_EQ(size(at), 24) << at;
  for (const std::uint64_t at : {0, 22, 32, 49}) EXPECT_EQ(size(at), 0) << at;
}

// camlStdlib.do_at_exit and its like in bsc.exe 12.2.0: OCaml 5 calls C that allocates nothing on the system's stack.
TEST(BareCode, CallsOnAnotherStack) {
  const Bytes code{0x48, 0x83, 0xec, 0x18,          // sub rsp, 24
                   0x48, 0x89, 0xe3,                // mov rbx, rsp
                   0x49, 0x8b, 0x66, 0x40,          // mov rsp, [r14 + 64]
                   0xff, 0x15, 0,    0,    0,   0,  // call [rip]
                   0x48, 0x89, 0xdc,                // mov rsp, rbx
                   0x48, 0x83, 0xc4, 0x18, 0xc3};   // add rsp, 24; ret
  const auto rows = rows_of(code);
  ASSERT_EQ(rows.size(), 5u);
  const TraceRule& away = rows.at(0x100b);
  EXPECT_EQ(away.cfa_kind, WL_CFA_REG);
  EXPECT_EQ(away.cfa_reg, 3);
  EXPECT_EQ(away.cfa_offset, 32);
  EXPECT_EQ(away.ra_offset, -8);
  EXPECT_EQ(away.x_kind, WL_REG_UNDEFINED);
  EXPECT_EQ(rows.at(0x1014).cfa_reg, 7);
  EXPECT_EQ(rows.at(0x1014).cfa_offset, 32);
  EXPECT_EQ(rows.at(0x1018).cfa_offset, 8);
  // Only the register whose callers' values the table tracks can lead back.
  EXPECT_EQ(rows_of(code, 0, 12).at(0x100b).cfa_kind, WL_CFA_UNSUPPORTED);
}

TEST(BareCode, ACopyMayBeWrittenOver) {
  const auto after = [](Bytes between, Bytes behind) {
    Bytes code{0x48, 0x89, 0xe3};  // mov rbx, rsp
    code.insert(code.end(), between.begin(), between.end());
    code.insert(code.end(), {0x49, 0x8b, 0x66, 0x40});  // mov rsp, [r14 + 64]
    code.insert(code.end(), behind.begin(), behind.end());
    code.push_back(0x90);
    return std::prev(rows_of(code).end())->second;
  };
  EXPECT_EQ(after({}, {0x90}).cfa_kind, WL_CFA_UNSUPPORTED);  // any instruction may write it
  EXPECT_EQ(after({}, {0xff, 0xd0, 0x48, 0x89, 0xdc}).cfa_reg, 7);
  EXPECT_EQ(after({0x31, 0xdb}, {0xff, 0xd0, 0x48, 0x89, 0xdc}).cfa_kind, WL_CFA_UNSUPPORTED);  // xor ebx, ebx
  EXPECT_EQ(after({}, {0x31, 0xdb, 0x48, 0x89, 0xdc}).cfa_kind, WL_CFA_UNSUPPORTED);
  EXPECT_EQ(after({}, {0x50, 0x48, 0x89, 0xdc}).cfa_kind, WL_CFA_UNSUPPORTED);  // push rax
  EXPECT_EQ(after({}, {0x48, 0x89, 0xc4, 0x90}).cfa_kind, WL_CFA_UNSUPPORTED);  // mov rsp, rax
}

// What is on the stack behind a jump, in the middle of a function, by what stands there: `size` bytes, by one call.
std::int64_t size_behind_a_jump(const Bytes& code, const std::map<std::uint64_t, std::int64_t>& sizes = {}) {
  Bytes whole{0x48, 0x83, 0xec, 0x28, 0xff, 0xe0};  // sub rsp, 40; jmp rax
  const std::uint64_t begin = whole.size();
  whole.insert(whole.end(), code.begin(), code.end());
  std::map<std::uint64_t, std::int64_t> moved;
  for (const auto& [at, size] : sizes) moved[begin + at] = size;
  const auto rows = rows_of(whole, 0, 3, moved);
  return std::prev(rows.upper_bound(0x1000 + begin))->second.cfa_offset - 8;
}

// It is 40, as in front of the jump, unless the code says something else: by a call whose frame is known, or by how
// much it takes off up to a return, or up to a jump if it takes anything off.
TEST(BareCode, WhatStandsBehindAJumpSaysHowMuchThereIs) {
  EXPECT_EQ(size_behind_a_jump({0x90}), 40) << "nothing";
  EXPECT_EQ(size_behind_a_jump({0xc3}), 0);
  EXPECT_EQ(size_behind_a_jump({0xc2, 0x08, 0x00}), 0);
  EXPECT_EQ(size_behind_a_jump({0xcc, 0xc3}), 40) << "a trap is no return";
  EXPECT_EQ(size_behind_a_jump({0x58, 0x59, 0xc3}), 16) << "two pops";
  EXPECT_EQ(size_behind_a_jump({0x50, 0x58, 0x59, 0xc3}), 8) << "a push between";
  EXPECT_EQ(size_behind_a_jump({0x50, 0xc3}), 40) << "less than nothing cannot be";
  EXPECT_EQ(size_behind_a_jump({0x48, 0x83, 0xc4, 0x0c, 0xc3}), 40) << "no whole words";
  EXPECT_EQ(size_behind_a_jump({0x48, 0x81, 0xc4, 0xf8, 0x7f, 0x00, 0x00, 0xc3}), 0x7ff8) << "the most";
  EXPECT_EQ(size_behind_a_jump({0x48, 0x81, 0xc4, 0x00, 0x80, 0x00, 0x00, 0xc3}), 40) << "more than a rule says";
  EXPECT_EQ(size_behind_a_jump({0x58, 0xff, 0xe0}), 8) << "up to a jump";
  EXPECT_EQ(size_behind_a_jump({0xff, 0xe0}), 40) << "nothing was taken off";
  EXPECT_EQ(size_behind_a_jump({0x50, 0xff, 0xe0}), 40);
  EXPECT_EQ(size_behind_a_jump({0x74, 0x00, 0x58, 0xc3}), 8) << "behind a branch";
  const Bytes call{0xe8, 0, 0, 0, 0, 0x90};
  EXPECT_EQ(size_behind_a_jump(call, {{5, 64}}), 64) << "behind a call with a known frame";
  EXPECT_EQ(size_behind_a_jump(call, {{5, 0}}), 0);
  EXPECT_EQ(size_behind_a_jump(call, {{5, 4}}), 40);
  EXPECT_EQ(size_behind_a_jump({0x50, 0xe8, 0, 0, 0, 0, 0x90}, {{6, 64}}), 56) << "one word of it is pushed before";
  EXPECT_EQ(size_behind_a_jump({0x58, 0xe8, 0, 0, 0, 0, 0x90}, {{6, 64}}), 72);
  EXPECT_EQ(size_behind_a_jump({0xe8, 0, 0, 0, 0, 0x58, 0xc3}), 8) << "a call of which nothing is known is passed";
  // On another stack, up to the way back: what is pushed there is not on this one.
  EXPECT_EQ(size_behind_a_jump({0x49, 0x8b, 0x66, 0x40, 0x48, 0x89, 0xdc, 0x58, 0xc3}), 8);
  EXPECT_EQ(size_behind_a_jump({0x48, 0x89, 0xdc, 0x58, 0xc3}), 40) << "a way back without a way there";
  EXPECT_EQ(size_behind_a_jump({0x49, 0x8b, 0x66, 0x40, 0x49, 0x8b, 0x66, 0x40, 0x58, 0xc3}), 40) << "twice";
  EXPECT_EQ(size_behind_a_jump({0x49, 0x8b, 0x66, 0x40, 0xe8, 0, 0, 0, 0, 0x48, 0x89, 0xdc, 0x58, 0xc3}, {{9, 64}}), 8)
      << "a call on the other stack";
}

// A copy of rsp is `mov x, rsp`, in both of its registers' forms; x is rbx or r12.
TEST(BareCode, OnlyACopyOfTheWholeRspLeadsBack) {
  const auto leads_back = [](Bytes copy, std::uint8_t x_reg, const Bytes& back) {
    copy.insert(copy.end(), {0x49, 0x8b, 0x66, 0x40, 0xff, 0xd0});  // mov rsp, [r14 + 64]; call rax
    copy.insert(copy.end(), back.begin(), back.end());
    copy.push_back(0x90);
    const auto rows = rows_of(copy, 0, x_reg);
    return std::prev(rows.end())->second.cfa_kind == WL_CFA_REG;
  };
  const Bytes from_rbx{0x48, 0x89, 0xdc}, from_r12{0x4c, 0x89, 0xe4};
  EXPECT_TRUE(leads_back({0x48, 0x89, 0xe3}, 3, from_rbx));
  EXPECT_TRUE(leads_back({0x49, 0x89, 0xe4}, 12, from_r12));
  EXPECT_FALSE(leads_back({0x49, 0x89, 0xe3}, 3, from_rbx)) << "mov r11, rsp";
  EXPECT_FALSE(leads_back({0x40, 0x89, 0xe3}, 3, from_rbx)) << "mov ebx, esp";
  EXPECT_FALSE(leads_back({0x48, 0x8b, 0xe3}, 3, from_rbx)) << "the other way";
  EXPECT_FALSE(leads_back({0x48, 0x89, 0xeb}, 3, from_rbx)) << "mov rbx, rbp";
  EXPECT_FALSE(leads_back({0x48, 0x89, 0xe1}, 3, from_rbx)) << "mov rcx, rsp";
}

// What a branch takes along holds where it leads, and only there.
TEST(BareCode, ABranchTakesItsFrameAlong) {
  const auto rows = rows_of({0x53,                    // 0: push rbx
                             0x74, 0x05,              // 1: je 8
                             0x5b, 0xc3,              // 3: pop rbx; ret
                             0x90, 0x90, 0x90,        // 5: nops: another function, or padding
                             0x51, 0x59, 0x5b, 0xc3,  // 8: push rcx; pop rcx; pop rbx; ret
                             0x90});                  // 12
  const auto size = [&](std::uint64_t at) { return std::prev(rows.upper_bound(0x1000 + at))->second.cfa_offset - 8; };
  EXPECT_EQ(size(1), 8);
  EXPECT_EQ(size(4), 0);
  EXPECT_EQ(size(8), 8) << "as the branch has it";
  EXPECT_EQ(size(9), 16);
  EXPECT_EQ(size(11), 0);
  EXPECT_EQ(size(12), 0);
  EXPECT_EQ(std::prev(rows.upper_bound(0x1008))->second.x_kind, WL_REG_CFA) << "rbx is saved there, too";
}

// A pushed register is where it was pushed first, until that is popped.
TEST(BareCode, ARegisterIsWhereItWasPushedFirst) {
  const auto rows = rows_of({0x55, 0x53, 0x55, 0x53,  // 0: push rbp; push rbx; push rbp; push rbx
                             0x58, 0x58,              // 4: pop rax; pop rax
                             0x58, 0x58,              // 6: pop rax; pop rax
                             0x55, 0xc3});            // 8: push rbp; ret
  const auto rule = [&](std::uint64_t at) { return std::prev(rows.upper_bound(0x1000 + at))->second; };
  for (const std::uint64_t at : {2, 3, 4, 5, 6}) {
    EXPECT_EQ(rule(at).fp_kind, WL_REG_CFA) << at;
    EXPECT_EQ(rule(at).fp_offset, -16) << at;
    EXPECT_EQ(rule(at).x_kind, WL_REG_CFA) << at;
    EXPECT_EQ(rule(at).x_offset, -24) << at;
    EXPECT_EQ(rule(at).ra_kind, WL_REG_CFA);
  }
  EXPECT_EQ(rule(7).x_kind, WL_REG_SAME);
  EXPECT_EQ(rule(7).fp_kind, WL_REG_CFA);
  EXPECT_EQ(rule(8).fp_kind, WL_REG_SAME);
  EXPECT_EQ(rule(9).fp_offset, -16);
}

std::vector<std::pair<std::uint64_t, std::uint64_t>> copies_of(const Bytes& code) {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> copies;
  each_copy_in_rsp(view(code), 0x1000, view(code), 0x1000, 2,
                   [&](std::uint64_t begin, std::uint64_t end) { copies.emplace_back(begin, end); });
  return copies;
}

TEST(CopyInRsp, BetweenMoveAndChange) {
  using Copies = std::vector<std::pair<std::uint64_t, std::uint64_t>>;
  const Bytes dispatcher{0x90, 0x48, 0x89, 0xcc,           // nop; mov rsp, rcx
                         0xe8, 0,    0,    0,    0,        // call
                         0x48, 0x89, 0xe1,                 // mov rcx, rsp
                         0x48, 0x8b, 0xa1, 0x88, 0, 0, 0,  // mov rsp, [rcx + 136]
                         0x90};
  EXPECT_EQ(copies_of(dispatcher), (Copies{{0x1004, 0x1013}}));
  // rdx is another register; a branch from before into the piece makes it uncertain.
  EXPECT_EQ(copies_of({0x48, 0x89, 0xd4, 0x90, 0xc3}), Copies{});
  EXPECT_EQ(copies_of({0x74, 0x03, 0x48, 0x89, 0xcc, 0x90, 0xc3}), Copies{});
  EXPECT_EQ(copies_of({0x74, 0x00, 0x48, 0x89, 0xcc, 0x90, 0xc3}), (Copies{{0x1005, 0x1007}}));
}

// Where a piece ends, and which branches spoil it: those from outside to an address in it.
TEST(CopyInRsp, EachBranchIntoThePieceSpoilsIt) {
  using Copies = std::vector<std::pair<std::uint64_t, std::uint64_t>>;
  const Copies none;
  // A branch of two bytes in front of: mov rsp, rcx; 3 nops; push rax; nop. The piece is [5, 9).
  for (int target = 2; target <= 10; ++target)
    for (const int branch : {0x74, 0xeb}) {  // je, jmp
      const bool inside = target >= 5 && target < 9;
      EXPECT_EQ(copies_of({branch == 0x74 ? std::uint8_t{0x74} : std::uint8_t{0xeb},
                           static_cast<std::uint8_t>(target - 2), 0x48, 0x89, 0xcc, 0x90, 0x90, 0x90, 0x50, 0x90}),
                inside ? none : (Copies{{0x1005, 0x1009}}))
          << target;
    }
  // Behind the piece, which is [3, 7): mov rsp, rcx; 3 nops; push rax; a branch back. In the piece: je to the next.
  for (int target = 0; target <= 9; ++target)
    EXPECT_EQ(copies_of({0x48, 0x89, 0xcc, 0x90, 0x90, 0x90, 0x50, 0x74, static_cast<std::uint8_t>(target - 9)}),
              target >= 3 && target < 7 ? none : (Copies{{0x1003, 0x1007}}))
        << target;
  EXPECT_EQ(copies_of({0x48, 0x89, 0xcc, 0x74, 0x00, 0x74, 0xfc, 0x90, 0x50}), (Copies{{0x1003, 0x1009}}))
      << "branches of the piece's own";
  EXPECT_EQ(copies_of({0x48, 0x89, 0xcc, 0x90}), (Copies{{0x1003, 0x1004}})) << "up to the end of the code";
  EXPECT_EQ(copies_of({0x90, 0x48, 0x89, 0xcc}), none) << "nothing is behind the move";
  EXPECT_EQ(copies_of({0x48, 0x89, 0xcc, 0x90, 0x48, 0x89, 0xcc, 0x90}), (Copies{{0x1003, 0x1008}}))
      << "twice the same";
  EXPECT_EQ(copies_of({0x48, 0x89, 0xcc, 0x90, 0x48, 0x89, 0xd4, 0x90}), (Copies{{0x1003, 0x1007}}))
      << "another register";
  EXPECT_EQ(copies_of({0x48, 0x89, 0xcc, 0x50, 0x90, 0x48, 0x89, 0xcc, 0x90, 0x58}),
            (Copies{{0x1003, 0x1004}, {0x1008, 0x100a}}))
      << "two pieces";
  EXPECT_EQ(copies_of({0x48, 0x89, 0xcc, 0x90, 0x06, 0x90}), none) << "no code: a branch may be among what follows";
  for (const Bytes& change :
       {Bytes{0x50}, Bytes{0x58}, Bytes{0x48, 0x83, 0xec, 0x08}, Bytes{0xc3}, Bytes{0xeb, 0x00}}) {
    Bytes code{0x48, 0x89, 0xcc, 0x90};
    code.insert(code.end(), change.begin(), change.end());
    const std::uint64_t end = 0x1000 + code.size();
    code.insert(code.end(), {0x90, 0x90});
    EXPECT_EQ(copies_of(code), (Copies{{0x1003, end}})) << int{change[0]};
  }
}

}  // namespace
}  // namespace windlass::table
