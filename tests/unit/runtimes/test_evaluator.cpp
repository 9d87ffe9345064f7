// An evaluator's code and the part of it that stands elsewhere, in an image made up by hand.
#include <elf.h>
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "runtimes/evaluator.h"
#include "support/made_up_image.h"

namespace windlass::runtimes {
namespace {

constexpr std::uint64_t kImage = 0x10000000, kHot = kImage + 0x1000, kHotSize = 0x40;
constexpr std::uint64_t kCold = kImage + 0x3000, kColdEnd = kCold + 0x800, kBlock = kCold + 0x100;
constexpr std::uint64_t kIndex = kImage + 0x4000, kEntries = kImage + 0x4100, kSegments = kImage + 0x5000;
constexpr std::size_t kSize = 0x8000, kIndexSize = 20;

// The evaluator branches to kBlock, which jumps back.
class Image {
 public:
  Image() : memory_(kImage, kSize) {
    test::MadeUpImage image;
    image.add("evaluate", kHot, kHotSize);
    image.put(memory_, kImage);
    std::memset(memory_.bytes.data() + 0x1000, 0x90, 0x3000);  // nop
    put_jump(kHot, {0x0f, 0x84}, kBlock);
    put_jump(kBlock + 3, {0xe9}, kHot + 0x10);
    put_segments();
    put_entries();
  }
  // Call frame information that says nothing.
  Image& without_index() {
    memory_.put(kIndex, std::uint8_t{9});
    return *this;
  }
  Image& of_all_code() {
    memory_.put(kEntries + 24 + 8, relative(kEntries + 24 + 8, kImage));
    memory_.put(kEntries + 24 + 12, static_cast<std::uint32_t>(kSize));
    memory_.put(kIndex + 12, relative(kIndex, kImage));
    return *this;
  }
  [[nodiscard]] Evaluator find() const {
    const auto found = find_evaluator(memory_, kImage, "evaluate");
    EXPECT_TRUE(found);
    return found ? *found : Evaluator();
  }

 private:
  static std::int32_t relative(std::uint64_t from, std::uint64_t to) { return static_cast<std::int32_t>(to - from); }
  template <std::size_t N>
  void put_jump(std::uint64_t at, const std::uint8_t (&code)[N], std::uint64_t target) {
    std::memcpy(memory_.bytes.data() + (at - kImage), code, N);
    memory_.put(at + N, relative(at + N + 4, target));
  }
  void put_segments() {
    std::array<Elf64_Phdr, 3> segments{};
    std::memcpy(&segments[1], memory_.bytes.data() + sizeof(Elf64_Ehdr) + sizeof(Elf64_Phdr), sizeof(Elf64_Phdr));
    segments[0].p_type = PT_LOAD, segments[0].p_filesz = segments[0].p_memsz = kSize;
    segments[2].p_type = PT_GNU_EH_FRAME, segments[2].p_vaddr = kIndex - kImage, segments[2].p_memsz = kIndexSize;
    memory_.put(kSegments, segments);
    memory_.put(kImage + offsetof(Elf64_Ehdr, e_phoff), kSegments - kImage);
    memory_.put(kImage + offsetof(Elf64_Ehdr, e_phnum), std::uint16_t{3});
  }
  // A CIE and one FDE, and the index: LSB 5.0, 10.6.
  void put_entries() {
    const std::array<std::uint8_t, 24> cie = {20, 0, 0, 0, 0, 0, 0, 0, 1, 'z', 'R', 0, 1, 0x78, 16, 1, 0x1b};
    memory_.put(kEntries, cie);
    const std::uint64_t fde = kEntries + cie.size();
    memory_.put(fde, std::uint32_t{16}), memory_.put(fde + 4, static_cast<std::uint32_t>(cie.size() + 4));
    memory_.put(fde + 8, relative(fde + 8, kCold));
    memory_.put(fde + 12, static_cast<std::uint32_t>(kColdEnd - kCold));
    memory_.put(kIndex, std::array<std::uint8_t, 4>{1, 0x1b, 0x03, 0x3b});
    memory_.put(kIndex + 4, relative(kIndex + 4, kEntries)), memory_.put(kIndex + 8, std::uint32_t{1});
    memory_.put(kIndex + 12, relative(kIndex, kCold)), memory_.put(kIndex + 16, relative(kIndex, fde));
  }

  test::MadeUpMemory memory_;
};

TEST(Evaluator, AllOfThePartThatComesBackIsItsOwn) {
  const Evaluator evaluator = Image().find();
  EXPECT_TRUE(evaluator.contains(kHot));
  EXPECT_FALSE(evaluator.contains(kHot + kHotSize));
  EXPECT_EQ(evaluator.cold.begin, kCold);
  EXPECT_EQ(evaluator.cold.end, kColdEnd);
}

TEST(Evaluator, WhereThePartIsNotKnownItEndsWhereItComesBack) {
  const Evaluator evaluator = Image().without_index().find();
  EXPECT_EQ(evaluator.cold.begin, kBlock);
  EXPECT_EQ(evaluator.cold.end, kBlock + 8);
}

TEST(Evaluator, APartThatIsAllCodeIsNone) { EXPECT_EQ(Image().of_all_code().find().cold.begin, kBlock); }

}  // namespace
}  // namespace windlass::runtimes
