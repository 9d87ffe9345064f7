#include "alloc/stacks.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "windlass/backtrace.h"

namespace windlass::test {
namespace {

using namespace windlass::alloc;

class Region : public testing::Test {
 protected:
  void SetUp() override {
    file_ = memfd_create("region", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    ASSERT_GE(file_, 0);
    path_ = fmt::format("/proc/self/fd/{}", file_);
    ASSERT_EQ(ftruncate(file_, static_cast<off_t>(kRegionSize)), 0);
    ASSERT_EQ(fcntl(file_, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    void* const memory = mmap(nullptr, kIndexAt, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
    ASSERT_NE(memory, MAP_FAILED);
    header_ = new (memory) Header{};
    header_->magic = kMagic;
    pcs_.resize(64);
    pcs_.resize(backtrace(pcs_.data(), pcs_.size()));
  }
  void TearDown() override { close(file_); }

  [[nodiscard]] Stack stack(std::uint32_t tid) const {
    return {.process = 1, .tgid = 10, .tid = tid, .end = 0, .frames = pcs_};
  }

  [[nodiscard]] std::uint32_t find(Stacks& stacks, std::uint32_t tid) const {
    return stacks.find(stack(tid), hash_of_stack(stack(tid)));
  }

  int file_ = -1;
  std::string path_;
  Header* header_ = nullptr;
  std::vector<std::uint64_t> pcs_;
};

// The path may lead elsewhere once the recording has ended.
TEST_F(Region, IsAFileThatARecordingMade) {
  const int other = memfd_create("other", MFD_CLOEXEC);
  ASSERT_GE(other, 0);
  ASSERT_EQ(ftruncate(other, static_cast<off_t>(kRegionSize)), 0);
  ASSERT_EQ(pwrite(other, &kMagic, sizeof kMagic, 0), static_cast<ssize_t>(sizeof kMagic));
  EXPECT_FALSE(Stacks().open(fmt::format("/proc/self/fd/{}", other).c_str())) << "it can shrink";
  close(other);
  EXPECT_TRUE(Stacks().open(path_.c_str()));
  EXPECT_FALSE(Stacks().open("/etc/passwd"));
  if (geteuid() != 0) GTEST_SKIP() << "needs root to give a file away";
  ASSERT_EQ(fchown(file_, 65534, 65534), 0);
  EXPECT_FALSE(Stacks().open(path_.c_str())) << "another user's";
}

// Other processes write there.
TEST_F(Region, MayHaveAnyPlacesAndAnyCount) {
  Stacks stacks;
  ASSERT_TRUE(stacks.open(path_.c_str()));
  const std::vector<std::uint32_t> wrong(kIndexSize, 0xfffffff0);
  ASSERT_GT(pwrite(file_, wrong.data(), wrong.size() * sizeof wrong[0], kIndexAt), 0);
  EXPECT_EQ(find(stacks, 10), 0u);
  const std::vector<std::uint32_t> none(kIndexSize, 0);
  ASSERT_GT(pwrite(file_, none.data(), none.size() * sizeof none[0], kIndexAt), 0);
  header_->used = ~std::uint64_t{0} - 3;
  EXPECT_EQ(find(stacks, 10), 0u);
}

TEST_F(Region, HasEachStackOnce) {
  Stacks stacks;
  ASSERT_TRUE(stacks.open(path_.c_str()));
  const std::uint32_t first = find(stacks, 10);
  ASSERT_NE(first, 0u);
  EXPECT_EQ(header_->newest.load(), first);
  EXPECT_EQ(find(stacks, 10), first);
  EXPECT_NE(find(stacks, 11), first);
  const Record& record = stacks.record(first);
  EXPECT_EQ(record.tgid, 10u);
  ASSERT_EQ(record.depth, pcs_.size());
  const auto* const frames = reinterpret_cast<const std::uint64_t*>(&record + 1);
  for (std::size_t i = 0; i < pcs_.size(); ++i) EXPECT_EQ(frames[i], pcs_[i]);
  EXPECT_EQ(stacks.record(header_->newest.load()).next, first);
}

TEST_F(Region, IsFullAtSomeTime) {
  Stacks stacks;
  ASSERT_TRUE(stacks.open(path_.c_str()));
  const std::uint32_t first = find(stacks, 1);
  EXPECT_FALSE(stacks.nearly_full());
  header_->used = kMostUnits - 1;
  EXPECT_TRUE(stacks.nearly_full());
  EXPECT_EQ(find(stacks, 2), 0u);
  EXPECT_EQ(find(stacks, 1), first) << "what is there stays";
}

TEST_F(Region, OfAnotherSizeOrKindIsRefused) {
  Stacks stacks;
  EXPECT_FALSE(stacks.open("/nonexistent"));
  header_->magic = 1;
  EXPECT_FALSE(stacks.open(path_.c_str()));
  header_->magic = kMagic;
  ASSERT_EQ(ftruncate(file_, static_cast<off_t>(2 * kRegionSize)), 0);
  EXPECT_FALSE(Stacks().open(path_.c_str()));
}

TEST_F(Region, OfManyThreads) {
  Stacks stacks;
  ASSERT_TRUE(stacks.open(path_.c_str()));
  constexpr std::uint32_t kStacks = 500;
  std::vector<std::vector<std::uint32_t>> found(4);
  std::vector<std::thread> threads;
  for (auto& places : found)
    threads.emplace_back([&] {
      for (std::uint32_t tid = 1; tid <= kStacks; ++tid) places.push_back(find(stacks, tid));
    });
  for (std::thread& thread : threads) thread.join();
  for (const auto& places : found) EXPECT_EQ(places, found[0]);
  std::set<std::uint32_t> listed;
  for (std::uint32_t place = header_->newest; place != 0; place = stacks.record(place).next) {
    ASSERT_TRUE(listed.insert(place).second);
  }
  EXPECT_EQ(listed, std::set<std::uint32_t>(found[0].begin(), found[0].end()));
}

}  // namespace
}  // namespace windlass::test
