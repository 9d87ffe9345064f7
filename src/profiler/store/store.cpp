#include "profiler/store/store.h"

namespace windlass::store {

Expected<bool> ProfileStore::put_symbols(const StoredSymbols&, ByteView) {
  return fail(ErrorCode::kUnsupported, "this store keeps no symbol files. Way out: a folder, with --symbols", 0);
}

Expected<std::optional<std::string>> ProfileStore::symbols(std::string_view) { return std::optional<std::string>(); }

Expected<std::vector<StoredSymbols>> ProfileStore::symbol_files() { return std::vector<StoredSymbols>(); }

}  // namespace windlass::store
