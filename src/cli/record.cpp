// windlass record: sample, write a pprof profile.
#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "cli/byte_counts.h"
#include "cli/commands.h"
#include "cli/durations.h"
#include "cli/parsing.h"
#include "cli/pdb_options.h"
#include "cli/record_output.h"
#include "cli/sample_options.h"
#include "cli/silent.h"
#include "cli/stop_signals.h"
#include "cli/view.h"
#include "os/readers.h"
#include "profiler/processes/truncated_files.h"
#include "profiler/samples/lock_waits.h"
#include "profiler/samples/recorder.h"
#include "profiler/samples/scheduler_frames.h"
#include "profiler/samples/waker_frames.h"
#include "symbols/kernel_symbols.h"
#include "symbols/symbolize.h"

namespace windlass::cli {
namespace {

// Bytes between samples of allocations, as tcmalloc has it.
constexpr std::uint64_t kAllocPeriod = std::uint64_t{512} << 10;

// Of the times of samples: some millions.
constexpr std::uint64_t kTimelineBytes = std::uint64_t{32} << 20;

struct RecordArguments {
  profiler::RecorderOptions recorder;
  std::vector<std::string> events;             // empty: "cpu"
  std::optional<std::uint64_t> off_cpu, lock;  // in ns
  bool wakers = false, lock_holders = false;
  std::string output = "windlass.pb.gz";
  bool all = false;
  bool verbose = false;
  bool no_symbols = false;
  bool open = false;
  PdbSearch pdb;
};

int refuse(const std::string& text) {
  say("windlass record: {}\n", text);
  return kRefused;
}

// With the kind of refusal as a word for programs; with -v what libbpf and the verifier said, in full.
int refuse(const profiler::SystemError& error, bool verbose) {
  if (verbose && !error.log.empty()) say_text(shown_lines(error.log) + "\n");
  return refuse(fmt::format("{} [{}]", error.text, profiler::refusal_word(error.kind)));
}

// Before sampling there is nothing to keep: a signal ends the program at once, whatever the system is asked for then.
class EndedBySignal {
 public:
  explicit EndedBySignal(int signals) : over_(eventfd(0, EFD_CLOEXEC)), thread_([this, signals] { wait(signals); }) {}
  ~EndedBySignal() {
    (void)eventfd_write(over_, 1);
    thread_.join();
    close(over_);
  }
  EndedBySignal(const EndedBySignal&) = delete;
  EndedBySignal& operator=(const EndedBySignal&) = delete;

 private:
  void wait(int signals) const {
    pollfd wanted[2] = {{signals, POLLIN, 0}, {over_, POLLIN, 0}};
    while (poll(wanted, 2, -1) < 0 && errno == EINTR) continue;
    if (wanted[0].revents == 0 || wanted[1].revents != 0) return;
    say("windlass record: interrupted before the first sample; nothing is written\n");
    _exit(kFoundWrong);
  }

  int over_;
  std::thread thread_;
};

// If stderr is closed, another file could get its number, and messages would be written there. So open the standard
// files.
void open_standard_files() {
  int fd;
  do {
    fd = open("/dev/null", O_RDWR);
  } while (fd >= 0 && fd <= STDERR_FILENO);
  if (fd >= 0) close(fd);
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

// The command's own status, once the recording is written. A command that outlives the recording (--duration, Ctrl-C)
// is told to end, and waited for. The user has asked for that end, so the status is 0.
int command_status(profiler::ChildCommand& command) {
  if (const auto status = command.poll_status()) return *status;
  command.signal(SIGTERM);
  command.wait();
  return kDone;
}

std::string subject_of(const profiler::RecorderOptions& options) {
  if (!options.command.empty()) return options.command.front();
  if (options.targets.empty()) return "the whole machine";
  std::string text = options.targets.size() == 1 ? "process" : "processes";
  for (const std::uint32_t pid : options.targets) text += fmt::format(" {}", pid);
  return text;
}

void print_limits(const profiler::Recorder& recorder, ProgressLine& line) {
  if (!recorder.limits().empty() || !recorder.remarks().empty()) line.clear();
  if (!recorder.limits().empty())
    say("windlass: BPF is refused, so samples are taken {}. {}\n", recorder.limits(), recorder.refusal());
  for (const std::string& remark : recorder.remarks()) say("windlass: {}\n", remark);
}

using EventList = std::vector<profiler::EventSpec>;

// Chooses one of the events of waits by an option of its own.
void add_wait(EventList& events, const char* name, std::optional<std::uint64_t> shortest) {
  if (!shortest) return;
  auto wait = std::ranges::find(events, name, &profiler::EventSpec::name);
  if (wait == events.end()) wait = events.insert(events.end(), *profiler::parse_event(name));
  wait->shortest_wait = *shortest;
}

std::expected<void, std::string> add_wakers(EventList& events, const char* name, const char* option) {
  const auto wait = std::ranges::find(events, name, &profiler::EventSpec::name);
  if (wait == events.end())
    return std::unexpected(fmt::format("{} needs the event {}. Way out: --{}, too", option, name, name));
  wait->wakers = true;
  return {};
}

// What the events of waits can be chosen with; an error says what not.
std::expected<void, std::string> choose_waits(EventList& events, const RecordArguments& arguments) {
  add_wait(events, profiler::kWaitEvent, arguments.off_cpu);
  add_wait(events, profiler::kLockEvent, arguments.lock);
  for (const auto& [wanted, name, option] : {std::tuple{arguments.wakers, profiler::kWaitEvent, "--wakers"},
                                             {arguments.lock_holders, profiler::kLockEvent, "--lock-holders"}})
    if (wanted)
      if (auto added = add_wakers(events, name, option); !added) return added;
  const auto waits = std::ranges::find(events, profiler::EventKind::kWait, &profiler::EventSpec::kind);
  const auto locks = std::ranges::find(events, profiler::EventKind::kLock, &profiler::EventSpec::kind);
  if (locks == events.end()) return {};
  if (waits != events.end() && waits->shortest_wait != locks->shortest_wait)
    return std::unexpected("--off-cpu and --lock have different times. Way out: one time for both");
  if (arguments.no_symbols)
    return std::unexpected("locks are told by the names of functions. Way out: no --no-symbols");
  return {};
}

// The events that were chosen; an error where one was chosen twice.
std::expected<EventList, std::string> events_of(const RecordArguments& arguments) {
  EventList events;
  for (const std::string& text : arguments.events) events.push_back(*profiler::parse_event(text));
  if (events.empty()) events.emplace_back();
  if (auto chosen = choose_waits(events, arguments); !chosen) return std::unexpected(std::move(chosen.error()));
  for (std::size_t i = 0; i < events.size(); ++i)
    for (std::size_t k = 0; k < i; ++k)
      if (events[i].name == events[k].name)
        return std::unexpected(fmt::format("the event {} is chosen twice. Way out: once", events[i].name));
  return events;
}

// A checkpoint has no names, by which locks would be told from other waits.
void write_checkpoint(const ProfileFile& file, const profile::Profile& profile, const EventList& events,
                      const std::atomic<bool>& given_up) {
  if (std::ranges::find(events, profiler::EventKind::kLock, &profiler::EventSpec::kind) == events.end()) {
    (void)file.write(profile, &given_up);
    return;
  }
  profile::Profile without_locks = profile;
  profiler::take_locks(without_locks, events);
  (void)file.write(without_locks, &given_up);
}

int record(RecordArguments& arguments) {
  open_standard_files();
  auto events = events_of(arguments);
  if (!events) return refuse(events.error());
  arguments.recorder.events = std::move(*events);
  const ProfileFile file(arguments.output);
  if (const auto writable = file.check(); !writable)
    return refuse(writable.error() + ". Way out: name another file with -o");
  os::use_readers(os::Readers::start());
  profiler::survive_truncated_files();
  StopSignals signals;
  ProgressLine line;
  const auto what = [&](const profiler::RecorderOptions& options) {
    return fmt::format("recording {} into {}; Ctrl-C ends it", subject_of(options), file.name());
  };
  line.note(what(arguments.recorder));
  auto starting = std::make_optional<EndedBySignal>(signals.descriptor());
  auto recorder = profiler::Recorder::open(arguments.recorder);
  survive_failed_writes();
  if (!recorder) {
    line.clear();
    return refuse(recorder.error(), arguments.verbose);
  }

  print_limits(**recorder, line);
  line.begin(what((*recorder)->options()));
  const bool names_kernel = !arguments.no_symbols && (*recorder)->limits().empty();
  std::optional<symbols::KernelSymbolsAhead> kernel;
  profiler::Recorder::Hooks hooks;
  hooks.progress = [&](const profiler::RecordingProgress& progress) {
    starting.reset();  // sampling has begun
    if (names_kernel && !kernel) kernel.emplace();
    say_silent([&] { line.clear(); });
    line.show(progress);
  };
  if (file.replaceable()) {
    // A recording that is killed leaves its last checkpoint, without names.
    hooks.checkpoint = [&](const profile::Profile& profile, const std::atomic<bool>& given_up) {
      write_checkpoint(file, profile, arguments.recorder.events, given_up);
    };
  }
  if (const auto run = (*recorder)->run(signals.descriptor(), hooks); !run) {
    line.clear();
    return refuse(run.error(), arguments.verbose);
  }
  signals.release();
  profile::Profile profile = (*recorder)->profile();
  if (!arguments.no_symbols) {
    line.note("naming addresses");
    symbols::SymbolizeOptions options;
    options.kernel = kernel ? &*kernel : nullptr;
    options.pdb_files = arguments.pdb.files;
    options.symbol_path = arguments.pdb.symbol_path;
    const symbols::SymbolizeStats named = symbols::symbolize(profile, options);
    profiler::leave_out_scheduler(profile);
    profiler::leave_out_waking(profile);
    profiler::take_locks(profile, arguments.recorder.events);
    line.clear();
    if (arguments.pdb.wanted()) say_notes(named.notes);
  }
  line.clear();
  say_silent();
  print_summary(**recorder, profile, arguments.verbose);
  const int written = write_profile(file, profile);
  profiler::ChildCommand* command = (*recorder)->command();
  const int of_command = command == nullptr ? kDone : command_status(*command);
  const int status = command == nullptr || written == kRefused ? written : of_command;
  if (!arguments.open || profile.samples.empty()) return status;
  const int viewed = view(profile, file.name(), {});
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
  command
      ->add_option("-e,--event", arguments->events,
                   "what to take samples of: cpu, off-cpu, lock, page-faults, context-switches, CATEGORY:TRACEPOINT, "
                   "uprobe:FILE:FUNCTION and others; EVENT@N: once in N (repeatable)")
      ->default_str("cpu")
      ->check([](const std::string& text) {
        const auto event = profiler::parse_event(text);
        return event ? std::string() : event.error();
      })
      ->type_name("EVENT");
  add_optional_duration(*command, "--off-cpu", arguments->off_cpu,
                        "also where threads wait, and for how long; --off-cpu=10ms: waits of at least so long");
  command->add_flag("--wakers", arguments->wakers,
                    "with --off-cpu: also which thread ends a wait, and with which stack");
  add_optional_duration(*command, "--lock", arguments->lock,
                        "also where threads wait for locks; --lock=1ms: waits of at least so long");
  command->add_flag("--lock-holders", arguments->lock_holders,
                    "with --lock: also which thread holds the lock, and with which stack it lets go");
  auto* alloc = add_optional_bytes(*command, "--alloc", arguments->recorder.alloc, kAllocPeriod,
                                   "also where the command allocates memory, and what it has not freed; a sample in "
                                   "so many bytes (512K), or 1: each allocation");
  add_optional_bytes(*command, "--timeline", arguments->recorder.timeline, kTimelineBytes,
                     "also when each sample was taken, in so much memory (32M), about 7 bytes each; the oldest times "
                     "are given up when it is full");
  add_duration(*command, "--duration", arguments->recorder.duration, "stop after so long: 2, 2s, 500ms, 1m");
  auto* all = command->add_flag("-a,--all", arguments->all, "the whole machine (the default)");
  auto* targets = command
                      ->add_option("-p,--pid", arguments->recorder.targets,
                                   "one process with its threads and the children it has from now on (repeatable)")
                      ->type_name("PID")
                      ->delimiter(',')
                      ->check(number_between(1, 0x7fffffff));
  command->add_flag("--children", arguments->recorder.children, "the children that it has already, too")
      ->needs(targets);
  add_filter_options(*command, arguments->recorder.filters);
  add_label_options(*command, arguments->recorder);
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
  command->add_flag("--open", arguments->open, "then show the page in the browser, as `windlass view` does");
  auto* rest =
      command->add_option("COMMAND", arguments->recorder.command,
                          "a command to run, with its arguments: profiled from its first instruction to its end; "
                          "its exit status becomes record's");
  rest->type_name("COMMAND");
  all->excludes(targets)->excludes(rest);
  targets->excludes(rest);
  alloc->needs(rest);
  command->positionals_at_end();
  command->prefix_command(false);
  command->callback([arguments, &status] { status = record(*arguments); });
}

}  // namespace windlass::cli
