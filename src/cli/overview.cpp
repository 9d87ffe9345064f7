#include "cli/overview.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "base/shown.h"
#include "base/text_writer.h"
#include "cli/commands.h"
#include "cli/errors.h"
#include "cli/file_kind.h"
#include "cli/manual.h"
#include "cli/parsing.h"
#include "cli/say.h"
#include "cli/version.h"
#include "profiler/doctor/system_probe.h"

namespace windlass::cli {
namespace {

struct Need {
  std::string_view command;
  const char* line;
  const char* what;
};
constexpr Need kFirstNeeds[] = {
    {"record", "windlass record ./app", "record a program (or -p PID, or -a: the whole machine)"},
    {"report", "windlass report windlass.pb.gz", "show the profile (windlass view: a flame graph in the browser)"},
    {"walk", "windlass walk PID", "print the call stacks of a process, a core file or a minidump"},
};

// Whether this machine can be recorded, without loading anything: doctor tries more.
std::string state_of_machine() {
  const profiler::SystemFacts facts = profiler::read_system_facts({});
  const profiler::SystemTrials trials = profiler::try_system(facts);
  const auto diagnosis = profiler::conclude(facts, profiler::judge(facts, trials), trials.perf_own == 0);
  const bool works = diagnosis.verdict == profiler::Verdict::kWorks;
  return fmt::format("This machine: {}{}\n", shown(diagnosis.sentence), works ? "" : " (windlass doctor says why)");
}

void print(const std::string& text) {
  TextWriter out(STDOUT_FILENO);
  out.text(text);
}

int write_pages(const CLI::App& app, const std::string& folder) {
  for (const ManualPage& page : manual_pages(app)) {
    const std::string path = folder + "/" + page.file;
    std::ofstream file(path);
    file << page.text;
    file.close();
    if (file) continue;
    say_unwritten(path, errno);
    return kRefused;
  }
  return kDone;
}

}  // namespace

void print_overview(const CLI::App& app) {
  std::string text = fmt::format("{} {}: {}\n\n", app.get_name(), WINDLASS_VERSION, app.get_description());
  for (const Need& need : kFirstNeeds) text += fmt::format("  {:<32} {}\n", need.line, need.what);
  text += "\nOther commands:\n";
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    if (std::ranges::find(kFirstNeeds, command->get_name(), &Need::command) == std::end(kFirstNeeds))
      text += fmt::format("  {:<32} {}\n", command->get_name(), command->get_description());
  text += "\n" + state_of_machine();
  print(text);
}

void say_unknown_command(const CLI::App& app, const std::string& word) {
  if (word.size() > 1 && word.front() == '-') {
    const std::string missing = missing_option(app, word);
    return say("windlass: {}{} Way out: windlass help lists the commands\n", missing,
               missing.ends_with('?') ? "" : ".");
  }
  std::error_code ignored;
  if (std::filesystem::is_regular_file(word, ignored)) {
    if (access(word.c_str(), X_OK) == 0) {
      const char* here = word.find('/') == std::string::npos ? "./" : "";
      return say("windlass: {0} is a program. Way out: windlass record {1}{0}\n", word, here);
    }
    if (say_other_kind(word, "windlass")) return;
  }
  if (std::ranges::all_of(word, [](unsigned char c) { return std::isdigit(c) != 0; }))
    return say("windlass: there is no command '{0}'. Way out: windlass walk {0}, for the process\n", word);
  const std::vector<std::string> names = subcommand_names(app);
  const std::string_view meant = nearest(word, names);
  say("windlass: there is no command '{}'{} Way out: windlass help lists the commands\n", word,
      meant.empty() ? std::string(".") : fmt::format("; did you mean {}?", meant));
}

void register_help(CLI::App& app, int& status) {
  auto word = std::make_shared<std::string>();
  CLI::App* help = app.add_subcommand("help", "the options of a command, as windlass help record");
  auto* command = help->add_option("COMMAND", *word, "a command's name; none: all commands");
  command->type_name("SUBCOMMAND");
  auto pages = std::make_shared<std::string>();
  help->add_option("--man-pages", *pages, "write the manual's pages into this folder instead")
      ->type_name("DIR")
      ->excludes(command);
  help->callback([&app, word, pages, &status] {
    if (!pages->empty()) {
      status = write_pages(app, *pages);
      return;
    }
    if (word->empty()) return print_overview(app);
    const std::vector<std::string> names = subcommand_names(app);
    if (std::ranges::find(names, *word) != names.end()) return print(app.get_subcommand(*word)->help(app.get_name()));
    say_unknown_command(app, *word);
    status = kUsage;
  });
  CLI::App* version = app.add_subcommand("version", "the version of this command");
  version->callback([] { print(version_text() + "\n"); });
}

}  // namespace windlass::cli
