// The bytes of a symbol file: docs/reference/symbol-files.md. All numbers are little-endian.
#pragma once

#include <cstddef>
#include <cstdint>

namespace windlass::wlsym {

inline constexpr char kMagic[8] = {'\x89', 'W', 'L', 'S', 'Y', 'M', '\r', '\n'};
inline constexpr std::uint16_t kVersion = 3;  // written; 1 and 2 are read, too

struct Header {
  char magic[8];
  std::uint16_t version;
  std::uint16_t detail;    // a Detail
  std::uint32_t checksum;  // CRC-32 (zlib's) of all behind this member, up to the first block
  std::uint64_t file_size;
  std::uint32_t build_id_size, name_size;
  std::uint32_t segments, range_blocks, function_blocks, path_blocks;
  std::uint32_t functions, paths;
};
static_assert(sizeof(Header) == 56);

// Behind the header: the build id, the name, then these lists, then the blocks.
struct SegmentEntry {
  std::uint64_t file_offset, address, size;
};
struct RangeBlockEntry {
  std::uint64_t first;           // address
  std::uint32_t first_function;  // the number that the block's first new function has
  std::uint32_t at, packed, raw;
};
static_assert(sizeof(RangeBlockEntry) == 24);
struct TextBlockEntry {
  std::uint32_t first;  // number of a function, or of a path
  std::uint32_t at, packed, raw;
};
static_assert(sizeof(TextBlockEntry) == 16);

// The columns of a block of ranges.
enum RangeColumn : std::size_t {
  kFunctionColumn,
  kInlinedFunctionColumn,
  kCallerColumn,
  kBeginColumn,
  kCallLineColumn,
  kAddressColumn,
  kScopeColumn,
  kFirstLineColumn,
  kLineColumn,
  kRangeColumns
};
// Where versions 1 and 2 have them. A column of one kind is smaller when packed by itself.
inline constexpr std::size_t kMixedColumns = 6, kMixedColumn[kRangeColumns] = {0, 0, 1, 2, 2, 3, 4, 5, 5};

inline constexpr std::uint32_t kMostRaw = 8u << 20;  // bytes of a block, unpacked
inline constexpr std::uint32_t kLongestText = 1u << 16;
inline constexpr std::uint32_t kMostFrames = 256;  // of an address: deeper calls are left out

[[nodiscard]] constexpr std::uint64_t zigzag(std::int64_t value) {
  return (static_cast<std::uint64_t>(value) << 1) ^ static_cast<std::uint64_t>(value >> 63);
}
[[nodiscard]] constexpr std::int64_t unzigzag(std::uint64_t value) {
  return static_cast<std::int64_t>(value >> 1) ^ -static_cast<std::int64_t>(value & 1);
}

}  // namespace windlass::wlsym
