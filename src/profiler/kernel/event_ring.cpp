#include "profiler/kernel/event_ring.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <sys/epoll.h>

#include <algorithm>
#include <bit>
#include <cerrno>

#include "profiler/doctor/kernel_errors.h"
#include "windlass_event_layout.h"

namespace windlass::profiler {

std::uint32_t ring_size(unsigned frequency, unsigned cpus, std::uint64_t raw_bytes_per_second, bool ticks_alone) {
  constexpr std::uint64_t kStackBytes = 600, kLeast = std::uint64_t{8} << 20, kMost = std::uint64_t{1} << 28;
  const std::uint64_t ticks = std::uint64_t{frequency} * cpus;
  const std::uint64_t raw = ticks_alone
                                ? std::min(raw_bytes_per_second, ticks * static_cast<std::uint64_t>(WL_MAX_RAW_STACK))
                                : raw_bytes_per_second;
  return static_cast<std::uint32_t>(std::bit_ceil(std::clamp(raw / 4 + ticks * kStackBytes, kLeast, kMost)));
}

std::uint32_t counted_stacks(unsigned frequency, unsigned cpus, bool ticks_alone) {
  constexpr std::uint64_t kSeconds = 32, kLeast = std::uint64_t{1} << 14, kMost = std::uint64_t{1} << 18;
  if (!ticks_alone) return static_cast<std::uint32_t>(kMost);
  return static_cast<std::uint32_t>(
      std::bit_ceil(std::clamp(std::uint64_t{frequency} * cpus * kSeconds, kLeast, kMost)));
}

unsigned most_halvings(unsigned frequency) {
  constexpr unsigned kLeast = 8;
  unsigned halvings = 0;
  while (halvings < WL_MOST_HALVINGS && frequency >> (halvings + 1) >= kLeast) ++halvings;
  return halvings;
}

EventRing::~EventRing() {
  if (ring_ != nullptr) ring_buffer__free(ring_);
}

std::expected<void, SystemError> EventRing::open(int map) {
  bpf_map_info info{};
  std::uint32_t size = sizeof info;
  if (bpf_obj_get_info_by_fd(map, &info, &size) == 0) ring_ = ring_buffer__new(map, on_event, this, nullptr);
  bytes_ = info.max_entries;
  if (ring_ == nullptr)
    return std::unexpected(explain_memory_error(
        Error{ErrorCode::kSystem, "the event ring cannot be opened", 0, static_cast<std::uint64_t>(errno)}));
  return {};
}

int EventRing::on_event(void* context, void* data, std::size_t size) {
  auto& self = *static_cast<EventRing*>(context);
  ++self.handled_;
  if (self.handler_ != nullptr && size >= sizeof(wl_event_head))
    (*self.handler_)(*static_cast<const wl_event_head*>(data), size);
  const std::uint64_t taken = (size + BPF_RINGBUF_HDR_SZ + 7) / 8 * 8;
  self.left_ -= std::min(self.left_, taken);
  return self.left_ == 0 ? -EAGAIN : 0;
}

// What was there at the beginning fits into the ring. Without a bound this would go on for as long as events come
// faster than they are handled.
void EventRing::consume() {
  left_ = bytes_;
  ring_buffer__consume(ring_);
}

int EventRing::poll(std::chrono::milliseconds timeout, const SampleSource::Handler& handler) {
  handled_ = 0;
  handler_ = &handler;
  consume();
  if (handled_ == 0 && timeout.count() > 0) {
    epoll_event event{};
    epoll_wait(descriptor(), &event, 1, static_cast<int>(timeout.count()));
    consume();
  }
  handler_ = nullptr;
  return handled_;
}

int EventRing::descriptor() const { return ring_buffer__epoll_fd(ring_); }

}  // namespace windlass::profiler
