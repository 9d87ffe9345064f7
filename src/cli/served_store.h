// The stores that `windlass serve` shows as one: a file, several, or those in folders.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "profiler/store/store.h"
#include "windlass/error.h"

namespace windlass::cli {

struct ServedStore {
  std::vector<std::string> paths;  // of stores, and of folders that are looked into again for each answer
  std::string name;                // for people
  bool is_own = false;             // `paths` is one store that the command line names, as FILE@RANGE
};

struct OpenedStores {
  std::unique_ptr<store::ProfileStore> store;
  std::vector<std::string> left_out;  // "FILE: why" of each store that could not be opened
};
inline constexpr std::size_t kMostStores = 256;  // open at once: each has three files

// Opens all that can be opened. Errors, if there is none: that of the last store; kNotFound: there is no store.
// kLimit: more than kMostStores.
[[nodiscard]] Expected<OpenedStores> open_served(const ServedStore& served);

// True: `path` is a folder, or a store of which no range is chosen.
[[nodiscard]] bool is_servable_store(const std::string& path);

}  // namespace windlass::cli
