// windlass record: sample, write a pprof profile.
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "cli/byte_counts.h"
#include "cli/commands.h"
#include "cli/durations.h"
#include "cli/event_options.h"
#include "cli/live_page.h"
#include "cli/parsing.h"
#include "cli/pdb_options.h"
#include "cli/record_output.h"
#include "cli/recording_start.h"
#include "cli/sample_options.h"
#include "cli/say.h"
#include "cli/silent.h"
#include "cli/stop_signals.h"
#include "cli/version.h"
#include "cli/view.h"
#include "os/priority.h"
#include "os/readers.h"
#include "profiler/processes/truncated_files.h"
#include "profiler/samples/lock_waits.h"
#include "profiler/samples/named_waits.h"
#include "profiler/samples/recorder.h"
#include "symbols/debuginfod_program.h"
#include "symbols/kernel_symbols.h"
#include "symbols/names_ahead.h"
#include "symbols/symbolize.h"

namespace windlass::cli {
namespace {

// Bytes between samples of allocations, as tcmalloc has it.
constexpr std::uint64_t kAllocPeriod = std::uint64_t{512} << 10;

// Of the times of samples: some millions.
constexpr std::uint64_t kTimelineBytes = std::uint64_t{32} << 20;

struct RecordArguments {
  profiler::RecorderOptions recorder;
  EventArguments events;
  std::string output = "windlass.pb.gz";
  bool verbose = false;
  bool no_symbols = false;
  bool open = false;
  PdbSearch pdb;
};

using EventList = std::vector<profiler::EventSpec>;

int refuse(const std::string& text) { return refuse_recording("record", text); }

bool has_locks(const EventList& events) {
  return std::ranges::find(events, profiler::EventKind::kLock, &profiler::EventSpec::kind) != events.end();
}

// A reader that has gone and a limit of file sizes are errors of writing like others: the data goes elsewhere. Not to
// be called before the command is started, which would inherit it.
void survive_failed_writes() {
  for (const int number : {SIGPIPE, SIGXFSZ}) std::signal(number, SIG_IGN);
}

// Where the data goes when the place asked for cannot take it.
std::string rescue_path() {
  const char* directory = std::getenv("TMPDIR");
  return fmt::format("{}/windlass-{}.pb.gz", directory != nullptr ? directory : "/tmp", getpid());
}

// ". Show it: windlass report windlass.pb.gz"; nothing for standard output.
std::string next_step(const ProfileFile& file) {
  return file.replaceable() ? fmt::format(". Show it: windlass report {}", file.name()) : std::string();
}

int write_profile(const ProfileFile& file, const profile::Profile& profile) {
  const auto written = file.write(profile);
  if (written) {
    say("windlass: wrote {}{}\n", file.name(), next_step(file));
    return profile.samples.empty() ? kFoundWrong : kDone;
  }
  const ProfileFile rescue(rescue_path());
  if (rescue.write(profile))
    return refuse(fmt::format("cannot write {}: {}; the profile is in {} instead", file.name(), written.error().text(),
                              rescue.name()));
  return refuse(
      fmt::format("cannot write {}: {}; nor {}: the profile is lost. Way out: free space, or name another file with -o",
                  file.name(), written.error().text(), rescue.name()));
}

void print_limits(const profiler::Recorder& recorder, ProgressLine& line) {
  if (!recorder.limits().empty() || !recorder.remarks().empty()) line.clear();
  if (!recorder.limits().empty())
    say("windlass: BPF is refused, so samples are taken {}. {}\n", recorder.limits(), recorder.refusal());
  for (const std::string& remark : recorder.remarks()) say("windlass: {}\n", remark);
}

// A checkpoint has no names, by which locks would be told from other waits.
void write_checkpoint(const ProfileFile& file, const profile::Profile& profile, const EventList& events,
                      const std::atomic<bool>& given_up) {
  if (!has_locks(events)) {
    (void)file.write(profile, &given_up);
    return;
  }
  profile::Profile without_locks = profile;
  profiler::take_locks(without_locks, events);
  (void)file.write(without_locks, &given_up);
}

// The status of the recording, whose profile is written then.
int finish(const RecordArguments& arguments, const ProfileFile& file, const profile::Profile& profile,
           profiler::Recorder& recorder, const symbols::SymbolizeStats& named = {}) {
  say_silent();
  print_summary(recorder, profile, arguments.verbose);
  if (arguments.verbose) print_names(named);
  const int written = write_profile(file, profile);
  profiler::ChildCommand* command = recorder.command();
  const int of_command = command == nullptr ? kDone : command_status(*command);
  return command == nullptr || written == kRefused ? written : of_command;
}

// In the middle of naming, on another thread.
int finish_without_names(const RecordArguments& arguments, const ProfileFile& file, profiler::Recorder& recorder,
                         ProgressLine& line) {
  profile::Profile profile = recorder.profile();
  if (has_locks(arguments.recorder.events)) profiler::take_locks(profile, arguments.recorder.events);
  line.clear();
  say("windlass: interrupted while naming addresses: they are written without names, which windlass report finds\n");
  return finish(arguments, file, profile, recorder);
}

void show_live(LivePage& live, const profiler::RecordingProgress& progress, profiler::Recorder& recorder,
               ProgressLine& line) {
  const bool begun = live.begun();
  live.progress(progress, [&] { return recorder.profile(); });
  if (begun || !live.begun()) return;
  line.clear();
  say_live_address(live.server());
}

// Serves the page from the first samples on. Null: no page is wanted.
Expected<std::unique_ptr<LivePage>> live_page(const RecordArguments& arguments, const ProfileFile& file) {
  if (!arguments.open) return nullptr;
  auto server = PageServer::listen(0);
  if (!server) return Failure(server.error());
  return std::make_unique<LivePage>(
      std::move(*server), LivePage::Options{.file = file.replaceable() ? file.name() : "",
                                            .events = arguments.recorder.events,
                                            .names = !arguments.no_symbols,
                                            .begun = [](const std::string& address) { (void)open_browser(address); }});
}

int record(RecordArguments& arguments) {
  open_standard_files();
  if (arguments.open && arguments.output == "-")
    return refuse("--open shows a file, and -o - writes none. Way out: name a file with -o");
  if (is_another_kind(arguments.recorder.command)) return kFoundWrong;
  const profiler::RecorderOptions& wanted = arguments.recorder;
  if (wanted.alloc && wanted.command.empty() && wanted.targets.empty())
    return refuse("--alloc is for a command or some processes. Way out: -- COMMAND, or -p PID");
  auto events = events_of(arguments.events);
  if (!events) return refuse(events.error());
  if (arguments.no_symbols && has_locks(*events))
    return refuse("locks are told by the names of functions. Way out: no --no-symbols");
  arguments.recorder.events = std::move(*events);
  const ProfileFile file(arguments.output);
  if (const auto writable = file.check(); !writable)
    return refuse(writable.error() + ". Way out: name another file with -o");
  const auto live = live_page(arguments, file);
  if (!live) return refuse(fmt::format("cannot serve the page: {}. Way out: no --open", live.error().text()));
  os::use_readers(os::Readers::start());
  profiler::survive_truncated_files();
  StopSignals signals;
  ProgressLine line;
  const auto what = [&](const profiler::RecorderOptions& options) {
    return fmt::format("recording {} into {}; Ctrl-C ends it", subject_of(options), file.name());
  };
  line.note(what(arguments.recorder));
  auto starting = std::make_optional<EndedBySignal>(
      signals.descriptor(), "windlass record: interrupted before the first sample; nothing is written\n");
  std::optional<os::EndsFirst> first;  // until the recorder is gone
  auto recorder = profiler::Recorder::open(arguments.recorder);
  survive_failed_writes();
  if (!recorder) {
    line.clear();
    return refuse_recording("record", recorder.error(), arguments.verbose);
  }

  const bool names_kernel = !arguments.no_symbols && (*recorder)->limits().empty();
  std::optional<symbols::KernelSymbolsAhead> kernel;
  symbols::SymbolizeOptions naming;
  naming.pdb_files = arguments.pdb.files;
  naming.symbol_path = arguments.pdb.symbol_path;
  std::optional<symbols::NamesAhead> ahead;
  profiler::Recorder::Hooks hooks;
  // A server of debug files may take its time, and is not to be asked while others are measured.
  if (!arguments.no_symbols && !symbols::asks_debuginfod()) {
    hooks.code = [&](profile::Profile&& code) {
      if (!ahead) ahead.emplace(naming);
      ahead->add(std::move(code));
    };
  }
  hooks.progress = [&](const profiler::RecordingProgress& progress) {
    if (starting) {  // sampling has begun
      print_limits(**recorder, line);
      if (*kLinkage.left_out != '\0') say("windlass: {}\n", kLinkage.left_out);
      line.begin(what((*recorder)->options()));
      starting.reset();
    }
    if (names_kernel && !kernel) kernel.emplace();
    say_silent([&] { line.clear(); });
    if (*live) show_live(**live, progress, **recorder, line);
    line.show(progress);
  };
  if (file.replaceable()) {
    // A recording that is killed leaves its last checkpoint, without names.
    hooks.checkpoint = [&](const profile::Profile& profile, const std::atomic<bool>& given_up) {
      write_checkpoint(file, profile, arguments.recorder.events, given_up);
    };
  }
  hooks.ending = [&] { first.emplace(); };
  if (const auto run = (*recorder)->run(signals.descriptor(), hooks); !run) {
    line.clear();
    return refuse_recording("record", run.error(), arguments.verbose);
  }
  signals.forget();
  profile::Profile profile = (*recorder)->profile();
  symbols::SymbolizeStats named;
  if (!arguments.no_symbols) {
    line.note("naming addresses");
    const EndedBySignal impatient(signals.descriptor(), [&] {
      signals.release();
      return finish_without_names(arguments, file, **recorder, line);
    });
    naming.kernel = kernel ? &*kernel : nullptr;
    naming.ahead = ahead ? &*ahead : nullptr;
    named = symbols::symbolize(profile, naming);
    profiler::settle_named_waits(profile, arguments.recorder.events);
    line.clear();
    if (arguments.pdb.wanted()) say_notes(named.notes);
  }
  signals.pass_over_one();
  line.clear();
  const int status = finish(arguments, file, profile, **recorder, named);
  signals.release();
  if (*live) (*live)->end();
  if (!*live || profile.samples.empty()) return status;
  first.reset();
  const int viewed =
      view(std::move(profile), file.name(), {}, ServedBefore{(*live)->server(), (*live)->next_version()});
  return viewed == kDone ? status : viewed;
}

}  // namespace

void register_record(CLI::App& app, int& status) {
  auto arguments = std::make_shared<RecordArguments>();
  CLI::App* command = app.add_subcommand("record", "sample stacks of running programs into a pprof profile");
  command->add_option("-F,--frequency", arguments->recorder.frequency, "samples a second of CPU time, on every CPU")
      ->capture_default_str()
      ->check(number_between(1, 49999))
      ->type_name("HZ");
  command->add_option("-o,--output", arguments->output, "where the profile goes; - is standard output")
      ->capture_default_str()
      ->type_name("FILE");
  add_event_options(*command, arguments->events);
  add_optional_bytes(*command, "--alloc", arguments->recorder.alloc, kAllocPeriod,
                     "also where the command or the processes allocate memory, and what they have not "
                     "freed; a sample in so many bytes (512K), or 1: each allocation");
  add_optional_bytes(*command, "--timeline", arguments->recorder.timeline, kTimelineBytes,
                     "also when each sample was taken, in so much memory (32M), about 7 bytes each; the oldest times "
                     "are given up when it is full");
  add_duration(*command, "--duration", arguments->recorder.duration, "stop after so long: 2, 2s, 500ms, 1m");
  add_target_options(*command, arguments->recorder,
                     "a command to run, with its arguments: profiled from its first instruction to its "
                     "end; its exit status becomes record's");
  add_filter_options(*command, arguments->recorder.filters);
  add_label_options(*command, arguments->recorder);
  add_table_cache_option(*command, arguments->recorder);
  command->add_flag("-v,--verbose", arguments->verbose, "say more in the end: where stacks broke off, what it cost");
  command
      ->add_option("--btf", arguments->recorder.btf_path,
                   "the running kernel's type information, where /sys/kernel/btf/vmlinux is not to be had")
      ->type_name("FILE");
  command
      ->add_option_function<double>(
          "--agent-cpu", [arguments](double percent) { arguments->recorder.agent_share = percent / 100; },
          "how much of one CPU following code without rows may take, for every 1,000 samples a second; stacks that "
          "need more are truncated; 0: no bound")
      ->default_str(fmt::format("{:g}", profiler::WorkBudget::kDefaultShare * 100))
      ->check(amount_between(0, 100'000))
      ->type_name("PERCENT");
  command->add_flag("--no-symbols", arguments->no_symbols, "leave addresses unnamed: `windlass report` names them");
  add_pdb_options(*command, arguments->pdb);
  command->add_flag("--open", arguments->open, "show the page in the browser while recording, and then until Ctrl-C");
  command->callback([arguments, &status] { status = record(*arguments); });
}

}  // namespace windlass::cli
