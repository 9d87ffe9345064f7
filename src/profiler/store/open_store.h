// The store in a file, if this build has one.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "profiler/store/store.h"

namespace windlass::store {

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

// A store that is not opened for writing shows the moment of its first read, whatever others append.
// Errors: kNotFound: this build has no store. kSystem: `detail` is errno. kUnsupported: of a newer version.
// kMalformed: another program's file, or damaged.
[[nodiscard]] Expected<std::unique_ptr<ProfileStore>> open_store(const std::string& path,
                                                                 const StoreOptions& options = {});

}  // namespace windlass::store
