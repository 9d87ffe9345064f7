// windlass: the command. Each subcommand lives in its own file.
#include <algorithm>
#include <cstdio>
#include <exception>
#include <iterator>
#include <new>
#include <string>
#include <string_view>

#include <CLI/CLI.hpp>

#include "cli/commands.h"
#include "cli/completion.h"
#include "cli/overview.h"
#include "cli/parsing.h"
#include "cli/say.h"
#include "cli/version.h"

namespace {

// `record -- $COMMAND` with an empty variable: the parser drops the mark, and nothing but the whole machine would be
// left.
bool names_no_command(int argc, char** argv) {
  if (argc < 3 || std::string_view(argv[argc - 1]) != "--") return false;
  const std::string_view command = argv[1];
  return command == "record" || command == "top" || command == "agent";
}

// The parser takes a word that is no subcommand for a missing one, and an option that there is not.
const char* unknown_subcommand(const CLI::App& app, int argc, char** argv) {
  if (argc < 2) return nullptr;
  if (argv[1][0] == '-') return windlass::cli::missing_option(app, argv[1]).empty() ? nullptr : argv[1];
  const auto is_it = [argv](const CLI::App* command) { return command->check_name(argv[1]); };
  return std::ranges::any_of(app.get_subcommands({}), is_it) ? nullptr : argv[1];
}

struct Command {
  std::string_view name;
  void (*describe)(CLI::App& app, int& status);
};
constexpr Command kCommands[] = {
    {"dump", windlass::cli::register_dump},       {"rows", windlass::cli::register_rows},
    {"record", windlass::cli::register_record},   {"top", windlass::cli::register_top},
    {"agent", windlass::cli::register_agent},     {"report", windlass::cli::register_report},
    {"view", windlass::cli::register_view},       {"serve", windlass::cli::register_serve},
    {"symbols", windlass::cli::register_symbols}, {"store", windlass::cli::register_store},
    {"walk", windlass::cli::register_walk},       {"doctor", windlass::cli::register_doctor},
    {"mcp", windlass::cli::register_mcp},         {"emit", windlass::cli::register_emit},
};

// The options of all commands take half of the start's instructions to describe. A line that begins with a command
// needs no other's.
void register_commands(CLI::App& app, std::string_view first, int& status) {
  const auto* const only = std::ranges::find(kCommands, first, &Command::name);
  if (only != std::end(kCommands)) return only->describe(app, status);
  if (first == "-V" || first == "--version") return;
  for (const Command& command : kCommands) command.describe(app, status);
  windlass::cli::register_help(app, status);
  windlass::cli::register_completion(app);
}

}  // namespace

int main(int argc, char** argv) {
  int status = windlass::cli::kDone;
  CLI::App app("call stacks of running programs and of dumps, and the unwind information behind them", "windlass");
  app.set_version_flag("-V,--version", windlass::cli::version_text);
  app.require_subcommand(1);
  register_commands(app, argc > 1 ? argv[1] : "", status);
  windlass::cli::use_own_words(app);
  if (argc == 1) {
    windlass::cli::print_overview(app);
    return windlass::cli::kDone;
  }
  if (const char* word = unknown_subcommand(app, argc, argv)) {
    windlass::cli::say_unknown_command(app, word);
    return windlass::cli::kUsage;
  }
  if (names_no_command(argc, argv)) {
    windlass::cli::say(
        "windlass {}: no command stands behind --. Way out: name a command, or -a for the whole machine\n", argv[1]);
    return windlass::cli::kUsage;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    // --help and --version come this way too, with exit code 0.
    return app.exit(error) == 0 ? windlass::cli::kDone : windlass::cli::kUsage;
  } catch (const std::bad_alloc&) {
    windlass::cli::say("windlass: out of memory. Way out: free some, or raise the limit (ulimit -v, the cgroup's)\n");
    return windlass::cli::kRefused;
  } catch (const std::exception& error) {
    windlass::cli::say("windlass: {}\n", error.what());
    return windlass::cli::kRefused;
  }
  return status;
}
