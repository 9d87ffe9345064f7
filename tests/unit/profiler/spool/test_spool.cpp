// A spool keeps order, survives restarts and crashes, and counts all that it drops.
#include <gtest/gtest.h>

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <fstream>
#include <string>
#include <vector>

#include "spool_folder.h"

namespace windlass::testing {
namespace {

using Texts = std::vector<std::string>;
constexpr std::uint64_t kBlock = 4096;  // the least room of a batch

std::uint64_t appended(spool::Spool& spool, std::string_view bytes, std::uint64_t samples = 0) {
  const auto sequence = spool.append(bytes, samples);
  EXPECT_TRUE(sequence.has_value()) << sequence.error().text();
  return sequence.value();
}

TEST(Spool, KeepsOrderAndContents) {
  const SpoolFolder folder;
  auto spool = folder.open();
  const std::string zeros(10'000, '\0');
  for (const std::string& text : {std::string("first"), zeros, std::string(), std::string("last")})
    appended(spool, text, 7);
  EXPECT_EQ(spool.counters().batches, 4u);
  EXPECT_EQ(spool.counters().bytes, 6 * kBlock);
  EXPECT_EQ(take_all(spool), (Texts{"first", zeros, "", "last"}));
  EXPECT_EQ(spool.counters().batches, 0u);
  EXPECT_EQ(spool.counters().bytes, 0u);
  EXPECT_EQ(spool.counters().acknowledged_batches, 4u);
  EXPECT_EQ(spool.counters().acknowledged_samples, 28u);
  EXPECT_TRUE(folder.files().empty());
}

TEST(Spool, GivesTheSameBatchUntilItIsAcknowledged) {
  const SpoolFolder folder;
  auto spool = folder.open();
  const std::uint64_t sequence = appended(spool, "a", 3);
  for (int i = 0; i < 2; ++i) {
    const auto batch = spool.oldest();
    ASSERT_TRUE(batch.has_value() && batch->has_value());
    EXPECT_EQ((*batch)->sequence, sequence);
    EXPECT_EQ((*batch)->samples, 3u);
  }
  EXPECT_TRUE(spool.acknowledge(sequence));
  EXPECT_FALSE(spool.acknowledge(sequence));
  EXPECT_FALSE(spool.reject(sequence));
}

TEST(Spool, CountsBatchesOfEarlierOpeningsApart) {
  const SpoolFolder folder;
  std::uint64_t first = 0;
  {
    auto spool = folder.open();
    first = spool.first();
    EXPECT_EQ(appended(spool, "a", 3), first);
  }
  {
    auto spool = folder.open();
    appended(spool, "b", 4);
    EXPECT_EQ(take_all(spool), (Texts{"a", "b"}));
    EXPECT_EQ(spool.counters().acknowledged_samples, 7u);
    EXPECT_EQ(spool.counters().earlier_samples, 3u);
    EXPECT_EQ(spool.counters().earlier_batches, 1u);
    appended(spool, "c", 5);
  }
  auto again = folder.open();
  again.set_first(first);  // of the same agent, which has read its options again
  EXPECT_EQ(take_all(again), Texts{"c"});
  EXPECT_EQ(again.counters().earlier_batches, 0u);
}

TEST(Spool, RestartsWithWhatWaits) {
  const SpoolFolder folder;
  std::uint64_t last = 0;
  {
    auto spool = folder.open();
    for (const char* text : {"a", "b", "c"}) last = appended(spool, text);
    const auto first = spool.oldest();
    ASSERT_TRUE(first.has_value() && first->has_value());
    spool.acknowledge((*first)->sequence);
  }
  auto spool = folder.open();
  EXPECT_EQ(spool.counters().batches, 2u);
  EXPECT_GT(appended(spool, "d"), last);
  EXPECT_EQ(take_all(spool), (Texts{"b", "c", "d"}));
}

TEST(Spool, CountsWhatTheServerDoesNotTakeOfABatch) {
  const SpoolFolder folder;
  auto spool = folder.open();
  for (const char* text : {"a", "b"}) appended(spool, text, 10);
  EXPECT_TRUE(spool.acknowledge((*spool.oldest())->sequence, 3));
  EXPECT_EQ(spool.counters().acknowledged_samples, 7u);
  EXPECT_EQ(spool.counters().acknowledged_batches, 1u);
  EXPECT_EQ(spool.counters().dropped_samples, 3u);
  EXPECT_EQ(spool.counters().dropped_batches, 1u);
  EXPECT_TRUE(spool.acknowledge((*spool.oldest())->sequence, 10));
  EXPECT_EQ(spool.counters().acknowledged_batches, 1u) << "nothing of it was taken";
  EXPECT_EQ(spool.counters().dropped_samples, 13u);
  EXPECT_EQ(spool.counters().batches, 0u);
}

// A server may tell repeated batches by their sequence.
TEST(Spool, SequencesRiseThoughNothingWaited) {
  const SpoolFolder folder;
  std::uint64_t last = 0;
  for (int run = 0; run < 3; ++run) {
    auto spool = folder.open();
    const std::uint64_t sequence = appended(spool, "a");
    EXPECT_GT(sequence, last);
    last = sequence;
    take_all(spool);
  }
  std::filesystem::remove(folder.path() + "/openings");
  {
    auto spool = folder.open();
    appended(spool, "a");
  }
  std::filesystem::remove(folder.path() + "/openings");
  auto spool = folder.open();  // from the batch that waits
  const std::uint64_t sequence = appended(spool, "b");
  const auto first = spool.oldest();
  ASSERT_TRUE(first.has_value() && first->has_value());
  EXPECT_GT(sequence, (*first)->sequence);
}

TEST(Spool, DropsTheOldestForRoom) {
  const SpoolFolder folder;
  auto spool = folder.open(3 * kBlock);
  for (const char* text : {"a", "b", "c", "d", "e"}) appended(spool, text, 10);
  EXPECT_EQ(spool.counters().bytes, 3 * kBlock);
  EXPECT_EQ(spool.counters().dropped_batches, 2u);
  EXPECT_EQ(spool.counters().dropped_samples, 20u);
  EXPECT_EQ(folder.files().size(), 3u);
  EXPECT_EQ(take_all(spool), (Texts{"c", "d", "e"}));
}

// It may have reached the server already: to drop it would count samples twice.
TEST(Spool, KeepsTheBatchThatIsBeingSent) {
  const SpoolFolder folder;
  auto spool = folder.open(2 * kBlock);
  appended(spool, "a", 1);
  ASSERT_TRUE(spool.oldest().has_value());
  for (const char* text : {"b", "c"}) appended(spool, text, 1);
  EXPECT_EQ(spool.counters().dropped_samples, 1u);
  const auto large = spool.append(std::string(kBlock + 1, 'x'), 5);  // room but for "a"
  ASSERT_FALSE(large.has_value());
  EXPECT_EQ(large.error().code, ErrorCode::kLimit);
  EXPECT_EQ(spool.counters().dropped_samples, 7u);
  EXPECT_EQ(take_all(spool), (Texts{"a"}));
}

TEST(Spool, RefusesABatchLargerThanAllRoom) {
  const SpoolFolder folder;
  auto spool = folder.open(2 * kBlock);
  appended(spool, "a", 1);
  const auto large = spool.append(std::string(2 * kBlock, 'x'), 5);
  ASSERT_FALSE(large.has_value());
  EXPECT_EQ(large.error().code, ErrorCode::kLimit);
  EXPECT_EQ(spool.counters().dropped_batches, 1u);
  EXPECT_EQ(spool.counters().dropped_samples, 5u);
  EXPECT_EQ(take_all(spool), (Texts{"a"}));
}

TEST(Spool, ASmallerBoundHoldsFromTheStart) {
  const SpoolFolder folder;
  {
    auto spool = folder.open();
    for (const char* text : {"a", "b", "c"}) appended(spool, text, 4);
  }
  auto spool = folder.open(kBlock);
  EXPECT_EQ(spool.counters().dropped_samples, 8u);
  EXPECT_EQ(take_all(spool), (Texts{"c"}));
}

TEST(Spool, RejectedBatchesCountAsDropped) {
  const SpoolFolder folder;
  auto spool = folder.open();
  EXPECT_TRUE(spool.reject(appended(spool, "a", 9)));
  EXPECT_EQ(spool.counters().dropped_batches, 1u);
  EXPECT_EQ(spool.counters().dropped_samples, 9u);
  EXPECT_EQ(spool.counters().acknowledged_batches, 0u);
  EXPECT_TRUE(take_all(spool).empty());
}

TEST(Spool, FindsTornBatches) {
  const SpoolFolder folder;
  {
    auto spool = folder.open();
    for (const char* text : {"shorter", "longer", "changed", "empty", "samples", "whole"}) appended(spool, text, 1);
  }
  const auto files = folder.files();
  ASSERT_EQ(files.size(), 6u);
  const auto put = [&](std::size_t file, std::uint64_t at, char byte) {
    std::fstream(files[file], std::ios::in | std::ios::out | std::ios::binary).seekp(static_cast<long>(at)).put(byte);
  };
  std::filesystem::resize_file(files[0], std::filesystem::file_size(files[0]) - 1);
  std::filesystem::resize_file(files[1], std::filesystem::file_size(files[1]) + 1);
  put(2, std::filesystem::file_size(files[2]) - 1, 'D');
  std::filesystem::resize_file(files[3], 0);
  put(4, 16, 2);
  std::ofstream(files[5].string().substr(0, files[5].string().size() - 1) + "f.new") << "half of a ba";
  auto spool = folder.open();
  EXPECT_EQ(take_all(spool), (Texts{"whole"}));
  EXPECT_EQ(spool.counters().torn_batches, 6u);
  EXPECT_EQ(spool.counters().dropped_batches, 0u);
  EXPECT_TRUE(folder.files().empty());
}

TEST(Spool, LeavesOtherFilesAlone) {
  const SpoolFolder folder;
  { auto spool = folder.open(); }
  const std::string other = folder.path() + "/README.new", link = folder.path() + "/0000000100000000";
  std::ofstream(other) << "of somebody";
  std::filesystem::create_symlink(other, link);
  auto spool = folder.open();
  EXPECT_EQ(spool.counters().batches, 0u);
  appended(spool, "a");
  EXPECT_EQ(take_all(spool), (Texts{"a"}));
  EXPECT_TRUE(std::filesystem::exists(other));
}

TEST(Spool, BelongsToOneAtATime) {
  const SpoolFolder folder;
  const auto spool = folder.open();
  const auto second = spool::Spool::open(folder.path(), kBlock);
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().detail, static_cast<std::uint64_t>(EBUSY));
}

TEST(Spool, SaysWhyAFolderCannotBeUsed) {
  const SpoolFolder folder;
  const auto none = spool::Spool::open(folder.path() + "/above/spool", kBlock);
  ASSERT_FALSE(none.has_value());
  EXPECT_EQ(none.error().detail, static_cast<std::uint64_t>(ENOENT));
}

// A write that fails half-way, as on a full disk, leaves nothing behind.
TEST(Spool, CountsWhatTheDiskDoesNotTake) {
  const SpoolFolder folder;
  auto spool = folder.open();
  appended(spool, "before", 1);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{.rlim_cur = 1000, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const auto refused = spool.append(std::string(5000, 'x'), 11);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().detail, static_cast<std::uint64_t>(EFBIG));
  EXPECT_EQ(spool.counters().dropped_samples, 11u);
  appended(spool, "after", 1);
  EXPECT_EQ(folder.files().size(), 2u);
  EXPECT_EQ(take_all(spool), (Texts{"before", "after"}));
}

// A process is killed in mid-append again and again: what it has told of is there, whole and in order.
TEST(Spool, SurvivesSigkill) {
  const SpoolFolder folder;
  std::uint64_t told = 0;
  for (int round = 0; round < 5; ++round) {
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    const pid_t child = fork();
    if (child == 0) {
      auto spool = folder.open(std::uint64_t{1} << 30);
      for (std::uint64_t i = told;; ++i) {
        const std::string bytes = std::to_string(i) + std::string(20'000 + i * 100, 'x');
        if (!spool.append(bytes) || write(ends[1], "", 1) != 1) _exit(1);
      }
    }
    close(ends[1]);
    char byte = 0;
    for (int i = 0; i < 3 + round; ++i) {
      ASSERT_EQ(read(ends[0], &byte, 1), 1);
      ++told;
    }
    kill(child, SIGKILL);
    while (read(ends[0], &byte, 1) == 1) ++told;
    close(ends[0]);
    ASSERT_EQ(waitpid(child, nullptr, 0), child);
    auto spool = folder.open(std::uint64_t{1} << 30);
    // The last batch may have been finished, and not told of.
    ASSERT_GE(spool.counters().batches, told);
    ASSERT_LE(spool.counters().batches, told + 1);
    told = spool.counters().batches;
  }
  auto spool = folder.open(std::uint64_t{1} << 30);
  const Texts all = take_all(spool);
  ASSERT_EQ(all.size(), told);
  for (std::uint64_t i = 0; i < told; ++i) EXPECT_EQ(all[i], std::to_string(i) + std::string(20'000 + i * 100, 'x'));
  EXPECT_EQ(spool.counters().torn_batches, 0u);
}

}  // namespace
}  // namespace windlass::testing
