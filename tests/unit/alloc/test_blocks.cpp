#include "alloc/blocks.h"

#include <gtest/gtest.h>
#include <sys/auxv.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <thread>
#include <vector>

namespace windlass::test {
namespace {

using windlass::alloc::Blocks;
using windlass::alloc::SizeOfSample;

const void* at(std::uint64_t address) { return reinterpret_cast<const void*>(address); }

TEST(SampledBlocks, AreTakenOnce) {
  Blocks blocks;
  std::uint32_t record = 0;
  SizeOfSample size(0);
  EXPECT_FALSE(blocks.take(at(0x1000), record, size)) << "nothing is open";
  EXPECT_FALSE(blocks.add(at(0x1000), 1, SizeOfSample(1)));
  ASSERT_TRUE(blocks.open(1 << 12, 512));
  EXPECT_TRUE(blocks.add(at(0x1000), 7, SizeOfSample(300)));
  EXPECT_FALSE(blocks.take(at(0x1010), record, size));
  ASSERT_TRUE(blocks.take(at(0x1000), record, size));
  EXPECT_EQ(record, 7u);
  EXPECT_EQ(size.word(), 300u);
  EXPECT_FALSE(blocks.take(at(0x1000), record, size));
}

// Frees of blocks elsewhere cost a look at one counter. A granule is 1/128 of the distance between samples at most.
TEST(SampledBlocks, AreExpectedNearThoseThatAreThere) {
  for (const auto& [period, granule] : {std::pair{512u << 10, 4096u}, {64u << 10, 512u}, {512u, 16u}}) {
    Blocks blocks;
    EXPECT_TRUE(blocks.may_have(at(0x7f0000001010))) << "nothing is known yet";
    blocks.begin();
    EXPECT_FALSE(blocks.may_have(at(0x7f0000001010)));
    ASSERT_TRUE(blocks.open(1 << 12, period));
    const std::uint64_t begin = 0x7f0000000000;
    ASSERT_TRUE(blocks.add(at(begin + granule), 1, SizeOfSample(1)));
    unsigned expected = 0;
    for (std::uint64_t address = begin; address < begin + 16 * granule; address += 16)
      expected += blocks.may_have(at(address));
    EXPECT_EQ(expected, granule / 16) << period;
    for (std::uint64_t arena = 1; arena < 16; ++arena)
      EXPECT_FALSE(blocks.may_have(at(begin + (arena << 26) + granule))) << "an arena of glibc's at the same place";
    std::uint32_t record = 0;
    SizeOfSample size(0);
    ASSERT_TRUE(blocks.take(at(begin + granule), record, size));
    EXPECT_FALSE(blocks.may_have(at(begin + granule)));
  }
}

TEST(SampledBlocks, AreRefusedWhenThereIsNoRoom) {
  Blocks blocks;
  ASSERT_TRUE(blocks.open(1024, 512));
  std::vector<std::uint64_t> added;
  for (std::uint64_t address = 0x10000; address < 0x10000 + 16 * 4096; address += 16)
    if (blocks.add(at(address), 1, SizeOfSample(address))) added.push_back(address);
  EXPECT_GE(added.size(), 1024u);
  EXPECT_LT(added.size(), 4096u);
  for (const std::uint64_t address : added) {
    std::uint32_t record = 0;
    SizeOfSample size(0);
    ASSERT_TRUE(blocks.take(at(address), record, size));
    EXPECT_EQ(size.word(), address);
  }
}

// The smallest blocks of jemalloc and tcmalloc are 8 bytes apart, and all of them may be samples.
TEST(SampledBlocks, MayLieCloselyTogether) {
  Blocks blocks;
  ASSERT_TRUE(blocks.open(1 << 16, 1));
  for (std::uint64_t address = 0x10000; address < 0x10000 + 8 * 4096; address += 8)
    ASSERT_TRUE(blocks.add(at(address), 3, SizeOfSample(address))) << address;
  for (std::uint64_t address = 0x10000; address < 0x10000 + 8 * 4096; address += 8) {
    std::uint32_t record = 0;
    SizeOfSample size(0);
    ASSERT_TRUE(blocks.take(at(address), record, size));
    ASSERT_EQ(size.word(), address);
  }
}

TEST(SampledBlocks, HaveSizesOf48Bits) {
  Blocks blocks;
  ASSERT_TRUE(blocks.open(1024, 1));
  constexpr std::uint64_t kLargest = (std::uint64_t{1} << SizeOfSample::kBits) - 1;
  EXPECT_TRUE(blocks.add(at(0x7fffdeadbe10), 5, SizeOfSample(kLargest)));
  EXPECT_FALSE(blocks.add(at(0x7fffdeadbe40), 5, SizeOfSample(kLargest + 1)));
  std::uint32_t record = 0;
  SizeOfSample size(0);
  ASSERT_TRUE(blocks.take(at(0x7fffdeadbe10), record, size));
  EXPECT_EQ(record, 5u);
  EXPECT_EQ(size.word(), kLargest);
}

TEST(SampledBlocks, OfAParentAreNoneOfAChild) {
  if (getauxval(AT_SYSINFO_EHDR) == 0) GTEST_SKIP() << "qemu-user does not wipe the memory of a child";
  Blocks blocks;
  ASSERT_TRUE(blocks.open(1 << 12, 512));
  ASSERT_TRUE(blocks.add(at(0x2000), 1, SizeOfSample(1)));
  std::uint32_t record = 0;
  SizeOfSample size(0);
  const pid_t child = fork();
  if (child == 0) _exit(blocks.take(at(0x2000), record, size) ? 1 : 0);
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(blocks.take(at(0x2000), record, size));
}

TEST(SampledBlocks, OfManyThreads) {
  Blocks blocks;
  ASSERT_TRUE(blocks.open(1 << 16, 1));
  constexpr std::uint64_t kThreads = 4, kBlocks = 2000;
  std::vector<std::thread> threads;
  std::vector<std::uint64_t> sums(kThreads);
  for (std::uint64_t t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      const std::uint64_t base = 0x100000 + t * kBlocks * 16;
      for (int round = 0; round < 20; ++round) {
        for (std::uint64_t i = 0; i < kBlocks; ++i) (void)blocks.add(at(base + 16 * i), 1, SizeOfSample(i + 1));
        std::uint32_t record = 0;
        SizeOfSample size(0);
        for (std::uint64_t i = 0; i < kBlocks; ++i)
          if (blocks.take(at(base + 16 * i), record, size)) sums[t] += size.word();
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::uint64_t sum : sums) EXPECT_EQ(sum, 20 * kBlocks * (kBlocks + 1) / 2);
}

}  // namespace
}  // namespace windlass::test
