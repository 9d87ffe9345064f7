// Frames in PE images: their rows, what no row can say, leaves, and ELF functions above and below them.
#include <gtest/gtest.h>

#include "support/dump_file.h"
#include "support/pe_image_builder.h"
#include "support/walk_target.h"

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
    // Pushes behind SET_FPREG, which no row can say: push rbp; mov rbp, rsp; push rbx; call; nop
    UnwindInfoBytes late;
    late.prolog_size = 5;
    late.frame_register = 5;
    late.slots = {UnwindInfoBytes::slot(5, 0, 3), UnwindInfoBytes::slot(4, 3, 0), UnwindInfoBytes::slot(1, 0, 5)};
    late_ = add({0x55, 0x48, 0x89, 0xe5, 0x53, 0xe8, 0, 0, 0, 0, 0x90}, late);
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
  push(0x4006);
  const std::uint64_t frame = sp_;
  const std::uint64_t rbx_at = push(0x4003);
  push(kPe + late_ + 10);
  Registers start = registers(kPe + leaf_);
  start.set(kRbp, frame);
  StackWalker walker(target_.space(), start);
  ASSERT_TRUE(walker.step()) << walker.error().text();
  ASSERT_TRUE(walker.step()) << walker.error().text();
  EXPECT_EQ(walker.frame().pc(), CodeAddress::return_address(kPe + machine_ + 9));
  EXPECT_EQ(walker.frame().origin, FrameOrigin::kPdata);
  EXPECT_EQ(walker.frame().registers.get(kRbp), 0x4006u);
  EXPECT_EQ(walker.frame().registers.get(kRbx), 0x4003u);
  EXPECT_EQ(walker.frame().saved.at(walker.frame().registers, kRbx), rbx_at);
  ASSERT_TRUE(walker.step()) << walker.error().text();
  EXPECT_EQ(walker.frame().pc(), CodeAddress::instruction(kPe + saving_ + 6));
  EXPECT_TRUE(walker.frame().signal_frame);
  EXPECT_EQ(walker.frame().sp(), interrupted);
  EXPECT_FALSE(walker.step());
  EXPECT_EQ(walker.end_reason(), WalkEnd::kComplete) << walker.error().text();
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

INSTANTIATE_TEST_SUITE_P(FileAndMemory, PeFrames, ::testing::Bool());

}  // namespace
}  // namespace windlass
