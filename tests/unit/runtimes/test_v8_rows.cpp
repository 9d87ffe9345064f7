// The frames of code from V8's compilers: code in a frame that other code has set up, and the rows of instructions that
// no path reaches.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "runtimes/v8/described.h"
#include "runtimes/v8/heap.h"
#include "runtimes/v8/image_file.h"
#include "runtimes/v8/rows.h"
#include "runtimes/v8/wasm_map.h"
#include "support/fake_v8.h"
#include "support/made_up_memory.h"

namespace windlass::runtimes::v8 {
namespace {

using Bytes = std::vector<std::uint8_t>;
constexpr std::uint64_t kAt = 0x10000;
constexpr std::uint32_t kStub = 3, kBaseline = 9, kOptimised = 11;

test::MadeUpMemory memory_of(const Bytes& code) {
  test::MadeUpMemory memory(kAt, code.size());
  memory.bytes = code;
  return memory;
}

std::unique_ptr<CompiledCode> compiled(const Bytes& bytes, std::uint32_t kind) {
  const test::MadeUpMemory memory = memory_of(bytes);
  Layout layout;
  layout.kind_baseline = kBaseline;
  const Heap heap(memory, layout);
  auto code = CompiledCode::read(heap, {.begin = kAt, .end = kAt + bytes.size(), .kind = kind});
  EXPECT_TRUE(code);
  return std::move(*code);
}
std::unique_ptr<WasmCode> liftoff(const Bytes& bytes) {
  WasmObject object;
  object.begin = kAt, object.end = kAt + bytes.size(), object.index = 1;
  return std::move(*WasmCode::read(memory_of(bytes), object));
}

// "s8": the CFA is rsp + 8; "b16": rbp + 16; "-": nothing is known.
std::string cfa_at(const Code& code, std::uint64_t offset) {
  FrameRow row;
  if (!code.row_at(code.begin + offset, row)) return "-";
  EXPECT_TRUE(row.begin <= code.begin + offset && code.begin + offset < row.end);
  if (!row.cfa.is_at(6) && !row.cfa.is_at(7)) return "?";
  return (row.cfa.is_at(7) ? "s" : "b") + std::to_string(row.cfa.offset());
}
std::string cfas_at(const Code& code, std::initializer_list<std::uint64_t> offsets) {
  std::string text;
  for (const std::uint64_t offset : offsets) text += (text.empty() ? "" : " ") + cfa_at(code, offset);
  return text;
}

// test eax, eax; call (which sets up the frame); nop; mov rsp, rbp; pop rbp; ret; int3
const Bytes kByCall = {0x85, 0xc0, 0xe8, 0, 1, 0, 0, 0x90, 0x48, 0x89, 0xec, 0x5d, 0xc3, 0xcc};

TEST(V8Rows, BaselineCodeStandsInItsFrameBehindTheFirstCall) {
  const auto code = compiled(kByCall, kBaseline);
  EXPECT_EQ(cfas_at(*code, {0, 2, 7, 8, 11, 12}), "s8 s8 b16 b16 b16 s8");
  EXPECT_FALSE(code->has_frame(kAt + 2));
  EXPECT_TRUE(code->has_frame(kAt + 7));
  EXPECT_FALSE(code->has_frame(kAt + 12));
  EXPECT_EQ(cfas_at(*liftoff(kByCall), {0, 2, 7, 8, 11, 12}), "s8 s8 b16 b16 b16 s8");
}

// push rbp; mov rbp, rsp; call; mov rsp, rbp; pop rbp; ret
TEST(V8Rows, CodeThatSetsUpItsFrameHasItFromThereOn) {
  const Bytes bytes = {0x55, 0x48, 0x89, 0xe5, 0xe8, 0, 1, 0, 0, 0x48, 0x89, 0xec, 0x5d, 0xc3};
  for (const std::uint32_t kind : {kStub, kBaseline, kOptimised})
    EXPECT_EQ(cfas_at(*compiled(bytes, kind), {0, 1, 4, 9, 13}), "s8 s16 b16 b16 s8") << kind;
  EXPECT_EQ(cfas_at(*liftoff(bytes), {0, 1, 4, 9, 13}), "s8 s16 b16 b16 s8");
}

// On-stack replacement: sub rsp, 16; call; nop; mov rsp, rbp; pop rbp; ret
TEST(V8Rows, CodeThatGoesOnInAnInterpretersFrameStandsInItFromTheStart) {
  const Bytes bytes = {0x48, 0x83, 0xec, 0x10, 0xe8, 0, 1, 0, 0, 0x90, 0x48, 0x89, 0xec, 0x5d, 0xc3};
  EXPECT_EQ(cfas_at(*compiled(bytes, kOptimised), {0, 4, 9, 13, 14}), "b16 b16 b16 b16 s8");
  EXPECT_EQ(cfas_at(*compiled(bytes, kStub), {0, 4}), "s8 s24") << "a stub has been called";
  EXPECT_EQ(cfas_at(*compiled({0x5d, 0xc3}, kOptimised), {0, 1}), "b16 s8") << "pop rbp; ret";
  EXPECT_EQ(cfas_at(*compiled(kByCall, kOptimised), {0, 2, 7, 12}), "b16 b16 b16 s8") << "the call sets up no frame";
}

// V8 10: a branch skips the jump by which code is left that is not valid any more. Had it no target behind the jump,
// the code would be taken for one that goes on in a frame.
TEST(V8Rows, AJumpThatIsSkippedIsInFrontOfTheFrame) {
  // test al, 1; je 9; jmp 0x10105; push rbp; mov rbp, rsp; nop; mov rsp, rbp; pop rbp; ret
  Bytes bytes = {0xa8, 0x01, 0x74, 0x05, 0xe9, 0, 1, 0, 0, 0x55, 0x48, 0x89, 0xe5, 0x90, 0x48, 0x89, 0xec, 0x5d, 0xc3};
  EXPECT_EQ(cfas_at(*compiled(bytes, kOptimised), {0, 2, 9, 10, 13, 18}), "s8 s8 s8 s16 b16 s8");
  bytes[3] = 0x06;
  EXPECT_EQ(cfas_at(*compiled(bytes, kOptimised), {0}), "b16");
}

// "b16 b16 -": the CFAs that are described at offsets.
std::string described_cfas(const Expected<Description>& description, std::initializer_list<std::uint64_t> offsets) {
  EXPECT_TRUE(description);
  std::string text;
  for (const std::uint64_t offset : offsets) {
    const auto row = std::ranges::find_if(description->rows,
                                          [&](const FrameRow& it) { return it.begin <= offset && offset < it.end; });
    text += text.empty() ? "" : " ";
    text += row == description->rows.end() ? std::string("-")
                                           : (row->cfa.is_at(7) ? "s" : "b") + std::to_string(row->cfa.offset());
  }
  return text;
}
// Of a builtin's code. Such code calls C++ with sp aligned.
std::string builtin_cfas(const std::string& code, std::initializer_list<std::uint64_t> offsets) {
  const ByteView bytes(reinterpret_cast<const std::byte*>(code.data()), code.size());
  return described_cfas(describe_code(bytes, kAt, false, {}), offsets);
}
const std::string kFrame("\x55\x48\x89\xe5", 4);  // push rbp; mov rbp, rsp
const std::string kLeave("\x48\x89\xec\x5d\xc3", 5);
// mov r10, rsp; sub rsp, 8; (and rsp, -16;) mov [rsp], r10; call rax; mov rsp, [rsp]
const std::string kKeepSp("\x49\x89\xe2\x48\x83\xec\x08", 7), kAlignSp("\x48\x83\xe4\xf0", 4);
const std::string kCallAndBack("\x4c\x89\x14\x24\xff\xd0\x48\x8b\x24\x24", 10);

// push rbp in the frame; a call of C++; pop rbp. C++ takes no arguments off, other code may.
TEST(V8Rows, AnAlignedCallLeavesTheStackAsItIs) {
  const std::string front = kFrame + "\x55" + kKeepSp, behind = kCallAndBack + "\x5d\x90" + kLeave;
  EXPECT_EQ(builtin_cfas(front + kAlignSp + behind, {0, 4, 22, 26, 27, 28, 31, 32}), "s8 b16 b16 b16 b16 b16 b16 s8");
  EXPECT_EQ(builtin_cfas(front + behind, {0, 4, 18, 22, 23}), "s8 b16 b16 b16 -");
}

// As CallVarargs: where arguments are put above the return address in a loop, in front of the jump out of the code.
TEST(V8Rows, ALoopInFrontOfTheJumpOutOfTheCodeHasTheReturnAddressOnTop) {
  // lea r10, [rcx * 8]; sub rsp, r10; xor r9d, r9d; 14: mov r10, [r8 + r9 * 8]; mov [rsp + r9 * 8], r10; inc r9
  const std::string moves(
      "\x4c\x8d\x14\xcd\0\0\0\0\x49\x2b\xe2\x45\x31\xc9\x4f\x8b\x14\xc8\x4e\x89\x14\xcc\x49\xff\xc1", 25);
  // cmp r9, rax; jle 14; 30: lea r8, [rsp + rax * 8 + 8]
  const std::string more("\x49\x39\xc1\x7e\xf0\x4c\x8d\x44\xc4\x08", 10);
  // 35: mov [r8 + rcx * 8], r11; or mov [rsp + rcx * 8], r11; dec ecx; jne 35; jmp out
  const std::string by_other("\x4d\x89\x1c\xc8", 4), by_sp("\x4c\x89\x1c\xcc", 4);
  const std::string leaves("\xff\xc9\x75\xf8\xe9\0\1\0\0", 9);
  EXPECT_EQ(builtin_cfas(moves + more + by_other + leaves, {0, 8, 11, 14, 18, 22, 28, 30, 35, 39, 41, 43}),
            "s8 s8 - - - - - s8 s8 s8 s8 s8")
      << "in the first loop it may not be there yet";
  EXPECT_EQ(builtin_cfas(moves + more + by_sp + leaves, {0, 14, 30, 35, 39, 41, 43}), "s8 - - - - - s8");
}

// As WasmCompileLazy: pop r15; shl r15, 32; push rbp; mov rbp, rsp; push 44; mov rsp, rbp; pop rbp; jmp r15
TEST(V8Rows, AWordOnTopOfTheReturnAddressIsTakenOff) {
  const std::string code("\x41\x5f\x49\xc1\xe7\x20\x55\x48\x89\xe5\x6a\x2c\x48\x89\xec\x5d\x41\xff\xe7", 19);
  std::vector<std::byte> bytes(code.size());
  std::memcpy(bytes.data(), code.data(), code.size());
  EXPECT_EQ(described_cfas(describe_pushed(bytes, kAt), {0, 2, 6, 7, 10, 12, 15, 16}), "s16 s8 s8 s16 b16 b16 b16 s8");
}

// As CallFunction of V8 10: where the stack may have moved or not, two ways lead to the jump out of the code.
TEST(V8Rows, AllWaysToTheJumpOutOfTheCodeHaveTheReturnAddressOnTop) {
  // sub rbx, rax; jle 16; lea r10, [rbx * 8]; sub rsp, r10
  const std::string moves("\x48\x2b\xd8\x7e\x0b\x4c\x8d\x14\xdd\0\0\0\0\x49\x2b\xe2", 16);
  // 16: mov rcx, [rdi + 47]; test [rcx + 47], 1; jne 35; add rcx, 127; jmp 38
  const std::string tests("\x48\x8b\x4f\x2f\xf7\x41\x2f\1\0\0\0\x75\x06\x48\x83\xc1\x7f\xeb\x03", 19);
  const std::string other = "\x8b\x49\x33", leaves = "\xff\xe1";  // 35: mov ecx, [rcx + 51]; 38: jmp rcx
  EXPECT_EQ(builtin_cfas(moves + tests + other + leaves, {0, 16, 20, 27, 29, 33, 35, 38}), "s8 s8 s8 s8 s8 s8 s8 s8");
  // pop rcx on one of them
  EXPECT_EQ(builtin_cfas(moves + tests + "\x59\x90\x90" + leaves, {16, 27, 29, 33, 35, 36, 38}), "- - - - - s8 s8");
}

// As RecordWrite does: 19 registers are saved, of which rows tell of one, and 16 of 16 bytes. The frame pointer is
// among them.
TEST(V8Rows, AFramePointerIsFoundAmongManySavedRegisters) {
  std::string save = kFrame, load;
  for (int i = 0; i < 9; ++i) save += std::string("\x57\x56\x53").substr(i % 3, 1);  // push rdi; push rsi; push rbx
  save += "\x51\x52\x53\x55\x56\x57\x41\x50\x41\x51\x41\x52\x41\x53";  // rcx rdx rbx rbp rsi rdi r8 to r11
  save += std::string("\x48\x81\xec\x00\x01\x00\x00", 7);              // sub rsp, 256
  for (int i = 0; i < 16; ++i)                                         // movups [rsp + 16 * i], xmm0
    save += std::string("\x0f\x11\x84\x24", 4) + static_cast<char>(16 * i) + std::string("\0\0\0", 3);
  load += std::string("\x48\x81\xc4\x00\x01\x00\x00", 7);
  load += "\x41\x5b\x41\x5a\x41\x59\x41\x58\x5f\x5e\x5d\x5b\x5a\x59";
  const std::string code = save + kKeepSp + kAlignSp + kCallAndBack + load + kLeave;
  EXPECT_EQ(builtin_cfas(code, {save.size(), code.size() - 6, code.size() - 2, code.size() - 1}), "b16 b16 b16 s8");
}

// push rbp; mov rbp, rsp; call (which throws); nop, reached by unwinding alone
TEST(V8Rows, WhatNothingLeadsToStandsInItsFrame) {
  const Bytes bytes = {0x55, 0x48, 0x89, 0xe5, 0x48, 0x89, 0xec, 0x5d, 0xc3, 0x90, 0x90};
  EXPECT_EQ(cfas_at(*compiled(bytes, kOptimised), {4, 9, 10}), "b16 b16 b16");
}

// push rbp; mov rbp, rsp; jne 9; mov rsp, rbp; pop rbp; nop; ret: with two frames at the nop.
TEST(V8Rows, WhereTwoFramesMeetNothingIsKnown) {
  const Bytes bytes = {0x55, 0x48, 0x89, 0xe5, 0x75, 0x04, 0x48, 0x89, 0xec, 0x5d, 0x90, 0xc3};
  const auto code = compiled(bytes, kOptimised);
  EXPECT_EQ(cfas_at(*code, {0, 4, 6, 10}), "s8 b16 b16 -");
  EXPECT_FALSE(code->has_frame(kAt + 10));
}

// push rbp; mov rbp, rsp; jne 10; mov rsp, rbp; pop rbp; call: with two frames there. A function calls from its own
// alone.
TEST(V8Rows, WhatHasCalledStandsInItsFrameWhateverLeadsThere) {
  const Bytes bytes = {0x55, 0x48, 0x89, 0xe5, 0x75, 0x04, 0x48, 0x89, 0xec, 0x5d, 0xe8, 0, 1, 0, 0, 0xc3};
  const auto code = compiled(bytes, kOptimised);
  EXPECT_EQ(cfas_at(*code, {4, 10, 13, 14}), "b16 - - b16");
  EXPECT_FALSE(code->has_frame(kAt + 10));
  EXPECT_TRUE(code->has_frame(kAt + 14));
  EXPECT_EQ(cfas_at(*compiled(bytes, kStub), {14}), "-") << "a stub may call from elsewhere";
}

// push rbp; nop; call; pop rbp; push rbp; mov rbp, rsp; call; pop rbp; ret
TEST(V8Rows, WhatHasCalledInFrontOfItsFrameHasNone) {
  const Bytes bytes = {0x55, 0x90, 0xe8, 0, 1, 0, 0, 0x5d, 0x55, 0x48, 0x89, 0xe5, 0xe8, 0, 1, 0, 0, 0x5d, 0xc3};
  EXPECT_EQ(cfas_at(*compiled(bytes, kOptimised), {6, 16}), "s16 b16");
}

// test eax, eax; jne (out of the code, where it is no longer valid); call (which sets up the frame); nop; mov rsp, rbp;
// pop rbp; ret
TEST(V8Rows, BranchesOutOfBaselineCodeAreInFrontOfItsFrame) {
  const Bytes bytes = {0x85, 0xc0, 0x0f, 0x85, 0, 0x10, 0, 0, 0xe8, 0, 1, 0, 0, 0x90, 0x48, 0x89, 0xec, 0x5d, 0xc3};
  EXPECT_EQ(cfas_at(*compiled(bytes, kBaseline), {0, 2, 8, 13, 14, 17, 18}), "s8 s8 s8 b16 b16 b16 s8");
}

std::string cfas_of(const Expected<Description>& found, std::initializer_list<std::uint64_t> offsets) {
  std::string text;
  for (const std::uint64_t offset : offsets) {
    const auto row =
        std::ranges::find_if(found->rows, [&](const FrameRow& one) { return one.begin <= offset && offset < one.end; });
    if (!text.empty()) text += ' ';
    text += row == found->rows.end() ? "-" : (row->cfa.is_at(7) ? "s" : "b") + std::to_string(row->cfa.offset());
  }
  return text;
}

// Builtins_ContinueToJavaScriptBuiltinWithResult of node 20.20.2. Returned to at its first instruction, it stands in a
// frame that the deoptimiser has made. mov rbp, [rsp + 0x28] at 0x1e; pop [rsp + 0x20]; add rsp, 0x20 at 0x27.
const Bytes kContinuation = {0x4c, 0x8b, 0xd0, 0x41, 0x5e, 0x41, 0x5f, 0x41, 0x5c, 0x41, 0x5b, 0x41, 0x59,
                             0x41, 0x58, 0x5f, 0x5e, 0x59, 0x5a, 0x5b, 0x58, 0x48, 0xc1, 0xe8, 0x20, 0x4c,
                             0x89, 0x54, 0xc4, 0x30, 0x48, 0x8b, 0x6c, 0x24, 0x28, 0x8f, 0x44, 0x24, 0x20,
                             0x48, 0x83, 0xc4, 0x20, 0x4c, 0x8b, 0x14, 0x24, 0x49, 0xc1, 0xea, 0x20, 0x4f,
                             0x8b, 0x94, 0xd5, 0xc8, 0x49, 0x00, 0x00, 0x4c, 0x89, 0x14, 0x24, 0xc3};

TEST(V8Rows, ABuiltinThatGoesOnBehindOptimisedCodeStandsInTheDeoptimisersFrame) {
  const auto view = [](const Bytes& bytes) {
    return ByteView(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size());
  };
  const auto found = describe_continuation(view(kContinuation), kAt);
  ASSERT_TRUE(found) << found.error().text();
  EXPECT_EQ(cfas_of(found, {0, 3, 0x1e, 0x23, 0x27, 0x2b, 0x3f, 0x40}), "b16 b16 b16 s56 s48 s16 s16 -");
  for (const std::size_t damaged : {0x1eU, 0x2aU, 0x3fU}) {  // in mov rbp, add rsp, ret
    Bytes bytes = kContinuation;
    bytes[damaged] ^= 0x10;
    EXPECT_FALSE(describe_continuation(view(bytes), kAt)) << damaged;
  }
  EXPECT_FALSE(describe_continuation({}, kAt));
}

TEST(V8Rows, AllRowsAreGivenAtTheCodesAddresses) {
  const auto code = compiled(kByCall, kBaseline);
  std::uint64_t reached = kAt;
  code->for_each_row(
      [&](const FrameRow& row) {
        EXPECT_GE(row.begin, reached);
        EXPECT_GT(row.end, row.begin);
        reached = row.end;
        FrameRow there;
        ASSERT_TRUE(code->row_at(row.begin, there));
        EXPECT_EQ(there.cfa, row.cfa);
      },
      [](const Error&) { ADD_FAILURE(); });
  EXPECT_GE(reached, kAt + 13);
  EXPECT_LE(reached, kAt + kByCall.size());
}

// What code costs that is kept.
TEST(V8Rows, BytesCountWhatIsKept) {
  const auto code = compiled(kByCall, kBaseline), longer = compiled(Bytes(kByCall.size() + 20, 0x90), kBaseline);
  EXPECT_EQ(longer->bytes(), code->bytes() + 30) << "the code, and rows of half its size";
  EXPECT_EQ(code->bytes(), sizeof(CompiledCode) + kByCall.size() * 3 / 2);
  const std::size_t before = code->bytes();
  code->positions.resize(3);
  EXPECT_EQ(code->bytes(), before + 3 * sizeof(SourcePosition));
  code->inlined.resize(2);
  code->offsets.resize(5);
  code->bytecodes.resize(7);
  EXPECT_EQ(code->bytes(), before + 3 * sizeof(SourcePosition) + 2 * sizeof(CompiledCode::Inlined) + 5 + 7);
  const auto wasm = liftoff(kByCall);
  const std::size_t nameless = wasm->bytes();
  EXPECT_EQ(nameless, sizeof(CompiledCode) + kByCall.size() / 2);
  wasm->name = "name";
  wasm->file = "module.wasm";
  EXPECT_EQ(wasm->bytes(), nameless + 4 + 11);
}

// Code of which nothing is described, or with a byte in front that belongs to it.
class MadeUpCode final : public Code {
 public:
  MadeUpCode(std::shared_ptr<const Description> description, bool frames, std::uint32_t front)
      : Code(kAt - front, 4 + front, std::move(description), frames, front) {}
};

TEST(V8Rows, CodeThatIsReturnedToAtItsFirstInstructionIsFoundInFrontOfIt) {
  // pop rbp; nop; ret: in the frame that it was left in.
  const std::vector<std::byte> bytes = {std::byte{0x5d}, std::byte{0x90}, std::byte{0xc3}, std::byte{0xcc}};
  const MadeUpCode code(std::make_shared<Description>(describe_framed(bytes, kAt, 0).value()), true, 1);
  EXPECT_EQ(cfas_at(code, {1, 2, 3}), "b16 s8 s8");
  FrameRow row;
  ASSERT_TRUE(code.row_at(kAt - 1, row));
  EXPECT_EQ(row.cfa, CfaRule::at(6, 16));
  std::uint64_t first = 0;
  code.for_each_row([&](const FrameRow& given) { first = first == 0 ? given.begin : first; }, [](const Error&) {});
  EXPECT_EQ(first, kAt);
}

TEST(V8Rows, CodeThatIsNotDescribedIsInItsFrameOrNotKnown) {
  EXPECT_EQ(cfa_at(MadeUpCode(nullptr, true, 0), 2), "b16");
  EXPECT_EQ(cfa_at(MadeUpCode(nullptr, false, 0), 2), "-");
  FrameRow row;
  ASSERT_TRUE(MadeUpCode(nullptr, true, 0).row_at(kAt + 2, row));
  EXPECT_EQ(row.begin, kAt + 2);
  EXPECT_EQ(row.end, kAt + 3) << "of the next byte nothing is known";
  std::size_t rows = 0;
  MadeUpCode(nullptr, true, 0).for_each_row([&](const FrameRow&) { ++rows; }, [](const Error&) {});
  EXPECT_EQ(rows, 0U);
}

TEST(V8Rows, WhereAFrameIsLostNothingIsKnown) {
  for (const auto reason : {Unproved::kNotReached, Unproved::kUnknownJump, Unproved::kNotFollowed,
                            Unproved::kDifferentFrames, Unproved::kFrameLost}) {
    Description description;
    description.unproved = {{.begin = 1, .end = 3, .reason = reason}};
    const MadeUpCode code(std::make_shared<Description>(description), true, 1);
    const bool is_lost = reason == Unproved::kDifferentFrames || reason == Unproved::kFrameLost;
    EXPECT_EQ(cfas_at(code, {1, 2, 3, 4}), is_lost ? "b16 - - b16" : "b16 b16 b16 b16") << reason_text(reason);
  }
}

TEST(V8Rows, RowsEndWhereTheyEnd) {
  Description description;
  description.rows = {entry_row(0, 2)};
  const MadeUpCode code(std::make_shared<Description>(description), false, 0);
  EXPECT_EQ(cfas_at(code, {0, 1, 2, 3}), "s8 s8 - -");
  EXPECT_FALSE(code.has_frame(kAt + 3));
}

TEST(V8Rows, FunctionsAreNotCalledByCodeOfFiles) {
  EXPECT_FALSE(compiled(kByCall, kBaseline)->may_be_outermost(kAt + 7));
  EXPECT_FALSE(compiled(kByCall, kOptimised)->may_be_outermost(kAt + 7));
  EXPECT_TRUE(compiled(kByCall, kStub)->may_be_outermost(kAt + 7)) << "a regular expression is";
  EXPECT_FALSE(liftoff(kByCall)->may_be_outermost(kAt + 7));
}

// A file of a V8 without builtins: what a builtin is, its name says.
TEST(V8Rows, BuiltinsAreWhatTheyAreCalled) {
  const std::vector<std::byte> bytes = test::fake_v8::file_of(test::fake_v8::facts());
  const int fd = memfd_create("v8", MFD_CLOEXEC);
  ASSERT_EQ(write(fd, bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  auto mapped = MappedFile::from_fd(fd);
  close(fd);
  ASSERT_TRUE(mapped);
  const auto file = ImageFile::open(std::move(*mapped));
  ASSERT_TRUE(file) << file.error().text();
  const auto kind = [&](const char* name) {
    constexpr std::uint64_t kBias = 0x1000;
    const BuiltinCode code(**file, {kAt, kAt + 0x40, name}, kBias);
    EXPECT_EQ(code.begin, kAt + kBias - 1) << "what is returned to at its first instruction is found in front of it";
    EXPECT_EQ(code.end, kAt + kBias + 0x40);
    EXPECT_FALSE(code.lasting) << "an image may be taken away";
    EXPECT_EQ(code.object(), nullptr);
    EXPECT_EQ(code.wasm(), nullptr);
    return std::string(code.may_be_outermost(kAt) ? "entry " : "") + (code.interprets() ? "interprets " : "") +
           cfa_at(code, 9);
  };
  EXPECT_EQ(kind("ArrayMap"), "-");
  EXPECT_EQ(kind("JSEntry"), "entry -");
  EXPECT_EQ(kind("JSConstructEntry"), "entry -");
  EXPECT_EQ(kind("JSRunMicrotasksEntry"), "entry -");
  EXPECT_EQ(kind("CWasmEntry"), "entry -");
  EXPECT_EQ(kind("JSEntryTrampoline"), "-") << "JSEntry calls it";
  EXPECT_EQ(kind("InterpreterEntryTrampoline"), "interprets -");
  EXPECT_EQ(kind("InterpreterEntryTrampolineForProfiling"), "interprets -");
  EXPECT_EQ(kind("InterpreterEnterAtBytecode"), "interprets b16") << "it goes on in a frame that is there";
  EXPECT_EQ(kind("InterpreterEnterAtNextBytecode"), "interprets b16");
  EXPECT_EQ(kind("BaselineLeaveFrame"), "b16");
}

TEST(V8Rows, CodeThatCannotBeReadIsAnError) {
  const test::MadeUpMemory memory(kAt, 4);
  const Layout layout;
  const Heap heap(memory, layout);
  EXPECT_EQ(CompiledCode::read(heap, {.begin = kAt, .end = kAt + 5}).error().code, ErrorCode::kUnreadable);
  WasmObject object;
  object.begin = kAt, object.end = kAt + 5;
  EXPECT_EQ(WasmCode::read(memory, object).error().code, ErrorCode::kUnreadable);
}

std::unique_ptr<WasmCode> jumps(const Bytes& bytes) {
  WasmObject object;
  object.begin = kAt, object.end = kAt + bytes.size(), object.index = WasmObject::kNone;
  return std::move(*WasmCode::read(memory_of(bytes), object));
}

TEST(V8Rows, JumpsOfWebAssemblyLeaveTheStackAsItIs) {
  // jmp; jmp
  const auto plain = jumps({0xe9, 0, 1, 0, 0, 0xe9, 0, 1, 0, 0});
  EXPECT_EQ(plain->name, "[WebAssembly jump table]");
  EXPECT_EQ(cfas_at(*plain, {0, 4, 5, 9}), "s8 s8 s8 s8");
  // push 1; jmp; push 2; jmp; and what is no whole one
  const auto lazy = jumps({0x68, 1, 0, 0, 0, 0xe9, 0, 1, 0, 0, 0x68, 2, 0, 0, 0, 0xe9, 0, 1, 0, 0, 0xcc});
  EXPECT_EQ(cfas_at(*lazy, {0, 4, 5, 9, 10, 14, 15, 19}), "s8 s8 s16 s16 s8 s8 s16 s16");
  std::string rows;
  lazy->for_each_row(
      [&](const FrameRow& row) {
        rows += std::to_string(row.begin - kAt) + "-" + std::to_string(row.end - kAt) + ":" +
                std::to_string(row.cfa.offset()) + " ";
      },
      [](const Error&) {});
  EXPECT_EQ(rows, "0-5:8 5-10:16 10-15:8 15-20:16 ");
  rows.clear();
  plain->for_each_row([&](const FrameRow& row) { rows += std::to_string(row.end - row.begin); }, [](const Error&) {});
  EXPECT_EQ(rows, "10") << "one row for all";
  // sub rsp, 16; jmp: no jump table
  EXPECT_EQ(jumps({0x48, 0x83, 0xec, 0x10, 0xe9, 0, 1, 0, 0})->name, "[WebAssembly to JavaScript]");
  // push rbp; jmp
  EXPECT_EQ(jumps({0x55, 0xe9, 0, 1, 0, 0})->name, "[WebAssembly to JavaScript]");
}

}  // namespace
}  // namespace windlass::runtimes::v8
