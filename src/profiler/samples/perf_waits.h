// How long threads wait, by the switch records of perf events (perf_event_open(2), PERF_RECORD_SWITCH).
//
// A sample of the event "context switches" has the stack of a thread that leaves its CPU. The record of this switch
// follows in the same ring. The record of the thread's return may be in the ring of another CPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "profiler/kernel/sample_source.h"
#include "windlass_event_layout.h"

namespace windlass::profiler {

// One thread only.
class PerfWaits {
 public:
  using Event = std::vector<std::uint64_t>;  // a wl_raw_event, or a wl_stack_event
  // Of the recording's event number `event`. Waits shorter than `shortest` (ns) are not counted.
  PerfWaits(std::uint16_t event, std::uint64_t shortest) : event_(event), shortest_(shortest) {}

  // Keeps a thread's stack until the record of its switch.
  void hold(Event&& event);
  // Takes a PERF_RECORD_SWITCH whose sample id has thread, time and id. Returns the stack if a wait begins: without
  // frames if its sample was lost. False in `known`: the record cannot be.
  std::optional<Event> on_switch(std::span<const std::byte> record, bool& known);

  struct Ended {
    wl_stack_key key{};
    std::uint16_t event = 0;
    std::uint64_t since = 0, lasted = 0;
  };
  // All switches before `time` have been given. `use` gets the waits that have ended.
  void settle(std::uint64_t time, const std::function<void(const Ended& wait)>& use);
  // Waits that go on have lasted until `time`.
  void stop(std::uint64_t time) { stopped_ = time; }

  // As in SampleSource.
  void for_each_count(const SampleSource::CountHandler& handler, bool clear);
  void for_each_waiting(const SampleSource::WaitingHandler& handler) const;

 private:
  struct Begin {
    wl_stack_key key{};
    std::uint16_t event = 0;
    std::uint64_t since = 0;
  };
  struct Switch {
    std::uint64_t time = 0;
    std::uint32_t tid = 0;
    std::optional<Begin> begin;  // of a wait; none: the thread returns
  };
  struct Counted {
    wl_stack_key key{};
    wl_count count{};
  };
  void begin_wait(Event& event, std::uint64_t time, bool preempted);
  [[nodiscard]] std::uint64_t lasted(const Begin& wait) const;

  std::uint16_t event_;
  std::uint64_t shortest_;
  std::uint64_t stopped_ = 0;                      // 0: not yet
  std::uint64_t waits_ = 0;                        // so far: each has a key of its own
  std::unordered_map<std::uint32_t, Event> held_;  // by thread id, as below
  std::vector<Switch> switches_;                   // not settled
  std::unordered_map<std::uint32_t, Begin> waiting_;
  std::vector<Counted> counts_;
};

}  // namespace windlass::profiler
