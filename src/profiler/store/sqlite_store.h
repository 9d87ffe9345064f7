// The store in a file.
#pragma once

#include <memory>
#include <string>

#include "profiler/store/open_store.h"

namespace windlass::store {

// As open_store(), of a file.
[[nodiscard]] Expected<std::unique_ptr<ProfileStore>> open_sqlite(const std::string& path, const StoreOptions& options);

}  // namespace windlass::store
