// The fast walk of the own stack by itself. backtrace() uses the walk with all registers where the fast one has no
// answer or finds nonsense. So the result of backtrace() shows little about the fast walk.
#include <execinfo.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "walk/own/fast_walk.h"
#include "windlass/backtrace.h"

namespace windlass::walk {
namespace {

constexpr std::uint64_t kUntouched = 0x5a5a'5a5a'5a5a'5a5a;
using Check = void (*)(std::size_t max);

struct Walked {
  std::vector<std::uint64_t> pcs;
  FastWalk::Outcome outcome;
  bool kept_within;  // what lies behind the array is what it was
};

// From the caller's registers; at most `max` pcs.
[[gnu::always_inline]] inline Walked walk_here(std::size_t max) {
  const Registers here = capture_registers();
  std::vector<std::uint64_t> pcs(max + 8, kUntouched);
  FastWalk walk({here.pc().value(), here.sp(), here.get(Registers::fp_number(kOwnArchitecture))}, false);
  const std::size_t count = walk.run(pcs.data(), max);
  const bool kept = std::all_of(pcs.begin() + static_cast<std::ptrdiff_t>(max), pcs.end(),
                                [](std::uint64_t word) { return word == kUntouched; });
  pcs.resize(count);
  return {pcs, walk.outcome(), kept};
}

// Distinct functions, so that each has a rule of its own.
template <int kFunction>
[[gnu::noinline]] void deeper(int depth, Check check, std::size_t max) {
  if (depth == 0)
    check(max);
  else if constexpr (kFunction < 20)
    deeper<kFunction + 1>(depth - 1, check, max);
  else
    deeper<0>(depth - 1, check, max);
  asm volatile("");
}

// glibc's, whose first is another place in the same function.
[[gnu::always_inline]] inline std::vector<std::uint64_t> by_glibc() {
  void* pcs[512];
  const int depth = ::backtrace(pcs, 512);
  return {reinterpret_cast<std::uint64_t*>(pcs), reinterpret_cast<std::uint64_t*>(pcs) + depth};
}

[[gnu::noinline]] void all_of_it(std::size_t) {
  for (int round = 0; round < 3; ++round) {
    const Walked ours = walk_here(512);
    const std::vector<std::uint64_t> theirs = by_glibc();
    EXPECT_EQ(ours.outcome, FastWalk::Outcome::kComplete) << round;
    ASSERT_GE(ours.pcs.size(), theirs.size()) << "glibc leaves out what it cannot name";
    EXPECT_TRUE(std::equal(theirs.begin() + 1, theirs.end(), ours.pcs.begin() + 1)) << round;
  }
  // What was met is kept, and the walk remembered.
  PackedStep step;
  std::size_t kept = 0;
  const Walked again = walk_here(512);
  for (const std::uint64_t pc : again.pcs) kept += RuleCache::View().find(pc, step) ? 1 : 0;
  EXPECT_GE(kept + 2, again.pcs.size());
  WalkRecord* record = WalkRecord::acquire();
  ASSERT_NE(record, nullptr);
  EXPECT_EQ(WalkRecord::acquire(), nullptr) << "it is in use";
  EXPECT_GE(record->size(), again.pcs.size());
  record->release();
}

[[gnu::noinline]] void a_part_of_it(std::size_t max) {
  const Walked whole = walk_here(512);
  for (int round = 0; round < 3; ++round) {  // the second is recognised
    const Walked part = walk_here(max);
    EXPECT_EQ(part.outcome, FastWalk::Outcome::kMore) << max;
    ASSERT_EQ(part.pcs.size(), max);
    EXPECT_TRUE(part.kept_within) << max;
    EXPECT_TRUE(std::equal(part.pcs.begin() + 1, part.pcs.end(), whole.pcs.begin() + 1)) << max;
  }
}

TEST(FastWalk, GoesTheWholeWayByItself) {
  for (const int depth : {3, 30, 60, 40, 3}) deeper<0>(depth, all_of_it, 0);
}

TEST(FastWalk, StopsWhereTheArrayEnds) {
  for (const std::size_t max : {1, 2, 5, 17, 40}) deeper<0>(50, a_part_of_it, max);
}

}  // namespace
}  // namespace windlass::walk
