// windlass report: a recorded profile for people, or converted for another program.
#include <sys/ioctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "cli/commands.h"
#include "cli/errors.h"
#include "cli/parsing.h"
#include "cli/pdb_options.h"
#include "cli/profile_input.h"
#include "cli/profile_selection.h"
#include "os/readers.h"
#include "profiler/export/folded.h"
#include "profiler/export/html.h"
#include "profiler/export/pprof.h"
#include "profiler/export/report.h"
#include "profiler/export/speedscope.h"
#include "symbols/symbolize.h"

namespace windlass::cli {

namespace {

struct ReportArguments {
  std::string file;
  PdbSearch pdb;
  ProfileSelection selection;
  std::string label;
  bool html = false, folded = false, speedscope = false, json = false;
  std::size_t functions = exporter::ReportOptions{}.functions;
  std::size_t tree_lines = exporter::ReportOptions{}.tree_lines;
};

// The terminal's, else $COLUMNS, else wide enough for most names.
unsigned output_width() {
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col != 0) return std::max<unsigned>(size.ws_col, 40);
  unsigned width = 0;
  if (const char* columns = std::getenv("COLUMNS"))
    std::from_chars(columns, columns + std::strlen(columns), width);  // 0 where it is no number
  return width >= 40 && width <= 1000 ? width : 120;
}

bool wants_colour() {
  const char* no_colour = std::getenv("NO_COLOR");  // no-color.org
  return ::isatty(STDOUT_FILENO) == 1 && (no_colour == nullptr || *no_colour == '\0');
}

Expected<void> write(const ReportArguments& options, const profile::Profile& profile, profile::ValueType value,
                     TextWriter& out) {
  const bool chosen = !options.selection.value.empty();
  if (options.html) return exporter::write_html(profile, out, {.first = value});
  if (options.folded) return exporter::write_folded(profile, out, value);
  if (options.speedscope)  // which shows time where it may choose
    return exporter::write_speedscope(profile, out, chosen ? std::optional(value) : std::nullopt);
  if (options.json) return exporter::write_json(profile, out, value);
  return exporter::write_report(profile, out,
                                {.value = value,
                                 .label = options.label,
                                 .width = output_width(),
                                 .colour = wants_colour(),
                                 .functions = options.functions,
                                 .tree_lines = options.tree_lines});
}

// Addresses of Windows images that the recording could not name.
void name_windows(const PdbSearch& pdb, profile::Profile& profile) {
  symbols::SymbolizeOptions how;
  how.pdb_files = pdb.files;
  how.symbol_path = pdb.symbol_path;
  how.only_windows = true;
  const symbols::SymbolizeStats named = symbols::symbolize(profile, how);
  if (pdb.wanted()) say_notes(named.notes);
}

int run_report(const ReportArguments& options) {
  int status = kDone;
  auto profile = read_profile(options.file, "report", status);
  if (!profile) return status;
  const std::string subject = shown_profile(options.file);
  if (!options.label.empty() && !has_label(*profile, subject, options.label)) return kUsage;
  const auto value = select_from(*profile, subject, options.selection);
  if (!value) return kUsage;
  if (options.pdb.wanted() || std::getenv("_NT_SYMBOL_PATH") != nullptr) {
    os::use_readers(os::Readers::start());  // the profile says which files to open
    name_windows(options.pdb, *profile);
  }
  std::signal(SIGPIPE, SIG_IGN);  // a reader that has seen enough is no failure
  TextWriter out(STDOUT_FILENO);
  const auto written = write(options, *profile, *value, out);
  if (written) return kDone;
  if (written.error().code != ErrorCode::kSystem) return unreadable_profile(options.file, "report", written.error());
  const int error = static_cast<int>(written.error().detail);
  if (error == EPIPE) return kDone;
  say_unwritten("standard output", error);
  return kRefused;
}

}  // namespace

void register_report(CLI::App& app, int& status) {
  auto options = std::make_shared<ReportArguments>();
  CLI::App* command = app.add_subcommand("report", "Show a profile: top functions and call tree, or convert it");
  command->add_option("FILE", options->file, "a profile that record wrote, or another tool (perf.data, folded stacks, ...); - is standard input")
      ->required()
      ->type_name("FILE");
  auto* forms = command->add_option_group("form", "what to write on standard output instead of the report");
  forms->add_flag("--html", options->html, "one self-contained page with a flame graph");
  forms->add_flag("--folded", options->folded, "folded stacks, one a line");
  forms->add_flag("--speedscope", options->speedscope, "speedscope's JSON");
  forms->add_flag("--json", options->json, "functions, locations and samples, one JSON object a line");
  forms->add_option("--label", options->label, "shares of all values of this label; KEY may also be comm, pid or tid")
      ->type_name("KEY");
  forms->require_option(0, 1);
  add_selection_options(*command, options->selection);
  add_pdb_options(*command, options->pdb);
  command->add_option("--functions", options->functions, "rows of the function table")
      ->capture_default_str()
      ->check(number_between(0, kMostNumber))
      ->type_name("N");
  command->add_option("--tree-lines", options->tree_lines, "lines of the call tree, about")
      ->capture_default_str()
      ->check(number_between(0, kMostNumber))
      ->type_name("N");
  command->callback([options, &status] { status = run_report(*options); });
}

}  // namespace windlass::cli
