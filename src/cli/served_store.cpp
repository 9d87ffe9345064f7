#include "cli/served_store.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/shown.h"
#include "cli/store_range.h"
#include "profiler/store/open_store.h"
#include "profiler/store/several_stores.h"

namespace windlass::cli {
namespace {

bool is_folder(const std::string& path) {
  std::error_code unknown;
  return std::filesystem::is_directory(path, unknown);
}

// By name. A file whose name has an @ is no range here.
std::vector<std::string> stores_in(const std::string& folder) {
  std::vector<std::string> files;
  std::error_code over;
  for (auto entry = std::filesystem::directory_iterator(folder, over); !over && entry != std::filesystem::end(entry);
       entry.increment(over)) {
    const std::string path = entry->path().string();
    const auto file = store_file(path);
    if (file && file->path == path) files.push_back(path);
  }
  std::ranges::sort(files);
  return files;
}

}  // namespace

bool is_servable_store(const std::string& path) {
  const auto file = store_file(path);
  return is_folder(path) || (file && file->range.empty());
}

Expected<OpenedStores> open_served(const ServedStore& served) {
  OpenedStores opened;
  std::vector<std::unique_ptr<store::ProfileStore>> stores;
  Error last{ErrorCode::kNotFound, "no store is here. Way out: windlass agent --store FOLDER/FILE writes them", 0, 0};
  for (const std::string& path : served.paths) {
    for (const std::string& file : is_folder(path) ? stores_in(path) : std::vector{path}) {
      if (stores.size() == kMostStores)
        return fail(ErrorCode::kLimit, "more stores than can be open at once. Way out: another folder for some", 0,
                    kMostStores);
      auto store = store::open_store(file);
      if (store) {
        stores.push_back(std::move(*store));
      } else {
        last = store.error();
        opened.left_out.push_back(shown(store::shown_place(file)) + ": " + last.text());
      }
    }
  }
  if (stores.empty()) return Failure(last);
  opened.store = store::several_stores(std::move(stores));
  return opened;
}

}  // namespace windlass::cli
