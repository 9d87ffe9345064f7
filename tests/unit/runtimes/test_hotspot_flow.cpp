// Where HotSpot's code keeps its caller, instruction by instruction: code as its compilers and its interpreter have it.
#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "formats/dwarf/expression.h"
#include "runtimes/hotspot/code_flow.h"
#include "runtimes/hotspot/continuation.h"
#include "runtimes/hotspot/rows.h"

namespace windlass::runtimes::hotspot {
namespace {

constexpr std::uint64_t kAt = 0x7f00'0000'1000;

std::vector<std::byte> bytes(std::initializer_list<int> values) {
  std::vector<std::byte> out;
  for (const int value : values) out.push_back(static_cast<std::byte>(value));
  return out;
}

std::string text_of(const FrameRow& row, const RegisterRule& rule) {
  switch (rule.kind()) {
    case RegisterRule::kAtExpression:
      return "[" + dwarf::expression_text(row.expression(rule), Architecture::kX86_64) + "]";
    case RegisterRule::kAtCfa: return fmt::format("[cfa{:+}]", rule.offset());
    case RegisterRule::kAtRegister: return fmt::format("[r{}{:+}]", rule.reg(), rule.offset());
    case RegisterRule::kInRegister: return fmt::format("r{}", rule.reg());
    case RegisterRule::kUndefined: return "lost";
    default: return "other";
  }
}

// "cfa ra rbp" at an offset.
std::string at(const std::vector<FrameStretch>& stretches, std::uint32_t offset) {
  const FrameStretch* found = nullptr;
  for (const FrameStretch& stretch : stretches)
    if (stretch.begin <= offset) found = &stretch;
  FrameRow row;
  if (found == nullptr || !found->state.row(row)) return "unknown";
  std::string cfa = fmt::format("r{}{:+}", row.cfa.reg(), row.cfa.offset());
  if (row.cfa.is(CfaRule::kLoaded)) cfa = "[" + cfa + "]";
  if (row.cfa.is(CfaRule::kExpression)) cfa = dwarf::expression_text(row.expression(row.cfa), Architecture::kX86_64);
  const RegisterRule* rbp = row.registers.find(6);
  return cfa + " " + text_of(row, row.return_address) + " " + (rbp == nullptr ? "same" : text_of(row, *rbp));
}

// A compiled method: looks at the pages below, saves rbp, polls before it returns; the poll's slow path is behind it.
const std::vector<std::byte> kMethod = bytes({
    0x89, 0x84, 0x24, 0x00, 0xc0, 0xfe, 0xff,  // 0: mov [rsp - 0x14000], eax
    0x55,                                      // 7: push rbp
    0x48, 0x83, 0xec, 0x20,                    // 8: sub rsp, 32
    0x50,                                      // 12: push rax
    0x58,                                      // 13: pop rax
    0x48, 0x83, 0xc4, 0x20,                    // 14: add rsp, 32
    0x5d,                                      // 18: pop rbp
    0x49, 0x3b, 0xa7, 0x40, 0x03, 0x00, 0x00,  // 19: cmp rsp, [r15 + 0x340]
    0x0f, 0x87, 0x02, 0x00, 0x00, 0x00,        // 26: ja 34
    0xc3,                                      // 32: ret
    0x90,                                      // 33: nop
    0xe9, 0x00, 0x10, 0x00, 0x00,              // 34: jmp
    0x90,                                      // 39: nop
});

FlowInput method_input(const std::vector<std::byte>& code) {
  FlowInput input{.code = code, .address = kAt, .entries = {{0, FrameState::at_entry()}}, .body = {}};
  input.body = FrameState::in_body(40);
  input.callers_are_aligned = true;
  return input;
}

TEST(HotSpotFlow, OfACompiledMethod) {
  const auto found = flow(method_input(kMethod));
  EXPECT_EQ(at(found, 0), "r7+8 [cfa-8] same");
  EXPECT_EQ(at(found, 7), "r7+8 [cfa-8] same");
  EXPECT_EQ(at(found, 8), "r7+16 [cfa-8] [cfa-16]");
  EXPECT_EQ(at(found, 12), "r7+48 [cfa-8] [cfa-16]");
  EXPECT_EQ(at(found, 13), "r7+56 [cfa-8] [cfa-16]");
  EXPECT_EQ(at(found, 14), "r7+48 [cfa-8] [cfa-16]");
  EXPECT_EQ(at(found, 18), "r7+16 [cfa-8] [cfa-16]");
  EXPECT_EQ(at(found, 19), "r7+8 [cfa-8] same");
  EXPECT_EQ(at(found, 32), "r7+8 [cfa-8] same");
  EXPECT_EQ(at(found, 33), "r7+48 [cfa-8] [cfa-16]");  // behind a return, where no branch leads: the body
  EXPECT_EQ(at(found, 34), "r7+8 [cfa-8] same");       // where the poll's branch leads: as it was there
  EXPECT_EQ(at(found, 39), "r7+48 [cfa-8] [cfa-16]");
}

TEST(HotSpotFlow, OfAMethodThatSavesRbpBehindItsFrame) {
  const auto code = bytes({0x48, 0x81, 0xec, 0x28, 0,    0, 0,  // sub rsp, 40
                           0x48, 0x89, 0x6c, 0x24, 0x20,        // 7: mov [rsp + 32], rbp
                           0x48, 0x8b, 0x6c, 0x24, 0x20,        // 12: mov rbp, [rsp + 32]
                           0x48, 0x83, 0xc4, 0x28, 0xc3});      // 17: add rsp, 40; ret
  const auto found = flow(method_input(code));
  EXPECT_EQ(at(found, 7), "r7+48 [cfa-8] same");
  EXPECT_EQ(at(found, 12), "r7+48 [cfa-8] [cfa-16]");
  EXPECT_EQ(at(found, 17), "r7+48 [cfa-8] same");
  EXPECT_EQ(at(found, 21), "r7+8 [cfa-8] same");
}

// Continuation.enterSpecial: what has been away on the heap returns to it with another rbp.
TEST(HotSpotFlow, OfCodeThatLosesRbpWhereItCalls) {
  const auto code = bytes({0x55, 0x48, 0x8b, 0xec,                    // push rbp; mov rbp, rsp
                           0x48, 0x83, 0xec, 0x40,                    // 4: sub rsp, 64
                           0x49, 0x89, 0xa7, 0x40, 0x05, 0x00, 0x00,  // 8: mov [r15 + 0x540], rsp
                           0xe8, 0x00, 0x10, 0x00, 0x00,              // 15: call
                           0x48, 0x83, 0xc4, 0x40, 0x5d, 0xc3});      // 20: add rsp, 64; pop rbp; ret
  FlowInput input = method_input(code);
  EXPECT_EQ(at(flow(input), 20), "r6+16 [cfa-8] [cfa-16]");
  input.loses_fp = true;
  const auto found = flow(input);
  EXPECT_EQ(at(found, 4), "r7+16 [cfa-8] [cfa-16]");
  EXPECT_EQ(at(found, 20), "r7+80 [cfa-8] [cfa-16]");
  EXPECT_EQ(at(found, 24), "r7+16 [cfa-8] [cfa-16]");
  EXPECT_EQ(at(found, 25), "r7+8 [cfa-8] same");
}

// Stubs that bring a virtual thread's frames back from the heap: the frames are put between the stub and the
// ContinuationEntry, which is 64 bytes here.
TEST(HotSpotFlow, OfCodeThatBringsFramesBack) {
  const auto code = bytes({0x59,                                      // 0: pop rcx
                           0x48, 0x83, 0xec, 0x08,                    // 1: sub rsp, 8
                           0xe8, 0x00, 0x10, 0x00, 0x00,              // 5: call prepare_thaw
                           0x48, 0x83, 0xc4, 0x08,                    // 10: add rsp, 8
                           0x48, 0x8b, 0xd8,                          // 14: mov rbx, rax
                           0x48, 0x2b, 0xe3,                          // 17: sub rsp, rbx
                           0x48, 0x83, 0xe4, 0xf0,                    // 20: and rsp, -16
                           0xe8, 0x00, 0x10, 0x00, 0x00,              // 24: call thaw
                           0x48, 0x8b, 0xd8,                          // 29: mov rbx, rax
                           0x48, 0x33, 0xc0,                          // 32: xor rax, rax
                           0x48, 0x8b, 0xe3,                          // 35: mov rsp, rbx
                           0x48, 0x83, 0xec, 0x10,                    // 38: sub rsp, 16
                           0x5d, 0xc3,                                // 42: pop rbp; ret
                           0x49, 0x8b, 0xa7, 0x18, 0x06, 0x00, 0x00,  // 44: mov rsp, [r15 + 0x618]
                           0x50,                                      // 51: push rax
                           0xe8, 0x00, 0x10, 0x00, 0x00,              // 52: call prepare_thaw
                           0x48, 0x8b, 0xd8,                          // 57: mov rbx, rax
                           0x58,                                      // 60: pop rax
                           0x48, 0x2b, 0xe3,                          // 61: sub rsp, rbx
                           0x48, 0x83, 0xe4, 0xf0,                    // 64: and rsp, -16
                           0x50,                                      // 68: push rax
                           0xe8, 0x00, 0x10, 0x00, 0x00});            // 69: call thaw
  FlowInput input = {.code = code, .address = kAt, .entries = {{0, FrameState::at_entry()}}, .body = {}};
  input.thread_continuation = 0x618;
  input.continuation = FrameState::in_continuation(64);
  input.entries[1] = input.continuation;
  const auto found = flow(input);
  EXPECT_EQ(at(found, 0), "r7+8 [cfa-8] same");
  EXPECT_EQ(at(found, 1), "r7+80 [cfa-8] [cfa-16]");
  EXPECT_EQ(at(found, 10), "r7+88 [cfa-8] [cfa-16]");
  EXPECT_EQ(at(found, 17), "r7+80 [cfa-8] [cfa-16]");
  EXPECT_EQ(at(found, 20),
            "DW_OP_breg7 (rsp): 80; DW_OP_breg3 (rbx): 0; DW_OP_lit1; DW_OP_neg; DW_OP_and; "
            "DW_OP_plus [cfa-8] [cfa-16]");
  EXPECT_EQ(at(found, 29),
            "DW_OP_breg7 (rsp): 80; DW_OP_breg3 (rbx): 15; DW_OP_lit16; DW_OP_neg; DW_OP_and; "
            "DW_OP_plus [cfa-8] [cfa-16]");
  EXPECT_EQ(at(found, 32), "r3+0 [cfa-8] [cfa-16]");  // the innermost frame that was put there
  EXPECT_EQ(at(found, 38), "r7+0 [cfa-8] [cfa-16]");
  EXPECT_EQ(at(found, 42), "r7+16 [cfa-8] [cfa-16]");
  EXPECT_EQ(at(found, 43), "r7+8 [cfa-8] same");
  EXPECT_EQ(at(found, 44), "unknown");
  EXPECT_EQ(at(found, 51), "r7+80 [cfa-8] [cfa-16]");
  EXPECT_EQ(at(found, 57), "r7+88 [cfa-8] [cfa-16]");
  EXPECT_EQ(at(found, 69),
            "DW_OP_breg7 (rsp): 88; DW_OP_breg3 (rbx): 15; DW_OP_lit16; DW_OP_neg; DW_OP_and; "
            "DW_OP_plus [cfa-8] [cfa-16]");
}

// A jump is written over the first five bytes of a method that is not to be entered any more.
TEST(HotSpotFlow, OfAMethodThatIsNotEnteredAnyMore) {
  const auto expected = flow(method_input(kMethod));
  auto code = kMethod;
  const auto jump = bytes({0xe9, 0x12, 0x34, 0x56, 0x00});
  std::ranges::copy(jump, code.begin());
  mend_entry(code, 0, 40);
  const auto found = flow(method_input(code));
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(found[i].begin, expected[i].begin);
    EXPECT_EQ(found[i].state, expected[i].state);
  }
  const auto expect_mended = [&](const std::vector<std::byte>& original, std::int32_t frame_bytes) {
    auto patched = original;
    std::ranges::copy(jump, patched.begin());
    mend_entry(patched, 0, frame_bytes);
    EXPECT_EQ(patched, original);
  };
  expect_mended(bytes({0x48, 0x81, 0xec, 0x28, 0, 0, 0, 0x48, 0x89, 0x6c, 0x24, 0x20, 0xc3}), 40);
  expect_mended(bytes({0x55, 0x48, 0x83, 0xec, 0x20, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0xc3}), 40);
  expect_mended(bytes({0x55, 0x48, 0x81, 0xec, 0x20, 0x01, 0x00, 0x00, 0x90, 0x90, 0x90, 0xc3}), 0x128);
}

TEST(HotSpotFlow, OfTheInterpretersEntry) {
  const auto code = bytes({0x58,                    // pop rax
                           0x6a, 0x00,              // 1: push 0
                           0x50,                    // 3: push rax
                           0x55,                    // 4: push rbp
                           0x48, 0x8b, 0xec,        // 5: mov rbp, rsp
                           0x41, 0x55,              // 8: push r13
                           0x6a, 0x00,              // 10: push 0
                           0x48, 0x8b, 0x5d, 0xf8,  // 12: mov rbx, [rbp - 8]
                           0xc9,                    // 16: leave
                           0x5e,                    // 17: pop rsi
                           0x48, 0x8b, 0xe3,        // 18: mov rsp, rbx
                           0xff, 0xe6});            // 21: jmp rsi
  FlowInput input{.code = code, .address = kAt, .entries = {}, .body = FrameState::interpreted()};
  input.entries[0] = FrameState::entering_interpreter();
  const auto found = flow(input);
  EXPECT_EQ(at(found, 0), "r13+0 [r7+0] same");
  EXPECT_EQ(at(found, 1), "r13+0 r0 same");
  EXPECT_EQ(at(found, 3), "r13+0 r0 same");
  EXPECT_EQ(at(found, 4), "r13+0 [r7+0] same");
  EXPECT_EQ(at(found, 5), "r13+0 [r7+8] [r7+0]");
  EXPECT_EQ(at(found, 8), "r13+0 [r6+8] [r6+0]");
  EXPECT_EQ(at(found, 10), "[r6-8] [r6+8] [r6+0]");
  EXPECT_EQ(at(found, 16), "[r6-8] [r6+8] [r6+0]");
  EXPECT_EQ(at(found, 17), "r3+0 [r7+0] same");
  EXPECT_EQ(at(found, 18), "r3+0 r4 same");
  EXPECT_EQ(at(found, 21), "r7+0 r4 same");
}

// A barrier of Shenandoah's: it makes a frame of its own within the interpreter's, around a call.
TEST(HotSpotFlow, OfAFrameWithinTheInterpreters) {
  const auto code = bytes({0x51,                          // 0: push rcx
                           0x55,                          // 1: push rbp
                           0x48, 0x8b, 0xec,              // 2: mov rbp, rsp
                           0x48, 0x83, 0xec, 0x40,        // 5: sub rsp, 64
                           0xe8, 0x00, 0x10, 0x00, 0x00,  // 9: call
                           0x48, 0x83, 0xc4, 0x40,        // 14: add rsp, 64
                           0xc9,                          // 18: leave
                           0x59, 0x90});                  // 19: pop rcx; nop
  const FlowInput input{.code = code, .address = kAt, .entries = {}, .body = FrameState::interpreted()};
  const auto found = flow(input);
  EXPECT_EQ(at(found, 2), "[r6-8] [r6+8] [r6+0]");
  const std::string nested =
      "DW_OP_breg6 (rbp): 0; DW_OP_deref; DW_OP_lit8; DW_OP_minus; DW_OP_deref [DW_OP_breg6 (rbp): 0; DW_OP_deref; "
      "DW_OP_lit8; DW_OP_plus] [DW_OP_breg6 (rbp): 0; DW_OP_deref]";
  EXPECT_EQ(at(found, 5), nested);
  EXPECT_EQ(at(found, 18), nested);
  EXPECT_EQ(at(found, 19), "[r6-8] [r6+8] [r6+0]");
}

// Frames are aligned where the CFA's distance says that this changes nothing, else sp is lost.
TEST(HotSpotFlow, OfCodeThatAlignsTheStack) {
  const auto code = bytes({0x55, 0x48, 0x83, 0xe4, 0xf0, 0x50, 0x48, 0x83, 0xe4, 0xf0, 0x90});
  const auto found = flow(method_input(code));
  EXPECT_EQ(at(found, 5), "r7+16 [cfa-8] [cfa-16]");
  EXPECT_EQ(at(found, 10), "unknown");
  // Of a frame pointer that is set up nothing is lost.
  const auto framed = bytes({0x55, 0x48, 0x8b, 0xec, 0x50, 0x48, 0x83, 0xe4, 0xf0, 0x90, 0xc9, 0xc3});
  const auto by_fp = flow(method_input(framed));
  EXPECT_EQ(at(by_fp, 9), "r6+16 [cfa-8] [cfa-16]");
  EXPECT_EQ(at(by_fp, 11), "r7+8 [cfa-8] same");
}

TEST(HotSpotFlow, OfWhatThrows) {
  const auto code =
      bytes({0x52, 0x48, 0x83, 0xec, 0x08, 0x48, 0x89, 0x2c, 0x24,  // push rdx; sub rsp, 8; mov [rsp], rbp
             0x48, 0x8b, 0x2c, 0x24, 0x48, 0x83, 0xc4, 0x08, 0x5a, 0x41, 0xff, 0xe0});
  FlowInput input{.code = code, .address = kAt, .entries = {{0, FrameState::throwing()}}, .body = {}};
  const auto found = flow(input);
  EXPECT_EQ(at(found, 0), "r7+0 r1 same");
  EXPECT_EQ(at(found, 1), "r7+8 [cfa-8] same");
  EXPECT_EQ(at(found, 9), "r7+16 [cfa-8] [cfa-16]");
  EXPECT_EQ(at(found, 13), "r7+16 [cfa-8] same");
  EXPECT_EQ(at(found, 18), "r7+0 r1 same");
}

// A call to the next instruction pushes its address.
TEST(HotSpotFlow, OfACallToWhatFollows) {
  const auto code = bytes({0xe8, 0, 0, 0, 0, 0x90});
  EXPECT_EQ(at(flow(method_input(code)), 5), "r7+16 [cfa-8] same");
}

TEST(HotSpotFlow, EndsWhateverTheCodeIs) {
  std::uint32_t seed = 1;
  for (int round = 0; round < 300; ++round) {
    std::vector<std::byte> code(257);
    for (std::byte& byte : code) byte = static_cast<std::byte>((seed = seed * 1664525 + 1013904223) >> 24);
    const auto found = flow(method_input(code));
    ASSERT_FALSE(found.empty());
    for (std::size_t i = 1; i < found.size(); ++i) EXPECT_LT(found[i - 1].begin, found[i].begin);
  }
}

FlowInput adapter_input(const std::vector<std::byte>& code) {
  FlowInput input{.code = code, .address = kAt, .entries = {{0, FrameState::at_entry()}}, .body = {}};
  input.body = FrameState::at_entry();
  input.is_adapter = true;
  return input;
}

// From interpreted into compiled code, of JDK 17 and of JDK 25. Arguments are moved below an aligned sp, and the return
// address is put there once more, since the method will return from there.
TEST(HotSpotFlow, OfAnAdapterIntoCompiledCode) {
  const auto of17 = bytes({0x48, 0x8b, 0x04, 0x24,  // 0: mov rax, [rsp]
                           0x4c, 0x8b, 0xdc,        // 4: mov r11, rsp
                           0x48, 0x83, 0xec, 0x20,  // 7: sub rsp, 32
                           0x48, 0x83, 0xe4, 0xf0,  // 11: and rsp, -16
                           0x50,                    // 15: push rax
                           0x49, 0x8b, 0xc3,        // 16: mov rax, r11
                           0x4c, 0x8b, 0x5b, 0x48,  // 19: mov r11, [rbx + 72]
                           0x8b, 0x70, 0x08,        // 23: mov esi, [rax + 8]
                           0x48, 0x8b, 0xc3,        // 26: mov rax, rbx
                           0x41, 0xff, 0xe3});      // 29: jmp r11
  auto found = flow(adapter_input(of17));
  EXPECT_EQ(at(found, 7), "r7+8 [cfa-8] same");
  EXPECT_EQ(at(found, 11), "r7+40 [cfa-8] same");
  EXPECT_EQ(at(found, 15), "r11+8 [cfa-8] same");  // how far sp went nobody knows
  for (const std::uint32_t offset : {16U, 19U, 23U, 26U, 29U}) EXPECT_EQ(at(found, offset), "r7+8 [cfa-8] same");
  const auto of25 = bytes({0x58,                    // 0: pop rax
                           0x4c, 0x8b, 0xdc,        // 1: mov r11, rsp
                           0x48, 0x83, 0xec, 0x20,  // 4: sub rsp, 32
                           0x48, 0x83, 0xe4, 0xf0,  // 8: and rsp, -16
                           0x50,                    // 12: push rax
                           0x49, 0x8b, 0xc3,        // 13: mov rax, r11
                           0x41, 0xff, 0xe3});      // 16: jmp r11
  found = flow(adapter_input(of25));
  EXPECT_EQ(at(found, 1), "r7+0 r0 same");
  EXPECT_EQ(at(found, 8), "r7+32 r0 same");
  EXPECT_EQ(at(found, 12), "r11+0 r0 same");
  EXPECT_EQ(at(found, 13), "r7+8 [cfa-8] same");
  EXPECT_EQ(at(found, 16), "r7+8 [cfa-8] same");
}

// The other way: the virtual machine may be called first, on an aligned stack. The return address comes in front of the
// arguments; the caller's sp is where it was.
TEST(HotSpotFlow, OfAnAdapterIntoTheInterpreter) {
  const auto of17 = bytes({0x48, 0x83, 0x7b, 0x40, 0x00,  // 0: cmp qword ptr [rbx + 64], 0
                           0x74, 0x1a,                    // 5: je 33
                           0x4c, 0x8b, 0xec,              // 7: mov r13, rsp
                           0x48, 0x8b, 0x04, 0x24,        // 10: mov rax, [rsp]
                           0x48, 0x83, 0xe4, 0xf0,        // 14: and rsp, -16
                           0x9c,                          // 18: pushfq
                           0x50,                          // 19: push rax
                           0xe8, 0x00, 0x10, 0x00, 0x00,  // 20: call
                           0x58,                          // 25: pop rax
                           0x9d,                          // 26: popfq
                           0x90, 0x90, 0x90,              // 27: nop
                           0x49, 0x8b, 0xe5,              // 30: mov rsp, r13
                           0x58,                          // 33: pop rax
                           0x4c, 0x8b, 0xec,              // 34: mov r13, rsp
                           0x48, 0x83, 0xec, 0x20,        // 37: sub rsp, 32
                           0x48, 0x89, 0x04, 0x24,        // 41: mov [rsp], rax
                           0x8b, 0x44, 0x24, 0x28,        // 45: mov eax, [rsp + 40]
                           0xff, 0xe1});                  // 49: jmp rcx
  auto input = adapter_input(of17);
  auto found = flow(input);
  EXPECT_EQ(at(found, 14), "r7+8 [cfa-8] same");
  for (const std::uint32_t offset : {18U, 19U, 20U, 25U, 26U, 27U, 30U})
    EXPECT_EQ(at(found, offset), "r13+8 [cfa-8] same") << offset;
  EXPECT_EQ(at(found, 33), "r7+8 [cfa-8] same");
  EXPECT_EQ(at(found, 34), "r7+0 r0 same");
  EXPECT_EQ(at(found, 41), "r7+32 r0 same");
  EXPECT_EQ(at(found, 45), "r7+32 [cfa-32] same");  // rax has an argument now
  EXPECT_EQ(at(found, 49), "r7+32 [cfa-32] same");
}

// A linker of method handles takes the last argument off the stack: the caller's sp is in r13 all the time.
TEST(HotSpotFlow, OfALinkerOfMethodHandles) {
  const auto code = bytes({0x58, 0x5b, 0x50, 0xff, 0x63, 0x50});  // pop rax; pop rbx; push rax; jmp [rbx + 80]
  FlowInput input{.code = code, .address = kAt, .entries = {}, .body = FrameState::entering_interpreter()};
  const auto found = flow(input);
  EXPECT_EQ(at(found, 0), "r13+0 [r7+0] same");
  EXPECT_EQ(at(found, 1), "r13+0 r0 same");
  EXPECT_EQ(at(found, 2), "r13+0 r0 same");
  EXPECT_EQ(at(found, 3), "r13+0 [r7+0] same");
}

// Continuation.enterSpecial of JDK 21.0.13.
TEST(HotSpotContinuation, IsToldByTheCodeThatEntersIt) {
  std::vector<std::uint8_t> code = {0x55, 0x48, 0x8b, 0xec, 0x48, 0x83, 0xec, 0x40, 0x49, 0x8b, 0x87, 0x38, 0x05, 0x00,
                                    0x00, 0x48, 0x89, 0x44, 0x24, 0x08, 0x49, 0x89, 0xa7, 0x38, 0x05, 0x00, 0x00, 0x48};
  const auto entered = [&] { return continuation_entered_by(std::as_bytes(std::span(code))); };
  ASSERT_TRUE(entered().has_value());
  EXPECT_EQ(entered()->thread_offset, 0x538U);
  EXPECT_EQ(entered()->entry_bytes, 64U);
  code[23] = 0x40;
  EXPECT_FALSE(entered().has_value()) << "it keeps sp elsewhere";
  code[23] = 0x38;
  code.resize(26);
  EXPECT_FALSE(entered().has_value()) << "it ends";
}

}  // namespace
}  // namespace windlass::runtimes::hotspot
