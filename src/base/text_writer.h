// Buffered text to a descriptor or a string. Every export and every command writes with it, millions of lines of `dump`
// and `rows` included. Errors are sticky: the first error is kept, and everything after it is dropped.
#pragma once

#include <bit>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>

#include "windlass/error.h"

namespace windlass {

// The 8 digits of 32 bits as characters, the first one lowest.
[[nodiscard]] inline std::uint64_t hex_characters(std::uint32_t value) {
  // Each digit becomes a byte, the last one the lowest, then a character.
  std::uint64_t bits = value;
  bits = (bits | bits << 16) & 0x0000ffff0000ffff;
  bits = (bits | bits << 8) & 0x00ff00ff00ff00ff;
  bits = (bits | bits << 4) & 0x0f0f0f0f0f0f0f0f;
  const std::uint64_t letters = (bits + 0x0606060606060606) >> 4 & 0x0101010101010101;
  return std::byteswap(bits + 0x3030303030303030 + letters * ('a' - '0' - 10));
}
// How many digits a number has.
[[nodiscard]] inline unsigned hex_count(std::uint64_t value) {
  return (static_cast<unsigned>(std::bit_width(value | 1)) + 3) / 4;
}

// Writes "0x1f", and returns its end. 26 bytes must be writable.
inline char* write_hex(char* to, std::uint64_t value) {
  const auto put = [&to](std::uint64_t text, unsigned size) {
    std::memcpy(to, &text, sizeof text);
    to += size;
  };
  put('0' | 'x' << 8, 2);
  const auto low = static_cast<std::uint32_t>(value);
  const unsigned count = hex_count(value);
  if (count <= 8) {
    put(hex_characters(low) >> (8 - count) * 8, count);
  } else {
    put(hex_characters(static_cast<std::uint32_t>(value >> 32)) >> (16 - count) * 8, count - 8);
    put(hex_characters(low), 8);
  }
  return to;
}

// Not thread-safe. Text is buffered until flush(), finish() or the destructor.
class TextWriter {
 public:
  // The caller keeps the descriptor. A short or interrupted write is continued.
  explicit TextWriter(int fd) : TextWriter(fd, nullptr) {}
  // Appends to `to`.
  explicit TextWriter(std::string* to) : TextWriter(-1, to) {}
  TextWriter(const TextWriter&) = delete;
  TextWriter& operator=(const TextWriter&) = delete;
  ~TextWriter() { flush(); }

  void text(std::string_view text) {
    if (text.size() > kCapacity - used_) [[unlikely]] {
      long_text(text);
      return;
    }
    std::memcpy(buffer_.get() + used_, text.data(), text.size());
    used_ += text.size();
  }
  // A literal: its size is a constant, so that a few moves copy it.
  template <std::size_t kSize>
  [[gnu::always_inline]] void text(const char (&literal)[kSize]) {
    reserve(kSize);
    std::memcpy(buffer_.get() + used_, literal, kSize - 1);
    used_ += kSize - 1;
  }
  template <std::size_t kSize>
  void text(char (&buffer)[kSize]) = delete;
  // The place where `size` more bytes can be written, at most kLongestRoom. wrote() then accepts the bytes. For callers
  // that write so much that asking for room with each piece would take time.
  static constexpr std::size_t kLongestRoom = 4096;
  [[nodiscard]] char* room(std::size_t size) {
    reserve(size);
    return buffer_.get() + used_;
  }
  void wrote(const char* end) { used_ = static_cast<std::size_t>(end - buffer_.get()); }
  void character(char c) {
    reserve(1);
    buffer_[used_++] = c;
  }
  void decimal(std::uint64_t value) { number(value, 10); }
  void decimal(std::int64_t value) { number(value, 10); }
  // "+16" or "-16"
  void signed_decimal(std::int64_t value) {
    if (value >= 0) character('+');
    number(value, 10);
  }
  // "0x1f"
  void hex(std::uint64_t value) {
    reserve(kLongestNumber);
    used_ = static_cast<std::size_t>(write_hex(buffer_.get() + used_, value) - buffer_.get());
  }
  // With 0 to 17 digits behind the point, rounded exactly, halves to the even digit. From 1e20 on a value is "inf".
  void fixed(double value, int digits);
  // Writes text in quotes, escaped for JSON (RFC 8259). '<' is escaped too, so that no name can end a <script> element.
  // So are hidden characters (utf8.h). Bytes that are not UTF-8 become U+FFFD.
  void json_string(std::string_view text);

  void flush();
  // Flushes. Returns the first error of all writes: kSystem, `detail` is errno, `where` the bytes written before.
  [[nodiscard]] Expected<void> finish();
  // True if the reader of a pipe has gone. Then going on makes no sense, and nothing has failed: for example `windlass
  // rows FILE | head` ends quietly.
  [[nodiscard]] bool closed() const { return errno_ == EPIPE; }
  // The errno of the first other write that failed; 0: none.
  [[nodiscard]] int failed() const { return closed() ? 0 : errno_; }

 private:
  static constexpr std::size_t kCapacity = std::size_t{1} << 18;
  static constexpr std::size_t kLongestNumber = 48;

  TextWriter(int fd, std::string* to) : fd_(fd), to_(to), buffer_(std::make_unique_for_overwrite<char[]>(kCapacity)) {}

  void reserve(std::size_t size) {
    if (size > kCapacity - used_) flush();
  }
  template <typename Integer>
  void number(Integer value, int base) {
    reserve(kLongestNumber);
    char* const at = buffer_.get() + used_;
    used_ += static_cast<std::size_t>(std::to_chars(at, at + kLongestNumber, value, base).ptr - at);
  }
  void long_text(std::string_view text);
  void write_out(std::string_view bytes);

  int fd_;
  std::string* to_;
  int errno_ = 0;
  std::uint64_t written_ = 0;
  std::size_t used_ = 0;
  std::unique_ptr<char[]> buffer_;
};

}  // namespace windlass
