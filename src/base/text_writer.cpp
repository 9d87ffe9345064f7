#include "base/text_writer.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "base/utf8.h"

namespace windlass {
namespace {

// Stands for itself in a JSON string.
bool is_plain(char c) { return c >= 0x20 && c < 0x7f && c != '"' && c != '\\' && c != '<'; }

// "\u202e"
void put_utf16(TextWriter& out, unsigned unit) {
  out.text("\\u");
  for (unsigned shift = 16; shift != 0;) out.character("0123456789abcdef"[unit >> (shift -= 4) & 15]);
}

__extension__ using Wide = unsigned __int128;
constexpr double kBelow = 1e20;  // of the values with digits

// |value| * 10^digits, rounded to the nearest integer, halves to the even one, as std::to_chars() rounds. That function
// brings tables of 118 KB into a static program. The double has these bits (IEEE 754-2019, 3.4), and is below kBelow.
Wide scale(std::uint64_t bits, int digits) {
  const auto biased = static_cast<int>(bits >> 52 & 0x7ff);
  const std::uint64_t fraction = bits & ((std::uint64_t{1} << 52) - 1);
  Wide scaled = biased == 0 ? fraction : fraction | std::uint64_t{1} << 52;
  for (int i = 0; i < digits; ++i) scaled *= 10;  // 53 bits and 57: no overflow
  const int shift = 1075 - std::max(biased, 1);
  if (shift <= 0) return scaled << -shift;
  if (shift >= 112) return 0;  // below a half
  const Wide rounded = scaled >> shift;
  const Wide rest = scaled - (rounded << shift);
  const Wide half = Wide{1} << (shift - 1);
  return rounded + (rest > half || (rest == half && (rounded & 1) != 0) ? 1 : 0);
}

}  // namespace

void TextWriter::write_out(std::string_view bytes) {
  if (to_ != nullptr) {
    to_->append(bytes);
    return;
  }
  while (!bytes.empty() && errno_ == 0) {
    const ssize_t done = ::write(fd_, bytes.data(), bytes.size());
    if (done > 0) {
      written_ += static_cast<std::uint64_t>(done);
      bytes.remove_prefix(static_cast<std::size_t>(done));
    } else if (done == 0 || errno != EINTR) {
      errno_ = done == 0 ? ENOSPC : errno;
    }
  }
}

void TextWriter::flush() {
  write_out({buffer_.get(), used_});
  used_ = 0;
}

Expected<void> TextWriter::finish() {
  flush();
  if (errno_ != 0)
    return fail(ErrorCode::kSystem, "cannot write the output", written_, static_cast<std::uint64_t>(errno_));
  return {};
}

void TextWriter::long_text(std::string_view text) {
  flush();
  if (text.size() > kCapacity)
    write_out(text);
  else
    this->text(text);
}

void TextWriter::fixed(double value, int digits) {
  reserve(kLongestNumber);
  const auto bits = std::bit_cast<std::uint64_t>(value);
  if (bits >> 63 != 0) character('-');
  if (!(std::abs(value) < kBelow)) {
    text(value == value ? "inf" : "nan");
    return;
  }
  Wide scaled = scale(bits, digits);
  char text[kLongestNumber];
  char* const end = text + sizeof text;
  char* at = end;
  for (int place = 0; place <= digits || scaled != 0; ++place) {
    if (place == digits && digits != 0) *--at = '.';
    *--at = static_cast<char>('0' + static_cast<int>(scaled % 10));
    scaled = scaled >> 64 == 0 ? static_cast<std::uint64_t>(scaled) / 10 : scaled / 10;
  }
  this->text({at, static_cast<std::size_t>(end - at)});
}

void TextWriter::json_string(std::string_view text) {
  character('"');
  while (!text.empty()) {
    std::size_t plain = 0;
    while (plain < text.size() && is_plain(text[plain])) ++plain;
    this->text(text.substr(0, plain));
    text.remove_prefix(plain);
    if (text.empty()) break;
    const auto [code, length] = utf8_character(text);
    if (length == 0) {
      this->text("\xef\xbf\xbd");
    } else if (code == '"' || code == '\\') {
      character('\\');
      character(text[0]);
    } else if (code >= 0x10000 && is_hidden(code)) {
      put_utf16(*this, 0xd800 + ((code - 0x10000) >> 10));
      put_utf16(*this, 0xdc00 + (code & 0x3ff));
    } else if (code == '<' || is_hidden(code)) {
      put_utf16(*this, code);
    } else {
      this->text(text.substr(0, length));
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  character('"');
}

}  // namespace windlass
