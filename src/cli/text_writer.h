// Buffered text to a descriptor: what `dump` and `rows` print their millions of lines with. Errors are sticky; once the
// reader of a pipe has gone everything is swallowed, so that `windlass rows FILE | head` ends quietly.
#pragma once

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string_view>

namespace windlass::cli {

class TextWriter {
 public:
  explicit TextWriter(int fd) : fd_(fd), buffer_(std::make_unique_for_overwrite<char[]>(kCapacity)) {}
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
    text("0x");
    number(value, 16);
  }
  // In quotes, escaped as JSON wants it.
  void json_string(std::string_view text);

  void flush();
  // The reader has gone: there is no point in going on.
  [[nodiscard]] bool closed() const { return closed_; }
  // errno of the first write that failed otherwise; 0 = none.
  [[nodiscard]] int failed() const { return errno_; }

 private:
  static constexpr std::size_t kCapacity = std::size_t{1} << 18;
  static constexpr std::size_t kLongestNumber = 24;

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
  int errno_ = 0;
  bool closed_ = false;
  std::size_t used_ = 0;
  std::unique_ptr<char[]> buffer_;
};

}  // namespace windlass::cli
