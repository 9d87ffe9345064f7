// Which file a mapping came from, and whether a file that is open is that one.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace windlass::os {

struct FileIdentity {
  std::uint32_t major = 0, minor = 0;
  std::uint64_t inode = 0;       // 0: not known
  std::uint64_t generation = 0;  // of the inode; 0 where the source does not say (/proc/PID/maps)
  std::string build_id;          // lower-case hex; empty: not known
  auto operator<=>(const FileIdentity&) const = default;
};

// A build id that was recorded (`wanted`), compared with a file's own. `wanted` may also be the first 16 bytes of it as
// a GUID, whose first three fields are little-endian numbers (Breakpad's and Crashpad's minidumps).
[[nodiscard]] bool is_same_build_id(std::string_view file, std::string_view wanted);

enum class Sameness : std::uint8_t {
  kSame,
  kOther,
  kUnknown,  // nothing is known that could set them apart
};

// Whether the file with this build id (hex; empty: none) and inode is the one that was mapped: the build id decides
// where it is known, else the inode. Devices are not compared: stat(2) gives files of btrfs and overlayfs another one
// than mappings have.
[[nodiscard]] Sameness compare(const FileIdentity& mapped, std::string_view build_id, std::uint64_t inode);

}  // namespace windlass::os
