#include "profiler/export/shorten_name.h"

#include "base/shown.h"
#include "base/utf8.h"

namespace windlass::exporter {

namespace {

std::string without_template_arguments(const std::string& name) {
  std::string result;
  int depth = 0;
  for (std::size_t i = 0; i < name.size(); ++i) {
    const char c = name[i];
    const bool is_operator = result.ends_with("operator") || (depth == 0 && result.ends_with("operator<"));
    if (c == '<' && !is_operator && ++depth == 1) result += "<…>";
    if (depth == 0) result += c;
    if (c == '>' && depth > 0 && (i == 0 || name[i - 1] != '-')) --depth;
  }
  return depth == 0 ? result : name;
}

// Byte offset of the given column.
std::size_t offset_of(const std::string& text, std::size_t column) {
  std::size_t offset = 0;
  for (; column > 0 && offset < text.size(); --column)
    offset += std::max<std::size_t>(1, utf8_length(std::string_view(text).substr(offset)));
  return offset;
}

}  // namespace

std::size_t length_without_parameters(std::string_view name) {
  const auto close = name.rfind(')');
  if (close == std::string_view::npos) return name.size();
  // What follows parameters: " const", "&", "[abi:cxx11]", "@plt".
  const std::string_view rest = name.substr(close + 1);
  if (!rest.empty() && std::string_view(" &[@").find(rest.front()) == std::string_view::npos) return name.size();
  int depth = 0;
  for (std::size_t i = close + 1; i-- > 0;) {
    if (name[i] == ')') ++depth;
    if (name[i] != '(' || --depth != 0) continue;
    const bool is_name = i == 0 || name.substr(0, i).ends_with("operator") || rest.find('}') != std::string_view::npos;
    return is_name ? name.size() : i;
  }
  return name.size();
}

std::size_t columns_of(std::string_view text) {
  std::size_t columns = 0;
  for (const char c : text) columns += (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  return columns;
}

std::string shorten_name(std::string_view name, std::size_t width) {
  std::string text = shown(name);
  if (columns_of(text) <= width) return text;
  text.resize(length_without_parameters(text));
  if (columns_of(text) <= width) return text;
  text = without_template_arguments(text);
  const std::size_t columns = columns_of(text);
  if (columns <= width) return text;
  if (width < 4) return text.substr(0, offset_of(text, width));
  const std::size_t head = (width - 1) / 3, tail = width - 1 - head;
  return text.substr(0, offset_of(text, head)) + "…" + text.substr(offset_of(text, columns - tail));
}

std::string cut_line(std::string_view line, std::size_t width) {
  std::string spaces;
  for (const char c : line) {
    if (c == '\t')
      spaces.append(8 - columns_of(spaces) % 8, ' ');
    else if (c != '\r')
      spaces += c;
    if (spaces.size() > 4 * width) break;  // a character has four bytes at most
  }
  const std::string text = shown(spaces);
  return columns_of(text) <= width ? text : text.substr(0, offset_of(text, width - 1)) + "…";
}

}  // namespace windlass::exporter
