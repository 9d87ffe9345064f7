#include "profiler/samples/late_samples.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "base/monotonic.h"
#include "profiler/samples/code_names.h"
#include "runtimes/jitdump_code.h"
#include "support/jitdump_text.h"

namespace windlass::profiler {
namespace {

using test::JitdumpText;

constexpr std::uint64_t kCode = 0x7000'0000;
constexpr std::uint64_t kLong = 10'000'000'000;  // ns

// A process whose generated code a jitdump tells of that is still empty.
class LateSamplesTest : public testing::Test {
 protected:
  void SetUp() override {
    code = std::make_shared<manager::JitdumpCode>(file.reader(), 0x1000, os::FileIdentity());
    auto set = std::make_shared<MapSet>();
    manager::PublishedCodes published;
    manager::add(published, code);
    set->set_published(std::move(published));
    set->add({kCode, kCode + 0x10000, 0, 0, 0, MappingKind::kGenerated});
    set->add({0x1000, 0x2000, 0, 3, 0, MappingKind::kFile});
    maps = set;
    ASSERT_TRUE(file.append(JitdumpText().header().take()));
  }
  [[nodiscard]] WalkedSample sample(std::uint32_t tgid, std::uint64_t time, std::uint64_t pc) const {
    WalkedSample made;
    made.head.tgid = tgid;
    made.head.time = time;
    made.user = {pc | WL_FRAME_EXACT, 0x1234};
    made.maps = maps;
    return made;
  }
  [[nodiscard]] std::vector<std::uint64_t> settled(std::uint64_t ended = 0) {
    std::vector<std::uint64_t> times;
    late.take_settled([&](std::uint32_t) { return ended; },
                      [&](const WalkedSample& it) { times.push_back(it.head.time); });
    return times;
  }
  [[nodiscard]] const Mapping& mapping() const { return *maps->find(kCode); }

  test::GrowingFile file;
  std::shared_ptr<manager::JitdumpCode> code;
  std::shared_ptr<const MapSet> maps;
  LateSamples late{4096};
};

using Times = std::vector<std::uint64_t>;

TEST_F(LateSamplesTest, OnlyFramesThatSomebodyWillStillTellOfWait) {
  const auto waits = [&](std::uint64_t frame) { return LateSamples::has_to_wait(*maps, std::vector{frame}, 100, 0); };
  EXPECT_TRUE(waits((kCode + 5) | WL_FRAME_EXACT));
  EXPECT_TRUE(waits(kCode + 0x10000)) << "a return address behind the last instruction";
  EXPECT_FALSE(waits((kCode + 0x10000) | WL_FRAME_EXACT));
  EXPECT_FALSE(waits(0x1234));
  EXPECT_FALSE(LateSamples::has_to_wait(MapSet(), std::vector{kCode + 5}, 100, 0));
}

TEST_F(LateSamplesTest, UntilARecordOfALaterTimeHasCome) {
  late.push(sample(1, 100, kCode));
  late.push(sample(1, 200, kCode));
  late.push(sample(2, 150, kCode));
  ASSERT_TRUE(file.append(JitdumpText().load(170, kCode, 0x100, 1, "f").take()));
  code->set_time(~std::uint64_t{0});
  Times times = settled();
  std::ranges::sort(times);
  EXPECT_EQ(times, (Times{100, 150}));
  unsigned waiting = 0;
  late.for_each([&](const WalkedSample&) { ++waiting; });
  EXPECT_EQ(waiting, 1u);
  EXPECT_EQ(settled(monotonic_ns()), Times{200}) << "its process has ended";
  EXPECT_EQ(settled(monotonic_ns()), Times());
}

TEST_F(LateSamplesTest, NotMoreThanThereIsRoomFor) {
  Times given_up;
  for (std::uint64_t time = 1; time <= 1000; ++time) {
    late.push(sample(time % 10 == 0 ? 2 : 1, time, kCode));
    late.take_excess([&](const WalkedSample& it) { given_up.push_back(it.head.time); });
  }
  std::size_t left = 0;
  late.for_each([&](const WalkedSample&) { ++left; });
  EXPECT_EQ(given_up.size() + left, 1000u);
  EXPECT_LE(left, 4096 / sizeof(WalkedSample));
  EXPECT_GT(left, 2u);
  ASSERT_FALSE(given_up.empty());
  EXPECT_EQ(given_up.front(), 1u) << "the earliest of the process with the most";
}

// What was given up is named in the end, one time for many.
TEST_F(LateSamplesTest, NamesAreFoundInTheEnd) {
  CodeNames names;
  const auto number = [&](std::uint64_t address, std::uint64_t time) {
    return names.find_late(1, {*maps, mapping(), address}, time, time);
  };
  const std::uint32_t first = number(kCode + 4, kLong + 1), second = number(kCode + 4, 3 * kLong + 1);
  const std::uint32_t unknown = number(kCode + 0x800, kLong + 1);
  ASSERT_NE(first, CodeNames::kUnknown);
  EXPECT_NE(first, second);
  EXPECT_EQ(first, number(kCode + 4, kLong + 2));
  EXPECT_TRUE(names.function(first).name.empty());
  ASSERT_TRUE(
      file.append(JitdumpText().load(kLong, kCode, 0x100, 1, "one").load(2 * kLong, kCode, 0x100, 2, "two").take()));
  names.resolve();
  EXPECT_EQ(names.function(first).name, "one");
  EXPECT_EQ(names.function(first).begin, kCode);
  EXPECT_EQ(names.function(second).name, "two");
  EXPECT_TRUE(names.function(unknown).name.empty());
  ASSERT_TRUE(file.append(JitdumpText().close(9 * kLong).take()));
  code->set_time(~std::uint64_t{0});
  EXPECT_EQ(names.function(number(kCode + 4, 8 * kLong)).name, "two") << "at once, where all has been said";
}

// Nothing of a process that has ended is kept for the end of the recording.
TEST_F(LateSamplesTest, NamesOfAProcessAreFoundWhenItEnds) {
  CodeNames names;
  const auto number = [&](std::uint32_t tgid) {
    return names.find_late(tgid, {*maps, mapping(), kCode + 4}, kLong + 1, kLong + 1);
  };
  const long before = code.use_count();
  const std::uint32_t one = number(1), other = number(2);
  ASSERT_TRUE(file.append(JitdumpText().load(kLong, kCode, 0x100, 1, "one").take()));
  names.end(1);
  EXPECT_EQ(names.function(one).name, "one");
  EXPECT_TRUE(names.function(other).name.empty());
  EXPECT_EQ(code.use_count(), before + 1) << "the other's";
  names.end(2);
  EXPECT_EQ(names.function(other).name, "one");
  EXPECT_EQ(code.use_count(), before);
}

}  // namespace
}  // namespace windlass::profiler
