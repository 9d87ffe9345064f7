#include "profiler/store/sqlite_database.h"

#include <cerrno>
#include <utility>

namespace windlass::store {

namespace {

Error system_error(const char* what, int number) {
  return {ErrorCode::kSystem, what, 0, static_cast<std::uint64_t>(number)};
}

}  // namespace

Error sqlite_error(sqlite3* database, int result) {
  switch (result & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
    case SQLITE_PROTOCOL:  // that holds the lock of recovery for seconds
      return system_error("another program has locked the store. Way out: try again once that program is done", EBUSY);
    case SQLITE_FULL:
      return system_error("no space is left for the store. Way out: free space, or keep less with --keep-size", ENOSPC);
    case SQLITE_NOTADB: return {ErrorCode::kMalformed, "not a store. Way out: name another file", 0, 0};
    case SQLITE_CORRUPT: return {ErrorCode::kMalformed, kDamaged, 0, 0};
    case SQLITE_READONLY:
    case SQLITE_PERM: return system_error("the store may not be written. Way out: run as the user who owns it", EACCES);
    case SQLITE_CANTOPEN:
    case SQLITE_IOERR: {
      const int number = database == nullptr ? 0 : sqlite3_system_errno(database);
      return system_error("the store cannot be read or written", number != 0 ? number : EIO);
    }
    case SQLITE_NOMEM: return system_error("there is no memory for the store", ENOMEM);
    default: return {ErrorCode::kMalformed, sqlite3_errstr(result), 0, static_cast<std::uint64_t>(result)};
  }
}

Expected<Statement> Statement::prepare(sqlite3* database, std::string_view sql, bool keep) {
  sqlite3_stmt* made = nullptr;
  const int result = sqlite3_prepare_v3(database, sql.data(), static_cast<int>(sql.size()),
                                        keep ? SQLITE_PREPARE_PERSISTENT : 0, &made, nullptr);
  if (result != SQLITE_OK) return Failure(sqlite_error(database, result));
  return Statement(made);
}

Expected<bool> Statement::step() {
  const int result = refused_ != SQLITE_OK ? refused_ : sqlite3_step(get());
  if (result == SQLITE_ROW) return true;
  if (result == SQLITE_DONE) return false;
  return Failure(sqlite_error(sqlite3_db_handle(get()), result));
}

Expected<void> Statement::run() {
  auto result = step();
  while (result && *result) result = step();
  reset();
  if (!result) return Failure(result.error());
  return {};
}

std::string_view Statement::text(int column) const {
  const void* bytes = sqlite3_column_blob(get(), column);
  const int size = sqlite3_column_bytes(get(), column);
  return bytes == nullptr ? std::string_view()
                          : std::string_view(static_cast<const char*>(bytes), static_cast<std::size_t>(size));
}

Expected<Database> Database::open(const std::string& path, Access access, int busy_ms) {
  const int flags = access == Access::kWrite     ? SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE
                    : access == Access::kReadUri ? SQLITE_OPEN_READONLY | SQLITE_OPEN_URI
                                                 : SQLITE_OPEN_READONLY;
  sqlite3* made = nullptr;
  const int result = sqlite3_open_v2(path.c_str(), &made, flags | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE, nullptr);
  Database database(made);
  if (result != SQLITE_OK) return Failure(sqlite_error(made, result));
  // SQLite opens what it may not write for reading.
  if (access == Access::kWrite && sqlite3_db_readonly(made, "main") == 1)
    return Failure(sqlite_error(made, SQLITE_READONLY));
  sqlite3_busy_timeout(made, busy_ms);
  // The file may be anybody's: its schema calls nothing, and what it has is checked.
  sqlite3_db_config(made, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
  sqlite3_db_config(made, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
  if (const auto checks = database.run("PRAGMA cell_size_check=ON"); !checks) return Failure(checks.error());
  return database;
}

Expected<void> Database::run(const char* sql) {
  const int result = sqlite3_exec(get(), sql, nullptr, nullptr, nullptr);
  if (result != SQLITE_OK) return Failure(sqlite_error(get(), result));
  return {};
}

Expected<std::uint64_t> Database::number(std::string_view sql) {
  auto statement = Statement::prepare(get(), sql, false);
  if (!statement) return Failure(statement.error());
  const auto row = statement->step();
  if (!row) return Failure(row.error());
  return *row ? statement->number(0) : 0;
}

Expected<Transaction> Transaction::begin(Database& database) {
  if (const auto begun = database.run("BEGIN IMMEDIATE"); !begun) return Failure(begun.error());
  return Transaction(database.get());
}

Expected<void> Transaction::commit() {
  const int result = sqlite3_exec(database_, "COMMIT", nullptr, nullptr, nullptr);
  if (result != SQLITE_OK) return Failure(sqlite_error(database_, result));
  database_ = nullptr;
  return {};
}

Transaction::~Transaction() {
  if (database_ != nullptr) sqlite3_exec(database_, "ROLLBACK", nullptr, nullptr, nullptr);
}

}  // namespace windlass::store
