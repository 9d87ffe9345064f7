#include "profiler/store/sqlite_history.h"

#include <algorithm>
#include <string>

#include "profiler/store/sqlite_schema.h"
#include "profiler/store/sqlite_sums.h"
#include "profiler/store/sqlite_symbols.h"

namespace windlass::store {

namespace {

constexpr std::uint64_t kSlack = 8;   // groups of intervals between two searches of all contents
constexpr std::uint64_t kShare = 16;  // of the intervals: deleted at a time if the file is too large
// Intervals are numbered as they come. The one that came last is that of the transaction.
constexpr const char* kAged = "begin_ns < ? AND id < (SELECT max(id) FROM intervals)";
constexpr const char* kFirst = "id < ?";

Expected<void> run_with(Database& database, const char* sql, std::uint64_t number) {
  auto statement = Statement::prepare(database.get(), sql, false);
  if (!statement) return Failure(statement.error());
  return statement->bind(number).run();
}

Expected<std::uint64_t> oldest(Database& database) {
  return database.number("SELECT begin_ns FROM intervals ORDER BY begin_ns LIMIT 1");
}

Expected<void> delete_intervals(Database& database, const std::string& which, std::uint64_t bound) {
  if (const auto subtracted = subtract_intervals(database, which, bound); !subtracted) return subtracted;
  const std::string samples = "DELETE FROM samples WHERE interval IN (SELECT id FROM intervals WHERE " + which + ")";
  if (const auto deleted = run_with(database, samples.c_str(), bound); !deleted) return deleted;
  if (const auto deleted = run_with(database, ("DELETE FROM intervals WHERE " + which).c_str(), bound); !deleted)
    return deleted;
  const auto first = oldest(database);
  return first ? delete_sums_before(database, *first) : Expected<void>(Failure(first.error()));
}

// Of pages that have contents of history: symbol files come on top.
Expected<std::uint64_t> used_bytes(Database& database) {
  const auto symbols = bytes_of_symbols(database);
  if (!symbols) return symbols;
  const auto all = database.number(
      "SELECT (page_count - freelist_count) * page_size FROM pragma_page_count, "
      "pragma_freelist_count, pragma_page_size");
  return all ? Expected<std::uint64_t>(*all - std::min(*all, *symbols)) : all;
}

// Gives all free pages back to the system.
Expected<void> shrink(Database& database) {
  auto statement = Statement::prepare(database.get(), "PRAGMA incremental_vacuum", false);
  if (!statement) return Failure(statement.error());
  return statement->run();
}

}  // namespace

std::uint64_t AgeClock::at(std::uint64_t begin_ns, std::uint64_t end_ns) {
  const std::uint64_t lasted = end_ns - std::min(end_ns, begin_ns);
  const bool is_ahead = now_ != 0 && end_ns > now_ + lasted + kGap;
  ahead_ = is_ahead ? ahead_ + lasted : 0;
  if (is_ahead && ahead_ < kBelieved) return now_ += lasted;
  ahead_ = 0;
  return now_ = end_ns;
}

Expected<bool> Pruner::delete_aged(Database& database, std::uint64_t now_ns) {
  const auto first = oldest(database);
  if (!first) return Failure(first.error());
  const std::uint64_t limit = now_ns - std::min(now_ns, keep_.age_ns);
  if (*first >= limit) return false;
  if (const auto deleted = delete_intervals(database, kAged, limit); !deleted) return Failure(deleted.error());
  return true;
}

// True: some were deleted.
Expected<bool> Pruner::delete_for_room(Database& database) {
  bool any = false;
  for (;;) {
    const auto used = used_bytes(database);
    if (!used) return Failure(used.error());
    if (*used <= keep_.bytes) return any;
    const auto count = database.number("SELECT count(*) FROM intervals");
    if (!count) return Failure(count.error());
    if (*count < 2) return any;
    const std::uint64_t some = std::max<std::uint64_t>(1, *count / kShare);
    const auto first = database.number("SELECT id FROM intervals ORDER BY id LIMIT 1 OFFSET " + std::to_string(some));
    if (!first) return Failure(first.error());
    if (const auto deleted = delete_intervals(database, kFirst, *first); !deleted) return Failure(deleted.error());
    if (const auto collected = collect(database, 0); !collected) return Failure(collected.error());
    any = true;
  }
}

// Deletes contents that were last used before the first interval.
Expected<void> Pruner::collect(Database& database, std::uint64_t slack) {
  const auto first = database.number("SELECT min(id) FROM intervals");
  if (!first) return Failure(first.error());
  const std::uint64_t group = *first / kGroup;
  if (group <= collected_ || group < collected_ + slack) return {};
  collected_ = group;
  for (const char* sql : {"DELETE FROM stacks WHERE used < ?", "DELETE FROM frames WHERE used < ?",
                          "DELETE FROM functions WHERE used < ?", "DELETE FROM modules WHERE used < ?",
                          "DELETE FROM label_sets WHERE used < ?", "DELETE FROM strings WHERE used < ?"})
    if (const auto deleted = run_with(database, sql, group); !deleted) return deleted;
  return database.run("DELETE FROM set_labels WHERE label_set NOT IN (SELECT id FROM label_sets)");
}

Expected<void> Pruner::prune(Database& database, std::uint64_t begin_ns, std::uint64_t end_ns) {
  bool any = false;
  if (keep_.age_ns != 0) {
    const auto deleted = delete_aged(database, clock_.at(begin_ns, end_ns));
    if (!deleted) return Failure(deleted.error());
    any = *deleted;
    if (any)
      if (const auto collected = collect(database, kSlack); !collected) return collected;
  }
  if (keep_.bytes != 0) {
    const auto deleted = delete_for_room(database);
    if (!deleted) return Failure(deleted.error());
    any |= *deleted;
  }
  return any ? shrink(database) : Expected<void>();
}

}  // namespace windlass::store
