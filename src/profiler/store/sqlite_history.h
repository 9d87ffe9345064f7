// Deletes what a store's history has no room for.
#pragma once

#include <cstdint>

#include "profiler/store/open_store.h"
#include "profiler/store/sqlite_database.h"

namespace windlass::store {

// The time that makes intervals old. A clock that steps ahead does not: the intervals go on from where they were, until
// they have done so for kBelieved. Most wrong clocks are right again by then.
class AgeClock {
 public:
  static constexpr std::uint64_t kBelieved = 3600'000'000'000;
  static constexpr std::uint64_t kGap = 60'000'000'000;  // between two intervals is no step
  // The time at the end of an interval.
  std::uint64_t at(std::uint64_t begin_ns, std::uint64_t end_ns);

 private:
  std::uint64_t now_ = 0;    // 0: the first interval is believed
  std::uint64_t ahead_ = 0;  // how long intervals have been ahead
};

class Pruner {
 public:
  explicit Pruner(const History& keep) : keep_(keep) {}

  // Within the transaction that appended a batch of these times. A clock that was ahead for a while has left intervals
  // of the future: those do not make the others old.
  [[nodiscard]] Expected<void> prune(Database& database, std::uint64_t begin_ns, std::uint64_t end_ns);

 private:
  [[nodiscard]] Expected<bool> delete_aged(Database& database, std::uint64_t now_ns);
  [[nodiscard]] Expected<bool> delete_for_room(Database& database);
  [[nodiscard]] Expected<void> collect(Database& database, std::uint64_t slack);

  History keep_;
  AgeClock clock_;
  std::uint64_t collected_ = 0;  // the group before which no contents were last used
};

}  // namespace windlass::store
