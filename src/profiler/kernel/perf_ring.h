// The ring of a perf event: the kernel writes records, we read them (perf_event_open(2), "MMAP layout").
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace windlass::profiler {

// PERF_FORMAT_LOST of perf_event_attr::read_format, which headers before Linux 6.0 do not have. Earlier kernels refuse
// it with EINVAL.
inline constexpr std::uint64_t kFormatLost = 1U << 4;

// What found the ring full, of an event with kFormatLost and those inherited from it. 0: the kernel does not tell.
// Exact at once, where the ring itself tells of a loss with the next record that it has room for.
[[nodiscard]] std::uint64_t lost_of(int fd);

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
  // Was the ring so full at the last drain() that it may have had no room for a record?
  [[nodiscard]] bool was_full() const { return drained_ > data_size_ / 2; }

 private:
  std::byte* base_ = nullptr;
  std::size_t data_size_ = 0;
  std::size_t page_size_ = 0;
  std::uint64_t drained_ = 0;       // bytes, by the last drain()
  std::vector<std::byte> wrapped_;  // a record that wraps around the ring's end, made contiguous
};

}  // namespace windlass::profiler
