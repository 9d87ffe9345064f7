// Bytes put together for files that tests make.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <type_traits>
#include <vector>

namespace windlass::test {

class ByteSink {
 public:
  [[nodiscard]] std::size_t size() const { return bytes_.size(); }
  template <typename T>
  std::size_t put(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    return append(&value, sizeof value);
  }
  std::size_t append(const void* data, std::size_t size) {
    const std::size_t at = bytes_.size();
    bytes_.resize(at + size);
    if (size != 0) std::memcpy(bytes_.data() + at, data, size);
    return at;
  }
  std::size_t append(std::string_view text) { return append(text.data(), text.size()); }
  std::size_t append(const std::vector<std::byte>& bytes) { return append(bytes.data(), bytes.size()); }
  std::size_t zeros(std::size_t count) {
    bytes_.resize(bytes_.size() + count);
    return bytes_.size() - count;
  }
  void align(std::size_t to) { bytes_.resize((bytes_.size() + to - 1) / to * to); }
  template <typename T>
  void set(std::size_t at, const T& value) {
    std::memcpy(bytes_.data() + at, &value, sizeof value);
  }
  [[nodiscard]] const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

}  // namespace windlass::test
