// What happens to processes - fork, exec, mappings, exit - as the kernel's perf events tell it: one software event and
// one ring a CPU, no sampling. Every record carries CLOCK_MONOTONIC, so the records merge with the BPF ring's.
#pragma once

#include <linux/perf_event.h>
#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "os/proc_maps.h"
#include "profiler/kernel/perf_ring.h"
#include "windlass/error.h"

namespace windlass::profiler {

enum class ProcessEventKind : std::uint8_t { kFork, kExec, kComm, kExit, kMap, kLost };

struct ProcessEvent {
  ProcessEventKind kind = ProcessEventKind::kLost;
  std::uint64_t time = 0;  // CLOCK_MONOTONIC, ns
  std::uint32_t tgid = 0, tid = 0;
  std::uint32_t parent_tgid = 0;  // kFork
  std::string comm;               // kExec, kComm
  os::ProcMap map;                // kMap: an executable one
  std::uint64_t lost = 0;         // kLost: records the ring had no room for
};

// Parses one record, header included, of an event opened with sample_id_all and sample_type TID | TIME.
// `with_id`: and ID.
// kNotFound: a record type of no interest. kTruncated / kMalformed: bytes that contradict their header.
// Thread creation and thread exit are of no interest.
[[nodiscard]] Expected<ProcessEvent> parse_perf_record(std::span<const std::byte> record, bool with_id = false);

// Has an event tell of processes in the records that parse_perf_record() reads; it may sample besides. Sets of
// sample_type what these need, and that a reader is woken when `wakeup_bytes` are there.
void request_process_events(perf_event_attr& attr, std::uint32_t wakeup_bytes);
// perf_event_open(2) of it. Where the kernel does not count what is lost (before Linux 6.0), this attr no longer asks
// for that. A descriptor, or -1 and errno.
[[nodiscard]] int open_process_events(perf_event_attr& attr, pid_t process, int cpu);

// The rings of all CPUs. Not thread-safe.
class ProcessEventSource {
 public:
  ProcessEventSource() = default;
  ~ProcessEventSource();
  ProcessEventSource(const ProcessEventSource&) = delete;
  ProcessEventSource& operator=(const ProcessEventSource&) = delete;

  static constexpr const char* kMappingRing = "mapping the ring of process events";
  // kSystem with errno; `what` is kMappingRing where the event is there but its memory is refused. `ring_pages` must be
  // a power of two.
  [[nodiscard]] Expected<void> open(std::size_t ring_pages = 128);

  // Empties every ring once, in ring order: not sorted by time. Returns how many events were handed over.
  // kLost comes in the same call, from Linux 6.0 on, else with the ring's next event.
  std::size_t drain(const std::function<void(ProcessEvent&&)>& sink);

  // Descriptors to poll for input.
  [[nodiscard]] const std::vector<int>& descriptors() const { return fds_; }
  // Records that did not parse; none is expected from a kernel.
  [[nodiscard]] std::uint64_t malformed() const { return malformed_; }

 private:
  std::vector<int> fds_;
  struct Cpu {
    PerfRing ring;
    std::uint64_t recorded = 0;  // lost by the ring's own records
    std::uint64_t told = 0;      // lost by kLost events that were handed over
    bool tells(ProcessEvent& event);
  };
  std::vector<Cpu> cpus_;  // in the order of fds_
  std::uint64_t malformed_ = 0;
};

}  // namespace windlass::profiler
