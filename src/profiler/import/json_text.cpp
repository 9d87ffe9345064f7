#include "profiler/import/json_text.h"

#include <charconv>
#include <cmath>

#include "base/utf8.h"

namespace windlass::importer {
namespace {

constexpr std::size_t kDeepest = 64;

std::size_t skip_space(std::string_view text, std::size_t at) {
  while (at < text.size() && (text[at] == ' ' || text[at] == '\n' || text[at] == '\r' || text[at] == '\t')) ++at;
  return at;
}
// Behind the closing quote; `at` is that of the opening one. npos: it has no end.
std::size_t behind_string(std::string_view text, std::size_t at) {
  ++at;
  while ((at = text.find_first_of("\"\\", at)) != std::string_view::npos) {
    if (text[at] == '"') return at + 1;
    at += 2;  // with what is escaped
  }
  return std::string_view::npos;
}
bool is_of_word(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || c == 'E' || c == '+' || c == '-' || c == '.';
}
// Behind a number, true, false or null.
std::size_t behind_word(std::string_view text, std::size_t at) {
  while (at < text.size() && is_of_word(text[at])) ++at;
  return at;
}
bool is_word(std::string_view word) {
  if (word == "true" || word == "false" || word == "null") return true;
  double value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  const bool is_number = (word[0] >= '0' && word[0] <= '9') || word[0] == '-';
  return is_number && end == word.data() + word.size() && error != std::errc::invalid_argument;
}
// Behind a value of a text that was checked.
std::size_t behind(std::string_view text, std::size_t at) {
  if (text[at] == '"') return behind_string(text, at);
  if (text[at] != '{' && text[at] != '[') return behind_word(text, at);
  for (std::size_t depth = 0; at < text.size();) {
    at = text.find_first_of("{}[]\"", at);
    if (text[at] == '"') {
      at = behind_string(text, at);
      continue;
    }
    depth += text[at] == '{' || text[at] == '[' ? 1 : ~std::size_t{0};
    ++at;
    if (depth == 0) break;
  }
  return at;
}

class Checker {
 public:
  explicit Checker(std::string_view text) : text_(text) {}

  Expected<void> check() {
    if (!value(0)) return fail(ErrorCode::kMalformed, what_, at_);
    at_ = skip_space(text_, at_);
    if (at_ != text_.size()) return fail(ErrorCode::kMalformed, "text behind the JSON value", at_);
    return {};
  }

 private:
  bool refuse(const char* what) {
    what_ = what;
    return false;
  }
  [[nodiscard]] char next() {
    at_ = skip_space(text_, at_);
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool value(std::size_t depth) {
    const char first = next();
    if (depth > kDeepest) return refuse("JSON is nested too deep");
    if (first == '{') return members(depth);
    if (first == '[') return elements(depth);
    if (first == '"') return text();
    const std::size_t end = behind_word(text_, at_);
    if (end == at_ || !is_word(text_.substr(at_, end - at_))) return refuse("no JSON value");
    at_ = end;
    return true;
  }
  bool text() {
    const std::size_t end = behind_string(text_, at_);
    if (end == std::string_view::npos) return refuse("a string of the JSON text has no end");
    at_ = end;
    return true;
  }
  bool members(std::size_t depth) {
    ++at_;
    if (next() == '}') return ++at_, true;
    for (;;) {
      if (next() != '"') return refuse("no key of a JSON object");
      if (!text()) return false;
      if (next() != ':') return refuse("no ':' behind a key of a JSON object");
      ++at_;
      if (!value(depth + 1)) return false;
      if (next() == '}') return ++at_, true;
      if (next() != ',') return refuse("neither ',' nor '}' in a JSON object");
      ++at_;
    }
  }
  bool elements(std::size_t depth) {
    ++at_;
    if (next() == ']') return ++at_, true;
    for (;;) {
      if (!value(depth + 1)) return false;
      if (next() == ']') return ++at_, true;
      if (next() != ',') return refuse("neither ',' nor ']' in a JSON array");
      ++at_;
    }
  }

  std::string_view text_;
  std::size_t at_ = 0;
  const char* what_ = "";
};

// Of "\u12ab", whose digits are at `at`; none if they are none.
std::optional<char32_t> unit_at(std::string_view text, std::size_t at) {
  std::uint32_t unit = 0;
  if (at + 4 > text.size()) return std::nullopt;
  const auto [end, error] = std::from_chars(text.data() + at, text.data() + at + 4, unit, 16);
  if (error != std::errc() || end != text.data() + at + 4) return std::nullopt;
  return unit;
}

std::string unescaped(std::string_view text) {
  constexpr char32_t kReplacement = 0xfffd;
  std::string plain;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text[at] != '\\' || at + 1 == text.size()) {
      plain += text[at];
      continue;
    }
    switch (const char escaped = text[++at]) {
      case 'n': plain += '\n'; break;
      case 't': plain += '\t'; break;
      case 'r': plain += '\r'; break;
      case 'b': plain += '\b'; break;
      case 'f': plain += '\f'; break;
      case 'u': {
        auto code = unit_at(text, at + 1);
        if (!code) break;
        at += 4;
        const bool is_high = *code >= 0xd800 && *code < 0xdc00;
        const auto low = is_high && text.substr(at + 1).starts_with("\\u") ? unit_at(text, at + 3) : std::nullopt;
        if (low && *low >= 0xdc00 && *low < 0xe000) {
          code = 0x10000 + ((*code - 0xd800) << 10) + (*low - 0xdc00);
          at += 6;
        }
        append_utf8(plain, *code >= 0xd800 && *code < 0xe000 ? kReplacement : *code);
        break;
      }
      default: plain += escaped;
    }
  }
  return plain;
}

}  // namespace

Expected<JsonValue> JsonValue::parse(std::string_view text) {
  if (const auto checked = Checker(text).check(); !checked) return Failure(checked.error());
  return JsonValue(text, skip_space(text, 0));
}

void JsonValue::for_each_member(MemberSink sink) const {
  if (!is_object()) return;
  for (std::size_t at = skip_space(text_, at_ + 1); text_[at] != '}';) {
    const std::size_t end = behind_string(text_, at);
    const std::string_view key = text_.substr(at + 1, end - at - 2);
    const std::size_t value = skip_space(text_, skip_space(text_, end) + 1);
    sink(key, JsonValue(text_, value));
    at = skip_space(text_, behind(text_, value));
    if (text_[at] == ',') at = skip_space(text_, at + 1);
  }
}

void JsonValue::for_each(ElementSink sink) const {
  if (!is_array()) return;
  for (std::size_t at = skip_space(text_, at_ + 1); text_[at] != ']';) {
    if (!sink(JsonValue(text_, at))) return;
    at = skip_space(text_, behind(text_, at));
    if (text_[at] == ',') at = skip_space(text_, at + 1);
  }
}

std::optional<double> JsonValue::number() const {
  double value = 0;
  if (at_ >= text_.size()) return std::nullopt;
  const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
  return error == std::errc() && std::isfinite(value) && !is_null() ? std::optional(value) : std::nullopt;
}

std::optional<std::uint64_t> JsonValue::index() const {
  std::uint64_t value = 0;
  if (at_ >= text_.size()) return std::nullopt;
  const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
  const bool is_whole = end == text_.data() + text_.size() || !is_of_word(*end);
  return error == std::errc() && is_whole ? std::optional(value) : std::nullopt;
}

std::string JsonValue::string() const {
  if (!is_string()) return {};
  return unescaped(text_.substr(at_ + 1, behind_string(text_, at_) - at_ - 2));
}

JsonValue JsonValue::operator[](std::string_view key) const {
  JsonValue found;
  for_each_member([&](std::string_view name, const JsonValue& value) {
    if (name == key && !found) found = value;
  });
  return found;
}

}  // namespace windlass::importer
