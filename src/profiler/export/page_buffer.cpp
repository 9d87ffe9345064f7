#include "profiler/export/page_buffer.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace windlass::exporter {

namespace {

constexpr std::size_t kMultiple = std::size_t{64} << 10;  // of the page sizes of all processors

}  // namespace

PageBuffer::~PageBuffer() {
  if (data_ != nullptr) ::munmap(data_, capacity_);
}

bool PageBuffer::reserve(std::size_t capacity) {
  if (capacity <= capacity_) return true;
  if (capacity > SIZE_MAX - kMultiple) return false;
  const std::size_t rounded = (capacity + kMultiple - 1) / kMultiple * kMultiple;
  void* const at = data_ != nullptr
                       ? ::mremap(data_, capacity_, rounded, MREMAP_MAYMOVE)
                       : ::mmap(nullptr, rounded, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) return false;
  (void)::madvise(at, rounded, MADV_HUGEPAGE);  // a fault for 2 MiB, where the system has such pages
  data_ = static_cast<std::byte*>(at);
  capacity_ = rounded;
  return true;
}

bool PageBuffer::append(const void* bytes, std::size_t size) {
  if (size > capacity_ - size_ && !reserve(std::max(size_ + size, capacity_ * 3 / 2))) return false;
  if (size != 0) std::memcpy(data_ + size_, bytes, size);
  size_ += size;
  return true;
}

void PageBuffer::give_back(std::size_t begin, std::size_t end) {
  begin = (begin + kMultiple - 1) / kMultiple * kMultiple;
  end = std::min(end, size_) / kMultiple * kMultiple;
  if (begin < end) (void)::madvise(data_ + begin, end - begin, MADV_DONTNEED);
}

}  // namespace windlass::exporter
