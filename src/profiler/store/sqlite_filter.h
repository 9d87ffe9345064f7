// Conditions of SQL that are a Filter, and rows that come one after another.
#pragma once

#include <sqlite3.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "profiler/store/sqlite_database.h"
#include "profiler/store/store.h"

namespace windlass::store {

// SQLite's numbers have a sign.
inline constexpr auto kLastTime = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());

// Conditions on a table `s` with the columns event and label_set, each with AND in front. `seek`: by an index that has
// both columns, which is quick if few sets of labels meet the filter; else of each row.
[[nodiscard]] std::string filter_conditions(const Filter& filter, bool seek);
// The two times, then the parts of the filter, in the order of filter_conditions().
void bind_filter(Statement& statement, const Filter& filter, std::uint64_t from, std::uint64_t to);
// "SELECT `columns`" of the samples `s` and their intervals `i`, which bind_filter() binds.
[[nodiscard]] Expected<Statement> prepare_samples(sqlite3* database, const std::string& columns, const Filter& filter);

// Calls `row` for each row of a query.
template <typename Row>
Expected<void> each_row(Statement& statement, Row row) {
  for (;;) {
    const auto any = statement.step();
    if (!any) return Failure(any.error());
    if (!*any) return {};
    if (const Expected<void> taken = row(statement); !taken) return taken;
  }
}

}  // namespace windlass::store
