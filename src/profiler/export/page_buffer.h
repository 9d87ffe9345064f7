// Bytes of memory straight from the system: untouched until written, grown without a copy, given back in pieces.
#pragma once

#include <cstddef>
#include <utility>

#include "windlass/bytes.h"

namespace windlass::exporter {

// Movable, not copyable. Of one thread.
class PageBuffer {
 public:
  PageBuffer() = default;
  PageBuffer(PageBuffer&& other) noexcept { *this = std::move(other); }
  PageBuffer& operator=(PageBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(capacity_, other.capacity_);
    return *this;
  }
  ~PageBuffer();

  // To so many bytes, at least; moves data(). False: there is no memory, and nothing has changed.
  [[nodiscard]] bool reserve(std::size_t capacity);
  // Copies bytes behind the last one. False: as of reserve().
  [[nodiscard]] bool append(const void* bytes, std::size_t size);
  // At most capacity(). Bytes that nobody wrote are 0.
  void set_size(std::size_t size) { size_ = size; }

  [[nodiscard]] std::byte* data() { return data_; }
  [[nodiscard]] const std::byte* data() const { return data_; }
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] std::size_t capacity() const { return capacity_; }
  [[nodiscard]] bool empty() const { return size_ == 0; }
  [[nodiscard]] ByteView bytes() const { return ByteView(data_, size_); }

  // The memory of the whole pages in [begin, end) returns to the system; their bytes are 0 from here on.
  void give_back(std::size_t begin, std::size_t end);

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0, capacity_ = 0;
};

}  // namespace windlass::exporter
