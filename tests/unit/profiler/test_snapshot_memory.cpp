// The addresses for which a snapshot answers as data, and those only as code.
#include "profiler/samples/snapshot_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstring>
#include <utility>

#include "support/process_reading.h"

namespace windlass::profiler {
namespace {

std::vector<std::byte> filled(std::size_t size, unsigned value) {
  return std::vector<std::byte>(size, static_cast<std::byte>(value));
}

class SnapshotMemoryTest : public testing::Test {
 protected:
  void SetUp() override {
    sample_.tgid = static_cast<std::uint32_t>(getpid());
    sample_.stack = {0x1000, stack_};
    sample_.second = {0x2000, second_};
    sample_.code = {0x3000, code_};
    sample_.teb = {0x4328, teb_};
    memory_.show(sample_);
  }
  // -1: cannot be read.
  int data(std::uint64_t address, std::size_t size) const {
    std::byte bytes[64];
    return memory_.read(address, bytes, size) ? static_cast<int>(bytes[size - 1]) : -1;
  }
  int code(std::uint64_t address) const {
    std::byte byte;
    return memory_.read_code(address, &byte, 1) ? static_cast<int>(byte) : -1;
  }

  std::vector<std::byte> stack_ = filled(32, 1), second_ = filled(16, 2), code_ = filled(8, 3), teb_ = filled(8, 4);
  RawSample sample_;
  SnapshotMemory memory_;
};

TEST_F(SnapshotMemoryTest, DataIsWhatTheSampleCopied) {
  EXPECT_EQ(data(0x1000, 8), 1);
  EXPECT_EQ(data(0x1018, 8), 1);
  EXPECT_EQ(data(0x2008, 8), 2);
  EXPECT_EQ(data(0x3000, 8), 3);
  EXPECT_EQ(data(0x4328, 8), 4);
}

TEST_F(SnapshotMemoryTest, AProbedReturnAddressIsTheOneThatTheKernelKeeps) {
  const std::vector<std::byte> kept = filled(8, 5);
  sample_.words[WL_PROBED_RETURN + 1] = {0x1008, kept};
  EXPECT_EQ(data(0x1000, 8), 1);
  EXPECT_EQ(data(0x1008, 8), 5);
  EXPECT_EQ(data(0x1010, 8), 1);
}

TEST_F(SnapshotMemoryTest, AllOrNothing) {
  EXPECT_EQ(data(0x0ff8, 8), -1);
  EXPECT_EQ(data(0x0fff, 2), -1);
  EXPECT_EQ(data(0x1019, 8), -1);
  EXPECT_EQ(data(0x1020, 1), -1);
  EXPECT_EQ(data(0x2008, 9), -1);
  EXPECT_EQ(data(~std::uint64_t{0}, 8), -1);
}

// 0x1ff0 to 0x2000, all of 0x4000 and 0x5000, 0x7000 to 0x7008: page by page, each filled with its number.
class CopyWithHoles : public testing::Test {
 protected:
  void SetUp() override {
    for (const auto& [size, page] : {std::pair{16, 0}, {4096, 3}, {4096, 4}, {8, 6}})
      bytes_.insert(bytes_.end(), static_cast<std::size_t>(size), static_cast<std::byte>(page));
    copy_ = {0x1ff0, bytes_, 0b101'1001};
  }
  // -1: cannot be read.
  int at(std::uint64_t address, std::size_t size = 8) const {
    std::byte bytes[4097];
    return copy_.read(address, bytes, size) ? static_cast<int>(bytes[size - 1]) : -1;
  }
  std::vector<std::byte> bytes_;
  MemoryCopy copy_;
};

TEST_F(CopyWithHoles, PagesThatAreThereAreRead) {
  EXPECT_EQ(at(0x1ff0), 0);
  EXPECT_EQ(at(0x1ff8), 0);
  EXPECT_EQ(at(0x4000), 3);
  EXPECT_EQ(at(0x4ff8), 3);
  EXPECT_EQ(at(0x4ffc), 4) << "across two that follow each other";
  EXPECT_EQ(at(0x4fff, 4097), 4);
  EXPECT_EQ(at(0x5ff8), 4);
  EXPECT_EQ(at(0x7000), 6);
  // The page of sp is missing, too.
  copy_ = {0x1ff0, std::span(bytes_).subspan(16), 0b101'1000};
  EXPECT_EQ(at(0x1ff0), -1);
  EXPECT_EQ(at(0x4000), 3);
  EXPECT_EQ(at(0x7000), 6);
}

TEST_F(CopyWithHoles, NothingIsReadOfThoseThatAreNot) {
  for (const std::uint64_t address : {0x0ff0, 0x1fef, 0x1ff9, 0x2000, 0x3ff8, 0x3ffc, 0x5ffc, 0x6000, 0x6ffc, 0x7001})
    EXPECT_EQ(at(address), -1) << std::hex << address;
  EXPECT_EQ(at(0x8000), -1);
  EXPECT_EQ(at(0x1000 + WL_MAX_RAW_PAGES * 0x1000), -1);
  EXPECT_EQ(at(~std::uint64_t{0}), -1);
  EXPECT_EQ(at(0x4000, 0), -1);
  // Past the end of all addresses, seen from the first page.
  copy_ = {0x10, bytes_, 1};
  EXPECT_EQ(at(~std::uint64_t{3}), -1);
}

// What the process has there now may have been written since.
TEST_F(SnapshotMemoryTest, TheLivingProcessIsReadAsCodeOnly) {
  if (const std::string reason = test::no_process_reading(); !reason.empty()) GTEST_SKIP() << reason;
  auto* page =
      static_cast<unsigned char*>(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(page, MAP_FAILED);
  page[100] = 42;
  const auto address = reinterpret_cast<std::uint64_t>(page);
  EXPECT_EQ(data(address + 100, 1), -1);
  EXPECT_EQ(code(address + 100), 42);
  page[100] = 43;
  EXPECT_EQ(code(address + 100), 42);  // once a sample
  memory_.show(sample_);
  EXPECT_EQ(code(address + 100), 43);
  munmap(page, 4096);
  memory_.show(sample_);
  EXPECT_EQ(code(address + 100), 43) << "what it was shortly before";
  sample_.epoch = 1;
  memory_.show(sample_);
  EXPECT_EQ(code(address + 100), -1) << "another process";
}

// A sample is unwound when its process has ended.
TEST_F(SnapshotMemoryTest, CodeOfAProcessThatHasEndedIsWhatItWasInItsLastSecond) {
  if (const std::string reason = test::no_process_reading(); !reason.empty()) GTEST_SKIP() << reason;
  void* const page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(page, MAP_FAILED);
  std::memset(page, 42, 4096);
  const auto address = reinterpret_cast<std::uint64_t>(page);
  const pid_t child = fork();
  ASSERT_NE(child, -1);
  if (child == 0) {
    pause();
    _exit(0);
  }
  munmap(page, 4096);
  sample_.tgid = static_cast<std::uint32_t>(child);
  sample_.time = 1'000'000'000;
  memory_.show(sample_);
  EXPECT_EQ(code(address), 42);
  kill(child, SIGKILL);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  for (const auto& [time, byte] : {std::pair{1'500'000'000, 42}, {2'000'000'000, 42}, {2'000'000'001, -1}}) {
    sample_.time = static_cast<std::uint64_t>(time);
    memory_.show(sample_);
    EXPECT_EQ(code(address), byte) << time;
    EXPECT_EQ(code(address + 4096), -1) << "not read before";
  }
}

TEST(LastPages, ThoseOfLateAreKeptInBoundedRoom) {
  LastPages pages;
  std::array<std::byte, LastPages::kPageSize> bytes{}, got{};
  const auto key = [](std::size_t i) { return LastPages::Key{1, i * LastPages::kPageSize, 2}; };
  constexpr std::size_t kAll = 3 * LastPages::kMost;
  for (std::size_t i = 0; i < kAll; ++i) {
    bytes[0] = static_cast<std::byte>(i);
    pages.keep(key(i), 10, bytes);
    pages.keep(key(0), 10, bytes);  // used all the time
  }
  std::size_t found = 0;
  for (std::size_t i = 1; i < kAll; ++i) {
    const bool is_kept = pages.find(key(i), 10, got);
    found += is_kept ? 1 : 0;
    ASSERT_TRUE(!is_kept || got[0] == static_cast<std::byte>(i)) << i;
    ASSERT_TRUE(is_kept || i + LastPages::kMost / 2 < kAll) << i;
  }
  EXPECT_LE(found, LastPages::kMost);
  EXPECT_TRUE(pages.find(key(0), 10, got));
  EXPECT_FALSE(pages.find({1, 0, 3}, 10, got)) << "another process";
}

TEST_F(SnapshotMemoryTest, CodeAcrossMorePagesThanAreKeptAndTooManyOfThem) {
  if (const std::string reason = test::no_process_reading(); !reason.empty()) GTEST_SKIP() << reason;
  constexpr std::size_t kPages = SnapshotMemory::kMaxReads + 1;
  void* pages = mmap(nullptr, kPages * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(pages, MAP_FAILED);
  const auto begin = reinterpret_cast<std::uint64_t>(pages);
  std::memset(pages, 7, 4096);
  std::memset(static_cast<char*>(pages) + 4096, 8, 4096);
  unsigned char bytes[4] = {};
  ASSERT_TRUE(memory_.read_code(begin + 4094, bytes, 4));
  EXPECT_EQ(bytes[1], 7);
  EXPECT_EQ(bytes[2], 8);
  std::memset(static_cast<char*>(pages) + (kPages - 2) * 4096, 9, 4096);
  for (std::size_t i = 0; i + 2 < kPages; ++i)
    EXPECT_EQ(code(begin + i * 4096), i < 2 ? 7 + static_cast<int>(i) : 0) << i;
  EXPECT_EQ(code(begin + (kPages - 2) * 4096), 9);
  EXPECT_EQ(code(begin + (kPages - 1) * 4096), -1);
  EXPECT_EQ(code(begin + (kPages - 2) * 4096), 9) << "still kept";
  munmap(pages, kPages * 4096);
}

}  // namespace
}  // namespace windlass::profiler
