// Compiled tables in files, for the next recording. On a machine with 2,800 mapped files, compiling takes half of the
// agent's start; reading takes a tenth of that.
//
// Which file a table is of is what the kernel says of it: device, inode, time of the last change, size and owner, and
// the build id besides. The build id alone is what the file's maker says: any program may carry libc's. Nobody but root
// can give a file another one's inode and time, so no file can put its table in the place of another's, and a hit reads
// nothing of the file. So a file is not found again once it was copied, and a copy on another disk has a table of its
// own. Such a table is the file's only if nobody writes to it meanwhile. So it is not kept if the file was changed a
// moment ago. What is no file on a local file system has no key: what a server says of a file may be wrong.
//
// A table is good for the build of Windlass that has made it.
#pragma once

#include <sys/stat.h>

#include <atomic>
#include <cstdint>
#include <expected>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "lookup/table/unwind_table.h"
#include "os/descriptor.h"

namespace windlass::profiler {

// A plain value: its bytes are compared.
struct TableKey {
  std::uint64_t device = 0;  // 0: one without a disk of its own (an overlay), whose number is another one each time
  std::uint64_t inode = 0;
  std::uint64_t size = 0;
  std::int64_t changed_seconds = 0, changed_ns = 0;  // st_ctim, which no program can choose
  std::uint64_t owner = 0;
  char build_id[64] = {};  // hex, as far as it fits
  bool operator==(const TableKey& other) const = default;

  // Nothing for a file without a name, and for one of less than kSmallestFile bytes, which is compiled as fast as
  // found.
  static constexpr std::int64_t kSmallestFile = 128 << 10;
  [[nodiscard]] static std::optional<TableKey> of(const struct stat& status, const std::string& build_id);
};

// Thread-safe. Several programs may use one folder at a time.
class TableCache {
 public:
  static constexpr std::uint64_t kMostBytes = std::uint64_t{256} << 20;  // of all files
  static constexpr std::int64_t kLongestUnused = 60 * 86400;             // seconds
  static constexpr std::int64_t kMoment = 2;                             // seconds

  // <cache_home()>/windlass/tables, or empty: there is no such place (os/cache_folder.h).
  [[nodiscard]] static std::string default_folder();
  // Makes the folder. The error says why that is no place, with a way out.
  [[nodiscard]] static std::expected<std::unique_ptr<TableCache>, std::string> open(
      const std::string& folder, std::uint64_t most_bytes = kMostBytes);

  // The table that was kept; nothing if there is none, or none that is whole, this build's and this user's or root's.
  // Linear in the table.
  [[nodiscard]] std::optional<table::UnwindTable> find(const TableKey& key);
  // Keeps it, unless the file was changed in the last kMoment. Nothing is written any more once that has failed. What
  // was unused for longest goes where there is too much. Linear in the table; then and now in the number of files.
  void keep(const TableKey& key, const table::UnwindTable& table);

  struct Counts {
    std::uint64_t found = 0, refused = 0, kept = 0;
    int error = 0;  // errno of the write that failed; 0: none has
  };
  [[nodiscard]] Counts counts() const { return {found_, refused_, kept_, error_}; }

 private:
  TableCache(os::Descriptor folder, std::uint64_t most_bytes) : folder_(std::move(folder)), most_bytes_(most_bytes) {}
  void make_room(std::uint64_t bytes);
  [[nodiscard]] std::uint64_t drop_unused(std::uint64_t most) const;

  os::Descriptor folder_;
  std::uint64_t most_bytes_;
  std::atomic<std::uint64_t> found_ = 0, refused_ = 0, kept_ = 0;
  std::atomic<int> error_ = 0;
  std::mutex mutex_;                    // for the next one
  std::optional<std::uint64_t> bytes_;  // in the folder, by what is known; nothing: not looked at yet
};

}  // namespace windlass::profiler
