// windlass agent: records all the time, into a store.
#include <sys/utsname.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "cli/agent_writer.h"
#include "cli/byte_counts.h"
#include "cli/commands.h"
#include "cli/durations.h"
#include "cli/errors.h"
#include "cli/event_options.h"
#include "cli/parsing.h"
#include "cli/quick_names.h"
#include "cli/recording_start.h"
#include "cli/sample_options.h"
#include "cli/say.h"
#include "cli/service_notices.h"
#include "cli/silent.h"
#include "cli/stop_signals.h"
#include "os/readers.h"
#include "profiler/processes/truncated_files.h"
#include "profiler/samples/named_waits.h"
#include "profiler/store/open_store.h"

namespace windlass::cli {
namespace {

constexpr unsigned kAgentFrequency = 19;  // a second and CPU

struct AgentArguments {
  profiler::RecorderOptions recorder;
  EventArguments events;
  std::string store, host;
  double interval = 10;                              // seconds
  double keep = 7 * 86400.0;                         // seconds
  std::uint64_t keep_size = std::uint64_t{2} << 30;  // bytes
};

std::uint64_t nanoseconds(double seconds) { return static_cast<std::uint64_t>(seconds * 1e9); }

std::uint64_t unix_now() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

std::string this_host() {
  utsname names{};
  return uname(&names) == 0 ? names.nodename : "localhost";
}

// `recorded`: samples, as the recorder has counted them.
int say_end(const AgentWriter& writer, std::uint64_t recorded, const std::string& store) {
  const store::BatchQueue& queue = writer.queue();
  say("windlass: {} of {} samples are in {}, of {} intervals\n", queue.kept_samples(), recorded, store,
      queue.kept_batches());
  if (queue.waiting() == 0 && writer.dropped_samples() == 0) return kDone;
  say("windlass: {} samples were dropped, and {} intervals could not be written. Way out: free space, or another file "
      "with --store\n",
      writer.dropped_samples(), queue.waiting());
  return kRefused;
}

// Records on this thread, and writes on another one.
int record_into(store::ProfileStore& store, const AgentArguments& arguments, profiler::Recorder& recorder,
                int signals) {
  std::optional<QuickNames> names;
  const auto name = [&](profile::Profile& profile) {
    if (!names) names.emplace();
    names->name(profile);
    profiler::settle_named_waits(profile, recorder.options().events);
  };
  AgentWriter writer(
      store, name,
      {.host = arguments.host, .start_unix_ns = unix_now(), .interval_ns = nanoseconds(arguments.interval)});
  std::thread writes([&] { writer.run(); });
  const bool watchdog = wants_watchdog();
  profiler::Recorder::Hooks hooks;
  hooks.progress = [ready = false](const profiler::RecordingProgress&) mutable {
    if (!std::exchange(ready, true)) notify_manager("READY=1");
  };
  hooks.second = [&](profile::Profile&& second) {
    if (watchdog) notify_manager("WATCHDOG=1");
    writer.add(std::move(second), unix_now());
  };
  const auto run = recorder.run(signals, hooks);
  notify_manager("STOPPING=1");
  writer.end();
  writes.join();
  const int status = say_end(writer, recorder.progress().samples, arguments.store);
  if (!run) return refuse_recording("agent", run.error(), false);
  if (recorder.command() != nullptr) (void)command_status(*recorder.command());
  return status;
}

int unusable_store(const std::string& path, const Error& error) {
  say_error(path, error);
  return kRefused;
}

int agent(AgentArguments& arguments) {
  open_standard_files();
  auto events = events_of(arguments.events);
  if (!events) return refuse_recording("agent", events.error());
  arguments.recorder.events = std::move(*events);
  arguments.recorder.labels.executable = true;  // the label "process" of the store
  if (arguments.host.empty()) arguments.host = this_host();
  const store::History keep{.age_ns = nanoseconds(arguments.keep), .bytes = arguments.keep_size};
  auto store = store::open_store(arguments.store, {.write = true, .keep = keep});
  if (!store) return unusable_store(arguments.store, store.error());
  os::use_readers(os::Readers::start());
  profiler::survive_truncated_files();
  StopSignals signals;
  auto starting =
      std::make_optional<EndedBySignal>(signals.descriptor(), "windlass agent: interrupted before the first sample\n");
  auto recorder = profiler::Recorder::open(arguments.recorder);
  for (const int number : {SIGPIPE, SIGXFSZ}) std::signal(number, SIG_IGN);  // errors of writing, as others
  if (!recorder) return refuse_recording("agent", recorder.error(), false);
  starting.reset();
  if (!(*recorder)->limits().empty())
    say("windlass: BPF is refused, so samples are taken {}. {}\n", (*recorder)->limits(), (*recorder)->refusal());
  for (const std::string& remark : (*recorder)->remarks()) say("windlass: {}\n", remark);
  say("windlass: recording {} into {}; Ctrl-C ends it\n", subject_of((*recorder)->options()), arguments.store);
  const int status = record_into(**store, arguments, **recorder, signals.descriptor());
  say_silent();
  return status;
}

void add_store_options(CLI::App& command, AgentArguments& arguments) {
  command.add_option("--store", arguments.store, "the file that takes the samples; made if there is none")
      ->required()
      ->type_name("FILE");
  command.add_option("--host", arguments.host, "the label host of the samples; this machine's name if not given")
      ->type_name("NAME");
  add_duration(command, "--interval", arguments.interval, "samples of so long are kept together (10s)");
  add_duration(command, "--keep", arguments.keep, "older samples are deleted (7d)");
  command
      .add_option_function<std::string>(
          "--keep-size", [&arguments](const std::string& text) { arguments.keep_size = parse_bytes(text).value_or(0); },
          "the oldest samples are deleted so that the file stays below this size, of 8M or more (2G)")
      ->check([](const std::string& text) {
        constexpr std::uint64_t kLeast = std::uint64_t{8} << 20;
        return parse_bytes(text).value_or(0) >= kLeast
                   ? std::string()
                   : fmt::format("{} is no number of bytes of 8M or more, such as 100M or 2G", text);
      })
      ->type_name("BYTES");
}

}  // namespace

void register_agent(CLI::App& app, int& status) {
  auto arguments = std::make_shared<AgentArguments>();
  arguments->recorder.frequency = kAgentFrequency;
  CLI::App* command = app.add_subcommand("agent", "record all the time, into a store that report and view read");
  add_store_options(*command, *arguments);
  command->add_option("-F,--frequency", arguments->recorder.frequency, "samples a second of CPU time, on every CPU")
      ->capture_default_str()
      ->check(number_between(1, 49999))
      ->type_name("HZ");
  add_duration(*command, "--duration", arguments->recorder.duration, "stop after so long: 2, 2s, 500ms, 1m");
  add_event_options(*command, arguments->events);
  add_target_options(*command, arguments->recorder, "a command to run, with its arguments");
  add_filter_options(*command, arguments->recorder.filters);
  add_label_options(*command, arguments->recorder);
  command->callback([arguments, &status] { status = agent(*arguments); });
}

}  // namespace windlass::cli
