// A store by its place, if this build has stores.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "profiler/store/store.h"

namespace windlass::store {

// clickhouse://..., or clickhouses://... with TLS.
[[nodiscard]] constexpr bool is_clickhouse_url(std::string_view text) {
  return text.starts_with("clickhouse://") || text.starts_with("clickhouses://");
}
// A store's place without user and password.
[[nodiscard]] inline std::string shown_place(const std::string& place) {
  const std::size_t begin = place.find("://") + 3, end = std::min(place.find('/', begin), place.size());
  const std::size_t mark = is_clickhouse_url(place) ? place.rfind('@', end) : std::string::npos;
  if (mark == std::string::npos || mark < begin) return place;
  return place.substr(0, begin) + place.substr(mark + 1);
}

// How much history a store keeps; 0: no bound. Older intervals are deleted when a batch is appended.
struct History {
  std::uint64_t age_ns = 0;  // before the end of the interval that is appended
  std::uint64_t bytes = 0;   // of the file without symbol files; the interval that came last is kept in any case
};

struct StoreOptions {
  bool write = false;  // and make the file if there is none
  History keep;        // of a store that is written
  int busy_ms = 5000;  // how long the lock of another program is waited for
};

// `place`: a file of SQLite, or clickhouse://HOST:PORT/DATABASE (clickhouse_store.h).
// A file that is not opened for writing shows the moment of its first read, whatever others append.
// Errors: kNotFound: this build has no store. kSystem: `detail` is errno. kUnsupported: of a newer version.
// kMalformed: another program's file, or damaged.
[[nodiscard]] Expected<std::unique_ptr<ProfileStore>> open_store(const std::string& place,
                                                                 const StoreOptions& options = {});

}  // namespace windlass::store
