#include "lookup/table/arena.h"

#include <gtest/gtest.h>

#include <random>

namespace windlass::table {
namespace {

TEST(Arena, MergesWhatIsFreed) {
  auto made = Arena::create();
  ASSERT_TRUE(made.has_value());
  Arena& arena = **made;
  const auto a = arena.allocate(100), b = arena.allocate(200), c = arena.allocate(300);
  ASSERT_TRUE(a && b && c);
  arena.free(*a, 100);
  arena.free(*c, 300);
  arena.free(*b, 200);
  EXPECT_EQ(arena.bytes_used(), 0U);
  EXPECT_TRUE(arena.allocate(WL_CHUNK_SIZE - 8).has_value());
  EXPECT_EQ(arena.chunks(), 1U);
  EXPECT_FALSE(arena.allocate(WL_CHUNK_SIZE).has_value());
}

TEST(Arena, ObjectsAreDisjointAndStraddleNoChunk) {
  auto made = Arena::create({}, 64);
  ASSERT_TRUE(made.has_value());
  Arena& arena = **made;
  std::mt19937 random(1);
  std::map<std::uint32_t, std::uint32_t> live;  // ref -> bytes
  for (int i = 0; i < 20'000; ++i) {
    if (!live.empty() && random() % 2 == 0) {
      auto victim = std::next(live.begin(), static_cast<long>(random() % live.size()));
      arena.free(victim->first, victim->second);
      live.erase(victim);
      continue;
    }
    const std::uint32_t bytes = 1 + random() % (random() % 50 == 0 ? 400'000 : 3000);
    const auto ref = arena.allocate(bytes);
    if (!ref) continue;
    ASSERT_NE(*ref, 0U);
    const std::uint64_t begin = std::uint64_t{*ref} << 3, end = begin + bytes;
    ASSERT_EQ(begin >> WL_CHUNK_SHIFT, (end - 1) >> WL_CHUNK_SHIFT);
    auto next = live.lower_bound(*ref);
    if (next != live.end()) {
      ASSERT_LE(end, std::uint64_t{next->first} << 3);
    }
    if (next != live.begin()) {
      const auto previous = std::prev(next);
      ASSERT_LE((std::uint64_t{previous->first} << 3) + previous->second, begin);
    }
    live.emplace(*ref, bytes);
  }
  for (const auto& [ref, bytes] : live) arena.free(ref, bytes);
  EXPECT_EQ(arena.bytes_used(), 0U);
}

TEST(Arena, FullIsAnError) {
  auto made = Arena::create({}, 1);
  ASSERT_TRUE(made.has_value());
  EXPECT_TRUE((*made)->allocate(WL_CHUNK_SIZE - 8).has_value());
  EXPECT_FALSE((*made)->allocate(8).has_value());
}

}  // namespace
}  // namespace windlass::table
