#include "profiler/processes/table_cache.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/mapped_file.h"
#include "lookup/table/stored_table.h"
#include "os/cache_folder.h"
#include "walk/own/modules.h"

namespace windlass::profiler {
namespace {

constexpr std::string_view kEnding = ".table";
constexpr std::uint64_t kLargest = std::uint64_t{256} << 20;
constexpr std::int64_t kHour = 3600, kDay = 24 * kHour;

// What a file begins with. Each byte has to be as it would be written now.
struct FileHead {
  char magic[8] = {'W', 'L', 'T', 'A', 'B', 'L', 'E', '1'};
  std::uint8_t build[24] = {};  // of this program
  TableKey key;
};
static_assert(std::has_unique_object_representations_v<FileHead> && sizeof(FileHead) % 8 == 0);

using Build = std::array<std::uint8_t, sizeof FileHead::build>;

// The build id of the program or library that this code is in; empty: it has none.
std::optional<Build> find_build() {
  walk::LoadedObject object;
  walk::refresh_loaded();
  if (!walk::find_loaded(reinterpret_cast<std::uint64_t>(&find_build), object)) return std::nullopt;
  const auto id = walk::loaded_build_id(object);
  if (id.empty()) return std::nullopt;
  Build build{};
  std::copy_n(id.begin(), std::min(id.size(), build.size()), build.begin());
  return build;
}

const std::optional<Build>& this_build() {
  static const std::optional<Build> build = find_build();
  return build;
}

FileHead head_of(const TableKey& key) {
  FileHead head;
  std::ranges::copy(*this_build(), head.build);
  head.key = key;
  return head;
}

std::string name_of(const TableKey& key) {
  const std::string_view id(key.build_id, ::strnlen(key.build_id, sizeof key.build_id));
  return fmt::format("{}-{:x}-{:x}-{:x}-{:x}.{:x}-{:x}{}", id, key.device, key.inode, key.size, key.changed_seconds,
                     key.changed_ns, key.owner, kEnding);
}

template <typename T>
std::string_view text_of(std::span<const T> values) {
  const auto bytes = std::as_bytes(values);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

std::optional<TableKey> TableKey::of(const struct stat& status, const std::string& build_id) {
  if (!S_ISREG(status.st_mode) || status.st_nlink == 0 || status.st_size < kSmallestFile) return std::nullopt;
  TableKey key;
  key.device = major(status.st_dev) != 0 ? status.st_dev : 0;
  key.inode = status.st_ino;
  key.size = static_cast<std::uint64_t>(status.st_size);
  key.changed_seconds = status.st_ctim.tv_sec;
  key.changed_ns = status.st_ctim.tv_nsec;
  key.owner = status.st_uid;
  std::copy_n(build_id.begin(), std::min(build_id.size(), sizeof key.build_id), key.build_id);
  return key;
}

std::string TableCache::default_folder() {
  const std::string home = os::cache_home();
  return home.empty() ? home : home + "/windlass/tables";
}

std::expected<std::unique_ptr<TableCache>, std::string> TableCache::open(const std::string& folder,
                                                                         std::uint64_t most_bytes) {
  const auto refuse = [](const std::string& path, const char* why) {
    return std::unexpected(fmt::format(
        "{}: {}: no tables are kept there. Way out: --table-cache with a folder of your own, or none", path, why));
  };
  if (folder.empty()) return refuse("HOME", "not set");
  if (!this_build()) return refuse(folder, "this build of windlass has no build id");
  auto opened = os::make_own_folder(folder);
  if (!opened) {
    const auto& [path, error] = opened.error();
    return refuse(path, error == EPERM ? "others can change what is in it" : std::strerror(error));
  }
  return std::unique_ptr<TableCache>(new TableCache(std::move(*opened), most_bytes));
}

std::optional<table::UnwindTable> TableCache::find(const TableKey& key) {
  struct stat status {};
  const os::Descriptor file = os::open_own_file(folder_.get(), name_of(key), status);
  if (!file && errno == ENOENT) return std::nullopt;
  const auto read = [&]() -> std::optional<table::UnwindTable> {
    if (!file || static_cast<std::uint64_t>(status.st_size) > kLargest) return std::nullopt;
    const auto mapped = MappedFile::from_fd(file.get());
    if (!mapped || mapped->bytes().size() < sizeof(FileHead)) return std::nullopt;
    const ByteView bytes = mapped->bytes();
    const FileHead head = head_of(key);
    if (std::memcmp(bytes.data(), &head, sizeof head) != 0) return std::nullopt;
    return table::StoredTable::read(*bytes.sub(sizeof head, bytes.size() - sizeof head));
  };
  auto table = read();
  ++(table ? found_ : refused_);
  // By this time the ones to drop are chosen.
  if (table && status.st_mtim.tv_sec + kDay < std::time(nullptr)) (void)::futimens(file.get(), nullptr);
  return table;
}

void TableCache::keep(const TableKey& key, const table::UnwindTable& table) {
  if (error_ != 0 || key.changed_seconds + kMoment > std::time(nullptr)) return;
  const auto bytes = table::StoredTable::write(table);
  const FileHead head = head_of(key);
  const std::string_view parts[] = {text_of(std::span(&head, 1)), text_of(std::span<const std::byte>(bytes))};
  make_room(sizeof head + bytes.size());
  if (const int error = os::write_whole(folder_.get(), name_of(key), parts, 0600); error != 0)
    error_ = error;
  else
    ++kept_;
}

void TableCache::make_room(std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (!bytes_) bytes_ = drop_unused(most_bytes_);
  if (*bytes_ + bytes > most_bytes_) bytes_ = drop_unused(most_bytes_ / 4 * 3);
  *bytes_ += bytes;
}

// The bytes that are left, at most `most`.
std::uint64_t TableCache::drop_unused(std::uint64_t most) const {
  struct Kept {
    std::int64_t used;
    std::uint64_t bytes;
    std::string name;
  };
  std::vector<Kept> files;
  const int copy = ::openat(folder_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* const folder = copy < 0 ? nullptr : ::fdopendir(copy);
  if (folder == nullptr) {
    if (copy >= 0) ::close(copy);
    return 0;
  }
  const std::int64_t now = std::time(nullptr);
  std::uint64_t sum = 0;
  while (const dirent* entry = ::readdir(folder)) {
    const std::string_view name = entry->d_name;
    const bool unfinished = name.ends_with(os::kUnfinished);
    struct stat status {};
    if ((!unfinished && !name.ends_with(kEnding)) ||
        ::fstatat(folder_.get(), entry->d_name, &status, AT_SYMLINK_NOFOLLOW) != 0)
      continue;
    if (status.st_mtim.tv_sec + (unfinished ? kHour : kLongestUnused) < now) {
      ::unlinkat(folder_.get(), entry->d_name, 0);
      continue;
    }
    files.push_back({status.st_mtim.tv_sec, static_cast<std::uint64_t>(status.st_size), std::string(name)});
    sum += files.back().bytes;
  }
  ::closedir(folder);
  std::ranges::sort(files, {}, &Kept::used);
  for (const Kept& file : files) {
    if (sum <= most) break;
    if (::unlinkat(folder_.get(), file.name.c_str(), 0) == 0 || errno == ENOENT) sum -= file.bytes;
  }
  return sum;
}

}  // namespace windlass::profiler
