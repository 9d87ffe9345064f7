// What is asked of a store.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "profiler/store/sqlite_database.h"
#include "profiler/store/store.h"

namespace windlass::store {

[[nodiscard]] Expected<std::optional<Extent>> query_extent(sqlite3* database);
[[nodiscard]] Expected<std::vector<std::string>> query_labels(sqlite3* database);
[[nodiscard]] Expected<std::vector<std::string>> query_values(sqlite3* database, std::string_view label);
[[nodiscard]] Expected<std::vector<Series>> query_series(sqlite3* database, const Filter& filter, std::uint64_t from,
                                                         std::uint64_t to, std::uint64_t step);
[[nodiscard]] Expected<std::vector<Total>> query_totals(sqlite3* database, std::string_view label, const Filter& filter,
                                                        std::uint64_t from, std::uint64_t to);
[[nodiscard]] Expected<Stacks> query_stacks(sqlite3* database, const Filter& filter, std::uint64_t from,
                                            std::uint64_t to);
[[nodiscard]] Expected<Frames> query_frames(sqlite3* database, std::span<const std::uint64_t> stacks);

}  // namespace windlass::store
