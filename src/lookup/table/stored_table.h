// A dense table as bytes of a file, in this machine's byte order: what another run of the same build reads in place of
// the unwind information. For example, node's table is 800 KB, and 30 ms of compiling.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "lookup/table/unwind_table.h"
#include "windlass/bytes.h"

namespace windlass::table {

class StoredTable {
 public:
  // O(bytes of the table).
  [[nodiscard]] static std::vector<std::byte> write(const UnwindTable& table);

  // Nothing for bytes that write() has not made. A checksum finds damage. All that a look-up or load_table() follows is
  // checked besides, so bytes that were made to deceive cost wrong rows and no fault. Linear; thread-safe.
  [[nodiscard]] static std::optional<UnwindTable> read(ByteView bytes);

  // What bytes of write() begin with, of all behind it. Finds damage, not deceit.
  [[nodiscard]] static std::uint64_t checksum(ByteView bytes);
};

}  // namespace windlass::table
