// What a recording makes of the region that its programs write. These may write anything.
#include "profiler/samples/allocations.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "alloc/stacks.h"
#include "profiler/samples/alloc_library.h"
#include "profiler/samples/alloc_library_file.h"

namespace windlass::test {
namespace {

using namespace windlass::profiler;

const RecordingEvents kEvents =
    RecordingEvents::of(std::vector<EventSpec>{{}}, 997, AllocationEvents::kAllocatedAndInUse);

class SharedRegion : public testing::Test {
 protected:
  void SetUp() override {
    auto opened = Allocations::open(512);
    if (!opened) GTEST_SKIP() << opened.error().text;
    allocations_ = std::move(*opened);
    for (const std::string& variable : allocations_->environment()) {
      const std::string name = std::string(alloc::kVariable) + "=";
      if (variable.starts_with(name)) path_ = variable.substr(name.size());
    }
    const int file = open(path_.c_str(), O_RDWR | O_CLOEXEC);
    ASSERT_GE(file, 0) << path_;
    EXPECT_NE(ftruncate(file, 0), 0) << "a program must not be able to end the recording by SIGBUS";
    void* const memory = mmap(nullptr, alloc::kRegionSize, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    ASSERT_NE(memory, MAP_FAILED);
    base_ = static_cast<std::byte*>(memory);
  }
  void TearDown() override {
    if (base_ != nullptr) munmap(base_, alloc::kRegionSize);
  }
  [[nodiscard]] alloc::Header& header() const { return *reinterpret_cast<alloc::Header*>(base_); }
  [[nodiscard]] alloc::Record& record(std::uint32_t place) const {
    return *reinterpret_cast<alloc::Record*>(base_ + std::size_t{place} * alloc::kUnit);
  }
  std::vector<wl_stack_event> poll() {
    std::vector<wl_stack_event> events;
    allocations_->poll(kEvents, [&](const wl_event_head& head, std::size_t size) {
      const auto& event = reinterpret_cast<const wl_stack_event&>(head);
      EXPECT_EQ(size, sizeof event + event.user_frames * 8u);
      EXPECT_LE(event.user_frames, alloc::kMaxFrames);
      EXPECT_LT(event.end, WL_END_COUNT);
      events.push_back(event);
    });
    return events;
  }

  static constexpr std::uint32_t kFirst = alloc::kRecordsAt / alloc::kUnit;
  std::unique_ptr<Allocations> allocations_;
  std::string path_;
  std::byte* base_ = nullptr;
};

TEST_F(SharedRegion, GivesEachNewStackOnce) {
  alloc::Stacks stacks;
  ASSERT_TRUE(stacks.open(path_.c_str()));
  static const std::uint8_t code[32] = {};  // read as the code at the return addresses
  const std::uint64_t pcs[] = {reinterpret_cast<std::uint64_t>(code), reinterpret_cast<std::uint64_t>(code + 1)};
  const alloc::Stack stack{.process = 1, .tgid = 5, .tid = 6, .end = WL_END_GUESSED, .shared = false, .frames = pcs};
  const std::uint32_t place = stacks.find(stack, alloc::hash_of_stack(stack));
  ASSERT_NE(place, 0u);
  const auto events = poll();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].head.tgid, 5u);
  EXPECT_EQ(events[0].head.tid, 6u);
  EXPECT_EQ(events[0].head.event, kEvents.allocated);
  EXPECT_EQ(events[0].user_frames, 2u);
  EXPECT_EQ(events[0].end, WL_END_GUESSED);
  EXPECT_TRUE(poll().empty());
  EXPECT_EQ(allocations_->stats().malformed, 0u);
}

TEST_F(SharedRegion, MayHaveAListThatLeadsRoundOrOut) {
  record(kFirst).next = kFirst + 100;
  record(kFirst + 100).next = kFirst;
  header().newest = kFirst;
  EXPECT_EQ(poll().size(), 2u);
  EXPECT_EQ(allocations_->stats().malformed, 1u);
  for (const std::uint32_t place :
       {1u, kFirst - 1, static_cast<std::uint32_t>(alloc::kRegionSize / alloc::kUnit - 1), 0xffffffffu}) {
    header().newest = place;
    EXPECT_TRUE(poll().empty()) << place;
  }
  EXPECT_EQ(allocations_->stats().malformed, 5u);
}

TEST_F(SharedRegion, MayHaveStacksOfAnyLengthAndTime) {
  const auto last = static_cast<std::uint32_t>((alloc::kRegionSize - sizeof(alloc::Record)) / alloc::kUnit);
  for (const std::uint32_t place : {kFirst, last, last - 3}) {
    record(place).depth = 0xffff;
    record(place).end = 0xff;
    record(place).time = ~std::uint64_t{0};
    header().newest = place;
    const auto events = poll();
    ASSERT_EQ(events.size(), 1u);
    EXPECT_LT(events[0].head.time, ~std::uint64_t{0});
    EXPECT_EQ(events[0].user_frames, place == kFirst ? alloc::kMaxFrames : last - place);
  }
}

TEST_F(SharedRegion, MayHaveAnything) {
  std::mt19937_64 random(1);
  for (std::size_t at = alloc::kRecordsAt; at < alloc::kRecordsAt + (1 << 20); at += 8) {
    std::uint64_t word = random();
    if (random() % 2 == 0) word = (word % 4096 + kFirst) << 32 | ((word >> 40 & 0xfff) + kFirst);
    std::memcpy(base_ + at, &word, sizeof word);
  }
  for (std::uint32_t i = 0; i < 4096; ++i) {
    header().newest = kFirst + i;
    (void)poll();
  }
  EXPECT_GT(allocations_->stats().malformed, 0u);
}

TEST(EventsOfARecording, HaveTheirNumbersWhateverIsRecorded) {
  for (const bool waits : {false, true})
    for (const bool allocations : {false, true}) {
      std::vector<EventSpec> specs{EventSpec{}};
      if (waits) specs.push_back(*parse_event(kWaitEvent));
      const RecordingEvents events =
          RecordingEvents::of(specs, 100, allocations ? AllocationEvents::kAllocatedAndInUse : AllocationEvents::kNone);
      ASSERT_EQ(events.list.size(), 1u + (waits ? 1 : 0) + (allocations ? 2 : 0));
      EXPECT_EQ(events.list[0].period, 10'000'000u);
      EXPECT_TRUE(!waits || events.list[1].counted == "waits");
      EXPECT_EQ(events.allocated, allocations ? events.list.size() - 2 : 0);
      EXPECT_EQ(events.in_use, allocations ? events.list.size() - 1 : 0);
      if (allocations) {
        EXPECT_EQ(events.list[events.allocated].name, "alloc_space");
        EXPECT_EQ(events.list[events.in_use].name, "inuse_space");
      }
    }
}

// Root's programs load it.
TEST(AllocLibraryFile, StandsWhereNobodyElseCanWrite) {
  if (alloc_library().empty()) GTEST_SKIP() << "this build has no libwindlass_alloc.so";
  const std::string folder = testing::TempDir() + "windlass-alloc-file-" + std::to_string(getpid());
  std::filesystem::remove_all(folder);
  const auto first = alloc_library_file_in(folder + "/a/b");
  ASSERT_TRUE(first.has_value()) << first.error().text;
  EXPECT_EQ(alloc_library_file_in(folder + "/a/b").value(), *first);
  const auto size = std::filesystem::file_size(*first);
  struct stat status {};
  ASSERT_EQ(stat(first->c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0644u);

  // Whatever has been put in its place is replaced.
  std::filesystem::resize_file(*first, size / 2);
  EXPECT_EQ(alloc_library_file_in(folder + "/a/b").value(), *first);
  EXPECT_EQ(std::filesystem::file_size(*first), size);
  std::filesystem::remove(*first);
  std::filesystem::create_symlink("/etc/passwd", *first);
  EXPECT_EQ(alloc_library_file_in(folder + "/a/b").value(), *first);
  EXPECT_FALSE(std::filesystem::is_symlink(*first));

  const auto refusal = [](const std::string& path) {
    const auto file = alloc_library_file_in(path);
    return file ? "a file" : file.error().text;
  };
  ASSERT_EQ(chmod((folder + "/a/b").c_str(), 0777), 0);
  EXPECT_NE(refusal(folder + "/a/b").find("others can change what is in it"), std::string::npos);
  std::filesystem::create_symlink(folder + "/a", folder + "/link");
  EXPECT_NE(refusal(folder + "/link").find("others can change what is in it"), std::string::npos);
  EXPECT_NE(refusal(folder + "/a:b").find("a space or a colon"), std::string::npos);
  EXPECT_NE(refusal("/dev/null/x").find("Way out"), std::string::npos);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace windlass::test
