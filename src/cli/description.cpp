#include "cli/description.h"

#include <algorithm>
#include <cstddef>

#include <CLI/CLI.hpp>

namespace windlass::cli {
namespace {

std::vector<std::string> split_at(std::string_view text, char mark) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const std::size_t at = std::min(text.find(mark), text.size());
    parts.emplace_back(text.substr(0, at));
    text.remove_prefix(std::min(at + 1, text.size()));
  }
  return parts;
}

OptionDescription describe(const CLI::Option& option) {
  OptionDescription described;
  for (const std::string& name : option.get_snames()) described.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) described.names.push_back("--" + name);
  described.words = words_of(option);
  if (option.get_type_size() != 0) {
    const std::string type = described.words.empty() ? option.get_type_name() : "WORD";
    described.argument = option.get_positional() ? option.get_name(true) : type;
    described.kinds = split_at(type, '|');
  }
  described.text = option.get_description();
  described.default_value = option.get_default_str();
  described.repeats = option.get_expected_max() == CLI::detail::expected_max_vector_size;
  described.required = option.get_required();
  return described;
}

}  // namespace

std::vector<std::string> words_of(const CLI::Option& option) {
  // "TEXT:{gas,masm}"
  const std::string type = option.get_type_name();
  const std::size_t begin = type.find(":{");
  if (begin == std::string::npos || !type.ends_with('}')) return {};
  return split_at(std::string_view(type).substr(begin + 2, type.size() - begin - 3), ',');
}

std::vector<OptionDescription> describe_options(const CLI::App& command) {
  std::vector<OptionDescription> options;
  const auto add = [&](const CLI::App& from) {
    const CLI::Option* groups_help = &from == &command ? nullptr : from.get_help_ptr();  // the help does not list it
    for (const CLI::Option* option : from.get_options())
      if (option != groups_help) options.push_back(describe(*option));
  };
  add(command);
  for (const CLI::App* group : command.get_subcommands([](const CLI::App* sub) { return sub->get_name().empty(); }))
    add(*group);
  return options;
}

std::vector<CommandDescription> describe_commands(const CLI::App& app) {
  std::vector<CommandDescription> commands;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    commands.push_back({command->get_name(), command->get_description(), describe_options(*command)});
  return commands;
}

}  // namespace windlass::cli
