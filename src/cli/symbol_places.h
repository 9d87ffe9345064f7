// Names that come after the samples: from symbol files in folders and stores.
#pragma once

#include <string>
#include <vector>

#include "profiler/profile/profile.h"
#include "profiler/store/store.h"

namespace windlass::cli {

// Folders and stores: those of --symbols, then those of WINDLASS_SYMBOLS, which a colon parts.
[[nodiscard]] std::vector<std::string>& symbol_places();

// Names addresses of modules that have a symbol file, of `store` first, if there is one. Those with a source line stay
// as they are. Says on stderr which files cannot be read. The static file has none of it.
void name_late(profile::Profile& profile, store::ProfileStore* store);

}  // namespace windlass::cli
