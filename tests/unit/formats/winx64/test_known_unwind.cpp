// Unwinds kept by pc: those that cannot be expressed, and use by more threads and of more pcs than there is room for.
// The ground-truth test and that of the rows show on real code that kept unwinds agree with the codes.
#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include "formats/winx64/exec.h"
#include "support/known_unwind.h"
#include "support/pe_image_builder.h"

namespace windlass {
namespace {

using test::Bytes;
using test::PeImageBuilder;
using test::UnwindInfoBytes;

// Every word is its address, but for one that is not readable.
struct Stack {
  std::uint64_t hole = 0;
  bool read(std::uint64_t address, void* to, std::size_t size) const {
    std::memcpy(to, &address, size);
    return size == sizeof address && address != hole;
  }
};

Registers frame_at(CodeAddress pc) {
  Registers frame(Architecture::kX86_64);
  for (unsigned i = 0; i < 16; ++i) frame.set(i, 0x10000 * i);
  frame.set_sp(0x7000);
  frame.set_pc(pc);
  return frame;
}

// Are the results the same at each byte of this function, as an instruction and as a return address, with each of the
// words above rsp unreadable in turn?
bool same_everywhere(std::initializer_list<int> text, const UnwindInfoBytes& info) {
  PeImageBuilder builder;
  const auto code = builder.text(text);
  const auto size = static_cast<std::uint32_t>(text.size());
  builder.entry(code, code + size, builder.data(info.bytes()));
  const std::vector<std::uint8_t> file = builder.build();
  const auto image = image::PeImage::parse(ByteView(std::span<const std::uint8_t>(file)));
  const winx64::Functions functions(*image);
  bool same = true;
  for (std::uint32_t rva = code; rva < code + size; ++rva) {
    for (std::uint64_t hole = 0x6ff8; hole < 0x7080; hole += 8) {
      const std::uint64_t pc = PeImageBuilder::kBase + rva;
      for (const CodeAddress at : {CodeAddress::instruction(pc), CodeAddress::return_address(pc + 1)})
        same &= test::same_when_known(functions, PeImageBuilder::kBase, Stack{hole}, frame_at(at));
    }
  }
  return same;
}

constexpr auto slot = &UnwindInfoBytes::slot;
enum : unsigned { kPush = 0, kAllocSmall = 2, kSetFpreg = 3, kSave = 4, kSaveXmm = 8, kMachframe = 10 };
enum : unsigned { kRbx = 3, kRbp = 5 };

TEST(WinX64KnownUnwind, CallsAndInstructionsAreToldApart) {
  UnwindInfoBytes info;
  info.prolog_size = 1;
  info.slots = {slot(1, kPush, kRbx)};
  EXPECT_TRUE(same_everywhere({0x53, 0x90, 0x5b, 0xc3, 0x90}, info));  // push rbx; nop; pop rbx; ret
}

TEST(WinX64KnownUnwind, RegistersRestoredTwice) {
  UnwindInfoBytes info;
  info.prolog_size = 2;
  info.slots = {slot(2, kPush, kRbx), slot(1, kPush, kRbx)};
  EXPECT_TRUE(same_everywhere({0x53, 0x53, 0x90, 0x90}, info));
  info.slots = {slot(2, kPush, kRbx), slot(1, kPush, 0)};  // rax
  EXPECT_TRUE(same_everywhere({0x53, 0x50, 0x90, 0x90}, info));
}

TEST(WinX64KnownUnwind, FrameRegisterAndWhereItEnds) {
  UnwindInfoBytes info;
  info.frame_register = kRbp;
  info.frame_offset = 2;
  info.prolog_size = 9;
  info.slots = {slot(9, kSetFpreg, 0), slot(5, kAllocSmall, 5), slot(1, kPush, kRbp), slot(9, kSave, kRbx), 1};
  // push rbp; sub rsp, 48; lea rbp, [rsp + 32]; nop; add rsp, 48; pop rbp; ret
  EXPECT_TRUE(same_everywhere(
      {0x55, 0x48, 0x83, 0xec, 0x30, 0x48, 0x8d, 0x6c, 0x24, 0x20, 0x90, 0x48, 0x83, 0xc4, 0x30, 0x5d, 0xc3}, info));
}

TEST(WinX64KnownUnwind, VectorRegistersAnywhere) {
  UnwindInfoBytes info;
  info.slots = {slot(0, kSaveXmm, 6), 1, slot(0, kSaveXmm, 7), 2, slot(0, kSaveXmm, 8), 4, slot(0, kAllocSmall, 15)};
  EXPECT_TRUE(same_everywhere({0x90, 0x90}, info));
  info.slots = {slot(0, kSaveXmm, 6), 4, slot(0, kSaveXmm, 7), 3, slot(0, kSaveXmm, 9), 2, slot(0, kAllocSmall, 15)};
  EXPECT_TRUE(same_everywhere({0x90, 0x90}, info));
}

TEST(WinX64KnownUnwind, MachineFrames) {
  UnwindInfoBytes info;
  info.slots = {slot(0, kPush, kRbx), slot(0, kMachframe, 1)};
  EXPECT_TRUE(same_everywhere({0x90, 0x90}, info));
}

// Functions whose frames all differ: the n-th allocates n * 8 bytes more than the first.
constexpr unsigned kFunctions = 512, kSize = 16;
constexpr std::uint64_t kSp = 0x7000;

struct Image {
  Image() {
    for (unsigned i = 0; i < kFunctions; ++i) {
      const auto code = builder.text(std::initializer_list<int>{0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90,
                                                                0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90});
      if (i == 0) first = code;
      UnwindInfoBytes info;
      info.slots = {UnwindInfoBytes::slot(0, 1, 0), static_cast<std::uint16_t>(i + 1)};  // ALLOC_LARGE
      builder.entry(code, code + kSize, builder.data(info.bytes()));
    }
    file = builder.build();
    image.emplace(*image::PeImage::parse(ByteView(std::span<const std::uint8_t>(file))));
    functions.emplace(*image);
  }
  // Does unwinding from there find the caller?
  [[nodiscard]] bool finds(unsigned function, unsigned offset) const {
    const std::uint64_t pc = PeImageBuilder::kBase + first + function * kSize + offset;
    const Registers frame = frame_at(CodeAddress::instruction(pc));
    winx64::Unwound to;
    winx64::SavedAddresses saved;
    const std::uint64_t return_at = kSp + 8 * (function + 1);
    return winx64::virtual_unwind(*functions, PeImageBuilder::kBase, Stack(), frame, to, &saved) &&
           to.caller.pc().value() == return_at && to.caller.sp() == return_at + 8 && to.establisher == kSp &&
           saved.return_address == return_at && to.caller.get(12) == 0xc0000;
  }
  PeImageBuilder builder;
  std::uint32_t first = 0;
  std::vector<std::uint8_t> file;
  std::optional<image::PeImage> image;
  std::optional<winx64::Functions> functions;
};

TEST(WinX64KnownUnwind, SeveralThreads) {
  const Image image;
  constexpr unsigned kThreads = 3;
  std::atomic<unsigned> wrong = 0;
  std::vector<std::thread> threads;
  for (unsigned seed = 0; seed < kThreads; ++seed) {
    threads.emplace_back([&, seed] {
      std::minstd_rand random(seed + 1);
      for (unsigned i = 0; i < 100'000; ++i)
        if (!image.finds(random() % kFunctions, random() % kSize)) ++wrong;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0U);
}

// The same places of two images, one after the other and by turns.
TEST(WinX64KnownUnwind, ImagesAreToldApart) {
  const Image one;
  Image other;
  other.builder = {};
  const auto code = other.builder.text({0x90, 0x90, 0x90, 0x90});
  ASSERT_EQ(code, one.first);
  other.file = other.builder.build();  // without entries: all code is a leaf's
  const auto leaf = image::PeImage::parse(ByteView(std::span<const std::uint8_t>(other.file)));
  const winx64::Functions leaves(*leaf);
  const Registers frame = frame_at(CodeAddress::instruction(PeImageBuilder::kBase + code + 1));
  for (int time = 0; time < 4; ++time) {
    EXPECT_TRUE(one.finds(0, 1));
    winx64::Unwound to;
    ASSERT_TRUE(winx64::virtual_unwind(leaves, PeImageBuilder::kBase, Stack(), frame, to));
    EXPECT_EQ(to.position, winx64::Position::kLeaf);
    EXPECT_EQ(to.caller.sp(), kSp + 8);
  }
}

}  // namespace
}  // namespace windlass
