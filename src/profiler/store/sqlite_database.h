// SQLite with errors as values.
#pragma once

#include <sqlite3.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "windlass/error.h"

namespace windlass::store {

// What is wrong, and the way out.
[[nodiscard]] Error sqlite_error(sqlite3* database, int result);
inline constexpr const char* kOtherProgram = "a database of another program. Way out: name another file";
inline constexpr const char* kOtherVersion =
    "a store of another version of windlass. Way out: use that version, or begin a new file";
inline constexpr const char* kReadOnly = "the store is open for reading only";
inline constexpr const char* kDamaged =
    "the store is damaged. Way out: move it away and begin a new one; `sqlite3 FILE .recover` saves what can be read";

// A statement of SQL, prepared once and run often. Parameters are bound in order; a run begins with reset().
class Statement {
 public:
  [[nodiscard]] static Expected<Statement> prepare(sqlite3* database, std::string_view sql, bool keep = true);

  Statement& bind(std::uint64_t number) {
    return took(sqlite3_bind_int64(get(), ++bound_, static_cast<std::int64_t>(number)));
  }
  // Lives until the run has ended.
  Statement& bind(std::string_view text) {
    return took(sqlite3_bind_text64(get(), ++bound_, text.data() == nullptr ? "" : text.data(), text.size(),
                                    SQLITE_STATIC, SQLITE_UTF8));
  }
  Statement& bind(std::span<const std::byte> bytes) {
    return took(sqlite3_bind_blob64(get(), ++bound_, bytes.empty() ? static_cast<const void*>("") : bytes.data(),
                                    bytes.size(), SQLITE_STATIC));
  }

  // True: there is a row.
  [[nodiscard]] Expected<bool> step();
  // All of a statement that gives no rows; then it can be bound again.
  [[nodiscard]] Expected<void> run();
  void reset() {
    sqlite3_reset(get());
    bound_ = 0;
    refused_ = SQLITE_OK;
  }

  [[nodiscard]] std::uint64_t number(int column) const {
    return static_cast<std::uint64_t>(sqlite3_column_int64(get(), column));
  }
  [[nodiscard]] std::string_view text(int column) const;
  [[nodiscard]] bool is_null(int column) const { return sqlite3_column_type(get(), column) == SQLITE_NULL; }

 private:
  struct Finalize {
    void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
  };
  explicit Statement(sqlite3_stmt* statement) : statement_(statement) {}
  [[nodiscard]] sqlite3_stmt* get() const { return statement_.get(); }
  Statement& took(int result) {
    if (result != SQLITE_OK) refused_ = result;
    return *this;
  }

  std::unique_ptr<sqlite3_stmt, Finalize> statement_;
  int bound_ = 0;
  int refused_ = SQLITE_OK;  // a binding that failed
};

class Database {
 public:
  enum class Access : std::uint8_t { kRead, kReadUri, kWrite };  // kReadUri: the path is one of SQLite's URIs
  // `busy_ms`: how long another program's lock is waited for.
  [[nodiscard]] static Expected<Database> open(const std::string& path, Access access, int busy_ms);

  [[nodiscard]] Expected<void> run(const char* sql);
  // Of a pragma or a query: its first row's number.
  [[nodiscard]] Expected<std::uint64_t> number(std::string_view sql);
  [[nodiscard]] sqlite3* get() const { return database_.get(); }

 private:
  struct Close {
    void operator()(sqlite3* database) const { sqlite3_close(database); }
  };
  explicit Database(sqlite3* database) : database_(database) {}

  std::unique_ptr<sqlite3, Close> database_;
};

// Undone unless it is committed.
class Transaction {
 public:
  [[nodiscard]] static Expected<Transaction> begin(Database& database);
  [[nodiscard]] Expected<void> commit();
  Transaction(Transaction&& other) noexcept : database_(std::exchange(other.database_, nullptr)) {}
  Transaction& operator=(Transaction&&) = delete;
  ~Transaction();

 private:
  explicit Transaction(sqlite3* database) : database_(database) {}
  sqlite3* database_;
};

}  // namespace windlass::store
