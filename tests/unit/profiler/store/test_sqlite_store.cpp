// The store in a file: history, several writers, and files that are no store.
#include <fcntl.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <sqlite3.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>

#include "profiler/store/content_hash.h"
#include "profiler/store/open_store.h"
#include "support/store_contract.h"

namespace windlass::testing {
namespace {

namespace fs = std::filesystem;

class SqliteStore : public ::testing::Test {
 protected:
  ~SqliteStore() override { fs::remove_all(folder_); }

  std::unique_ptr<store::ProfileStore> writer(const store::History& keep = {}) {
    auto opened = store::open_store(path_, {.write = true, .keep = keep});
    EXPECT_TRUE(opened.has_value()) << opened.error().text();
    return std::move(*opened);
  }
  Error refusal(bool write) {
    const auto opened = store::open_store(path_, {.write = write, .keep = {}, .busy_ms = 50});
    return opened ? Error{ErrorCode::kNotFound, "none", 0, 0} : opened.error();
  }
  std::uint64_t number(const std::string& sql) {
    sqlite3* database = nullptr;
    sqlite3_stmt* statement = nullptr;
    EXPECT_EQ(sqlite3_open(path_.c_str(), &database), SQLITE_OK);
    EXPECT_EQ(sqlite3_prepare_v2(database, sql.c_str(), -1, &statement, nullptr), SQLITE_OK) << sql;
    EXPECT_EQ(sqlite3_step(statement), SQLITE_ROW) << sql;
    const auto value = static_cast<std::uint64_t>(sqlite3_column_int64(statement, 0));
    sqlite3_finalize(statement);
    sqlite3_close(database);
    return value;
  }
  void execute(const std::string& sql) {
    sqlite3* database = nullptr;
    EXPECT_EQ(sqlite3_open(path_.c_str(), &database), SQLITE_OK);
    EXPECT_EQ(sqlite3_exec(database, sql.c_str(), nullptr, nullptr, nullptr), SQLITE_OK) << sqlite3_errmsg(database);
    sqlite3_close(database);
  }

  fs::path folder_ = store_folder("windlass-sqlite-");
  std::string path_ = folder_ / "profiles.db";
};

// Many stacks that only this number has.
profile::Profile own_profile(std::uint32_t number) {
  profile::Profile p = synthetic_profile({.samples = 300, .functions = 100, .stacks = 200}, number);
  for (profile::Function& function : p.functions) function.name += "#" + std::to_string(number);
  return p;
}

TEST_F(SqliteStore, EqualContentsAreKeptOnce) {
  const auto store = writer();
  for (std::uint64_t i = 0; i < 3; ++i)
    ASSERT_TRUE(store->append(batch_at(i, synthetic_profile()).batch()).value_or(false));
  const auto stacks = number("SELECT count(*) FROM stacks"), frames = number("SELECT count(*) FROM frames");
  EXPECT_GT(stacks, 500u);
  EXPECT_LE(stacks, 2000u);
  EXPECT_EQ(number("SELECT count(*) FROM samples"), 3 * number("SELECT count(*) FROM samples WHERE interval = 1"));
  ASSERT_TRUE(store->append(batch_at(3, synthetic_profile()).batch()).value_or(false));
  EXPECT_EQ(number("SELECT count(*) FROM stacks"), stacks);
  EXPECT_EQ(number("SELECT count(*) FROM frames"), frames);
}

// Sums of ten minutes and of hours stand for samples wherever a range and its steps allow that.
TEST_F(SqliteStore, LongRangesHaveTheSumsOfTheirSamples) {
  constexpr std::uint64_t kMinute = 60'000'000'000, kHour = 60 * kMinute;
  constexpr std::uint64_t kFirst = kStart / kHour * kHour + 17 * kMinute;
  RandomProfiles random(11);
  std::vector<KeptBatch> batches;
  for (std::uint64_t i = 0; i < 60; ++i) {
    KeptBatch batch = batch_at(i, random.make(20), i % 3 == 0 ? "host-b" : "host-a");
    batch.begin_ns = kFirst + i * 7 * kMinute + random.below(60) * 1'000'000'000;
    batch.end_ns = kFirst + (i + 1) * 7 * kMinute;
    batches.push_back(std::move(batch));
  }
  const auto check = [&](store::ProfileStore& store, const StoreReference& reference) {
    const std::uint64_t hour = kFirst / kHour * kHour;
    for (const store::Filter& filter :
         {store::Filter{}, store::Filter{"cpu", {}}, store::Filter{"", {{"host", "host-b"}}},
          store::Filter{"off-cpu", {{"process", "sshd"}, {"reason", "futex"}}}})
      for (const auto& [from, to] : {std::pair(hour, hour + 9 * kHour), std::pair(hour + 1, hour + 5 * kHour + 1),
                                     std::pair(hour + 25 * kMinute, hour + 8 * kHour - kMinute)}) {
        expect_same_totals(store, reference, "process", filter, from, to);
        for (const std::uint64_t step : {kHour, 2 * kHour, 10 * kMinute, 20 * kMinute, 7 * kMinute}) {
          std::map<std::string, std::map<std::uint64_t, store::Sums>> seen;
          const auto series = store.series(filter, from, to, step);
          ASSERT_TRUE(series.has_value()) << series.error().text();
          for (const auto& one : *series)
            for (std::size_t i = 0; i < one.steps.size(); ++i)
              if (one.steps[i] != store::Sums{}) seen[text_of(one.event)][i] = one.steps[i];
          EXPECT_TRUE(seen == reference.series(filter, from, to, step)) << step / kMinute;
        }
      }
  };
  StoreReference all;
  const auto store = writer();
  for (const KeptBatch& batch : batches) {
    ASSERT_TRUE(store->append(batch.batch()).value_or(false));
    all.append(batch);
  }
  check(*store, all);
  EXPECT_EQ(number("SELECT count(DISTINCT at) FROM sums WHERE span = 3600000000000"), 8u);
  // The table is read: with other numbers in it, totals are others.
  execute("UPDATE sums SET count_low = count_low + 1 WHERE span = 3600000000000");
  EXPECT_NE(store->totals("host", {}, 0, ~std::uint64_t{0})->front().sums.count,
            all.totals("host", {}, 0, ~std::uint64_t{0}).begin()->second.count);

  // What is deleted is subtracted, in the middle of an hour, too.
  path_ = folder_ / "short.db";
  const auto bounded = writer({.age_ns = 3 * kHour + 20 * kMinute, .bytes = 0});
  for (const KeptBatch& batch : batches) ASSERT_TRUE(bounded->append(batch.batch()).value_or(false));
  StoreReference rest;
  for (const KeptBatch& batch : batches)
    if (batch.begin_ns + 3 * kHour + 20 * kMinute >= batches.back().end_ns) rest.append(batch);
  EXPECT_EQ(number("SELECT count(*) FROM intervals"), bounded->stacks({}, 0, ~std::uint64_t{0})->intervals);
  check(*bounded, rest);
  EXPECT_EQ(number("SELECT count(*) FROM sums WHERE at + span <= (SELECT min(begin_ns) FROM intervals) - 600000000000"),
            0u);
}

TEST_F(SqliteStore, HistoryIsBoundedByAge) {
  const auto store = writer({.age_ns = 5 * 60'000'000'000, .bytes = 0});
  StoreReference reference;
  for (std::uint32_t i = 0; i < 150; ++i) {  // a minute each
    KeptBatch batch = batch_at(6 * std::uint64_t{i}, own_profile(i));
    batch.end_ns = batch.begin_ns + 6 * kTenSeconds;
    ASSERT_TRUE(store->append(batch.batch()).value_or(false));
    if (i >= 145) reference.append(batch);
  }
  EXPECT_EQ(number("SELECT count(*) FROM intervals"), 5u);
  expect_same_answers(*store, reference, {}, kStart, kStart + 900 * kTenSeconds);
  // Contents are searched every 64 intervals, so those of 5 intervals, and of 8 + 64 before, may be there.
  EXPECT_LE(number("SELECT count(*) FROM functions"), 77 * 100u);
  EXPECT_EQ(number("SELECT count(*) FROM stacks WHERE id IN (SELECT stack FROM samples)"),
            number("SELECT count(DISTINCT stack) FROM samples"));
  EXPECT_EQ(number("SELECT count(*) FROM set_labels WHERE label_set NOT IN (SELECT id FROM label_sets)"), 0u);
}

TEST_F(SqliteStore, HistoryIsBoundedBySize) {
  constexpr std::uint64_t kSize = 1 << 20;
  const auto store = writer({.age_ns = 0, .bytes = kSize});
  for (std::uint32_t i = 0; i < 60; ++i) {
    ASSERT_TRUE(store->append(batch_at(6 * std::uint64_t{i}, own_profile(i)).batch()).value_or(false));
    EXPECT_LE(number("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size"), kSize);
  }
  execute("PRAGMA wal_checkpoint(TRUNCATE)");
  EXPECT_LE(fs::file_size(path_), kSize);
  EXPECT_GT(number("SELECT count(*) FROM intervals"), 3u);
  const auto newest = store::read_profile(*store, {}, kStart + 354 * kTenSeconds, kStart + 355 * kTenSeconds);
  ASSERT_TRUE(newest.has_value()) << newest.error().text();
  EXPECT_EQ(newest->samples.size(), tidied(own_profile(59)).samples.size());
}

// For ten minutes the clock was a year ahead. Then it is right again: what is appended now is not old.
TEST_F(SqliteStore, AClockThatWasAheadMakesNothingOld) {
  constexpr std::uint64_t kYear = 365 * 8640;  // in intervals of ten seconds
  const auto store = writer({.age_ns = 60 * 60'000'000'000, .bytes = 0});
  std::uint32_t number_of_batch = 0;
  const auto append = [&](std::uint64_t at) {
    ASSERT_TRUE(store->append(batch_at(at, own_profile(number_of_batch++)).batch()).value_or(false));
  };
  for (std::uint64_t i = 0; i < 3; ++i) append(kYear + i);
  for (std::uint64_t i = 0; i < 20; ++i) append(i);
  EXPECT_EQ(number("SELECT count(*) FROM intervals"), 23u);
  KeptBatch hour = batch_at(20, own_profile(number_of_batch++));  // the agent was stopped
  hour.end_ns += 2 * 360 * kTenSeconds;
  ASSERT_TRUE(store->append(hour.batch()).value_or(false));
  EXPECT_EQ(number("SELECT count(*) FROM intervals"), 4u) << "that one, and those of the future";
  EXPECT_EQ(number("SELECT count(*) FROM samples WHERE interval NOT IN (SELECT id FROM intervals)"), 0u);
}

// The clock steps back while the file is at its bound. What came first goes, and what has just come stays.
TEST_F(SqliteStore, AClockThatStepsBackLosesNothingNew) {
  constexpr std::uint64_t kSize = 1 << 20;
  const auto store = writer({.age_ns = 0, .bytes = kSize});
  for (std::uint32_t i = 0; i < 60; ++i) {
    const std::uint64_t at = i < 30 ? 100'000 + i : i;
    ASSERT_TRUE(store->append(batch_at(at, own_profile(i)).batch()).value_or(false));
    EXPECT_LE(number("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size"), kSize);
    EXPECT_EQ(number("SELECT count(*) FROM intervals WHERE begin_ns = " + std::to_string(kStart + at * kTenSeconds)),
              1u);
  }
  // Contents of a group of intervals go with the last of them.
  EXPECT_LE(number("SELECT count(*) FROM stacks WHERE id NOT IN (SELECT stack FROM samples)"), 8 * 200u);
  EXPECT_GT(number("SELECT count(*) FROM intervals"), 3u);
}

// In the middle of a history, the clock is a year ahead for ten minutes. Nothing is old by that clock.
TEST_F(SqliteStore, AClockThatStepsAheadMakesNothingOld) {
  constexpr std::uint64_t kYear = 365 * 8640;
  const auto store = writer({.age_ns = 60 * 60'000'000'000, .bytes = 0});
  const profile::Profile profile = events_profile();
  std::uint64_t sequence = 0;
  const auto append = [&](std::uint64_t at) {
    KeptBatch batch = batch_at(at, profile);
    batch.id.sequence = sequence++;
    ASSERT_TRUE(store->append(batch.batch()).value_or(false));
  };
  for (std::uint64_t i = 0; i < 60; ++i) append(i);
  for (std::uint64_t i = 60; i < 120; ++i) append(kYear + i);
  for (std::uint64_t i = 120; i < 180; ++i) append(i);
  EXPECT_EQ(number("SELECT count(*) FROM intervals"), 180u);
  EXPECT_EQ(number("SELECT sum(count) FROM samples"), 180 * profile::count_samples(profile));
  // A clock that stays ahead is believed after an hour, and then all else is old.
  for (std::uint64_t i = 180; i < 180 + 360; ++i) append(kYear + i);
  EXPECT_EQ(number("SELECT count(*) FROM intervals"), 360u);
}

// The file is deleted, moved away, and replaced by another store, while it is open.
TEST_F(SqliteStore, ThePathIsFollowed) {
  const auto store = writer();
  EXPECT_EQ(*store->extent(), std::nullopt);
  const auto append = [&](std::uint64_t i) {
    const auto appended = store->append(batch_at(i, own_profile(static_cast<std::uint32_t>(i))).batch());
    ASSERT_TRUE(appended.has_value()) << appended.error().text();
    EXPECT_TRUE(*appended);
  };
  append(0);
  fs::remove(path_);
  append(1);
  EXPECT_EQ(number("SELECT count(*) FROM intervals"), 1u) << "in a new file";
  EXPECT_EQ(*store->extent(), (store::Extent{kStart + kTenSeconds, kStart + 2 * kTenSeconds, kTenSeconds}));
  fs::rename(path_, folder_ / "away.db");
  append(2);
  append(3);
  EXPECT_EQ(number("SELECT count(*) FROM intervals"), 2u);
  fs::remove(path_);
  {
    std::ofstream other(path_);
    other << "This is no store, and it is longer than the header of one would be. " << std::string(1000, '.');
  }
  const auto refused = store->append(batch_at(4, own_profile(4)).batch());
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::kMalformed);
  EXPECT_FALSE(store->extent().has_value());
  std::ifstream kept(path_);
  std::string first;
  kept >> first;
  EXPECT_EQ(first, "This") << "nothing was written to it";
  fs::remove(path_);
  append(4);
  EXPECT_EQ(number("SELECT count(*) FROM intervals"), 1u);
  EXPECT_EQ(number("SELECT count(*) FROM pragma_integrity_check WHERE integrity_check != 'ok'"), 0u);
  path_ = folder_ / "away.db";
  EXPECT_EQ(number("SELECT count(*) FROM intervals"), 1u);
}

TEST_F(SqliteStore, TwoWritersAtOnce) {
  constexpr std::uint64_t kEach = 20;
  const auto append_all = [&](const std::string& host) {
    const auto store = writer();
    for (std::uint64_t i = 0; i < kEach; ++i) {
      const auto appended =
          store->append(batch_at(i, RandomProfiles(static_cast<std::uint32_t>(i)).make(60), host).batch());
      ASSERT_TRUE(appended.has_value()) << appended.error().text();
    }
  };
  std::thread other([&] { append_all("host-b"); });
  append_all("host-a");
  other.join();
  StoreReference reference;
  for (const char* host : {"host-a", "host-b"})
    for (std::uint64_t i = 0; i < kEach; ++i)
      reference.append(batch_at(i, RandomProfiles(static_cast<std::uint32_t>(i)).make(60), host));
  expect_same_answers(*writer(), reference, {}, kStart, kStart + kEach * kTenSeconds);
}

TEST_F(SqliteStore, AReaderSeesOneMoment) {
  const auto store = writer();
  ASSERT_TRUE(store->append(batch_at(0, events_profile()).batch()).value_or(false));
  const auto reader = store::open_store(path_);
  ASSERT_TRUE(reader.has_value());
  EXPECT_EQ((*reader)->stacks({}, 0, ~std::uint64_t{0})->intervals, 1u);
  ASSERT_TRUE(store->append(batch_at(1, events_profile()).batch()).value_or(false));
  EXPECT_EQ((*reader)->stacks({}, 0, ~std::uint64_t{0})->intervals, 1u);
  EXPECT_EQ((*reader)->append(batch_at(2, events_profile()).batch()).error().code, ErrorCode::kUnsupported);
}

TEST_F(SqliteStore, FilesThatAreNoStoreAreRefused) {
  EXPECT_EQ(refusal(false).detail, static_cast<std::uint64_t>(ENOENT));
  std::ofstream(path_) << std::string(8192, 'x');
  EXPECT_EQ(std::string(refusal(true).what), "not a store. Way out: name another file");
  fs::remove(path_);
  execute("CREATE TABLE t(a); PRAGMA user_version=1");
  EXPECT_NE(std::string(refusal(true).what).find("another program"), std::string::npos);
  EXPECT_EQ(number("SELECT count(*) FROM sqlite_schema"), 1u);  // as it was
  fs::remove(path_);
  writer();
  execute("PRAGMA user_version=3");
  EXPECT_EQ(refusal(false).code, ErrorCode::kUnsupported);
  EXPECT_EQ(refusal(true).detail, 3u);
  execute("PRAGMA user_version=2; DROP TABLE samples; CREATE VIEW samples AS SELECT 1");
  EXPECT_EQ(refusal(false).code, ErrorCode::kMalformed);
  fs::remove(path_);
  writer();
  execute("ALTER TABLE samples ADD COLUMN work AS (length(hex(zeroblob(100000000 + count))))");
  EXPECT_EQ(refusal(false).code, ErrorCode::kMalformed) << "what each read would work out";
}

TEST_F(SqliteStore, ADamagedFileIsAnErrorOrAnAnswer) {
  {
    const auto store = writer();
    for (std::uint64_t i = 0; i < 3; ++i)
      ASSERT_TRUE(store->append(batch_at(i, synthetic_profile({.samples = 300})).batch()).value_or(false));
  }
  execute("PRAGMA wal_checkpoint(TRUNCATE)");
  std::string bytes;
  {
    std::ifstream in(path_, std::ios::binary);
    bytes.assign(std::istreambuf_iterator<char>(in), {});
  }
  std::mt19937 random(4);
  int refused = 0;
  for (int round = 0; round < 100; ++round) {
    std::string damaged = bytes;
    for (int i = 0; i < 200; ++i) damaged[100 + random() % (damaged.size() - 100)] = static_cast<char>(random());
    fs::remove(path_ + "-wal");
    fs::remove(path_ + "-shm");
    std::ofstream(path_, std::ios::binary) << damaged;
    const auto store = store::open_store(path_);
    const auto read = store ? store::read_profile(**store, {}, 0, ~std::uint64_t{0}) : Failure(store.error());
    refused += read ? 0 : 1;
    if (store) (void)(*store)->series({}, kStart, kStart + 3 * kTenSeconds, kTenSeconds);
    if (store) (void)(*store)->labels();
  }
  EXPECT_GT(refused, 20);
}

// The exit status of `task`, run by a user who is not root and owns nothing.
int by_another_user(const std::function<int()>& task) {
  const pid_t child = fork();
  if (child == 0)
    _exit(geteuid() == 0 && (setgroups(0, nullptr) != 0 || setresgid(65534, 65534, 65534) != 0 ||
                             setresuid(65534, 65534, 65534) != 0)
              ? 99
              : task());
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

TEST_F(SqliteStore, AStoreThatMayNotBeWrittenIsReadOrSaysWhy) {
  ASSERT_TRUE(writer()->append(batch_at(0, events_profile()).batch()).value_or(false));
  const auto reads = [&] {
    const auto opened = store::open_store(path_);
    if (!opened) return std::string(opened.error().what);
    const auto stacks = (*opened)->stacks({}, 0, ~std::uint64_t{0});
    return stacks && stacks->intervals == 1 ? std::string("one interval") : std::string("nothing");
  };
  const auto says = [&](bool write, const char* text) {
    return by_another_user([&] {
      const std::string said = write ? refusal(true).what : reads();
      if (said.find(text) != std::string::npos) return 0;
      fprintf(stderr, "%s\n", said.c_str());
      return 1;
    });
  };
  fs::permissions(path_, fs::perms(0444));
  fs::permissions(folder_, fs::perms(0555));
  EXPECT_EQ(says(false, "one interval"), 0);
  EXPECT_EQ(says(true, "this user may not use the store's folder"), 0);
  std::ofstream(path_ + "-wal") << "newer intervals";
  if (geteuid() == 0) {
    EXPECT_EQ(says(false, "the store has a log, FILE-wal"), 0);
  }
  fs::permissions(folder_, fs::perms(0777));
  fs::remove(path_ + "-wal");
  if (geteuid() == 0) {
    EXPECT_EQ(says(true, "the store is another user's"), 0);
  }
  fs::permissions(path_, fs::perms(0));
  EXPECT_EQ(says(false, "the store is another user's"), 0);
  fs::permissions(path_, fs::perms(0644));
  path_ = folder_ / "none" / "p.db";
  EXPECT_STREQ(refusal(true).what, "there is no such folder. Way out: make the folder of the store");
}

TEST_F(SqliteStore, AStoreOnAReadOnlyMountIsRead) {
  ASSERT_TRUE(writer()->append(batch_at(0, events_profile()).batch()).value_or(false));
  const fs::path mounted = folder_ / "a%20mount?#";
  fs::create_directory(mounted);
  if (mount(folder_.c_str(), mounted.c_str(), nullptr, MS_BIND, nullptr) != 0) GTEST_SKIP() << "no mounts";
  EXPECT_EQ(mount(nullptr, mounted.c_str(), nullptr, MS_BIND | MS_REMOUNT | MS_RDONLY, nullptr), 0);
  path_ = mounted / "profiles.db";
  {
    const auto opened = store::open_store(path_);
    EXPECT_TRUE(opened.has_value()) << opened.error().text();
    if (opened) {
      EXPECT_EQ((*opened)->stacks({}, 0, ~std::uint64_t{0})->intervals, 1u);
    }
  }
  EXPECT_NE(std::string(refusal(true).what).find("mounted for reading only"), std::string::npos)
      << refusal(true).text();
  umount2(mounted.c_str(), MNT_DETACH);
}

TEST_F(SqliteStore, ALockIsWaitedForAndThenAnError) {
  writer();
  const auto store = store::open_store(path_, {.write = true, .keep = {}, .busy_ms = 50});
  ASSERT_TRUE(store.has_value());
  sqlite3* other = nullptr;
  ASSERT_EQ(sqlite3_open(path_.c_str(), &other), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(other, "BEGIN IMMEDIATE", nullptr, nullptr, nullptr), SQLITE_OK);
  const KeptBatch batch = batch_at(0, events_profile());
  EXPECT_EQ((*store)->append(batch.batch()).error().detail, static_cast<std::uint64_t>(EBUSY));
  EXPECT_EQ((*store)->stacks({}, 0, ~std::uint64_t{0})->intervals, 0u);  // readers are not held up
  sqlite3_exec(other, "ROLLBACK", nullptr, nullptr, nullptr);
  sqlite3_close(other);
  EXPECT_TRUE((*store)->append(batch.batch()).value_or(false));
}

// Another process, which may be stopped, holds the locks of the log's index (walformat.html, "WAL Locks": bytes 120 to
// 127). SQLite tries for ten seconds, and then says "locking protocol".
TEST_F(SqliteStore, ALogThatIsBeingRecoveredIsAnError) {
  ASSERT_TRUE(writer()->append(batch_at(0, events_profile()).batch()).value_or(false));
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    const int index = open((path_ + "-shm").c_str(), O_RDWR | O_CREAT, 0600);
    struct flock lock {};
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    lock.l_start = 120;
    lock.l_len = 8;
    const char locked = fcntl(index, F_SETLK, &lock) == 0 ? 'y' : 'n';
    (void)!write(ready[1], &locked, 1);
    pause();
    _exit(0);
  }
  char locked = 0;
  ASSERT_EQ(read(ready[0], &locked, 1), 1);
  EXPECT_EQ(locked, 'y');
  const Error error = refusal(false);
  EXPECT_EQ(error.detail, static_cast<std::uint64_t>(EBUSY)) << error.text();
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  close(ready[0]), close(ready[1]);
  EXPECT_EQ(refusal(false).code, ErrorCode::kNotFound) << refusal(false).text();
}

// A limit of the file's size is to SQLite as a full disk is.
TEST_F(SqliteStore, ABatchThatFindsNoRoomLeavesNothing) {
  const auto store = writer();
  ASSERT_TRUE(store->append(batch_at(0, events_profile()).batch()).value_or(false));
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{.rlim_cur = fs::file_size(path_ + "-wal") + 8192, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const KeptBatch large = batch_at(1, synthetic_profile());
  const auto appended = store->append(large.batch());
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_FALSE(appended.has_value());
  EXPECT_EQ(appended.error().code, ErrorCode::kSystem);
  StoreReference reference;
  reference.append(batch_at(0, events_profile()));
  expect_same_answers(*store, reference, {}, kStart, kStart + 9 * kTenSeconds);
  EXPECT_TRUE(store->append(large.batch()).value_or(false));
  reference.append(large);
  expect_same_answers(*store, reference, {}, kStart, kStart + 9 * kTenSeconds);
}

// Files keep these: the numbers must not change.
TEST(StoreContentHash, IsTheSameEverywhere) {
  const auto hex = [](const store::HashBytes& bytes) {
    std::string text;
    for (const std::byte byte : bytes) text += fmt::format("{:02x}", static_cast<unsigned>(byte));
    return text;
  };
  EXPECT_EQ(hex(store::ContentHash().add("main").add(std::uint64_t{7}).bytes()), "b597b6f2721c42ddacde5309cf0789ae");
  EXPECT_NE(store::ContentHash().add("ab").add("c").bytes(), store::ContentHash().add("a").add("bc").bytes());
}

}  // namespace
}  // namespace windlass::testing
