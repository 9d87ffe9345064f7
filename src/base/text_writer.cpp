#include "base/text_writer.h"

#include <unistd.h>

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
  char* const at = buffer_.get() + used_;
  const auto end = std::to_chars(at, at + kLongestNumber, value, std::chars_format::fixed, digits);
  if (end.ec == std::errc()) used_ += static_cast<std::size_t>(end.ptr - at);
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
