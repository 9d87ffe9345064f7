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
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cli/annotate.h"
#include "cli/commands.h"
#include "cli/errors.h"
#include "cli/otlp_output.h"
#include "cli/parsing.h"
#include "cli/pdb_options.h"
#include "cli/profile_input.h"
#include "cli/profile_selection.h"
#include "cli/say.h"
#include "cli/symbol_options.h"
#include "os/readers.h"
#include "profiler/export/chrome.h"
#include "profiler/export/csv.h"
#include "profiler/export/diff.h"
#include "profiler/export/firefox.h"
#include "profiler/export/folded.h"
#include "profiler/export/html.h"
#include "profiler/export/merge.h"
#include "profiler/export/pprof.h"
#include "profiler/export/report.h"
#include "profiler/export/speedscope.h"
#include "profiler/export/thread_lines.h"
#include "profiler/export/values.h"
#include "symbols/symbolize.h"

namespace windlass::cli {

namespace {

struct ReportArguments {
  std::vector<std::string> files;
  PdbSearch pdb;
  ProfileSelection selection;
  std::string label;
  AnnotateArguments annotate;
  bool html = false, folded = false, speedscope = false, firefox = false, chrome = false, json = false, csv = false;
  bool pprof = false, otlp = false, diff = false;
  exporter::Normalise normalise = exporter::Normalise::kSamples;
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

// As a command line names them; empty: it cannot.
std::string named_files(const std::vector<std::string>& files) {
  return files.size() == 1 && files.front() != "-" ? files.front() : "";
}

// A profile as the options choose it.
struct Chosen {
  std::string subject;  // its name in messages
  profile::Profile profile;
  profile::ValueType value;
};

Expected<void> write_lines(const ReportArguments& options, const profile::Profile& profile, profile::ValueType value,
                           const std::string& subject, TextWriter& out) {
  const exporter::ThreadLines lines = exporter::thread_lines(profile, value);
  if (const std::string note = note_of(lines); !note.empty()) say("windlass: {}: {}\n", subject, note);
  return options.firefox ? exporter::write_firefox(profile, lines, value, out)
                         : exporter::write_chrome(profile, lines, value, out);
}

Expected<void> write(const ReportArguments& options, const Chosen& what, TextWriter& out) {
  const auto& [subject, profile, value] = what;
  if (options.annotate.wanted())
    return write_annotated(profile, value, options.annotate, options.pdb,
                           {.json = options.json, .width = output_width(), .colour = wants_colour()}, out);
  const bool chosen = !options.selection.value.empty();
  if (options.html) return exporter::write_html(profile, out, {.first = value, .file = named_files(options.files)});
  if (options.folded) {
    if (!chosen && profile.events.size() > 1)  // the format has no place for it
      say("windlass: {}: the folded stacks count {} ({}). --value shows other values\n", subject,
          exporter::value_name(profile, value), unit_of(profile, value));
    return exporter::write_folded(profile, out, value);
  }
  if (options.speedscope)  // which shows time where it may choose
    return exporter::write_speedscope(profile, out, chosen ? std::optional(value) : std::nullopt);
  if (options.firefox || options.chrome) return write_lines(options, profile, value, subject, out);
  if (options.json) return exporter::write_json(profile, out, value);
  if (options.csv) return exporter::write_csv(profile, out, value);
  if (options.pprof) return exporter::write_pprof(profile, out);
  if (options.otlp) return write_otlp(profile, out);
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

// Of several files: all of their samples. Nothing: says why on stderr, and sets `status`.
std::optional<Chosen> choose(const ReportArguments& options, std::span<const std::string> files, int& status) {
  Chosen chosen{.subject = shown_profile(files.front()), .profile = {}, .value = {}};
  ProfileSelection selection = options.selection;
  selection.only.clear();
  for (const std::string& file : files) {
    std::vector<std::string> left = options.selection.only;
    auto profile = read_profile(file, "report", status, left);
    if (!profile) return std::nullopt;
    for (std::string& only : left)
      if (std::ranges::find(selection.only, only) == selection.only.end()) selection.only.push_back(std::move(only));
    if (&file == &files.front())
      chosen.profile = std::move(*profile);
    else
      exporter::merge_into(chosen.profile, *profile);
  }
  const auto adds_up = files.size() > 1 ? exporter::check_sums(chosen.profile) : Expected<void>();
  if (!adds_up) {
    status = unreadable_profile(files.back(), "report", adds_up.error());
    return std::nullopt;
  }
  if (files.size() > 1) chosen.subject += fmt::format(" and {} more", files.size() - 1);
  status = kUsage;
  if (!options.label.empty() && !has_label(chosen.profile, chosen.subject, options.label)) return std::nullopt;
  const auto value = select_from(chosen.profile, chosen.subject, selection);
  if (!value) return std::nullopt;
  chosen.value = *value;
  if (options.pdb.wanted() || std::getenv("_NT_SYMBOL_PATH") != nullptr) name_windows(options.pdb, chosen.profile);
  status = kDone;
  return chosen;
}

Expected<void> write_difference(const ReportArguments& options, const Chosen& a, const Chosen& b, TextWriter& out) {
  const auto difference = exporter::difference_of(a.profile, a.value, b.profile, b.value, options.normalise);
  if (!difference) return Failure(difference.error());
  if (options.json) return exporter::write_diff_json(*difference, a.profile, b.profile, out);
  if (options.csv) return exporter::write_diff_csv(*difference, out);
  if (options.html)
    return exporter::write_diff_html(*difference, a.profile, b.profile, out,
                                     {.name_a = a.subject, .name_b = b.subject});
  if (options.folded) return exporter::write_diff_folded(*difference, a.profile, b.profile, out);
  return exporter::write_diff_report(*difference, a.profile, b.profile, out,
                                     {.name_a = a.subject,
                                      .name_b = b.subject,
                                      .width = output_width(),
                                      .colour = wants_colour(),
                                      .functions = options.functions});
}

int end_of(const Expected<void>& written, const std::string& file) {
  if (written) return kDone;
  if (written.error().code != ErrorCode::kSystem) return unreadable_profile(file, "report", written.error());
  const int error = static_cast<int>(written.error().detail);
  if (error == EPIPE) return kDone;
  say_unwritten("standard output", error);
  return kRefused;
}

// False: says on stderr which options do not go together.
bool go_together(const ReportArguments& options) {
  const bool has_form = options.speedscope || options.firefox || options.chrome || options.pprof || options.otlp ||
                        !options.label.empty();
  if (options.pprof && ::isatty(STDOUT_FILENO) == 1) {
    say("windlass: report --pprof writes a compressed file, which a terminal cannot show. Way out: > FILE.pb.gz\n");
    return false;
  }
  if (options.otlp && ::isatty(STDOUT_FILENO) == 1) {
    say("windlass: report --otlp writes bytes, which a terminal cannot show. Way out: > FILE\n");
    return false;
  }
  if (options.annotate.wanted() && (has_form || options.html || options.folded || options.csv || options.diff)) {
    say("windlass: --annotate writes text, or lines of JSON with --json. Way out: leave out the other form\n");
    return false;
  }
  if (options.diff && (options.files.size() != 2 || has_form)) {
    say("windlass: report --diff compares two files. Way out: report --diff A B, with --html, --json, --csv, "
        "--folded or none\n");
    return false;
  }
  return true;
}

// False: says on stderr why not.
bool can_be_compared(const ReportArguments& options, const Chosen& a, const Chosen& b) {
  const auto text = [](const Chosen& one) {
    return fmt::format("{} ({})", name_of(one.profile, one.value), unit_of(one.profile, one.value));
  };
  if (text(a) != text(b)) {
    say("windlass: {} has {}, and {} has {}. Way out: --value, a value that both have\n", a.subject, text(a), b.subject,
        text(b));
    return false;
  }
  const auto& event_a = event_of(a.profile, a.value);
  if (a.value.counts && options.normalise != exporter::Normalise::kSamples &&
      event_a.period != event_of(b.profile, b.value).period) {
    say("windlass: the samples of {} and {} stand for different values. Way out: --value {}, or --normalise samples\n",
        a.subject, b.subject, event_a.name);
    return false;
  }
  return true;
}

int run_report(ReportArguments& options) {
  if (!go_together(options)) return kUsage;
  int status = kDone;
  const std::span files(options.files);
  // The profile says which files to open.
  if (options.annotate.wanted() || options.pdb.wanted() || std::getenv("_NT_SYMBOL_PATH") != nullptr)
    os::use_readers(os::Readers::start());
  // Never freed: a large profile has millions of pieces, and the process ends.
  static const auto& first = *new std::optional(choose(options, options.diff ? files.first(1) : files, status));
  if (!first) return status;
  if (options.annotate.wanted() &&
      !find_function(first->profile, first->subject, first->value, options.annotate.function))
    return kUsage;
  const auto second = options.diff ? choose(options, files.last(1), status) : std::nullopt;
  if (options.diff && !second) return status;
  if (second && !can_be_compared(options, *first, *second)) return kUsage;
  std::signal(SIGPIPE, SIG_IGN);  // a reader that has seen enough is no failure
  TextWriter out(STDOUT_FILENO);
  return end_of(second ? write_difference(options, *first, *second, out) : write(options, *first, out), first->subject);
}

}  // namespace

void register_report(CLI::App& app, int& status) {
  auto options = std::make_shared<ReportArguments>();
  CLI::App* command = app.add_subcommand("report", "Show a profile: top functions and call tree, or convert it");
  command
      ->add_option("FILE", options->files,
                   "a profile of record, or a file of another tool (perf.data, folded stacks, ...); - is standard "
                   "input. Several are shown as one")
      ->required()
      ->type_name("FILE");
  auto* forms = command->add_option_group("form", "what to write on standard output instead of the report");
  forms->add_flag("--html", options->html, "one self-contained page with a flame graph");
  forms->add_flag("--folded", options->folded, "folded stacks, one a line");
  forms->add_flag("--speedscope", options->speedscope, "speedscope's JSON");
  forms->add_flag("--firefox", options->firefox, "what threads did when, for profiler.firefox.com");
  forms->add_flag("--chrome", options->chrome, "what threads did when, for ui.perfetto.dev and chrome://tracing");
  forms->add_flag("--json", options->json, "functions, locations and samples, one JSON object a line");
  forms->add_flag("--pprof", options->pprof, "a profile as record writes it, with what the options choose");
  forms->add_flag("--otlp", options->otlp, "the body of a request to an OpenTelemetry collector (OTLP profiles)");
  forms->add_flag("--csv", options->csv, "the functions as comma-separated values");
  forms->add_option("--label", options->label, "shares of all values of this label; KEY may also be comm, pid or tid")
      ->type_name("KEY");
  forms->require_option(0, 1);
  add_annotate_options(*command, options->annotate);
  command->add_flag("--diff", options->diff, "compare two files: what differs in B from A, and is more than noise");
  static const std::map<std::string, exporter::Normalise> kHow{{"samples", exporter::Normalise::kSamples},
                                                               {"time", exporter::Normalise::kTime},
                                                               {"none", exporter::Normalise::kNothing}};
  command
      ->add_option_function<std::string>(
          "--normalise", [options](const std::string& how) { options->normalise = kHow.at(how); },
          "with --diff: samples (shares of all, the default), time (a second of recording) or none (sums)")
      ->check(CLI::IsMember(kHow))
      ->type_name("HOW")
      ->needs("--diff");
  add_selection_options(*command, options->selection);
  add_pdb_options(*command, options->pdb);
  add_symbols_option(*command);
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
