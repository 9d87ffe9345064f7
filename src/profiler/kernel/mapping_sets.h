// What the kernel side knows of each process: its executable mappings, one arena object a set.
#pragma once

#include <chrono>
#include <cstdint>
#include <expected>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <unordered_set>
#include <vector>

#include "lookup/table/arena.h"
#include "profiler/doctor/system_error.h"
#include "profiler/kernel/kernel_modules.h"
#include "profiler/kernel/sample_source.h"
#include "windlass_process_layout.h"

struct wl_interpreter;

namespace windlass::profiler {

// The BPF map of processes, as far as mapping sets need it.
class ProcessEntries {
 public:
  virtual ~ProcessEntries() = default;
  // 0, or an errno.
  virtual int update(std::uint32_t tgid, const wl_process& process) = 0;
  virtual void erase(std::uint32_t tgid) = 0;
  // The spaces that entries name: those published, and by whom they were inherited: the programs copy an entry on fork.
  // Nothing: the entries cannot be listed now.
  [[nodiscard]] virtual std::optional<std::unordered_set<std::uint32_t>> spaces() = 0;
};

// Publishes sets, and frees those that were replaced once nobody in the kernel can read them. Thread-safe.
class MappingSets {
 public:
  using Clock = std::chrono::steady_clock;
  // The interval between two searches for sets to free, which is also the longest time that a reader may take.
  static constexpr auto kGrace = std::chrono::milliseconds(500);

  // All must outlive it.
  MappingSets(ProcessEntries& entries, KernelModules& modules, table::Arena& arena)
      : entries_(entries), modules_(modules), arena_(arena) {}

  // What KernelSide::publish() is given of a process.
  struct Contents {
    std::span<const wl_mapping> mappings;
    const wl_interpreter* interpreter = nullptr;
    ThreadPlaces threads{};
  };
  std::expected<std::uint32_t, SystemError> publish(std::uint32_t tgid, const Contents& contents, std::uint64_t epoch,
                                                    Clock::time_point now);
  void forget(std::uint32_t tgid, Clock::time_point now);

  // Frees retired sets. When no process entry names a set any more, the head of the set is made invalid. A grace period
  // later, every reader that began with the set is done, and its memory is freed. O(process entries), at most once a
  // kGrace.
  void housekeeping(Clock::time_point now);

  // Of all states, those not yet freed included.
  [[nodiscard]] std::size_t size() const;

 private:
  struct Set {
    std::uint32_t maps = 0;  // as in wl_process
    std::uint32_t count = 0;
    bool interpreted = false;            // with a wl_interpreter behind the mappings
    std::vector<std::uint32_t> modules;  // each once
    bool retired = false;                // no longer the published one; a forked child may still use it
    bool hidden = false;                 // its head says so: nobody can begin to use it
    Clock::time_point since;             // of the latter two, the last that came true
    [[nodiscard]] std::size_t bytes() const;
  };
  void retire(std::uint32_t tgid, Clock::time_point now);
  void hide(Set& set, Clock::time_point now);

  ProcessEntries& entries_;
  KernelModules& modules_;
  table::Arena& arena_;
  mutable std::mutex mutex_;
  std::uint32_t next_space_ = 1;
  std::map<std::uint32_t, Set> sets_;                 // by space
  std::map<std::uint32_t, std::uint32_t> published_;  // tgid -> space
  Clock::time_point last_housekeeping_{};
};

}  // namespace windlass::profiler
