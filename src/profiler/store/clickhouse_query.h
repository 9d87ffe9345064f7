// Questions to a store in ClickHouse.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "profiler/store/clickhouse_server.h"
#include "profiler/store/store.h"

namespace windlass::store {

// All sums of a query are exact: an error if they have more than 64 bits. Times are whole seconds: an interval belongs
// to the second in which it begins.
class ClickhouseQuery {
 public:
  explicit ClickhouseQuery(ClickhouseServer& server) : server_(server) {}

  [[nodiscard]] Expected<std::optional<Extent>> extent();
  [[nodiscard]] Expected<std::vector<std::string>> labels();
  [[nodiscard]] Expected<std::vector<std::string>> values(std::string_view label);
  [[nodiscard]] Expected<std::vector<Series>> series(const Filter& filter, std::uint64_t from, std::uint64_t to,
                                                     std::uint64_t step);
  [[nodiscard]] Expected<std::vector<Total>> totals(std::string_view label, const Filter& filter, std::uint64_t from,
                                                    std::uint64_t to);
  [[nodiscard]] Expected<Stacks> stacks(const Filter& filter, std::uint64_t from, std::uint64_t to);
  [[nodiscard]] Expected<Frames> frames(std::span<const std::uint64_t> stacks);

 private:
  ClickhouseServer& server_;
};

}  // namespace windlass::store
