// In place of sqlite_store.cpp, where SQLite is not linked.
#include "profiler/store/open_store.h"

namespace windlass::store {

Expected<std::unique_ptr<ProfileStore>> open_store(const std::string&, const StoreOptions&) {
  return fail(ErrorCode::kNotFound,
              "this build has no store. Way out: the windlass of a package, or of cmake --preset install", 0);
}

}  // namespace windlass::store
