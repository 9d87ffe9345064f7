// A JSON text (RFC 8259) that is read where it lies: no tree is made, so whoever wrote the text cannot make the reader
// use more memory than the text has.
//
// A text is checked once, and then values are walked. A walk over the members of an object is linear in its text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "windlass/error.h"
#include "windlass/function_ref.h"

namespace windlass::importer {

class JsonValue {
 public:
  JsonValue() = default;

  // kMalformed, naming the offset, if `text` is no JSON or is nested deeper than 64. `text` must outlive the value.
  [[nodiscard]] static Expected<JsonValue> parse(std::string_view text);

  [[nodiscard]] bool is_object() const { return first() == '{'; }
  [[nodiscard]] bool is_array() const { return first() == '['; }
  [[nodiscard]] bool is_null() const { return first() == 'n'; }
  [[nodiscard]] bool is_true() const { return first() == 't'; }
  [[nodiscard]] bool is_string() const { return first() == '"'; }
  // Its offset in the text.
  [[nodiscard]] std::uint64_t where() const { return at_; }

  // Nothing for values of another type.
  using MemberSink = FunctionRef<void(std::string_view key, const JsonValue& value)>;
  void for_each_member(MemberSink sink) const;  // keys as they are written
  using ElementSink = FunctionRef<bool(const JsonValue& value)>;
  void for_each(ElementSink sink) const;  // false: no more
  [[nodiscard]] std::optional<double> number() const;
  [[nodiscard]] std::optional<std::uint64_t> index() const;  // a whole number that is not negative
  [[nodiscard]] std::string string() const;                  // empty for other types

  // A member of an object; an empty one, of no type, where it has none.
  [[nodiscard]] JsonValue operator[](std::string_view key) const;
  explicit operator bool() const { return !text_.empty(); }

 private:
  JsonValue(std::string_view text, std::size_t at) : text_(text), at_(at) {}
  [[nodiscard]] char first() const { return at_ < text_.size() ? text_[at_] : '\0'; }

  std::string_view text_;
  std::size_t at_ = 0;  // of the value's first character
};

}  // namespace windlass::importer
