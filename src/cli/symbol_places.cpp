#include "cli/symbol_places.h"

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include "cli/errors.h"
#include "cli/say.h"
#include "profiler/store/open_store.h"
#include "symbols/symbol_files.h"

namespace windlass::cli {
namespace {

std::vector<std::string> places_of_environment() {
  std::vector<std::string> places;
  const char* text = std::getenv("WINDLASS_SYMBOLS");
  for (std::string_view rest = text != nullptr ? text : ""; !rest.empty();) {
    const std::size_t end = std::min(rest.find(':'), rest.size());
    if (end != 0) places.emplace_back(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return places;
}

void add_store(symbols::SymbolFiles& files, const std::string& name, store::ProfileStore* store) {
  files.add(name, [store](const std::string& build_id) -> Expected<std::optional<symbols::SymbolBytes>> {
    auto bytes = store->symbols(build_id);
    if (!bytes) return Failure(bytes.error());
    if (!*bytes) return std::nullopt;
    return symbols::SymbolBytes{.mapped = {}, .copied = std::move(**bytes)};
  });
}

}  // namespace

std::vector<std::string>& symbol_places() {
  static std::vector<std::string> places = places_of_environment();
  return places;
}

void name_late(profile::Profile& profile, store::ProfileStore* store) {
  symbols::SymbolFiles files;
  std::vector<std::unique_ptr<store::ProfileStore>> opened;
  const auto has_some = [](store::ProfileStore& in) {
    const auto list = in.symbol_files();
    return !list || !list->empty();
  };
  if (store != nullptr && has_some(*store)) add_store(files, "the store", store);
  for (const std::string& place : symbol_places()) {
    std::error_code ignored;
    if (std::filesystem::is_directory(place, ignored)) {
      files.add_folder(place);
      continue;
    }
    auto other = store::open_store(place);
    if (!other) {
      say_error(place, other.error());
      continue;
    }
    opened.push_back(std::move(*other));
    add_store(files, place, opened.back().get());
  }
  if (files.empty()) return;
  symbols::SymbolizeOptions how;
  how.symbol_files = &files;
  how.late = true;
  const symbols::SymbolizeStats named = symbols::symbolize(profile, how);
  for (const std::string& note : std::set<std::string>(named.notes.begin(), named.notes.end()))
    say("windlass: {}\n", note);
}

}  // namespace windlass::cli
