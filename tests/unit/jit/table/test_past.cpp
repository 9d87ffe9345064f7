// What a code manager still knows of functions that were taken away: for samples that were taken before.
#include <gtest/gtest.h>

#include <cstring>
#include <ctime>
#include <string>
#include <vector>

#include "runtimes/manager/read.h"
#include "support/managed_rows.h"
#include "windlass/jit/code_manager.h"

namespace windlass {
namespace {

constexpr std::uint64_t kBegin = 0x10'0000'0000;

// Later with each call.
std::uint64_t now() {
  timespec time{};
  const auto ns = [&] {
    ::clock_gettime(CLOCK_MONOTONIC, &time);
    return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(time.tv_nsec);
  };
  const std::uint64_t begin = ns();
  while (ns() == begin) continue;
  return begin + 1;
}

std::string name_at(const CodeManagerReader& reader, std::uint64_t address) {
  char room[100];
  const auto name = reader.name(address, room);
  return name ? std::string(*name) : std::string();
}

CodeManager make(const CodeManagerOptions& options) {
  auto manager = CodeManager::create(kBegin, kBegin + 0x10000, options);
  EXPECT_TRUE(manager);
  return std::move(*manager);
}

// A table as it is while its writer takes a function out, from the n-th read on: that is done, and readers are not told
// yet (`recycled`).
class WhileItIsTakenOut final : public Memory {
 public:
  static constexpr std::uint64_t kAddress = 0x100'0000;
  explicit WhileItIsTakenOut(CodeManager& manager)
      : manager_(manager),
        mapping_(CodeTableAccess::mapping(manager.reader())),
        recycled_(reinterpret_cast<const wl_code_header*>(mapping_)->recycled) {}
  bool read(std::uint64_t address, void* to, std::size_t size) const override {
    if (reads++ == when) {
      EXPECT_TRUE(manager_.remove({kBegin + 0x200}));
    }
    std::memcpy(to, mapping_ + (address - kAddress), size);
    if (address == kAddress + offsetof(wl_code_header, recycled)) std::memcpy(to, &recycled_, sizeof recycled_);
    return true;
  }
  mutable unsigned reads = 0;
  unsigned when = ~0u;

 private:
  CodeManager& manager_;
  const std::byte* mapping_;
  std::uint64_t recycled_;
};

// A function is found in the past or in the present, whenever it goes.
TEST(CodeManagerPast, HasAFunctionThatGoesWhileItIsAskedFor) {
  unsigned asked = 0;
  for (unsigned when = 0;; ++when) {
    CodeManager manager = make({.functions = 100, .shape_bytes = 1 << 14, .name_bytes = 1 << 14});
    ASSERT_TRUE(manager.add({{kBegin + 0x200, 100, "f", 7, test::managed_rows(100, 64)}, {kBegin, 9, "g", 8, {}}}));
    const std::uint64_t then = now();
    WhileItIsTakenOut memory(manager);
    const auto reader = CodeManagerReader::open(memory, WhileItIsTakenOut::kAddress);
    ASSERT_TRUE(reader);
    memory.reads = 0;
    memory.when = when;
    const auto found = reader->as_of(then).find(kBegin + 0x240);
    ASSERT_TRUE(found) << "gone before read " << when;
    EXPECT_EQ(found->user, 7u);
    if (memory.reads <= when) break;
    ++asked;
  }
  EXPECT_GE(asked, 5u);
}

// One function after the other at the same place, each with a frame of its own.
TEST(CodeManagerPast, HasEachFunctionAtItsTime) {
  CodeManager manager = make({});
  std::vector<std::uint64_t> times;
  for (int i = 0; i < 20; ++i) {
    const auto rows = test::managed_rows(100, 64 + 8 * i);
    const std::string name = "f" + std::to_string(i);
    ASSERT_TRUE(manager.add({{kBegin + 0x200, 100, name, static_cast<std::uint32_t>(i), rows}}));
    times.push_back(now());
    ASSERT_TRUE(manager.remove({kBegin + 0x200}));
  }
  const std::uint64_t after = now();
  EXPECT_FALSE(manager.reader().find(kBegin + 0x240));
  EXPECT_FALSE(manager.reader().as_of(after).find(kBegin + 0x240));
  for (int i = 0; i < 20; ++i) {
    const CodeManagerReader then = manager.reader().as_of(times[static_cast<std::size_t>(i)]);
    const auto found = then.find(kBegin + 0x240);
    ASSERT_TRUE(found) << i;
    EXPECT_EQ(found->user, static_cast<std::uint32_t>(i));
    EXPECT_EQ(found->begin, kBegin + 0x200);
    EXPECT_EQ(name_at(then, kBegin + 0x240), "f" + std::to_string(i));
    FrameRow row;
    ASSERT_TRUE(then.row_at(kBegin + 0x240, row));
    EXPECT_EQ(row.cfa.offset(), 64 + 8 * i);
    EXPECT_EQ(row.begin, kBegin + 0x205);
    EXPECT_FALSE(then.find(kBegin + 0x264)) << "behind it";
    EXPECT_FALSE(then.find(kBegin + 0x1ff));
  }
}

TEST(CodeManagerPast, IsWhatIsThereNowWhereNothingWasTakenAwaySince) {
  CodeManager manager = make({});
  ASSERT_TRUE(manager.add({{kBegin, 100, "stays", 1, {}}, {kBegin + 0x200, 100, "goes", 2, {}}}));
  const std::uint64_t both = now();
  ASSERT_TRUE(manager.remove({kBegin + 0x200}));
  ASSERT_TRUE(manager.add({{kBegin + 0x220, 100, "comes", 3, {}}}));
  EXPECT_EQ(name_at(manager.reader().as_of(both), kBegin + 50), "stays");
  EXPECT_EQ(name_at(manager.reader().as_of(both), kBegin + 0x230), "goes");
  EXPECT_EQ(name_at(manager.reader().as_of(now()), kBegin + 0x230), "comes");
  EXPECT_EQ(name_at(manager.reader(), kBegin + 0x230), "comes");
  EXPECT_EQ(name_at(manager.reader().as_of(both), kBegin + 0x270), "comes") << "of which nothing else is known";
}

// What could not be added was never there.
TEST(CodeManagerPast, HasNothingOfWhatWasRefused) {
  CodeManager manager = make({});
  const std::uint64_t before = now();
  EXPECT_FALSE(manager.add({{kBegin, 100, "a", 1, {}}, {kBegin + 50, 100, "overlaps", 2, {}}}));
  EXPECT_FALSE(manager.reader().as_of(before).find(kBegin + 10));
}

TEST(CodeManagerPast, ForgetsTheOldest) {
  CodeManager manager = make({.past = 4});
  const std::uint64_t before = now();
  for (std::uint32_t i = 0; i < 7; ++i) {
    ASSERT_TRUE(manager.add({{kBegin + i * 0x100, 50, "f" + std::to_string(i), i, {}}}));
    ASSERT_TRUE(manager.remove({kBegin + i * 0x100}));
  }
  const CodeManagerReader then = manager.reader().as_of(before);
  for (std::uint32_t i = 0; i < 7; ++i)
    EXPECT_EQ(name_at(then, kBegin + i * 0x100), i < 3 ? "" : "f" + std::to_string(i)) << i;
  CodeManager none = make({.past = 0});
  ASSERT_TRUE(none.add({{kBegin, 50, "f", 0, {}}}));
  ASSERT_TRUE(none.remove({kBegin}));
  EXPECT_FALSE(none.reader().as_of(before).find(kBegin));
}

// Rows and names of the past take no room from what is there.
TEST(CodeManagerPast, GivesWayWhereRoomIsShort) {
  CodeManager manager = make({.functions = 4, .shape_bytes = 1024, .name_bytes = 256});
  const std::uint64_t before = now();
  std::size_t known = 0;
  for (std::uint32_t i = 0; i < 200; ++i) {
    const auto rows = test::managed_rows(100, static_cast<std::int32_t>(64 + 8 * i));
    ASSERT_TRUE(manager.add({{kBegin + i * 0x100, 100, "function" + std::to_string(i), i, rows}})) << i;
    ASSERT_TRUE(manager.remove({kBegin + i * 0x100}));
  }
  const CodeManagerReader then = manager.reader().as_of(before);
  for (std::uint32_t i = 0; i < 200; ++i) {
    if (const std::string name = name_at(then, kBegin + i * 0x100 + 50); !name.empty()) {
      EXPECT_EQ(name, "function" + std::to_string(i));
      ++known;
    }
  }
  EXPECT_GT(known, 0u);
  EXPECT_LT(known, 20u);
}

}  // namespace
}  // namespace windlass
