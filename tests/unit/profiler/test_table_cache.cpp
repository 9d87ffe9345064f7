#include "profiler/processes/table_cache.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <thread>

#include <fmt/format.h>

#include "lookup/table/builder.h"

namespace windlass::profiler {
namespace {

namespace fs = std::filesystem;

table::UnwindTable table_of(std::uint64_t rows) {
  table::TableBuilder builder;
  builder.begin_function(0x10000, 0x10000 + rows * 16);
  for (std::uint64_t row = 0; row < rows; ++row) {
    table::TraceRule rule{};
    rule.cfa_kind = WL_CFA_REG;
    rule.cfa_offset = static_cast<std::int32_t>(row % 200);
    builder.row(0x10000 + row * 16, rule);
  }
  builder.end_function();
  return *builder.finish();
}

TableKey key_of(std::uint64_t inode) {
  struct stat status {};
  status.st_mode = S_IFREG | 0755;
  status.st_nlink = 1;
  status.st_ino = inode;
  status.st_size = 1 << 20;
  status.st_ctim = {1'700'000'000, 123};
  return *TableKey::of(status, "0123456789abcdef");
}

class TableCacheTest : public testing::Test {
 protected:
  TableCacheTest() : folder_(fmt::format("{}windlass-table-cache-{}", testing::TempDir(), getpid())) {
    fs::remove_all(folder_);
  }
  ~TableCacheTest() override { fs::remove_all(folder_); }

  [[nodiscard]] std::unique_ptr<TableCache> open(std::uint64_t most_bytes = TableCache::kMostBytes) const {
    auto cache = TableCache::open(folder_, most_bytes);
    EXPECT_TRUE(cache) << cache.error();
    return std::move(*cache);
  }
  [[nodiscard]] std::string refusal() const {
    const auto cache = TableCache::open(folder_);
    return cache ? "none" : cache.error();
  }
  [[nodiscard]] std::vector<fs::path> files() const {
    return {fs::directory_iterator(folder_), fs::directory_iterator()};
  }
  // Of the only file; the cache refuses it then, and another one takes its place.
  void expect_refused(const char* what, const std::function<void(const fs::path&)>& change) const {
    fs::remove_all(folder_);
    open()->keep(key_of(1), table_of(50));
    ASSERT_EQ(files().size(), 1u) << what;
    change(files()[0]);
    const auto cache = open();
    EXPECT_FALSE(cache->find(key_of(1))) << what;
    EXPECT_EQ(cache->counts().refused, 1u) << what;
    cache->keep(key_of(1), table_of(50));
    EXPECT_TRUE(cache->find(key_of(1))) << what;
    EXPECT_EQ(files().size(), 1u) << what;
  }
  static void write_at(const fs::path& path, std::streamoff at, char byte) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(at);
    file.put(byte);
  }

  std::string folder_;
};

TEST_F(TableCacheTest, AnotherRecordingFindsWhatOneKept) {
  const table::UnwindTable table = table_of(5000);
  {
    const auto cache = open();
    EXPECT_FALSE(cache->find(key_of(1)));
    cache->keep(key_of(1), table);
    EXPECT_EQ(cache->counts().kept, 1u);
  }
  const auto cache = open();
  const auto found = cache->find(key_of(1));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->bytes(), table.bytes());
  for (std::uint64_t at = 0x10000; at < 0x24000; at += 16)
    ASSERT_EQ(found->find(at).cfa_offset, table.find(at).cfa_offset);
  EXPECT_EQ(cache->counts().found, 1u);
  EXPECT_EQ(cache->counts().refused, 0u);
}

TEST_F(TableCacheTest, TheFileIsWhatTheKernelSaysItIs) {
  const auto cache = open();
  const TableKey key = key_of(1);
  cache->keep(key, table_of(50));
  const auto other = [&](const std::function<void(TableKey&)>& change) {
    TableKey changed = key;
    change(changed);
    return cache->find(changed).has_value();
  };
  EXPECT_TRUE(other([](TableKey&) {}));
  EXPECT_FALSE(other([](TableKey& it) { it.device = 1; }));
  EXPECT_FALSE(other([](TableKey& it) { it.inode = 2; })) << "the same build id in another file";
  EXPECT_FALSE(other([](TableKey& it) { it.size = 2; }));
  EXPECT_FALSE(other([](TableKey& it) { it.changed_seconds = 2; }));
  EXPECT_FALSE(other([](TableKey& it) { it.changed_ns = 2; }));
  EXPECT_FALSE(other([](TableKey& it) { it.owner = 2; }));
  EXPECT_FALSE(other([](TableKey& it) { it.build_id[0] = '2'; }));
  TableKey now = key;
  now.changed_seconds = std::time(nullptr);
  cache->keep(now, table_of(50));
  EXPECT_FALSE(cache->find(now)) << "somebody may still write to it";
}

TEST_F(TableCacheTest, WhatIsNoFileToBeFoundAgainHasNoKey) {
  struct stat status {};
  ASSERT_EQ(stat("/proc/self/exe", &status), 0);
  EXPECT_TRUE(TableKey::of(status, ""));
  status.st_size = TableKey::kSmallestFile - 1;
  EXPECT_FALSE(TableKey::of(status, "")) << "compiled sooner";
  const int memory = memfd_create("test", MFD_CLOEXEC);
  ASSERT_EQ(ftruncate(memory, 1 << 20), 0);
  ASSERT_EQ(fstat(memory, &status), 0);
  EXPECT_FALSE(TableKey::of(status, ""));
  close(memory);
}

TEST_F(TableCacheTest, WhatIsNotWholeAndOwnIsRefusedAndReplaced) {
  const auto size = [](const fs::path& path) { return static_cast<std::streamoff>(fs::file_size(path)); };
  expect_refused("another format", [](const fs::path& path) { write_at(path, 7, '9'); });
  expect_refused("another build", [](const fs::path& path) { write_at(path, 9, '\x5a'); });
  expect_refused("another file's", [](const fs::path& path) { write_at(path, 40, '\x5a'); });
  expect_refused("damaged", [&](const fs::path& path) { write_at(path, size(path) - 700, '\x5a'); });
  expect_refused("cut off", [](const fs::path& path) { fs::resize_file(path, fs::file_size(path) / 2); });
  expect_refused("empty", [](const fs::path& path) { fs::resize_file(path, 0); });
  expect_refused("too long", [](const fs::path& path) { fs::resize_file(path, std::uint64_t{1} << 40); });
  const std::string elsewhere = folder_ + "-elsewhere";
  expect_refused("a link", [&](const fs::path& path) {
    fs::rename(path, elsewhere);
    fs::create_symlink(elsewhere, path);
  });
  EXPECT_TRUE(fs::remove(elsewhere)) << "what it led to is untouched";
  expect_refused("a pipe", [](const fs::path& path) {
    fs::remove(path);
    ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  });
  expect_refused("others may write", [](const fs::path& path) { ASSERT_EQ(chmod(path.c_str(), 0620), 0); });
  if (geteuid() == 0)
    expect_refused("another owner", [](const fs::path& path) { ASSERT_EQ(chown(path.c_str(), 65534, 0), 0); });
}

TEST_F(TableCacheTest, FoldersThatOthersCanChangeAreRefused) {
  (void)open();
  ASSERT_EQ(chmod(folder_.c_str(), 0777), 0);
  EXPECT_NE(refusal().find("others can change what is in it"), std::string::npos);
  ASSERT_EQ(chmod(folder_.c_str(), 0755), 0);
  EXPECT_EQ(refusal(), "none");
  if (geteuid() == 0) {
    ASSERT_EQ(chown(folder_.c_str(), 65534, 65534), 0);
    EXPECT_NE(refusal().find("others can change what is in it"), std::string::npos);
  }
  fs::rename(folder_, folder_ + "-moved");
  fs::create_symlink(folder_ + "-moved", folder_);
  EXPECT_NE(refusal().find("others can change what is in it"), std::string::npos);
  fs::remove_all(folder_ + "-moved");
  EXPECT_FALSE(TableCache::open("/proc/windlass/tables"));
  EXPECT_NE(TableCache::open("/dev/null/tables").error().find("Way out"), std::string::npos);
}

TEST_F(TableCacheTest, TwoRecordersShareOneFolder) {
  constexpr std::uint64_t kFiles = 40;
  const auto work = [&](std::uint64_t first) {
    const auto cache = TableCache::open(folder_);
    for (std::uint64_t i = 0; i < 10 * kFiles; ++i) {
      const TableKey key = key_of((first + i) % kFiles);
      if (const auto found = (*cache)->find(key))
        EXPECT_EQ(found->stats().rows, table_of(100 + key.inode).stats().rows);
      else
        (*cache)->keep(key, table_of(100 + key.inode));
      if (i % 7 == 0) (*cache)->keep(key, table_of(100 + key.inode));
    }
    EXPECT_EQ((*cache)->counts().refused, 0u);
    EXPECT_EQ((*cache)->counts().error, 0);
  };
  { const std::jthread one(work, 0), other(work, kFiles / 2); }
  EXPECT_EQ(files().size(), kFiles);
}

TEST_F(TableCacheTest, WhatWasUnusedForLongestMakesRoom) {
  open()->keep(key_of(0), table_of(2000));
  const std::uint64_t bytes = fs::file_size(files()[0]);
  fs::remove(files()[0]);
  constexpr std::uint64_t kRoom = 8;
  const auto cache = open(kRoom * bytes + bytes / 2);
  for (std::uint64_t i = 1; i <= kRoom; ++i) {
    cache->keep(key_of(i), table_of(2000));
    for (const fs::path& path : files())  // each kept one older than the next
      fs::last_write_time(path, fs::last_write_time(path) - std::chrono::hours(48));
  }
  ASSERT_EQ(files().size(), kRoom);
  ASSERT_TRUE(cache->find(key_of(1))) << "used now";
  cache->keep(key_of(100), table_of(2000));
  EXPECT_EQ(files().size(), kRoom / 4 * 3 + 1);
  EXPECT_TRUE(cache->find(key_of(1)));
  EXPECT_FALSE(cache->find(key_of(2)));
  EXPECT_FALSE(cache->find(key_of(3)));
  EXPECT_TRUE(cache->find(key_of(8)));
  EXPECT_TRUE(cache->find(key_of(100)));

  // What nobody has used for months goes, and what a killed program left. Other files stay.
  const auto old = fs::file_time_type::clock::now() - std::chrono::hours(24 * 100);
  fs::last_write_time(files()[0], old);
  for (const char* name : {"x.table.1-2.new", "somebody's"}) {
    std::ofstream(folder_ + "/" + name) << "text";
    fs::last_write_time(folder_ + "/" + name, old);
  }
  open()->keep(key_of(101), table_of(10));
  EXPECT_EQ(files().size(), kRoom / 4 * 3 + 2);
  EXPECT_TRUE(fs::exists(folder_ + "/somebody's"));
  EXPECT_FALSE(fs::exists(folder_ + "/x.table.1-2.new"));
}

// Nothing but other recordings have a loss by it.
TEST_F(TableCacheTest, WhereNothingCanBeWrittenNothingIsKept) {
  open()->keep(key_of(1), table_of(50));
  const auto expect_error = [&](int error) {
    const auto cache = open();
    cache->keep(key_of(2), table_of(5000));
    EXPECT_EQ(cache->counts().error, error);
    EXPECT_EQ(cache->counts().kept, 0u);
    EXPECT_EQ(files().size(), 1u) << "nothing unfinished is left";
    EXPECT_TRUE(cache->find(key_of(1)));
    EXPECT_FALSE(cache->find(key_of(2)));
  };
  rlimit limit{};
  getrlimit(RLIMIT_FSIZE, &limit);
  const auto before = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{4096, limit.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  expect_error(EFBIG);
  setrlimit(RLIMIT_FSIZE, &limit);
  std::signal(SIGXFSZ, before);
  if (geteuid() != 0) return;

  const pid_t child = fork();
  if (child == 0) {
    const auto mount_as = [&](unsigned long flags, const char* options) {
      return mount("test", folder_.c_str(), "tmpfs", flags, options) == 0;
    };
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) _exit(0);
    if (!mount_as(0, "size=8k,mode=755")) _exit(0);
    open()->keep(key_of(1), table_of(50));
    expect_error(ENOSPC);
    if (mount_as(MS_REMOUNT | MS_RDONLY, nullptr)) expect_error(EROFS);
    _exit(HasFailure() ? 1 : 0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace windlass::profiler
