#include "profiler/samples/event_queue.h"

#include <gtest/gtest.h>

namespace windlass::profiler {
namespace {

TEST(EventQueue, HandsOutInTimeOrderAcrossRingsAndKeepsTheYoung) {
  EventQueue queue;
  const std::uint64_t now = 10 * EventQueue::kSlackNs;
  std::vector<std::uint64_t> seen;
  const auto process = [&](std::uint64_t time) {
    ProcessEvent event;
    event.time = time;
    queue.push(std::move(event));
  };
  const auto kernel = [&](std::uint64_t time) {
    wl_event_head head{};
    head.time = time;
    queue.push(head, sizeof head);
  };
  const auto take = [&](std::uint64_t until) {
    queue.take(
        until, [&](const ProcessEvent& event) { seen.push_back(event.time); },
        [&](const wl_event_head& head, std::size_t size) {
          EXPECT_EQ(size, sizeof head);
          seen.push_back(head.time);
        });
  };
  process(5);
  process(9);
  kernel(3);
  kernel(7);
  kernel(now);  // another ring may still deliver something older
  take(now);
  EXPECT_EQ(seen, (std::vector<std::uint64_t>{3, 5, 7, 9}));
  process(now - 1);
  take(now + EventQueue::kSlackNs);
  EXPECT_EQ(seen, (std::vector<std::uint64_t>{3, 5, 7, 9, now - 1, now}));
  EXPECT_TRUE(queue.empty());
}

// A process's exec and its first mapping, say, which one clock gives the same time.
TEST(EventQueue, EventsOfOneTimeStayInOrder) {
  EventQueue queue;
  for (std::uint32_t tgid = 1; tgid <= 20; ++tgid) {
    ProcessEvent event;
    event.time = 5;
    event.tgid = tgid;
    queue.push(std::move(event));
  }
  std::uint32_t last = 0;
  queue.take(
      10 * EventQueue::kSlackNs, [&](const ProcessEvent& event) { EXPECT_EQ(event.tgid, ++last); },
      [](const wl_event_head&, std::size_t) {});
  EXPECT_EQ(last, 20u);
}

TEST(EventQueue, WhatThereIsNoTimeForWaits) {
  EventQueue queue;
  for (std::uint64_t time = 5; time != 0; --time) {
    wl_event_head head{};
    head.time = time;
    queue.push(head, sizeof head);
  }
  std::vector<std::uint64_t> seen;
  const auto take = [&](std::size_t most) {
    seen.clear();
    return queue.take(
        10 * EventQueue::kSlackNs, [](const ProcessEvent&) {},
        [&](const wl_event_head& head, std::size_t) { seen.push_back(head.time); }, [&] { return seen.size() < most; });
  };
  EXPECT_FALSE(take(2));
  EXPECT_EQ(seen, (std::vector<std::uint64_t>{1, 2}));
  EXPECT_FALSE(queue.empty());
  EXPECT_TRUE(take(9));
  EXPECT_EQ(seen, (std::vector<std::uint64_t>{3, 4, 5}));
  EXPECT_TRUE(queue.empty());
}

TEST(EventQueue, FullMeansNoWaiting) {
  EventQueue queue;
  std::vector<std::uint64_t> big((sizeof(wl_event_head) + (16u << 20)) / 8);
  auto& head = reinterpret_cast<wl_event_head&>(big[0]);
  for (std::uint64_t time = 1; !queue.full(); ++time) {
    head.time = time;
    queue.push(head, big.size() * 8);
  }
  std::size_t taken = 0;
  queue.take(
      100, [](const ProcessEvent&) {}, [&](const wl_event_head&, std::size_t) { ++taken; });
  EXPECT_GE(taken, 8u);
  EXPECT_TRUE(queue.empty());
  EXPECT_FALSE(queue.full());
}

// Or it would stay full while more comes than can be worked off.
TEST(EventQueue, AFullOneHandsOutWhatCameLaterToo) {
  EventQueue queue;
  std::vector<std::uint64_t> bytes(EventQueue::kMaxBytes / 8 / 4 + 1);
  auto& head = *reinterpret_cast<wl_event_head*>(bytes.data());
  for (std::uint64_t time = 1'000'000; !queue.full(); ++time) {
    head.time = time;
    queue.push(head, bytes.size() * 8);
  }
  std::size_t handed = 0;
  queue.take(
      500'000, [](const ProcessEvent&) {}, [&](const wl_event_head&, std::size_t) { ++handed; });
  EXPECT_EQ(handed, 4U);
  EXPECT_TRUE(queue.empty());
  EXPECT_FALSE(queue.full());
}

}  // namespace
}  // namespace windlass::profiler
