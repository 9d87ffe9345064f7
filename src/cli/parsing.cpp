#include "cli/parsing.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <numeric>
#include <optional>

#include <fmt/format.h>

#include "base/shown.h"
#include "cli/description.h"

namespace windlass::cli {
namespace {

std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1), row(b.size() + 1), next(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    next[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      next[j] = std::min({row[j] + 1, next[j - 1] + 1, row[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        next[j] = std::min(next[j], before[j - 2] + 1);
    }
    std::swap(before, row);
    std::swap(row, next);
  }
  return row[b.size()];
}

// The subcommand that was being parsed, or the application.
const CLI::App* command_at(const CLI::App* app) {
  const auto chosen = app->get_subcommands();
  return chosen.empty() ? app : chosen.front();
}

std::string full_name(const CLI::App& app, const CLI::App& command) {
  return &app == &command ? app.get_name() : app.get_name() + " " + command.get_name();
}

std::vector<std::string> option_names(const CLI::App& command) {
  std::vector<std::string> names;
  for (const OptionDescription& option : describe_options(command))
    names.insert(names.end(), option.names.begin(), option.names.end());
  return names;
}

// `word` is shown().
std::string unexpected(const CLI::App& command, const std::string& word) {
  const std::string option = word.size() < 2 || word.front() != '-' ? "" : missing_option(command, word);
  return option.empty() ? fmt::format("{} is one argument too many", word) : option;
}

// What stands before and behind the first `mark` of a text.
struct Halves {
  std::string before, behind;
};
std::optional<Halves> halves(const std::string& text, std::string_view mark) {
  const std::size_t at = text.find(mark);
  if (at == std::string::npos) return std::nullopt;
  return Halves{shown(text.substr(0, at)), shown(text.substr(at + mark.size()))};
}

// What `text` lists before `end`: "TARGET,--pid] is required" gives "TARGET, --pid".
std::string listed(std::string_view text, char end) {
  std::string list;
  for (const char letter : text.substr(0, text.find(end))) list.append(1, letter).append(letter == ',' ? " " : "");
  return list;
}

// "Exactly 1 option from [TARGET,--pid] is required"
std::string listed_options(const std::string& text) {
  const auto list = halves(text, "[");
  return list ? listed(list->behind, ']') : shown(text);
}

// The parser's text of an error as a sentence. What it does not know of goes through as it is.
std::string sentence_of(const CLI::App& command, const CLI::Error& error) {
  const std::string what = error.what();
  std::optional<Halves> parts;
  // Not by its name: of an argument too many, that is the subcommand's.
  switch (static_cast<CLI::ExitCodes>(error.get_exit_code())) {
    case CLI::ExitCodes::ExtrasError:
      if ((parts = halves(what, "expected: ")))
        return unexpected(command, parts->behind.substr(0, parts->behind.find(' ')));
      break;
    case CLI::ExitCodes::RequiredError:
      if (what.starts_with("Exactly 1 option")) return "exactly one of these is needed: " + listed_options(what);
      if (what.starts_with("Requires at most 1 ")) return "at most one of these can be given: " + listed_options(what);
      if ((parts = halves(what, " is required"))) return parts->before + " is missing";
      break;
    case CLI::ExitCodes::ArgumentMismatch:
      if ((parts = halves(what, ":")) && what.find(" required ") != std::string::npos)
        return parts->before + ": its value is missing";
      break;
    case CLI::ExitCodes::ExcludesError:
      if ((parts = halves(what, " excludes ")))
        return fmt::format("{} and {} cannot be given together", parts->before, parts->behind);
      break;
    case CLI::ExitCodes::RequiresError:
      if ((parts = halves(what, " requires "))) return fmt::format("{} needs {}", parts->before, parts->behind);
      break;
    case CLI::ExitCodes::ValidationError:
      if ((parts = halves(what, " not in {")))
        return fmt::format("{} is none of {}", parts->before, listed(parts->behind, '}'));
      break;
    default: break;
  }
  return shown(what);
}

std::string failure(const CLI::App* app, const CLI::Error& error) {
  const CLI::App& command = *command_at(app);
  const std::string name = full_name(*app, command);
  const std::string help = app->get_name() + (&command == app ? " help" : " help " + command.get_name());
  const std::string text = sentence_of(command, error);
  if (text.find(". Way out: ") != std::string::npos) return fmt::format("{}: {}\n", name, text);
  return fmt::format("{}: {}{} Way out: {} lists the options\n", name, text, text.ends_with('?') ? "" : ".", help);
}

// An option with the name of its value and its default: "HZ [997]". The parser would add types and limits as it checks
// them: "HZ:UINT in [1 - 49999]=997".
class Format final : public CLI::Formatter {
 public:
  Format() { column_width(30); }
  std::string make_option_opts(const CLI::Option* option) const override {
    if (option->get_type_size() == 0) return "";
    std::string text;
    const std::vector<std::string> words = words_of(*option);
    const std::string type = words.empty() ? option->get_type_name() : fmt::format("{}", fmt::join(words, ","));
    if (!option->get_positional() && !type.empty()) text += " " + type;
    if (!option->get_default_str().empty()) text += " [" + option->get_default_str() + "]";
    if (option->get_expected_max() == CLI::detail::expected_max_vector_size) text += " ...";
    return text;
  }
};

template <typename Number>
CLI::Validator between(Number least, Number most) {
  const auto check = [least, most](const std::string& text) {
    Number value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool fits = error == std::errc() && end == text.data() + text.size() && value >= least && value <= most;
    return fits ? std::string() : fmt::format("{} is no number from {} to {}", text, least, most);
  };
  return CLI::Validator(check, "");
}

}  // namespace

CLI::Validator number_between(std::uint64_t least, std::uint64_t most) { return between(least, most); }
CLI::Validator amount_between(double least, double most) { return between(least, most); }

CLI::Validator readable_file() {
  return {[](std::string& file) {
            if (::access(file.c_str(), R_OK) == 0) return std::string();
            return fmt::format("cannot open {}: {}. Way out: a file that is there", file, std::strerror(errno));
          },
          ""};
}

CLI::Validator folder() {
  return {[](std::string& path) {
            struct stat status {};
            if (::stat(path.c_str(), &status) == 0 && !S_ISDIR(status.st_mode))
              errno = ENOTDIR;
            else if (::access(path.c_str(), R_OK | X_OK) == 0)
              return std::string();
            return fmt::format("cannot open {}: {}. Way out: a folder that is there", path, std::strerror(errno));
          },
          ""};
}

std::string_view nearest(std::string_view word, std::span<const std::string> names) {
  std::string_view best;
  if (word.size() < 4) return best;  // any word of few letters is near to another
  std::size_t least = std::max<std::size_t>(1, word.size() / 3) + 1;
  for (const std::string& name : names) {
    const std::size_t wrong = distance(word, name);
    if (wrong < least) least = wrong, best = name;
  }
  return best;
}

std::string missing_option(const CLI::App& command, const std::string& word) {
  const std::string name = word.substr(0, word.find('='));
  const std::vector<std::string> names = option_names(command);
  if (std::ranges::find(names, name) != names.end()) return {};
  const std::string_view meant = nearest(name, names);
  return fmt::format("there is no option {}{}", shown(name),
                     meant.empty() ? "" : fmt::format("; did you mean {}?", meant));
}

std::vector<std::string> subcommand_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(command->get_name());
  return names;
}

void use_own_words(CLI::App& app) {
  const auto format = std::make_shared<Format>();
  app.formatter(format);
  for (CLI::App* command : app.get_subcommands([](CLI::App*) { return true; })) {
    command->formatter(format);
    for (CLI::App* group : command->get_subcommands([](CLI::App*) { return true; })) group->formatter(format);
  }
  app.failure_message(failure);
}

}  // namespace windlass::cli
