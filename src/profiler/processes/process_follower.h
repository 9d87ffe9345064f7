// Keeps the process table true while a recording runs, and the sample source informed of it: events of processes are
// applied, what they leave out is read from /proc, and what has changed is published.
#pragma once

#include <cstdint>
#include <functional>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/monotonic.h"
#include "profiler/kernel/sample_source.h"
#include "profiler/processes/process_events.h"
#include "profiler/processes/process_table.h"
#include "profiler/processes/targets.h"
#include "windlass_event_layout.h"
#include "windlass_process_layout.h"

namespace windlass::profiler {

// One thread only. Bounds: kMaxRescanEntries processes whose last rescan is remembered.
class ProcessFollower {
 public:
  static constexpr std::uint64_t kRescanInterval = 1'000'000'000;         // of one process at most, and of all
  static constexpr std::uint64_t kLongestTableInterval = 64'000'000'000;  // between two looks for code managers
  static constexpr std::uint64_t kSweepInterval = 10'000'000'000;         // of those whose exit no event reported
  static constexpr std::uint64_t kStartInterval = 100'000'000;            // between two looks at runtimes that begin
  static constexpr std::uint64_t kRescanShare = 10'000'000;               // of a round, for the rescan of all
  // Between two scans for images, or checks: times the processor's time that they took. Not by the clock, or on a busy
  // machine what is seldom looked at would be looked at too late.
  static constexpr std::uint64_t kImageScanShare = 20;
  static constexpr std::uint64_t kNoEpoch = ~0ull;  // of a set that is not to be used yet: no process ever has it
  static constexpr std::size_t kMaxRescanEntries = 65536;

  // What it asks of the machine. Tests have another one.
  struct System {
    std::function<std::uint64_t()> now;             // CLOCK_MONOTONIC, ns
    std::function<std::uint64_t()> processor_time;  // that this thread has had, ns
    std::function<std::vector<std::uint32_t>()> processes;
    std::function<bool(std::uint32_t tgid)> exists;
  };
  [[nodiscard]] static System this_machine();

  // The source's number for a module of Mapping.
  using ModuleNumber = std::function<std::uint32_t(std::uint32_t module)>;

  // `table`, `source` and `targets` must outlive it.
  ProcessFollower(ProcessTable& table, SampleSource& source, Targets& targets, ModuleNumber number, System system);

  // Reads all targets, or all processes, from /proc, until `stopped` says so.
  void scan_all(const std::function<bool()>& stopped = [] { return false; });

  // Events, in time order.
  void on_process(const ProcessEvent& event);
  // An event of the source that is about a process; false for others.
  bool on_kernel(const wl_event_head& event, std::size_t size);

  // Reads what a process has mapped, unless that was done just now.
  void rescan(std::uint32_t tgid, std::uint64_t now);
  // A process runs code that no code manager is known to have: reads what it has mapped, first at once, then ever more
  // seldom.
  void seek_tables(std::uint32_t tgid, std::uint64_t now);
  // Code of a process has become other code where it was: its stacks of before and from now on are not to be counted
  // as the same.
  void publish_anew(std::uint32_t tgid) { table_.publish_anew(tgid); }
  // After the events of a round: what is due by now, then publishes what changed.
  void finish_round(std::uint64_t now);

  // How often /proc was looked at again.
  [[nodiscard]] std::uint64_t rescans() const { return rescans_; }
  [[nodiscard]] std::uint64_t malformed() const { return malformed_; }

 private:
  [[nodiscard]] std::vector<std::uint32_t> all() const;
  void on_end(std::uint32_t tgid, std::uint64_t time);
  void rescan_all(std::uint64_t now);
  void scan_some();
  void sweep(std::uint64_t now);
  void scan_due();
  void look_at_starting(std::uint64_t now);
  [[nodiscard]] bool may_be_replaced(const Process& process);
  [[nodiscard]] wl_mapping for_the_kernel(const Process& process, const Mapping& mapping) const;
  void publish(Process& process);

  ProcessTable& table_;
  SampleSource& source_;
  Targets& targets_;
  ModuleNumber number_;
  System system_;
  std::unordered_map<std::uint32_t, std::uint64_t> last_rescan_;
  struct TableLook {
    std::uint64_t next = 0, interval = 100'000'000;
  };
  std::unordered_map<std::uint32_t, TableLook> table_looks_;
  struct ImageLook {
    std::uint64_t next = 0, took = 0;  // of the last scan
  };
  std::unordered_map<std::uint32_t, ImageLook> image_looks_;
  std::unordered_set<std::uint32_t> starting_;  // whose runtimes have just begun
  bool rescan_all_due_ = false;
  std::vector<std::uint32_t> to_scan_;  // by the rescan of all that is under way
  std::uint64_t last_rescan_all_ = 0, last_sweep_ = 0, last_start_look_ = 0;
  std::uint64_t next_check_ = 0;
  std::uint64_t seen_lost_process_events_ = 0;
  std::uint64_t rescans_ = 0;
  std::uint64_t malformed_ = 0;
};

}  // namespace windlass::profiler
