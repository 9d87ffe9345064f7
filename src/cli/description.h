// What the parser knows of a command's options, for manual pages, completion and "did you mean".
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace windlass::cli {

struct OptionDescription {
  std::vector<std::string> names;  // "-F", "--frequency"; none for an argument that stands by itself
  std::string argument;            // "HZ", or "COMMAND" of one that stands by itself; empty: a flag
  std::vector<std::string> kinds;  // of the value: "FILE", "DIR", "PID", "COMMAND", "SUBCOMMAND" can be completed
  std::vector<std::string> words;  // the values, where they are fixed
  std::string text;
  std::string default_value;
  bool repeats = false;
  bool required = false;
};

// The values that the option's check names; none: it names none.
[[nodiscard]] std::vector<std::string> words_of(const CLI::Option& option);

// All options of a command, those of its groups included, in the order of the help.
[[nodiscard]] std::vector<OptionDescription> describe_options(const CLI::App& command);

struct CommandDescription {
  std::string name;  // "record"
  std::string text;
  std::vector<OptionDescription> options;
};

// All subcommands, in the order of the help.
[[nodiscard]] std::vector<CommandDescription> describe_commands(const CLI::App& app);

}  // namespace windlass::cli
