// whole_function() on small functions between padding: what proves rows, and what does not.
#include "flow/whole_function.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <initializer_list>
#include <utility>
#include <vector>

#include "base/registers.h"

namespace windlass::flow {
namespace {

constexpr std::uint64_t kCode = 0x400000, kFirst = kCode + 0x40, kSize = 0x4000;
constexpr std::uint8_t kInt3 = 0xcc;

class WholeFunctions : public testing::Test {
 protected:
  // At `at`, and padding to the next multiple of 16. What lies behind that.
  std::uint64_t put(std::uint64_t at, const std::vector<int>& bytes) {
    for (const int byte : bytes) bytes_[at++ - kCode] = static_cast<std::uint8_t>(byte);
    return (at + 15) & ~std::uint64_t{15};
  }
  // The CFA's distance from rsp at `at`; 0: none is proved.
  std::int32_t depth_at(std::uint64_t at) {
    found = whole_function_at(at);
    const FrameRow* const row = found.find(at);
    return row != nullptr && row->cfa.is_at(x86_64::kRsp) ? row->cfa.offset() : 0;
  }
  WholeFunction whole_function_at(std::uint64_t at) {
    const auto plausible = [](const FrameRow&) { return true; };
    return whole_function({Architecture::kX86_64, read_, kind_at_, plausible}, at);
  }

  CodeKind kind_ = CodeKind::kFile;
  std::vector<std::uint8_t> bytes_ = std::vector<std::uint8_t>(kSize, kInt3);
  WholeFunction found;
  const std::function<bool(std::uint64_t, void*, std::size_t)> read_ = [this](std::uint64_t address, void* to,
                                                                              std::size_t size) {
    if (address - kCode >= kSize || size > kSize - (address - kCode)) return false;
    std::memcpy(to, &bytes_[address - kCode], size);
    return true;
  };
  const std::function<CodeKind(std::uint64_t)> kind_at_ = [this](std::uint64_t address) {
    return address - kCode < kSize ? kind_ : CodeKind::kNoCode;
  };
};

// sub rsp, 24; test edi, edi; je 1f; mov rbx, rdi; call; nop; add rsp, 24; ret; 1: call; nop
const std::initializer_list<int> kNoRegisterKept{0x48, 0x83, 0xec, 0x18, 0x85, 0xff, 0x74, 0x0e, 0x48, 0x89,
                                                 0xfb, 0xe8, 0,    0,    0x10, 0,    0x90, 0x48, 0x83, 0xc4,
                                                 0x18, 0xc3, 0xe8, 0,    0,    0x10, 0,    0x90};

TEST_F(WholeFunctions, AllInstructionsOfAFunctionThatKeepsNoRegister) {
  const std::uint64_t next = put(kFirst, kNoRegisterKept);
  put(next, kNoRegisterKept);
  EXPECT_EQ(depth_at(kFirst), 8);
  EXPECT_EQ(depth_at(kFirst + 4), 32);
  EXPECT_EQ(depth_at(kFirst + 0x0b), 32) << "a call";
  EXPECT_EQ(depth_at(kFirst + 0x10), 32) << "the padding behind it";
  EXPECT_EQ(depth_at(kFirst + 0x16), 32) << "a call that need not return";
  EXPECT_EQ(depth_at(kFirst + 0x15), 8) << "the return";
  EXPECT_EQ(found.range.begin, kFirst);
  EXPECT_EQ(found.range.end, next);
  const FrameRow* const row = found.find(kFirst + 0x0b);
  ASSERT_NE(row, nullptr);
  const RegisterRule* const rbx = row->registers.find(x86_64::kRbx);
  ASSERT_NE(rbx, nullptr);
  EXPECT_TRUE(rbx->is(RegisterRule::kUndefined));
  const FrameRow* const first = found.find(kFirst + 4);
  ASSERT_NE(first, nullptr);
  EXPECT_NE(first->registers.find(x86_64::kRbx), nullptr) << "functions that were called have not kept it either";
  EXPECT_EQ(row->registers.find(x86_64::kRbp), nullptr) << "code of V8 keeps this register alone";
}

// JavaScriptCore's parser: a frame pointer lost in its middle ended the stack at the next generated code.
TEST_F(WholeFunctions, SavedRegistersAreKnownBehindManyLocalVariables) {
  // push rbp; mov rbp, rsp; push rbx; sub rsp, 0x108
  std::vector<int> code{0x55, 0x48, 0x89, 0xe5, 0x53, 0x48, 0x81, 0xec, 0x08, 0x01, 0, 0};
  const auto add = [&code](std::initializer_list<int> bytes) { code.insert(code.end(), bytes); };
  for (int at = 0; at < 128; at += 8) add({0x48, 0x89, 0x7c, 0x24, at});         // mov [rsp + at], rdi
  for (int at = 0x18; at <= 0x80; at += 8) add({0x48, 0x89, 0x7d, 0x100 - at});  // mov [rbp - at], rdi
  const std::uint64_t call = kFirst + code.size();
  add({0xe8, 0, 0, 0x10, 0});                                   // call
  add({0x48, 0x81, 0xc4, 0x08, 0x01, 0, 0, 0x5b, 0x5d, 0xc3});  // add rsp, 0x108; pop rbx; pop rbp; ret
  put(put(kFirst, code), kNoRegisterKept);
  EXPECT_EQ(depth_at(call), 0x108 + 24);
  const FrameRow* const row = found.find(call);
  ASSERT_NE(row, nullptr);
  for (const auto& [reg, offset] : {std::pair{x86_64::kRbp, -16}, {x86_64::kRbx, -24}}) {
    const RegisterRule* const rule = row->registers.find(reg);
    ASSERT_NE(rule, nullptr) << reg;
    EXPECT_EQ(*rule, RegisterRule::at_cfa(offset)) << reg;
  }
}

TEST_F(WholeFunctions, AFunctionWithoutPaddingBehindIt) {
  // sub rsp, 24; test edi, edi; jne 1f; add rsp, 24; ret; 1: mov rdi, rsp; nop; call (to the end of 32 bytes)
  const std::uint64_t next =
      put(kFirst, {0x48, 0x83, 0xec, 0x18, 0x85, 0xff, 0x75, 0x05, 0x48, 0x83, 0xc4, 0x18, 0xc3, 0x48, 0x89, 0xe7,
                   0x0f, 0x1f, 0x84, 0,    0,    0,    0,    0,    0x0f, 0x1f, 0x00, 0xe8, 0,    0,    0x10, 0});
  ASSERT_EQ(next, kFirst + 32);
  put(next, kNoRegisterKept);
  EXPECT_EQ(depth_at(kFirst + 0x0d), 32);
  EXPECT_EQ(depth_at(next + 4), 32);
  EXPECT_EQ(found.range.begin, next);
}

TEST_F(WholeFunctions, AReturnWithThingsOnTheStackProvesNothing) {
  // sub rsp, 24; nop; add rsp, 16; ret
  put(kFirst, {0x48, 0x83, 0xec, 0x18, 0x90, 0x48, 0x83, 0xc4, 0x10, 0xc3});
  EXPECT_EQ(depth_at(kFirst + 4), 0);
}

TEST_F(WholeFunctions, OneOfTwoReturnsDisagrees) {
  // sub rsp, 24; test edi, edi; jne 1f; add rsp, 24; ret; 1: add rsp, 16; ret
  put(kFirst,
      {0x48, 0x83, 0xec, 0x18, 0x85, 0xff, 0x75, 0x05, 0x48, 0x83, 0xc4, 0x18, 0xc3, 0x48, 0x83, 0xc4, 0x10, 0xc3});
  EXPECT_EQ(depth_at(kFirst + 4), 0);
}

TEST_F(WholeFunctions, AReturnThatTakesArgumentsProvesNothing) {
  put(kFirst, {0x48, 0x83, 0xec, 0x18, 0x90, 0x48, 0x83, 0xc4, 0x18, 0xc2, 0x08, 0x00});  // ret 8
  EXPECT_EQ(depth_at(kFirst + 4), 0);
}

TEST_F(WholeFunctions, WhatNeverReturnsProvesNothing) {
  put(kFirst, {0x48, 0x83, 0xec, 0x18, 0xe8, 0, 0, 0x10, 0, 0x90});
  EXPECT_EQ(depth_at(kFirst + 4), 0);
}

TEST_F(WholeFunctions, AJumpElsewhereWithTheFrameStillThereProvesNothing) {
  // sub rsp, 24; test edi, edi; jne far; add rsp, 24; ret
  put(kFirst, {0x48, 0x83, 0xec, 0x18, 0x85, 0xff, 0x0f, 0x85, 0, 0, 0x10, 0, 0x48, 0x83, 0xc4, 0x18, 0xc3});
  EXPECT_EQ(depth_at(kFirst + 4), 0);
  // The same with the frame given back: sub rsp, 24; call; add rsp, 24; test eax, eax; jne far; ret
  put(kFirst, {0x48, 0x83, 0xec, 0x18, 0xe8, 0,    0, 0x10, 0,    0x48, 0x83,
               0xc4, 0x18, 0x85, 0xc0, 0x0f, 0x85, 0, 0,    0x10, 0,    0xc3});
  EXPECT_EQ(depth_at(kFirst + 4), 32);
}

// The last byte of a constant is int3's, and what follows it is aligned: no function begins or ends there.
TEST_F(WholeFunctions, AStartOrAnEndInTheMiddleOfAFunctionIsNone) {
  // sub rsp, 24; mov eax, 0xcc000000 up to an aligned place; jne to the end; nops; call; add rsp, 24; ret
  put(kFirst,
      {0x48, 0x83, 0xec, 0x18, 0x85, 0xff, 0x75, 0x18, 0x90, 0x90, 0x90, 0xb8, 0,    0,    0,    0xcc, 0xe8, 0,   0,
       0x10, 0,    0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x48, 0x83, 0xc4, 0x18, 0xc3});
  EXPECT_EQ(depth_at(kFirst + 0x10), 32) << "a start between";
  EXPECT_EQ(found.range.begin, kFirst);
  EXPECT_EQ(depth_at(kFirst + 4), 32) << "an end between";
  EXPECT_EQ(found.range.begin, kFirst);
}

// Code of a file that is not reached by jumps (handlers of exceptions) has no row, and the rest has.
TEST_F(WholeFunctions, UnreachedCodeHasNoRow) {
  // sub rsp, 24; call; add rsp, 24; ret; (a handler) call; add rsp, 24; ret
  put(kFirst, {0x48, 0x83, 0xec, 0x18, 0xe8, 0,    0, 0x10, 0,    0x48, 0x83, 0xc4,
               0x18, 0xc3, 0xe8, 0,    0,    0x10, 0, 0x48, 0x83, 0xc4, 0x18, 0xc3});
  EXPECT_EQ(depth_at(kFirst + 0x0e), 0);
  EXPECT_NE(found.find(kFirst + 4), nullptr) << "and what is kept of the function has the others";
  EXPECT_EQ(depth_at(kFirst + 4), 32);
}

// sub rsp, 24; call; nop: the function never returns here, and what stands behind is another one.
TEST_F(WholeFunctions, SayMoreThanASearch) {
  put(kFirst, {0x48, 0x83, 0xec, 0x18, 0xe8, 0, 0, 0x10, 0, 0x90, 0x48, 0x83, 0xc4, 0x08, 0xc3});
  bool is_known = false, fits = true;
  const auto plausible = [&](const FrameRow& row) { return fits || row.cfa.offset() == 16; };
  const auto whole = [&](const CodeSource&, CodeAddress, FrameRow& row) {
    row.cfa = CfaRule::at(x86_64::kRsp, 32);
    row.return_address = RegisterRule::at_cfa(-8);
    return is_known;
  };
  CodeSource source{Architecture::kX86_64, read_, kind_at_, plausible};
  source.by_whole_function = whole;
  const OwnScratch scratch(make_scratch());
  const auto found_at_call = [&] {
    const auto synthesis = synthesize(source, CodeAddress::return_address(kFirst + 9), *scratch);
    return synthesis ? std::pair(synthesis->row.cfa.offset(), synthesis->certainty) : std::pair(0, Certainty::kGuess);
  };
  const std::pair by_search{16, Certainty::kLikely};
  EXPECT_EQ(found_at_call(), by_search);
  is_known = true;
  EXPECT_EQ(found_at_call(), (std::pair{32, Certainty::kCertain}));
  fits = false;
  EXPECT_EQ(found_at_call(), by_search) << "the row does not fit the stack";
  fits = true;
  kind_ = CodeKind::kGenerated;
  EXPECT_EQ(found_at_call(), by_search) << "other code may be there any time";
}

TEST_F(WholeFunctions, AFramePointerThatIsNotKeptSaysNothing) {
  // push rbp; lea rbp, [rsp+8]; and rsp, -32; nop; call; lea rsp, [rbp-8]; pop rbp; ret
  std::vector<int> code{0x55, 0x48, 0x8d, 0x6c, 0x24, 0x08, 0x48, 0x83, 0xe4, 0xe0, 0x90,
                        0xe8, 0,    0,    0x10, 0,    0x48, 0x8d, 0x65, 0xf8, 0x5d, 0xc3};
  const auto by_fp = [&] {
    found = whole_function_at(kFirst + 10);
    const FrameRow* const row = found.find(kFirst + 10);
    return row != nullptr && row->cfa == CfaRule::at(x86_64::kRbp, 8);
  };
  put(kFirst, code);
  EXPECT_TRUE(by_fp());
  code[code.size() - 2] = 0x59;  // pop rcx: the caller's is lost
  put(kFirst, code);
  EXPECT_FALSE(by_fp());
  EXPECT_FALSE(found.rows.empty()) << "sp still says where the frame is";
}

// mov rdi, [rsi]; mov r8, rdi; mov [rdi], rbx; xor ebx, ebx; xor edi, edi; nop; mov rbx, [r8]; ret
TEST_F(WholeFunctions, WhereARegisterWasSavedIsSaidByAnotherOneLater) {
  put(kFirst,
      {0x48, 0x8b, 0x3e, 0x49, 0x89, 0xf8, 0x48, 0x89, 0x1f, 0x31, 0xdb, 0x31, 0xff, 0x90, 0x49, 0x8b, 0x18, 0xc3});
  found = whole_function_at(kFirst);
  const auto rbx_at = [this](std::uint64_t at) {
    const FrameRow* const row = found.find(at);
    const RegisterRule* const rule = row != nullptr ? row->registers.find(x86_64::kRbx) : nullptr;
    return rule != nullptr ? *rule : RegisterRule::same_value();
  };
  const RegisterRule by_rdi = rbx_at(kFirst + 11), by_r8 = rbx_at(kFirst + 13);
  EXPECT_FALSE(by_rdi.is(RegisterRule::kUndefined) || by_rdi.is(RegisterRule::kSameValue));
  EXPECT_FALSE(by_r8.is(RegisterRule::kUndefined) || by_r8.is(RegisterRule::kSameValue));
  EXPECT_FALSE(by_rdi == by_r8);
  EXPECT_TRUE(rbx_at(kFirst + 17) == by_r8) << "it is still there";
}

// Of GraalVM's native images each function that is compiled at run time has a mapping of its own.
TEST_F(WholeFunctions, AMappingBeginsWithAFunction) {
  // push rbx; nop; pop rbx; ret
  const std::initializer_list<int> code{0x53, 0x90, 0x5b, 0xc3};
  for (const CodeKind kind : {CodeKind::kFile, CodeKind::kGenerated}) {
    kind_ = kind;
    put(kCode, code);
    EXPECT_EQ(depth_at(kCode + 1), 16);
    EXPECT_EQ(found.range.begin, kCode);
    put(kCode + 0x1000, code);
    bytes_[0xfff] = 0x90;
    EXPECT_EQ(depth_at(kCode + 0x1001), 0) << "a page in the middle";
  }
}

TEST_F(WholeFunctions, GeneratedCodeIsNotSearchedForLongFunctions) {
  constexpr std::uint64_t kEnd = kCode + 0x3100;
  bytes_.assign(kSize, 0x90);
  put(kCode, {0x48, 0x83, 0xec, 0x18});       // sub rsp, 24
  put(kEnd, {0x48, 0x83, 0xc4, 0x18, 0xc3});  // add rsp, 24; ret
  put(kEnd + 8, {kInt3, kInt3, kInt3, kInt3, kInt3, kInt3, kInt3, kInt3, 0x90});
  EXPECT_EQ(depth_at(kCode + 4), 32);
  kind_ = CodeKind::kGenerated;
  for (const std::uint64_t at : {kCode + 4, kCode + 0x1800, kEnd}) EXPECT_EQ(depth_at(at), 0) << at;
  put(kCode + 0x2f00, {0x48, 0x83, 0xc4, 0x18, 0xc3, kInt3, kInt3, kInt3, kInt3, kInt3, kInt3, kInt3, kInt3, kInt3,
                       kInt3, kInt3, 0x90});
  EXPECT_EQ(depth_at(kCode + 4), 32);
  EXPECT_EQ(depth_at(kCode + 0x2f00), 32);
}

// sub rsp, 24; call; xor ebx, ebx; nop; add rsp, 24; ret: a return that does not keep rbx.
TEST_F(WholeFunctions, ProveGeneratedCodeThatKeepsNoRegisters) {
  kind_ = CodeKind::kGenerated;
  put(kCode, {0x48, 0x83, 0xec, 0x18, 0xe8, 0, 0, 0x10, 0, 0x31, 0xdb, 0x90, 0x48, 0x83, 0xc4, 0x18, 0xc3});
  std::int32_t depth = 0;
  const auto plausible = [](const FrameRow&) { return true; };
  const auto whole = [&](const CodeSource&, CodeAddress, FrameRow& row) {
    row.cfa = CfaRule::at(x86_64::kRsp, depth);
    row.return_address = RegisterRule::at_cfa(-8);
    return depth != 0;
  };
  CodeSource source{Architecture::kX86_64, read_, kind_at_, plausible};
  source.by_whole_function = whole;
  const OwnScratch scratch(make_scratch());
  const auto certainty = [&] {
    const auto synthesis = synthesize(source, CodeAddress::return_address(kCode + 9), *scratch);
    return synthesis && synthesis->row.cfa.offset() == 32 ? synthesis->certainty : Certainty::kGuess;
  };
  EXPECT_EQ(certainty(), Certainty::kGuess);
  depth = 32;
  EXPECT_EQ(certainty(), Certainty::kCertain);
  depth = 16;
  EXPECT_EQ(certainty(), Certainty::kGuess) << "the way out and the function differ";
}

TEST_F(WholeFunctions, CodeWithoutStartsIsNotFollowed) {
  bytes_.assign(kSize, 0x90);
  EXPECT_EQ(depth_at(kFirst + 4), 0);
  EXPECT_TRUE(found.range.contains(kFirst + 4));
}

}  // namespace
}  // namespace windlass::flow
