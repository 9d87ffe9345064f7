// The ring between the kernel and a reader of perf events, in a file laid out as the kernel lays out its memory.
#include "profiler/kernel/perf_ring.h"

#include <gtest/gtest.h>
#include <linux/perf_event.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

namespace windlass::profiler {
namespace {

using Record = std::vector<std::byte>;

class PerfRingTest : public testing::Test {
 protected:
  static constexpr std::size_t kPages = 1;

  void SetUp() override {
    const int fd = memfd_create("ring", MFD_CLOEXEC);
    ASSERT_GE(fd, 0);
    ASSERT_EQ(ftruncate(fd, static_cast<off_t>((kPages + 1) * page_)), 0);
    void* at = mmap(nullptr, (kPages + 1) * page_, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ASSERT_NE(at, MAP_FAILED);
    kernel_ = static_cast<std::byte*>(at);
    ASSERT_EQ(ring_.map(fd, kPages), 0);
    close(fd);
  }
  void TearDown() override { munmap(kernel_, (kPages + 1) * page_); }

  perf_event_mmap_page& head() { return *reinterpret_cast<perf_event_mmap_page*>(kernel_); }
  // Byte for byte, around the ring's end.
  void write(const Record& record) {
    for (const std::byte byte : record) kernel_[page_ + head().data_head++ % (kPages * page_)] = byte;
  }
  // What its header says is `said` bytes long.
  static Record record(std::size_t size, std::uint8_t fill, std::size_t said) {
    Record made(size, std::byte{fill});
    const perf_event_header header{PERF_RECORD_SAMPLE, 0, static_cast<__u16>(said)};
    std::memcpy(made.data(), &header, sizeof header);
    return made;
  }
  std::vector<Record> drain() {
    std::vector<Record> records;
    ring_.drain([&](std::span<const std::byte> bytes) { records.emplace_back(bytes.begin(), bytes.end()); },
                malformed_);
    return records;
  }

  const std::size_t page_ = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  std::byte* kernel_ = nullptr;
  PerfRing ring_;
  std::uint64_t malformed_ = 0;
};

TEST_F(PerfRingTest, RecordsComeWholeAroundTheEnd) {
  std::size_t written = 0, wrapped = 0;
  for (unsigned i = 0; written < 20 * kPages * page_; ++i) {
    std::vector<Record> expected;
    for (std::size_t size = 8 + i * 24 % 600; expected.size() < 3; size += 40) {
      expected.push_back(record(size, static_cast<std::uint8_t>(i), size));
      wrapped += written % (kPages * page_) + size > kPages * page_ ? 1 : 0;
      write(expected.back());
      written += size;
    }
    EXPECT_EQ(drain(), expected) << i;
    EXPECT_EQ(head().data_tail, written) << "what was read may be written over";
  }
  EXPECT_GT(wrapped, 10u);
  EXPECT_TRUE(drain().empty());
  EXPECT_EQ(malformed_, 0u);
}

// Where the next record would be nobody knows: all that is there is passed over.
TEST_F(PerfRingTest, HeadersThatCannotBe) {
  const Record good = record(64, 1, 64);
  for (const std::size_t said : {0, 4, 200}) {
    write(good);
    write(record(64, 2, said));
    write(good);
    EXPECT_EQ(drain(), std::vector<Record>{good}) << said;
    EXPECT_EQ(head().data_tail, head().data_head);
  }
  EXPECT_EQ(malformed_, 3u);
  write(good);
  EXPECT_EQ(drain(), std::vector<Record>{good});
}

}  // namespace
}  // namespace windlass::profiler
