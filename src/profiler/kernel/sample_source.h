// Where a recording's samples come from: the BPF programs (KernelSide), or plain perf events (PerfSampler) where a user
// may not load programs. Both hand out the events of windlass_event_layout.h.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <expected>
#include <functional>
#include <span>

#include "profiler/doctor/system_error.h"
#include "windlass_event_layout.h"
#include "windlass_learned_layout.h"
#include "windlass_process_layout.h"

struct wl_interpreter;

namespace windlass::profiler {

struct KernelSideStats;

// Where the threads of a process have what belongs to them, as wl_process has it.
struct ThreadPlaces {
  wl_label_source labels{};
  std::uint64_t slot = 0;
};

class SampleSource {
 public:
  virtual ~SampleSource() = default;

  // For sources that unwind themselves: the executable mappings that a process has now; forget() says that it has gone.
  // `interpreter`: where its interpreter keeps the running functions, copied; null: it has none.
  virtual std::expected<std::uint32_t, SystemError> publish(std::uint32_t tgid, std::span<const wl_mapping> mappings,
                                                            std::uint64_t epoch,
                                                            const wl_interpreter* interpreter = nullptr,
                                                            const ThreadPlaces& threads = {}) = 0;
  virtual void forget(std::uint32_t tgid) = 0;

  // For sources that unwind themselves: how a frame of a runtime's code is left. `lesson` without its check.
  virtual void teach(const wl_learned_key& /*key*/, const wl_learned& /*lesson*/) {}

  // One more process to sample, for sources that do not find those themselves that targets have started.
  virtual void follow(std::uint32_t /*tgid*/) {}

  virtual std::expected<void, SystemError> start() = 0;
  virtual void stop() = 0;
  // The clock's rate is halved so often from now on, for sources that can: a sample stands for the ticks that are left
  // out (wl_event_head.extra).
  virtual void lower_rate(unsigned /*halvings*/) {}

  // The event starts with a wl_event_head; it is only valid during the call.
  using Handler = std::function<void(const wl_event_head& event, std::size_t size)>;
  // Consumes what is there, waits at most `timeout` for the first one. Returns the number of events.
  virtual int poll(std::chrono::milliseconds timeout, const Handler& handler) = 0;
  // Readable when something is there that should not wait for the next round.
  [[nodiscard]] virtual int event_fd() const = 0;

  // How often each known stack was sampled again, for sources that count repeats. Waits that go on are not among them.
  using CountHandler = std::function<void(const wl_stack_key& key, const wl_count& count)>;
  virtual void for_each_count(const CountHandler& handler, bool clear = false) = 0;
  // The waits that go on, for sources that know waits.
  struct Waiting {
    wl_stack_key key{};
    std::uint64_t since = 0;   // CLOCK_MONOTONIC, ns
    std::uint64_t lasted = 0;  // up to now, in ns; 0: it is too short to be counted
  };
  using WaitingHandler = std::function<void(const Waiting& wait)>;
  virtual void for_each_waiting(const WaitingHandler& /*handler*/) {}

  [[nodiscard]] virtual KernelSideStats stats() const = 0;
};

}  // namespace windlass::profiler
