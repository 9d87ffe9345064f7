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

std::map<std::uint64_t, TraceRule> rows_of(const Bytes& code, std::uint64_t function = 0, std::uint8_t x_reg = 3) {
  std::map<std::uint64_t, TraceRule> rows;
  rows_of_bare_code(
      view(code), 0x1000, x_reg, [&](std::uint64_t address) { return address == function; },
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

}  // namespace
}  // namespace windlass::table
