// The agent: follows processes, feeds the kernel side with tables and mappings, collects the stacks, leaves a profile.
#pragma once

#include <chrono>
#include <cstdint>
#include <expected>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "agent/aggregator.h"
#include "agent/child_command.h"
#include "agent/event_queue.h"
#include "agent/kernel_side.h"
#include "agent/module_registry.h"
#include "agent/no_samples.h"
#include "agent/process_events.h"
#include "agent/process_table.h"
#include "agent/raw_unwinder.h"
#include "agent/sample_source.h"
#include "agent/system_facts.h"

namespace windlass::agent {

struct RecorderOptions {
  unsigned frequency = 997;            // samples a second of CPU time, on every CPU
  std::vector<std::uint32_t> targets;  // process ids; empty and no command: the whole machine
  std::vector<std::string> command;
  double duration = 0;   // seconds; 0 = until stopped
  std::string btf_path;  // the kernel's type information; empty: its own
};

// What the samples so far came to.
struct RecordingProgress {
  double seconds = 0;
  std::uint64_t samples = 0, complete = 0, lost = 0, raw = 0;
  [[nodiscard]] double complete_share() const {
    return samples == 0 ? 1 : static_cast<double>(complete) / static_cast<double>(samples);
  }
};

class Recorder {
 public:
  // Loads the BPF programs and opens the event rings; the command is started and held. Where this user may not load
  // programs, own processes are sampled by plain perf events instead: limits() says so.
  static std::expected<std::unique_ptr<Recorder>, SystemError> open(const RecorderOptions& options);
  ~Recorder();

  // Called about twice a second, and for a checkpoint of the profile when `checkpoint_due`.
  struct Hooks {
    std::function<void(const RecordingProgress&)> progress = [](const RecordingProgress&) {};
    std::function<void(const profile::Profile&)> checkpoint;  // empty: none
  };
  // Samples until stopped: by `stop_descriptor` becoming readable, the duration, the end of the command or of all
  // targets. An error ends it early; what was collected stays available.
  std::expected<void, SystemError> run(int stop_descriptor, const Hooks& hooks);

  // After run(), or for a checkpoint in between.
  [[nodiscard]] profile::Profile profile();
  [[nodiscard]] RecordingProgress progress();
  // What this recording cannot show because BPF was refused, and the refusal; empty with BPF.
  [[nodiscard]] const std::string& limits() const { return limits_; }
  [[nodiscard]] const std::string& refusal() const { return refusal_; }
  // What a recording of the whole machine cannot see from here, a sentence each (a PID namespace).
  [[nodiscard]] const std::vector<std::string>& blind_spots() const { return blind_spots_; }
  // Why there are none, if there are none; after run().
  [[nodiscard]] NoSamples no_samples() const;
  [[nodiscard]] std::vector<Aggregator::Truncation> truncations() { return aggregator_.truncations(counts()); }

  [[nodiscard]] ChildCommand* command() { return command_ ? &*command_ : nullptr; }
  [[nodiscard]] ModuleRegistry& modules() { return *registry_; }
  [[nodiscard]] KernelSideStats kernel_stats() const { return kernel_->stats(); }
  [[nodiscard]] std::uint64_t rescans() const { return rescans_; }
  [[nodiscard]] const ProcessTable& processes() const { return *table_; }

 private:
  using Clock = std::chrono::steady_clock;

  Recorder() = default;
  std::expected<void, SystemError> find_targets(const SystemFacts& facts);
  std::expected<KernelSide*, SystemError> open_source(const SystemFacts& facts);
  std::expected<void, SystemError> open_own_events(SystemError&& why);
  [[nodiscard]] bool filtered() const { return !options_.targets.empty() || !options_.command.empty(); }
  [[nodiscard]] bool is_target(std::uint32_t tgid) const { return !filtered() || target_set_.contains(tgid); }

  void scan_existing();
  void round();
  void on_process(const ProcessEvent& event);
  void on_kernel(const wl_event_head& head, std::size_t size);
  void on_stack(const wl_event_head& head, std::size_t size);
  void on_raw(const wl_event_head& head, std::size_t size);
  void publish(Process& process);
  void rescan(std::uint32_t tgid, std::uint64_t now);
  void rescan_all(std::uint64_t now);
  void find_images();
  void housekeeping(std::uint64_t now);
  void drain();
  [[nodiscard]] bool finished();
  [[nodiscard]] bool any_target_alive() const;
  [[nodiscard]] std::optional<double> cpu_seconds() const;
  void wait_for_events(int stop_descriptor, bool& stopped);
  [[nodiscard]] Aggregator::Counts counts();

  RecorderOptions options_;
  std::optional<ChildCommand> command_;
  std::unique_ptr<SampleSource> kernel_;  // the BPF programs, or perf events
  ProcessEventSource source_;             // stays closed with the latter, which bring their own
  std::string limits_, refusal_;
  std::vector<std::string> blind_spots_;
  std::unique_ptr<ModuleRegistry> registry_;
  std::unique_ptr<ProcessTable> table_;
  std::unique_ptr<RawUnwinder> unwinder_;
  Aggregator aggregator_;
  EventQueue queue_;
  std::unordered_set<std::uint32_t> target_set_;
  std::unordered_map<std::uint32_t, std::uint64_t> last_rescan_;

  std::uint64_t now_ = 0;  // of the round
  std::uint64_t start_unix_ns_ = 0;
  Clock::time_point start_;
  double seconds_ = 0;  // once stopped
  std::optional<double> cpu_before_;
  std::optional<double> cpu_used_;  // once stopped
  bool ended_before_ = false;       // the targets, before sampling began
  std::uint64_t raw_ends_[WL_END_COUNT] = {};
  std::uint64_t unknown_counts_ = 0;  // counted stacks whose event was lost
  std::uint64_t perf_lost_ = 0, seen_lost_process_events_ = 0;
  bool rescan_all_due_ = false;
  std::uint64_t last_rescan_all_ = 0, last_sweep_ = 0, last_evict_ = 0, last_liveness_ = 0;
  std::uint64_t rescans_ = 0;
  std::uint64_t next_image_scan_ = 0;
  std::uint64_t malformed_ = 0;
  std::vector<std::uint64_t> frames_;
};

}  // namespace windlass::agent
