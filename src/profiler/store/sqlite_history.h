// Deletes what a store's history has no room for.
#pragma once

#include <cstdint>

#include "profiler/store/open_store.h"
#include "profiler/store/sqlite_database.h"

namespace windlass::store {

class Pruner {
 public:
  explicit Pruner(const History& keep) : keep_(keep) {}

  // Within the transaction that appended a batch.
  [[nodiscard]] Expected<void> prune(Database& database);

 private:
  [[nodiscard]] Expected<bool> delete_aged(Database& database);
  [[nodiscard]] Expected<bool> delete_for_room(Database& database);
  [[nodiscard]] Expected<void> collect(Database& database, std::uint64_t slack_minutes);

  History keep_;
  std::uint64_t collected_ = 0;  // the minute before which no contents were last used
};

}  // namespace windlass::store
