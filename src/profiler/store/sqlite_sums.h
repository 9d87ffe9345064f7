// Sums over ten minutes and over an hour, without stacks: what a long series reads in place of all samples.
#pragma once

#include <sqlite3.h>

#include <array>
#include <cstdint>
#include <functional>
#include <string>

#include "profiler/store/sqlite_database.h"
#include "profiler/store/store.h"

namespace windlass::store {

inline constexpr std::array<std::uint64_t, 2> kSumSpans = {3'600'000'000'000,
                                                           600'000'000'000};  // ns, the longest first

// Adds rows of an interval to the sums of its hour and of its ten minutes.
class SumsWriter {
 public:
  [[nodiscard]] static Expected<SumsWriter> open(sqlite3* database);
  // `begin_ns`: of the interval. `event` and `label_set` are ids.
  [[nodiscard]] Expected<void> add(std::uint64_t begin_ns, std::uint64_t event, std::uint64_t label_set,
                                   const Sums& sums);

 private:
  explicit SumsWriter(Statement&& add) : add_(std::move(add)) {}
  Statement add_;
};

// Subtracts the intervals that meet `which`, a condition on the table intervals with `bound` for its ?.
[[nodiscard]] Expected<void> subtract_intervals(Database& database, const std::string& which, std::uint64_t bound);
// Deletes the sums of spans that end before the first interval begins.
[[nodiscard]] Expected<void> delete_sums_before(Database& database, std::uint64_t first_begin_ns);

struct SumsRow {
  std::uint64_t at, event, label_set;  // `at`: within the step, or within the range; ids
  Sums sums;
};
// Calls `take` until the sums of all samples in the range that meet the filter are complete. `step`: no row reaches
// over a step, the first of which begins at `from`; 0: the whole range is a step. Reads samples only at the edges of
// what the table of sums has.
[[nodiscard]] Expected<void> each_sums(sqlite3* database, const Filter& filter, std::uint64_t from, std::uint64_t to,
                                       std::uint64_t step, const std::function<Expected<void>(const SumsRow&)>& take);

}  // namespace windlass::store
