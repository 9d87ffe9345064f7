// Functions come, move and go while threads look them up, in signal handlers too, which interrupt the writers as well.
// What is found always belongs together: a function's place, number, name and rows say the same.
#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <charconv>
#include <chrono>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "support/managed_rows.h"
#include "windlass/jit/code_manager.h"

namespace windlass {
namespace {

#if defined(__SANITIZE_THREAD__)
constexpr int kRounds = 1500;
#else
constexpr int kRounds = 20'000;
#endif

constexpr std::uint64_t kBegin = 0x40'0000'0000;
constexpr std::uint32_t kSlot = 1024, kSlots = 64;  // a slot has one function at a time, or none; a quarter a writer's
constexpr std::uint32_t kStays = kSlots * kSlot;    // a function behind them that stays

struct Counts {
  std::atomic<std::uint64_t> found, none, given_up, wrong, handled, lasting_lost;
};
Counts counts;
const CodeManagerReader* reader = nullptr;

// What a function is like, by its number.
std::uint64_t size_of(std::uint32_t number) { return 16 + number % 900; }
std::int32_t frame_of(std::uint32_t number) { return static_cast<std::int32_t>(32 + number % 37 * 8); }

bool belongs_together(std::uint64_t address) {
  const auto found = reader->find(address);
  if (!found) {
    (found.error().code == ErrorCode::kNotFound ? counts.none : counts.given_up)
        .fetch_add(1, std::memory_order_relaxed);
    return found.error().code == ErrorCode::kNotFound || found.error().code == ErrorCode::kLimit;
  }
  counts.found.fetch_add(1, std::memory_order_relaxed);
  if (address < found->begin || address >= found->begin + found->size || found->size != size_of(found->user))
    return false;
  // Others may have come there since, so each answer is judged by itself.
  char room[64];
  if (const auto name = reader->name(address, room); name) {
    std::uint32_t number = 0;
    const auto read = std::from_chars(name->data() + 1, name->data() + name->size(), number);
    if ((*name)[0] != 'f' || read.ptr != name->data() + name->size()) return false;
    if (name->size() < 2) return false;
  }
  FrameRow row;
  if (reader->row_at(address, row))
    if (address < row.begin || address >= row.end || row.cfa.kind() != CfaRule::kRegister || row.registers.size() > 1 ||
        row.cfa.offset() % 8 != 0)
      return false;
  return true;
}

// By a handler that may have interrupted a writer in the middle of a change.
void look_around(std::uint32_t seed) {
  std::minstd_rand random(seed);
  for (int i = 0; i < 8; ++i)
    if (!belongs_together(kBegin + random() % (kSlots * kSlot))) counts.wrong.fetch_add(1);
  const auto lasting = reader->find(kBegin + kStays + 99);
  if (!lasting && lasting.error().code == ErrorCode::kLimit) return;
  if (!lasting || lasting->begin != kBegin + kStays || lasting->user != 84) counts.lasting_lost.fetch_add(1);
}

void on_signal(int) {
  const int saved = errno;
  look_around(static_cast<std::uint32_t>(counts.handled.fetch_add(1, std::memory_order_relaxed)));
  errno = saved;
}

struct Made {
  std::uint32_t number = 0;
  std::string name;
  std::vector<FrameRow> rows;
  GeneratedFunction function;
};

Made make(std::uint32_t slot, std::uint32_t number) {
  Made made{number, "f" + std::to_string(number), test::managed_rows(size_of(number), frame_of(number)), {}};
  made.function = {kBegin + slot * kSlot + number % (kSlot - size_of(number) + 1), size_of(number), {}, number, {}};
  return made;
}

void churn(CodeManager& manager, std::uint32_t writer, std::atomic<int>& writing) {
  std::mt19937 random(writer);
  std::uint64_t there[kSlots] = {};
  for (int round = 0; round < kRounds; ++round) {
    const std::uint32_t slot = writer * (kSlots / 4) + random() % (kSlots / 4);
    std::vector<std::uint64_t> gone;
    std::vector<GeneratedFunction> come;
    Made made;
    if (there[slot] != 0) gone.push_back(there[slot]);
    there[slot] = 0;
    if (random() % 4 != 0) {
      made = make(slot, random() % 100'000);
      made.function.name = made.name;
      made.function.rows = made.rows;
      come.push_back(made.function);
      there[slot] = made.function.address;
    }
    const auto updated = manager.update(gone, come);
    if (!updated) ADD_FAILURE() << updated.error().text();
  }
  --writing;
}

TEST(CodeManagerChurn, WhatIsFoundBelongsTogether) {
  // Little room, so that all of it is used again and again.
  auto manager = CodeManager::create(kBegin, kBegin + kStays + 4096,
                                     {.functions = kSlots + 2, .shape_bytes = 40'000, .name_bytes = 2000});
  ASSERT_TRUE(manager);
  reader = &manager->reader();
  ASSERT_TRUE(manager->add({{kBegin + kStays, size_of(84), "f84", 84, {}}}));
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  ASSERT_EQ(::sigaction(SIGUSR1, &action, nullptr), 0);

  std::atomic<int> writing = 4;
  std::vector<std::thread> threads;
  for (std::uint32_t i = 0; i < 4; ++i) threads.emplace_back([&, i] { churn(*manager, i, writing); });
  for (std::uint32_t i = 0; i < 2; ++i)
    threads.emplace_back([&, i] {
      for (std::uint32_t seed = i; writing != 0; seed += 2) look_around(seed);
    });
  while (writing != 0) {
    for (std::thread& thread : threads) ::pthread_kill(thread.native_handle(), SIGUSR1);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(counts.wrong, 0u);
  EXPECT_EQ(counts.lasting_lost, 0u);
  EXPECT_GT(counts.found, 100u);
  EXPECT_GT(counts.handled, 20u);
  std::printf("%lu found, %lu none, %lu given up, %lu signals\n", counts.found.load(), counts.none.load(),
              counts.given_up.load(), counts.handled.load());
}

}  // namespace
}  // namespace windlass
