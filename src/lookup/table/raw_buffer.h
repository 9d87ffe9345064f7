// A growing array of plain values whose new elements are not initialised: what std::vector cannot do, and what counts
// when millions of rows are written once and read once.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <type_traits>
#include <utility>

namespace windlass::table {

template <typename T>
class RawBuffer {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  // At least `more` elements can be written behind end(). Amortised constant time.
  void make_room(std::size_t more) {
    if (capacity_ - size_ < more) [[unlikely]]
      grow(more);
  }
  void push_back(const T& value) {
    make_room(1);
    data_[size_++] = value;
  }
  void clear() { size_ = 0; }
  void pop_back() { --size_; }
  // Within the room made; new elements are what has been written there.
  void resize(std::size_t size) { size_ = size; }

  [[nodiscard]] T* data() { return data_.get(); }
  [[nodiscard]] const T* data() const { return data_.get(); }
  [[nodiscard]] T* begin() { return data(); }
  [[nodiscard]] T* end() { return data() + size_; }
  [[nodiscard]] const T* begin() const { return data(); }
  [[nodiscard]] const T* end() const { return data() + size_; }
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] T& back() { return data_[size_ - 1]; }
  [[nodiscard]] T& operator[](std::size_t i) { return data_[i]; }

 private:
  [[gnu::noinline]] void grow(std::size_t more) {
    const std::size_t capacity = std::max(capacity_ * 2, size_ + more);
    auto data = std::make_unique_for_overwrite<T[]>(capacity);
    if (size_ != 0) std::memcpy(data.get(), data_.get(), size_ * sizeof(T));
    data_ = std::move(data);
    capacity_ = capacity;
  }

  std::unique_ptr<T[]> data_;
  std::size_t size_ = 0;
  std::size_t capacity_ = 0;
};

}  // namespace windlass::table
