#include "profiler/store/sqlite_symbols.h"

namespace windlass::store {

Expected<bool> put_symbols(Database& database, const StoredSymbols& about, ByteView file) {
  auto transaction = Transaction::begin(database);
  if (!transaction) return Failure(transaction.error());
  auto add = Statement::prepare(database.get(),
                                "INSERT INTO symbols(build_id, name, rank, file) VALUES(?, ?, ?, ?) "
                                "ON CONFLICT(build_id) DO UPDATE SET name = excluded.name, rank = excluded.rank, "
                                "file = excluded.file WHERE rank <= excluded.rank",
                                false);
  if (!add) return Failure(add.error());
  add->bind(std::string_view(about.build_id)).bind(std::string_view(about.name)).bind(about.rank);
  if (const auto added = add->bind(std::span(file.data(), file.size())).run(); !added) return Failure(added.error());
  const bool any = sqlite3_changes(database.get()) != 0;
  if (const auto committed = transaction->commit(); !committed) return Failure(committed.error());
  return any;
}

Expected<std::optional<std::string>> query_symbols(sqlite3* database, std::string_view build_id) {
  auto statement = Statement::prepare(database, "SELECT file FROM symbols WHERE build_id = ?", false);
  if (!statement) return Failure(statement.error());
  const auto row = statement->bind(build_id).step();
  if (!row) return Failure(row.error());
  return *row ? std::optional(std::string(statement->text(0))) : std::nullopt;
}

Expected<std::vector<StoredSymbols>> query_symbol_files(sqlite3* database) {
  std::vector<StoredSymbols> files;
  auto statement =
      Statement::prepare(database, "SELECT build_id, name, rank, length(file) FROM symbols ORDER BY build_id", false);
  if (!statement) return Failure(statement.error());
  for (;;) {
    const auto row = statement->step();
    if (!row) return Failure(row.error());
    if (!*row) return files;
    files.push_back({.build_id = std::string(statement->text(0)),
                     .name = std::string(statement->text(1)),
                     .rank = statement->number(2),
                     .bytes = statement->number(3)});
  }
}

Expected<std::uint64_t> bytes_of_symbols(Database& database) {
  return database.number("SELECT coalesce(sum(length(file)), 0) FROM symbols");
}

}  // namespace windlass::store
