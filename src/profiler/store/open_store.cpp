#include "profiler/store/open_store.h"

#include "profiler/store/clickhouse_store.h"
#include "profiler/store/sqlite_store.h"

namespace windlass::store {

Expected<std::unique_ptr<ProfileStore>> open_store(const std::string& place, const StoreOptions& options) {
  return is_clickhouse_url(place) ? open_clickhouse(place, options) : open_sqlite(place, options);
}

}  // namespace windlass::store
