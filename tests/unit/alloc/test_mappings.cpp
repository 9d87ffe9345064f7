#include "alloc/mappings.h"

#include <gtest/gtest.h>
#include <sys/auxv.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <map>
#include <random>
#include <vector>

namespace windlass::test {
namespace {

using namespace windlass::alloc;

constexpr std::uint64_t kPage = 4096;

std::vector<Mapping> taken_from(Mappings& mappings, std::uint64_t begin, std::uint64_t end) {
  std::vector<Mapping> all;
  EXPECT_TRUE(mappings.take(begin, end, [&](const Mapping& mapping) { all.push_back(mapping); }));
  return all;
}
void put(Mappings& mappings, std::uint64_t begin, std::uint64_t end, std::uint32_t record) {
  EXPECT_TRUE(mappings.put({begin, end, record, {1, end - begin}}, [](const Mapping&) {}));
}

TEST(LivingMappings, AreTakenInParts) {
  Mappings mappings;
  EXPECT_FALSE(mappings.any());
  EXPECT_FALSE(mappings.put({0, kPage, 1, {1, kPage}}, [](const Mapping&) {})) << "nothing is open";
  ASSERT_TRUE(mappings.open());
  put(mappings, 0x100000, 0x100000 + 8 * kPage, 7);
  EXPECT_TRUE(mappings.any());
  const auto middle = taken_from(mappings, 0x100000 + 2 * kPage, 0x100000 + 3 * kPage);
  ASSERT_EQ(middle.size(), 1u);
  EXPECT_EQ(middle[0].record, 7u);
  EXPECT_EQ(middle[0].weight.count, 0u);
  EXPECT_EQ(middle[0].weight.bytes, kPage);
  const auto rest = taken_from(mappings, 0, ~std::uint64_t{0});
  ASSERT_EQ(rest.size(), 2u);
  EXPECT_EQ(rest[0].weight.count + rest[1].weight.count, 1u);
  EXPECT_EQ(rest[0].weight.bytes + rest[1].weight.bytes, 7 * kPage);
  EXPECT_FALSE(mappings.any());
}

// A page belongs to the mapping that was put there last, until it is taken.
TEST(LivingMappings, AreThoseOfAModelPageByPage) {
  Mappings mappings;
  ASSERT_TRUE(mappings.open());
  std::mt19937 random(1);
  std::map<std::uint64_t, std::uint32_t> pages;
  std::map<std::uint32_t, std::uint64_t> counts;  // of mappings of which a part is there
  for (std::uint32_t record = 1; record < 20'000; ++record) {
    const std::uint64_t begin = random() % 200, end = begin + 1 + random() % 20;
    std::map<std::uint32_t, std::uint64_t> bytes, expected;
    const auto count = [&](const Mapping& mapping) {
      bytes[mapping.record] += mapping.weight.bytes;
      counts[mapping.record] -= mapping.weight.count;
    };
    for (std::uint64_t page = begin; page < end; ++page) {
      if (const auto found = pages.find(page); found != pages.end()) {
        expected[found->second] += kPage;
        pages.erase(found);
      }
    }
    if (random() % 2 == 0) {
      ASSERT_TRUE(mappings.put({begin * kPage, end * kPage, record, {1, (end - begin) * kPage}}, count));
      for (std::uint64_t page = begin; page < end; ++page) pages[page] = record;
      counts[record] = 1;
    } else {
      ASSERT_TRUE(mappings.take(begin * kPage, end * kPage, count));
    }
    ASSERT_EQ(bytes, expected) << record;
  }
  std::map<std::uint32_t, std::uint64_t> last;
  for (const auto& [page, record] : pages) last[record] += kPage;
  std::map<std::uint32_t, std::uint64_t> rest;
  for (const Mapping& mapping : taken_from(mappings, 0, 1000 * kPage)) {
    rest[mapping.record] += mapping.weight.bytes;
    counts[mapping.record] -= mapping.weight.count;
  }
  EXPECT_EQ(rest, last);
  for (const auto& [record, count] : counts) EXPECT_EQ(count, 0u) << record;
}

TEST(LivingMappings, AreRefusedWhenThereIsNoRoom) {
  Mappings mappings;
  ASSERT_TRUE(mappings.open());
  std::size_t room = 0;
  while (room <= Mappings::kMost &&
         mappings.put({2 * room * kPage, (2 * room + 1) * kPage, 1, {1, kPage}}, [](const Mapping&) {}))
    ++room;
  EXPECT_GT(room, Mappings::kMost - 4);
  EXPECT_LE(room, Mappings::kMost);
  EXPECT_EQ(taken_from(mappings, 0, ~std::uint64_t{0}).size(), room);
}

// A signal handler may come while the lock is held.
TEST(LivingMappings, DoNotWaitForEver) {
  Mappings mappings;
  ASSERT_TRUE(mappings.open());
  put(mappings, 0, kPage, 1);
  bool inside = true;
  ASSERT_TRUE(mappings.take(0, kPage, [&](const Mapping&) {
    inside = mappings.put({kPage, 2 * kPage, 2, {1, kPage}}, [](const Mapping&) {});
  }));
  EXPECT_FALSE(inside);
}

// Also of a parent that holds the lock.
TEST(LivingMappings, OfAParentAreNoneOfAChild) {
  if (getauxval(AT_SYSINFO_EHDR) == 0) GTEST_SKIP() << "qemu-user does not wipe the memory of a child";
  Mappings mappings;
  ASSERT_TRUE(mappings.open());
  put(mappings, 0, kPage, 1);
  ASSERT_TRUE(mappings.take(0, kPage, [&](const Mapping&) {
    const pid_t child = fork();
    if (child == 0) _exit(!mappings.any() && mappings.put({0, kPage, 3, {1, kPage}}, [](const Mapping&) {}) ? 0 : 1);
    int status = 1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }));
}

}  // namespace
}  // namespace windlass::test
