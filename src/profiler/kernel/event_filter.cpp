#include "profiler/kernel/event_filter.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstring>
#include <iterator>
#include <memory>
#include <span>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "os/proc_file.h"

namespace windlass::profiler {
namespace {

std::string_view trim(std::string_view text) {
  const auto is_space = [](char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; };
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

// "offset:8" in "...; offset:8; size:16; ..."
std::optional<std::uint16_t> number_of(std::string_view line, std::string_view word) {
  const std::size_t at = line.find(word);
  if (at == std::string_view::npos) return std::nullopt;
  std::uint16_t number = 0;
  const char* const begin = line.data() + at + word.size();
  if (std::from_chars(begin, line.data() + line.size(), number).ec != std::errc{}) return std::nullopt;
  return number;
}

std::optional<wl_field_kind> kind_of(std::string_view type, const RecordField& field, bool is_array, bool is_signed) {
  if (field.name.starts_with("common_")) return std::nullopt;
  if (type.find("__data_loc char") != std::string_view::npos) return WL_FIELD_TEXT_AT;
  if (type.find("__rel_loc char") != std::string_view::npos) return WL_FIELD_TEXT_BEHIND;
  if (is_array) return type == "char" && field.size > 0 ? std::optional(WL_FIELD_TEXT) : std::nullopt;
  if (field.size != 1 && field.size != 2 && field.size != 4 && field.size != 8) return std::nullopt;
  return is_signed ? WL_FIELD_SIGNED : WL_FIELD_UNSIGNED;
}

// "	field:char prev_comm[16];	offset:8;	size:16;	signed:0;"
std::optional<RecordField> field_in(std::string_view line) {
  constexpr std::string_view kField = "field:";
  line = trim(line);
  if (!line.starts_with(kField)) return std::nullopt;
  const std::size_t end = line.find(';');
  const auto offset = number_of(line, "offset:"), size = number_of(line, "size:");
  if (end == std::string_view::npos || !offset || !size) return std::nullopt;
  std::string_view declared = line.substr(kField.size(), end - kField.size());
  const std::size_t name = declared.rfind(' ');
  if (name == std::string_view::npos) return std::nullopt;
  const std::string_view type = trim(declared.substr(0, name));
  declared.remove_prefix(name + 1);
  const std::size_t bracket = std::min(declared.find('['), declared.size());
  RecordField field{.name = std::string(declared.substr(0, bracket)), .offset = *offset, .size = *size};
  field.kind = kind_of(type, field, bracket != declared.size(), number_of(line, "signed:").value_or(0) != 0);
  return field;
}

// A part of the filter: a condition, or two parts.
struct Part {
  enum class Kind : std::uint8_t { kCondition, kAnd, kOr } kind = Kind::kCondition;
  bool negated = false;
  wl_condition condition{};
  std::unique_ptr<Part> left{}, right{};
};

using Parsed = std::expected<std::unique_ptr<Part>, std::string>;

class FilterParser {
 public:
  FilterParser(std::string_view text, const std::vector<RecordField>& fields) : text_(text), fields_(fields) {}

  Parsed parse() {
    auto whole = parse_or(0);
    skip_space();
    if (whole && at_ != text_.size()) return error("there is more than a filter");
    return whole;
  }
  [[nodiscard]] std::size_t conditions() const { return conditions_; }

 private:
  static constexpr int kDeepest = 32;

  [[nodiscard]] std::unexpected<std::string> error(std::string_view what) const {
    return std::unexpected(fmt::format("{} at \"{}\"", what, text_.substr(at_)));
  }
  void skip_space() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
  }
  bool take(std::string_view word) {
    skip_space();
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }
  std::string_view take_word() {
    skip_space();
    const std::size_t begin = at_;
    const auto is_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; };
    while (at_ < text_.size() && is_word(text_[at_])) ++at_;
    return text_.substr(begin, at_ - begin);
  }

  Parsed parse_or(int depth) { return parse_joined("||", Part::Kind::kOr, depth, &FilterParser::parse_and); }
  Parsed parse_and(int depth) { return parse_joined("&&", Part::Kind::kAnd, depth, &FilterParser::parse_one); }

  Parsed parse_joined(std::string_view sign, Part::Kind kind, int depth, Parsed (FilterParser::*part)(int)) {
    Parsed left = (this->*part)(depth);
    while (left && take(sign)) {
      Parsed right = (this->*part)(depth);
      if (!right) return right;
      auto both = std::make_unique<Part>();
      both->kind = kind;
      both->left = std::move(*left);
      both->right = std::move(*right);
      left = std::move(both);
    }
    return left;
  }

  Parsed parse_one(int depth) {
    const bool negated = take("!");
    if (!take("(")) return negated ? Parsed(error("! stands in front of no parenthesis")) : parse_condition();
    if (depth == kDeepest) return error("the parentheses are too deep");
    Parsed inner = parse_or(depth + 1);
    if (!inner) return inner;
    if (!take(")")) return error("a parenthesis is not closed");
    (*inner)->negated ^= negated;
    return inner;
  }

  Parsed parse_condition() {
    if (conditions_++ == WL_MAX_CONDITIONS)
      return error(fmt::format("there are more than {} conditions", WL_MAX_CONDITIONS));
    const auto field = take_field();
    if (!field) return std::unexpected(field.error());
    auto part = std::make_unique<Part>();
    wl_condition& condition = part->condition;
    condition.offset = (*field)->offset;
    condition.size = static_cast<__u8>(std::min<unsigned>((*field)->size, WL_MAX_CONDITION_TEXT));
    condition.kind = static_cast<__u8>(*(*field)->kind);
    if (auto compared = take_comparison(*part); !compared) return std::unexpected(std::move(compared.error()));
    const auto value = is_text(condition) ? take_text(condition) : take_number(condition);
    if (!value) return std::unexpected(value.error());
    return part;
  }

  static bool is_text(const wl_condition& condition) { return condition.kind >= WL_FIELD_TEXT; }

  std::expected<const RecordField*, std::string> take_field() {
    skip_space();
    const std::size_t begin = at_;
    const std::string_view name = take_word();
    const auto field = std::ranges::find(fields_, name, &RecordField::name);
    if (field != fields_.end() && field->kind) return &*field;
    at_ = begin;
    std::vector<std::string_view> usable;
    for (const RecordField& one : fields_)
      if (one.kind) usable.emplace_back(one.name);
    return error(fmt::format("a filter needs one of the fields {}", fmt::join(usable, ", ")));
  }

  std::expected<void, std::string> take_comparison(Part& part) {
    struct Sign {
      std::string_view text;
      wl_comparison comparison;
      bool negated;
    };
    static constexpr Sign kSigns[] = {{"==", WL_EQUAL, false}, {"!=", WL_EQUAL, true}, {"<=", WL_AT_MOST, false},
                                      {">=", WL_LESS, true},   {"<", WL_LESS, false},  {">", WL_AT_MOST, true},
                                      {"&", WL_HAS_BIT, false}};
    const std::size_t count = is_text(part.condition) ? 2 : std::size(kSigns);
    skip_space();
    if (!text_.substr(at_).starts_with("&&"))
      for (const Sign& sign : std::span(kSigns).first(count))
        if (take(sign.text)) {
          part.condition.comparison = static_cast<__u8>(sign.comparison);
          part.negated = sign.negated;
          return {};
        }
    return error(count == 2 ? "a text needs == or !=" : "a number needs ==, !=, <, <=, >, >= or &");
  }

  std::expected<void, std::string> take_text(wl_condition& condition) {
    if (!take("\"")) return error("a text stands in quotation marks:");
    const std::size_t end = text_.find('"', at_);
    if (end == std::string_view::npos) return error("a text is not closed");
    const std::string_view value = text_.substr(at_, end - at_);
    constexpr std::size_t kLongest = WL_MAX_CONDITION_TEXT - 2;  // what the kernel side cut off is never equal
    if (value.size() > kLongest) return error(fmt::format("a text has more than {} bytes", kLongest));
    std::memcpy(condition.value, value.data(), value.size());
    at_ = end + 1;
    return {};
  }

  // Of the field's size and sign.
  std::expected<void, std::string> take_number(wl_condition& condition) {
    skip_space();
    const std::size_t begin = at_;
    const bool negative = take("-");
    std::string_view digits = take_word();
    const int base = digits.starts_with("0x") ? 16 : 10;
    if (base == 16) digits.remove_prefix(2);
    std::uint64_t number = 0;
    const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), number, base);
    const bool is_number = !digits.empty() && read.ec == std::errc{} && read.ptr == digits.data() + digits.size();
    const bool is_signed = condition.kind == WL_FIELD_SIGNED;
    const std::uint64_t most = ~std::uint64_t{0} >> (64 - 8 * condition.size + (is_signed ? 1 : 0));
    if (!is_number || (negative && !is_signed) || number > most + (negative ? 1 : 0)) {
      at_ = begin;
      return error(
          fmt::format("a number from {}{} to {} is needed", is_signed ? "-" : "", is_signed ? most + 1 : 0, most));
    }
    condition.value[0] = negative ? -number : number;
    return {};
  }

  std::string_view text_;
  const std::vector<RecordField>& fields_;
  std::size_t at_ = 0;
  std::size_t conditions_ = 0;
};

// Writes the conditions of `part` in front of `begin`, and sets `begin` to the first. The last one is written first, so
// that each knows where those behind it stand.
void write_part(const Part& part, __u8 if_true, __u8 if_false, wl_conditions& to, __u8& begin) {
  if (part.negated) std::swap(if_true, if_false);
  if (part.kind == Part::Kind::kCondition) {
    wl_condition& condition = to.of[--begin] = part.condition;
    condition.if_true = if_true;
    condition.if_false = if_false;
    return;
  }
  write_part(*part.right, if_true, if_false, to, begin);
  const bool is_and = part.kind == Part::Kind::kAnd;
  write_part(*part.left, is_and ? begin : if_true, is_and ? if_false : begin, to, begin);
}

}  // namespace

std::vector<RecordField> record_fields(std::string_view format) {
  std::vector<RecordField> fields;
  for (std::size_t at = 0; at < format.size();) {
    const std::size_t end = std::min(format.find('\n', at), format.size());
    if (auto field = field_in(format.substr(at, end - at))) fields.push_back(std::move(*field));
    at = end + 1;
  }
  return fields;
}

std::expected<wl_conditions, std::string> compile_event_filter(std::string_view text,
                                                               const std::vector<RecordField>& fields) {
  FilterParser parser(text, fields);
  const Parsed whole = parser.parse();
  if (!whole)
    return std::unexpected(whole.error() + R"(. Way out: a filter as /prev_prio < 100 && next_comm == "make"/)");
  wl_conditions conditions{};
  conditions.count = static_cast<__u32>(parser.conditions());
  auto begin = static_cast<__u8>(conditions.count);
  write_part(**whole, WL_CONDITION_PASS, WL_CONDITION_LEAVE_OUT, conditions, begin);
  return conditions;
}

std::string tracepoint_format(const std::string& category, const std::string& point) {
  constexpr std::size_t kLongest = std::size_t{1} << 20;
  for (const char* root : {"/sys/kernel/tracing", "/sys/kernel/debug/tracing"})
    if (std::string text = os::read_proc_file(fmt::format("{}/events/{}/{}/format", root, category, point), kLongest);
        !text.empty())
      return text;
  return {};
}

}  // namespace windlass::profiler
