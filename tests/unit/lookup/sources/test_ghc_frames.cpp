// The frame of Haskell's code in a Windows program: found by the code of StgReturn, left from any instruction, and
// never taken for anything that no call of StgRun made.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "base/registers.h"
#include "lookup/sources/unwind_source.h"
#include "support/pe_image_builder.h"

namespace windlass {
namespace {

using test::PeImageBuilder;

constexpr std::uint64_t kBias = 0x7ff6'0000'0000, kSp = 0x7fff'0000'1000;
constexpr std::uint32_t kReserved = 0x2000, kFrame = 0xf0;

class GhcImage : public ::testing::Test, public Memory {
 protected:
  GhcImage() {
    // What has an entry: the scheduler, which calls StgRun. The call is completed below.
    const std::uint32_t scheduler = builder_.text({0x53, 0xe8, 0x1a, 0, 0, 0, 0x5b, 0xc3});
    behind_call_ = scheduler + 6;
    builder_.entry(scheduler, builder_.next_text(), builder_.data(test::UnwindInfoBytes{}.bytes()));
    leaf_ = builder_.text({0x90, 0xc3});
    while (builder_.next_text() < scheduler + 0x20) builder_.text({0x90});
    stg_run_ = builder_.text({0x48, 0x81, 0xec, 0xf0, 0, 0, 0, 0x48, 0x89, 0xe0, 0xff, 0xe0});  // jmp *%rax
    // mov rax, rbx; add rsp, 0x2000; mov rbx, [rsp]; rbp, r12 to r15, rdi, rsi; movaps; add rsp, 0xf0; ret
    stg_return_ =
        builder_.text({0x48, 0x89, 0xd8, 0x48, 0x81, 0xc4, 0,    0x20, 0,    0,    0x48, 0x8b, 0x1c, 0x24, 0x48, 0x8b,
                       0x6c, 0x24, 0x08, 0x4c, 0x8b, 0x64, 0x24, 0x10, 0x4c, 0x8b, 0x6c, 0x24, 0x18, 0x4c, 0x8b, 0x74,
                       0x24, 0x20, 0x4c, 0x8b, 0x7c, 0x24, 0x28, 0x48, 0x8b, 0x7c, 0x24, 0x30, 0x48, 0x8b, 0x74, 0x24,
                       0x38, 0x0f, 0x28, 0x74, 0x24, 0x48, 0x48, 0x81, 0xc4, 0xf0, 0,    0,    0,    0xc3});
    // mov rax, r13; sub rsp, 8; sub rsp, 32; call; add rsp, 40; test; jne; jmp *(%rbp)
    haskell_ = builder_.text({0x4c, 0x89, 0xe8, 0x48, 0x83, 0xec, 0x08, 0x48, 0x83, 0xec, 0x20, 0xe8, 0x10, 0x20,
                              0x30, 0x00, 0x48, 0x83, 0xc4, 0x28, 0x48, 0x85, 0xc0, 0x75, 0x02, 0xff, 0x65, 0x00});
    to_return_ = builder_.text({0x90, 0xeb, 0});  // a jump to StgReturn, completed below
    pushes_ = builder_.text({0x50, 0xff, 0x65, 0x00});
    import_ = builder_.text({0xff, 0x25, 0, 0, 0, 0});
    for (int i = 0; i < 0x2100; ++i) builder_.text({0xcc});  // so that entries are few
    file_ = builder_.build();
    file_[PeImageBuilder::kHeaders + to_return_ + 2 - PeImageBuilder::kText] =
        static_cast<std::uint8_t>(stg_return_ - (to_return_ + 3));
    open();
  }
  void open() {
    auto source = sources::open_pe_source(ByteView(std::span<const std::uint8_t>(file_)), image::PeLayout::kFile);
    ASSERT_TRUE(source) << source.error().text();
    source_ = std::move(*source);
  }
  bool read(std::uint64_t address, void* to, std::size_t size) const override {
    const auto found = words_.find(address);
    if (found == words_.end() || size != 8) return false;
    std::memcpy(to, &found->second, size);
    return true;
  }
  // The stack of the frame, of which rsp is `below` its place.
  void stack(std::uint32_t below, std::uint64_t return_address) {
    const std::uint64_t kept_at = kSp + below + kReserved;
    words_.clear();
    for (unsigned i = 0; i < 8; ++i) words_[kept_at + 8 * i] = 0x1000 + i;
    words_[kept_at + kFrame] = return_address;
  }
  Expected<sources::HandlerCall> unwind(CodeAddress pc) {
    Registers registers(Architecture::kX86_64);
    registers.set_pc(pc);
    registers.set_sp(kSp);
    return source_->unwind({*this, registers, kBias}, caller_, saved_);
  }
  static CodeAddress at(std::uint32_t rva) { return CodeAddress::instruction(kBias + rva); }

  PeImageBuilder builder_;
  std::vector<std::uint8_t> file_;
  std::unique_ptr<sources::UnwindSource> source_;
  std::map<std::uint64_t, std::uint64_t> words_;
  Registers caller_{Architecture::kX86_64};
  SavedLocations saved_;
  std::uint32_t behind_call_ = 0, leaf_ = 0, stg_run_ = 0, stg_return_ = 0, haskell_ = 0, to_return_ = 0, pushes_ = 0,
                import_ = 0;
};

TEST_F(GhcImage, IsLeftFromEveryInstruction) {
  struct Case {
    std::uint32_t rva, below;
  };
  for (const auto& [rva, below] : {Case{haskell_, 0},
                                   {haskell_ + 3, 0},
                                   {haskell_ + 7, 8},
                                   {haskell_ + 11, 40},
                                   {haskell_ + 20, 0},
                                   {haskell_ + 25, 0},
                                   {to_return_, 0}}) {
    SCOPED_TRACE(rva - haskell_);
    stack(below, kBias + behind_call_);
    FrameRow row;
    const auto found = source_->row_at(rva, row);
    ASSERT_FALSE(found);
    EXPECT_EQ(found.error().code, ErrorCode::kUnsupported);
    EXPECT_FALSE(source_->may_be_leaf(rva));
    const auto left = unwind(at(rva));
    ASSERT_TRUE(left) << left.error().text();
    EXPECT_EQ(caller_.pc(), CodeAddress::return_address(kBias + behind_call_));
    EXPECT_EQ(caller_.sp(), kSp + below + kReserved + kFrame + 8);
    unsigned i = 0;
    for (const unsigned number : {3U, 5U, 12U, 13U, 14U, 15U, 7U, 6U})
      EXPECT_EQ(caller_.get(x86_64::dwarf_number(number)), 0x1000 + i++) << number;
    EXPECT_EQ(saved_.at(caller_, x86_64::dwarf_number(12)), kSp + below + kReserved + 0x10);
  }
  // Behind the call of C, which is looked up at its last byte.
  stack(40, kBias + behind_call_);
  FrameRow row;
  EXPECT_EQ(source_->row_at(haskell_ + 15, row).error().code, ErrorCode::kUnsupported);
  EXPECT_TRUE(unwind(CodeAddress::return_address(kBias + haskell_ + 16)));
}

TEST_F(GhcImage, OtherCallersAreNotBelieved) {
  for (const std::uint64_t other : {kBias + behind_call_ + 1, kBias + haskell_ + 16, std::uint64_t{0x1234}, kBias}) {
    stack(0, other);
    const auto left = unwind(at(haskell_));
    ASSERT_FALSE(left);
    EXPECT_EQ(left.error().code, ErrorCode::kMalformed);
  }
  words_.clear();
  EXPECT_EQ(unwind(at(haskell_)).error().code, ErrorCode::kUnreadable);
}

TEST_F(GhcImage, OtherCodeIsNotHaskells) {
  FrameRow row;
  for (const std::uint32_t rva : {leaf_, leaf_ + 1, import_, stg_run_, stg_return_ + 3}) {
    EXPECT_TRUE(source_->may_be_leaf(rva)) << rva;
    EXPECT_EQ(source_->row_at(rva, row).error().code, ErrorCode::kNotFound) << rva;
  }
}

TEST_F(GhcImage, CodeThatPushesIsNotLeft) {
  stack(0, kBias + behind_call_);
  EXPECT_FALSE(unwind(at(pushes_)));
}

// What an instruction of Haskell's code does to rsp, by a computed jump behind it. Others are C's.
TEST_F(GhcImage, InstructionsOnTheWayToAJump) {
  using Code = std::vector<std::uint8_t>;
  const std::uint32_t rva = import_ + 0x20;  // among int3
  const auto is_left = [&](const Code& code, std::uint32_t below) {
    std::vector<std::uint8_t> whole = code;
    whole.insert(whole.end(), {0xff, 0x65, 0x00});  // jmp *(%rbp)
    std::copy(whole.begin(), whole.end(), file_.begin() + PeImageBuilder::kHeaders + rva - PeImageBuilder::kText);
    open();
    stack(below, kBias + behind_call_);
    return unwind(at(rva)).has_value();
  };
  struct Case {
    Code code;
    std::uint32_t below;
  };
  for (const auto& [code, below] : {Case{{}, 0},
                                    {{0x48, 0x83, 0xc4, 0x08}, 8},                           // add rsp, 8
                                    {{0x48, 0x81, 0xc4, 0x08, 0x01, 0, 0}, 0x108},           // add rsp, 264
                                    {{0x48, 0x81, 0xc4, 0x00, 0x10, 0, 0}, 0x1000},          // the most
                                    {{0x48, 0x83, 0xc4, 0x18, 0x48, 0x83, 0xec, 0x08}, 16},  // add 24; sub 8
                                    {{0x48, 0x83, 0xec, 0x08, 0x48, 0x83, 0xc4, 0x08}, 0},
                                    {{0x49, 0x83, 0xc4, 0x08}, 0},        // add r12, 8
                                    {{0x48, 0x83, 0xc0, 0x08}, 0},        // add rax, 8
                                    {{0x48, 0x83, 0x04, 0x24, 0x08}, 0},  // add [rsp], 8
                                    {{0x48, 0x83, 0xfc, 0x08}, 0},        // cmp rsp, 8
                                    {{0x49, 0x89, 0xc4}, 0},              // mov r12, rax
                                    {{0x4c, 0x89, 0xe0}, 0},              // mov rax, r12
                                    {{0x4c, 0x8b, 0x60, 0x08}, 0},        // mov r12, [rax + 8]
                                    {{0x4c, 0x8d, 0x60, 0x08}, 0},        // lea r12, [rax + 8]
                                    {{0x48, 0x8d, 0x44, 0x24, 0x08}, 0},  // lea rax, [rsp + 8]
                                    {{0xff, 0xd0}, 0},                    // call rax
                                    {{0xff, 0xc0}, 0},                    // inc eax
                                    {{0xeb, 0x00}, 0},                    // jmp to the next
                                    {{0xeb, 0x01, 0x50}, 0},              // jmp over a push
                                    {{0xe9, 0x01, 0, 0, 0, 0x50}, 0}})
    EXPECT_TRUE(is_left(code, below)) << ::testing::PrintToString(code);
  for (const Code& code : {Code{0x48, 0x83, 0xec, 0x08},          // sub rsp, 8: rsp was above its place
                           {0x48, 0x81, 0xc4, 0x08, 0x10, 0, 0},  // add rsp, 4104
                           {0x48, 0x83, 0xe4, 0xf0},              // and rsp, -16
                           {0x48, 0x89, 0xc4},                    // mov rsp, rax
                           {0x48, 0x89, 0xe0},                    // mov rax, rsp
                           {0x48, 0x8b, 0x60, 0x08},              // mov rsp, [rax + 8]
                           {0x48, 0x8d, 0x64, 0x24, 0x08},        // lea rsp, [rsp + 8]
                           {0x41, 0x54},                          // push r12
                           {0xff, 0x30},                          // push [rax]
                           {0x50},
                           {0x5f},
                           {0x68, 1, 0, 0, 0},
                           {0x6a, 1},
                           {0x8f, 0x00},
                           {0x9c},
                           {0x9d},
                           {0xc2, 8, 0},
                           {0xc3},
                           {0xf3, 0xc3},
                           {0xc9},
                           {0xcc},
                           {0xf4}})
    for (const std::uint32_t below : {0U, 8U, 0x1008U, 0U - 8})
      EXPECT_FALSE(is_left(code, below)) << ::testing::PrintToString(code);
  Code jumps;
  for (int i = 0; i < 16; ++i) jumps.insert(jumps.end(), {0xeb, 0x00});
  EXPECT_TRUE(is_left(jumps, 0));
  jumps.insert(jumps.end(), {0xeb, 0x00});
  EXPECT_FALSE(is_left(jumps, 0)) << "too many";
  // A call is looked up at its last byte; here this byte alone would be a return.
  const Code call{0xe8, 0, 0, 0, 0xc3};
  EXPECT_TRUE(is_left(call, 0));
  FrameRow row;
  EXPECT_EQ(source_->row_at(rva + 4, row).error().code, ErrorCode::kUnsupported);
}

// Without StgReturn as GHC has it, nothing is Haskell's code.
TEST_F(GhcImage, NeedsStgReturn) {
  const std::size_t place = PeImageBuilder::kHeaders + stg_return_ - PeImageBuilder::kText;
  for (const std::size_t at : {std::size_t{1}, std::size_t{12}, std::size_t{17}, std::size_t{54}, std::size_t{61}}) {
    file_[place + at] ^= 1;
    open();
    EXPECT_TRUE(source_->may_be_leaf(haskell_)) << at;
    file_[place + at] ^= 1;
  }
}

}  // namespace
}  // namespace windlass
