// What every process has mapped executable, as of the event last applied. Fed with events in time order; a process that
// is never seen in /proc is known all the same: fork copies the parent's mappings, exec clears them, mmap adds.
//
// Bounds: kMaxMappings executable mappings a process (later ones are dropped and counted), kMaxDead processes kept
// after their exit for stragglers, for kDeadNs, kMaxProcesses alive (the kernel's pid_max is
// lower).
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "os/proc_maps.h"
#include "profiler/processes/process_events.h"
#include "runtimes/interpreter.h"
#include "runtimes/published_code.h"
#include "windlass_process_layout.h"

namespace windlass::profiler {

// Everything that is not a file's is code made at run time, or of a file that cannot be read.
enum class MappingKind : std::uint8_t { kFile, kGenerated };

struct Mapping {
  std::uint64_t begin = 0, end = 0;
  std::uint64_t file_offset = 0;
  std::uint32_t module = 0;  // ModuleRegistry's number
  std::uint64_t bias = 0;    // address in the process - address in the module
  MappingKind kind = MappingKind::kFile;
  std::uint64_t publisher = 0;  // PublishedCode::address() of what answers for it, a file's code, too; 0: nothing does
  bool silent = false;          // of a file that does not answer and is not in memory
  bool interpreter = false;     // of a file with an interpreter (runtimes::has_interpreter)
  [[nodiscard]] bool generated() const { return kind == MappingKind::kGenerated; }
  [[nodiscard]] bool published() const { return publisher != 0; }
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

  // What the process says of its generated code: what somebody answers for has a publisher from here on, also where it
  // is added later.
  void set_published(manager::PublishedCodes published);
  [[nodiscard]] const manager::PublishedCodes& published() const { return published_; }
  void set_interpreters(manager::Interpreters interpreters) { interpreters_ = std::move(interpreters); }
  [[nodiscard]] const manager::Interpreters& interpreters() const { return interpreters_; }
  // Is code of a file with an interpreter there? The interpreter itself may not be in memory yet: a loader maps the
  // parts of a file one after another.
  [[nodiscard]] bool expects_interpreter() const { return std::ranges::any_of(mappings_, &Mapping::interpreter); }
  // Where its threads keep the labels that the program sets for them.
  void set_labels(const wl_label_source& labels) { labels_ = labels; }
  [[nodiscard]] const wl_label_source& labels() const { return labels_; }
  // wl_process's.
  void set_thread_slot(std::uint64_t slot) { thread_slot_ = slot; }
  [[nodiscard]] std::uint64_t thread_slot() const { return thread_slot_; }
  // That of a mapping with a publisher; null of others.
  [[nodiscard]] const std::shared_ptr<manager::PublishedCode>* published_of(const Mapping& mapping) const;

 private:
  void put(const Mapping& mapping);

  std::vector<Mapping> mappings_;
  manager::PublishedCodes published_;
  manager::Interpreters interpreters_;
  wl_label_source labels_{};
  std::uint64_t thread_slot_ = 0;
};

// A set that its owner goes on changing while others have what it was.
class GrowingMaps {
 public:
  [[nodiscard]] const MapSet* get() const { return set_.get(); }
  const MapSet& operator*() const { return *set_; }
  const MapSet* operator->() const { return set_.get(); }
  // As it is now; it does not change any more.
  [[nodiscard]] std::shared_ptr<const MapSet> share() const { return set_; }
  // A copy, if somebody else has it.
  [[nodiscard]] MapSet& writable() {
    if (set_.use_count() != 1) set_ = std::make_shared<MapSet>(*set_);
    return *set_;
  }
  void set(std::shared_ptr<MapSet> set) { set_ = std::move(set); }

 private:
  std::shared_ptr<MapSet> set_ = std::make_shared<MapSet>();
};

struct Process {
  std::uint32_t tgid = 0;
  std::uint32_t parent = 0;
  std::uint64_t epoch = 0;      // the kernel side's number of its last exec
  std::uint64_t scan_time = 0;  // events before this are contained in what /proc said
  std::uint64_t changed = 0;    // time of the last exec or mapping applied
  std::uint64_t exit_time = 0;  // 0 = alive
  bool dirty = false;           // changed since the kernel side was last told
  bool code_replaced = false;   // has put other code where there was some: it may do so again before that is known here
  bool has_pe = false;          // maps a PE image: code it has in anonymous memory may be another one's
  bool scan_due = false;        // has got code of which only /proc tells what it is
  GrowingMaps maps;
  // Ranges of a file where code has been replaced by other code without an event of the kernel side, and may be
  // replaced again at any time. Two cases: code mapped at a fixed address, as Wine maps everything, on a kernel whose
  // functions cannot be hooked. And code that came and went before a set with it was published. Ascending, disjoint; at
  // most kMaxPassing, the last of which then reaches to the end.
  std::vector<std::pair<std::uint64_t, std::uint64_t>> passing = {};
  static constexpr std::size_t kMaxPassing = 256;

  [[nodiscard]] bool is_passing(std::uint64_t begin, std::uint64_t end) const;
};

class ProcessTable {
 public:
  static constexpr std::size_t kMaxMappings = 16384;
  static constexpr std::size_t kMaxDead = 1024;
  static constexpr std::uint64_t kDeadNs = 10'000'000'000;

  struct CodeLocation {
    std::uint32_t module = 0;
    std::uint64_t bias = 0;
    MappingKind kind = MappingKind::kGenerated;
    bool pe = false;           // of a PE image
    bool interpreter = false;  // Mapping's, as `silent`
    bool silent = false;
    bool thread_context = false;    // the file defines the variable of OpenTelemetry's thread context
    wl_label_source goroutines{};   // of a Go program: where a goroutine has its labels
    std::uint64_t thread_slot = 0;  // of a Go program for Windows: wl_process's
    // Says something of the process's threads.
    [[nodiscard]] bool has_threads() const {
      return thread_context || goroutines.kind != WL_LABELS_NONE || thread_slot != 0;
    }
  };
  // A PE image in a process, where Wine put it: code in [begin, end) is the module's, mapped from its file or not.
  struct Image {
    std::uint64_t begin = 0, end = 0;
    std::uint32_t module = 0;
    std::uint64_t thread_slot = 0;  // CodeLocation's
  };
  // Finds (or makes) the module a mapping shows. Called while the process is likely still there, so that the file can
  // be opened; `parent` is its parent, whose root directory serves when it is already gone.
  using Resolver = std::function<CodeLocation(std::uint32_t tgid, std::uint32_t parent, const os::ProcMap& map)>;
  // The PE images among all mappings of a process, ascending. Only asked where it has code in anonymous memory.
  using ImageFinder =
      std::function<std::vector<Image>(std::uint32_t tgid, std::uint32_t parent, const std::vector<os::ProcMap>& maps)>;
  // Reads /proc/TGID/maps; false if it cannot.
  using MapsReader = std::function<bool(std::uint32_t tgid, std::string& text)>;

  explicit ProcessTable(Resolver resolver, MapsReader reader = read_proc_maps, ImageFinder images = nullptr);

  // Applies one event. Events must come in time order; one before its process's scan is ignored.
  void apply(const ProcessEvent& event);
  void unmap(std::uint32_t tgid, std::uint64_t time, std::uint64_t begin, std::uint64_t length);
  // The kernel side saw an exec. The mappings are perf's business: it reports the exec before the new mappings.
  void set_epoch(std::uint32_t tgid, std::uint64_t epoch);
  // The last thread is gone.
  void exit(std::uint32_t tgid, std::uint64_t time);
  // Drops the processes that ended more than kDeadNs before `now`.
  void forget_dead(std::uint64_t now);

  // Reads /proc/TGID/maps as of `now`. False if the process is gone or unreadable; what is known then stays.
  bool scan(std::uint32_t tgid, std::uint64_t now);

  // Calls `due(tgid)` for every process that has got code of which only /proc tells what it is: Wine copies sections to
  // anonymous memory, and maps the headers without telling perf; nor does it tell of a code manager's table. It stays
  // due until it is scanned.
  void for_each_scan_due(const std::function<void(std::uint32_t tgid)>& due);

  // The process, alive or recently dead; null if it was never seen.
  [[nodiscard]] const Process* find(std::uint32_t tgid) const;
  // Calls `use` for every process that is known, those that have ended, too.
  void for_each(const std::function<void(const Process&)>& use) const;
  // Calls `publish` for every process that changed since the last call.
  void take_dirty(const std::function<void(Process&)>& publish);
  // Is no other code, by what /proc says now, where some is known of? What is gone does no harm: the kernel side tells
  // of what comes in its place. True, too, of what cannot be read any more. The table stays as of the events applied,
  // since samples from before now may be still to come.
  [[nodiscard]] bool is_current(const Process& process);
  // What it publishes may answer for other code by now; take_dirty() will call for it, if it lives.
  void publish_anew(std::uint32_t tgid);
  // take_dirty() will call for it again.
  void postpone(Process& process) { mark(process); }
  [[nodiscard]] std::vector<std::uint32_t> alive() const;
  [[nodiscard]] std::size_t size() const { return processes_.size(); }
  [[nodiscard]] std::uint64_t dropped_mappings() const { return dropped_mappings_; }

  static bool read_proc_maps(std::uint32_t tgid, std::string& text);

 private:
  Process& get(std::uint32_t tgid);
  [[nodiscard]] std::shared_ptr<MapSet> read_maps(std::uint32_t tgid, std::uint32_t parent, bool& has_pe,
                                                  const MapSet& known);
  void fork(const ProcessEvent& event);
  void map(const ProcessEvent& event);
  void want_scan(Process& process);
  void publish(Process& process, const ProcessEvent& event);
  void mark(Process& process);

  void note_scan(Process& process, const CodeLocation& placement, bool moved);
  static void note_passing(Process& process, const Mapping& now);

  Resolver resolver_;
  MapsReader reader_;
  ImageFinder images_;
  std::vector<std::uint32_t> scan_due_;
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

}  // namespace windlass::profiler
