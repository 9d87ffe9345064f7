#include "profiler/store/sqlite_filter.h"

namespace windlass::store {

namespace {

constexpr std::uint64_t kFewSets = 32;  // each is looked for in each interval

std::string sets_of_label(const char* what) {
  return std::string("SELECT ") + what +
         " FROM set_labels WHERE key = (SELECT id FROM strings WHERE text = ?) AND value = (SELECT id FROM strings "
         "WHERE text = ?)";
}

// True: one of the labels chooses so few sets that each can be looked for.
Expected<bool> chooses_few(sqlite3* database, const Filter& filter) {
  for (const Label& label : filter.labels) {
    auto count = Statement::prepare(
        database, "SELECT count(*) FROM (" + sets_of_label("1") + " LIMIT " + std::to_string(kFewSets + 1) + ")",
        false);
    if (!count) return Failure(count.error());
    const auto row = count->bind(std::string_view(label.key)).bind(std::string_view(label.value)).step();
    if (!row) return row;
    if (count->number(0) <= kFewSets) return true;
  }
  return false;
}

}  // namespace

std::string filter_conditions(const Filter& filter, bool seek) {
  std::string sql;
  if (!filter.event.empty())
    sql += " AND s.event IN (SELECT id FROM events WHERE name = ?)";
  else if (seek)
    sql += " AND s.event IN (SELECT id FROM events)";  // all of them: a key of the index is left out by no query
  for (std::size_t n = 0; n < filter.labels.size(); ++n)
    sql += std::string(" AND ") + (seek ? "" : "+") + "s.label_set IN (" + sets_of_label("label_set") + ")";
  return sql;
}

void bind_filter(Statement& statement, const Filter& filter, std::uint64_t from, std::uint64_t to) {
  statement.bind(std::min(from, kLastTime)).bind(std::min(to, kLastTime));
  if (!filter.event.empty()) statement.bind(std::string_view(filter.event));
  for (const Label& label : filter.labels)
    statement.bind(std::string_view(label.key)).bind(std::string_view(label.value));
}

Expected<Statement> prepare_samples(sqlite3* database, const std::string& columns, const Filter& filter) {
  const auto few = chooses_few(database, filter);
  if (!few) return Failure(few.error());
  return Statement::prepare(database,
                            "SELECT " + columns +
                                " FROM intervals i CROSS JOIN samples s ON s.interval = i.id WHERE i.begin_ns >= ? AND "
                                "i.begin_ns < ?" +
                                filter_conditions(filter, *few),
                            false);
}

}  // namespace windlass::store
