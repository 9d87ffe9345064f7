#include "profiler/kernel/perf_ring.h"

#include <linux/perf_event.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

namespace windlass::profiler {

std::uint64_t lost_of(int fd) {
  struct {
    std::uint64_t value = 0, lost = 0;
  } counts;
  return read(fd, &counts, sizeof counts) == sizeof counts ? counts.lost : 0;
}

PerfRing::PerfRing(PerfRing&& other) noexcept
    : base_(std::exchange(other.base_, nullptr)),
      data_size_(other.data_size_),
      page_size_(other.page_size_),
      wrapped_(std::move(other.wrapped_)) {}

PerfRing::~PerfRing() {
  if (base_ != nullptr) munmap(base_, data_size_ + page_size_);
}

int PerfRing::map(int fd, std::size_t pages) {
  page_size_ = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  data_size_ = pages * page_size_;
  void* base = mmap(nullptr, data_size_ + page_size_, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (base == MAP_FAILED) return errno;
  base_ = static_cast<std::byte*>(base);
  return 0;
}

void PerfRing::drain(const Sink& sink, std::uint64_t& malformed) {
  auto* page = reinterpret_cast<perf_event_mmap_page*>(base_);
  const std::byte* data = base_ + page_size_;
  const std::uint64_t head = std::atomic_ref(page->data_head).load(std::memory_order_acquire);
  std::uint64_t tail = page->data_tail;
  if (head - tail > data_size_) tail = head;  // cannot be; do not read outside the ring
  drained_ = head - tail;
  while (tail < head) {
    const std::size_t at = tail % data_size_;
    perf_event_header header;  // records are 8-aligned, so a header never wraps
    std::memcpy(&header, data + at, sizeof header);
    if (header.size < sizeof header || header.size > head - tail) {
      ++malformed;
      tail = head;
      break;
    }
    std::span<const std::byte> record(data + at, header.size);
    if (at + header.size > data_size_) {
      wrapped_.resize(header.size);
      const std::size_t first = data_size_ - at;
      std::memcpy(wrapped_.data(), data + at, first);
      std::memcpy(wrapped_.data() + first, data, header.size - first);
      record = wrapped_;
    }
    sink(record);
    tail += header.size;
  }
  std::atomic_ref(page->data_tail).store(tail, std::memory_order_release);
}

}  // namespace windlass::profiler
