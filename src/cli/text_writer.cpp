#include "cli/text_writer.h"

#include <cerrno>

#include <unistd.h>

namespace windlass::cli {

void TextWriter::write_out(std::string_view bytes) {
  while (!bytes.empty() && !closed_ && errno_ == 0) {
    const ssize_t written = ::write(fd_, bytes.data(), bytes.size());
    if (written >= 0)
      bytes.remove_prefix(static_cast<std::size_t>(written));
    else if (errno == EPIPE)
      closed_ = true;
    else if (errno != EINTR)
      errno_ = errno;
  }
}

void TextWriter::flush() {
  write_out({buffer_.get(), used_});
  used_ = 0;
}

void TextWriter::long_text(std::string_view text) {
  flush();
  if (text.size() > kCapacity)
    write_out(text);
  else
    this->text(text);
}

void TextWriter::json_string(std::string_view text) {
  static constexpr char kDigits[] = "0123456789abcdef";
  character('"');
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      character('\\');
      character(c);
    } else if (byte < 0x20 || byte >= 0x7f) {
      // Names in files may be any bytes; Latin-1 keeps them distinguishable and the output valid.
      this->text("\\u00");
      character(kDigits[byte >> 4]);
      character(kDigits[byte & 15]);
    } else {
      character(c);
    }
  }
  character('"');
}

}  // namespace windlass::cli
