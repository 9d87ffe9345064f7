// What every process has mapped executable, as of the event last applied. Fed with events in time order; a process that
// is never seen in /proc is known all the same: fork copies the parent's mappings, exec clears them, mmap adds.
//
// Bounds: kMaxMappings executable mappings a process (later ones are dropped and counted), kMaxDead processes kept
// after their exit for stragglers, kMaxProcesses alive (the kernel's pid_max is lower).
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "profile/process_events.h"

namespace windlass::profile {

struct Mapping {
  std::uint64_t begin = 0, end = 0;
  std::uint64_t file_offset = 0;
  std::uint32_t module = 0;  // ModuleRegistry's number
  std::uint64_t bias = 0;    // address in the process - bias = address in the module
  bool anonymous = false;    // code made at run time, or an unknown file
  bool operator==(const Mapping&) const = default;
};

// Sorted by begin, disjoint. Shared between a parent and its children until one of them changes.
class MapSet {
 public:
  [[nodiscard]] const Mapping* find(std::uint64_t address) const;
  [[nodiscard]] const std::vector<Mapping>& mappings() const { return mappings_; }
  // Replaces whatever the new mapping overlaps, as mmap(MAP_FIXED) does: the rest of a cut mapping stays.
  void add(const Mapping& mapping);
  void remove(std::uint64_t begin, std::uint64_t end);

 private:
  std::vector<Mapping> mappings_;
};

struct Process {
  std::uint32_t tgid = 0;
  std::uint32_t parent = 0;
  std::uint64_t epoch = 0;      // the kernel side's number of its last exec
  std::uint64_t scan_time = 0;  // events before this are contained in what /proc said
  std::uint64_t changed = 0;    // time of the last exec or mapping applied
  std::uint64_t exit_time = 0;  // 0 = alive
  bool dirty = false;           // changed since the kernel side was last told
  std::shared_ptr<const MapSet> maps = std::make_shared<MapSet>();
};

class ProcessTable {
 public:
  static constexpr std::size_t kMaxMappings = 16384;
  static constexpr std::size_t kMaxDead = 1024;

  struct Placement {
    std::uint32_t module = 0;
    std::uint64_t bias = 0;
    bool anonymous = true;
  };
  // Finds (or makes) the module a mapping shows. Called while the process is likely still there, so that the file can
  // be opened; `parent` is its parent, whose root directory serves when it is already gone.
  using Resolver = std::function<Placement(std::uint32_t tgid, std::uint32_t parent, const MapRecord& map)>;
  // Reads /proc/TGID/maps; false if it cannot.
  using MapsReader = std::function<bool(std::uint32_t tgid, std::string& text)>;

  explicit ProcessTable(Resolver resolver, MapsReader reader = read_proc_maps);

  // Applies one event. Events must come in time order; one before its process's scan is ignored.
  void apply(const ProcessEvent& event);
  void unmap(std::uint32_t tgid, std::uint64_t time, std::uint64_t begin, std::uint64_t length);
  // The kernel side saw an exec. The mappings are perf's business: it reports the exec before the new mappings.
  void set_epoch(std::uint32_t tgid, std::uint64_t epoch);
  // The last thread is gone.
  void exit(std::uint32_t tgid, std::uint64_t time);

  // Reads /proc/TGID/maps as of `now`. False if the process is gone or unreadable; what is known then stays.
  bool scan(std::uint32_t tgid, std::uint64_t now);

  // The process, alive or recently dead; null if it was never seen.
  [[nodiscard]] const Process* find(std::uint32_t tgid) const;
  // Calls `publish` for every process that changed since the last call.
  void take_dirty(const std::function<void(Process&)>& publish);
  [[nodiscard]] std::vector<std::uint32_t> alive() const;
  [[nodiscard]] std::size_t size() const { return processes_.size(); }
  [[nodiscard]] std::uint64_t dropped_mappings() const { return dropped_mappings_; }

  static bool read_proc_maps(std::uint32_t tgid, std::string& text);

 private:
  Process& get(std::uint32_t tgid);
  void fork(const ProcessEvent& event);
  void map(const ProcessEvent& event);
  MapSet& writable(Process& process);
  void mark(Process& process);

  Resolver resolver_;
  MapsReader reader_;
  std::unordered_map<std::uint32_t, Process> processes_;
  std::vector<std::uint32_t> dirty_;
  struct Death {
    std::uint32_t tgid;
    std::uint64_t time;
  };
  std::deque<Death> dead_;  // in order of death
  std::uint64_t dropped_mappings_ = 0;
};

// Process ids in /proc.
[[nodiscard]] std::vector<std::uint32_t> list_processes();

}  // namespace windlass::profile
