// The symbol files of a store.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "profiler/store/sqlite_database.h"
#include "profiler/store/store.h"

namespace windlass::store {

[[nodiscard]] Expected<bool> put_symbols(Database& database, const StoredSymbols& about, ByteView file);
[[nodiscard]] Expected<std::optional<std::string>> query_symbols(sqlite3* database, std::string_view build_id);
[[nodiscard]] Expected<std::vector<StoredSymbols>> query_symbol_files(sqlite3* database);
// Of all of them together.
[[nodiscard]] Expected<std::uint64_t> bytes_of_symbols(Database& database);

}  // namespace windlass::store
