// Contents of a store, each kept once: finds the id of one, or adds it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "profiler/store/batch_hashes.h"
#include "profiler/store/sqlite_database.h"
#include "profiler/store/store.h"

namespace windlass::store {

// A table whose rows have an id, the group of the last use, and a key.
class InternTable {
 public:
  // `columns`: those behind id, key and used, as "a, b".
  [[nodiscard]] static Expected<InternTable> open(sqlite3* database, const char* table, const char* key,
                                                  const char* columns, int column_count);
  // `bind_rest` binds the columns of a row that is new.
  template <typename Key, typename BindRest>
  [[nodiscard]] Expected<std::uint64_t> id_of(const Key& key, std::uint64_t group, BindRest bind_rest) {
    find_.reset();
    const auto found = find_.bind(key).step();
    if (!found) return Failure(found.error());
    if (*found) return touch(group);
    find_.reset();
    insert_.bind(key).bind(group);
    bind_rest(insert_);
    if (const auto added = insert_.run(); !added) return Failure(added.error());
    return static_cast<std::uint64_t>(sqlite3_last_insert_rowid(database_));
  }

 private:
  InternTable(sqlite3* database, Statement&& find, Statement&& insert, Statement&& touch)
      : database_(database), find_(std::move(find)), insert_(std::move(insert)), touch_(std::move(touch)) {}
  [[nodiscard]] Expected<std::uint64_t> touch(std::uint64_t group);

  sqlite3* database_;
  Statement find_, insert_, touch_;
};

// Of one database. What a batch uses is given to it through a BatchContents.
class Contents {
 public:
  [[nodiscard]] static Expected<Contents> open(sqlite3* database);

  [[nodiscard]] Expected<std::uint64_t> event(const profile::Event& event);
  [[nodiscard]] Expected<std::uint64_t> label_set(const LabelSet& set, std::uint64_t group);

 private:
  friend class BatchContents;
  Contents(sqlite3* database, std::vector<InternTable>&& tables, std::vector<Statement>&& statements)
      : database_(database), tables_(std::move(tables)), statements_(std::move(statements)) {}
  [[nodiscard]] Expected<std::uint64_t> string(std::string_view text, std::uint64_t group);
  [[nodiscard]] Expected<void> add_set_labels(std::uint64_t set, const std::vector<std::uint64_t>& pairs);

  sqlite3* database_;
  std::vector<InternTable> tables_;
  std::vector<Statement> statements_;
};

// Frames of one batch: each is looked for once.
class BatchContents {
 public:
  BatchContents(Contents& contents, const profile::Profile& profile, std::uint64_t group);

  [[nodiscard]] Expected<std::uint64_t> stack(const std::vector<std::uint32_t>& locations);

 private:
  [[nodiscard]] Expected<std::uint64_t> module(std::uint32_t index);
  [[nodiscard]] Expected<std::uint64_t> function(std::uint32_t index);
  [[nodiscard]] Expected<std::uint64_t> frame(std::uint32_t index);

  Contents& contents_;
  const profile::Profile& profile_;
  std::uint64_t group_;
  BatchHashes hashes_;
  std::vector<std::uint64_t> modules_, functions_, frames_;  // ids; 0: not looked for yet
};

}  // namespace windlass::store
