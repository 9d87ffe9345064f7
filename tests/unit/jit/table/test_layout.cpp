// The layout of a code manager's table: its sizes, and its map as the header describes it.
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <tuple>

#include "runtimes/manager/read.h"
#include "windlass/jit/code_manager.h"

namespace windlass {
namespace {

TEST(CodeLayout, HasTheseSizes) {
  EXPECT_EQ(sizeof(wl_code_header), 152u);
  EXPECT_EQ(offsetof(wl_code_header, recycled), 40u);
  EXPECT_EQ(offsetof(wl_code_header, blocks), 56u);
  EXPECT_EQ(offsetof(wl_code_header, block_count), 96u);
  EXPECT_EQ(offsetof(wl_code_header, past), 120u);
  EXPECT_EQ(sizeof(wl_code_block), 8u);
  EXPECT_EQ(sizeof(wl_code_record), 16u);
  EXPECT_EQ(sizeof(wl_code_past), 32u);
  EXPECT_EQ(sizeof(wl_code_shape), 16u);
  EXPECT_EQ(sizeof(wl_code_row), 24u);
  EXPECT_EQ(sizeof(wl_code_value), 8u);
  EXPECT_EQ(sizeof(wl_code_register), 12u);
  EXPECT_EQ(sizeof(wl_code_full), 24u);
}

// Read by nothing but the header's words, through the descriptor.
class Copy {
 public:
  explicit Copy(const CodeManager& manager) : fd_(manager.fd()) { read(&header, sizeof header, 0); }
  wl_code_block block(std::uint32_t number) const { return at<wl_code_block>(header.blocks, number); }
  wl_code_record record(std::uint32_t number) const { return at<wl_code_record>(header.records, number); }
  std::string name(std::uint32_t record) const {
    const std::uint64_t place = header.names + at<std::uint32_t>(header.name_of, record);
    std::string name(at<std::uint32_t>(place, 0), 0);
    read(name.data(), name.size(), place + 4);
    return name;
  }
  wl_code_header header;

 private:
  template <typename T>
  T at(std::uint64_t section, std::uint32_t number) const {
    T value;
    read(&value, sizeof value, section + std::uint64_t{number} * sizeof value);
    return value;
  }
  void read(void* to, std::size_t size, std::uint64_t at) const {
    ASSERT_EQ(::pread(fd_, to, size, static_cast<off_t>(at)), static_cast<ssize_t>(size));
  }
  int fd_;
};

TEST(CodeLayout, IsWhatItsHeaderSays) {
  constexpr std::uint64_t kBegin = 0x10'0000;
  auto manager = CodeManager::create(kBegin, kBegin + 0x4000);
  ASSERT_TRUE(manager);
  // In the second block at 0x410, 0x414 and 0x79c; from there through the third and fourth one, and into the fifth.
  ASSERT_TRUE(manager->add({{kBegin + 0x79c, 0xc00, "b", 2, {}}, {kBegin + 0x410, 4, "a", 1, {}}}));
  ASSERT_TRUE(manager->add({{kBegin + 0x13ff, 1, "d", 3, {}}, {kBegin + 0x414, 2, "c", 4, {}}}));
  const Copy copy(*manager);
  EXPECT_EQ(copy.header.magic, WL_CODE_MAGIC);
  EXPECT_EQ(copy.header.version, WL_CODE_VERSION);
  EXPECT_EQ(copy.header.begin, kBegin);
  EXPECT_EQ(copy.header.block_count, 17u);
  EXPECT_EQ(copy.header.functions, 4u);
  EXPECT_EQ(copy.block(0).map, 0u);
  EXPECT_EQ(copy.block(1).map, 0u);
  EXPECT_EQ(copy.block(1).first, 0u);
  EXPECT_EQ(copy.block(2).map, 0x10000002u);  // two in bucket 0, one in bucket 7
  const std::uint32_t run = copy.block(2).first;
  ASSERT_NE(run, 0u);
  for (const auto& [number, begin, name] :
       {std::tuple{0u, 0x410u, "a"}, std::tuple{1u, 0x414u, "c"}, std::tuple{2u, 0x79cu, "b"}}) {
    EXPECT_EQ(copy.record(run + number).begin, begin);
    EXPECT_EQ(copy.name(run + number), name);
    EXPECT_LT(run + number, copy.header.records_used);
  }
  for (const std::uint32_t reached : {3u, 4u}) {
    EXPECT_EQ(copy.block(reached).map, 0u);
    EXPECT_EQ(copy.block(reached).first, run + 2);
  }
  EXPECT_EQ(copy.block(5).map, 0x10000000u);  // what reaches into it is found in the block before
  EXPECT_EQ(copy.block(6).map, 0u);
  EXPECT_EQ(copy.block(6).first, 0u);
  EXPECT_EQ(manager->reader().find(kBegin + 0x139b)->user, 2u);
  EXPECT_FALSE(manager->reader().find(kBegin + 0x139c));
  EXPECT_EQ(manager->reader().find(kBegin + 0x13ff)->user, 3u);
  // Without the function at the block's end, the block leads to what reaches into it.
  ASSERT_TRUE(manager->remove({kBegin + 0x13ff}));
  EXPECT_EQ(copy.block(5).map, 0u);
  EXPECT_EQ(copy.block(5).first, run + 2);
  EXPECT_EQ(manager->reader().find(kBegin + 0x139b)->user, 2u);
}

// 15 in a bucket are more than a nibble counts; the block's run has a head that counts them.
TEST(CodeLayout, SaysHowManyThereAreInACrowdedBlock) {
  constexpr std::uint64_t kBegin = 0x10'0000;
  auto manager = CodeManager::create(kBegin, kBegin + 0x1000);
  ASSERT_TRUE(manager);
  for (std::uint32_t i = 0; i < 14; ++i) ASSERT_TRUE(manager->add({{kBegin + 0x80 + i * 8, 8, {}, i, {}}}));
  const Copy copy(*manager);
  EXPECT_EQ(copy.block(1).map, 0xe0u);
  ASSERT_TRUE(manager->add({{kBegin + 0x80 + 14 * 8, 8, {}, 14, {}}}));
  EXPECT_EQ(copy.block(1).map, WL_CODE_CROWDED);
  EXPECT_EQ(copy.record(copy.block(1).first).size, 15u);
  EXPECT_EQ(copy.record(copy.block(1).first).begin, 0u);
  EXPECT_EQ(copy.record(copy.block(1).first + 15).begin, 0x80u + 14 * 8);
  ASSERT_TRUE(manager->remove({kBegin + 0x80}));
  EXPECT_EQ(copy.block(1).map, 0xe0u);
}

// Runs that grow leave places behind, which are used again after many: readers are not disturbed by each function.
TEST(CodeLayout, DoesNotTellReadersOfEachAddition) {
  constexpr std::uint64_t kBegin = 0x10'0000;
  auto manager = CodeManager::create(kBegin, kBegin + 0x10'0000);
  ASSERT_TRUE(manager);
  for (std::uint32_t i = 0; i < 200; ++i) ASSERT_TRUE(manager->add({{kBegin + i * 100, 100, {}, i, {}}}));
  EXPECT_EQ(Copy(*manager).header.recycled, 0u);
  for (std::uint32_t i = 200; i < 2000; ++i) ASSERT_TRUE(manager->add({{kBegin + i * 100, 100, {}, i, {}}}));
  EXPECT_GT(Copy(*manager).header.recycled, 0u);
  EXPECT_LT(Copy(*manager).header.recycled, 10u);
  EXPECT_LT(Copy(*manager).header.records_used, 5000u);
}

TEST(CodeLayout, CountsByNibbles) {
  const std::uint32_t map = 0x1032'0e01;
  const std::uint32_t counts[8] = {1, 0, 14, 0, 2, 3, 0, 1};
  std::uint32_t before = 0;
  for (std::uint32_t offset = 0x400; offset < 0x800; ++offset) {
    const std::uint32_t bucket = offset / 128 % 8;
    if (offset % 128 == 0 && bucket != 0) before += counts[bucket - 1];
    ASSERT_EQ(wl_code_block_of(offset), 2u);
    ASSERT_EQ(wl_code_begin_in_bucket(map, offset), counts[bucket]);
    ASSERT_EQ(wl_code_begin_before(map, offset), before);
  }
  EXPECT_EQ(wl_code_begin_in_block(map), 21u);
  EXPECT_EQ(wl_code_begin_in_block(0xeeee'eeee), 112u);
  EXPECT_EQ(wl_code_block_of(0xffff'ffff), 1u << 22);
}

}  // namespace
}  // namespace windlass
