// Several stores that are read as one: those of many machines, for example.
#pragma once

#include <memory>
#include <vector>

#include "profiler/store/store.h"

namespace windlass::store {

// Answers with the sums over all `stores`, of which there is at least one. An id of a stack holds its store's place
// and its id there. append() is refused. Errors: those of the first store that fails.
[[nodiscard]] std::unique_ptr<ProfileStore> several_stores(std::vector<std::unique_ptr<ProfileStore>> stores);

}  // namespace windlass::store
