#include "cli/completion.h"

#include <unistd.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "base/text_writer.h"
#include "cli/description.h"

namespace windlass::cli {
namespace {

using Commands = std::vector<CommandDescription>;

// Single quotes of bash and zsh.
std::string shell_quoted(std::string_view text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'')
      out += "'\\''";
    else
      out += c == '\n' ? ' ' : c;
  }
  return out + "'";
}

// Of fish, which knows two escapes between them.
std::string quoted_for_fish(std::string_view text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out + "'";
}

// Within `spec` of zsh's _arguments and _describe: these characters would end a part of it.
std::string zsh_part(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\' || c == ':' || c == '[' || c == ']') out += '\\';
    out += c;
  }
  return out;
}

bool has_kind(const OptionDescription& option, std::string_view kind) {
  return std::ranges::find(option.kinds, kind) != option.kinds.end();
}

// What completes the value: "FILE", "PID FILE", or the words after "=".
std::string bash_value(const OptionDescription& option) {
  if (!option.words.empty()) return fmt::format("={}", fmt::join(option.words, " "));
  return fmt::format("{}", fmt::join(option.kinds, " "));
}

std::string bash_case(const CommandDescription& command) {
  std::string names, valued, values, rest;
  for (const OptionDescription& option : command.options) {
    for (const std::string& name : option.names) names += (names.empty() ? "" : " ") + name;
    if (option.names.empty()) {
      if (rest.empty()) rest = bash_value(option);
    } else if (!option.argument.empty()) {
      const std::string patterns = fmt::format("{}", fmt::join(option.names, "|"));
      valued += (valued.empty() ? "" : "|") + patterns;
      values += fmt::format("        {}) value={} ;;\n", patterns, shell_quoted(bash_value(option)));
    }
  }
  return fmt::format("    {})\n      options={} valued={} rest={}\n      case $before in\n{}      esac ;;\n",
                     command.name, shell_quoted(names), shell_quoted(valued), shell_quoted(rest), values);
}

constexpr std::string_view kBashBegin = R"(# bash completion for windlass: windlass completion bash
_windlass() {
  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} command=${COMP_WORDS[1]}
  local options='' valued='' rest='' value='' kind index
  COMPREPLY=()
  # bash makes three words of --mode=exact.
  if [[ $word == = ]]; then
    word=''
  elif [[ $before == = ]]; then
    before=${COMP_WORDS[COMP_CWORD - 2]}
  fi
  if ((COMP_CWORD == 1)); then
    mapfile -t COMPREPLY < <(compgen -W "$_windlass_commands" -- "$word")
    return
  fi
  case $command in
)";
constexpr std::string_view kBashEnd = R"(  esac
  if [[ $rest == COMMAND ]]; then
    for ((index = 2; index < COMP_CWORD; index++)); do
      case ${COMP_WORDS[index]} in
        --) ((index++)); break ;;
        -*) [[ "|$valued|" == *"|${COMP_WORDS[index]}|"* ]] && ((index++)); [[ ${COMP_WORDS[index]} == = ]] && ((index++)) ;;
        =) ((index++)) ;;
        *) break ;;
      esac
    done
    if ((index < COMP_CWORD)) && declare -F _command_offset > /dev/null; then
      _command_offset "$index"
      return
    fi
    ((index < COMP_CWORD)) && rest=FILE options=''
  fi
  [[ -n $value || $word != -* ]] || value="=$options"
  for kind in "${value:-$rest}"; do
    case $kind in =*) mapfile -t COMPREPLY < <(compgen -W "${kind#=}" -- "$word"); return ;; esac
  done
  for kind in ${value:-$rest}; do
    case $kind in
      FILE) mapfile -O "${#COMPREPLY[@]}" -t COMPREPLY < <(compgen -f -- "$word"); compopt -o filenames 2> /dev/null ;;
      DIR) mapfile -O "${#COMPREPLY[@]}" -t COMPREPLY < <(compgen -d -- "$word"); compopt -o filenames 2> /dev/null ;;
      PID) mapfile -O "${#COMPREPLY[@]}" -t COMPREPLY < <(cd /proc && compgen -G "$word*" | grep -x '[0-9]*') ;;
      COMMAND) mapfile -O "${#COMPREPLY[@]}" -t COMPREPLY < <(compgen -c -- "$word") ;;
      SUBCOMMAND) mapfile -t COMPREPLY < <(compgen -W "$_windlass_commands" -- "$word") ;;
    esac
  done
}
complete -F _windlass windlass
)";

std::string bash(const Commands& commands) {
  std::string cases, names;
  for (const CommandDescription& command : commands) {
    cases += bash_case(command);
    names += (names.empty() ? "" : " ") + command.name;
  }
  return fmt::format("_windlass_commands={}\n{}{}{}", shell_quoted(names), kBashBegin, cases, kBashEnd);
}

std::string zsh_action(const OptionDescription& option) {
  if (!option.words.empty()) return fmt::format("({})", fmt::join(option.words, " "));
  const std::map<std::string_view, std::string_view> actions = {
      {"FILE", "_files"}, {"DIR", "_files -/"}, {"PID", "_pids"}, {"SUBCOMMAND", "_windlass_commands"}};
  std::vector<std::string_view> calls;
  for (const std::string& kind : option.kinds)
    if (const auto action = actions.find(kind); action != actions.end()) calls.push_back(action->second);
  if (calls.empty()) return " ";
  return calls.size() == 1 ? std::string(calls.front()) : fmt::format("{{{}}}", fmt::join(calls, "; "));
}

std::string zsh_option(const OptionDescription& option) {
  std::string specs;
  for (const std::string& name : option.names) {
    std::string spec = option.repeats ? "*" : fmt::format("({})", fmt::join(option.names, " "));
    spec += name;
    if (!option.argument.empty()) spec += name.starts_with("--") ? "=" : "+";
    spec += fmt::format("[{}]", zsh_part(option.text));
    if (!option.argument.empty()) spec += fmt::format(":{}:{}", zsh_part(option.argument), zsh_action(option));
    specs += fmt::format(" \\\n        {}", shell_quoted(spec));
  }
  if (!option.names.empty()) return specs;
  const bool is_command = has_kind(option, "COMMAND");  // its own arguments are completed as its
  return fmt::format(" \\\n        {}",
                     shell_quoted(fmt::format("{}:{}:{}",
                                              is_command        ? "*:"
                                              : option.required ? ""
                                                                : ":",
                                              zsh_part(option.argument), is_command ? "_normal" : zsh_action(option))));
}

std::string zsh(const Commands& commands) {
  std::string text =
      "#compdef windlass\n# zsh completion for windlass: windlass completion zsh\n_windlass_commands() {\n";
  text += "  local -a commands\n  commands=(\n";
  for (const CommandDescription& command : commands)
    text += fmt::format("    {}\n", shell_quoted(zsh_part(command.name) + ":" + zsh_part(command.text)));
  text +=
      "  )\n  _describe -t commands command commands\n}\n_windlass() {\n  local context curcontext=$curcontext state "
      "line\n";
  text += "  typeset -A opt_args\n  _arguments -C '1: :_windlass_commands' '*:: :->rest'\n";
  text += "  [[ $state == rest ]] || return\n  case $words[1] in\n";
  for (const CommandDescription& command : commands) {
    text += fmt::format("    {})\n      _arguments -S", command.name);
    for (const OptionDescription& option : command.options) text += zsh_option(option);
    text += " ;;\n";
  }
  return text + "  esac\n}\n_windlass \"$@\"\n";
}

std::string fish_value(const OptionDescription& option) {
  if (!option.words.empty())
    return fmt::format(" -a {}", quoted_for_fish(fmt::format("{}", fmt::join(option.words, " "))));
  std::string text;
  if (has_kind(option, "FILE")) text += " -F";
  if (has_kind(option, "DIR")) text += " -a '(__fish_complete_directories)'";
  if (has_kind(option, "PID")) text += " -a '(__fish_complete_pids)'";
  if (has_kind(option, "SUBCOMMAND")) text += " -a '$__windlass_commands'";
  return text;
}

// The command to run with its arguments, which stand behind the options that have values.
std::string fish_command(const CommandDescription& command) {
  std::string valued;
  for (const OptionDescription& option : command.options)
    if (!option.argument.empty()) valued += fmt::format(" {}", fmt::join(option.names, " "));
  return fmt::format(" -a '(__fish_complete_subcommand --fcs-skip=2{})'", valued);
}

std::string fish_option(const CommandDescription& command, const OptionDescription& option) {
  std::string text = fmt::format("complete -c windlass -n '__windlass_command {}'", command.name);
  for (const std::string& name : option.names)
    text += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
  if (!option.names.empty() && !option.argument.empty()) text += has_kind(option, "FILE") ? " -r" : " -x";
  if (has_kind(option, "COMMAND")) text += fish_command(command);
  if (!option.argument.empty()) text += fish_value(option);
  return text + fmt::format(" -d {}\n", quoted_for_fish(option.text));
}

std::string fish(const Commands& commands) {
  std::string names, lines;
  for (const CommandDescription& command : commands) {
    names += " " + command.name;
    lines += fmt::format("complete -c windlass -n 'not __windlass_command $__windlass_commands' -a {} -d {}\n",
                         command.name, quoted_for_fish(command.text));
    for (const OptionDescription& option : command.options) lines += fish_option(command, option);
  }
  return fmt::format(R"(# fish completion for windlass: windlass completion fish
set -g __windlass_commands{}
function __windlass_command
    set -l words (commandline -opc)
    test (count $words) -gt 1; and contains -- $words[2] $argv
end
complete -c windlass -f
{})",
                     names, lines);
}

}  // namespace

void register_completion(CLI::App& app) {
  using Shell = std::string (*)(const Commands&);
  static const std::map<std::string, Shell> shells = {{"bash", bash}, {"zsh", zsh}, {"fish", fish}};
  auto shell = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand("completion", "a shell's completion of this command, on standard output");
  command->add_option("SHELL", *shell, "bash, zsh or fish")->required()->check(CLI::IsMember(shells));
  command->callback([&app, shell] { TextWriter(STDOUT_FILENO).text(shells.at(*shell)(describe_commands(app))); });
}

}  // namespace windlass::cli
