// What a recording takes samples of, as people name it: "cpu", "off-cpu", "page-faults@100", "sched:sched_switch",
// "uprobe:/usr/bin/git:main".
#pragma once

#include <cstdint>
#include <expected>
#include <string>
#include <string_view>
#include <vector>

#include "profiler/profile/profile.h"

namespace windlass::profiler {

enum class EventKind : std::uint8_t {
  kCpuClock,     // ticks of CPU time
  kWait,         // time off the CPU
  kLock,         // of that, the time that locks were waited for
  kCounter,      // an event of perf: PERF_TYPE_SOFTWARE or PERF_TYPE_HARDWARE
  kTracepoint,   // of the kernel
  kKernelProbe,  // a place in the kernel's code, or the return from a function of it
  kProbe,        // a place in a program's code, the return from a function, or a static probe
};

struct EventSpec {
  EventKind kind = EventKind::kCpuClock;
  std::string name = "cpu";
  std::uint64_t period = 1;         // kCounter: one sample for so many
  bool period_is_chosen = false;    // by whoever named the event
  std::uint64_t shortest_wait = 0;  // kWait, kLock: in ns. One recording has one
  bool wakers = false;              // kWait, kLock: with the stacks of the threads that end the waits
  std::uint32_t type = 0;           // kCounter: of perf_event_attr
  std::uint64_t config = 0;         // kCounter: of perf_event_attr
  std::string category{}, point{};  // kTracepoint; of a static probe: its provider and its name
  std::string filter{};             // kTracepoint: which of its records count; empty: all
  std::string file{};               // kProbe
  std::string function{};           // kProbe, kKernelProbe
  std::uint64_t offset = 0;         // kProbe, kKernelProbe: behind the function's begin
  bool returns = false;             // kProbe, kKernelProbe: at its return
  unsigned argument = 0;            // kProbe: which argument of the function is the sample's value, from 1; 0: none
  [[nodiscard]] bool is_static_probe() const { return kind == EventKind::kProbe && !point.empty(); }
};

// An error says what is wrong, and which events there are. Tracepoints and files are not looked at.
[[nodiscard]] std::expected<EventSpec, std::string> parse_event(std::string_view text);

// The words of events without arguments: "cpu", "off-cpu", "page-faults".
[[nodiscard]] std::vector<std::string> plain_events();

// The names of the events of waiting time, in profiles and on the command line.
inline constexpr const char* kWaitEvent = "off-cpu";
inline constexpr const char* kLockEvent = "lock";

// As profiles have it. `frequency`: samples a second of CPU time.
[[nodiscard]] profile::Event profile_event(const EventSpec& spec, unsigned frequency);

}  // namespace windlass::profiler
