// The ring of a perf event: the kernel writes records, we read them (perf_event_open(2), "MMAP layout").
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace windlass::profiler {

class PerfRing {
 public:
  PerfRing() = default;
  PerfRing(PerfRing&& other) noexcept;
  PerfRing& operator=(PerfRing&&) = delete;
  ~PerfRing();

  // Maps the ring of `fd`; `pages` is a power of two. 0 or errno.
  [[nodiscard]] int map(int fd, std::size_t pages);

  // Hands over every record there is, its header included, valid during the call. Counts those whose header cannot be.
  using Sink = std::function<void(std::span<const std::byte> record)>;
  void drain(const Sink& sink, std::uint64_t& malformed);

 private:
  std::byte* base_ = nullptr;
  std::size_t data_size_ = 0;
  std::size_t page_size_ = 0;
  std::vector<std::byte> wrapped_;  // a record that wraps around the ring's end, made contiguous
};

}  // namespace windlass::profiler
