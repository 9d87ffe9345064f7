// Batches wait for a store that takes none, in bounded number, and what is dropped is counted.
#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "profiler/store/batch_queue.h"
#include "support/events_profile.h"

namespace windlass::testing {
namespace {

class UnwillingStore final : public store::ProfileStore {
 public:
  Expected<bool> append(const store::Batch& batch) override {
    if (refusal) return Failure(*refusal);
    taken.push_back(batch.id.sequence);
    lost += batch.profile.lost;
    return true;
  }
  Expected<std::optional<store::Extent>> extent() override { return std::nullopt; }
  Expected<std::vector<std::string>> labels() override { return nothing(); }
  Expected<std::vector<std::string>> values(std::string_view) override { return nothing(); }
  Expected<std::vector<store::Series>> series(const store::Filter&, std::uint64_t, std::uint64_t,
                                              std::uint64_t) override {
    return nothing();
  }
  Expected<std::vector<store::Total>> totals(std::string_view, const store::Filter&, std::uint64_t,
                                             std::uint64_t) override {
    return nothing();
  }
  Expected<store::Stacks> stacks(const store::Filter&, std::uint64_t, std::uint64_t) override { return nothing(); }
  Expected<store::Frames> frames(std::span<const std::uint64_t>) override { return nothing(); }

  std::optional<Error> refusal;
  std::vector<std::uint64_t> taken;
  std::uint64_t lost = 0;

 private:
  static Failure nothing() { return fail(ErrorCode::kNotFound, "nothing", 0); }
};

constexpr std::uint64_t kSamples = 48;  // of events_profile()
const Error kBusy{ErrorCode::kSystem, "busy", 0, 0};

store::OwnedBatch numbered(std::uint64_t number) {
  store::OwnedBatch batch{
      .id = {"host", 1, number}, .begin_ns = 0, .end_ns = 1, .profile = events_profile(), .samples = kSamples};
  batch.profile.lost = 1;
  return batch;
}

TEST(BatchQueue, WaitsInOrder) {
  UnwillingStore store;
  store::BatchQueue queue(store, 3);
  store.refusal = kBusy;
  for (std::uint64_t i = 0; i < 3; ++i) {
    queue.add(numbered(i));
    EXPECT_FALSE(queue.flush().has_value());
  }
  EXPECT_EQ(queue.waiting(), 3u);
  store.refusal.reset();
  EXPECT_TRUE(queue.flush().has_value());
  EXPECT_EQ(store.taken, (std::vector<std::uint64_t>{0, 1, 2}));
  EXPECT_EQ(store.lost, 3u);
  EXPECT_EQ(queue.kept_samples(), 3 * kSamples);
  EXPECT_EQ(queue.dropped_samples(), 0u);
}

TEST(BatchQueue, TheOldestIsDroppedAndCounted) {
  UnwillingStore store;
  store::BatchQueue queue(store, 2);
  store.refusal = kBusy;
  for (std::uint64_t i = 0; i < 5; ++i) queue.add(numbered(i));
  EXPECT_EQ(queue.waiting(), 2u);
  EXPECT_EQ(queue.dropped_samples(), 3 * kSamples);
  store.refusal.reset();
  EXPECT_TRUE(queue.flush().has_value());
  EXPECT_EQ(store.taken, (std::vector<std::uint64_t>{3, 4}));
  EXPECT_EQ(store.lost, 5 + 3 * kSamples);
  EXPECT_EQ(queue.kept_batches(), 2u);
}

TEST(BatchQueue, ABatchThatCanNeverBeTakenHoldsUpNone) {
  UnwillingStore store;
  store::BatchQueue queue(store, 1);
  store.refusal = Error{ErrorCode::kOutOfRange, "wrong", 0, 0};
  queue.add(numbered(0));
  EXPECT_FALSE(queue.flush().has_value());
  EXPECT_EQ(queue.waiting(), 0u);
  store.refusal.reset();
  queue.add(numbered(1));
  EXPECT_TRUE(queue.flush().has_value());
  EXPECT_EQ(store.taken, std::vector<std::uint64_t>{1});
  EXPECT_EQ(store.lost, 2 + kSamples);
}

}  // namespace
}  // namespace windlass::testing
