// Unwind information compared with the code.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <vector>

#include "base/registers.h"
#include "flow/synthesis.h"

namespace windlass::flow {
namespace {

constexpr std::uint64_t kCode = 0x400000;

class Contradictions : public testing::Test {
 protected:
  std::optional<FrameRow> ask(const FrameRow& row, CodeAddress pc) {
    const auto read = [this](std::uint64_t address, void* to, std::size_t size) {
      ++reads;
      if (address < kCode || address - kCode > code.size() || size > code.size() - (address - kCode)) return false;
      std::memcpy(to, code.data() + (address - kCode), size);
      return true;
    };
    const auto kind = [this](std::uint64_t address) {
      return address - kCode < code.size() ? CodeKind::kFile : CodeKind::kNoCode;
    };
    const auto plausible = [](const FrameRow& asked) { return asked.cfa.offset() != 8 || asked.begin != 0; };
    return contradicts(row, {Architecture::kX86_64, read, kind, plausible}, pc, *scratch);
  }
  std::optional<FrameRow> at(const FrameRow& row, std::uint64_t offset) {
    return ask(row, CodeAddress::instruction(kCode + offset));
  }
  static FrameRow by_sp(std::int32_t offset) {
    FrameRow row;
    row.cfa = CfaRule::at(x86_64::kRsp, offset);
    row.return_address = RegisterRule::at_cfa(-8);
    return row;
  }
  static std::int64_t cfa_of(const std::optional<FrameRow>& row) {
    return row && row->cfa.is(CfaRule::kRegister) ? row->cfa.offset() : -1;
  }
  std::vector<std::uint8_t> code;
  unsigned reads = 0;
  struct Free {
    void operator()(SynthesisScratch* s) const { free_scratch(s); }
  };
  std::unique_ptr<SynthesisScratch, Free> scratch{make_scratch()};
};

TEST_F(Contradictions, AnEpilogueWithoutNotes) {
  code = {0x48, 0x83, 0xc4, 0x08, 0x5b, 0x5d, 0xc3};  // add rsp,8; pop rbx; pop rbp; ret
  FrameRow row = by_sp(32);
  (void)row.registers.set(x86_64::kRbx, RegisterRule::at_cfa(-24));
  (void)row.registers.set(x86_64::kRbp, RegisterRule::at_cfa(-16));
  EXPECT_FALSE(at(row, 0));  // it is right at first
  const auto popping = at(row, 4);
  EXPECT_EQ(cfa_of(popping), 24);
  const auto popped = at(row, 5);
  ASSERT_EQ(cfa_of(popped), 16);
  EXPECT_EQ(popped->registers.find(x86_64::kRbx), nullptr);
  EXPECT_TRUE(*popped->registers.find(x86_64::kRbp) == RegisterRule::at_cfa(-16));
  EXPECT_EQ(cfa_of(at(row, 6)), 8);
}

TEST_F(Contradictions, PushesWithoutNotes) {
  // push rbx; push rbp; mov ebx,[rdi]; dec ecx; jne -4; pop rbp; pop rbx; ret
  code = {0x53, 0x55, 0x8b, 0x1f, 0xff, 0xc9, 0x75, 0xfa, 0x5d, 0x5b, 0xc3};
  const FrameRow row = by_sp(8);
  EXPECT_FALSE(at(row, 0));
  EXPECT_EQ(cfa_of(at(row, 1)), 16);
  const auto body = at(row, 2);
  ASSERT_EQ(cfa_of(body), 24);
  EXPECT_TRUE(*body->registers.find(x86_64::kRbx) == RegisterRule::at_cfa(-16));
  EXPECT_TRUE(*body->registers.find(x86_64::kRbp) == RegisterRule::at_cfa(-24));
  EXPECT_EQ(cfa_of(at(row, 6)), 24);
  EXPECT_FALSE(at(row, 10));
}

TEST_F(Contradictions, CodeThatProvesNothing) {
  code = {0x53, 0xe8, 0, 0, 0, 1, 0x5b, 0xc3};  // push rbx; call; pop rbx; ret
  EXPECT_FALSE(at(by_sp(8), 0));
  code = {0xff, 0xe0};  // jmp rax
  EXPECT_FALSE(at(by_sp(8), 0));
  code = {0x0f, 0x0b};  // ud2
  EXPECT_FALSE(at(by_sp(8), 0));
  FrameRow trampoline = by_sp(8);
  trampoline.signal_frame = true;
  code = {0x5b, 0xc3};
  EXPECT_FALSE(at(trampoline, 0));
}

TEST_F(Contradictions, AReturnAddressIsLeftAloneUnlessItsRowLeadsNowhere) {
  code = {0xe8, 0, 0, 0, 1, 0x5b, 0xc3};  // call; pop rbx; ret
  const CodeAddress behind = CodeAddress::return_address(kCode + 5);
  reads = 0;
  EXPECT_FALSE(ask(by_sp(16), behind));
  EXPECT_EQ(reads, 0u);
  EXPECT_EQ(cfa_of(ask(by_sp(8), behind)), 16);  // not plausible above
  FrameRow fine = by_sp(8);
  fine.begin = kCode;
  EXPECT_FALSE(ask(fine, behind));
}

TEST_F(Contradictions, OrdinaryInstructionsCostOneRead) {
  code = {0x48, 0x89, 0xd8, 0x48, 0x01, 0xc8, 0x5b, 0xc3};  // mov rax,rbx; add rax,rcx; pop rbx; ret
  reads = 0;
  EXPECT_FALSE(at(by_sp(16), 0));
  EXPECT_EQ(reads, 1u);
}

// push rbx; lea rsp,[rbp-8]; pop rbx; pop rbp; ret: rbx has been pushed where it is popped, and is not what lies there.
TEST(EpilogueRow, NotFromBetweenSettingAFramePointerAndPushing) {
  static constexpr std::uint8_t kBytes[] = {0x53, 0x48, 0x8d, 0x65, 0xf8, 0x5b, 0x5d, 0xc3};
  const auto read = [](std::uint64_t address, void* to, std::size_t size) {
    if (address < kCode || address - kCode > sizeof kBytes || size > sizeof kBytes - (address - kCode)) return false;
    std::memcpy(to, kBytes + (address - kCode), size);
    return true;
  };
  const auto kind = [](std::uint64_t) { return CodeKind::kFile; };
  const auto plausible = [](const FrameRow&) { return true; };
  const CodeSource source{Architecture::kX86_64, read, kind, plausible};
  const std::unique_ptr<SynthesisScratch, void (*)(SynthesisScratch*)> scratch(make_scratch(), free_scratch);
  EXPECT_FALSE(epilogue_row(source, kCode, *scratch));
  EXPECT_TRUE(epilogue_row(source, kCode + 1, *scratch)) << "what has been pushed before";
}

}  // namespace
}  // namespace windlass::flow
