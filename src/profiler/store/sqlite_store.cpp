// A store in one file of SQLite: the machine's own.
#include "profiler/store/sqlite_store.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "profiler/store/batch_rows.h"
#include "profiler/store/sqlite_contents.h"
#include "profiler/store/sqlite_history.h"
#include "profiler/store/sqlite_lists.h"
#include "profiler/store/sqlite_place.h"
#include "profiler/store/sqlite_query.h"
#include "profiler/store/sqlite_schema.h"
#include "profiler/store/sqlite_sums.h"
#include "profiler/store/sqlite_symbols.h"

namespace windlass::store {

namespace {

using Access = Database::Access;

// What a store needs to be appended to.
struct Writer {
  Contents contents;
  SumsWriter sums;
  Statement find_interval, add_interval, add_sample;
  Pruner pruner;

  static Expected<Writer> open(sqlite3* database, const History& keep) {
    auto contents = Contents::open(database);
    if (!contents) return Failure(contents.error());
    auto sums = SumsWriter::open(database);
    if (!sums) return Failure(sums.error());
    auto find =
        Statement::prepare(database, "SELECT 1 FROM intervals WHERE host = ? AND agent_start_ns = ? AND sequence = ?");
    auto interval = Statement::prepare(database,
                                       "INSERT INTO intervals(id, begin_ns, end_ns, host, agent_start_ns, sequence, "
                                       "duration_ns, lost, ends_known, events, "
                                       "comments) VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)");
    auto sample = Statement::prepare(database, "INSERT INTO samples VALUES(?, ?, ?, ?, ?, ?, ?, ?)");
    for (const auto* statement : {&find, &interval, &sample})
      if (!*statement) return Failure(statement->error());
    return Writer{std::move(*contents), std::move(*sums),   std::move(*find),
                  std::move(*interval), std::move(*sample), Pruner(keep)};
  }
};

// One batch, within a transaction.
class Appending {
 public:
  // `interval`: the number it gets.
  Appending(Writer& writer, const Batch& batch, std::uint64_t interval)
      : writer_(writer),
        batch_(batch),
        interval_(interval),
        group_(interval / kGroup),
        contents_(writer.contents, batch.profile, group_) {}

  Expected<bool> is_known() {
    const BatchId& id = batch_.id;
    writer_.find_interval.reset();
    const auto found =
        writer_.find_interval.bind(std::string_view(id.host)).bind(id.agent_start_ns).bind(id.sequence).step();
    writer_.find_interval.reset();
    return found;
  }

  Expected<void> add(const BatchRows& rows) {
    if (const auto added = add_interval(); !added) return added;
    for (const LabelSet& set : rows.label_sets) {
      const auto id = writer_.contents.label_set(set, group_);
      if (!id) return Failure(id.error());
      label_sets_.push_back(*id);
    }
    for (const auto& stack : rows.stacks) {
      const auto id = contents_.stack(stack);
      if (!id) return Failure(id.error());
      stacks_.push_back(*id);
    }
    return add_samples(rows);
  }

 private:
  Expected<void> add_interval() {
    std::string events;
    put_uleb128(events, batch_.profile.shown_event);
    for (const profile::Event& event : batch_.profile.events) {
      const auto id = writer_.contents.event(event);
      if (!id) return Failure(id.error());
      events_.push_back(*id);
      put_uleb128(events, *id);
    }
    const std::string comments = bytes_of_texts(batch_.profile.comments);
    Statement& row = writer_.add_interval;
    row.bind(interval_)
        .bind(batch_.begin_ns)
        .bind(batch_.end_ns)
        .bind(std::string_view(batch_.id.host))
        .bind(batch_.id.agent_start_ns);
    row.bind(batch_.id.sequence).bind(batch_.profile.duration_ns).bind(batch_.profile.lost);
    row.bind(std::uint64_t{batch_.profile.ends_known}).bind(std::as_bytes(std::span(events)));
    return row.bind(std::as_bytes(std::span(comments))).run();
  }

  // Two stacks of the profile are one in the store if their locations have equal contents.
  Expected<void> add_samples(const BatchRows& rows) {
    using Key = std::tuple<std::uint64_t, std::uint64_t, std::uint64_t, std::uint8_t, std::uint8_t>;
    std::map<Key, Sums> sums;  // in the order of the table
    for (const BatchRow& row : rows.rows) {
      Sums& to = sums[{events_[row.event], label_sets_[row.labels], stacks_[row.stack], row.end, row.certainty}];
      if (!add_to(to, row.sums)) return fail(ErrorCode::kLimit, kTooLargeSums, 0);
    }
    std::map<std::pair<std::uint64_t, std::uint64_t>, Sums> without_stacks;
    for (const auto& [key, sum] : sums) {
      const auto& [event, labels, stack, end, certainty] = key;
      if (!add_to(without_stacks[{event, labels}], sum)) return fail(ErrorCode::kLimit, kTooLargeSums, 0);
      Statement& row = writer_.add_sample;
      row.bind(interval_).bind(event).bind(labels).bind(stack).bind(std::uint64_t{end}).bind(std::uint64_t{certainty});
      if (const auto added = row.bind(sum.count).bind(sum.value).run(); !added) return added;
    }
    for (const auto& [key, sum] : without_stacks)
      if (const auto added = writer_.sums.add(batch_.begin_ns, key.first, key.second, sum); !added) return added;
    return {};
  }

  Writer& writer_;
  const Batch& batch_;
  std::uint64_t interval_, group_;
  BatchContents contents_;
  std::vector<std::uint64_t> events_, label_sets_, stacks_;  // ids
};

// Of an empty file: the tables. Another program may be making them.
Expected<void> make_tables(Database& database, int busy_ms) {
  for (const char* sql : {"PRAGMA auto_vacuum=INCREMENTAL", "PRAGMA page_size=4096"})
    if (const auto set = database.run(sql); !set) return set;
  auto wal = database.run("PRAGMA journal_mode=WAL");
  for (int waited = 0; !wal && wal.error().detail == EBUSY && waited < busy_ms; waited += 10) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));  // SQLite does not wait for this lock
    wal = database.run("PRAGMA journal_mode=WAL");
  }
  if (!wal) return wal;
  auto transaction = Transaction::begin(database);
  if (!transaction) return Failure(transaction.error());
  const auto tables = database.number("SELECT count(*) FROM sqlite_schema");
  if (!tables) return Failure(tables.error());
  if (*tables != 0) return {};
  const std::string numbers = "PRAGMA application_id=" + std::to_string(kApplicationId) +
                              "; PRAGMA user_version=" + std::to_string(kStoreVersion);
  for (const char* sql : {kSchema, numbers.c_str()})
    if (const auto made = database.run(sql); !made) return made;
  return transaction->commit();
}

// What makes each table and index.
Expected<std::vector<std::string>> schema_of(Database& database) {
  auto statement = Statement::prepare(
      database.get(), "SELECT sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY sql", false);
  if (!statement) return Failure(statement.error());
  std::vector<std::string> texts;
  for (;;) {
    const auto row = statement->step();
    if (!row) return Failure(row.error());
    if (!*row) return texts;
    texts.emplace_back(statement->text(0));
  }
}

// Word for word, since views, triggers and generated columns of a hostile file could run for ever.
Expected<std::vector<std::string>> known_schema() {
  auto database = Database::open(":memory:", Access::kWrite, 0);
  if (!database) return Failure(database.error());
  if (const auto made = database->run(kSchema); !made) return Failure(made.error());
  return schema_of(*database);
}

Expected<void> check_kind(Database& database) {
  const auto application = database.number("PRAGMA application_id");
  if (!application) return Failure(application.error());
  if (*application != kApplicationId) return fail(ErrorCode::kMalformed, kOtherProgram, 0);
  const auto version = database.number("PRAGMA user_version");
  if (!version) return Failure(version.error());
  if (*version != kStoreVersion) return fail(ErrorCode::kUnsupported, kOtherVersion, 0, *version);
  const auto has = schema_of(database);
  if (!has) return Failure(has.error());
  static const auto wanted = known_schema();
  if (!wanted) return Failure(wanted.error());
  if (*has != *wanted) return fail(ErrorCode::kMalformed, kDamaged, 0);
  return {};
}

Expected<void> prepare_file(Database& database, const StoreOptions& options) {
  if (options.write) {
    const auto tables = database.number("SELECT count(*) FROM sqlite_schema");
    if (!tables) return Failure(tables.error());
    if (*tables == 0)
      if (const auto made = make_tables(database, options.busy_ms); !made) return made;
  }
  if (const auto kind = check_kind(database); !kind) return kind;
  if (!options.write) return database.run("BEGIN");
  for (const char* sql : {"PRAGMA synchronous=FULL", "PRAGMA journal_size_limit=4194304"})
    if (const auto set = database.run(sql); !set) return set;
  return {};
}

// The file that a path names, by device and inode. Nothing: there is none.
std::optional<std::pair<dev_t, ino_t>> file_at(const std::string& path) {
  struct stat facts {};
  if (stat(path.c_str(), &facts) != 0) return std::nullopt;
  return std::pair(facts.st_dev, facts.st_ino);
}

struct OpenedStore {
  Database database;
  std::optional<Writer> writer;
};

// A store that may not be written needs no files beside it if it has no log.
Expected<Database> open_database(const std::string& path, const StoreOptions& options) {
  const auto prepared = [&](Expected<Database> database) -> Expected<Database> {
    if (!database) return database;
    if (const auto ready = prepare_file(*database, options); !ready) return Failure(ready.error());
    return database;
  };
  auto database = prepared(Database::open(path, options.write ? Access::kWrite : Access::kRead, options.busy_ms));
  if (database) return database;
  const Error error = explain_place(path, options.write, database.error());
  const bool is_refused = database.error().code == ErrorCode::kSystem && database.error().detail != EBUSY;
  if (options.write || !is_refused || ::access(path.c_str(), R_OK) != 0) return Failure(error);
  const auto uri = unchanging_uri(path);
  if (!uri) return Failure(uri.error());
  database = prepared(Database::open(*uri, Access::kReadUri, options.busy_ms));
  return database ? std::move(database) : Failure(error);
}

Expected<OpenedStore> open_file(const std::string& path, const StoreOptions& options) {
  auto database = open_database(path, options);
  if (!database) return Failure(database.error());
  std::optional<Writer> writer;
  if (options.write) {
    auto opened = Writer::open(database->get(), options.keep);
    if (!opened) return Failure(opened.error());
    writer.emplace(std::move(*opened));
  }
  return OpenedStore{std::move(*database), std::move(writer)};
}

class SqliteStore final : public ProfileStore {
 public:
  static Expected<std::unique_ptr<ProfileStore>> open(const std::string& path, const StoreOptions& options) {
    auto opened = open_file(path, options);
    if (!opened) return Failure(opened.error());
    return std::unique_ptr<ProfileStore>(new SqliteStore(path, options, std::move(*opened)));
  }

  Expected<bool> append(const Batch& batch) override {
    if (!options_.write) return fail(ErrorCode::kUnsupported, kReadOnly, 0);
    const auto rows = rows_of(batch);
    if (!rows) return Failure(rows.error());
    if (const auto opened = follow_path(); !opened) return Failure(opened.error());
    Database& database = opened_->database;
    auto transaction = Transaction::begin(database);
    if (!transaction) return Failure(transaction.error());
    const auto interval = database.number("SELECT ifnull(max(id), 0) + 1 FROM intervals");
    if (!interval) return Failure(interval.error());
    Appending appending(*opened_->writer, batch, *interval);
    const auto known = appending.is_known();
    if (!known) return known;
    if (*known) return false;
    if (const auto added = appending.add(*rows); !added) return Failure(added.error());
    if (const auto pruned = opened_->writer->pruner.prune(database, batch.begin_ns, batch.end_ns); !pruned)
      return Failure(pruned.error());
    if (const auto committed = transaction->commit(); !committed) return Failure(committed.error());
    return true;
  }
  Expected<std::optional<Extent>> extent() override { return ask(query_extent); }
  Expected<std::vector<std::string>> labels() override { return ask(query_labels); }
  Expected<std::vector<std::string>> values(std::string_view label) override { return ask(query_values, label); }
  Expected<std::vector<Series>> series(const Filter& filter, std::uint64_t from, std::uint64_t to,
                                       std::uint64_t step) override {
    return ask(query_series, filter, from, to, step);
  }
  Expected<std::vector<Total>> totals(std::string_view label, const Filter& filter, std::uint64_t from,
                                      std::uint64_t to) override {
    return ask(query_totals, label, filter, from, to);
  }
  Expected<Stacks> stacks(const Filter& filter, std::uint64_t from, std::uint64_t to) override {
    return ask(query_stacks, filter, from, to);
  }
  Expected<Frames> frames(std::span<const std::uint64_t> stacks) override { return ask(query_frames, stacks); }
  Expected<bool> put_symbols(const StoredSymbols& about, ByteView file) override {
    if (!options_.write) return fail(ErrorCode::kUnsupported, kReadOnly, 0);
    if (const auto opened = follow_path(); !opened) return Failure(opened.error());
    return store::put_symbols(opened_->database, about, file);
  }
  Expected<std::optional<std::string>> symbols(std::string_view build_id) override {
    return ask(query_symbols, build_id);
  }
  Expected<std::vector<StoredSymbols>> symbol_files() override { return ask(query_symbol_files); }

 private:
  SqliteStore(std::string path, const StoreOptions& options, OpenedStore&& opened)
      : path_(std::move(path)), options_(options), opened_(std::move(opened)), file_(file_at(path_)) {}

  template <typename Query, typename... Parts>
  auto ask(Query query, const Parts&... parts) -> decltype(query(nullptr, parts...)) {
    if (!opened_) return Failure(not_open_);
    return query(opened_->database.get(), parts...);
  }

  // A file that was moved away or deleted takes what is written to it along: the path is opened anew.
  Expected<void> follow_path() {
    if (opened_ && (!file_ || file_at(path_) == file_)) return {};
    // The log's name stays behind, so what it has goes into the file that was moved.
    if (opened_) (void)opened_->database.run("PRAGMA wal_checkpoint(TRUNCATE)");
    opened_.reset();
    auto again = open_file(path_, options_);
    if (!again) {
      not_open_ = again.error();
      return Failure(not_open_);
    }
    opened_ = std::move(*again);
    file_ = file_at(path_);
    return {};
  }

  std::string path_;
  StoreOptions options_;
  std::optional<OpenedStore> opened_;  // nothing: the last try to open failed
  std::optional<std::pair<dev_t, ino_t>> file_;
  Error not_open_{};
};

}  // namespace

Expected<std::unique_ptr<ProfileStore>> open_sqlite(const std::string& path, const StoreOptions& options) {
  return SqliteStore::open(path, options);
}

}  // namespace windlass::store
