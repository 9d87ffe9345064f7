// The function table of a PE image (.pdata) in ascending order. Entries of both machines begin with the RVA of the
// function's first byte; x64 ones have 12 bytes, ARM64 ones 8.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "windlass/bytes.h"

namespace windlass::image {

// The entries of a function table, as a view of the stored bytes. For look-ups, the begins are kept in ascending order;
// also the positions of the entries, if these are not stored in that order. The specification demands ascending order,
// and RtlLookupFunctionEntry needs it. But Go's linker does not keep it: for example esbuild.exe has 40 inversions.
// Immutable; look-ups neither allocate nor lock.
class FunctionTable {
 public:
  FunctionTable() = default;
  // `stride`: bytes an entry. Linear, n log n if they are not sorted; allocates 8 bytes an entry, 12 if not.
  FunctionTable(ByteView entries, std::uint32_t stride);

  [[nodiscard]] std::size_t size() const { return count_; }
  [[nodiscard]] bool stored_sorted() const { return order_.empty(); }
  // Position in the stored table of the i-th entry in ascending order. i < size().
  [[nodiscard]] std::size_t stored_index(std::size_t i) const { return order_.empty() ? i : order_[i]; }
  // First RVA of the entry at a position of the stored table.
  [[nodiscard]] std::uint32_t begin_of(std::size_t stored) const { return word(stored, 0); }
  // The n-th 32-bit word of an entry. stored < size().
  [[nodiscard]] std::uint32_t word(std::size_t stored, std::size_t n) const {
    std::uint32_t value;
    std::memcpy(&value, entries_.data() + stored * stride_ + n * sizeof value, sizeof value);
    return value;
  }
  // Rank (for `stored_index`) of the last entry that begins at or before `rva`; whether it reaches that far is for the
  // caller to say. Constant where functions are spread evenly, as they are; logarithmic at worst.
  [[nodiscard]] std::optional<std::size_t> last_at_or_before(std::uint32_t rva) const {
    if (count_ == 0 || rva < begins_[0]) return std::nullopt;
    const std::size_t piece = std::min<std::size_t>((rva - begins_[0]) >> shift_, below_.size() - 2);
    // The answer is in [low, high).
    std::size_t low = below_[piece];
    std::size_t high = below_[piece + 1] + std::size_t{1};
    while (high - low > 1) {
      const std::size_t middle = (low + high) / 2;
      if (begins_[middle] <= rva)
        low = middle;
      else
        high = middle;
    }
    return low;
  }

 private:
  void sort();
  void index();

  ByteView entries_;
  std::uint32_t stride_ = 12;
  std::size_t count_ = 0;
  std::vector<std::uint32_t> order_;   // stored positions, ascending; empty: they are stored so
  std::vector<std::uint32_t> begins_;  // ascending
  // Cuts the address range into about as many equal pieces as there are entries. Holds, for the first address of each
  // piece and for the end of the last, the rank of the last entry at or before that address.
  std::vector<std::uint32_t> below_;
  unsigned shift_ = 0;
};

}  // namespace windlass::image
