// Brings the events of several rings into time order. Each ring is nearly sorted and they carry one clock; what is
// younger than the slack waits for the next round, as an older one may still be on its way.
//
// Bounds: kMaxBytes of waiting events; beyond that they are handed out without waiting.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <utility>
#include <variant>
#include <vector>

#include "profiler/processes/process_events.h"
#include "windlass_layout.h"

namespace windlass::profiler {

class EventQueue {
 public:
  // A ring's writer takes its time stamp just before it writes; only being interrupted in between makes it late (then
  // ProcessTable copes). A process's mappings reach the kernel side this much later, so it is short.
  static constexpr std::uint64_t kSlackNs = 300'000;
  static constexpr std::size_t kMaxBytes = std::size_t{128} << 20;

  using KernelEvent = std::vector<std::uint64_t>;  // bytes of an event, 8-aligned

  void push(ProcessEvent&& event) {
    const std::uint64_t time = event.time;
    events_.push_back({time, next_++, std::move(event), 0});
  }
  void push(const wl_event_head& head, std::size_t size) {
    KernelEvent copy((size + 7) / 8);
    std::memcpy(copy.data(), &head, size);
    bytes_ += size;
    events_.push_back({head.time, next_++, std::move(copy), size});
  }

  [[nodiscard]] bool full() const { return bytes_ > kMaxBytes; }
  [[nodiscard]] bool empty() const { return events_.empty(); }

  // Hands out everything up to `now` minus the slack, oldest first. `on_process(ProcessEvent&)`,
  // `on_kernel(const wl_event_head&, size)`.
  template <typename OnProcess, typename OnKernel>
  void take(std::uint64_t now, OnProcess&& on_process, OnKernel&& on_kernel) {
    take(now, on_process, on_kernel, [] { return true; });
  }
  // The same until goes_on(), which is asked behind each event, says no. False then: the rest waits.
  template <typename OnProcess, typename OnKernel, typename GoesOn>
  bool take(std::uint64_t now, OnProcess&& on_process, OnKernel&& on_kernel, GoesOn&& goes_on) {
    // What came after `now` goes, too, or a full queue would stay full, and be sorted for every event that comes.
    const std::uint64_t until = full() ? ~std::uint64_t{0} : now < kSlackNs ? now : now - kSlackNs;
    std::stable_sort(events_.begin(), events_.end(), [](const Entry& a, const Entry& b) {
      return a.time != b.time ? a.time < b.time : a.number < b.number;
    });
    std::size_t taken = 0;
    bool on = true;
    for (; on && taken < events_.size() && events_[taken].time <= until; ++taken) {
      Entry& entry = events_[taken];
      if (auto* process = std::get_if<ProcessEvent>(&entry.event)) {
        on_process(*process);
      } else {
        const auto& bytes = std::get<KernelEvent>(entry.event);
        on_kernel(*reinterpret_cast<const wl_event_head*>(bytes.data()), entry.size);
      }
      bytes_ -= entry.size;
      on = goes_on();
    }
    events_.erase(events_.begin(), events_.begin() + static_cast<std::ptrdiff_t>(taken));
    return on;
  }

 private:
  struct Entry {
    std::uint64_t time;
    std::uint64_t number;
    std::variant<ProcessEvent, KernelEvent> event;
    std::size_t size;
  };
  std::vector<Entry> events_;
  std::uint64_t next_ = 0;
  std::size_t bytes_ = 0;
};

}  // namespace windlass::profiler
