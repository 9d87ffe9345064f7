// A batch that waits on disk is the batch that the store gets.
#include <gtest/gtest.h>

#include <string>

#include "profiler/store/packed_batch.h"
#include "support/store_contract.h"

namespace windlass::testing {
namespace {

store::OwnedBatch owned(const KeptBatch& batch) {
  return {batch.id, batch.begin_ns, batch.end_ns, batch.profile, 77, {1, 100}};
}

TEST(PackedBatch, AStoreKeepsTheSame) {
  RandomProfiles random(5);
  StoreReference reference, unpacked;
  for (std::uint64_t i = 0; i < 8; ++i) {
    KeptBatch batch = batch_at(i, random.make(80));
    batch.profile.comments.push_back("a comment");
    const auto packed = store::pack_batch(owned(batch));
    ASSERT_TRUE(packed.has_value());
    const auto again = store::unpack_batch(*packed);
    ASSERT_TRUE(again.has_value()) << again.error().text();
    EXPECT_EQ(again->id.host, batch.id.host);
    EXPECT_EQ(again->id.agent_start_ns, batch.id.agent_start_ns);
    EXPECT_EQ(again->id.sequence, batch.id.sequence);
    EXPECT_EQ(again->samples, 77u);
    EXPECT_EQ(again->scales, (std::vector<std::uint64_t>{1, 100}));
    EXPECT_EQ(again->profile.lost, batch.profile.lost);
    EXPECT_EQ(again->profile.duration_ns, batch.profile.duration_ns);
    EXPECT_EQ(again->profile.comments, batch.profile.comments);
    EXPECT_EQ(again->profile.ends_known, batch.profile.ends_known);
    reference.append(batch);
    unpacked.append({again->id, again->begin_ns, again->end_ns, again->profile});
    // Whatever a store keeps is packed: a second time gives the same bytes.
    const auto twice = store::pack_batch(*again);
    ASSERT_TRUE(twice.has_value());
    EXPECT_EQ(*twice, *packed);
  }
  const std::uint64_t end = kStart + 8 * kTenSeconds;
  EXPECT_TRUE(reference.stacks({}, kStart, end) == unpacked.stacks({}, kStart, end));
  EXPECT_TRUE(reference.series({}, kStart, end, kTenSeconds) == unpacked.series({}, kStart, end, kTenSeconds));
}

TEST(PackedBatch, BytesThatAreNoneAreRefused) {
  RandomProfiles random(6);
  const auto packed = store::pack_batch(owned(batch_at(0, random.make(20))));
  ASSERT_TRUE(packed.has_value());
  EXPECT_FALSE(store::unpack_batch("").has_value());
  EXPECT_FALSE(store::unpack_batch("no batch at all").has_value());
  for (std::size_t size = 0; size < packed->size(); size += 7)
    EXPECT_FALSE(store::unpack_batch(packed->substr(0, size)).has_value()) << size;
  for (std::size_t at = 0; at < packed->size(); at += 5) {
    std::string changed = *packed;
    changed[at] = static_cast<char>(changed[at] ^ 0x40);
    (void)store::unpack_batch(changed);  // refused, or other contents: no crash
  }
}

}  // namespace
}  // namespace windlass::testing
