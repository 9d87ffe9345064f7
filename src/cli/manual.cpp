#include "cli/manual.h"

#include <algorithm>
#include <cctype>
#include <string_view>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "cli/description.h"

namespace windlass::cli {
namespace {

// Text as roff prints it: no character of it is a request, an escape or a typographic quote.
std::string roff(std::string_view text) {
  std::string out = text.starts_with('.') ? "\\&" : "";
  for (const char c : text) {
    switch (c) {
      case '\\': out += "\\e"; break;
      case '-': out += "\\-"; break;
      case '\'': out += "\\(aq"; break;
      case '`': out += "\\(ga"; break;
      case '"': out += "\\(dq"; break;
      case '^': out += "\\(ha"; break;
      case '~': out += "\\(ti"; break;
      case '\n': out += ' '; break;
      default: out += c;
    }
  }
  return out;
}

std::string bold(std::string_view text) { return fmt::format("\\fB{}\\fR", roff(text)); }
std::string italic(std::string_view text) { return fmt::format("\\fI{}\\fR", roff(text)); }

std::string head(const std::string& page, const std::string& text) {
  std::string title = page;
  std::ranges::transform(title, title.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return fmt::format(".TH {} 1 \"\" \"windlass {}\" \"Windlass\"\n.SH NAME\n{} \\- {}\n.SH SYNOPSIS\n", roff(title),
                     roff(WINDLASS_VERSION), roff(page), roff(text));
}

// "-F, --frequency HZ", and below it what it means.
std::string item(const OptionDescription& option) {
  std::string text = ".TP\n";
  for (const std::string& name : option.names) text += (&name == option.names.data() ? "" : ", ") + bold(name);
  if (!option.argument.empty()) {
    std::string words;
    for (const std::string& word : option.words) words += (words.empty() ? "" : "|") + bold(word);
    text += option.names.empty() ? "" : " ";
    text += words.empty() || option.names.empty() ? italic(option.argument) : words;
  }
  if (option.repeats) text += " ...";
  text += "\n" + roff(option.text);
  if (option.names.empty() && !option.words.empty())
    text += ": " + roff(fmt::format("{}", fmt::join(option.words, ", ")));
  if (!option.default_value.empty()) text += fmt::format(" (default: {})", roff(option.default_value));
  return text + "\n";
}

std::string options_section(const std::vector<OptionDescription>& options) {
  std::string text = ".SH OPTIONS\n";
  for (const OptionDescription& option : options) text += item(option);
  return text;
}

ManualPage page_of(const CommandDescription& command) {
  const std::string name = "windlass-" + command.name;
  std::string text = head(name, command.text) + bold("windlass " + command.name) + " [" + italic("OPTIONS") + "]";
  for (const OptionDescription& option : command.options) {
    if (!option.names.empty()) continue;
    const std::string argument = italic(option.argument) + (option.repeats ? "..." : "");
    text += option.required ? " " + argument : " [" + argument + "]";
  }
  text += "\n" + options_section(command.options);
  return {name + ".1", text + ".SH SEE ALSO\n" + bold("windlass") + "(1)\n"};
}

}  // namespace

std::vector<ManualPage> manual_pages(const CLI::App& app) {
  const std::vector<CommandDescription> commands = describe_commands(app);
  std::string text = head(app.get_name(), app.get_description()) + bold(app.get_name()) + " " + italic("COMMAND") +
                     " [" + italic("OPTIONS") + "]\n.SH COMMANDS\n";
  std::vector<ManualPage> pages;
  for (const CommandDescription& command : commands) {
    text += ".TP\n" + bold("windlass-" + command.name) + "(1)\n" + roff(command.text) + "\n";
    pages.push_back(page_of(command));
  }
  pages.push_back({app.get_name() + ".1", text + options_section(describe_options(app))});
  return pages;
}

}  // namespace windlass::cli
