// What `windlass`, `windlass help` and `windlass version` print.
#pragma once

#include <string>

namespace CLI {
class App;
}

namespace windlass::cli {

// For `windlass` alone: the three commands that people need first, the others, and if this machine can be recorded.
void print_overview(const CLI::App& app);

// "windlass: there is no command 'recrod'; did you mean record?"
void say_unknown_command(const CLI::App& app, const std::string& word);

// To be called when the other subcommands are registered.
void register_help(CLI::App& app, int& status);

}  // namespace windlass::cli
