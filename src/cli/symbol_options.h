// The option that says where symbol files are: the same for each command that shows profiles.
#pragma once

namespace CLI {
class App;
}

namespace windlass::cli {

// Fills symbol_places().
void add_symbols_option(CLI::App& command);

}  // namespace windlass::cli
