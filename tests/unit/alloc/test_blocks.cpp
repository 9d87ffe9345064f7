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
using windlass::alloc::Weight;

const void* at(std::uint64_t address) { return reinterpret_cast<const void*>(address); }

TEST(SampledBlocks, AreTakenOnce) {
  Blocks blocks;
  std::uint32_t record = 0;
  Weight weight{};
  EXPECT_FALSE(blocks.take(at(0x1000), record, weight)) << "nothing is open";
  EXPECT_FALSE(blocks.add(at(0x1000), 1, {1, 1}));
  ASSERT_TRUE(blocks.open(1 << 12, false));
  EXPECT_TRUE(blocks.add(at(0x1000), 7, {3, 300}));
  EXPECT_FALSE(blocks.take(at(0x1010), record, weight));
  ASSERT_TRUE(blocks.take(at(0x1000), record, weight));
  EXPECT_EQ(record, 7u);
  EXPECT_EQ(weight.count, 3u);
  EXPECT_EQ(weight.bytes, 300u);
  EXPECT_FALSE(blocks.take(at(0x1000), record, weight));
}

TEST(SampledBlocks, AreRefusedWhenThereIsNoRoom) {
  Blocks blocks;
  ASSERT_TRUE(blocks.open(1024, false));
  std::vector<std::uint64_t> added;
  for (std::uint64_t address = 0x10000; address < 0x10000 + 16 * 4096; address += 16)
    if (blocks.add(at(address), 1, {1, address})) added.push_back(address);
  EXPECT_GE(added.size(), 1024u);
  EXPECT_LT(added.size(), 4096u);
  for (const std::uint64_t address : added) {
    std::uint32_t record = 0;
    Weight weight{};
    ASSERT_TRUE(blocks.take(at(address), record, weight));
    EXPECT_EQ(weight.bytes, address);
  }
}

TEST(SampledBlocks, OfAParentAreNoneOfAChild) {
  if (getauxval(AT_SYSINFO_EHDR) == 0) GTEST_SKIP() << "qemu-user does not wipe the memory of a child";
  Blocks blocks;
  ASSERT_TRUE(blocks.open(1 << 12, false));
  ASSERT_TRUE(blocks.add(at(0x2000), 1, {1, 1}));
  std::uint32_t record = 0;
  Weight weight{};
  const pid_t child = fork();
  if (child == 0) _exit(blocks.take(at(0x2000), record, weight) ? 1 : 0);
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(blocks.take(at(0x2000), record, weight));
}

TEST(SampledBlocks, OfManyThreads) {
  Blocks blocks;
  ASSERT_TRUE(blocks.open(1 << 16, true));
  constexpr std::uint64_t kThreads = 4, kBlocks = 2000;
  std::vector<std::thread> threads;
  std::vector<std::uint64_t> sums(kThreads);
  for (std::uint64_t t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      const std::uint64_t base = 0x100000 + t * kBlocks * 16;
      for (int round = 0; round < 20; ++round) {
        for (std::uint64_t i = 0; i < kBlocks; ++i) (void)blocks.add(at(base + 16 * i), 1, {1, i + 1});
        std::uint32_t record = 0;
        Weight weight{};
        for (std::uint64_t i = 0; i < kBlocks; ++i)
          if (blocks.take(at(base + 16 * i), record, weight)) sums[t] += weight.bytes;
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::uint64_t sum : sums) EXPECT_EQ(sum, 20 * kBlocks * (kBlocks + 1) / 2);
}

}  // namespace
}  // namespace windlass::test
