// The stack of the last sample, against a walk that keeps nothing.
#include "alloc/kept_stack.h"

#include <gtest/gtest.h>

#include <csignal>
#include <cstdint>
#include <thread>
#include <vector>

#include "walk/own/record.h"
#include "windlass/backtrace.h"

namespace windlass::test {
namespace {

using windlass::alloc::KeptStack;
using windlass::alloc::kMaxFrames;

KeptStack kept_stack;  // too large for stacks
int compared = 0;

std::uint64_t hash_of(const std::vector<std::uint64_t>& pcs) {
  std::uint64_t hash = alloc::kHashOfNoFrames;
  for (std::size_t i = pcs.size(); i-- != 0;) hash = alloc::mixed(hash, pcs[i]);
  return hash;
}

[[gnu::noinline]] void compare() {
  const walk::FastWalkState caller{reinterpret_cast<std::uint64_t>(__builtin_return_address(0)),
                                   reinterpret_cast<std::uint64_t>(__builtin_dwarf_cfa()),
                                   *static_cast<const std::uint64_t*>(__builtin_frame_address(0))};
  ASSERT_TRUE(kept_stack.walk(caller, 0, 0));
  std::vector<std::uint64_t> pcs(kMaxFrames), expected(kMaxFrames);
  pcs.resize(kept_stack.frames(pcs.data()));
  expected.resize(backtrace(expected.data(), expected.size(), 1));
  alloc::mark_interrupted(expected);
  ASSERT_EQ(pcs, expected);
  ASSERT_EQ(kept_stack.hash_of_frames(), hash_of(expected));
  ++compared;
}

struct Random {
  std::uint64_t state = 88172645463325252;
  unsigned operator()(unsigned below) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return static_cast<unsigned>((state >> 20) % below);
  }
} random_number;

// Distinct frames, some with room that no frame size is known for.
template <int kRoom>
[[gnu::noinline]] void wander(int depth) {
  volatile char room[kRoom * 16 + 8];
  room[0] = static_cast<char>(depth);
  for (unsigned i = random_number(3) + 1; i != 0 && depth != 0; --i) {
    compare();
    switch (random_number(4)) {
      case 0: wander<1>(depth - 1); break;
      case 1: wander<3>(depth - 1); break;
      case 2: {
        volatile char* const more = static_cast<volatile char*>(__builtin_alloca(16 * (1 + random_number(20))));
        more[0] = 1;
        wander<0>(depth - 1);
        break;
      }
      default: compare();
    }
  }
  room[1] = room[0];
}

TEST(KeptStack, IsThatOfEachWalk) {
  compared = 0;
  for (int i = 0; i < 200; ++i) wander<2>(static_cast<int>(random_number(12)));
  EXPECT_GT(compared, 1000);
}

// The same inner frames, called from elsewhere: only the words on the stack tell.
[[gnu::noinline]] void inner(int depth) {
  if (depth != 0)
    inner(depth - 1);
  else
    compare();
  asm volatile("");
}
[[gnu::noinline]] void outer(int depth, bool other) {
  if (depth != 0)
    outer(depth - 1, other);
  else if (other)
    inner(6);
  else
    inner(6);
  asm volatile("");
}

TEST(KeptStack, SeesThatOuterFramesHaveChanged) {
  compared = 0;
  for (int i = 0; i < 50; ++i) outer(5, i % 2 == 0);
  EXPECT_EQ(compared, 50);
}

TEST(KeptStack, IsOfOneThreadAfterAnother) {
  compared = 0;
  for (int i = 0; i < 4; ++i) std::thread([] { wander<1>(6); }).join();
  wander<1>(6);
  EXPECT_GT(compared, 4);
}

TEST(KeptStack, GoesThroughASignalHandler) {
  compared = 0;
  std::signal(SIGUSR1, [](int) { outer(3, true); });
  for (int i = 0; i < 3; ++i) {
    outer(2, false);
    ASSERT_EQ(raise(SIGUSR1), 0);
  }
  std::signal(SIGUSR1, SIG_DFL);
  EXPECT_EQ(compared, 6);
}

[[gnu::noinline]] void recurse(int depth, void (*at_the_end)()) {
  if (depth != 0)
    recurse(depth - 1, at_the_end);
  else
    at_the_end();
  asm volatile("");
}

// Too many frames are left to others; the next stack is right again.
TEST(KeptStack, HasALimit) {
  compared = 0;
  compare();
  recurse(2 * static_cast<int>(kMaxFrames), [] {
    const walk::FastWalkState here{reinterpret_cast<std::uint64_t>(__builtin_return_address(0)),
                                   reinterpret_cast<std::uint64_t>(__builtin_dwarf_cfa()),
                                   *static_cast<const std::uint64_t*>(__builtin_frame_address(0))};
    EXPECT_FALSE(kept_stack.walk(here, 0, 0));
  });
  compare();
  EXPECT_EQ(compared, 2);
}

TEST(KeptStack, LeavesOutFrames) {
  const walk::FastWalkState caller{reinterpret_cast<std::uint64_t>(__builtin_return_address(0)),
                                   reinterpret_cast<std::uint64_t>(__builtin_dwarf_cfa()),
                                   *static_cast<const std::uint64_t*>(__builtin_frame_address(0))};
  ASSERT_TRUE(kept_stack.walk(caller, 0, 0));
  std::vector<std::uint64_t> all(kMaxFrames), rest(kMaxFrames);
  all.resize(kept_stack.frames(all.data()));
  ASSERT_GT(all.size(), 2u);
  static KeptStack other;
  ASSERT_TRUE(other.walk(caller, all[1], all[1] + 1));
  rest.resize(other.frames(rest.data()));
  all.erase(all.begin() + 1);
  EXPECT_EQ(rest, all);
  EXPECT_EQ(other.hash_of_frames(), hash_of(all));
}

TEST(KeptStack, IsNotEnteredTwice) {
  static KeptStack stack;
  for (const bool alone : {true, false}) {
    ASSERT_TRUE(stack.enter(alone));
    EXPECT_FALSE(stack.enter(alone));
    stack.leave();
  }
}

}  // namespace
}  // namespace windlass::test
