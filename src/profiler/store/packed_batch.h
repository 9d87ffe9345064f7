// A batch as bytes: for a spool, between an agent and its store.
#pragma once

#include <string>
#include <string_view>

#include "profiler/store/batch_queue.h"
#include "windlass/error.h"

namespace windlass::store {

// All of a batch but Module::open_path.
// O(bytes).
[[nodiscard]] Expected<std::string> pack_batch(const OwnedBatch& batch);

// Errors: kMalformed or kTruncated: not of pack_batch(). kLimit: longer than 1 GiB. kUnsupported: of another version.
// All indexes are within their lists.
[[nodiscard]] Expected<OwnedBatch> unpack_batch(std::string_view bytes);

}  // namespace windlass::store
