#include "profiler/processes/process_events.h"

#include <gtest/gtest.h>
#include <linux/perf_event.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "support/privilege.h"

namespace windlass::profiler {
namespace {

// Builds a record the way the kernel does: header, body, sample id.
class Record {
 public:
  Record(std::uint32_t type, std::uint16_t misc) { append(perf_event_header{type, misc, 0}); }
  template <typename T>
  Record& append(const T& value) {
    const std::size_t at = bytes_.size();
    bytes_.resize(at + sizeof value);
    std::memcpy(&bytes_[at], &value, sizeof value);
    return *this;
  }
  Record& text(const std::string& text) {
    for (const char c : text) bytes_.push_back(static_cast<std::byte>(c));
    do bytes_.push_back(std::byte{0});
    while (bytes_.size() % 8 != 0);
    return *this;
  }
  std::vector<std::byte> finish(std::uint32_t pid, std::uint32_t tid, std::uint64_t time) {
    append(pid).append(tid).append(time);
    const auto size = static_cast<std::uint16_t>(bytes_.size());
    std::memcpy(bytes_.data() + 6, &size, 2);
    return bytes_;
  }

 private:
  std::vector<std::byte> bytes_;
};

Record mmap2(std::uint16_t misc, std::uint64_t begin, std::uint64_t length, std::uint32_t prot = 5) {
  Record record(PERF_RECORD_MMAP2, misc);
  record.append(10u).append(11u).append(begin).append(length).append(std::uint64_t{0x1000});
  if (misc & PERF_RECORD_MISC_MMAP_BUILD_ID) {
    record.append(std::uint8_t{20}).append(std::uint8_t{0}).append(std::uint16_t{0});
    for (std::uint8_t i = 0; i < 20; ++i) record.append(i);
  } else {
    record.append(8u).append(1u).append(std::uint64_t{77}).append(std::uint64_t{5});
  }
  return record.append(prot).append(2u);
}

TEST(PerfRecord, MappingByInode) {
  const auto bytes = mmap2(0, 0x7000, 0x2000).text("/lib/a.so (deleted)").finish(10, 11, 1234);
  const auto event = parse_perf_record(bytes);
  ASSERT_TRUE(event) << event.error().text();
  EXPECT_EQ(event->kind, ProcessEventKind::kMap);
  EXPECT_EQ(event->time, 1234u);
  EXPECT_EQ(event->tgid, 10u);
  EXPECT_EQ(event->map.begin, 0x7000u);
  EXPECT_EQ(event->map.end, 0x9000u);
  EXPECT_EQ(event->map.offset, 0x1000u);
  EXPECT_EQ(event->map.file.inode, 77u);
  EXPECT_EQ(event->map.file.generation, 5u);
  EXPECT_EQ(event->map.path, "/lib/a.so");
  EXPECT_TRUE(event->map.deleted);
  EXPECT_TRUE(event->map.executable);
}

// The flag may be that of another event on the machine, which asked for build ids. This one has asked for none.
TEST(PerfRecord, TheFlagOfBuildIdsMayBeAnothers) {
  auto bytes = mmap2(0, 0x7000, 0x2000).text("/lib/a.so").finish(10, 11, 1);
  reinterpret_cast<perf_event_header*>(bytes.data())->misc |= PERF_RECORD_MISC_MMAP_BUILD_ID;
  const auto event = parse_perf_record(bytes);
  ASSERT_TRUE(event);
  EXPECT_EQ(event->map.file.inode, 77u);
  perf_event_attr attr{};
  request_process_events(attr, 1);
  EXPECT_EQ(attr.build_id, 0u) << "so that no flag is left to others";
}

TEST(PerfRecord, MappingsThatAreNoneAreRefused) {
  EXPECT_EQ(parse_perf_record(mmap2(0, 0x7000, 0x1000, 3).text("/a").finish(1, 1, 1)).error().code,
            ErrorCode::kNotFound);  // not executable
  EXPECT_FALSE(parse_perf_record(mmap2(0, ~0ull - 5, 0x1000).text("/a").finish(1, 1, 1)));
  EXPECT_FALSE(parse_perf_record(mmap2(0, 0x7000, 0).text("/a").finish(1, 1, 1)));
}

TEST(PerfRecord, ForkExecExit) {
  Record fork(PERF_RECORD_FORK, 0);
  fork.append(20u).append(10u).append(20u).append(11u).append(std::uint64_t{9});
  const auto forked = parse_perf_record(fork.finish(10, 11, 9));
  ASSERT_TRUE(forked);
  EXPECT_EQ(forked->kind, ProcessEventKind::kFork);
  EXPECT_EQ(forked->tgid, 20u);
  EXPECT_EQ(forked->parent_tgid, 10u);

  Record thread(PERF_RECORD_FORK, 0);
  thread.append(10u).append(10u).append(21u).append(11u).append(std::uint64_t{9});
  EXPECT_EQ(parse_perf_record(thread.finish(10, 11, 9)).error().code, ErrorCode::kNotFound);

  Record exec(PERF_RECORD_COMM, PERF_RECORD_MISC_COMM_EXEC);
  exec.append(20u).append(20u).text("cc1plus");
  const auto execed = parse_perf_record(exec.finish(20, 20, 10));
  ASSERT_TRUE(execed);
  EXPECT_EQ(execed->kind, ProcessEventKind::kExec);
  EXPECT_EQ(execed->comm, "cc1plus");

  Record exit(PERF_RECORD_EXIT, 0);
  exit.append(20u).append(10u).append(20u).append(10u).append(std::uint64_t{11});
  ASSERT_TRUE(parse_perf_record(exit.finish(20, 20, 11)));

  Record lost(PERF_RECORD_LOST, 0);
  lost.append(std::uint64_t{3}).append(std::uint64_t{41});
  EXPECT_EQ(parse_perf_record(lost.finish(0, 0, 12))->lost, 41u);
}

TEST(PerfRecord, HostileBytesNeverReadOutside) {
  std::mt19937 random(1);
  const auto good = mmap2(0, 0x7000, 0x2000).text("/lib/a.so").finish(10, 11, 1234);
  for (int round = 0; round < 20000; ++round) {
    auto bytes = good;
    bytes.resize(random() % (good.size() + 1));
    for (int i = 0; i < 4 && !bytes.empty(); ++i) bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    if (bytes.size() >= 8 && random() % 2) {
      const auto size = static_cast<std::uint16_t>(bytes.size());
      std::memcpy(bytes.data() + 6, &size, 2);
    }
    const std::vector<std::byte> exact(bytes.begin(), bytes.end());  // so that a sanitizer sees its end
    (void)parse_perf_record(exact);
  }
}

class ProcessEvents : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = test::no_privilege_to_sample(); !reason.empty()) GTEST_SKIP() << reason;
    const auto opened = source_.open(8);
    if (!opened && opened.error().detail == ENOSYS) GTEST_SKIP() << "no perf events here (qemu-user)";
    ASSERT_TRUE(opened) << opened.error().text();
  }
  // Maps code for a moment. Its address; 0: it was refused.
  static std::uint64_t map_code() {
    void* code = mmap(nullptr, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (code == MAP_FAILED) return 0;
    munmap(code, 4096);
    return reinterpret_cast<std::uint64_t>(code);
  }
  // What there is: where this process has mapped code, and how many events were lost.
  void drain() {
    mapped_.clear();
    lost_ = 0;
    source_.drain([this](ProcessEvent&& event) {
      if (event.kind == ProcessEventKind::kMap && event.tgid == static_cast<std::uint32_t>(getpid()))
        mapped_.push_back(event.map.begin);
      lost_ += event.lost;
    });
  }

  ProcessEventSource source_;
  std::vector<std::uint64_t> mapped_;
  std::uint64_t lost_ = 0;
};

TEST_F(ProcessEvents, ThisProcessMapsCode) {
  const std::uint64_t code = map_code();
  ASSERT_NE(code, 0u);
  drain();
  EXPECT_NE(std::ranges::find(mapped_, code), mapped_.end());
  EXPECT_EQ(source_.malformed(), 0u);
}

// A ring tells what it lost with its next event. The source does not wait for one, and then does not tell it twice.
TEST_F(ProcessEvents, WhatIsLostLastIsTold) {
  drain();
  constexpr std::uint64_t kMany = 1000;  // the rings of eight pages have room for some 340
  for (std::uint64_t i = 0; i < kMany; ++i) ASSERT_NE(map_code(), 0u);
  drain();
  EXPECT_LT(mapped_.size(), kMany);
  EXPECT_GE(mapped_.size() + lost_, kMany);
  ASSERT_NE(map_code(), 0u);
  drain();
  EXPECT_EQ(mapped_.size(), 1u);
  EXPECT_EQ(lost_, 0u);
}

}  // namespace
}  // namespace windlass::profiler
