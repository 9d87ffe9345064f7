// Brings the events of several rings into time order. Each ring is nearly sorted and they carry one clock; what is
// younger than the slack waits for the next round, as an older one may still be on its way.
//
// Bounds: kMaxBytes of waiting events; beyond that they are handed out without waiting. An event costs O(log waiting),
// and hardly more than nothing where it is younger than all that wait.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "profiler/processes/process_events.h"
#include "windlass_event_layout.h"

namespace windlass::profiler {

class EventQueue {
 public:
  // A ring's writer takes its time stamp just before it writes; only being interrupted in between makes it late (then
  // ProcessTable copes). A process's mappings reach the kernel side this much later, so it is short.
  static constexpr std::uint64_t kSlackNs = 300'000;
  static constexpr std::size_t kMaxBytes = std::size_t{128} << 20;

  using KernelEvent = std::vector<std::uint64_t>;  // bytes of an event, 8-aligned

  void push(ProcessEvent&& event) {
    ++pushed_;
    const std::uint64_t time = event.time;
    events_.emplace_hint(events_.end(), time, Entry{std::move(event), 0});
  }
  void push(const wl_event_head& head, std::size_t size) {
    ++pushed_;
    KernelEvent copy((size + 7) / 8);
    std::memcpy(copy.data(), &head, size);
    bytes_ += size;
    events_.emplace_hint(events_.end(), head.time, Entry{std::move(copy), size});
  }

  [[nodiscard]] bool full() const { return bytes_ > kMaxBytes; }
  [[nodiscard]] bool empty() const { return events_.empty(); }
  [[nodiscard]] std::size_t size() const { return events_.size(); }
  [[nodiscard]] std::uint64_t pushed() const { return pushed_; }  // since the beginning
  // Of kMaxBytes, how much is used.
  [[nodiscard]] double fill() const { return static_cast<double>(bytes_) / static_cast<double>(kMaxBytes); }
  // The time of the oldest event; nothing without events.
  [[nodiscard]] std::optional<std::uint64_t> oldest() const {
    return events_.empty() ? std::nullopt : std::optional(events_.begin()->first);
  }

  // Hands out everything up to `now` minus the slack, oldest first. `on_process(ProcessEvent&)`,
  // `on_kernel(const wl_event_head&, size)`.
  template <typename OnProcess, typename OnKernel>
  void take(std::uint64_t now, OnProcess&& on_process, OnKernel&& on_kernel) {
    take(now, on_process, on_kernel, [] { return true; });
  }
  // The same until goes_on(), which is asked behind each event, says no. False then: the rest waits.
  template <typename OnProcess, typename OnKernel, typename GoesOn>
  bool take(std::uint64_t now, OnProcess&& on_process, OnKernel&& on_kernel, GoesOn&& goes_on) {
    // What came after `now` goes, too, or a full queue would stay full.
    const std::uint64_t until = full() ? ~std::uint64_t{0} : now < kSlackNs ? now : now - kSlackNs;
    bool on = true;
    while (on && !events_.empty() && events_.begin()->first <= until) {
      Entry& entry = events_.begin()->second;
      if (auto* process = std::get_if<ProcessEvent>(&entry.event)) {
        on_process(*process);
      } else {
        const auto& bytes = std::get<KernelEvent>(entry.event);
        on_kernel(*reinterpret_cast<const wl_event_head*>(bytes.data()), entry.size);
      }
      bytes_ -= entry.size;
      events_.erase(events_.begin());
      on = goes_on();
    }
    return on;
  }

 private:
  struct Entry {
    std::variant<ProcessEvent, KernelEvent> event;
    std::size_t size;
  };
  std::multimap<std::uint64_t, Entry> events_;  // by time; those of one time as they came
  std::size_t bytes_ = 0;
  std::uint64_t pushed_ = 0;
};

}  // namespace windlass::profiler
