// The unwinder on functions laid out by hand: forms that compilers seldom or never emit, and wrong ones. The
// ground-truth test shows that it is right on real code.
#include "formats/winx64/exec.h"

#include <map>

#include <gtest/gtest.h>

#include "support/known_unwind.h"
#include "support/pe_image_builder.h"

namespace windlass {
namespace {

using test::Bytes;
using test::PeImageBuilder;
using test::UnwindInfoBytes;
using winx64::Position;

constexpr auto slot = &UnwindInfoBytes::slot;
constexpr std::uint64_t kSp = 0x7000;
enum : unsigned {
  kPush = 0,
  kAllocLarge = 1,
  kAllocSmall = 2,
  kSetFp = 3,
  kSave = 4,
  kEpilog = 6,
  kSaveXmm = 8,
  kMachine = 10
};
enum : unsigned { kRbx = 3, kRbp = 5, kRsi = 6, kR12 = 12 };

struct Stack {
  std::map<std::uint64_t, std::uint64_t> words;
  [[nodiscard]] bool read(std::uint64_t address, void* to, std::size_t size) const {
    const auto found = words.find(address);
    if (found == words.end() || size != 8) return false;
    std::memcpy(to, &found->second, 8);
    return true;
  }
};

class WinX64Exec : public testing::Test {
 protected:
  std::uint32_t info(const UnwindInfoBytes& bytes, const Bytes& tail = {}) {
    Bytes all = bytes.bytes();
    return builder.data(all.add(tail));
  }
  // Unwinds from `rva` with rsp = kSp and every register = its number.
  Expected<void> run(std::uint32_t rva, bool is_return = false) {
    file = builder.build();
    const auto image = image::PeImage::parse(ByteView(std::span<const std::uint8_t>(file)));
    const winx64::Functions functions(*image);
    Registers frame(Architecture::kX86_64);
    for (unsigned i = 0; i < 16; ++i) frame.set(winx64::dwarf_number(i), rbp != 0 && i == kRbp ? rbp : i);
    frame.set_sp(kSp);
    const std::uint64_t pc = PeImageBuilder::kBase + rva;
    frame.set_pc(is_return ? CodeAddress::return_address(pc) : CodeAddress::instruction(pc));
    EXPECT_TRUE(test::same_when_known(functions, PeImageBuilder::kBase, stack, frame));
    for (const unsigned unknown : {kRbx, kRbp}) {
      Registers less = frame;
      less.forget(winx64::dwarf_number(unknown));
      EXPECT_TRUE(test::same_when_known(functions, PeImageBuilder::kBase, stack, less));
    }
    saved = {};
    return winx64::virtual_unwind(functions, PeImageBuilder::kBase, stack, frame, result, &saved);
  }
  void expect(std::uint64_t rip, std::uint64_t rsp, Position position) {
    EXPECT_EQ(result.caller.pc().value(), rip);
    EXPECT_EQ(result.caller.sp(), rsp);
    EXPECT_EQ(result.position, position);
  }
  [[nodiscard]] std::uint64_t reg(unsigned number) const { return result.caller.get(winx64::dwarf_number(number)); }

  PeImageBuilder builder;
  Stack stack;
  std::uint64_t rbp = 0;
  winx64::Unwound result;
  winx64::SavedAddresses saved;
  std::vector<std::uint8_t> file;
};

TEST_F(WinX64Exec, Leaf) {
  const auto code = builder.text({0x90, 0xc3});
  stack.words = {{kSp, 0xabc}};
  ASSERT_TRUE(run(code));
  expect(0xabc, kSp + 8, Position::kLeaf);
  EXPECT_TRUE(result.caller.pc().is_return_address());
  EXPECT_EQ(reg(kRbx), kRbx);
  EXPECT_FALSE(result.caller.has(winx64::dwarf_number(0)));  // rax is not preserved
  EXPECT_EQ(saved.return_address, kSp);
}

TEST_F(WinX64Exec, PrologueAtEveryInstruction) {
  // push rbx; push r12; sub rsp, 0x20; 3 x nop
  const auto code = builder.text({0x53, 0x41, 0x54, 0x48, 0x83, 0xec, 0x20, 0x90, 0x90, 0x90});
  UnwindInfoBytes bytes;
  bytes.prolog_size = 7;
  bytes.slots = {slot(7, kAllocSmall, 3), slot(3, kPush, kR12), slot(1, kPush, kRbx)};
  builder.entry(code, builder.next_text(), info(bytes));
  stack.words = {{kSp, 1}, {kSp + 8, 2}, {kSp + 16, 3}, {kSp + 32, 0x512}, {kSp + 40, 0x503}, {kSp + 48, 0x5ab}};
  ASSERT_TRUE(run(code));
  expect(1, kSp + 8, Position::kPrologue);
  EXPECT_EQ(saved.integer[kRbx], 0U);
  ASSERT_TRUE(run(code + 1));
  expect(2, kSp + 16, Position::kPrologue);
  EXPECT_EQ(reg(kRbx), 1U);
  ASSERT_TRUE(run(code + 3));
  expect(3, kSp + 24, Position::kPrologue);
  EXPECT_EQ(reg(kR12), 1U);
  ASSERT_TRUE(run(code + 7));
  expect(0x5ab, kSp + 56, Position::kBody);
  EXPECT_EQ(reg(kRbx), 0x503U);
  EXPECT_EQ(saved.integer[kR12], kSp + 32);
}

TEST_F(WinX64Exec, PrologueHasNoHandler) {
  const auto code = builder.text({0x53, 0x90, 0x90});
  UnwindInfoBytes bytes;
  bytes.flags = winx64::kEhandler;
  bytes.prolog_size = 1;
  bytes.slots = {slot(1, kPush, kRbx)};
  builder.entry(code, builder.next_text(), info(bytes, Bytes().u32(0x4444)));
  stack.words = {{kSp, 1}, {kSp + 8, 2}};
  ASSERT_TRUE(run(code));
  EXPECT_EQ(result.position, Position::kPrologue);
  EXPECT_EQ(result.handler, 0U);
  ASSERT_TRUE(run(code + 1));
  EXPECT_EQ(result.handler, 0x4444U);
}

TEST_F(WinX64Exec, FrameRegisterSavesAndEstablisher) {
  const auto code = builder.text({0x90, 0x90, 0x90, 0x90, 0x90, 0x90});
  UnwindInfoBytes bytes;
  bytes.prolog_size = 4;
  bytes.frame_register = kRbp;
  bytes.frame_offset = 2;
  bytes.slots = {slot(4, kSaveXmm, 6), 3, slot(4, kSave, kRsi), 1, slot(3, kSetFp, 0), slot(2, kAllocSmall, 7),
                 slot(1, kPush, kRbp)};
  builder.entry(code, builder.next_text(), info(bytes));
  rbp = 0x8020;  // of a frame at 0x8000
  stack.words = {{0x8008, 0x66}, {0x8040, 0x55}, {0x8048, 0xabc}};
  ASSERT_TRUE(run(code + 4));
  expect(0xabc, 0x8050, Position::kBody);
  EXPECT_EQ(result.establisher, 0x8000U);
  EXPECT_EQ(reg(kRsi), 0x66U);
  EXPECT_EQ(reg(kRbp), 0x55U);
  EXPECT_EQ(saved.xmm[6], 0x8030U);
  ASSERT_TRUE(run(code + 3));  // set, but nothing saved yet
  EXPECT_EQ(result.establisher, 0x8000U);
  EXPECT_EQ(reg(kRsi), kRsi);
  stack.words[kSp] = 0x123;
  ASSERT_TRUE(run(code));
  EXPECT_EQ(result.establisher, kSp);
}

TEST_F(WinX64Exec, EpiloguesByTheirInstructions) {
  // add rsp, 0x18; pop rbx; pop r12; vzeroupper; bnd ret n
  const auto code =
      builder.text({0x90, 0x48, 0x83, 0xc4, 0x18, 0x5b, 0x41, 0x5c, 0xc5, 0xf8, 0x77, 0xf2, 0xc2, 0x10, 0});
  UnwindInfoBytes bytes;
  bytes.flags = winx64::kEhandler;
  bytes.slots = {slot(0, kAllocSmall, 2), slot(0, kPush, kRbx), slot(0, kPush, kR12)};
  const auto at = info(bytes, Bytes().u32(0x4444));
  builder.entry(code, builder.next_text(), at);
  stack.words = {{kSp, 1}, {kSp + 8, 2}, {kSp + 16, 3}, {kSp + 24, 4}, {kSp + 32, 5}, {kSp + 40, 6}};
  ASSERT_TRUE(run(code));
  expect(6, kSp + 48, Position::kBody);
  EXPECT_EQ(result.handler, 0x4444U);
  EXPECT_EQ(result.handler_flags, winx64::kEhandler);
  ASSERT_TRUE(run(code + 1));
  expect(6, kSp + 48 + 16, Position::kEpilogue);
  EXPECT_EQ(result.handler, 0U);
  EXPECT_EQ(reg(kR12), 5U);
  ASSERT_TRUE(run(code + 6));
  expect(2, kSp + 16 + 16, Position::kEpilogue);
  EXPECT_EQ(reg(kR12), 1U);
  for (const unsigned offset : {8U, 11U, 12U}) {
    ASSERT_TRUE(run(code + offset));
    expect(1, kSp + 8 + 16, Position::kEpilogue);
  }
}

// lea rsp, [r12 + 8]; pop rbx; ret: r12 as a base takes a byte more. And pop rsp; ret is no epilogue.
TEST_F(WinX64Exec, EpilogueByR12AndNoneByRsp) {
  UnwindInfoBytes bytes;
  bytes.frame_register = kR12;
  bytes.slots = {slot(0, kSetFp, 0), slot(0, kPush, kRbx)};
  const auto code = builder.text({0x49, 0x8d, 0x64, 0x24, 0x08, 0x5b, 0xc3});
  builder.entry(code, builder.next_text(), info(bytes));
  UnwindInfoBytes plain;
  plain.slots = {slot(0, kAllocSmall, 1)};
  const auto pops = builder.text({0x5c, 0xc3});
  builder.entry(pops, builder.next_text(), info(plain));
  const std::uint64_t at = kR12 + 8;  // every register is its number
  stack.words = {{at, 1}, {at + 8, 2}, {kSp, kSp + 32}, {kSp + 16, 3}};
  ASSERT_TRUE(run(code));
  expect(2, at + 16, Position::kEpilogue);
  EXPECT_EQ(reg(kRbx), 1U);
  ASSERT_TRUE(run(pops));
  expect(3, kSp + 24, Position::kBody);
}

TEST_F(WinX64Exec, JumpsThatLeaveAndJumpsThatDoNot) {
  UnwindInfoBytes bytes;
  bytes.slots = {slot(0, kPush, kRbx)};
  UnwindInfoBytes plain;
  plain.prolog_size = 1;
  plain.slots = {slot(1, kPush, kRbx)};
  const auto other = builder.text({0x53, 0x90, 0x90, 0x5b, 0xc3});
  builder.entry(other, other + 5, info(plain));
  const auto code = builder.next_text();
  const auto jump = [&](std::uint32_t to) {
    const auto relative = static_cast<int>(to) - static_cast<int>(builder.next_text() + 5);
    return builder.text({0xe9, relative & 255, relative >> 8 & 255, relative >> 16 & 255, relative >> 24 & 255});
  };
  builder.text({0x53});
  const auto inside = jump(code + 1), to_begin = jump(code), to_other = jump(other), to_middle = jump(other + 2);
  const auto to_leaf = jump(0x5000);
  const auto import = builder.text({0xff, 0x25, 0, 0, 0, 0});
  const auto marked = builder.text({0x48, 0xff, 0xe0});
  const auto plain_jump = builder.text({0xff, 0xe0});
  builder.entry(code, builder.next_text(), info(plain));
  stack.words = {{kSp, 1}, {kSp + 8, 2}};
  const auto position = [&](std::uint32_t rva) {
    EXPECT_TRUE(run(rva));
    return result.position;
  };
  EXPECT_EQ(position(inside), Position::kBody);
  EXPECT_EQ(position(to_begin), Position::kEpilogue);
  EXPECT_EQ(position(to_other), Position::kEpilogue);
  EXPECT_EQ(position(to_middle), Position::kBody);
  EXPECT_EQ(position(to_leaf), Position::kEpilogue);
  EXPECT_EQ(position(import), Position::kEpilogue);
  EXPECT_EQ(position(marked), Position::kEpilogue);
  EXPECT_EQ(position(plain_jump), Position::kBody);
}

TEST_F(WinX64Exec, ChainedFragmentsAndIndirectEntries) {
  const auto parent = builder.text({0x53, 0x90, 0x90, 0x90});
  const auto fragment = builder.text({0x90, 0x90, 0x90, 0x90});
  const auto indirect = builder.text({0x90, 0x90});
  UnwindInfoBytes root;
  root.prolog_size = 2;
  root.flags = winx64::kUhandler;
  root.slots = {slot(2, kAllocSmall, 3), slot(1, kPush, kRbx)};
  const auto root_info = info(root, Bytes().u32(0x77));
  UnwindInfoBytes part;
  part.flags = winx64::kChaininfo;
  part.prolog_size = 2;
  part.slots = {slot(2, kSave, kRsi), 2, slot(0, kSave, kR12), 1};
  builder.entry(parent, fragment, root_info);
  builder.entry(fragment, indirect, info(part, Bytes().u32(parent).u32(fragment).u32(root_info)));
  builder.entry(indirect, indirect + 2, PeImageBuilder::kTable | 1);
  stack.words = {{kSp + 8, 0xc}, {kSp + 16, 0x6}, {kSp + 32, 0x3}, {kSp + 40, 0xabc}};
  ASSERT_TRUE(run(fragment + 2));
  expect(0xabc, kSp + 48, Position::kBody);
  EXPECT_EQ(reg(kRsi), 6U);
  EXPECT_EQ(saved.integer[kRsi], kSp + 16);
  EXPECT_EQ(reg(kR12), 0xcU);
  EXPECT_EQ(result.handler, 0x77U);  // the parent's
  ASSERT_TRUE(run(fragment));
  EXPECT_EQ(saved.integer[kRsi], 0U);
  EXPECT_EQ(saved.integer[kR12], kSp + 8);
  ASSERT_TRUE(run(indirect));
  expect(0xabc, kSp + 48, Position::kBody);
}

TEST_F(WinX64Exec, MachineFrames) {
  const auto code = builder.text({0x90, 0x90});
  UnwindInfoBytes bytes;
  bytes.slots = {slot(0, kAllocSmall, 0), slot(0, kMachine, 1)};
  builder.entry(code, code + 2, info(bytes));
  stack.words = {{kSp + 16, 0xabc}, {kSp + 40, 0x9000}};
  ASSERT_TRUE(run(code));
  expect(0xabc, 0x9000, Position::kBody);
  EXPECT_TRUE(result.machine_frame);
  EXPECT_FALSE(result.caller.pc().is_return_address());
}

TEST_F(WinX64Exec, EpiloguesOfVersion2) {
  // ...; add rsp, 8; pop rbx; pop r12; ret
  const auto code = builder.text({0x90, 0x48, 0x83, 0xc4, 8, 0x5b, 0x41, 0x5c, 0xc3});
  UnwindInfoBytes bytes;
  bytes.version = 2;
  bytes.slots = {slot(4, kEpilog, 1), slot(0, kEpilog, 0), slot(0, kAllocSmall, 0), slot(0, kPush, kRbx),
                 slot(0, kPush, kR12)};
  builder.entry(code, builder.next_text(), info(bytes));
  stack.words = {{kSp, 1}, {kSp + 8, 2}, {kSp + 16, 3}, {kSp + 24, 4}};
  ASSERT_TRUE(run(code + 1));  // before the epilogue as version 2 describes it
  expect(4, kSp + 32, Position::kBody);
  ASSERT_TRUE(run(code + 5));
  expect(3, kSp + 24, Position::kEpilogue);
  EXPECT_EQ(reg(kRbx), 1U);
  EXPECT_EQ(reg(kR12), 2U);
  ASSERT_TRUE(run(code + 6));
  expect(2, kSp + 16, Position::kEpilogue);
  ASSERT_TRUE(run(code + 8));
  expect(1, kSp + 8, Position::kEpilogue);
}

// pop r12; pop rsi; ret: the first takes two bytes.
TEST_F(WinX64Exec, PopsOfVersion2HaveTheirLengths) {
  const auto code = builder.text({0x90, 0x41, 0x5c, 0x5e, 0xc3});
  UnwindInfoBytes bytes;
  bytes.version = 2;
  bytes.slots = {slot(4, kEpilog, 1), slot(0, kEpilog, 0), slot(0, kPush, kR12), slot(0, kPush, kRsi)};
  builder.entry(code, builder.next_text(), info(bytes));
  stack.words = {{kSp, 1}, {kSp + 8, 2}, {kSp + 16, 3}};
  ASSERT_TRUE(run(code + 3));
  expect(2, kSp + 16, Position::kEpilogue);
  EXPECT_EQ(reg(kRsi), 1U);
  ASSERT_TRUE(run(code + 4));
  expect(1, kSp + 8, Position::kEpilogue);
}

TEST_F(WinX64Exec, ReturnAddressBehindTheFunction) {
  // call; the next function begins with ret: that is not this one's epilogue
  const auto code = builder.text({0xe8, 0, 0, 0, 0, 0xc3});
  UnwindInfoBytes bytes;
  bytes.slots = {slot(0, kAllocSmall, 4)};
  builder.entry(code, code + 5, info(bytes));
  stack.words = {{kSp, 1}, {kSp + 40, 0xabc}};
  ASSERT_TRUE(run(code + 5, true));
  expect(0xabc, kSp + 48, Position::kBody);
  ASSERT_TRUE(run(code + 5));  // an instruction there is a leaf's
  expect(1, kSp + 8, Position::kLeaf);
}

// call; nop; ret, and call; pop rbx; ret behind a call that does not return. The return address of the call is in no
// epilogue. In the first function, nothing before the ret is.
TEST_F(WinX64Exec, ReturnAddressesAreInNoEpilogue) {
  UnwindInfoBytes bytes;
  bytes.slots = {slot(0, kAllocSmall, 4)};
  const auto at = info(bytes);
  builder.text({0xcc, 0xcc, 0xcc, 0xcc});
  const auto padded = builder.text({0xe8, 0, 0, 0, 0, 0x90, 0xc3});
  builder.entry(padded, padded + 7, at);
  const auto indirect = builder.text({0x90, 0x90, 0x90, 0xff, 0xd0, 0x90, 0xc3});
  builder.entry(indirect, indirect + 7, at);
  const auto pops = builder.text({0xe8, 0, 0, 0, 0, 0x5b, 0xc3});
  builder.entry(pops, pops + 7, at);
  const auto frees = builder.text({0xe8, 0x48, 0x83, 0xc4, 0x28, 0x90, 0xc3});
  builder.entry(frees, frees + 7, at);
  stack.words = {{kSp, 1}, {kSp + 8, 2}, {kSp + 40, 0xabc}};
  for (const auto code : {padded, indirect}) {
    for (const bool is_return : {true, false}) {
      ASSERT_TRUE(run(code + 5, is_return));
      expect(0xabc, kSp + 48, Position::kBody);
    }
    ASSERT_TRUE(run(code + 6));
    expect(1, kSp + 8, Position::kEpilogue);
  }
  ASSERT_TRUE(run(pops + 5, true));
  expect(0xabc, kSp + 48, Position::kBody);
  ASSERT_TRUE(run(pops + 5));
  expect(2, kSp + 16, Position::kEpilogue);
  ASSERT_TRUE(run(frees + 5));  // what frees the frame is no call, whatever precedes it
  expect(1, kSp + 8, Position::kEpilogue);
}

TEST_F(WinX64Exec, HostileInformation) {
  const auto code = builder.text({0x90, 0x90, 0x90, 0x90, 0x90, 0x90});
  UnwindInfoBytes loop;
  loop.flags = winx64::kChaininfo;
  const auto at = builder.next_data();
  info(loop, Bytes().u32(code).u32(code + 1).u32(at));  // to itself
  builder.entry(code, code + 1, at);
  builder.entry(code + 1, code + 2, 0x7fff'0000);
  UnwindInfoBytes spare;
  spare.slots = {slot(0, 7, 0), 0, 0};
  builder.entry(code + 2, code + 3, info(spare));
  UnwindInfoBytes unknown;
  unknown.version = 4;
  builder.entry(code + 3, code + 4, info(unknown));
  builder.entry(code + 4, code + 5, 0x7fff'0001);  // indirect, to nowhere
  stack.words = {{kSp, 1}};
  EXPECT_EQ(run(code).error().code, ErrorCode::kLimit);
  EXPECT_EQ(run(code + 1).error().where, 0x7fff'0000U);
  EXPECT_EQ(run(code + 2).error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(run(code + 3).error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(run(code + 4).error().code, ErrorCode::kOutOfRange);
  stack.words.clear();
  EXPECT_EQ(run(code + 5).error().where, kSp);  // a leaf without a stack
}

}  // namespace
}  // namespace windlass
