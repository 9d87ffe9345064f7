// In place of sqlite_store.cpp, where SQLite is not linked.
#include "profiler/store/open_store.h"

namespace windlass::store {

Expected<std::unique_ptr<ProfileStore>> open_store(const std::string&, const StoreOptions&) {
  return fail(ErrorCode::kNotFound, "this build has no store. Way out: a windlass that is linked with shared libraries",
              0);
}

}  // namespace windlass::store
