// What the library in the recorded processes (src/alloc) tells of allocations. It is preloaded into the command, and
// shares a region of memory with this program. All that is read there was written by programs that may be hostile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <expected>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "alloc/region.h"
#include "profiler/doctor/system_error.h"
#include "profiler/processes/targets.h"
#include "profiler/samples/aggregator.h"
#include "profiler/samples/recording_events.h"
#include "profiler/samples/sample_intake.h"
#include "windlass_event_layout.h"

namespace windlass::profiler {

// Sums over all processes.
struct AllocationStats {
  std::uint32_t processes = 0;   // that have loaded the library
  std::uint64_t lost = 0;        // samples without room for their stack
  std::uint64_t unfollowed = 0;  // samples without room for their block
  std::uint64_t malformed = 0;   // records that cannot be
};

class Allocations {
 public:
  // `period`: bytes between samples, on average; 1: every allocation is one.
  static std::expected<std::unique_ptr<Allocations>, SystemError> open(std::uint64_t period);
  ~Allocations();

  // What the command's environment has to have, as NAME=VALUE.
  [[nodiscard]] std::vector<std::string> environment() const;

  // Hands out the stacks that are new, as WL_EVENT_STACK of `events.allocated`.
  using Handler = std::function<void(const wl_event_head& head, std::size_t size)>;
  void poll(const RecordingEvents& events, const Handler& handler);
  // Takes such an event, when its time has come.
  void take(const wl_event_head& head, std::size_t size, const RecordingEvents& events, const Targets& targets,
            SampleIntake& intake, Aggregator& aggregator);
  // Brings the samples of all stacks up to what the processes have counted so far.
  void book(Aggregator& aggregator);

  [[nodiscard]] AllocationStats stats() const;

 private:
  struct Booked {
    wl_count allocated{}, in_use{};
  };
  struct Taken {
    bool known = false;  // its samples are
    std::size_t allocated = 0, in_use = 0;
    Booked booked;
  };

  Allocations() = default;
  [[nodiscard]] const alloc::Header& header() const { return *reinterpret_cast<const alloc::Header*>(base_); }
  [[nodiscard]] const alloc::Record* record_at(std::uint32_t place) const;

  std::string library_;  // the path of its file
  int region_ = -1;
  std::byte* base_ = nullptr;
  std::unordered_map<std::uint32_t, Taken> taken_;  // by the place of the record
  std::uint64_t malformed_ = 0;
};

}  // namespace windlass::profiler
