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

Expected<void> write(const ReportArguments& options, const profile::Profile& profile, TextWriter& out) {
  if (options.html) return exporter::write_html(profile, out);
  if (options.folded) return exporter::write_folded(profile, out);
  if (options.speedscope) return exporter::write_speedscope(profile, out);
  if (options.json) return exporter::write_json(profile, out);
  return exporter::write_report(profile, out,
                                {.width = output_width(),
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
  if (options.pdb.wanted() || std::getenv("_NT_SYMBOL_PATH") != nullptr) {
    os::use_readers(os::Readers::start());  // the profile says which files to open
    name_windows(options.pdb, *profile);
  }
  std::signal(SIGPIPE, SIG_IGN);  // a reader that has seen enough is no failure
  TextWriter out(STDOUT_FILENO);
  const auto written = write(options, *profile, out);
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
  command->add_option("FILE", options->file, "a pprof file (.pb.gz), as record writes it; - is standard input")
      ->required()
      ->type_name("FILE");
  auto* forms = command->add_option_group("form", "what to write on standard output instead of the report");
  forms->add_flag("--html", options->html, "one self-contained page with a flame graph");
  forms->add_flag("--folded", options->folded, "folded stacks, one a line");
  forms->add_flag("--speedscope", options->speedscope, "speedscope's JSON");
  forms->add_flag("--json", options->json, "functions, locations and samples, one JSON object a line");
  forms->require_option(0, 1);
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
