// The agent: opens what a recording needs, goes round between its events until it is stopped, leaves a profile.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <expected>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "profiler/doctor/no_samples.h"
#include "profiler/doctor/system_facts.h"
#include "profiler/kernel/allocation_probes.h"
#include "profiler/kernel/event_ring.h"
#include "profiler/kernel/event_specs.h"
#include "profiler/processes/child_command.h"
#include "profiler/processes/module_registry.h"
#include "profiler/processes/process_events.h"
#include "profiler/processes/process_follower.h"
#include "profiler/processes/process_labels.h"
#include "profiler/processes/process_table.h"
#include "profiler/processes/sample_filter.h"
#include "profiler/processes/targets.h"
#include "profiler/samples/aggregator.h"
#include "profiler/samples/allocations.h"
#include "profiler/samples/code_names.h"
#include "profiler/samples/event_queue.h"
#include "profiler/samples/open_source.h"
#include "profiler/samples/process_label_sets.h"
#include "profiler/samples/rate_control.h"
#include "profiler/samples/raw_unwinder.h"
#include "profiler/samples/recording_events.h"
#include "profiler/samples/resting_threads.h"
#include "profiler/samples/sample_intake.h"
#include "profiler/samples/thread_labels.h"
#include "profiler/samples/time_line.h"
#include "profiler/samples/work_budget.h"

namespace windlass::profiler {

struct RecorderOptions {
  unsigned frequency = 997;                    // samples a second of CPU time, on every CPU
  std::vector<EventSpec> events{EventSpec{}};  // each name once; at least one
  std::optional<std::uint64_t> alloc{};        // allocations, a sample in so many bytes; 1: each. Not of all processes
  ThreadLabelChoice thread_labels = ThreadLabelChoice::kAttributes;  // that programs set themselves
  LabelOptions labels{.process = false, .executable = false, .build_id = false, .owner = false, .cgroup = false};
  std::string kubelet;                 // its address, to ask for the names of pods; empty: it is not asked
  std::vector<FilterOption> filters;   // which threads are sampled of these
  std::vector<std::uint32_t> targets;  // process ids; empty and no command: the whole machine
  bool children = false;               // and the processes that targets have started before
  std::vector<std::string> command;
  std::optional<std::uint64_t> timeline{};  // the times of samples are kept, in so many bytes
  double duration = 0;                      // seconds; 0 = until stopped
  // What Hooks::second has been told is forgotten after so many seconds, so that memory and bounds are those of a part
  // of the recording. profile() has the rest alone. Not with a time line or allocations. 0: nothing is forgotten.
  double forget_told = 0;
  double tell_every = 1;  // seconds, of Hooks::second
  Aggregator::Bounds bounds{};
  std::string btf_path;  // the kernel's type information; empty: its own
  // The folder of tables that other recordings have compiled, "none" for no such folder. Empty: TableCache's own, if it
  // can be used.
  std::string table_cache;
  // WorkBudget's: how much of one CPU following code may take, for every 1,000 samples a second; 0: no bound.
  double agent_share = WorkBudget::kDefaultShare;
};

// What the samples so far came to.
struct RecordingProgress {
  double seconds = 0;
  std::uint64_t samples = 0, complete = 0, lost = 0, raw = 0;
  bool has_cut = false;  // Aggregator::has_cut(): there was no room for a stack, since stacks were last forgotten
};

class Recorder {
 public:
  // Loads the BPF programs and opens the event rings; the command is started and held. Where this user may not load
  // programs, own processes are sampled by plain perf events instead: limits() says so.
  static std::expected<std::unique_ptr<Recorder>, SystemError> open(const RecorderOptions& options);
  ~Recorder();

  struct Hooks {
    // Called at once and about twice a second.
    std::function<void(const RecordingProgress&)> progress = [](const RecordingProgress&) {};
    // Called for a checkpoint of the profile, on another thread, one at a time; empty: none is made. `given_up` becomes
    // true when the recording ends: the checkpoint is not wanted any more, and its end is waited for.
    std::function<void(const profile::Profile&, const std::atomic<bool>& given_up)> checkpoint;
    // Called about twice a second, with the addresses in files that no call had before: modules and locations alone.
    // Not in the first seconds: a short recording's names can wait. Not to be used with `second`. Empty: it is not
    // asked for.
    std::function<void(profile::Profile&&)> code;
    // Called every RecorderOptions::tell_every seconds and at the end, with what has come since the last call; empty:
    // it is not asked for. What waits for a process's answer comes once it has that. profile() may be called from
    // there.
    std::function<void(profile::Profile&&)> second;
    // Called once, when sampling has ended and what is left is to be worked off; empty: it is not asked for.
    std::function<void()> ending;
  };
  // Samples until stopped: by `stop_descriptor` becoming readable, the duration, the end of the command or of all
  // targets. An error ends it early; what was collected stays available.
  std::expected<void, SystemError> run(int stop_descriptor, const Hooks& hooks);

  // After run(), or for a checkpoint in between.
  [[nodiscard]] profile::Profile profile();
  [[nodiscard]] RecordingProgress progress();
  // What this recording cannot show because BPF was refused, and the refusal; empty with BPF.
  [[nodiscard]] const std::string& limits() const { return source_.limits; }
  [[nodiscard]] const std::string& refusal() const { return source_.refusal; }
  // As given, but for targets that were threads: their processes.
  [[nodiscard]] const RecorderOptions& options() const { return options_; }
  // What people should know beforehand, a sentence each: what a recording of the whole machine cannot see from here (a
  // PID namespace), a target that was named by one of its threads.
  [[nodiscard]] const std::vector<std::string>& remarks() const { return remarks_; }
  // Of allocations, if they are recorded.
  [[nodiscard]] std::optional<AllocationStats> allocation_stats() const {
    if (allocations_ != nullptr) return allocations_->stats();
    if (!allocation_probes_) return std::nullopt;
    return AllocationStats{.processes = 1, .unfollowed = source_.samples->stats().unfollowed};
  }
  // The times of samples, if they are kept; null otherwise.
  [[nodiscard]] const TimeLine* times() const { return times_ ? &*times_ : nullptr; }
  // What samples lack of their labels.
  struct MissingLabels {
    std::uint64_t of_threads = 0;  // samples and stacks whose threads' labels were lost
    bool too_many = false;         // more different sets than there is room for
  };
  [[nodiscard]] MissingLabels missing_labels() const { return {thread_labels_.unknown(), labels_.has_overflowed()}; }
  // Since the recording's start, of a time of CLOCK_MONOTONIC in ns.
  [[nodiscard]] double seconds_since_start(std::uint64_t time) const {
    return time > start_monotonic_ns_ ? static_cast<double>(time - start_monotonic_ns_) * 1e-9 : 0;
  }
  // The clock's rate was lowered, as the agent was behind.
  struct Lowered {
    double seconds = 0;        // for how long, in all
    unsigned average = 0;      // the rate in that time
    unsigned frequency = 0;    // the lowest rate; 0: it was not lowered
    bool ring_filled = false;  // else the backlog behind the ring was too large
  };
  [[nodiscard]] Lowered lowered() const;
  // For people, as part of a sentence; empty: it was not lowered.
  [[nodiscard]] std::string lowered_text() const;
  // Counted stacks whose event was lost.
  [[nodiscard]] std::uint64_t lost_stacks() const { return unknown_counts_; }
  [[nodiscard]] std::vector<Aggregator::Use> uses() const { return aggregator_.uses(); }
  // Why there are none, if there are none; after run().
  [[nodiscard]] NoSamples no_samples() const;
  [[nodiscard]] std::vector<Aggregator::Truncation> truncations() { return aggregator_.truncations(counts()); }

  [[nodiscard]] ChildCommand* command() { return command_ ? &*command_ : nullptr; }
  [[nodiscard]] ModuleRegistry& modules() { return *registry_; }
  // Of other recordings; null: there are none, `tables_kept_nowhere()` says why, if that was not asked for.
  [[nodiscard]] const TableCache* table_cache() const { return table_cache_.get(); }
  [[nodiscard]] const std::string& tables_kept_nowhere() const { return no_table_cache_; }
  [[nodiscard]] KernelSideStats kernel_stats() const { return source_.samples->stats(); }
  [[nodiscard]] std::uint64_t rescans() const { return follower_->rescans(); }
  [[nodiscard]] const ProcessTable& processes() const { return *table_; }
  [[nodiscard]] const RawUnwinder& unwinder() const { return *unwinder_; }

 private:
  using Clock = std::chrono::steady_clock;

  explicit Recorder(const RecorderOptions& options)
      : options_(options),
        events_(RecordingEvents::of(options.events, options.frequency,
                                    options.alloc ? AllocationEvents::kAllocatedAndInUse : AllocationEvents::kNone)),
        targets_(options.targets.empty() && options.command.empty()),
        budget_(options.agent_share),
        rate_(most_halvings(options.frequency)),
        aggregator_(options.bounds) {}
  std::expected<void, SystemError> open_allocations();
  std::expected<void, SystemError> find_targets(const SystemFacts& facts);
  std::expected<void, SystemError> find_allocators();
  std::expected<void, SystemError> open_table_cache();
  std::expected<void, SystemError> open_samples(const SystemFacts& facts);
  void add_children();
  [[nodiscard]] ContainerPlaces container_places() const;
  void make_parts();
  void find_writers();

  std::expected<void, SystemError> begin(int stop_descriptor);
  void hurry_at(int stop_descriptor, double seconds) const;
  void wait_for_events(int stop_descriptor, bool& stopped);
  void round(std::uint64_t most_work, std::uint64_t most_samples);
  void take_all_samples();
  void take_round(std::uint64_t most_work);
  void earn_time();
  [[nodiscard]] Backlog backlog() const;
  // Between two ticks of the clock at the full rate.
  [[nodiscard]] std::uint64_t tick_ns() const { return 1'000'000'000 / std::max(options_.frequency, 1U); }
  bool take_events(std::uint64_t now, std::uint64_t most_work);
  [[nodiscard]] bool is_allocation(const wl_event_head& head) const;
  void on_kernel(const wl_event_head& head, std::size_t size);
  void bound_memory(std::uint64_t now);
  void bound_files();
  void drain(std::uint64_t most_work, int stop_descriptor);
  [[nodiscard]] bool finished(std::uint64_t now);
  [[nodiscard]] bool any_target_alive() const;
  [[nodiscard]] profile::Profile new_code();
  [[nodiscard]] std::vector<std::uint32_t> watched() const;
  [[nodiscard]] double seconds() const;
  [[nodiscard]] std::optional<double> cpu_seconds() const;
  // Of the kernel side, and of the waits that go on.
  [[nodiscard]] Aggregator::Counts counts(bool with_waiting = true);
  void settle_counts();
  void forget_told();
  [[nodiscard]] profile::Profile profile_since_told();
  void scale_counts(profile::Profile& profile) const;
  [[nodiscard]] TimeLine::SampleOf sample_of() const {
    return [this](const wl_stack_key& key) { return aggregator_.sample_of(key); };
  }
  void write_times(profile::Profile& profile, std::span<const std::uint32_t> numbers);

  RecorderOptions options_;
  RecordingEvents events_;
  std::unique_ptr<Allocations> allocations_;           // the command's; null: they are not recorded
  std::optional<AllocationProbes> allocation_probes_;  // on targets that run already
  std::optional<ChildCommand> command_;
  Targets targets_;
  WorkBudget budget_;
  std::uint64_t earned_samples_ = 0;  // up to which the budget has had its time
  RateControl rate_;
  // Samples: those that were recorded or left out, and those left out.
  std::uint64_t recorded_ = 0, left_out_ = 0;
  std::uint64_t lowered_ns_ = 0, lowered_ticks_ = 0;  // in which some were left out
  bool ring_filled_ = false;                          // when the agent had not lowered the rate
  OpenedSource source_;
  ProcessEventSource process_events_;  // stays closed with perf events, which bring their own
  std::vector<std::string> remarks_;
  std::string program_;  // the file that the first target runs; empty: not known
  std::unique_ptr<TableCache> table_cache_;
  std::string no_table_cache_;
  std::unique_ptr<ModuleRegistry> registry_;
  std::unique_ptr<ProcessTable> table_;
  std::unique_ptr<ProcessFollower> follower_;
  std::unique_ptr<RawUnwinder> unwinder_;
  CodeNames names_;
  std::unique_ptr<SampleIntake> intake_;
  Aggregator aggregator_;
  std::vector<wl_count> told_;  // what Hooks::second has been told
  double told_at_ = 0, forgotten_at_ = 0;
  std::uint64_t told_lost_ = 0;
  std::size_t code_told_ = 0;  // Hooks::code
  std::optional<TimeLine> times_;
  EventQueue queue_;
  RestingThreads resting_;
  std::unique_ptr<ProcessLabels> process_labels_;
  ProcessLabelSets labels_;
  ThreadLabels thread_labels_;

  std::uint64_t now_ = 0;  // of the round
  std::uint64_t start_unix_ns_ = 0, start_monotonic_ns_ = 0;
  Clock::time_point start_;
  double seconds_ = 0;  // once stopped
  std::optional<double> cpu_before_;
  std::optional<double> cpu_used_;  // once stopped
  bool ended_before_ = false;       // the targets, before sampling began
  std::uint64_t lost_ = 0, lost_when_settled_ = 0;
  std::size_t most_counted_ = 0;      // distinct stacks; then the kernel side starts counting anew
  std::uint64_t unknown_counts_ = 0;  // counted stacks whose event was lost
  std::uint64_t last_evict_ = 0, last_liveness_ = 0, last_earned_ = 0;
};

}  // namespace windlass::profiler
