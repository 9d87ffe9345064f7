// The arena of windlass_table_layout.h: one growing address space of 1 MiB chunks that tables, palettes and mapping
// sets live in. The kernel side backs every chunk with a BPF array that is mapped here; without a backing it is plain
// memory (tests, the unwinder's C as user code).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <utility>

#include "windlass/error.h"
#include "windlass_table_layout.h"

namespace windlass::table {

// Thread-safe. Freed memory is handed out again at once: whoever frees sees to it that no reader is left.
class Arena {
 public:
  // Makes chunk number `index` present at address `at` (WL_CHUNK_SIZE bytes, zeroed). Kernel: maps a BPF array there.
  using Backing = std::function<Expected<void>(std::uint32_t index, std::byte* at)>;

  // Reserves address space for `max_chunks`, no memory. Without `backing`: plain memory.
  static Expected<std::unique_ptr<Arena>> create(Backing backing = {}, std::uint32_t max_chunks = WL_MAX_CHUNKS);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // A reference to `size` zeroed bytes, 8-aligned, inside one chunk; never 0. At most WL_CHUNK_SIZE - 8. O(log n).
  [[nodiscard]] Expected<std::uint32_t> allocate(std::size_t size);
  void free(std::uint32_t ref, std::size_t size);

  [[nodiscard]] std::byte* at(std::uint32_t ref) const { return base_ + (std::uint64_t{ref} << WL_REF_SHIFT); }
  [[nodiscard]] const std::byte* base() const { return base_; }
  [[nodiscard]] std::uint32_t chunks() const { return chunks_; }
  [[nodiscard]] std::uint64_t bytes_used() const { return bytes_used_; }

 private:
  Arena() = default;
  Expected<void> grow();
  void insert_free(std::uint32_t unit, std::uint32_t units);

  std::byte* base_ = nullptr;
  std::size_t reserved_ = 0;
  Backing backing_;
  std::uint32_t chunks_ = 0;
  std::uint32_t max_chunks_ = 0;
  std::uint64_t bytes_used_ = 0;
  mutable std::mutex mutex_;
  std::map<std::uint32_t, std::uint32_t> free_by_unit_;             // first unit -> units
  std::set<std::pair<std::uint32_t, std::uint32_t>> free_by_size_;  // (units, first unit)
};

}  // namespace windlass::table
