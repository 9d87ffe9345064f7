// Samples that are taken in later than they come. Unwinding a raw one takes some 100 us, and a function of an
// interpreter gets its name from the process's memory. If the agent did this at once, it would hear of new processes
// and mappings behind all samples that wait, and the kernel side would hand over ever more raw ones.
//
// Bounds: kMaxBytes of samples.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "profiler/processes/process_table.h"
#include "windlass_event_layout.h"

namespace windlass::profiler {

// What is true at the time of a sample, and may be another later.
struct SampleMoment {
  std::uint64_t epoch = 0;  // of the process, when it had the mappings
  std::shared_ptr<const MapSet> maps;
  std::uint32_t labels = 0;  // of ProcessLabelSets
};

class PostponedSamples {
 public:
  static constexpr std::size_t kMaxBytes = std::size_t{64} << 20;

  [[nodiscard]] bool empty() const { return waiting_.empty(); }
  [[nodiscard]] std::size_t size() const { return waiting_.size(); }
  [[nodiscard]] bool full() const { return bytes_ > kMaxBytes; }
  // Of kMaxBytes, how much is used.
  [[nodiscard]] double fill() const { return static_cast<double>(bytes_) / static_cast<double>(kMaxBytes); }
  // The time of the first one; nothing without any.
  [[nodiscard]] std::optional<std::uint64_t> oldest() const {
    if (waiting_.empty()) return std::nullopt;
    return reinterpret_cast<const wl_event_head*>(waiting_.front().event.data())->time;
  }
  void push(const wl_event_head& head, std::size_t size, SampleMoment moment) {
    std::vector<std::uint64_t> copy((size + 7) / 8);
    std::memcpy(copy.data(), &head, size);
    bytes_ += size;
    waiting_.push_back({std::move(copy), size, std::move(moment)});
  }
  // Calls use(head, size, moment) for the oldest one and drops it. There must be one.
  template <typename Use>
  void take_first(Use&& use) {
    Waiting first = std::move(waiting_.front());
    waiting_.pop_front();
    bytes_ -= first.size;
    use(*reinterpret_cast<const wl_event_head*>(first.event.data()), first.size, first.moment);
  }
  template <typename Use>
  void for_each_maps(Use&& use) const {
    const MapSet* last = nullptr;  // neighbours share their mappings
    for (const Waiting& it : waiting_) {
      if (it.moment.maps.get() != last) use(*it.moment.maps);
      last = it.moment.maps.get();
    }
  }

 private:
  struct Waiting {
    std::vector<std::uint64_t> event;  // bytes, 8-aligned
    std::size_t size = 0;
    SampleMoment moment;
  };
  std::deque<Waiting> waiting_;
  std::size_t bytes_ = 0;
};

}  // namespace windlass::profiler
