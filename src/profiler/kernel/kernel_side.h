// The kernel half of the profiler as C++: loads the BPF programs and puts together what drives them: modules, mapping
// sets, sampling, events. Linux, needs CAP_BPF + CAP_PERFMON (or root).
//
// Thread safety: one thread drives a KernelSide; the calls of TableStore and `publish` may come from other threads,
// too.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <expected>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/pointer_authentication.h"
#include "profiler/doctor/program_stats.h"
#include "profiler/doctor/system_error.h"
#include "profiler/kernel/allocation_probes.h"
#include "profiler/kernel/event_specs.h"
#include "profiler/kernel/sample_source.h"
#include "profiler/kernel/table_store.h"
#include "windlass_ends.h"
#include "windlass_event_layout.h"
#include "windlass_filter_layout.h"
#include "windlass_process_layout.h"
#include "windlass_table_layout.h"

namespace windlass::table {
class Arena;
}

namespace windlass::profiler {

// Which labels that programs set for their threads a sample has.
enum class ThreadLabelChoice : std::uint8_t {
  kNone,
  kAttributes,  // all but the ids of traces and spans, which are new with each request
  kAll,
};

struct KernelSideOptions {
  unsigned frequency = 99;                     // samples a second of CPU time, on every CPU: of the event "cpu"
  std::vector<EventSpec> events{EventSpec{}};  // a sample has the number of its event; at least one
  // Allocations of processes that run already: what is probed, the bytes between samples (1: each call is one), and the
  // number that the samples have in place of an event's. That of the blocks in use is the next one.
  std::optional<AllocationProbes> allocations{};
  std::uint64_t allocation_period = 1;
  std::uint16_t allocation_event = 0;
  bool all_processes = true;           // false: only `targets` and what they fork
  std::vector<std::uint32_t> targets;  // process ids (tgid)
  std::uint32_t held = 0;              // one of the targets that is sampled from its next exec on; 0: none
  wl_filters filters{};                // which threads of these are sampled
  bool timeline = false;               // the times of samples are told
  ThreadLabelChoice thread_labels = ThreadLabelChoice::kAttributes;
  std::uint32_t ring_bytes = 0;  // rounded up to a power of two; 0: ring_size() says
  // The most bytes of the ring that raw stacks may use a second, over all CPUs. Raw stacks are those of samples that
  // the kernel side cannot unwind. Samples beyond the bound are reported as truncated, with their reason.
  std::uint64_t raw_bytes_per_second = 64u << 20;
  std::uint32_t raw_stack_bytes = WL_MAX_RAW_STACK;  // at most this much of one stack
  std::uint32_t user_frames = WL_MAX_USER_FRAMES;    // at most this many user frames of a stack
  std::uint32_t kernel_frames = WL_MAX_KERNEL_FRAMES;
  // Of each CPU's time, that samples may take in a window of 134 ms. Later samples of the window have their innermost
  // frame alone, and end as WL_END_NO_TIME.
  double largest_share = 0.5;
  // Stacks that the kernel side counts itself; beyond, every sample is an event. 0: counted_stacks() says.
  std::uint32_t distinct_stacks = 0;
  std::uint64_t address_mask = user_code_mask();  // the bits of a code address that no authentication code uses
  // Inode of a PID namespace, or 0 for the initial one. All process and thread ids are numbers of this namespace, also
  // those of the targets. Processes outside of it are not seen.
  std::uint32_t pid_namespace = 0;
  std::string btf_path;                                // the kernel's type information; empty: its own
  std::vector<ProgramStats>* program_stats = nullptr;  // if set: what the verifier says of each program

  [[nodiscard]] bool takes_ticks_alone() const;  // `frequency` and the CPUs bound the rate of all samples
  // Sets `distinct_stacks` where it is 0.
  void choose_distinct_stacks();
};

// Since open(), summed over all CPUs. A sample at a lowered rate counts as the ticks that it stands for. samples ==
// other_processes + sum(ends), and samples == other_processes + counted + stack_events + raw_events + lost. A wait is a
// sample where it begins.
struct KernelSideStats {
  std::uint64_t samples = 0;
  std::uint64_t other_processes = 0;  // not one of the targets
  std::uint64_t counted = 0;          // repeats of a known stack
  std::uint64_t stack_events = 0;
  std::uint64_t raw_events = 0;
  std::uint64_t lost = 0;         // the ring was full
  std::uint64_t left_out = 0;     // of the samples: ticks that had none of their own, as the rate was lowered
  unsigned halvings = 0;          // of the clock's rate, on any CPU; the most so far
  std::uint64_t raw_refused = 0;  // would have been raw, over budget: reported as truncated stack instead
  std::uint64_t raw_bytes = 0;
  std::uint64_t user_frames = 0;
  std::uint64_t memo_hits = 0;
  std::uint64_t followed_frames = 0;      // of threads' last walks
  std::uint64_t managed_stacks = 0;       // with frames that were left by a code manager's rows
  std::uint64_t learned_stacks = 0;       // with frames that were left as the agent has taught
  std::uint64_t lost_process_events = 0;  // exec, fork, exit, unmap events the ring had no room for
  std::uint64_t waits = 0;                // that ended, and were long enough
  std::uint64_t short_waits = 0;          // shorter than EventSpec::shortest_wait
  std::uint64_t lost_waits = 0;           // the maps were full
  std::uint64_t lost_times = 0;           // the ring was full; the samples are counted
  std::uint64_t unfollowed = 0;           // sampled blocks without room: they count as freed at once
  std::uint64_t ends[WL_END_COUNT] = {};
  // Spent in the sampler, by the kernel's account; 0 unless kernel.bpf_stats_enabled (or BPF_ENABLE_STATS).
  std::uint64_t run_time_ns = 0;
  // An errno: the kernel has refused the sampler behind start(), so that the agent unwinds all samples. 0: it has not.
  int sampler_refusal = 0;
};

class KernelSide : public SampleSource, public TableStore {
 public:
  // The sampler may still be loading, on a thread of its own: start() waits for it, and tells what refuses it.
  // On x86-64 start() does not wait for it if a process is `held`, ticks are all events, and the other programs were
  // loaded in 100 ms: samples are raw until then.
  static std::expected<std::unique_ptr<KernelSide>, SystemError> open(const KernelSideOptions& options);

  [[nodiscard]] virtual const wl_module& module(std::uint32_t id) const = 0;

  // ---- processes ------------------------------------------------------------------------------------------------
  // Replaces the kernel side's knowledge of a process. `mappings` are the executable mappings, sorted by begin,
  // disjoint. Returns the `space` that events unwound with this set are stamped with.
  //
  // `epoch` is that of the last EXEC, FORK (for the child) or UNMAP event of this process; 0 if there was none. The
  // kernel side ignores a set with an older epoch. This closes the race with an exec or dlclose that the agent has not
  // heard of yet. After an UNMAP, take the range out of the set, and publish the set with the event's epoch. Samples
  // are raw until then.
  std::expected<std::uint32_t, SystemError> publish(std::uint32_t tgid, std::span<const wl_mapping> mappings,
                                                    std::uint64_t epoch, const wl_interpreter* interpreter = nullptr,
                                                    const ThreadPlaces& threads = {}) override = 0;
  // After WL_EVENT_EXIT.
  void forget(std::uint32_t tgid) override = 0;
  // Adds a process to the targets (all_processes = false). Children inherit.
  virtual std::expected<void, SystemError> add_target(std::uint32_t tgid) = 0;

  // ---- sampling -------------------------------------------------------------------------------------------------
  std::expected<void, SystemError> start() override = 0;
  void stop() override = 0;

  void lower_rate(unsigned halvings) override = 0;

  // ---- events ---------------------------------------------------------------------------------------------------
  // Consumes what is there, waits at most `timeout` for the first one. Returns the number of events; also does the
  // housekeeping (frees what a grace period protected). EINTR ends the wait early.
  int poll(std::chrono::milliseconds timeout, const Handler& handler) override = 0;
  // Readable when process events are there, or the ring is filling; samples alone do not wake anybody up before that,
  // so call poll() several times a second.
  [[nodiscard]] int event_fd() const override = 0;

  // How often each known stack was sampled again: the samples of a stack = its events + its count. Call after stop()
  // for exact figures. With `clear`, counting starts again from nothing and stacks are reported anew.
  void for_each_count(const CountHandler& handler, bool clear = false) override = 0;

  [[nodiscard]] KernelSideStats stats() const override = 0;
  // The tables and mapping sets, readable in user space: the shared unwinder runs on the same bytes.
  [[nodiscard]] virtual table::Arena& arena() = 0;
};

}  // namespace windlass::profiler
