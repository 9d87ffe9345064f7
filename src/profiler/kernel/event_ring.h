// The BPF ring buffer that samples and process events come through.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <expected>

#include "profiler/doctor/system_error.h"
#include "profiler/kernel/sample_source.h"

struct ring_buffer;

namespace windlass::profiler {

// How large the ring is, a power of two: for what all CPUs may write in a quarter of a second of raw stacks, and for
// the stacks of a second. An agent that gets no CPU time for so long loses nothing. `ticks_alone`: samples are those of
// CPU time, so that the rate bounds raw stacks as well. The agent maps the ring twice: its memory counts double there.
[[nodiscard]] std::uint32_t ring_size(unsigned frequency, unsigned cpus, std::uint64_t raw_bytes_per_second,
                                      bool ticks_alone);

// How many distinct stacks the kernel side counts, a power of two: those that may come in half a minute, and 262,144 at
// most. The kernel clears 100 bytes for each before the first sample. `ticks_alone` as above; at rates of other events'
// own, the most.
[[nodiscard]] std::uint32_t counted_stacks(unsigned frequency, unsigned cpus, bool ticks_alone);

// How often a rate may be halved: down to 8 samples a second, and to WL_MOST_HALVINGS.
[[nodiscard]] unsigned most_halvings(unsigned frequency);

// One thread only.
class EventRing {
 public:
  EventRing() = default;
  ~EventRing();
  EventRing(const EventRing&) = delete;
  EventRing& operator=(const EventRing&) = delete;

  // `map`: descriptor of a BPF_MAP_TYPE_RINGBUF, which it does not take over. One of its copies must stay open. Stays
  // where it is from here on.
  std::expected<void, SystemError> open(int map);
  [[nodiscard]] bool is_open() const { return ring_ != nullptr; }
  // Hands out what is there, and at most as much as the ring holds; waits at most `timeout` for the first event. How
  // many came.
  int poll(std::chrono::milliseconds timeout, const SampleSource::Handler& handler);
  // Readable as SampleSource::event_fd() says.
  [[nodiscard]] int descriptor() const;

 private:
  static int on_event(void* self, void* data, std::size_t size);
  void consume();

  ring_buffer* ring_ = nullptr;
  const SampleSource::Handler* handler_ = nullptr;  // during poll()
  int handled_ = 0;
  std::uint64_t bytes_ = 0, left_ = 0;  // of the ring; that may be handed out still
};

}  // namespace windlass::profiler
