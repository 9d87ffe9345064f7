// Views of bytes that check every read against their bounds. An error names the offset in the file that the bytes came
// from.
//
// For example, `view.at<std::uint32_t>(8)` reads 4 bytes at offset 8 of the view, or returns kTruncated.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include "windlass/error.h"

namespace windlass {

static_assert(std::endian::native == std::endian::little, "every host Windlass runs on is little-endian");

// A run of bytes, with the offset of the first byte in the file or section it was cut from. Error messages count from
// this offset.
//
// A view owns nothing: the bytes must outlive the view. Plain reads only, so thread-safe and signal-safe. All functions
// take constant time, except string_at().
class ByteView {
 public:
  constexpr ByteView() = default;
  constexpr ByteView(const std::byte* data, std::size_t size, std::uint64_t origin = 0)
      : data_(data), size_(size), origin_(origin) {}
  explicit ByteView(std::span<const std::uint8_t> bytes, std::uint64_t origin = 0)
      : data_(reinterpret_cast<const std::byte*>(bytes.data())), size_(bytes.size()), origin_(origin) {}

  // The bytes, and their number.
  [[nodiscard]] constexpr const std::byte* data() const { return data_; }
  [[nodiscard]] const std::uint8_t* u8() const { return reinterpret_cast<const std::uint8_t*>(data_); }
  [[nodiscard]] constexpr std::size_t size() const { return size_; }
  [[nodiscard]] constexpr bool empty() const { return size_ == 0; }
  // The offset of the first byte in the file or section; used in error messages.
  [[nodiscard]] constexpr std::uint64_t origin() const { return origin_; }

  // The bytes [offset, offset + size) of this view. kOutOfRange if the view ends before; `where` is the offset in the
  // file.
  [[nodiscard]] Expected<ByteView> sub(std::uint64_t offset, std::uint64_t size) const {
    if (offset > size_ || size > size_ - offset)
      return fail(ErrorCode::kOutOfRange, "range reaches past the end of its container", origin_ + offset, size);
    return ByteView(data_ + offset, static_cast<std::size_t>(size), origin_ + offset);
  }

  // The little-endian value, or struct whose members need no alignment, at `offset`. kTruncated if the view ends before
  // the value does.
  template <typename T>
  [[nodiscard]] Expected<T> at(std::uint64_t offset) const {
    static_assert(std::is_trivially_copyable_v<T>);
    if (offset > size_ || sizeof(T) > size_ - offset)
      return fail(ErrorCode::kTruncated, "value reaches past the end", origin_ + offset, sizeof(T));
    T value;
    std::memcpy(&value, data_ + offset, sizeof(T));
    return value;
  }

  // The NUL-terminated string at `offset`, without the NUL. Linear in the string. Errors: kOutOfRange if `offset` is
  // not in the view; kTruncated if no NUL follows.
  [[nodiscard]] Expected<std::string_view> string_at(std::uint64_t offset) const {
    if (offset >= size_) return fail(ErrorCode::kOutOfRange, "string starts past the end", origin_ + offset);
    const char* start = reinterpret_cast<const char*>(data_) + offset;
    const void* nul = std::memchr(start, 0, size_ - static_cast<std::size_t>(offset));
    if (nul == nullptr) return fail(ErrorCode::kTruncated, "string has no terminator", origin_ + offset);
    return std::string_view(start, static_cast<const char*>(nul) - start);
  }

 private:
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  std::uint64_t origin_ = 0;
};

// Reads forward through a ByteView, value after value. After an error, the position is still the start of the value
// that failed.
class ByteCursor {
 public:
  explicit ByteCursor(ByteView view, std::uint64_t position = 0) : view_(view), position_(position) {}

  // The offset in the view that is read next.
  [[nodiscard]] std::uint64_t position() const { return position_; }
  // The position as an offset in the file or section: the origin of the view is added.
  [[nodiscard]] std::uint64_t origin() const { return view_.origin() + position_; }
  // Bytes behind the position.
  [[nodiscard]] std::uint64_t remaining() const { return position_ < view_.size() ? view_.size() - position_ : 0; }
  [[nodiscard]] bool at_end() const { return remaining() == 0; }
  [[nodiscard]] ByteView view() const { return view_; }
  // Reads a little-endian value. Errors as ByteView::at().

  template <typename T>
  [[nodiscard]] Expected<T> read() {
    auto value = view_.at<T>(position_);
    if (value) position_ += sizeof(T);
    return value;
  }
  // Reads a LEB128 number (DWARF 5, section 7.6). Redundant padding bytes are accepted. Errors: kMalformed if the
  // number needs more than 64 bits; kTruncated.
  [[nodiscard]] Expected<std::uint64_t> uleb();
  [[nodiscard]] Expected<std::int64_t> sleb();
  // Reads `size` bytes as a view. Errors as ByteView::sub().
  [[nodiscard]] Expected<ByteView> bytes(std::uint64_t size) {
    auto piece = view_.sub(position_, size);
    if (piece) position_ += size;
    return piece;
  }
  // Reads a string and passes its NUL. Errors as ByteView::string_at().
  [[nodiscard]] Expected<std::string_view> string() {
    auto text = view_.string_at(position_);
    if (text) position_ += text->size() + 1;
    return text;
  }

 private:
  ByteView view_;
  std::uint64_t position_;
};

}  // namespace windlass
