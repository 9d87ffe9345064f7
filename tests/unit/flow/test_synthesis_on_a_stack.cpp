// Synthesis with a stack at hand: which of several ways out is taken where only the stack decides.
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "base/registers.h"
#include "flow/synthesis.h"
#include "walk/apply.h"

namespace windlass::flow {
namespace {

constexpr std::uint64_t kCode = 0x400000, kStack = 0x7fff0000, kCallerCode = 0x500000;
constexpr std::uint64_t kReturn = kCallerCode + 5;  // behind a call at kCallerCode

enum Outcome { kCaller, kOutermost, kNothing };

// A thread stopped in hand-made code, its stack in memory.
class SynthesisOnAStack : public testing::Test {
 protected:
  SynthesisOnAStack() {
    put(kCallerCode - 8, std::vector<std::uint8_t>(8, 0x90));
    put(kCallerCode, {0xe8, 0, 0, 0, 0, 0x90});
  }
  void put(std::uint64_t address, const std::vector<std::uint8_t>& bytes) {
    for (std::size_t i = 0; i < bytes.size(); ++i) memory.bytes[address + i] = bytes[i];
  }
  void word(std::uint64_t address, std::uint64_t value) {
    for (int i = 0; i < 8; ++i) memory.bytes[address + i] = static_cast<std::uint8_t>(value >> 8 * i);
  }
  void start(std::uint64_t pc, std::uint64_t sp, std::uint64_t fp, bool return_address = false) {
    frame = Registers(Architecture::kX86_64);
    frame.set_pc(return_address ? CodeAddress::return_address(pc) : CodeAddress::instruction(pc));
    frame.set_sp(sp);
    frame.set(x86_64::kRbp, fp);
  }

  Outcome step() {
    const auto read = [this](std::uint64_t address, void* to, std::size_t size) {
      return memory.read(address, to, size);
    };
    const auto kind = [this](std::uint64_t address) {
      const bool code =
          (address >= kCode && address < kCode + 0x10000) || (address >= kCallerCode && address < kCallerCode + 0x1000);
      return !code ? CodeKind::kNoCode : generated ? CodeKind::kGenerated : CodeKind::kFile;
    };
    const CodeSource* self = nullptr;
    const auto plausible = [&](const FrameRow& row) {
      Registers to;
      const walk::StepStatus status = walk::apply(row, memory, {}, frame, to, nullptr);
      return status.end == WalkEnd::kComplete || (status.ok() && may_be_return_address(*self, to.pc().value()));
    };
    const auto start_of = [this](std::uint64_t address) { return address == function_start ? address : 0; };
    CodeSource source{Architecture::kX86_64, read, kind, plausible};
    if (function_start != 0) source.function_start = start_of;
    self = &source;
    const auto found = synthesize(source, frame.pc(), *scratch);
    if (!found) return kNothing;
    if (found->start != Start::kNone) return kOutermost;
    certainty = found->certainty;
    by_jump = found->by_jump;
    found_row = found->row;
    EXPECT_EQ(found->row.begin, frame.pc().value());
    const walk::StepStatus status = walk::apply(found->row, memory, {}, frame, caller, nullptr);
    if (status.end == WalkEnd::kComplete) return kOutermost;
    EXPECT_TRUE(status.ok());
    return kCaller;
  }
  void expect_caller(std::uint64_t sp, std::uint64_t fp) {
    ASSERT_EQ(step(), kCaller);
    EXPECT_EQ(caller.pc(), CodeAddress::return_address(kReturn));
    EXPECT_EQ(caller.sp(), sp);
    EXPECT_EQ(caller.get(x86_64::kRbp), fp);
  }

  struct Bytes {
    std::map<std::uint64_t, std::uint8_t> bytes;
    bool read(std::uint64_t address, void* to, std::size_t size) const {
      for (std::size_t i = 0; i < size; ++i) {
        const auto found = bytes.find(address + i);
        if (found == bytes.end()) return false;
        static_cast<std::uint8_t*>(to)[i] = found->second;
      }
      return true;
    }
  };
  Bytes memory;
  bool generated = false;
  std::uint64_t function_start = 0;  // of the only function that is known to begin somewhere; 0: of none
  Registers frame{Architecture::kX86_64}, caller{Architecture::kX86_64};
  Certainty certainty = Certainty::kGuess;
  bool by_jump = false;
  FrameRow found_row;
  struct Free {
    void operator()(SynthesisScratch* s) const { free_scratch(s); }
  };
  std::unique_ptr<SynthesisScratch, Free> scratch{make_scratch()};
};

// push rbp; mov rbp,rsp; sub rsp,16; nop; leave; ret
const std::vector<std::uint8_t> kFramed{0x55, 0x48, 0x89, 0xe5, 0x48, 0x83, 0xec, 0x10, 0x90, 0xc9, 0xc3};

TEST_F(SynthesisOnAStack, EveryInstructionOfAFramedFunction) {
  put(kCode, kFramed);
  word(kStack, kReturn);
  word(kStack - 8, 0xabc0);  // the caller's rbp, once pushed
  struct Stop {
    std::uint64_t offset, sp, fp;
  };
  const Stop stops[] = {{0, kStack, 0xabc0},          {1, kStack - 8, 0xabc0},      {4, kStack - 8, kStack - 8},
                        {8, kStack - 24, kStack - 8}, {9, kStack - 24, kStack - 8}, {10, kStack, 0xabc0}};
  for (const Stop& stop : stops) {
    SCOPED_TRACE(stop.offset);
    start(kCode + stop.offset, stop.sp, stop.fp);
    expect_caller(kStack + 8, 0xabc0);
  }
}

// SBCL: at a call rbp points to the callee's frame record, which the caller has made, and which the return takes away.
TEST_F(SynthesisOnAStack, ARecordThatTheCallerMakesForItsCallee) {
  const std::vector<std::uint8_t> forms[] = {
      // sub rsp,16; mov [rsp],rbp; mov rbp,rsp; mov eax,1; call rax; cmovb rsp,rbx; mov rsp,rbp; clc; pop rbp; ret
      {0x48, 0x83, 0xec, 0x10, 0x48, 0x89, 0x2c, 0x24, 0x48, 0x8b, 0xec, 0xb8, 1,    0,
       0,    0,    0xff, 0xd0, 0x48, 0x0f, 0x42, 0xe3, 0x48, 0x8b, 0xe5, 0xf8, 0x5d, 0xc3},
      // lea r15,[rsp-16]; sub rsp,32; mov [r15],rbp; mov rbp,r15; call; mov rsp,rbp; clc; pop rbp; ret
      {0x4c, 0x8d, 0x7c, 0x24, 0xf0, 0x48, 0x83, 0xec, 0x20, 0x49, 0x89, 0x2f, 0x49,
       0x8b, 0xef, 0xe8, 0x00, 0x01, 0x00, 0x00, 0x48, 0x8b, 0xe5, 0xf8, 0x5d, 0xc3}};
  struct Stop {
    unsigned form, offset;
    std::uint64_t sp;
    bool record;  // rbp points to it
    bool return_address = false;
  };
  constexpr std::uint64_t kSp = kStack - 0x20, kRecord = kSp - 16;
  const Stop stops[] = {{0, 0, kSp, false},       {0, 4, kRecord, false},  {0, 8, kRecord, false},
                        {0, 11, kRecord, true},   {0, 16, kRecord, true},  {0, 18, kSp, false, true},
                        {1, 0, kSp, false},       {1, 9, kSp - 32, false}, {1, 15, kSp - 32, true},
                        {1, 20, kSp, false, true}};
  constexpr std::uint64_t kAt = kCode + 0x40;
  put(kCode, std::vector<std::uint8_t>(0x40, 0x90));
  word(kStack, 0xabc0);
  word(kStack + 8, kReturn);
  word(kRecord, kStack);
  for (const Stop& stop : stops) {
    SCOPED_TRACE(stop.form * 100 + stop.offset);
    put(kAt, forms[stop.form]);
    word(kRecord + 8, kAt + (stop.form == 0 ? 18 : 20));  // of the call before
    start(kAt + stop.offset, stop.sp, stop.record ? kRecord : kStack, stop.return_address);
    expect_caller(kStack + 16, 0xabc0);
  }
}

// The push is still to come. So the register's present value is popped again, wherever rbp puts the slot.
TEST_F(SynthesisOnAStack, WhatIsPushedAndPoppedByTheFramePointerIsKept) {
  // push rbp; mov rbp,rsp; here: push rbx; nop; lea rsp,[rbp-8]; pop rbx; pop rbp; ret
  put(kCode, {0x55, 0x48, 0x89, 0xe5, 0x53, 0x90, 0x48, 0x8d, 0x65, 0xf8, 0x5b, 0x5d, 0xc3});
  word(kStack, kReturn);
  word(kStack - 8, 0xabc0);
  start(kCode + 4, kStack - 8, kStack - 8);
  expect_caller(kStack + 8, 0xabc0);
  const RegisterRule* rbx = found_row.registers.find(x86_64::kRbx);
  EXPECT_TRUE(rbx == nullptr || rbx->is(RegisterRule::kSameValue));
}

// Another function returns for this one, if it keeps the calling convention.
TEST_F(SynthesisOnAStack, ATailCallIsSaid) {
  put(kCode, {0x90, 0xc3});
  start(kCode, kStack, 1);
  word(kStack, kReturn);
  expect_caller(kStack + 8, 1);
  EXPECT_FALSE(by_jump);
  put(kCode, {0x90, 0xe9, 0xfa, 0, 0, 0, 0xcc, 0xcc, 0xcc, 0xcc});
  put(kCode + 0xf8, std::vector<std::uint8_t>(8, 0xcc));
  put(kCode + 0x100, {0x55, 0x48, 0x89, 0xe5, 0x5d, 0xc3});
  function_start = kCode + 0x100;
  expect_caller(kStack + 8, 1);
  EXPECT_TRUE(by_jump);
}

// It gives back before the jump a register that it has saved: it keeps the calling convention. Without that nothing
// says so.
TEST_F(SynthesisOnAStack, ATailCallBehindAnEpilogueIsAReturn) {
  put(kCode, std::vector<std::uint8_t>(16, 0xcc));
  // push rbx; nop; call +0x20; pop rbx; jmp kCode + 0x110
  put(kCode + 0x10, {0x53, 0x90, 0xe8, 0x20, 0, 0, 0, 0x5b, 0xe9, 0xf3, 0, 0, 0, 0xcc, 0xcc, 0xcc});
  put(kCode + 0x100, std::vector<std::uint8_t>(16, 0xcc));
  put(kCode + 0x110, {0x55, 0x48, 0x89, 0xe5, 0x5d, 0xc3});
  function_start = kCode + 0x110;
  word(kStack, kReturn);
  word(kStack - 8, 0x33);
  start(kCode + 0x17, kStack - 8, 1, true);
  expect_caller(kStack + 8, 1);
  EXPECT_FALSE(by_jump);
  put(kCode + 0x10, {0x90});  // saved by whom?
  expect_caller(kStack + 8, 1);
  EXPECT_TRUE(by_jump);
  put(kCode + 0x10, {0x50});  // push rax; ...; pop rcx: room only
  put(kCode + 0x17, {0x59});
  expect_caller(kStack + 8, 1);
  EXPECT_TRUE(by_jump);
}

// As methods of GObject, which end by calling those of their base class.
TEST_F(SynthesisOnAStack, AJumpThroughAPointerBehindAnEpilogueIsNoGuess) {
  put(kCode, std::vector<std::uint8_t>(16, 0xcc));
  put(kCode + 0x10, {0x53, 0x90, 0xe8, 0x20, 0, 0, 0, 0x5b, 0xff, 0xe0});  // push rbx; nop; call; pop rbx; jmp rax
  word(kStack, kReturn);
  start(kCode + 0x17, kStack - 8, 1, true);
  expect_caller(kStack + 8, 1);
  EXPECT_EQ(certainty, Certainty::kLikely);
  put(kCode + 0x10, {0x90});  // saved by whom?
  expect_caller(kStack + 8, 1);
  EXPECT_EQ(certainty, Certainty::kGuess);
}

// PyPy's: code that its loops call takes the caller's rbp from an object. Where the function begins is not known.
TEST_F(SynthesisOnAStack, AHelperThatChangesRbpHasItsCallerByBothWays) {
  generated = true;
  put(kCode, std::vector<std::uint8_t>(0x10, 0));
  // sub rsp,8; call rax; mov rcx,[rip]; mov rbp,[rcx-8]; add rsp,8; ret
  put(kCode + 0x10, {0x48, 0x83, 0xec, 0x08, 0xff, 0xd0, 0x48, 0x8b, 0x0d, 0x00, 0x00, 0x00,
                     0x00, 0x48, 0x8b, 0x69, 0xf8, 0x48, 0x83, 0xc4, 0x08, 0xc3, 0x00, 0x00});
  word(kStack, kReturn);
  for (const bool behind_call : {true, false}) {
    start(kCode + (behind_call ? 0x16 : 0x14), kStack - 8, 0xabc0, behind_call);
    ASSERT_EQ(step(), kCaller);
    EXPECT_EQ(certainty, Certainty::kLikely);
    EXPECT_EQ(caller.pc(), CodeAddress::return_address(kReturn));
    EXPECT_EQ(caller.sp(), kStack + 8);
    EXPECT_FALSE(caller.has(x86_64::kRbp));
  }
  put(kCode + 0x13, {0x10});  // sub rsp,16: the way in says another frame
  start(kCode + 0x16, kStack - 8, 0xabc0, true);
  ASSERT_EQ(step(), kCaller);
  EXPECT_EQ(certainty, Certainty::kGuess);
}

// PyPy's helper for more memory. It returns to the loop that has called it. Without memory, it leaves the loop's frame.
// It saves more registers in an object than the search for ways can remember.
TEST_F(SynthesisOnAStack, AHelperThatMayLeaveItsCallersFrameToo) {
  constexpr std::uint64_t kOfLoop = kCallerCode + 0x45, kSaves = kCode + 0x10, kLast = kCode + 0x80;
  generated = true;
  put(kCode, std::vector<std::uint8_t>(0x10, 0));
  for (std::uint8_t i = 0; kSaves + 4 * i < kLast; ++i)
    put(kSaves + 4 * i, {0x48, 0x89, 0x45, static_cast<std::uint8_t>(4 * i)});  // mov [rbp+4*i],rax
  // sub rsp,8; call rax; mov rcx,[rip]; mov rbp,[rcx-8]; add rsp,8; test rax,rax; je +1; ret
  put(kLast, {0x48, 0x83, 0xec, 0x08, 0xff, 0xd0, 0x48, 0x8b, 0x0d, 0x00, 0x00, 0x00, 0x00, 0x48,
              0x8b, 0x69, 0xf8, 0x48, 0x83, 0xc4, 0x08, 0x48, 0x85, 0xc0, 0x74, 0x01, 0xc3});
  // add rsp,8; mov rbp,[rsp+8]; add rsp,0x18; ret
  put(kLast + 0x1b, {0x48, 0x83, 0xc4, 0x08, 0x48, 0x8b, 0x6c, 0x24, 0x08, 0x48, 0x83, 0xc4, 0x18, 0xc3});
  put(kOfLoop - 5, {0xe8, 0, 0, 0, 0, 0x90});
  word(kStack, kReturn);
  word(kStack + 0x20, kOfLoop);
  struct Place {
    std::uint64_t at;
    unsigned pushed;
    bool behind_call;
  };
  for (const auto [at, pushed, behind_call] : {Place{kSaves, 0, false},
                                               {kSaves + 8, 0, false},
                                               {kLast, 0, false},
                                               {kLast + 4, 8, false},
                                               {kLast + 6, 8, true},
                                               {kLast + 0xd, 8, false},
                                               {kLast + 0x1a, 0, false}}) {
    start(at, kStack - pushed, 0xabc0, behind_call);
    ASSERT_EQ(step(), kCaller) << at - kCode;
    EXPECT_EQ(caller.pc(), CodeAddress::return_address(kReturn)) << at - kCode;
    EXPECT_EQ(caller.sp(), kStack + 8) << at - kCode;
    EXPECT_EQ(caller.has(x86_64::kRbp), at == kLast + 0x1a) << at - kCode;
  }
  start(kLast + 0x1b, kStack, 0xabc0);  // on the way out of both
  ASSERT_EQ(step(), kCaller);
  EXPECT_EQ(caller.pc(), CodeAddress::return_address(kOfLoop));
  EXPECT_EQ(caller.sp(), kStack + 0x28);
}

TEST_F(SynthesisOnAStack, FramelessCodeThatUsesRbpAsData) {
  // push rbx; sub rsp,8; mov rbp,rdi; call; add rsp,8; pop rbx; ret
  put(kCode, {0x53, 0x48, 0x83, 0xec, 0x08, 0x48, 0x89, 0xfd, 0xe8, 1, 0, 0, 0, 0x48, 0x83, 0xc4, 0x08, 0x5b, 0xc3});
  word(kStack, kReturn);
  word(kStack - 8, 0x33);
  start(kCode + 13, kStack - 16, 0xdead, true);
  expect_caller(kStack + 8, 0xdead);
  EXPECT_EQ(caller.get(x86_64::kRbx), 0x33u);
  EXPECT_EQ(certainty, Certainty::kCertain);
}

TEST_F(SynthesisOnAStack, BothWaysOfABranchAndReturnsThatPopArguments) {
  // test eax,eax; jne +2; jmp self; ret 16
  put(kCode, {0x85, 0xc0, 0x75, 0x02, 0xeb, 0xfe, 0xc2, 0x10, 0x00});
  word(kStack, kReturn);
  start(kCode, kStack, 1);
  expect_caller(kStack + 8 + 16, 1);
}

TEST_F(SynthesisOnAStack, TailCallIsFollowed) {
  put(kCode, {0xe9, 0xfb, 0, 0, 0});  // jmp kCode + 0x100
  put(kCode + 0x100, kFramed);
  word(kStack, kReturn);
  start(kCode, kStack, 0x77);
  expect_caller(kStack + 8, 0x77);
}

TEST_F(SynthesisOnAStack, DispatchOfAnInterpreter) {
  put(kCode, {0x48, 0x8b, 0x45, 0xf8, 0xff, 0xe1});  // mov rax,[rbp-8]; jmp rcx
  word(kStack, kReturn);
  word(kStack + 64, 0xbad);
  start(kCode, kStack, kStack + 64);
  expect_caller(kStack + 8, kStack + 64);
}

TEST_F(SynthesisOnAStack, AFrameThatIsNeverLeftByReturning) {
  put(kCode, {0x48, 0x8b, 0x45, 0xf8, 0xeb, 0xfa});  // mov rax,[rbp-8]; jmp back
  word(kStack + 64, 0xabc0);
  word(kStack + 72, kReturn);
  start(kCode, kStack, kStack + 64);
  expect_caller(kStack + 80, 0xabc0);
  // The same frame, but from before `mov rbp,rsp`: rbp is still the caller's.
  put(kCode, {0x48, 0x89, 0xe5, 0x48, 0x8b, 0x45, 0xf8, 0xeb, 0xfa});
  start(kCode, kStack, kStack + 64);
  EXPECT_EQ(step(), kNothing);
  word(kStack, kStack + 64);  // pushed
  word(kStack + 8, kReturn);
  start(kCode, kStack, kStack + 64);
  expect_caller(kStack + 16, kStack + 64);
}

TEST_F(SynthesisOnAStack, APrologueThatNeverReturns) {
  // pop rax; push 0; push rax; push rbp; mov rbp,rsp; jmp self: HotSpot's entry of an interpreted method
  put(kCode, {0x58, 0x6a, 0x00, 0x50, 0x55, 0x48, 0x89, 0xe5, 0xeb, 0xfe});
  word(kStack, kReturn);
  start(kCode, kStack, 0xabc0);
  expect_caller(kStack + 8 - 8, 0xabc0);
}

// bun's: a loop for good. Its start is not known but by what _start hands to the C library.
TEST(SynthesisOfMain, ThatNeverReturnsHasWhatLedThere) {
  constexpr std::uint64_t kBase = 0x400000, kMain = kBase + 0x20, kBehind = kMain + 9;
  std::vector<std::uint8_t> code(0x40, 0xcc);
  const auto put = [&](std::uint64_t at, const std::vector<std::uint8_t>& bytes) {
    std::ranges::copy(bytes, code.begin() + static_cast<std::ptrdiff_t>(at - kBase));
  };
  // xor ebp, ebp; mov edi, main; call [rip]; hlt
  put(kBase, {0x31, 0xed, 0xbf, 0x20, 0x00, 0x40, 0x00, 0xff, 0x15, 0, 0, 0, 0, 0xf4});
  put(kMain, {0x55, 0x48, 0x89, 0xe5, 0xe8, 0xf7, 0, 0, 0, 0xeb, 0xf9});  // push rbp; mov rbp, rsp; call; jmp back
  const auto read = [&](std::uint64_t address, void* to, std::size_t size) {
    if (address - kBase >= code.size() || size > code.size() - (address - kBase)) return false;
    std::memcpy(to, code.data() + (address - kBase), size);
    return true;
  };
  const auto kind = [&](std::uint64_t address) {
    return address - kBase < code.size() ? flow::CodeKind::kFile : flow::CodeKind::kNoCode;
  };
  const auto any = [](const FrameRow&) { return true; };
  const auto unknown = [](std::uint64_t) { return std::uint64_t{0}; };
  const std::unique_ptr<flow::SynthesisScratch, void (*)(flow::SynthesisScratch*)> scratch(flow::make_scratch(),
                                                                                           flow::free_scratch);
  const auto at = [&](std::uint64_t entry) {
    return flow::synthesize({Architecture::kX86_64, read, kind, any, unknown, entry},
                            CodeAddress::return_address(kBehind), *scratch);
  };
  const auto found = at(kBase);
  ASSERT_TRUE(found) << found.error().text();
  EXPECT_EQ(found->start, flow::Start::kNone);
  EXPECT_EQ(found->certainty, flow::Certainty::kLikely);
  EXPECT_EQ(found->row.return_address, RegisterRule::at_cfa(-8));
  EXPECT_EQ(found->row.cfa, CfaRule::at(x86_64::kRsp, 16));
  const auto without = at(0);
  EXPECT_TRUE(!without || without->certainty == flow::Certainty::kGuess);
  put(kBase + 2, {0x89, 0xdf, 0x66, 0x90, 0x90});  // mov edi, ebx: anything
  const auto unsaid = at(kBase);
  EXPECT_TRUE(!unsaid || unsaid->certainty == flow::Certainty::kGuess);
}

TEST_F(SynthesisOnAStack, OutermostFrame) {
  put(kCode, {0xf4});  // hlt, behind _start's call
  start(kCode, kStack, 0, true);
  EXPECT_EQ(step(), kOutermost);
  put(kCode, {0xc3});
  word(kStack, 0);
  start(kCode, kStack, 0);
  EXPECT_EQ(step(), kOutermost);
}

TEST_F(SynthesisOnAStack, AReturnToWhereNoCallIsDoesNotCount) {
  put(kCode, {0xc3});
  word(kStack, kCallerCode + 3);
  start(kCode, kStack, 0);
  EXPECT_EQ(step(), kNothing);
}

TEST_F(SynthesisOnAStack, EndlessAndBranchyCodeIsBounded) {
  for (std::uint64_t i = 0; i < 0x8000; i += 2) put(kCode + i, {0x75, 0x10});  // jne everywhere
  start(kCode, kStack, 0);
  EXPECT_EQ(step(), kNothing);
}

// A loop of many small branches, as in decoders. The way out comes behind more branches than the search can remember
// paths.
TEST_F(SynthesisOnAStack, TheWayOutBehindManySmallBranches) {
  std::vector<std::uint8_t> loop;
  for (int i = 0; i < 40; ++i) loop.insert(loop.end(), {0x75, 0x01, 0x90});  // jne over the nop
  loop.insert(loop.end(), {0x72, 0x02, 0xeb, 0x84, 0xc3});                   // jc out; jmp back; out: ret
  put(kCode, loop);
  word(kStack, kReturn);
  start(kCode, kStack, 0x77);
  expect_caller(kStack + 8, 0x77);
  EXPECT_EQ(certainty, Certainty::kCertain);
}

// A budget counts instructions. One that is just enough finds the way out, and is not exhausted.
TEST_F(SynthesisOnAStack, ABudgetThatIsOneTooSmallFindsNothing) {
  put(kCode, kFramed);
  word(kStack, kReturn);
  word(kStack - 8, 0xabc0);
  Budget& budget = budget_of(*scratch);
  const auto with = [&](std::uint32_t instructions) {
    budget = Budget(instructions);
    start(kCode + 8, kStack - 24, kStack - 8);
    return step();
  };
  constexpr std::uint32_t kPlenty = 1000;
  ASSERT_EQ(with(kPlenty), kCaller);
  const std::uint32_t needed = kPlenty - budget.left();
  ASSERT_GE(needed, 3u) << "nop, leave and ret";
  ASSERT_EQ(with(needed), kCaller);
  EXPECT_EQ(budget.left(), 0u);
  EXPECT_FALSE(budget.exhausted());
  EXPECT_EQ(with(needed - 1), kNothing);
  EXPECT_EQ(budget.left(), 0u);
  EXPECT_TRUE(budget.exhausted());
  ASSERT_EQ(with(Budget::kUnlimited), kCaller);
  EXPECT_EQ(budget.left(), Budget::kUnlimited);
}

// Eight places where a function may start are tried, the nearest first.
TEST_F(SynthesisOnAStack, AWayInFromAfarIsNotFound) {
  const auto read = [this](std::uint64_t address, void* to, std::size_t size) {
    return memory.read(address, to, size);
  };
  const auto kind = [](std::uint64_t) { return CodeKind::kFile; };
  const auto plausible = [](const FrameRow&) { return true; };
  const CodeSource source{Architecture::kX86_64, read, kind, plausible};
  for (const std::uint8_t returns : {1, 7, 8}) {
    put(kCode - 8, {0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0xc3});
    put(kCode, {0x50, 0xeb, returns});  // push rax; jmp to the pop
    put(kCode + 3, std::vector<std::uint8_t>(returns, 0xc3));
    put(kCode + 3 + returns, {0x58, 0xc3});  // pop rax; ret
    const auto found = way_in(source, CodeAddress::instruction(kCode + 3 + returns), *scratch);
    EXPECT_EQ(found.has_value(), returns < 8) << +returns;
    if (found) {
      EXPECT_EQ(found->row.cfa, CfaRule::at(x86_64::kRsp, 16));
    }
  }
}

// busybox's awk_main(): behind a call that never returns, without padding.
TEST_F(SynthesisOnAStack, AWayInFromAPrologueBehindACall) {
  const auto read = [this](std::uint64_t address, void* to, std::size_t size) {
    return memory.read(address, to, size);
  };
  const auto kind = [](std::uint64_t) { return CodeKind::kFile; };
  const auto plausible = [](const FrameRow&) { return true; };
  const CodeSource source{Architecture::kX86_64, read, kind, plausible};
  constexpr std::uint64_t kLoop = kCode + 10, kBehind = kLoop + 5;
  const auto found = [&](const std::vector<std::uint8_t>& before) {
    put(kCode - 5, before);
    put(kCode, {0x41, 0x57, 0x31, 0xc0, 0x41, 0x56, 0x48, 0x83, 0xec, 0x48});  // push r15; xor; push r14; sub rsp, 72
    put(kLoop, {0xe8, 0, 1, 0, 0, 0xeb, 0xf9});                                // call; jmp back
    return way_in(source, CodeAddress::return_address(kBehind), *scratch);
  };
  const auto row = found({0xe8, 0, 1, 0, 0});
  ASSERT_TRUE(row) << row.error().text();
  EXPECT_EQ(row->row.cfa, CfaRule::at(x86_64::kRsp, 96));
  EXPECT_FALSE(found({0x0f, 0x1f, 0x44, 0, 1})) << "no call";
}

// busybox's ash_main(): from farther away, past other places where a function may start.
TEST_F(SynthesisOnAStack, AWayInFromAPrologueFarAway) {
  const auto read = [this](std::uint64_t address, void* to, std::size_t size) {
    return memory.read(address, to, size);
  };
  const auto kind = [](std::uint64_t) { return CodeKind::kFile; };
  const auto framed = [](const FrameRow& row) { return row.cfa.offset() > 32; };
  const auto unknown = [](std::uint64_t) { return std::uint64_t{0}; };
  const CodeSource source{Architecture::kX86_64, read, kind, framed, unknown, 0, framed};
  constexpr std::uint64_t kBehind = kCode + 8 + 1100;
  put(kCode - 5, {0xe9, 0, 1, 0, 0});                            // jmp
  put(kCode, {0x41, 0x54, 0x55, 0x53, 0x48, 0x83, 0xec, 0x48});  // push r12; push rbp; push rbx; sub rsp, 72
  put(kCode + 8, {0xe9, 0x42, 0x04, 0, 0});                      // jmp to the call
  put(kCode + 13, std::vector<std::uint8_t>(1100 - 18, 0xc3));
  put(kBehind - 5, {0xe8, 0, 1, 0, 0, 0xeb, 0xf9});  // call; jmp back
  const auto row = way_in(source, CodeAddress::return_address(kBehind), *scratch);
  ASSERT_TRUE(row) << row.error().text();
  EXPECT_EQ(row->row.cfa, CfaRule::at(x86_64::kRsp, 104));
}

TEST_F(SynthesisOnAStack, AReturnThatTakesAComputedNumberOfArgumentsOff) {
  // pop r10; lea rsp,[rsp+rax*8]; push r10; ret
  put(kCode, {0x41, 0x5a, 0x48, 0x8d, 0x24, 0xc4, 0x41, 0x52, 0xc3});
  word(kStack, kReturn);
  start(kCode, kStack, 7);
  expect_caller(kStack + 8, 7);
  EXPECT_EQ(certainty, Certainty::kGuess);
}

// ---- generated code that is left by jumps alone -------------------------------------------------------------------

class JumpsOnAStack : public testing::Test {
 protected:
  JumpsOnAStack() {
    put(kCode, {0x48, 0x83, 0xc3, 0x08, 0xff, 0x63, 0xf8});                      // add rbx, 8; jmp [rbx - 8]
    put(kJumpsInto, {0xb8, 0, 0, 0x50, 0, 0x48, 0x83, 0xc4, 0x10, 0xff, 0xe0});  // mov eax, kFile; add rsp, 16; jmp rax
    put(kWayOut, {0x5b, 0xc3});                                                  // pop rbx; ret
    inside.cfa = CfaRule::at(x86_64::kRsp, 48);
    inside.return_address = RegisterRule::at_cfa(-8);
    (void)inside.registers.set(x86_64::kRbp, RegisterRule::at_cfa(-16));
  }
  void put(std::uint64_t address, const std::vector<std::uint8_t>& bytes) {
    for (std::size_t i = 0; i < bytes.size(); ++i) memory[address + i] = bytes[i];
  }
  void word(std::uint64_t address, std::uint64_t value) {
    for (int i = 0; i < 8; ++i) memory[address + i] = static_cast<std::uint8_t>(value >> 8 * i);
  }
  Expected<Synthesis> follow(std::uint64_t pc, const FrameRow& expected, bool now) {
    const auto read = [this](std::uint64_t address, void* to, std::size_t size) {
      for (std::size_t i = 0; i < size; ++i) {
        const auto found = memory.find(address + i);
        if (found == memory.end()) return false;
        static_cast<std::uint8_t*>(to)[i] = found->second;
      }
      return true;
    };
    const auto kind = [](std::uint64_t address) {
      if (address >= kFile && address < kFile + 0x1000) return CodeKind::kFile;
      return address >= kCode && address < kCode + 0x1000 ? CodeKind::kGenerated : CodeKind::kNoCode;
    };
    const auto plausible = [&](const FrameRow& row) { return row.cfa == expected.cfa; };
    const auto row_inside = [this](std::uint64_t address, FrameRow& row) {
      if (address == kFile) row = inside;
      return address == kFile;
    };
    const auto rbx = [](RegisterNumber reg, std::uint64_t& value) {
      value = reg == x86_64::kRbx ? kData : kStack;
      return true;
    };
    CodeSource source{Architecture::kX86_64, read, kind, plausible};
    source.inside_function = row_inside;
    if (now) source.register_value = rbx;
    return synthesize(source, CodeAddress::instruction(pc), *scratch);
  }
  static constexpr std::uint64_t kFile = 0x500000, kJumpsInto = kCode + 0x100, kWayOut = kCode + 0x200,
                                 kData = 0x600000;
  std::map<std::uint64_t, std::uint8_t> memory;
  FrameRow inside;
  struct Free {
    void operator()(SynthesisScratch* s) const { free_scratch(s); }
  };
  std::unique_ptr<SynthesisScratch, Free> scratch{make_scratch()};
};

// PHP: code of a function jumps back into its interpreter, which unwind information describes.
TEST_F(JumpsOnAStack, IntoTheMiddleOfADescribedFunction) {
  FrameRow expected;
  expected.cfa = CfaRule::at(x86_64::kRsp, 64);
  const auto found = follow(kJumpsInto, expected, false);
  ASSERT_TRUE(found) << found.error().text();
  EXPECT_EQ(found->certainty, Certainty::kLikely);
  EXPECT_EQ(found->row.cfa, expected.cfa);
  ASSERT_NE(found->row.registers.find(x86_64::kRbp), nullptr);
  EXPECT_EQ(*found->row.registers.find(x86_64::kRbp), RegisterRule::at_cfa(-16));
  ASSERT_NE(found->row.registers.find(x86_64::kRbx), nullptr);
  EXPECT_EQ(*found->row.registers.find(x86_64::kRbx), RegisterRule::undefined()) << "the generated code may use it";
}

// Ruby: each method leaves by the address that its caller has put into memory.
TEST_F(JumpsOnAStack, ThroughMemoryAsItIsNow) {
  FrameRow expected;
  expected.cfa = CfaRule::at(x86_64::kRsp, 16);
  word(kData, kWayOut);
  const auto found = follow(kCode, expected, true);
  ASSERT_TRUE(found) << found.error().text();
  EXPECT_EQ(found->certainty, Certainty::kLikely);
  EXPECT_EQ(found->row.cfa, expected.cfa);
  const auto blind = follow(kCode, expected, false);
  EXPECT_TRUE(!blind || blind->certainty == Certainty::kGuess) << "registers are not known";
  word(kData, 0x700000);
  const auto nowhere = follow(kCode, expected, true);
  EXPECT_TRUE(!nowhere || nowhere->certainty == Certainty::kGuess) << "there is no code";
}

}  // namespace
}  // namespace windlass::flow
