// What is handed in is freed when it must, and never while a reader that can have found it is in.
#include "base/grace_period.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

namespace windlass {
namespace {

using Reader = GracePeriod::Reader;

struct Counted {
  explicit Counted(int& freed) : freed_(freed) {}
  ~Counted() { ++freed_; }
  int& freed_;
};

TEST(GracePeriod, FreesAtOnceWhereNobodyReads) {
  GracePeriod period;
  int freed = 0;
  for (int i = 1; i <= 5; ++i) {
    period.retire(new Counted(freed));
    EXPECT_EQ(freed, i);
  }
  EXPECT_EQ(period.waiting(), 0u);
}

TEST(GracePeriod, WaitsForTheReadersWhoWereIn) {
  GracePeriod period;
  int freed = 0;
  Reader first(period);
  for (int i = 0; i < 10; ++i) {
    const Reader another(period);
    period.retire(new Counted(freed));
  }
  EXPECT_EQ(freed, 0);
  EXPECT_EQ(period.waiting(), 10u);
  first.leave();
  period.retire(new Counted(freed));
  EXPECT_EQ(freed, 11);
}

TEST(GracePeriod, IsNotHeldUpByReadersWhoCameLater) {
  GracePeriod period;
  int freed = 0;
  int later_freed = 0;
  auto first = std::make_unique<Reader>(period);
  period.retire(new Counted(freed));
  first.reset();
  Reader later(period);  // of the first phase that nobody else is in
  period.retire(new Counted(later_freed));
  EXPECT_EQ(later_freed, 0);
  for (int i = 0; i < 3; ++i) period.retire(new Counted(later_freed));
  EXPECT_EQ(freed, 1);
  EXPECT_EQ(later_freed, 0);
  later.leave();
  period.retire(new Counted(freed));
  EXPECT_EQ(later_freed, 4);
  EXPECT_EQ(period.waiting(), 0u);
}

TEST(GracePeriod, AReaderIsInOnce) {
  GracePeriod period;
  int freed = 0;
  Reader reader(period);
  reader.enter(period);
  reader.leave();
  reader.leave();
  period.retire(new Counted(freed));
  EXPECT_EQ(freed, 1);
}

// A word that is replaced all the time: readers never see one that was freed (sanitizers do, too), and all are freed.
TEST(GracePeriod, ManyReadersAndWriters) {
  struct Word {
    ~Word() {
      value = 0;
      alive().fetch_sub(1);
    }
    static std::atomic<int>& alive() {
      static std::atomic<int> count = 0;
      return count;
    }
    std::atomic<int> value = 0x5a5a;
  };
  GracePeriod period;
  Word::alive() = 1;
  std::atomic<Word*> current = new Word;
  std::atomic<bool> done = false;
  std::atomic<int> wrong = 0;
  std::vector<std::thread> readers, writers;
  for (int i = 0; i < 3; ++i)
    readers.emplace_back([&] {
      while (!done) {
        const Reader reader(period);
        const Word* word = current.load(std::memory_order_acquire);
        for (int j = 0; j < 20; ++j) wrong += word->value.load(std::memory_order_relaxed) != 0x5a5a;
      }
    });
  for (int i = 0; i < 2; ++i)
    writers.emplace_back([&] {
      for (int j = 0; j < 20'000; ++j) {
        Word::alive().fetch_add(1);
        period.retire(current.exchange(new Word));
      }
    });
  for (std::thread& writer : writers) writer.join();
  done = true;
  for (std::thread& reader : readers) reader.join();
  period.retire(current.exchange(nullptr));
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(Word::alive(), 0);
  EXPECT_EQ(period.waiting(), 0u);
}

}  // namespace
}  // namespace windlass
