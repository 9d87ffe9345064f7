// Deletes what a store's history has no room for.
#pragma once

#include <cstdint>

#include "profiler/store/open_store.h"
#include "profiler/store/sqlite_database.h"

namespace windlass::store {

class Pruner {
 public:
  explicit Pruner(const History& keep) : keep_(keep) {}

  // Within the transaction that appended a batch, which ends at `end_ns`. A clock that was ahead for a while has left
  // intervals of the future: those do not make the others old.
  [[nodiscard]] Expected<void> prune(Database& database, std::uint64_t end_ns);

 private:
  [[nodiscard]] Expected<bool> delete_aged(Database& database, std::uint64_t end_ns);
  [[nodiscard]] Expected<bool> delete_for_room(Database& database);
  [[nodiscard]] Expected<void> collect(Database& database, std::uint64_t slack_minutes);

  History keep_;
  std::uint64_t collected_ = 0;  // the minute before which no contents were last used
};

}  // namespace windlass::store
