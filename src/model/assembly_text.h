// Lines of assembly text, as all writers of it make them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace windlass {

class AssemblyText {
 protected:
  void line(std::string_view text) { text_.append(text) += '\n'; }
  // `directive`: "DB ", ".byte ", with what stands in front of it.
  void bytes(std::string_view directive, std::span<const std::byte> data) {
    constexpr std::size_t kPerLine = 16;
    for (std::size_t i = 0; i < data.size(); i += kPerLine) {
      text_ += directive;
      for (std::size_t k = i; k < std::min(i + kPerLine, data.size()); ++k)
        text_.append(k == i ? "" : ", ") += std::to_string(std::to_integer<int>(data[k]));
      text_ += '\n';
    }
  }
  std::string take() { return std::move(text_); }

  std::string text_;
};

}  // namespace windlass
