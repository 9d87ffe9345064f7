// In place of symbols_run.cpp and symbol_places.cpp, where no compressor and no SQLite are linked.
#include "cli/commands.h"
#include "cli/say.h"
#include "cli/symbol_places.h"
#include "cli/symbols.h"

namespace windlass::cli {
namespace {

constexpr const char* kWayOut =
    "windlass: this build has no symbol files. Way out: the windlass of a package, or of cmake --preset install\n";

}  // namespace

int run_symbols(const SymbolsArguments&) {
  say_text(kWayOut);
  return kRefused;
}

std::vector<std::string>& symbol_places() {
  static std::vector<std::string> places;
  return places;
}

void name_late(profile::Profile&, store::ProfileStore*) {
  if (!symbol_places().empty()) say_text(kWayOut);
}

}  // namespace windlass::cli
