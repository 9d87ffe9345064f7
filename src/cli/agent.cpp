// windlass agent: records all the time, into a store, to a collector of OpenTelemetry, or both.
#include <malloc.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <ctime>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "base/monotonic.h"
#include "cli/agent_metrics.h"
#include "cli/agent_options.h"
#include "cli/agent_otlp.h"
#include "cli/agent_spooled_store.h"
#include "cli/agent_writer.h"
#include "cli/commands.h"
#include "cli/errors.h"
#include "cli/metrics_server.h"
#include "cli/quick_names.h"
#include "cli/recording_start.h"
#include "cli/say.h"
#include "cli/service_notices.h"
#include "cli/silent.h"
#include "cli/stop_signals.h"
#include "os/readers.h"
#include "profiler/processes/truncated_files.h"
#include "profiler/samples/named_waits.h"
#include "profiler/store/open_store.h"
#include "profiler/store/packed_batch.h"

namespace windlass::cli {
namespace {

// Samples leave the recorder so often, and are forgotten there so often.
constexpr double kLongestPart = 10, kLongestKept = 60;  // seconds
constexpr double kPartsKept = 6;
constexpr std::chrono::seconds kSendingRest{5};  // batches that wait at the end are sent for so long
constexpr std::uint64_t kNamesIdle = 6;          // parts in which a file had no new address: then it is closed

std::uint64_t nanoseconds(double seconds) { return static_cast<std::uint64_t>(seconds * 1e9); }

std::uint64_t unix_now() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

std::string this_host() {
  utsname names{};
  return uname(&names) == 0 ? names.nodename : "localhost";
}

// What the recorder multiplies the counts of each event with.
std::vector<std::uint64_t> scales_of(const std::vector<profiler::EventSpec>& events) {
  std::vector<std::uint64_t> scales;
  for (const profiler::EventSpec& event : events) scales.push_back(event.period);
  return scales;
}

// What the agent's recordings came to, one after the other.
class AgentTotals {
 public:
  explicit AgentTotals(AgentMetrics& metrics) : metrics_(metrics) {}

  void set_store(const std::string& path) { metrics_.set_store(path); }
  void begin() { ++before_.recordings; }
  void count(profiler::Recorder& recorder) { metrics_.set(with(recorder)); }
  void end(profiler::Recorder& recorder) { before_ = with(recorder); }

  // The same of the store.
  void count(const StoreCounters& now) { metrics_.set(with(now)); }
  void end(const StoreCounters& last) { stored_ = with(last); }
  // The same of an OTLP server; what waits is on disk.
  void count(const OtlpNumbers& now) { metrics_.set(with(now)); }
  void end(const OtlpNumbers& last) { sent_ = with(last); }
  // Batches of all recordings of this agent count as this agent's.
  [[nodiscard]] Expected<spool::Spool> open_spool(const std::string& folder, std::uint64_t most_bytes) {
    auto spool = spool::Spool::open(folder, most_bytes);
    if (spool) spool->set_first(firsts_.emplace(folder, spool->first()).first->second);
    return spool;
  }
  [[nodiscard]] bool has_begun() const { return before_.recordings != 0; }
  [[nodiscard]] std::uint64_t samples() const { return before_.samples; }
  [[nodiscard]] const StoreCounters& stored() const { return stored_; }
  [[nodiscard]] const OtlpNumbers& sent() const { return sent_; }

 private:
  [[nodiscard]] AgentCounters with(profiler::Recorder& recorder) const {
    AgentCounters sum = before_;
    const auto progress = recorder.progress();
    const auto stats = recorder.kernel_stats();
    sum.samples += progress.samples;
    sum.truncated += progress.samples - progress.complete;
    sum.left_out += stats.left_out;
    sum.lowered_seconds += recorder.lowered().seconds;
    sum.lost_ring += stats.lost;
    sum.lost_waits += stats.lost_waits;
    sum.lost_stacks += recorder.lost_stacks();
    sum.lost_process_events += stats.lost_process_events;
    sum.lost_labels += recorder.missing_labels().of_threads;
    sum.bounds.clear();
    for (const auto& use : recorder.uses()) sum.bounds.push_back({use.name, use.used, use.most});
    return sum;
  }
  [[nodiscard]] StoreCounters with(StoreCounters now) const {
    now.samples += stored_.samples;
    now.earlier_samples += stored_.earlier_samples;
    now.earlier_intervals += stored_.earlier_intervals;
    now.torn_intervals += stored_.torn_intervals;
    now.intervals += stored_.intervals;
    now.dropped += stored_.dropped;
    now.refusals += stored_.refusals;
    return now;
  }

  [[nodiscard]] OtlpNumbers with(OtlpNumbers now) const {
    now.batches += sent_.batches;
    now.samples += sent_.samples;
    now.earlier_batches += sent_.earlier_batches;
    now.earlier_samples += sent_.earlier_samples;
    now.dropped_batches += sent_.dropped_batches;
    now.dropped_samples += sent_.dropped_samples;
    now.torn_batches += sent_.torn_batches;
    now.retries += sent_.retries;
    now.unsure += sent_.unsure;
    now.rejected_profiles += sent_.rejected_profiles;
    now.warnings += sent_.warnings;
    return now;
  }

  AgentMetrics& metrics_;
  AgentCounters before_;
  StoreCounters stored_;
  OtlpNumbers sent_;
  std::map<std::string, std::uint64_t> firsts_;  // by spool: the first batch of this agent
};

// Where samples go, as messages name that place.
std::string place_of(const AgentArguments& arguments) {
  std::string url = transport::url_shown(arguments.otlp.url);
  if (arguments.store.empty()) return url;
  std::string store = store::shown_place(arguments.store);
  return arguments.otlp.url.empty() ? store : fmt::format("{} and {}", store, url);
}

struct SpoolAtEnd {
  std::uint64_t earlier_batches = 0, earlier_samples = 0, waiting_batches = 0;
};
void say_spool(const SpoolAtEnd& left, const std::string& folder) {
  if (left.earlier_batches != 0)
    say("windlass: {} samples of an earlier agent were sent, too, in {} batches\n", left.earlier_samples,
        left.earlier_batches);
  if (left.waiting_batches != 0)
    say("windlass: {} batches wait in {}. The next agent with this spool sends them\n", left.waiting_batches, folder);
}

// True: no sample was dropped.
bool say_sent(const AgentTotals& totals, const OtlpArguments& otlp) {
  const OtlpNumbers& sent = totals.sent();
  say("windlass: {} of {} samples were sent to {}, in {} batches\n", sent.samples - sent.earlier_samples,
      totals.samples(), transport::url_shown(otlp.url), sent.batches - sent.earlier_batches);
  say_spool({sent.earlier_batches, sent.earlier_samples, sent.waiting_batches}, otlp.spool);
  if (sent.unsure != 0)
    say("windlass: {} requests had no answer, so that the server may have batches twice\n", sent.unsure);
  if (sent.dropped_batches == 0 && sent.rejected_profiles == 0 && sent.torn_batches == 0) return true;
  say("windlass: {} samples of {} batches were dropped, {} batches were damaged, and the server rejected {} profiles\n",
      sent.dropped_samples, sent.dropped_batches, sent.torn_batches, sent.rejected_profiles);
  return false;
}

int say_stored(const AgentTotals& totals, std::size_t waiting, const AgentArguments& arguments) {
  const StoreCounters& stored = totals.stored();
  if (!arguments.store.empty())
    say("windlass: {} of {} samples are in {}, of {} intervals\n", stored.samples - stored.earlier_samples,
        totals.samples(), store::shown_place(arguments.store), stored.intervals - stored.earlier_intervals);
  if (!arguments.store_spool.empty())
    say_spool({stored.earlier_intervals, stored.earlier_samples, stored.waiting_intervals}, arguments.store_spool);
  if (stored.torn_intervals != 0)
    say("windlass: {} batches in {} were damaged\n", stored.torn_intervals, arguments.store_spool);
  if (waiting == 0 && stored.dropped == 0) return stored.torn_intervals == 0 ? kDone : kRefused;
  say("windlass: {} samples were dropped, and {} intervals could not be written. Way out: free space, or another file "
      "with --store\n",
      stored.dropped, waiting);
  return kRefused;
}

int say_end(const AgentTotals& totals, std::size_t waiting, const AgentArguments& arguments) {
  const int status = say_stored(totals, waiting, arguments);
  if (arguments.otlp.url.empty()) return status;
  return say_sent(totals, arguments.otlp) ? status : kRefused;
}

// Where samples go; null: not there. A store is written as samples come, or through a spool.
struct Ways {
  std::unique_ptr<store::ProfileStore> store;
  std::unique_ptr<AgentSpooledStore> spooled;
  std::unique_ptr<AgentOtlp> otlp;
};

// Records on this thread, and writes on another one. The status; nothing: SIGHUP has ended the recording.
std::optional<int> record_into(const Ways& ways, const AgentArguments& arguments, profiler::Recorder& recorder,
                               StopSignals& signals, AgentTotals& totals) {
  const auto& [store, spooled, otlp] = ways;
  const auto with_spool = [&](StoreCounters counters) {
    if (spooled != nullptr) spooled->add_to(counters);
    return counters;
  };
  std::optional<QuickNames> names;
  const auto name = [&](profile::Profile& profile) {
    if (!names) names.emplace(1, kNamesIdle);
    names->name(profile);
    profiler::settle_named_waits(profile, recorder.options().events);
  };
  AgentWriter writer(store.get(), name,
                     {.host = arguments.host,
                      .start_unix_ns = unix_now(),
                      .interval_ns = nanoseconds(arguments.interval),
                      .scales = scales_of(recorder.options().events),
                      .counted = [&](const StoreCounters& counters) { totals.count(with_spool(counters)); },
                      .closed =
                          [&](const store::OwnedBatch& batch) {
                            if (otlp == nullptr && spooled == nullptr) return;
                            const auto packed = store::pack_batch(batch);
                            if (otlp != nullptr) otlp->add(packed, batch.samples);
                            if (spooled != nullptr) spooled->add(packed, batch.samples);
                          }});
  std::thread writes([&] { writer.run(); });
  const bool watchdog = wants_watchdog();
  profiler::Recorder::Hooks hooks;
  hooks.progress = [&, ready = false](const profiler::RecordingProgress&) mutable {
    if (!std::exchange(ready, true)) notify_manager("READY=1");
    if (watchdog) notify_manager("WATCHDOG=1");
    if (otlp != nullptr) totals.count(otlp->numbers());
    if (spooled != nullptr) totals.count(with_spool(writer.counters()));
    totals.count(recorder);
  };
  hooks.second = [&](profile::Profile&& part) {
    totals.count(recorder);  // before the store has these
    writer.add(std::move(part), unix_now());
  };
  totals.begin();
  const auto run = recorder.run(signals.descriptor(), hooks);
  const bool reload = run && !arguments.config.empty() && recorder.command() == nullptr && signals.take_hangup();
  if (reload)
    notify_manager(fmt::format("RELOADING=1\nMONOTONIC_USEC={}", monotonic_ns() / 1000));
  else
    notify_manager("STOPPING=1");
  writer.end();
  writes.join();
  totals.end(recorder);
  const auto rest = reload ? std::chrono::milliseconds(0) : std::chrono::milliseconds(kSendingRest);
  if (spooled != nullptr) spooled->end(rest);
  StoreCounters last = with_spool(writer.counters());
  if (reload) last.dropped += writer.waiting_samples();  // those in memory
  totals.end(last);
  if (otlp != nullptr) {
    otlp->end(rest);
    totals.end(otlp->numbers());
  }
  if (reload) return std::nullopt;
  const int status = say_end(totals, writer.waiting(), arguments);
  if (!run) return refuse_recording("agent", run.error(), false);
  if (recorder.command() != nullptr) (void)command_status(*recorder.command());
  return status;
}

// One recording, until it is over or SIGHUP comes.
struct Recording {
  std::optional<int> status;  // nothing: begin another one
  bool has_begun = false;
};

// Into `way`; false: what the error is has been said.
template <typename Way>
bool take_way(Expected<std::unique_ptr<Way>> opened, const std::string& place, std::unique_ptr<Way>& way) {
  if (!opened) {
    say_error(place, opened.error());
    return false;
  }
  way = *std::move(opened);
  return true;
}

// Nothing: said.
std::optional<Ways> open_ways(const AgentArguments& arguments, AgentTotals& totals) {
  Ways ways;
  const std::string place = store::shown_place(arguments.store);
  const store::History keep{.age_ns = nanoseconds(arguments.keep), .bytes = arguments.keep_size};
  const bool is_file = !arguments.store.empty() && arguments.store_spool.empty();
  if (is_file && !take_way(store::open_store(arguments.store, {.write = true, .keep = keep}), place, ways.store))
    return std::nullopt;
  const auto in_spool = [&](const std::string& folder, std::uint64_t most_bytes, const auto& open) {
    auto spool = totals.open_spool(folder, most_bytes);
    if (!spool) say_error(folder, spool.error());
    return spool && open(*std::move(spool));
  };
  if (!arguments.store_spool.empty() &&
      !in_spool(arguments.store_spool, arguments.store_spool_size, [&](spool::Spool&& spool) {
        return take_way(AgentSpooledStore::open(arguments.store, std::move(spool)), place, ways.spooled);
      }))
    return std::nullopt;
  const OtlpArguments& otlp = arguments.otlp;
  if (!otlp.url.empty() && !in_spool(otlp.spool, otlp.spool_size, [&](spool::Spool&& spool) {
        return take_way(AgentOtlp::open(otlp, arguments.host, std::move(spool)), otlp.spool, ways.otlp);
      }))
    return std::nullopt;
  return ways;
}

Recording not_begun(int status) { return {.status = status, .has_begun = false}; }

Recording record_once(AgentArguments& arguments, StopSignals& signals, AgentTotals& totals) {
  auto events = events_of(arguments.events);
  if (!events) return not_begun(refuse_recording("agent", events.error()));
  arguments.recorder.events = std::move(*events);
  arguments.recorder.labels.executable = true;  // the label "process" of the store
  arguments.recorder.tell_every = std::min(arguments.interval, kLongestPart);
  arguments.recorder.forget_told = std::min(arguments.interval * kPartsKept, kLongestKept);
  if (arguments.host.empty()) arguments.host = this_host();
  totals.set_store(store::shown_place(arguments.store));
  const auto ways = open_ways(arguments, totals);
  if (!ways) return not_begun(kRefused);
  std::optional<EndedBySignal> starting;  // the first one; another recording ends before its first round
  if (!totals.has_begun())
    starting.emplace(signals.descriptor(), "windlass agent: interrupted before the first sample\n");
  auto recorder = profiler::Recorder::open(arguments.recorder);
  for (const int number : {SIGPIPE, SIGXFSZ}) std::signal(number, SIG_IGN);  // errors of writing, as others
  if (!recorder) return not_begun(refuse_recording("agent", recorder.error(), false));
  starting.reset();
  if (!(*recorder)->limits().empty())
    say("windlass: BPF is refused, so samples are taken {}. {}\n", (*recorder)->limits(), (*recorder)->refusal());
  for (const std::string& remark : (*recorder)->remarks()) say("windlass: {}\n", remark);
  say("windlass: recording {} into {}; Ctrl-C ends it\n", subject_of((*recorder)->options()), place_of(arguments));
  return {.status = record_into(*ways, arguments, **recorder, signals, totals), .has_begun = true};
}

// Until the end. What a file of options cannot be used for leaves those options as they were.
int record_always(const CLI::App& command, AgentArguments arguments, StopSignals& signals, AgentTotals& totals) {
  std::optional<AgentArguments> before;  // those that a recording had
  for (;;) {
    const AgentArguments given = arguments;
    const Recording recording = record_once(arguments, signals, totals);
    if (recording.status && (recording.has_begun || !before)) return *recording.status;
    if (recording.status) {
      say("windlass: agent: the options stay as they were\n");
      arguments = *std::exchange(before, std::nullopt);
      continue;
    }
    before = given;
    auto anew = agent_arguments(command, given.config);
    if (anew) {
      say("windlass: agent: {} was read again\n", given.config);
      if (anew->metrics != given.metrics)
        say("windlass: agent: --metrics stays as it was until the agent starts anew\n");
      anew->metrics = given.metrics;
      arguments = std::move(*anew);
    } else {
      say("windlass: agent: {}. The options stay as they were\n", anew.error());
      arguments = given;
    }
  }
}

// Tables and symbols of a large file take memory for a moment. By default glibc keeps what is freed in the heap of each
// thread, and takes ever larger blocks from there.
void give_memory_back() {
#ifdef __GLIBC__
  mallopt(M_ARENA_MAX, 2);
  mallopt(M_MMAP_THRESHOLD, 256 << 10);
#endif
}

int agent(const CLI::App& command, const AgentArguments& given) {
  give_memory_back();
  open_standard_files();
  auto arguments = agent_arguments(command, given.config);
  if (!arguments) {
    say("windlass agent: {}\n", arguments.error());
    return kUsage;
  }
  AgentMetrics metrics;
  StopSignals signals;  // threads inherit that they are blocked
  std::optional<MetricsServer> server;
  if (!arguments->metrics.empty()) {
    auto listening = MetricsServer::listen(*MetricsPlace::parse(arguments->metrics));
    if (!listening) {
      say_error(arguments->metrics, listening.error());
      return kRefused;
    }
    server.emplace(std::move(*listening));
  }
  os::use_readers(os::Readers::start());
  profiler::survive_truncated_files();
  if (server) {
    say("windlass: counters are at {}\n", server->address());
    server->start([&metrics] { return metrics.text(); });
  }
  AgentTotals totals(metrics);
  const int status = record_always(command, std::move(*arguments), signals, totals);
  say_silent();
  return status;
}

}  // namespace

void register_agent(CLI::App& app, int& status) {
  auto arguments = std::make_shared<AgentArguments>();
  CLI::App* command = app.add_subcommand("agent", "record all the time, into a store or to an OpenTelemetry collector");
  add_agent_options(*command, *arguments);
  command->callback([arguments, command, &status] { status = agent(*command, *arguments); });
}

}  // namespace windlass::cli
