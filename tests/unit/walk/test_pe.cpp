// Frames in PE images: their rows, what no row can say, leaves, and ELF functions above and below them.
#include <gtest/gtest.h>

#include <cstring>
#include <utility>

#include "base/registers.h"
#include "lookup/sources/ec_frames.h"
#include "support/dump_file.h"
#include "support/minidump_writer.h"
#include "support/pe_image_builder.h"
#include "support/walk_target.h"
#include "walk/target/minidump_context.h"
#include "windlass/target.h"
#include "windlass_wine_layout.h"

namespace windlass {
namespace {

using test::PeImageBuilder;
using test::UnwindInfoBytes;
using test::WalkTarget;

constexpr std::uint64_t kPe = 0x6fff'ffc0'0000, kSp = 0x7fff'0000'1000;
constexpr RegisterNumber kRbx = 3, kRsi = 4, kRdi = 5, kRbp = 6, kR12 = 12;

std::vector<std::byte> bytes_of(const std::vector<std::uint8_t>& from) {
  const auto* data = reinterpret_cast<const std::byte*>(from.data());
  return {data, data + from.size()};
}

class PeFrames : public ::testing::TestWithParam<bool> {  // from memory, or from a file
 protected:
  PeFrames() {
    // push rbx; push rsi; sub rsp, 32; call; add rsp, 32; pop rsi; pop rbx; ret
    UnwindInfoBytes info;
    info.prolog_size = 6;
    info.slots = {UnwindInfoBytes::slot(6, 2, 3), UnwindInfoBytes::slot(2, 0, 6), UnwindInfoBytes::slot(1, 0, 3)};
    saving_ =
        add({0x53, 0x56, 0x48, 0x83, 0xec, 0x20, 0xe8, 0, 0, 0, 0, 0x48, 0x83, 0xc4, 0x20, 0x5e, 0x5b, 0xc3}, info);
    // What the system jumps to, on top of a machine frame: sub rsp, 32; call; nop
    UnwindInfoBytes machine;
    machine.prolog_size = 4;
    machine.slots = {UnwindInfoBytes::slot(4, 2, 3), UnwindInfoBytes::slot(0, 10, 0)};
    machine_ = add({0x48, 0x83, 0xec, 0x20, 0xe8, 0, 0, 0, 0, 0x90}, machine);
    // A frame register that is used after it was restored, which no row can express: push rbx; mov rbp, rsp; push rbp;
    // call; nop
    UnwindInfoBytes late;
    late.prolog_size = 5;
    late.frame_register = 5;
    late.slots = {UnwindInfoBytes::slot(5, 0, 5), UnwindInfoBytes::slot(4, 3, 0), UnwindInfoBytes::slot(1, 0, 3)};
    late_ = add({0x53, 0x48, 0x89, 0xe5, 0x55, 0xe8, 0, 0, 0, 0, 0x90}, late);
    leaf_ = builder_.text({0x90, 0x90, 0xc3});            // no entry
    target_.function(0, 0x40, {0x0e, 0x20, 0x83, 0x04});  // CFA = rsp + 32, rbx at CFA - 32
    std::vector<std::uint8_t> code(0x40, 0x90);
    code[0x0b] = 0xe8;  // a call, behind which 0x10 is
    target_.start(code);
    const ModuleInfo info_of_pe{kPe, kPe + PeImageBuilder::kImageSize, kPe, "x.dll", {}};
    if (GetParam()) {
      EXPECT_TRUE(target_.space().add_module(info_of_pe, bytes_of(builder_.build(true))));
    } else {
      file_.emplace(bytes_of(builder_.build()));
      ModuleInfo from_file = info_of_pe;
      from_file.file = file_->path();
      EXPECT_TRUE(target_.space().add_module(from_file));
    }
    push(0x1111'1111);
  }

  std::uint32_t add(std::initializer_list<int> code, const UnwindInfoBytes& info) {
    const std::uint32_t begin = builder_.text(code);
    builder_.entry(begin, builder_.next_text(), builder_.data(info.bytes()));
    return begin;
  }

  // The stack is made from the outermost word inwards.
  std::uint64_t push(std::uint64_t value) {
    sp_ -= 8;
    target_.memory().set(sp_, value);
    return sp_;
  }
  Registers registers(std::uint64_t pc) const {
    Registers all = target_.at(CodeAddress::instruction(pc), sp_);
    for (const RegisterNumber reg : {kRbx, kRsi, kRdi, kRbp, kR12}) all.set(reg, 0x1000u + reg);
    return all;
  }

  WalkTarget target_;
  PeImageBuilder builder_;
  std::optional<test::DumpFile> file_;
  std::uint32_t saving_ = 0, machine_ = 0, late_ = 0, leaf_ = 0;
  std::uint64_t sp_ = kSp;
};

TEST_P(PeFrames, AreFoundByTheirRowsAndKeepWindowsRegisters) {
  push(0);  // the thread's start has no caller
  const std::uint64_t rbx_at = push(0x2003), rsi_at = push(0x2004);
  for (int i = 0; i < 4; ++i) push(0);
  push(kPe + saving_ + 11);
  StackWalker walker(target_.space(), registers(kPe + leaf_ + 1));
  for (int again = 0; again < 2; ++again) {  // the second time by kept rows
    ASSERT_TRUE(walker.step()) << walker.error().text();
    EXPECT_EQ(walker.frame().origin, FrameOrigin::kLeaf);
    EXPECT_EQ(walker.frame().pc().value(), kPe + saving_ + 11);
    EXPECT_EQ(walker.frame().registers.get(kRsi), 0x1004u);
    EXPECT_EQ(walker.frame().registers.get(kRdi), 0x1005u);
    EXPECT_EQ(walker.frame().module->path, "x.dll");
    EXPECT_FALSE(walker.step());
    EXPECT_EQ(walker.end_reason(), WalkEnd::kComplete) << walker.error().text();
    walker.restart(registers(kPe + leaf_ + 1));
  }
  // At every instruction of the function the caller is the same.
  target_.memory().set(kSp - 16, kPe + saving_ + 11);
  for (const auto& [offset, sp] : {std::pair{0u, kSp - 16},
                                   {1u, rbx_at},
                                   {2u, rsi_at},
                                   {6u, rsi_at - 32},
                                   {11u, rsi_at - 32},
                                   {15u, rsi_at},
                                   {16u, rbx_at},
                                   {17u, kSp - 16}}) {
    Registers at = registers(kPe + saving_ + offset);
    at.set_sp(sp);
    walker.restart(at);
    ASSERT_TRUE(walker.step()) << offset << walker.error().text();
    EXPECT_EQ(walker.frame().origin, FrameOrigin::kPdata);
    EXPECT_EQ(walker.frame().sp(), kSp - 8) << offset;
    EXPECT_EQ(walker.frame().pc(), CodeAddress::return_address(kPe + saving_ + 11)) << offset;
    EXPECT_EQ(walker.frame().registers.get(kRsi), sp <= rsi_at ? 0x2004u : 0x1004u) << offset;
    EXPECT_EQ(walker.frame().registers.get(kRbx), sp <= rbx_at ? 0x2003u : 0x1003u) << offset;
    EXPECT_EQ(walker.frame().saved.at(walker.frame().registers, kRsi), sp <= rsi_at ? rsi_at : 0) << offset;
    EXPECT_EQ(walker.frame().registers.get(kRdi), 0x1005u);
  }
}

// System V functions need not give rsi and rdi back; those that Windows functions saved are known again above them.
TEST_P(PeFrames, ElfFramesBelowLoseWhatOnlyWindowsPreserves) {
  push(0);
  push(0x2003), push(0x2004);
  for (int i = 0; i < 4; ++i) push(0);
  push(kPe + saving_ + 11);
  push(0), push(0), push(0x3003);
  push(WalkTarget::pc(0x10));
  for (int again = 0; again < 2; ++again) {
    StackWalker walker(target_.space(), registers(kPe + leaf_));
    ASSERT_TRUE(walker.step()) << walker.error().text();
    EXPECT_EQ(walker.frame().pc().value(), WalkTarget::pc(0x10));
    EXPECT_EQ(walker.frame().registers.get(kRsi), 0x1004u);
    ASSERT_TRUE(walker.step()) << walker.error().text();
    EXPECT_EQ(walker.frame().origin, FrameOrigin::kCfi);
    EXPECT_EQ(walker.frame().pc().value(), kPe + saving_ + 11);
    EXPECT_FALSE(walker.frame().registers.has(kRsi));
    EXPECT_FALSE(walker.frame().registers.has(kRdi));
    EXPECT_EQ(walker.frame().registers.get(kRbx), 0x3003u);
    EXPECT_EQ(walker.frame().registers.get(kR12), 0x100cu);
    EXPECT_FALSE(walker.step());
    EXPECT_EQ(walker.end_reason(), WalkEnd::kComplete) << walker.error().text();
  }
}

TEST_P(PeFrames, WhatNoRowSaysIsExecuted) {
  push(0);
  push(0x2003), push(0x2004);
  for (int i = 0; i < 4; ++i) push(0);
  const std::uint64_t interrupted = sp_;
  push(0x2b), push(interrupted), push(0x202), push(0x33), push(kPe + saving_ + 6);  // ss rsp rflags cs rip
  for (int i = 0; i < 4; ++i) push(0);
  push(kPe + machine_ + 9);
  const std::uint64_t rbx_at = push(0x4003);
  push(rbx_at);
  push(kPe + late_ + 10);
  StackWalker walker(target_.space(), registers(kPe + leaf_));
  ASSERT_TRUE(walker.step()) << walker.error().text();
  ASSERT_TRUE(walker.step()) << walker.error().text();
  EXPECT_EQ(walker.frame().pc(), CodeAddress::return_address(kPe + machine_ + 9));
  EXPECT_EQ(walker.frame().origin, FrameOrigin::kPdata);
  EXPECT_EQ(walker.frame().registers.get(kRbp), rbx_at);
  EXPECT_EQ(walker.frame().registers.get(kRbx), 0x4003u);
  EXPECT_EQ(walker.frame().saved.at(walker.frame().registers, kRbx), rbx_at);
  ASSERT_TRUE(walker.step()) << walker.error().text();
  EXPECT_EQ(walker.frame().pc(), CodeAddress::instruction(kPe + saving_ + 6));
  EXPECT_TRUE(walker.frame().signal_frame);
  EXPECT_EQ(walker.frame().sp(), interrupted);
  EXPECT_FALSE(walker.step());
  EXPECT_EQ(walker.end_reason(), WalkEnd::kComplete) << walker.error().text();
}

TEST_P(PeFrames, AReturnAddressOf0IsTheEndOfWhatIsExecuted) {
  push(0);
  push(push(0x4003));
  push(kPe + late_ + 10);
  StackWalker walker(target_.space(), registers(kPe + leaf_),
                     WalkOptions{.synthesize = false});  // the code says it, too
  ASSERT_TRUE(walker.step()) << walker.error().text();
  EXPECT_FALSE(walker.step());
  EXPECT_EQ(walker.end_reason(), WalkEnd::kComplete) << walker.error().text();
}

// The machine frame of a fault has it, below what called the pointer.
TEST_P(PeFrames, AnInterruptedPcOf0IsACallOfANullPointer) {
  push(0);
  push(kPe + saving_ + 11);
  const std::uint64_t interrupted = sp_;
  push(0x2b), push(interrupted), push(0x202), push(0x33), push(0);  // ss rsp rflags cs rip
  for (int i = 0; i < 4; ++i) push(0);
  push(kPe + machine_ + 9);
  StackWalker walker(target_.space(), registers(kPe + leaf_));
  ASSERT_TRUE(walker.step()) << walker.error().text();
  ASSERT_TRUE(walker.step()) << walker.error().text();
  EXPECT_EQ(walker.frame().pc(), CodeAddress::instruction(0));
  ASSERT_TRUE(walker.step()) << walker.error().text();
  EXPECT_EQ(walker.frame().pc(), CodeAddress::return_address(kPe + saving_ + 11));
  EXPECT_EQ(walker.frame().sp(), interrupted + 8);
}

// The System V mark of the outermost frame means nothing in Windows functions.
TEST_P(PeFrames, AZeroFramePointerIsNoEnd) {
  Registers start = registers(kPe + leaf_ + 2);
  start.set_pc(CodeAddress::return_address(kPe + PeImageBuilder::kData + 8));  // no code, and no entry
  start.set(kRbp, 0);
  StackWalker walker(target_.space(), start);
  EXPECT_FALSE(walker.step());
  EXPECT_NE(walker.end_reason(), WalkEnd::kComplete);
}

// A callback of Wine 8's Unix side, called back in the innermost of two system calls: bpf/windlass_wine_layout.h.
class WineCallback : public PeFrames {
 protected:
  static constexpr std::uint64_t kTeb = 0x7ffe'0000, kUnix = 0x7ffd'0000'2000, kLength = 20;

  WineCallback() {
    const std::uint64_t rsp = sp_;  // in the system call that called back
    arguments_ = (rsp - kLength) & ~std::uint64_t{15};
    for (const auto& [offset, value] : std::initializer_list<std::pair<int, std::uint64_t>>{
             {-8, 0}, {-16, kLength}, {-24, arguments_}, {-32, 7}, {-40, WL_WINE_MARK}, {-48, 0x2003}, {-56, 0x2004}})
      target_.memory().set(arguments_ + static_cast<std::uint64_t>(std::int64_t{offset}), value);
    sp_ = arguments_ - 88;
    // Of callbacks one in another: the frame of the moment, which has been used for a system call since; that of the
    // callback before; that of the first system call.
    frame_ = callback_frame(kUnix);
    outer_ = callback_frame(kUnix + 0x2000);
    first_ = kUnix + 0x4000;
    target_.memory().set(kTeb + WL_WINE_TEB_FRAME, frame_);
    target_.memory().set(frame_ + WL_WINE_FRAME_BELOW, outer_);
    target_.memory().set(outer_ + WL_WINE_FRAME_RSP, rsp);
    target_.memory().set(outer_ + WL_WINE_FRAME_BELOW, first_);
    target_.memory().set(first_ + WL_WINE_FRAME_RSP, rsp + 0x1000);
    target_.memory().set(first_ + WL_WINE_FRAME_BELOW, 0);
  }
  std::uint64_t callback_frame(std::uint64_t rbp) {
    const std::uint64_t frame = (rbp - WL_WINE_FRAME_ROOM) & ~std::uint64_t{63};
    target_.memory().set(frame + WL_WINE_FRAME_SAVED, rbp);
    for (unsigned i = 0; i < 8; ++i) target_.memory().set(rbp - 8 * i, rbp + i);
    target_.memory().set(rbp + 8, WalkTarget::pc(0x10));
    return frame;
  }
  [[nodiscard]] Registers start() const {
    Registers registers = this->registers(kPe + saving_ + 6);
    registers.set(x86_64::kGsBase, kTeb);
    return registers;
  }
  [[nodiscard]] std::string end_with(std::uint64_t address, std::uint64_t value) {
    const std::uint64_t was = std::exchange(target_.memory().words.at(address), value);
    StackWalker walker(target_.space(), start());
    const bool stepped = walker.step();
    target_.memory().set(address, was);
    return stepped ? "a caller" : std::string(end_name(walker.end_reason()));
  }

  std::uint64_t arguments_ = 0, frame_ = 0, outer_ = 0, first_ = 0;
};

TEST_P(WineCallback, LeadsToTheUnixSide) {
  for (const bool outer : {false, true}) {
    std::uint64_t rbp = kUnix;
    if (outer) {  // the callback of before is what is walked: found behind the one of the moment
      rbp += 0x2000;
      target_.memory().set(outer_ + WL_WINE_FRAME_RSP, arguments_ - 0x1000);
      target_.memory().set(first_ + WL_WINE_FRAME_RSP, arguments_ + kLength);
    }
    StackWalker walker(target_.space(), start());
    ASSERT_TRUE(walker.step()) << walker.error().text();
    const Frame& frame = walker.frame();
    EXPECT_EQ(frame.pc(), CodeAddress::return_address(WalkTarget::pc(0x10)));
    EXPECT_EQ(frame.sp(), rbp + 16);
    EXPECT_EQ(frame.certainty, FrameCertainty::kDescribed);
    unsigned place = 0;
    for (const RegisterNumber reg :
         {kRbp, kRbx, kRsi, kRdi, RegisterNumber{12}, RegisterNumber{13}, RegisterNumber{14}, RegisterNumber{15}}) {
      EXPECT_EQ(frame.registers.get(reg), rbp + place) << reg;
      EXPECT_EQ(frame.saved.at(frame.registers, reg), rbp - 8 * place) << reg;
      ++place;
    }
    EXPECT_EQ(frame.saved.at(frame.registers, x86_64::kReturnAddress), rbp + 8);
    EXPECT_FALSE(frame.registers.has(x86_64::kRax));
  }
}

// Whatever is not as Wine leaves it ends the walk at the mark.
TEST_P(WineCallback, IsNotGuessed) {
  EXPECT_EQ(end_with(arguments_ - 8, 1), "a caller");  // nothing is said of this word
  EXPECT_EQ(end_with(arguments_ - 24, arguments_ + 16), "no module");
  EXPECT_EQ(end_with(arguments_ - 16, kLength + 16), "no module");
  EXPECT_EQ(end_with(kTeb + WL_WINE_TEB_FRAME, 0), "no module");
  EXPECT_EQ(end_with(kTeb + WL_WINE_TEB_FRAME, outer_), "no module");  // the callback is returning
  EXPECT_EQ(end_with(frame_ + WL_WINE_FRAME_BELOW, 0), "no module");
  EXPECT_EQ(end_with(frame_ + WL_WINE_FRAME_BELOW, frame_), "no module");  // a cycle
  EXPECT_EQ(end_with(outer_ + WL_WINE_FRAME_RSP, arguments_ - 16), "no module");
  EXPECT_EQ(end_with(frame_ + WL_WINE_FRAME_SAVED, kUnix + 64), "no module");
  EXPECT_EQ(end_with(kUnix + 8, 0x1234), "no module");
  Registers without = start();
  without.forget(x86_64::kGsBase);
  StackWalker walker(target_.space(), without);
  EXPECT_FALSE(walker.step());
  EXPECT_EQ(walker.end_reason(), WalkEnd::kNoModule);
}

// An ARM64EC image, which calls itself x64: [0x1000, 0x1010) is x64 code, then comes ARM64EC code, then nothing known.
class HybridFrames : public ::testing::Test {
 protected:
  static constexpr std::uint64_t kX64 = kPe + PeImageBuilder::kText, kArm = kX64 + 0x10, kUnknown = kX64 + 0x30;

  HybridFrames() {
    UnwindInfoBytes info;
    info.prolog_size = 1;
    info.slots = {UnwindInfoBytes::slot(1, 0, 3)};
    const std::uint32_t begin = builder_.text({0x53, 0xe8, 0, 0, 0, 0, 0x5b, 0xc3});  // push rbx; call; pop rbx; ret
    builder_.entry(begin, builder_.next_text(), builder_.data(info.bytes()));
    for (int i = 0; i < 8; ++i) builder_.text({0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0xc3, 0x90});
    builder_.image_base = kPe;
  }
  void add(bool in_memory = true) {
    const ModuleInfo info{kPe, kPe + PeImageBuilder::kImageSize, kPe, "x.dll", {}};
    ASSERT_TRUE(target_.space().add_module(info, bytes_of(builder_.build(in_memory))));
  }
  [[nodiscard]] Registers at(std::uint64_t pc) const {
    Registers all = target_.at(CodeAddress::instruction(pc), kSp);
    for (const RegisterNumber reg : {kRbx, kRsi, kRdi, kRbp, kR12}) all.set(reg, 0x1000u + reg);
    return all;
  }
  void ends_as_foreign(StackWalker& walker, const char* why) {
    EXPECT_FALSE(walker.step());
    EXPECT_EQ(walker.end_reason(), WalkEnd::kForeign);
    EXPECT_STREQ(walker.error().what, why);
    EXPECT_EQ(walker.error().where, walker.frame().pc().value());
  }

  WalkTarget target_;
  PeImageBuilder builder_;
};

TEST_F(HybridFrames, Arm64EcCodeIsNoLeafOfX64) {
  builder_.hybrid({0x1000 | 2, 0x10, 0x1010 | 1, 0x20, 0x2000, 0x10}, {}, kPe);
  add();
  target_.memory().set(kSp, kX64 + 6);  // as of a leaf
  for (const auto& [pc, why] :
       {std::pair{kArm, "ARM64EC code is not walked"},
        {kPe + 0x2004, "ARM64 code of an ARM64EC image is not walked"},
        {kUnknown, "code ranges of an ARM64EC image do not say which machine the code is for"}}) {
    StackWalker walker(target_.space(), at(pc));
    ends_as_foreign(walker, why);
  }
  StackWalker leaf(target_.space(), at(kX64 + 8));  // x64 code without an entry
  ASSERT_TRUE(leaf.step()) << leaf.error().text();
  EXPECT_EQ(leaf.frame().origin, FrameOrigin::kLeaf);
}

// The frame is shown; nothing beyond it is guessed.
TEST_F(HybridFrames, X64CodeThatArm64EcCodeCalled) {
  builder_.hybrid({0x1000 | 2, 0x10, 0x1010 | 1, 0x20}, {}, kPe);
  add();
  target_.memory().set(kSp, 0x2003);
  target_.memory().set(kSp + 8, kArm + 4);
  target_.memory().set(kSp + 16, kX64 + 6);
  StackWalker described(target_.space(), at(kX64 + 6));
  ASSERT_TRUE(described.step()) << described.error().text();
  EXPECT_EQ(described.frame().pc(), CodeAddress::return_address(kArm + 4));
  ends_as_foreign(described, "ARM64EC code is not walked");
  target_.memory().set(kSp, kArm + 4);
  StackWalker leaf(target_.space(), at(kX64 + 8));
  ASSERT_TRUE(leaf.step()) << leaf.error().text();
  EXPECT_EQ(leaf.frame().pc(), CodeAddress::return_address(kArm + 4));
  EXPECT_EQ(leaf.frame().origin, FrameOrigin::kLeaf);
  ends_as_foreign(leaf, "ARM64EC code is not walked");
}

// With the second table ARM64EC code is walked, under its names for the registers: stp x19, x20, [sp, #-32]!; stp x29,
// lr, [sp, #-16]!; mov x29, sp. So r12, r13 and rbp are saved.
class Arm64EcFrames : public HybridFrames {
 protected:
  static constexpr std::uint64_t kBody = kArm + 0x10;

  Arm64EcFrames() {
    test::Bytes record, table;
    record.u32(12U | 1U << 21 | 1U << 27).u32(0xe42481e1);
    table.u32(0x1010).u32(builder_.data(record));
    builder_.hybrid({0x1000 | 2, 0x10, 0x1010 | 1, 0x40}, {builder_.data(table), 8}, kPe);
    add();
  }
};

TEST_F(Arm64EcFrames, CallersOnBothSides) {
  Registers innermost = at(kBody);
  innermost.set(kRbp, kSp);
  const std::uint64_t stack[] = {0xf0, kX64 + 6, 0x12, 0x13,    0, 0,  // of ARM64EC code; its caller is x64 code
                                 0x33, kBody,    0xf1, kX64 + 6};      // of x64 code, which ARM64EC code called
  for (std::size_t i = 0; i < std::size(stack); ++i) target_.memory().set(kSp + i * 8, stack[i]);
  StackWalker walker(target_.space(), innermost);
  ASSERT_TRUE(walker.step()) << walker.error().text();
  EXPECT_EQ(walker.frame().pc(), CodeAddress::return_address(kX64 + 6));
  EXPECT_EQ(walker.frame().origin, FrameOrigin::kPdata);
  const Registers x64 = walker.frame().registers;
  EXPECT_EQ(x64.architecture(), Architecture::kX86_64);
  EXPECT_EQ(x64.sp(), kSp + 48);
  EXPECT_EQ(x64.get(kRbp), 0xf0U);
  EXPECT_EQ(x64.get(kR12), 0x12U);
  EXPECT_EQ(x64.get(13), 0x13U);
  EXPECT_EQ(x64.get(kRbx), innermost.get(kRbx));
  EXPECT_EQ(walker.frame().saved.at(x64, kR12), kSp + 16);
  ASSERT_TRUE(walker.step()) << walker.error().text();
  EXPECT_EQ(walker.frame().pc(), CodeAddress::return_address(kBody));
  EXPECT_EQ(walker.frame().registers.get(kRbx), 0x33U);
}

// A leaf has its return address in lr, which is mm0 of x64.
TEST_F(Arm64EcFrames, ALeafReturnsToLr) {
  Registers leaf = at(kArm);
  leaf.set(x86_64::kMm0, kX64 + 6);
  target_.memory().set(kSp, 0x33);
  target_.memory().set(kSp + 8, kBody);
  StackWalker walker(target_.space(), leaf);
  ASSERT_TRUE(walker.step()) << walker.error().text();
  EXPECT_EQ(walker.frame().pc(), CodeAddress::return_address(kX64 + 6));
  EXPECT_EQ(walker.frame().registers.sp(), kSp);
  EXPECT_FALSE(walker.frame().registers.has(x86_64::kMm0));
  ASSERT_TRUE(walker.step()) << walker.error().text();
  EXPECT_EQ(walker.frame().pc(), CodeAddress::return_address(kBody));
}

// Behind a call mm0 is the callee's.
TEST_F(Arm64EcFrames, LrIsOfTheInnermostFrame) {
  Registers caller = at(kArm + 4);
  caller.set_pc(CodeAddress::return_address(kArm + 4));
  caller.set(x86_64::kMm0, kX64 + 6);
  StackWalker walker(target_.space(), caller);
  EXPECT_FALSE(walker.step());
  EXPECT_EQ(walker.end_reason(), WalkEnd::kLost);
}

TEST_F(Arm64EcFrames, AReturnAddressThatIsNotSaved) {
  StackWalker walker(target_.space(), at(kArm));
  EXPECT_FALSE(walker.step());
  EXPECT_EQ(walker.end_reason(), WalkEnd::kLost);
  EXPECT_STREQ(walker.error().what, "ARM64EC code has not saved a register that x64 has no name for");
}

// The fields of ARM64EC_NT_CONTEXT (winnt.h) by offset. Microsoft's debugger symbols of Windows 11 24H2 have the same.
// The layout is that of x64's CONTEXT, so a field's offset says which register of x64 it is.
TEST(Arm64EcRegisters, AreThoseOfTheContext) {
  constexpr RegisterNumber kFp = 29, kArmSp = 31, kPc = 32;
  constexpr RegisterNumber kFields[] = {8, 0, 1, 27, kArmSp, kFp, 25, 26, 2, 3, 4, 5, 19, 20, 21, 22, kPc, 30};
  constexpr std::size_t kX8At = 0x78, kLrAt = 0x120;  // the first, and the last; all are 8 bytes
  for (std::size_t i = 0; i < std::size(kFields); ++i) {
    std::vector<std::byte> context(0x4d0);
    const std::uint32_t flags = 0x0010'000b;
    const std::uint64_t value = 0x1234;
    const std::size_t at = kFields[i] == 30 ? kLrAt : kX8At + 8 * i;
    std::memcpy(context.data() + 0x30, &flags, sizeof flags);
    std::memcpy(context.data() + at, &value, sizeof value);
    const auto registers = walk::context_registers(Architecture::kX86_64, ByteView(context.data(), context.size()));
    ASSERT_TRUE(registers) << registers.error().text();
    unsigned found = 0;
    registers->for_each([&](RegisterNumber x64, std::uint64_t has) {
      if (has != value) return;
      ++found;
      EXPECT_EQ(sources::ec_register(x64), kFields[i]) << "at " << std::hex << at;
    });
    EXPECT_EQ(found, 1U) << std::hex << at;
  }
}

// Metadata that cannot be read says nothing: entries are believed, and all else is no leaf.
TEST_F(HybridFrames, RangesThatAreNotFound) {
  builder_.hybrid({0x1000 | 2, 0x40}, {}, kPe + 0x10'0000);
  add();
  target_.memory().set(kSp, 0x2003);
  target_.memory().set(kSp + 8, kX64 + 6);
  StackWalker described(target_.space(), at(kX64 + 6));
  EXPECT_TRUE(described.step()) << described.error().text();
  StackWalker walker(target_.space(), at(kX64 + 8));
  ends_as_foreign(walker, "code ranges of an ARM64EC image do not say which machine the code is for");
}

// The image is in the dump's memory, where the loader has changed the address of the metadata.
TEST(HybridDump, Arm64EcCodeEndsAWalk) {
  constexpr std::uint64_t kAt = 0x7ff6'1234'0000, kStack = 0x7000'0000;
  PeImageBuilder image;
  image.image_base = kAt;
  image.text({0x53, 0x90, 0x5b, 0xc3});  // x64, then ARM64EC
  image.entry(0x1000, 0x1004, image.data(UnwindInfoBytes{}.bytes()));
  image.hybrid({0x1000 | 2, 4, 0x1004 | 1, 0x20}, {}, kAt);
  const auto bytes = image.build(true);
  test::MinidumpWriter writer(Architecture::kX86_64);
  writer.windows = true;
  writer.modules = {{kAt, PeImageBuilder::kImageSize, "C:\\ec.dll"}};
  writer.memory = {{kAt, bytes_of(bytes)}};
  Registers registers(Architecture::kX86_64);
  registers.set_pc(CodeAddress::instruction(kAt + 0x1008));
  registers.set_sp(kStack);
  std::vector<std::byte> stack(0x100);
  const std::uint64_t caller = kAt + 0x1002;  // what a leaf of x64 would return to
  std::memcpy(stack.data(), &caller, sizeof caller);
  writer.threads = {{7, registers, "main", kStack, std::move(stack)}};
  const test::DumpFile file(writer.write());
  const auto target = open_minidump(file.path());
  ASSERT_TRUE(target) << target.error().text();
  StackWalker walker(target->space, target->threads.at(0).registers);
  EXPECT_FALSE(walker.step());
  EXPECT_EQ(walker.end_reason(), WalkEnd::kForeign);
  EXPECT_STREQ(walker.error().what, "ARM64EC code is not walked");
}

INSTANTIATE_TEST_SUITE_P(FileAndMemory, WineCallback, ::testing::Bool());
INSTANTIATE_TEST_SUITE_P(FileAndMemory, PeFrames, ::testing::Bool());

}  // namespace
}  // namespace windlass
