// Threads at the same place, of stacks made by hand.
#include "walk/target/equal_stacks.h"

#include <gtest/gtest.h>

#include <deque>
#include <vector>

namespace windlass::walk {
namespace {

using Groups = std::vector<std::vector<std::size_t>>;

class EqualStacks : public testing::Test {
 protected:
  ThreadStack& add(const std::vector<std::uint32_t>& addresses) {
    threads_.emplace_back().id = threads_.size() + 100;
    ThreadStack& stack = stacks_.emplace_back();
    stack.thread = &threads_.back();
    for (const std::uint32_t address : addresses) stack.frames.emplace_back().address = address;
    return stack;
  }
  [[nodiscard]] Groups groups() const { return equal_stacks(stacks_); }
  Thread& thread() { return threads_.back(); }

 private:
  std::deque<Thread> threads_;  // which stay where they are
  std::vector<ThreadStack> stacks_;
};

TEST_F(EqualStacks, GroupsAreInTheOrderOfTheirFirstThread) {
  for (const auto& stack : {std::vector<std::uint32_t>{1, 2}, {3, 2}, {1, 2}, {1}, {3, 2}, {1, 2}}) add(stack);
  EXPECT_EQ(groups(), (Groups{{0, 2, 5}, {1, 4}, {3}}));
}

TEST_F(EqualStacks, WhateverIsShownTellsThemApart) {
  add({1, 2});
  add({1, 2}).frames[1].certainty = FrameCertainty::kGuessed;
  add({1, 2}).frames[0].origin = FrameOrigin::kCfi;
  add({1, 2}).frames[0].signal_frame = true;
  ThreadStack& lost = add({1, 2});
  lost.end = WalkEnd::kLost;
  lost.error = Error{ErrorCode::kNotFound, "no rows", 0x1000};
  EXPECT_EQ(groups(), (Groups{{0}, {1}, {2}, {3}, {4}}));
}

// The address of the error is that of each thread's stack.
TEST_F(EqualStacks, UnfinishedStacksAreEqualByTheReason) {
  for (const std::uint64_t where : {0x1000, 0x2000}) {
    ThreadStack& lost = add({1});
    lost.end = WalkEnd::kLost;
    lost.error = Error{ErrorCode::kNotFound, "no rows", where};
  }
  add({1}).end = WalkEnd::kLost;
  EXPECT_EQ(groups(), (Groups{{0, 1}, {2}}));
}

TEST_F(EqualStacks, TheThreadThatCrashedIsAlone) {
  add({1});
  add({1});
  thread().faulted = true;
  add({1});
  EXPECT_EQ(groups(), (Groups{{0, 2}, {1}}));
}

TEST_F(EqualStacks, WorkersOfTheKernelAreNoThreadsWithoutFrames) {
  add({});
  thread().kernel_only = true;
  add({});
  add({});
  thread().kernel_only = true;
  EXPECT_EQ(groups(), (Groups{{0, 2}, {1}}));
}

TEST(IdRanges, AreShort) {
  EXPECT_EQ(id_ranges(std::vector<std::uint64_t>{7}, 4), "7");
  EXPECT_EQ(id_ranges(std::vector<std::uint64_t>{7, 8}, 4), "7-8");
  EXPECT_EQ(id_ranges(std::vector<std::uint64_t>{7, 9, 10, 11, 20}, 4), "7, 9-11, 20");
  EXPECT_EQ(id_ranges(std::vector<std::uint64_t>{1, 3, 5, 7, 8, 9}, 3), "1, 3, 5, 3 more");
  EXPECT_EQ(id_ranges({}, 3), "");
}

}  // namespace
}  // namespace windlass::walk
