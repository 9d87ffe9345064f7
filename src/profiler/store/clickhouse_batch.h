// A batch as blocks for ClickHouse.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_set>
#include <vector>

#include "profiler/store/batch_hashes.h"
#include "profiler/store/store.h"

namespace windlass::store {

// Of the first 8 bytes of a hash.
[[nodiscard]] std::uint64_t id_of(const HashBytes& hash);
[[nodiscard]] std::uint64_t service_id(std::string_view name);
[[nodiscard]] std::uint64_t batch_id(const BatchId& id);

// Contents that the server has, by their ids of one period of 30 days.
class KnownContents {
 public:
  [[nodiscard]] bool has(std::uint64_t id) const { return ids_.contains(id); }
  void begin(std::uint32_t period);
  void add(const std::vector<std::uint64_t>& ids);

 private:
  static constexpr std::size_t kMost = 1'000'000;
  std::uint32_t period_ = 0;
  std::unordered_set<std::uint64_t> ids_;
};

struct ClickhouseBatch {
  struct Block {
    const char* table;
    std::string bytes;
  };
  std::uint64_t id = 0;
  std::uint32_t hour = 0;
  std::uint32_t period = 0;
  std::vector<Block> contents;           // to be inserted first, in any order; may be inserted twice
  std::string samples;                   // the block that counts
  std::vector<std::uint64_t> known_ids;  // of `contents`
};

// Without contents that are known. Errors: as rows_of().
[[nodiscard]] Expected<ClickhouseBatch> encode(const Batch& batch, const KnownContents& known);

}  // namespace windlass::store
